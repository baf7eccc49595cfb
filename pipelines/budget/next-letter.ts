import { BLOCKS_BEFORE_DAILY } from "../1-observe/plan/plan.ts";
import { BLOCKS_PER_DAY } from "../1-observe/plan/steps.ts";
import { figuresOf } from "../3-grade/components.ts";
import { bandToPublish, type DayLetter } from "../3-grade/hold.ts";
import { gradeTier, headlineTier } from "../3-grade/letter.ts";
import { type Endpoint, sumRows } from "../3-grade/pure.ts";
import type { Sample } from "../3-grade/sample.ts";
import { BLOCK_MS, blockOf, blockStart, dayOf, dayStart } from "../record/time.ts";
import { BANDS, type Band } from "../record/vocabulary.ts";

/**
 * Days for which calls are simulated. It is longer than the grading window, so that an old theft (money taken without
 * an answer) no longer counts at the end.
 */
const LOOKAHEAD_DAYS = 130;
/** Latency that is assumed for an endpoint without a measured one, ms, as in the table of verification-method.md. */
const DEFAULT_LATENCY_MS = 800;

/** An endpoint for which the next better letter (grade) is computed. */
export interface EndpointProspect {
  endpoint: Endpoint;
  /** Letter of the endpoint's published headline card (the one that `check` shows); UNRATED before the first. */
  published: Band;
  /**
   * Raw letters of the endpoint's published headline cards, oldest first. The published letter is the worst raw
   * letter of the last 14 days, so it rises only after a delay, the hold.
   */
  raw: readonly DayLetter[];
  /** Number of blocks (six hours UTC) in which a paid call of the endpoint counts for its grade. */
  paidBlocks: number;
  /** Price of one paid call, micro-units. */
  priceMicro: bigint;
  /** Can we ask the endpoint a question whose answer we know? Used only if the endpoint was never paid. */
  hasKnownAnswer: boolean;
  /** Does the seller advertise an output schema? Used only if no answer of the endpoint is recorded. */
  hasSchema: boolean;
}

export interface NextLetter {
  /** The next better letter; null when none is reached within the simulated days. */
  next: Band | null;
  /** Number of further good paid calls until the conditions of the better letter (its gates) are met. */
  gate_calls: number;
  /** Day on which the conditions are met. */
  gate_day: string;
  /** Day on which the hold allows the letter to be published. */
  day: string;
  /** Number of planned paid calls until `day`. */
  calls: number;
  /** Cost of these calls, micro-units. */
  cost_micro: bigint;
}

/** Order of the letters: 0 for A .. 4 for F, and 5 for UNRATED. */
const rank = (band: Band): number => (band === "UNRATED" ? BANDS.length : BANDS.indexOf(band));

function rawBandAt(endpoint: Endpoint, at: Date): Band {
  const sums = sumRows(endpoint, at);
  const figures = figuresOf(sums);
  return gradeTier(headlineTier(figures), sums, figures, at.getTime()).rawBand;
}

const median = (values: readonly number[]): number | null =>
  values.length === 0 ? null : [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)]!;

/**
 * Makes a perfect probe (unpaid request) and a perfect paid call of this endpoint, with the median latency and the
 * kinds of checks of its calls so far.
 */
function perfectSamples({ endpoint: { rows }, priceMicro, hasKnownAnswer, hasSchema }: EndpointProspect): {
  probe: Sample;
  paid: Sample;
} {
  const paidRows = rows.filter(({ kind, fault }) => kind === 1 && fault === null);
  const deliveredRows = paidRows.filter((row) => row.delivered);
  const medianLatency = (samples: readonly Sample[]) =>
    median(samples.flatMap(({ latency_ms: ms }) => (ms === null ? [] : [ms])));
  const isHonestyKnown = rows.length === 0 || rows.some(({ honest }) => honest !== null);
  const probe: Sample = {
    ...{
      obs_id: "",
      t: new Date(0),
      kind: 0,
      payer: null,
      w: 1,
      fault: null,
      live: true,
      honest: isHonestyKnown ? true : null,
    },
    ...{ settled: false, delivered: null, refunded: false, delivery: null, outcome: null, schema_ok: null },
    latency_ms: medianLatency(rows.filter(({ kind, live }) => kind === 0 && live)) ?? DEFAULT_LATENCY_MS,
    ...{ price: Number(priceMicro) / 1e6, input: null, response_sha256: null, pay_to: null },
  };
  const isChecked = paidRows.length === 0 ? hasKnownAnswer : paidRows.some(({ outcome }) => outcome !== null);
  const isSchemaAdvertised =
    deliveredRows.length === 0 ? hasSchema : deliveredRows.some(({ schema_ok: ok }) => ok !== null);
  const paidCall: Sample = {
    ...probe,
    ...{ kind: 1, settled: true, delivered: true, delivery: 1, outcome: isChecked ? 1 : null },
    ...{
      schema_ok: isSchemaAdvertised ? true : null,
      latency_ms: medianLatency(deliveredRows) ?? DEFAULT_LATENCY_MS,
      input: "example",
    },
  };
  return { probe, paid: paidCall };
}

/** The end of a future block (six hours UTC), and the number of simulated calls paid until then. */
interface FutureBlock {
  end: Date;
  calls: number;
}

/**
 * Simulates the planned calls from the next block on, all of them good: one paid call in every block until 30 blocks
 * have one, then one a day.
 */
function simulateCalls(prospect: EndpointProspect, now: Date): { rows: Sample[]; blocks: FutureBlock[] } {
  const { probe, paid } = perfectSamples(prospect);
  const rows: Sample[] = [];
  const blocks: FutureBlock[] = [];
  let calls = 0;
  const firstBlock = blockOf(now) + 1;
  for (let block = firstBlock; block < firstBlock + LOOKAHEAD_DAYS * BLOCKS_PER_DAY; block++) {
    const t = new Date(block * BLOCK_MS + BLOCK_MS / 2);
    rows.push({ ...probe, obs_id: `ahead ${block} free`, t });
    const isEveryBlock = prospect.paidBlocks + calls < BLOCKS_BEFORE_DAILY;
    if (isEveryBlock || block % BLOCKS_PER_DAY === 0) {
      rows.push({ ...paid, obs_id: `ahead ${block} paid`, t });
      calls++;
    }
    blocks.push({ end: blockStart(block + 1), calls });
  }
  return { rows, blocks };
}

/**
 * Finds the first future block after which the raw letter is better than `current`, by binary search, since further
 * good calls never lower the letter; null if there is none.
 */
function findFirstBetter(
  prospect: EndpointProspect,
  simulated: ReturnType<typeof simulateCalls>,
  current: Band,
): { n: number; raw: Band } | null {
  const { blocks, rows } = simulated;
  const endpoint = { ...prospect.endpoint, rows: [...prospect.endpoint.rows, ...rows] };
  const rawBandAfter = (n: number): Band => rawBandAt(endpoint, blocks[n]!.end);
  let low = 0;
  let high = blocks.length - 1;
  if (rank(rawBandAfter(high)) >= rank(current)) return null;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rank(rawBandAfter(middle)) < rank(current)) high = middle;
    else low = middle + 1;
  }
  return { n: low, raw: rawBandAfter(low) };
}

/**
 * Returns the first day on which a letter better than `current` can be published, if the raw letter is `raw` from
 * `fromDay` on.
 */
function publishableDay(letters: readonly DayLetter[], fromDay: string, raw: Band, current: Band): string {
  const heldLetter = bandToPublish([...letters, { day: fromDay, band: raw }], fromDay, raw);
  if (rank(heldLetter.band) < rank(current) || heldLetter.heldUntil === null) return fromDay;
  return heldLetter.heldUntil;
}

/**
 * Computes what the next better letter of an endpoint costs. It grades the recorded calls together with simulated
 * perfect calls, as the daily plans would make them, until the letter is better than the published one and the hold
 * allows it. The result is a lower bound, since a failed call would cost more.
 */
export function computeNextLetter(prospect: EndpointProspect, now: Date): NextLetter {
  const { endpoint, published, raw: letters, priceMicro } = prospect;
  const today = dayOf(now);
  const rawNow = rawBandAt(endpoint, now);
  const simulated = simulateCalls(prospect, now);
  const noNextLetter = { next: null, gate_calls: 0, gate_day: today, day: today, calls: 0, cost_micro: 0n };
  if (published === "A") return noNextLetter;
  const firstBetter =
    rank(rawNow) < rank(published) ? { n: -1, raw: rawNow } : findFirstBetter(prospect, simulated, published);
  if (!firstBetter) return noNextLetter;
  const gate = firstBetter.n < 0 ? { end: now, calls: 0 } : simulated.blocks[firstBetter.n]!;
  // One millisecond is subtracted, since the end of a block is the first moment of the next block and may be on the
  // next day.
  const gateDay = firstBetter.n < 0 ? today : dayOf(new Date(gate.end.getTime() - 1));
  const day = publishableDay([...letters, { day: today, band: rawNow }], gateDay, firstBetter.raw, published);
  const callsUntilDay =
    simulated.blocks.filter(({ end }) => end.getTime() <= dayStart(day).getTime()).at(-1)?.calls ?? 0;
  const calls = Math.max(gate.calls, callsUntilDay);
  return {
    next: firstBetter.raw,
    gate_calls: gate.calls,
    gate_day: gateDay,
    day,
    calls,
    cost_micro: priceMicro * BigInt(calls),
  };
}
