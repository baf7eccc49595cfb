import { params } from "./params.ts";

/**
 * The confidence bound `lines4` (verification-method.md section 2): a lower bound from four exponential lines that is
 * valid at every moment, and the rounding of figures. All functions are pure, so that a client can recompute a card
 * with this code.
 */

const SCALE = 10 ** params.rounding.decimals;
/** Slightly more than 0.5, so that a value ending on a half rounds up in whatever order its summands were added. */
const ROUNDING_HALF = 0.5 + 1e-6;

/** Rounds half up to 6 decimals. Only rounded numbers are published, compared or added. */
export const round6 = (x: number): number => Math.floor(x * SCALE + ROUNDING_HALF) / SCALE;

/**
 * Rounds half up to 6 decimals without the tolerance of {@link round6}: for the composite, whose parts are always added
 * in one order.
 */
export const round6Exactly = (x: number): number => Math.floor(x * SCALE + 0.5) / SCALE;

interface Line {
  lambda: number;
  /** ln(alpha * share). */
  logWeight: number;
  /** e^lambda - 1. */
  growth: number;
}

const LINES: readonly Line[] = params.lines.lambda.map((lambda, k) => ({
  lambda,
  logWeight: Math.log(params.alpha_each_side * params.lines.share[k]!),
  growth: Math.exp(lambda) - 1,
}));

/**
 * Lower bound of the success rate p. With 95 % confidence it holds at all moments at which it is computed.
 * @param s weighted successes, 0 <= s <= n
 * @param n sum of the samples' weights
 * @returns null where there is no sample
 */
export function lower(s: number, n: number): number | null {
  if (!(n > 0)) return null;
  let best = 0;
  for (const { lambda, logWeight, growth } of LINES)
    best = Math.max(best, (Math.exp((lambda * s + logWeight) / n) - 1) / growth);
  return Math.min(1, best);
}

/** Upper bound of the success rate; see {@link lower}. */
export function upper(s: number, n: number): number | null {
  const failures = lower(n - s, n);
  return failures === null ? null : 1 - failures;
}

/**
 * The inverse of `lower` for one line: the line's bound reaches p at s = n * slope + offset successes. lower(s, n) >= p
 * exactly where s is at least the smallest of these over all lines.
 */
interface NeededLine {
  slope: number;
  offset: number;
}
const neededLines = (p: number): NeededLine[] =>
  LINES.map(({ lambda, logWeight, growth }) => ({
    slope: Math.log(1 + p * growth) / lambda,
    offset: -logWeight / lambda,
  }));

const minOverLines = (lines: readonly NeededLine[]) => (n: number) =>
  Math.min(...lines.map(({ slope, offset }) => n * slope + offset));

/** Fewest successes out of n for which `lower` is at least 1 - alpha. */
export const minSuccessesForHighBound = minOverLines(neededLines(1 - params.alpha_each_side));
/** Largest number of successes out of n for which `lower` is at most alpha. */
export const maxSuccessesForLowBound = minOverLines(neededLines(params.alpha_each_side));

/**
 * Design effect: the mean length of a run of bad blocks (blocks of six hours whose mean value is below 0.5), divided
 * by the length expected by chance; at least 1.
 * @param bad number of bad blocks
 * @param starts number of runs of bad blocks
 * @param m number of all blocks
 */
export const designEffect = (bad: number, starts: number, m: number): number =>
  starts > 0 ? Math.max(1, (bad / starts) * (1 - bad / m)) : 1;

const { block_weight, budget_share_of_own, worst_blocks_per_payer } = params.buyers;

/** The lowest of one payer's values by block, as many as the parameters allow. */
export const worstBlocks = (xs: readonly number[]): number[] =>
  [...xs].sort((a, b) => a - b).slice(0, worst_blocks_per_payer);

/**
 * Point estimate and lower bound before rounding. `isAnyCallBelow`: does any call that a buyer published lie below the
 * bound of our own calls?
 */
export interface LoweredBound {
  point: number;
  lower: number;
  isAnyCallBelow: boolean;
}

/**
 * Lowers a figure by the calls that buyers published; these calls never raise a figure (verification-method.md
 * section 3). Values below the bound of our own calls are added, worst first, until they weigh 5 % of our own calls.
 * The lowest figure on the way is returned, so the order of arrival does not matter.
 * @param s our own weighted successes
 * @param w our own weight, above 0
 * @param deff design effect of our own calls
 * @param xs values of the payers' worst blocks, in any order
 */
export function lowerByBuyers(s: number, w: number, deff: number, xs: readonly number[]): LoweredBound {
  const ownLower = lower(s / deff, w / deff) ?? 0;
  const ownBound = round6(ownLower);
  const valuesBelowBound = xs.filter((x) => round6(x) < ownBound).sort((a, b) => a - b);
  let weight = 0;
  let sum = 0;
  let point = s / w;
  let lowest = ownLower;
  for (const [i, x] of valuesBelowBound.entries()) {
    const entryWeight = Math.max(0, Math.min(block_weight, budget_share_of_own * w - i * block_weight));
    if (entryWeight === 0) break;
    weight += entryWeight;
    sum += entryWeight * x;
    point = Math.min(point, (s + sum) / (w + weight));
    lowest = Math.min(lowest, lower((s + sum) / deff, (w + weight) / deff) ?? 0);
  }
  return { point, lower: lowest, isAnyCallBelow: valuesBelowBound.length > 0 };
}
