import { round6 } from "./bounds.ts";
import { BAD_BLOCK_BELOW } from "./params.ts";
import type { Stratum } from "./scores.ts";

/**
 * The parts of a grade that are sampled by block. Correctness is `outcome` or `delivery`, depending on the tier;
 * `paid_honesty` only limits the letter.
 */
export const PARTS = ["liveness", "honesty", "paid_honesty", "delivery", "outcome", "schema_conformance"] as const;
export type PartName = (typeof PARTS)[number];

/** The sums of one part over its blocks, from which its bounds are computed. */
export interface PartSums {
  /** Sum of the blocks' weights, 6 decimals. */
  w: number;
  /** Sum of the blocks' weights times their values (successes), 6 decimals. */
  s: number;
  /** Number of blocks (six hours UTC) that have a value. */
  m: number;
  /** Number of bad blocks: those with a value below 0.5. */
  bad: number;
  /** Number of runs of consecutive bad blocks. */
  starts: number;
}

/**
 * Everything from which the letter of one endpoint is computed. `fold.ts` makes it from the lake, `pure.ts` from an
 * evidence file, and the same code grades both. Times are ms since 1970 UTC. Rows are our own, except where a member's
 * comment names buyers.
 */
export interface Sums {
  cap: string;
  /**
   * Number of our own rows in the window that count. Calls that buyers published are not included, since they must not
   * raise anything.
   */
  counted: number;
  /** True where no row of our own counts and corrections withdrew some. */
  emptied: boolean;
  parts: Partial<Record<PartName, PartSums>>;
  /** Values of blocks with calls that buyers published: the worst few of each payer, in any order. */
  buyers: Partial<Record<PartName, number[]>>;
  /** Time to the 402 (free), and time to the last byte of a paid answer; null where there are too few blocks. */
  latency: { free: Stratum | null; paid: Stratum | null };
  /** Number of days that are a price sample, and the sum of their scores, 6 decimals. */
  price: { w: number; s: number };
  /**
   * Values of the paid blocks in time order, each the mean of the outcome check if the block has one, else of the
   * delivery check.
   */
  course: number[];
  /**
   * Payments of ours that settled, got no answer, were not paid back and are old enough to count as theft: number of
   * blocks and of calls, sum of prices in dollars, time of the newest. null if there are none.
   */
  theft: { blocks: number; calls: number; sum: number; last: number } | null;
  /** Time of the first payment that would be a theft but is not old enough to count as one; null if there is none. */
  pendingFirst: number | null;
  /** Number of payments of ours that settled, got no answer and were paid back. */
  refunds: number;
  /**
   * Number of payments that we sent, and of those: how many settled, were answered with bytes, and had a declared
   * example or a known answer as input.
   */
  signed: number;
  settled: number;
  served: number;
  examples: number;
  /**
   * Times of the first and the newest row, of the first and the newest row with a payment of ours, and of the newest
   * good answer; null if there is no such row.
   */
  seenFirst: number | null;
  seenLast: number | null;
  paidFirst: number | null;
  paidLast: number | null;
  liveLast: number | null;
  /** Did the newest answer that was compared with the seller's own listing agree with it? null if none was compared. */
  honestNow: boolean | null;
  /** Newest price that a 402 asked, and highest price of a payment that settled, in dollars; null if there is none. */
  priceNow: number | null;
  priceTested: number | null;
  /** Is there a wall (bot check, 403, 429) that was not excused? */
  walled: boolean;
  /** Is there a call that a buyer published and that still waits for its re-tests? */
  unconfirmed: boolean;
  /** Do the rows name more than one payee? */
  payToChanged: boolean;
  /** Did 402s of one UTC day ask more than three different prices? */
  dynamicPrice: boolean;
  /** Is there a dispute of the endpoint's seller? */
  disputed: boolean;
  payTo: string | null;
  domain: string | null;
  /** Hashes of the newest answers that we paid for. */
  evidence: string[];
}

/** One block of one part: its weight, and the mean of its rows; `x` is null where no row is a sample of the part. */
export interface BlockSample {
  w: number;
  x: number | null;
}

/** Counts the bad blocks of a part and the runs that they form. @param xs block means in time order */
function countBadRuns(xs: readonly number[]): { bad: number; starts: number } {
  const isBad = (x: number | undefined): boolean => x !== undefined && x < BAD_BLOCK_BELOW;
  const bad = xs.filter(isBad).length;
  return { bad, starts: bad === 0 ? 0 : xs.filter((x, i) => isBad(x) && !isBad(xs[i - 1])).length };
}

/** Sums of the parts that have a sample. @param samples block samples of every part, in time order */
export function sumParts(samples: Record<PartName, readonly BlockSample[]>): Sums["parts"] {
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
    if (xs.length > 0) parts[name] = { w: round6(w), s: round6(s), m: xs.length, ...countBadRuns(xs) };
  }
  return parts;
}
