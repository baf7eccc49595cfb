import type { RunLine } from "../record/card.ts";
import { addressKey } from "../record/networks.ts";
import { listsRepeatedAnswers, VERIFIER_VERSION } from "../record/verifier-version.ts";
import { round6, worstBlocks } from "./bounds.ts";
import { gradeLineWithDigest } from "./cards.ts";
import {
  BLOCKS_PER_EXCUSED_WALL,
  CHANGE_DELAYS_MS,
  DAY_MS,
  EVIDENCE_ROWS,
  MAX_PRICES_A_DAY,
  windowStart,
} from "./params.ts";
import type { RelatedParties } from "./related.ts";
import { compareIds, inputsDigest, isCounted, readSample, type Sample, type SampleReading } from "./sample.ts";
import { p95, priceStability } from "./scores.ts";
import { type BlockSample, PARTS, type PartName, type Sums, sumParts } from "./sums.ts";

const mean = (xs: readonly number[]): number | null =>
  xs.length === 0 ? null : round6(xs.reduce((sum, x) => sum + x, 0) / xs.length);
const withoutNulls = <T>(xs: readonly (T | null)[]): T[] => xs.filter((x) => x !== null);
const meanWithoutNulls = (xs: readonly (number | null)[]): number | null => mean(withoutNulls(xs));
const shareOfTrue = (xs: readonly (boolean | null)[]): number | null => meanWithoutNulls(withoutNulls(xs).map(Number));

/** Groups our own rows by block (six hours UTC), blocks in time order. */
function groupByBlock(rows: readonly SampleReading[]): SampleReading[][] {
  const blocks = new Map<number, SampleReading[]>();
  for (const row of rows) {
    const block = blocks.get(row.block);
    if (block) block.push(row);
    else blocks.set(row.block, [row]);
  }
  return [...blocks].sort(([a], [b]) => a - b).map(([, block]) => block);
}

/**
 * Finds the blocks with a wall (a bot check, 403 or 429). The first of them in time order are excused, one for each 20
 * blocks.
 */
function excuseWalls(blocks: readonly SampleReading[][]): { excused: Set<SampleReading[]>; walled: boolean } {
  const blocksWithWall = blocks.filter((block) => block.some((row) => row.wall));
  const maxExcused = Math.floor(blocks.length / BLOCKS_PER_EXCUSED_WALL);
  return { excused: new Set(blocksWithWall.slice(0, maxExcused)), walled: blocksWithWall.length > maxExcused };
}

/**
 * Weight of a block with paid rows: the mean of these rows' weights, which were fixed before the calls and are at
 * most 1.
 */
const blockWeight = (paidRows: readonly SampleReading[]): number =>
  paidRows.reduce((sum, { row }) => sum + Math.min(row.w ?? 1, 1), 0) / Math.max(1, paidRows.length);

function sampleBlock(block: readonly SampleReading[], excused: boolean): Record<PartName, BlockSample> {
  const paidRows = block.filter((row) => row.paid);
  const w = blockWeight(paidRows);
  const relevantRows = excused ? block.filter((row) => !row.wall) : block;
  return {
    liveness: { w: 1, x: shareOfTrue(relevantRows.map((row) => row.answered)) },
    honesty: { w: 1, x: shareOfTrue(block.map((row) => row.honest)) },
    paid_honesty: { w: 1, x: shareOfTrue(paidRows.map((row) => row.honest)) },
    delivery: { w, x: meanWithoutNulls(paidRows.map((row) => row.delivery)) },
    outcome: { w, x: meanWithoutNulls(paidRows.map((row) => row.outcome)) },
    schema_conformance: { w, x: shareOfTrue(paidRows.map((row) => row.schema_ok)) },
  };
}

/**
 * Computes the sums of every part, and `course`: the values of the blocks with paid rows in time order, each the mean
 * of the outcome check if the block has one, else of the delivery check.
 */
function sumBlocks(blocks: readonly SampleReading[][]): Pick<Sums, "parts" | "course" | "walled"> {
  const { excused, walled } = excuseWalls(blocks);
  const blockSamples = blocks.map((block) => sampleBlock(block, excused.has(block)));
  const samples = Object.fromEntries(PARTS.map((name) => [name, blockSamples.map((sample) => sample[name])]));
  const course = withoutNulls(blockSamples.map((sample) => sample.outcome.x ?? sample.delivery.x));
  return { parts: sumParts(samples as Record<PartName, BlockSample[]>), course, walled };
}

/** One endpoint with its rows, from the record. */
export interface Endpoint {
  cap: string;
  pay_to: string | null;
  domain: string | null;
  disputed: boolean;
  /** All rows of the endpoint, in any order; rows outside the window are ignored. */
  rows: readonly Sample[];
  /** Ids of rows that a correction withdrew. */
  withdrawn: ReadonlySet<string>;
}

/** Compares for an order with the newest row first; of rows at one moment the one with the greatest id is first. */
const newestFirst = (a: SampleReading, b: SampleReading): number =>
  b.row.t.getTime() - a.row.t.getTime() || compareIds(b.row, a.row);

const newestTime = (rows: readonly SampleReading[]): number | null =>
  rows.reduce<number | null>((last, { row }) => Math.max(last ?? row.t.getTime(), row.t.getTime()), null);

/**
 * Values of buyers' published calls for each part: the worst call of each payer in each block, and of these the worst
 * blocks of each payer.
 */
function worstBuyerBlocks(rows: readonly Sample[]): Sums["buyers"] {
  const worstByPart = new Map<PartName, Map<string | null, Map<number, number>>>();
  for (const row of rows) {
    const call = readSample(row, row.settled === true);
    const values: [PartName, number | boolean | null][] = [
      ["liveness", call.answered],
      ["honesty", call.honest],
      ["delivery", call.delivery],
      ["outcome", call.outcome],
      ["schema_conformance", call.schema_ok],
    ];
    for (const [part, value] of values) {
      if (value === null) continue;
      const payers = worstByPart.get(part) ?? new Map<string | null, Map<number, number>>();
      worstByPart.set(part, payers);
      const blocks = payers.get(row.payer) ?? new Map<number, number>();
      payers.set(row.payer, blocks);
      blocks.set(call.block, Math.min(blocks.get(call.block) ?? 1, Number(value)));
    }
  }
  return Object.fromEntries(
    [...worstByPart].map(([part, payers]) => [
      part,
      [...payers.values()].flatMap((blocks) => worstBlocks([...blocks.values()])),
    ]),
  );
}

const oldestTime = (rows: readonly SampleReading[]): number | null =>
  rows.reduce<number | null>((first, { row }) => Math.min(first ?? row.t.getTime(), row.t.getTime()), null);

const countAndSum = (payments: readonly SampleReading[]) => ({
  calls: payments.length,
  sum: round6(payments.reduce((sum, { price }) => sum + (price ?? 0), 0)),
});

/**
 * Payments of ours that settled, got no answer and were not refunded: the sums of those that count as theft by now, and
 * the time of the first that does not count yet.
 */
function sumThefts(paidRows: readonly SampleReading[], now: number): Pick<Sums, "theft" | "pendingFirst"> {
  const takenPayments = paidRows.filter(({ row, delivered }) => row.settled && !delivered && !row.refunded);
  const finalThefts = takenPayments.filter(({ row }) => row.t.getTime() <= now - CHANGE_DELAYS_MS.pendingTheft);
  const pendingThefts = takenPayments.filter(({ row }) => row.t.getTime() > now - CHANGE_DELAYS_MS.pendingTheft);
  const last = newestTime(finalThefts);
  return {
    theft:
      last === null
        ? null
        : { blocks: new Set(finalThefts.map(({ block }) => block)).size, ...countAndSum(finalThefts), last },
    pendingFirst: pendingThefts.length === 0 ? null : Math.min(...pendingThefts.map(({ row }) => row.t.getTime())),
  };
}

function sumPrices(
  ownRows: readonly SampleReading[],
): Pick<Sums, "price" | "dynamicPrice" | "priceNow" | "priceTested"> {
  const quotedRows = ownRows
    .filter((row): row is SampleReading & { price: number } => row.price !== null)
    .sort(newestFirst);
  const days = new Map<number, number[]>();
  for (const { row, price } of quotedRows) {
    const day = Math.floor(row.t.getTime() / DAY_MS);
    days.set(day, [...(days.get(day) ?? []), price]);
  }
  const { w, s } = priceStability(days);
  const testedPrices = quotedRows.filter(({ paid, row }) => paid && row.settled).map(({ price }) => price);
  return {
    price: { w, s: round6(s) },
    dynamicPrice: [...days.values()].some((quotes) => new Set(quotes).size > MAX_PRICES_A_DAY),
    priceNow: quotedRows[0]?.price ?? null,
    priceTested: testedPrices.length === 0 ? null : Math.max(...testedPrices),
  };
}

function measureLatency(ownRows: readonly SampleReading[]): Sums["latency"] {
  const latenciesOf = (isPaid: boolean) =>
    ownRows.filter((row) => row.paid === isPaid && row.ms !== null).map(({ block, ms }) => [block, ms ?? 0] as const);
  return { free: p95(latenciesOf(false)), paid: p95(latenciesOf(true)) };
}

/**
 * Computes the sums of one endpoint from its rows. sql/grade and fold.ts compute the same sums from the lake; this
 * second implementation is simple and needs no database.
 * @param version version of our checks. It decides whether the list of evidence repeats the hashes of equal answers
 * (listsRepeatedAnswers)
 */
export function sumRows(endpoint: Endpoint, now: Date, version: string = VERIFIER_VERSION): Sums {
  const since = windowStart(now);
  const rowsInWindow = endpoint.rows.filter(({ t }) => t >= since && t < now);
  const remainingRows = rowsInWindow.filter(({ obs_id }) => !endpoint.withdrawn.has(obs_id));
  const countedRows = remainingRows.filter(isCounted);
  const ownRows = countedRows.filter(({ kind }) => kind < 2).map((row) => readSample(row, row.kind === 1));
  const paidRows = ownRows.filter((row) => row.paid);
  const rowsWithHonesty = ownRows.filter(({ honest }) => honest !== null).sort(newestFirst);
  const answers = paidRows.filter(({ delivered, row }) => delivered && row.response_sha256 !== null).sort(newestFirst);
  const hashes = answers.map(({ row }) => row.response_sha256 ?? "");
  return {
    cap: endpoint.cap,
    counted: ownRows.length,
    emptied: ownRows.length === 0 && remainingRows.length < rowsInWindow.length,
    ...sumBlocks(groupByBlock(ownRows)),
    buyers: worstBuyerBlocks(countedRows.filter(({ kind }) => kind === 2)),
    latency: measureLatency(ownRows),
    ...sumPrices(ownRows),
    ...sumThefts(paidRows, now.getTime()),
    refunds: paidRows.filter(({ row, delivered }) => row.settled && !delivered && row.refunded).length,
    signed: paidRows.length,
    settled: paidRows.filter(({ row }) => row.settled).length,
    served: paidRows.filter(({ delivered }) => delivered).length,
    examples: paidRows.filter(({ row }) => row.input === "example" || row.input === "known_answer").length,
    seenFirst: oldestTime(ownRows),
    seenLast: newestTime(ownRows),
    paidFirst: oldestTime(paidRows),
    paidLast: newestTime(paidRows),
    liveLast: newestTime(ownRows.filter(({ answered }) => answered)),
    honestNow: rowsWithHonesty[0]?.honest ?? null,
    unconfirmed: remainingRows.some(({ kind, fault }) => kind === 2 && fault === "unconfirmed"),
    payToChanged: new Set(withoutNulls(ownRows.map(({ row }) => row.pay_to)).map(addressKey)).size > 1,
    disputed: endpoint.disputed,
    payTo: endpoint.pay_to,
    domain: endpoint.domain,
    evidence: (listsRepeatedAnswers(version) ? hashes : [...new Set(hashes)]).slice(0, EVIDENCE_ROWS),
  };
}

/**
 * Grades one endpoint from its rows alone, without DuckDB, for auditors and light clients. The result equals the line
 * of a grade run at that moment in every figure.
 * @param version version of our checks: with the version of a published card the line is made by the rules of that
 * version
 */
export function gradeRows(
  endpoint: Endpoint,
  related: RelatedParties,
  now: Date,
  version: string = VERIFIER_VERSION,
): RunLine {
  const since = windowStart(now);
  const remainingRows = endpoint.rows.filter(
    ({ t, obs_id }) => t >= since && t < now && !endpoint.withdrawn.has(obs_id),
  );
  return gradeLineWithDigest(
    sumRows(endpoint, now, version),
    related.flagsOf(endpoint),
    inputsDigest(remainingRows),
    now,
    version,
  );
}
