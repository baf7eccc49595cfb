import { needHigh, needLow, round6 } from "./bounds.ts";
import { PERCENTILE, params } from "./params.ts";

/** p95 of one stratum in ms, and the times that it is no later and no earlier than. */
export interface Stratum {
  /** Blocks. */
  w: number;
  p95: number;
  high: number;
  low: number;
}

/** 1 at 300 ms or less, 0 at 30 s or more; every factor of ten costs one half. */
export function latencyScore(ms: number): number {
  const { full_ms, zero_ms } = params.latency;
  return Math.min(1, Math.max(0, 1 - Math.log(ms / full_ms) / Math.log(zero_ms / full_ms)));
}

/** Sums of 1/n are not exact. */
const EPSILON = 1e-9;

/**
 * Order statistics of one stratum: a row weighs 1/(rows of its block).
 * @param rows [block, ms], any order @returns null where there are too few blocks for a bound
 */
export function p95(rows: readonly (readonly [block: number, ms: number])[]): Stratum | null {
  const inBlock = new Map<number, number>();
  for (const [block] of rows) inBlock.set(block, (inBlock.get(block) ?? 0) + 1);
  const w = inBlock.size;
  if (!(w >= needHigh(w))) return null;
  const bySlowness = rows.map(([block, ms]) => ({ ms, v: 1 / inBlock.get(block)! })).sort((a, b) => a.ms - b.ms);
  const from: Record<"p95" | "high" | "low", number> = {
    p95: PERCENTILE * w - EPSILON,
    high: needHigh(w),
    low: w - needLow(w),
  };
  const found: Partial<Record<"p95" | "high" | "low", number>> = {};
  let upto = 0;
  bySlowness.forEach(({ ms, v }, i) => {
    upto += v;
    if (bySlowness[i + 1]?.ms === ms) return;
    const s = round6(upto);
    for (const key of ["p95", "high", "low"] as const) if (s >= from[key]) found[key] ??= ms;
  });
  const { p95, high, low } = found;
  return p95 === undefined || high === undefined || low === undefined ? null : { w, p95, high, low };
}

const { tolerance, zero_at_ratio, baseline_days } = params.price;

/** What a day is worth whose dearest quote stands at r times the lowest of the days before. */
const priceScore = (r: number): number => (r <= tolerance ? 1 : Math.max(0, 1 - Math.log(r) / Math.log(zero_at_ratio)));

/**
 * Price stability over UTC days (method, section 1).
 * @param quotes day number -> quotes above 0 of that day @returns days that are a sample, and their sum
 */
export function priceStability(quotes: ReadonlyMap<number, readonly number[]>): { w: number; s: number } {
  let w = 0;
  let s = 0;
  for (const [day, asked] of [...quotes].sort(([a], [b]) => a - b)) {
    let lowest = Number.POSITIVE_INFINITY;
    for (let d = day - baseline_days; d < day; d++) for (const q of quotes.get(d) ?? []) lowest = Math.min(lowest, q);
    if (lowest === Number.POSITIVE_INFINITY || asked.length === 0) continue;
    w++;
    s += priceScore(round6(Math.max(...asked) / lowest));
  }
  return { w, s };
}
