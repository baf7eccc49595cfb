import { params } from "./params.ts";

/**
 * lines4 (method, section 2): an anytime-valid lower bound from four exponential lines, and the rounding of figures.
 * Pure, so that a client recomputes a card with the very same code that made it.
 */
const SCALE = 10 ** params.rounding.decimals;
/** A hair over 0.5: a half stays a half in whatever order its parts were added. */
const HALF = 0.5 + 1e-6;

/** Half up to 6 decimals. Only rounded numbers are published, compared or added. */
export const round6 = (x: number): number => Math.floor(x * SCALE + HALF) / SCALE;

/** Half up to 6 decimals of a double as it is: for the composite, whose parts are always added in one order. */
export const round6Exactly = (x: number): number => Math.floor(x * SCALE + 0.5) / SCALE;

interface Line {
  lambda: number;
  /** ln(alpha * share). */
  c: number;
  /** e^lambda - 1. */
  d: number;
}

const LINES: readonly Line[] = params.lines.lambda.map((lambda, k) => ({
  lambda,
  c: Math.log(params.alpha_each_side * params.lines.share[k]!),
  d: Math.exp(lambda) - 1,
}));

/**
 * Lower bound of p that holds with 95 % confidence at all moments together.
 * @param s weighted successes, 0 <= s <= n @param n weighted samples @returns null where there is no sample
 */
export function lower(s: number, n: number): number | null {
  if (!(n > 0)) return null;
  let best = 0;
  for (const { lambda, c, d } of LINES) best = Math.max(best, (Math.exp((lambda * s + c) / n) - 1) / d);
  return Math.min(1, best);
}

/** Upper bound of p; see {@link lower}. */
export function upper(s: number, n: number): number | null {
  const failures = lower(n - s, n);
  return failures === null ? null : 1 - failures;
}

/**
 * The inverse of `lower`: each line reaches p at s = n * slope + offset, so the first of them decides.
 * lower(s, n) >= p exactly where s >= the least of these over the lines.
 */
interface NeedLine {
  slope: number;
  offset: number;
}
const needLines = (p: number): NeedLine[] =>
  LINES.map(({ lambda, c, d }) => ({ slope: Math.log(1 + p * d) / lambda, offset: -c / lambda }));

const least = (lines: readonly NeedLine[]) => (n: number) =>
  Math.min(...lines.map(({ slope, offset }) => n * slope + offset));

/** Successes out of n from which on `lower` is at least 1 - alpha. */
export const needHigh = least(needLines(1 - params.alpha_each_side));
/** Successes out of n up to which `lower` is at most alpha. */
export const needLow = least(needLines(params.alpha_each_side));

/** Mean length of a bad run over what chance gives, never below 1. @param m blocks @param starts bad runs */
export const deffOf = (bad: number, starts: number, m: number): number =>
  starts > 0 ? Math.max(1, (bad / starts) * (1 - bad / m)) : 1;

const { block_weight, budget_share_of_own, worst_blocks_per_payer } = params.buyers;

/** The worst blocks of one payer. */
export const worstOf = (xs: readonly number[]): number[] =>
  [...xs].sort((a, b) => a - b).slice(0, worst_blocks_per_payer);

/** Point and lower bound before rounding, and whether any published call lies below our own bound. */
export interface Lowered {
  point: number;
  lower: number;
  below: boolean;
}

/**
 * Published calls lower a figure and never raise it (method, section 3): those below our own bound enter, worst first,
 * until they weigh 5 % of ours, and the lowest figure on the way counts, so the order of arrival cannot matter.
 * @param s own weighted successes @param w own weight, above 0 @param xs values of the payers' worst blocks, any order
 */
export function withBuyers(s: number, w: number, deff: number, xs: readonly number[]): Lowered {
  const own = lower(s / deff, w / deff) ?? 0;
  const bar = round6(own);
  const entering = xs.filter((x) => round6(x) < bar).sort((a, b) => a - b);
  let weight = 0;
  let sum = 0;
  let point = s / w;
  let low = own;
  for (const [i, x] of entering.entries()) {
    const take = Math.max(0, Math.min(block_weight, budget_share_of_own * w - i * block_weight));
    if (take === 0) break;
    weight += take;
    sum += take * x;
    point = Math.min(point, (s + sum) / (w + weight));
    low = Math.min(low, lower((s + sum) / deff, (w + weight) / deff) ?? 0);
  }
  return { point, lower: low, below: entering.length > 0 };
}
