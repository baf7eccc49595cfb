import { maxSuccessesForLowBound, minSuccessesForHighBound, round6 } from "./bounds.ts";
import { PERCENTILE, params } from "./params.ts";

/**
 * The 95th percentile of the latency of one stratum (free or paid calls) in ms, with its upper bound `high` and its
 * lower bound `low`.
 */
export interface Stratum {
  /** Number of blocks. */
  w: number;
  p95: number;
  high: number;
  low: number;
}

/** Scores a latency: 1 at 300 ms or less, 0 at 30 s or more, and half a point less for each factor of ten between. */
export function latencyScore(ms: number): number {
  const { full_ms, zero_ms } = params.latency;
  return Math.min(1, Math.max(0, 1 - Math.log(ms / full_ms) / Math.log(zero_ms / full_ms)));
}

/** Tolerance for sums of 1/n, which are not exact as doubles. */
const EPSILON = 1e-9;

/**
 * Finds the 95th percentile of one stratum and its bounds as order statistics. Each row weighs 1/(rows of its block),
 * so that every block (six hours) weighs 1.
 * @param rows [block, ms] in any order
 * @returns null where there are too few blocks for a bound
 */
export function p95(rows: readonly (readonly [block: number, ms: number])[]): Stratum | null {
  const rowsInBlock = new Map<number, number>();
  for (const [block] of rows) rowsInBlock.set(block, (rowsInBlock.get(block) ?? 0) + 1);
  const w = rowsInBlock.size;
  if (!(w >= minSuccessesForHighBound(w))) return null;
  const sorted = rows.map(([block, ms]) => ({ ms, weight: 1 / rowsInBlock.get(block)! })).sort((a, b) => a.ms - b.ms);
  const targets: Record<"p95" | "high" | "low", number> = {
    p95: PERCENTILE * w - EPSILON,
    high: minSuccessesForHighBound(w),
    low: w - maxSuccessesForLowBound(w),
  };
  const times: Partial<Record<"p95" | "high" | "low", number>> = {};
  let weightSoFar = 0;
  sorted.forEach(({ ms, weight }, i) => {
    weightSoFar += weight;
    if (sorted[i + 1]?.ms === ms) return;
    const s = round6(weightSoFar);
    for (const key of ["p95", "high", "low"] as const) if (s >= targets[key]) times[key] ??= ms;
  });
  const { p95, high, low } = times;
  return p95 === undefined || high === undefined || low === undefined ? null : { w, p95, high, low };
}

const { tolerance, zero_at_ratio, baseline_days } = params.price;

/** Scores a day whose highest price is r times the lowest price of the 14 days before. */
const priceScore = (r: number): number => (r <= tolerance ? 1 : Math.max(0, 1 - Math.log(r) / Math.log(zero_at_ratio)));

/**
 * Price stability over UTC days (verification-method.md section 1). A day with a price is a sample if one of the 14
 * days before it has a price too.
 * @param quotes day number -> prices above 0 of that day
 * @returns number of days that are a sample, and the sum of their scores
 */
export function priceStability(quotes: ReadonlyMap<number, readonly number[]>): { w: number; s: number } {
  let w = 0;
  let s = 0;
  for (const [day, prices] of [...quotes].sort(([a], [b]) => a - b)) {
    let lowest = Number.POSITIVE_INFINITY;
    for (let d = day - baseline_days; d < day; d++) for (const q of quotes.get(d) ?? []) lowest = Math.min(lowest, q);
    if (lowest === Number.POSITIVE_INFINITY || prices.length === 0) continue;
    w++;
    s += priceScore(round6(Math.max(...prices) / lowest));
  }
  return { w, s };
}
