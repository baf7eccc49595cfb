import { listsRepeatedAnswers, type RunLine, VERIFIER_VERSION } from "../record/card.ts";
import { round6, worstOf } from "./bounds.ts";
import { lineOf } from "./cards.ts";
import { AFTER, DAY_MS, EVIDENCE_ROWS, QUOTES_A_DAY, WALL_ONE_IN, windowStart } from "./params.ts";
import type { RelatedParties } from "./related.ts";
import { counts, inputsDigest, type Reading, readingOf, type Sample } from "./sample.ts";
import { p95, priceStability } from "./scores.ts";
import { type BlockSample, PARTS, type PartName, partsOf, type Sums } from "./sums.ts";

const mean = (xs: readonly number[]): number | null =>
  xs.length === 0 ? null : round6(xs.reduce((sum, x) => sum + x, 0) / xs.length);
const known = <T>(xs: readonly (T | null)[]): T[] => xs.filter((x) => x !== null);
const meanOf = (xs: readonly (number | null)[]): number | null => mean(known(xs));
const shareOf = (xs: readonly (boolean | null)[]): number | null => meanOf(known(xs).map(Number));

/** Own rows by block, in time order. */
function byBlock(rows: readonly Reading[]): Reading[][] {
  const blocks = new Map<number, Reading[]>();
  for (const row of rows) {
    const block = blocks.get(row.block);
    if (block) block.push(row);
    else blocks.set(row.block, [row]);
  }
  return [...blocks].sort(([a], [b]) => a - b).map(([, block]) => block);
}

/** Blocks with a wall: the first m/20, in time order, are excused. */
function wallsOf(blocks: readonly Reading[][]): { excused: Set<Reading[]>; walled: boolean } {
  const holding = blocks.filter((block) => block.some((row) => row.wall));
  const allowed = Math.floor(blocks.length / WALL_ONE_IN);
  return { excused: new Set(holding.slice(0, allowed)), walled: holding.length > allowed };
}

/** A paid block weighs the mean of its rows' weights, fixed before their outcome and never above 1. */
const weightOf = (paid: readonly Reading[]): number =>
  paid.reduce((sum, { row }) => sum + Math.min(row.w ?? 1, 1), 0) / Math.max(1, paid.length);

function samplesOf(block: readonly Reading[], excused: boolean): Record<PartName, BlockSample> {
  const paid = block.filter((row) => row.paid);
  const w = weightOf(paid);
  const looked = excused ? block.filter((row) => !row.wall) : block;
  return {
    liveness: { w: 1, x: shareOf(looked.map((row) => row.answered)) },
    honesty: { w: 1, x: shareOf(block.map((row) => row.honest)) },
    paid_honesty: { w: 1, x: shareOf(paid.map((row) => row.honest)) },
    delivery: { w, x: meanOf(paid.map((row) => row.delivery)) },
    outcome: { w, x: meanOf(paid.map((row) => row.outcome)) },
    schema_conformance: { w, x: shareOf(paid.map((row) => row.schema_ok)) },
  };
}

/** Sums of every part, and the course of the paid blocks by the deepest check there was. */
function blockSums(blocks: readonly Reading[][]): Pick<Sums, "parts" | "course" | "walled"> {
  const { excused, walled } = wallsOf(blocks);
  const all = blocks.map((block) => samplesOf(block, excused.has(block)));
  const samples = Object.fromEntries(PARTS.map((name) => [name, all.map((of) => of[name])]));
  const course = known(all.map((of) => of.outcome.x ?? of.delivery.x));
  return { parts: partsOf(samples as Record<PartName, BlockSample[]>), course, walled };
}

/** One endpoint as the record holds it. */
export interface Endpoint {
  cap: string;
  pay_to: string | null;
  domain: string | null;
  disputed: boolean;
  /** All its rows, any order; those outside the window are left aside. */
  rows: readonly Sample[];
  /** Ids of rows that a correction withdrew. */
  withdrawn: ReadonlySet<string>;
}

/** Newest first; among rows of the same moment the greatest id is the newest. */
const newestFirst = (a: Reading, b: Reading): number =>
  b.row.t.getTime() - a.row.t.getTime() || Buffer.compare(Buffer.from(b.row.obs_id), Buffer.from(a.row.obs_id));

const newest = (rows: readonly Reading[]): number | null =>
  rows.reduce<number | null>((last, { row }) => Math.max(last ?? row.t.getTime(), row.t.getTime()), null);

/** Worst call of each payer in each block, then the worst blocks of each payer. */
function buyersOf(rows: readonly Sample[]): Sums["buyers"] {
  const worst = new Map<PartName, Map<string | null, Map<number, number>>>();
  for (const row of rows) {
    const call = readingOf(row, row.settled === true);
    const values: [PartName, number | boolean | null][] = [
      ["liveness", call.answered],
      ["honesty", call.honest],
      ["delivery", call.delivery],
      ["outcome", call.outcome],
      ["schema_conformance", call.schema_ok],
    ];
    for (const [part, value] of values) {
      if (value === null) continue;
      const payers = worst.get(part) ?? new Map<string | null, Map<number, number>>();
      worst.set(part, payers);
      const blocks = payers.get(row.payer) ?? new Map<number, number>();
      payers.set(row.payer, blocks);
      blocks.set(call.block, Math.min(blocks.get(call.block) ?? 1, Number(value)));
    }
  }
  return Object.fromEntries(
    [...worst].map(([part, payers]) => [part, [...payers.values()].flatMap((blocks) => worstOf([...blocks.values()]))]),
  );
}

const oldest = (rows: readonly Reading[]): number | null =>
  rows.reduce<number | null>((first, { row }) => Math.min(first ?? row.t.getTime(), row.t.getTime()), null);

const amount = (taken: readonly Reading[]) => ({
  calls: taken.length,
  sum: round6(taken.reduce((sum, { price }) => sum + (price ?? 0), 0)),
});

/** Settlements of ours that brought nothing and were not refunded: those that count by now, and the first that does not. */
function theftsOf(paid: readonly Reading[], now: number): Pick<Sums, "theft" | "pendingFirst"> {
  const taken = paid.filter(({ row, delivered }) => row.settled && !delivered && !row.refunded);
  const final = taken.filter(({ row }) => row.t.getTime() <= now - AFTER.pendingTheft);
  const pending = taken.filter(({ row }) => row.t.getTime() > now - AFTER.pendingTheft);
  const last = newest(final);
  return {
    theft: last === null ? null : { blocks: new Set(final.map(({ block }) => block)).size, ...amount(final), last },
    pendingFirst: pending.length === 0 ? null : Math.min(...pending.map(({ row }) => row.t.getTime())),
  };
}

function pricesOf(own: readonly Reading[]): Pick<Sums, "price" | "dynamicPrice" | "priceNow" | "priceTested"> {
  const quoted = own.filter((row): row is Reading & { price: number } => row.price !== null).sort(newestFirst);
  const days = new Map<number, number[]>();
  for (const { row, price } of quoted) {
    const day = Math.floor(row.t.getTime() / DAY_MS);
    days.set(day, [...(days.get(day) ?? []), price]);
  }
  const { w, s } = priceStability(days);
  const tested = quoted.filter(({ paid, row }) => paid && row.settled).map(({ price }) => price);
  return {
    price: { w, s: round6(s) },
    dynamicPrice: [...days.values()].some((quotes) => new Set(quotes).size > QUOTES_A_DAY),
    priceNow: quoted[0]?.price ?? null,
    priceTested: tested.length === 0 ? null : Math.max(...tested),
  };
}

function latencyOf(own: readonly Reading[]): Sums["latency"] {
  const timed = (paid: boolean) =>
    own.filter((row) => row.paid === paid && row.ms !== null).map(({ block, ms }) => [block, ms ?? 0] as const);
  return { free: p95(timed(false)), paid: p95(timed(true)) };
}

/**
 * The sums of one endpoint from its rows: what sql/grade and fold.ts make of the lake, written a second time, plainly
 * and without a database.
 * @param version of our checks: what cards of it name (record/card, namesRepeats)
 */
export function sumsOf(endpoint: Endpoint, now: Date, version: string = VERIFIER_VERSION): Sums {
  const since = windowStart(now);
  const inWindow = endpoint.rows.filter(({ t }) => t >= since && t < now);
  const standing = inWindow.filter(({ obs_id }) => !endpoint.withdrawn.has(obs_id));
  const counted = standing.filter(counts);
  const own = counted.filter(({ kind }) => kind < 2).map((row) => readingOf(row, row.kind === 1));
  const paid = own.filter((row) => row.paid);
  const told = own.filter(({ honest }) => honest !== null).sort(newestFirst);
  const answers = paid.filter(({ delivered, row }) => delivered && row.response_sha256 !== null).sort(newestFirst);
  const hashes = answers.map(({ row }) => row.response_sha256 ?? "");
  return {
    cap: endpoint.cap,
    counted: own.length,
    emptied: own.length === 0 && standing.length < inWindow.length,
    ...blockSums(byBlock(own)),
    buyers: buyersOf(counted.filter(({ kind }) => kind === 2)),
    latency: latencyOf(own),
    ...pricesOf(own),
    ...theftsOf(paid, now.getTime()),
    refunds: paid.filter(({ row, delivered }) => row.settled && !delivered && row.refunded).length,
    signed: paid.length,
    settled: paid.filter(({ row }) => row.settled).length,
    served: paid.filter(({ delivered }) => delivered).length,
    examples: paid.filter(({ row }) => row.input === "example" || row.input === "known_answer").length,
    seenFirst: oldest(own),
    seenLast: newest(own),
    paidFirst: oldest(paid),
    paidLast: newest(paid),
    liveLast: newest(own.filter(({ answered }) => answered)),
    honestNow: told[0]?.honest ?? null,
    unconfirmed: standing.some(({ kind, fault }) => kind === 2 && fault === "unconfirmed"),
    payToChanged: new Set(own.map(({ row }) => row.pay_to).filter((payTo) => payTo !== null)).size > 1,
    disputed: endpoint.disputed,
    payTo: endpoint.pay_to,
    domain: endpoint.domain,
    evidence: (listsRepeatedAnswers(version) ? hashes : [...new Set(hashes)]).slice(0, EVIDENCE_ROWS),
  };
}

/**
 * The grade of one endpoint from its rows alone, without DuckDB: for the auditor and for light clients. Equal to the
 * line of a grade run at the same moment, figure by figure.
 * @param version of our checks: that of a published card makes the line as it was made then
 */
export function gradeRows(
  endpoint: Endpoint,
  related: RelatedParties,
  now: Date,
  version: string = VERIFIER_VERSION,
): RunLine {
  const since = windowStart(now);
  const standing = endpoint.rows.filter(({ t, obs_id }) => t >= since && t < now && !endpoint.withdrawn.has(obs_id));
  return lineOf(sumsOf(endpoint, now, version), related.of(endpoint), inputsDigest(standing), now, version);
}
