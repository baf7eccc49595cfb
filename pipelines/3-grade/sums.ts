import { round6 } from "./bounds.ts";
import { BAD_BELOW } from "./params.ts";
import type { Stratum } from "./scores.ts";

/** What is sampled. Correctness is `outcome` or `delivery`, by the tier; `paid_honesty` only caps. */
export const PARTS = ["liveness", "honesty", "paid_honesty", "delivery", "outcome", "schema_conformance"] as const;
export type PartName = (typeof PARTS)[number];

/** One part over its blocks: all that its bounds need. */
export interface PartSums {
  /** Sum of weights and of weighted successes, 6 decimals. */
  w: number;
  s: number;
  /** Blocks, bad ones, and the runs those make. */
  m: number;
  bad: number;
  starts: number;
}

/**
 * Everything that the letter of one endpoint needs: what `fold.ts` makes of the lake, and `pure.ts` of an evidence file.
 * Both are graded by the same code from here on. Moments are ms since 1970 UTC; rows are our own unless a member is
 * described otherwise.
 */
export interface Sums {
  cap: string;
  /** Rows of ours in the window that count: a buyer's published calls would raise it, and raise nothing. */
  counted: number;
  /** None of ours counts, and corrections withdrew some. */
  emptied: boolean;
  parts: Partial<Record<PartName, PartSums>>;
  /** Values of the buyers' worst blocks, each payer's worst few, any order. */
  buyers: Partial<Record<PartName, number[]>>;
  /** Time to the 402, and paid time to the last byte; null where the blocks are too few. */
  latency: { free: Stratum | null; paid: Stratum | null };
  /** Days that are a price sample and their sum, 6 decimals. */
  price: { w: number; s: number };
  /** Paid blocks in time order, deepest check there was. */
  course: number[];
  /** Settlements of ours that brought nothing and were not paid back: their blocks, calls, prices together and the newest. */
  theft: { blocks: number; calls: number; sum: number; last: number } | null;
  pendingFirst: number | null;
  refunds: number;
  /** Payments we sent, those that settled, those answered with bytes, those with an example or a known answer. */
  signed: number;
  settled: number;
  served: number;
  examples: number;
  seenFirst: number | null;
  seenLast: number | null;
  paidFirst: number | null;
  paidLast: number | null;
  liveLast: number | null;
  /** Whether the newest answer kept to the seller's own listing. */
  honestNow: boolean | null;
  priceNow: number | null;
  priceTested: number | null;
  /** A wall that was not excused; a published call that waits for its re-tests. */
  walled: boolean;
  unconfirmed: boolean;
  payToChanged: boolean;
  dynamicPrice: boolean;
  disputed: boolean;
  payTo: string | null;
  domain: string | null;
  /** Hashes of the newest answers we paid for. */
  evidence: string[];
}

/** One block of one part: weight, and mean of its rows; null where no row is a sample of the part. */
export interface BlockSample {
  w: number;
  x: number | null;
}

/** Bad blocks of a part, and how many runs they make. @param xs block means in time order */
function badRuns(xs: readonly number[]): { bad: number; starts: number } {
  const isBad = (x: number | undefined): boolean => x !== undefined && x < BAD_BELOW;
  const bad = xs.filter(isBad).length;
  return { bad, starts: bad === 0 ? 0 : xs.filter((x, i) => isBad(x) && !isBad(xs[i - 1])).length };
}

/** Sums of the parts that have a sample. @param samples of every part, blocks in time order */
export function partsOf(samples: Record<PartName, readonly BlockSample[]>): Sums["parts"] {
  const parts: Sums["parts"] = {};
  for (const name of PARTS) {
    const xs: number[] = [];
    let w = 0;
    let s = 0;
    for (const sample of samples[name]) {
      if (sample.x === null) continue;
      xs.push(sample.x);
      w += sample.w;
      s += sample.w * sample.x;
    }
    if (xs.length > 0) parts[name] = { w: round6(w), s: round6(s), m: xs.length, ...badRuns(xs) };
  }
  return parts;
}
