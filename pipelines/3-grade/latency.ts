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
export function latScore(ms: number): number {
  const { full_ms, zero_ms } = params.latency;
  return Math.min(1, Math.max(0, 1 - Math.log(ms / full_ms) / Math.log(zero_ms / full_ms)));
}

/** Sums of 1/n are not exact. */
export const EPSILON = 1e-9;

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
