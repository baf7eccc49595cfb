import { round6 } from "./bounds.ts";
import { params } from "./params.ts";

const { tolerance, zero_at_ratio, baseline_days } = params.price;

/** What a day is worth whose dearest quote stands at r times the lowest of the days before. */
export const priceScore = (r: number): number =>
  r <= tolerance ? 1 : Math.max(0, 1 - Math.log(r) / Math.log(zero_at_ratio));

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
