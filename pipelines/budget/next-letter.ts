import { FAST_UNTIL } from "../1-observe/plan/plan.ts";
import { BLOCKS_PER_DAY } from "../1-observe/plan/steps.ts";
import { figuresOf } from "../3-grade/components.ts";
import { type DayLetter, publishedBand } from "../3-grade/hold.ts";
import { gradeTier, headlineTier } from "../3-grade/letter.ts";
import { type Endpoint, sumRows } from "../3-grade/pure.ts";
import type { Sample } from "../3-grade/sample.ts";
import { BLOCK_MS, blockOf, blockStart, dayOf, dayStart } from "../record/time.ts";
import { BANDS, type Band } from "../record/vocabulary.ts";

/** Days that are looked ahead: more than the window after which a theft no longer counts. */
const AHEAD_DAYS = 130;
/** Latency that is assumed where none was ever measured, ms, as in the table of the method. */
const LATENCY_MS = 800;

/** An endpoint whose next letter is computed. */
export interface Prospect {
  endpoint: Endpoint;
  /** Published headline letter, UNRATED before the first. */
  published: Band;
  /** Raw headline letters of its leaves, in log order, for the hold. */
  raw: readonly DayLetter[];
  paidBlocks: number;
  /** Price of one paid call, micro-units. */
  priceMicro: bigint;
  /**
   * For an endpoint that was never paid: is there a question whose answer we know, and does the seller advertise a
   * schema?
   */
  truth: boolean;
  schema: boolean;
}

export interface NextLetter {
  /** The next better letter, null when there is none within the days looked ahead. */
  next: Band | null;
  /** Further good paid calls until the gates of that letter are met. */
  gate_calls: number;
  /** Day on which the gates are met. */
  gate_day: string;
  /** Day on which the hold lets the letter be published. */
  day: string;
  /** Paid calls of the plan until then. */
  calls: number;
  /** Their cost, micro-units. */
  cost_micro: bigint;
}

/** Order of the letters: 0 for A .. 4 for F, and 5 for UNRATED. */
const rank = (band: Band): number => (band === "UNRATED" ? BANDS.length : BANDS.indexOf(band));

function rawAt(endpoint: Endpoint, at: Date): Band {
  const sums = sumRows(endpoint, at);
  const figures = figuresOf(sums);
  return gradeTier(headlineTier(figures), sums, figures, at.getTime()).raw;
}

const median = (values: readonly number[]): number | null =>
  values.length === 0 ? null : [...values].sort((a, b) => a - b)[Math.floor(values.length / 2)]!;

/** A perfect probe and a perfect paid call of this endpoint, modelled on what it showed so far. */
function perfect({ endpoint: { rows }, priceMicro, truth, schema }: Prospect): { probe: Sample; paid: Sample } {
  const bought = rows.filter(({ kind, fault }) => kind === 1 && fault === null);
  const delivered = bought.filter((row) => row.delivered);
  const latency = (of: readonly Sample[]) => median(of.flatMap(({ latency_ms: ms }) => (ms === null ? [] : [ms])));
  const told = rows.length === 0 || rows.some(({ honest }) => honest !== null);
  const probe: Sample = {
    ...{ obs_id: "", t: new Date(0), kind: 0, payer: null, w: 1, fault: null, live: true, honest: told ? true : null },
    ...{ settled: false, delivered: null, refunded: false, delivery: null, outcome: null, schema_ok: null },
    latency_ms: latency(rows.filter(({ kind, live }) => kind === 0 && live)) ?? LATENCY_MS,
    ...{ price: Number(priceMicro) / 1e6, input: null, response_sha256: null, pay_to: null },
  };
  const checked = bought.length === 0 ? truth : bought.some(({ outcome }) => outcome !== null);
  const advertised = delivered.length === 0 ? schema : delivered.some(({ schema_ok: ok }) => ok !== null);
  const paid: Sample = {
    ...probe,
    ...{ kind: 1, settled: true, delivered: true, delivery: 1, outcome: checked ? 1 : null },
    ...{ schema_ok: advertised ? true : null, latency_ms: latency(delivered) ?? LATENCY_MS, input: "example" },
  };
  return { probe, paid };
}

/** A future block, and the number of calls paid until its end. */
interface Ahead {
  end: Date;
  calls: number;
}

/**
 * The planned calls from the next block on, all of them good: in every block until 30 blocks were paid, then one a day.
 */
function future(prospect: Prospect, now: Date): { rows: Sample[]; blocks: Ahead[] } {
  const { probe, paid } = perfect(prospect);
  const rows: Sample[] = [];
  const blocks: Ahead[] = [];
  let calls = 0;
  const first = blockOf(now) + 1;
  for (let block = first; block < first + AHEAD_DAYS * BLOCKS_PER_DAY; block++) {
    const t = new Date(block * BLOCK_MS + BLOCK_MS / 2);
    rows.push({ ...probe, obs_id: `ahead ${block} free`, t });
    const every = prospect.paidBlocks + calls < FAST_UNTIL;
    if (every || block % BLOCKS_PER_DAY === 0) {
      rows.push({ ...paid, obs_id: `ahead ${block} paid`, t });
      calls++;
    }
    blocks.push({ end: blockStart(block + 1), calls });
  }
  return { rows, blocks };
}

/** First block after which the raw letter is better than `than`. Binary search works, since good calls only help. */
function firstBetter(
  prospect: Prospect,
  ahead: ReturnType<typeof future>,
  than: Band,
): { n: number; raw: Band } | null {
  const { blocks, rows } = ahead;
  const endpoint = { ...prospect.endpoint, rows: [...prospect.endpoint.rows, ...rows] };
  const raw = (n: number): Band => rawAt(endpoint, blocks[n]!.end);
  let low = 0;
  let high = blocks.length - 1;
  if (rank(raw(high)) >= rank(than)) return null;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rank(raw(middle)) < rank(than)) high = middle;
    else low = middle + 1;
  }
  return { n: low, raw: raw(low) };
}

/**
 * First day on which the hold lets a letter better than `than` be published, if the raw letter is `raw` from `from` on.
 */
function heldUntil(letters: readonly DayLetter[], from: string, raw: Band, than: Band): string {
  const held = publishedBand([...letters, { day: from, band: raw }], from, raw);
  if (rank(held.band) < rank(than) || held.heldUntil === null) return from;
  return held.heldUntil;
}

/**
 * What the next better letter of an endpoint costs. The code that grades computes the letter from the record and from
 * perfect calls of the plan, until it is better than the published one and the hold lets it be published. This is a
 * lower bound, since a failure on the way costs more.
 */
export function nextLetter(prospect: Prospect, now: Date): NextLetter {
  const { endpoint, published, raw: letters, priceMicro } = prospect;
  const today = dayOf(now);
  const rawNow = rawAt(endpoint, now);
  const ahead = future(prospect, now);
  const none = { next: null, gate_calls: 0, gate_day: today, day: today, calls: 0, cost_micro: 0n };
  if (published === "A") return none;
  const better = rank(rawNow) < rank(published) ? { n: -1, raw: rawNow } : firstBetter(prospect, ahead, published);
  if (!better) return none;
  const met = better.n < 0 ? { end: now, calls: 0 } : ahead.blocks[better.n]!;
  // The end of a block is the first moment of the next one; a block's last calls are graded on its own day.
  const gateDay = better.n < 0 ? today : dayOf(new Date(met.end.getTime() - 1));
  const day = heldUntil([...letters, { day: today, band: rawNow }], gateDay, better.raw, published);
  const waited = ahead.blocks.filter(({ end }) => end.getTime() <= dayStart(day).getTime()).at(-1)?.calls ?? 0;
  const calls = Math.max(met.calls, waited);
  return {
    next: better.raw,
    gate_calls: met.calls,
    gate_day: gateDay,
    day,
    calls,
    cost_micro: priceMicro * BigInt(calls),
  };
}
