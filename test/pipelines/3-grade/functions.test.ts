import { describe, expect, it } from "vitest";
import {
  designEffect,
  lower,
  lowerByBuyers,
  maxSuccessesForLowBound,
  minSuccessesForHighBound,
  round6,
  upper,
  worstBlocks,
} from "../../../pipelines/3-grade/bounds.ts";
import { bandToPublish, type DayLetter } from "../../../pipelines/3-grade/hold.ts";
import { computeComposite, cusum, cusumCap } from "../../../pipelines/3-grade/letter.ts";
import { nextMonday, windowStart } from "../../../pipelines/3-grade/params.ts";
import { latencyScore, p95, priceStability } from "../../../pipelines/3-grade/scores.ts";
import { type BlockSample, PARTS, type PartName, sumParts } from "../../../pipelines/3-grade/sums.ts";
import { addDays } from "../../../pipelines/record/time.ts";
import type { Band } from "../../../pipelines/record/vocabulary.ts";
import { vectorFunctions, vectorsOf } from "./vectors.ts";

const TODAY = "2026-11-15";

/** The published letter of the vectors: 13 daily letters, then today's. */
function publishedVector(earlier: Band[], today: Band): Band {
  const letters: DayLetter[] = earlier.map((band, i) => ({ day: addDays(TODAY, i - earlier.length), band }));
  return bandToPublish(letters, TODAY, today).band;
}

/** Yardstick only: the vectors carry it to compare with, no card uses it. */
function wilson95(k: number, n: number): [number, number] {
  const z = 1.959963984540054;
  const mid = (k + (z * z) / 2) / (n + z * z);
  const half = (z * Math.sqrt((k * (n - k)) / n + (z * z) / 4)) / (n + z * z);
  return [mid - half, mid + half];
}

/** What the code gives for a vector's input, in the order of its output. */
const CODE: Record<string, (...input: never[]) => unknown[]> = {
  l4: (s: number, n: number) => [lower(s, n)],
  u4: (s: number, n: number) => [upper(s, n)],
  wilson95,
  lat_score: (ms: number) => [latencyScore(ms)],
  kish: (ws: number[]) => [ws.reduce((a, w) => a + w, 0) ** 2 / ws.reduce((a, w) => a + w * w, 0)],
  streak_deff: (xs: number[]) => {
    const blocks = xs.map((x) => ({ w: 1, x }));
    const samples = Object.fromEntries(PARTS.map((name) => [name, blocks])) as Record<PartName, BlockSample[]>;
    const { bad, starts, m } = sumParts(samples).delivery!;
    return [designEffect(bad, starts, m)];
  },
  cusum: (xs: number[]) => cusum(xs).flatMap(({ c, isLatched: latched }) => [c, Number(latched)]),
  p95: (rows: [number, number][]) => {
    const stratum = p95(rows)!;
    return [stratum.p95, stratum.high, stratum.low];
  },
  price_stability: (days: number[][]) => {
    const { w, s } = priceStability(
      new Map(days.map((quotes, day) => [day, quotes] as const).filter(([, q]) => q.length)),
    );
    return [s / w, lower(s, w)];
  },
  with_buyers: (s: number, n: number, payers: Record<string, number[]>) => {
    const lowered = lowerByBuyers(s, n, 1, Object.values(payers).flatMap(worstBlocks));
    return [lowered.point, lowered.lower];
  },
  window_start: (now: string) => [windowStart(new Date(now)).toISOString().replace(".000Z", "Z")],
  composite: (lowers: Parameters<typeof computeComposite>[0]) => [computeComposite(lowers)],
  published_band: (earlier: Band[], today: Band) => [publishedVector(earlier, today)],
};

describe("the functions of the vectors", () => {
  it("are all here", () => {
    expect(new Set([...Object.keys(CODE), "grade"])).toEqual(new Set(vectorFunctions));
  });

  for (const [fn, code] of Object.entries(CODE)) {
    it.each(vectorsOf<never[], (number | string)[]>(fn))(`${fn}: $id`, ({ in: input, out }) => {
      const got = code(...input);
      expect(got).toHaveLength(out.length);
      // The vectors of the price leave its ratio unrounded; the method, and every card, rounds it to 6 decimals.
      const digits = fn === "price_stability" ? 6 : 11;
      for (const [i, value] of out.entries()) {
        if (typeof value === "number") expect(got[i]).toBeCloseTo(value, digits);
        else expect(got[i]).toBe(value);
      }
    });
  }
});

describe("bounds", () => {
  it("finds the fewest successes whose lower bound is .95 and the most whose bound is .05", () => {
    for (const n of [0.25, 5, 29.75, 72, 364]) {
      for (const [need, level] of [
        [minSuccessesForHighBound, 0.95],
        [maxSuccessesForLowBound, 0.05],
      ] as const) {
        const s = need(n);
        expect(lower(s, n)).toBeCloseTo(level, 9);
        expect(lower(s - 0.01, n)!).toBeLessThan(level);
        expect(lower(s + 0.01, n)!).toBeGreaterThan(level);
      }
    }
    expect(72).toBeGreaterThanOrEqual(minSuccessesForHighBound(72));
    expect(71).toBeLessThan(minSuccessesForHighBound(71));
  });

  it("no sample has no bound, and no bound leaves [0, 1]", () => {
    expect([lower(0, 0), upper(0, 0), lower(0, Number.NaN)]).toEqual([null, null, null]);
    expect([lower(0, 1), upper(1, 1), lower(0, 400), upper(400, 400)]).toEqual([0, 1, 0, 1]);
  });

  it("rounds half up, also where adding up left a half a little short", () => {
    expect(round6(0.0000005)).toBe(0.000001);
    expect(round6(0.00000049)).toBe(0);
    expect(round6(364.1234565)).toBe(364.123457);
    const inAnyOrder = [0.1, 0.2, 0.3, 0.1000005].map((_, i, xs) => [...xs.slice(i), ...xs.slice(0, i)]);
    for (const xs of inAnyOrder) expect(round6(xs.reduce((sum, x) => sum + x, 0))).toBe(0.700001);
  });

  it("a CUSUM of four misses in a row takes the A, of sixteen every letter", () => {
    const misses = (n: number) => cusumCap([1, 1, ...Array.from({ length: n }, () => 0)]);
    expect([3, 4, 6, 7, 9, 10, 15, 16].map(misses)).toEqual([0, 1, 1, 2, 2, 3, 3, 4]);
  });

  it("a window is 84 to 91 days long and moves on Mondays", () => {
    for (let hour = 0; hour < 24 * 15; hour += 5) {
      const now = new Date(Date.UTC(2026, 10, 1, hour));
      const days = (now.getTime() - windowStart(now).getTime()) / 86_400_000;
      expect(days).toBeGreaterThanOrEqual(84);
      expect(days).toBeLessThan(91);
      expect(windowStart(now).getUTCDay()).toBe(1);
      expect(windowStart(nextMonday(now)).getTime() - windowStart(now).getTime()).toBe(7 * 86_400_000);
      expect(nextMonday(now).getTime()).toBeGreaterThan(now.getTime());
    }
  });
});
