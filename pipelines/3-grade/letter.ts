import type { Component, SignedCard } from "../record/card.ts";
import { BANDS, type Band, type Flag, type Letter, type Tier } from "../record/vocabulary.ts";
import { round6Exactly } from "./bounds.ts";
import { correctnessPart, type Figure, type Figures, figuresShownOn } from "./components.ts";
import { CHANGE_DELAYS_MS, CUSUM_LIMIT, HEADLINE_OUTCOME_WEIGHT, params } from "./params.ts";
import type { Sums } from "./sums.ts";

/**
 * The caps of a letter: rules that each limit how good the letter can be, such as `by_ttm` (money was taken),
 * `by_deeper` (answers checked against a known truth) or `cusum_cap` (recent failures). The test vectors use the same
 * names.
 */
export const CAP_NAMES = [
  "by_composite",
  "by_correctness",
  "by_honesty",
  "by_liveness",
  "by_paid_honesty",
  "by_tier",
  "by_delivery",
  "by_deeper",
  "by_ttm",
  "by_stale",
  "by_mismatch",
  "by_dark",
  "by_price",
  "by_price_stability",
  "cusum_cap",
] as const;
export type CapName = (typeof CAP_NAMES)[number];

/** The best letter that each cap allows, as a number from 0 (A) to 4 (F). */
export type Caps = Record<CapName, number>;

/** {letter: least value that the letter needs}. */
type Gates = Partial<Record<string, number>>;
const NO_CAP = 0;
const bandNumber = (letter: string): number => BANDS.indexOf(letter as Letter);

/**
 * Returns the best letter, as a number from 0 (A) to 4 (F), whose gate (the least value that the letter needs) is at
 * most x.
 */
export function bestLetterReached(gates: Gates, x: number): number {
  const letter = BANDS.findIndex((band) => gates[band] !== undefined && x >= gates[band]);
  return letter < 0 ? BANDS.length - 1 : letter;
}

/**
 * The cap for money that was taken: payments of ours that settled and got no answer. If they are in two or more
 * blocks (of six hours), they count as long as they are in the window; a single block counts for 30 days.
 */
function capByTheft(sums: Sums, figures: Figures, now: number): number {
  const rule = params.took_the_money;
  if (!sums.theft) return NO_CAP;
  const { blocks, last } = sums.theft;
  const paidBlocks = sums.parts.delivery?.m ?? 0;
  // The share is computed by a division, since 0.1 times a whole number is not always exact as a double.
  if (blocks >= rule.min_blocks_F && figures.delivery && blocks / paidBlocks >= rule.min_share_of_paid_blocks_F)
    return bandNumber(rule.three_blocks_and_10pct);
  if (blocks >= 2) return bandNumber(rule.two_blocks);
  return last > now - CHANGE_DELAYS_MS.freshTheft ? bandNumber(rule.one_in_30d) : NO_CAP;
}

/** The caps that follow from the endpoint's current state and end when that state changes. */
function capsByState(sums: Sums, now: number): Pick<Caps, "by_stale" | "by_mismatch" | "by_dark" | "by_price"> {
  const { paidLast, liveLast, priceNow } = sums;
  const highestAllowedPrice = params.price_untested_factor * (sums.priceTested ?? 0);
  return {
    by_stale:
      paidLast !== null && paidLast < now - CHANGE_DELAYS_MS.stalePaid ? bandNumber(params.stale.paid_30d) : NO_CAP,
    by_mismatch: sums.honestNow === false ? bandNumber(params.listing_mismatch_now) : NO_CAP,
    by_dark: liveLast === null || liveLast < now - CHANGE_DELAYS_MS.dark ? bandNumber(params.stale.dark_72h) : NO_CAP,
    by_price:
      paidLast !== null && priceNow !== null && priceNow > highestAllowedPrice
        ? bandNumber(params.price_untested_cap)
        : NO_CAP,
  };
}

/**
 * All caps of a card of this tier (verification-method.md section 4). Where a part has no sample, `?? 0` fails its gate
 * and `NO_CAP` passes it.
 */
function computeCaps(tier: Tier, composite: number, sums: Sums, figures: Figures, now: number): Caps {
  const { bands } = params;
  const { outcome, delivery, paid_honesty: paidHonesty, price_stability: priceStability } = figures;
  const checkedPart = correctnessPart(tier);
  const deeperFigure =
    tier === "DELIVERY_VERIFIED" && outcome && outcome.w >= params.deeper_cap.min_weight ? outcome : null;
  const paidGates = params.paid_honesty_cap;
  return {
    by_composite: bestLetterReached(bands.composite, composite),
    by_correctness: bestLetterReached(bands.correctness, (checkedPart && figures[checkedPart]?.lower) ?? 0),
    by_honesty: bestLetterReached(bands.honesty, figures.honesty?.lower ?? 0),
    by_liveness: bestLetterReached(bands.liveness, figures.liveness?.lower ?? 0),
    by_paid_honesty:
      paidHonesty && paidHonesty.w >= paidGates.min_weight
        ? bestLetterReached(paidGates.lower_must_reach, paidHonesty.lower)
        : NO_CAP,
    by_tier: tier === "DELIVERY_VERIFIED" ? bandNumber(params.tier_cap.DELIVERY_VERIFIED) : NO_CAP,
    by_delivery: tier === "OUTCOME_VERIFIED" ? bestLetterReached(bands.correctness, delivery?.lower ?? 0) : NO_CAP,
    by_deeper: deeperFigure ? bestLetterReached(bands.correctness, deeperFigure.upper) : NO_CAP,
    by_ttm: capByTheft(sums, figures, now),
    ...capsByState(sums, now),
    by_price_stability: priceStability ? bestLetterReached(bands.price_stability, priceStability.lower) : NO_CAP,
    cusum_cap: cusumCap(sums.course),
  };
}

/**
 * State of the CUSUM test (cumulative sum) of one letter: the sum `c`, and whether the test currently denies the
 * letter.
 */
interface CusumState {
  c: number;
  isLatched: boolean;
}

/**
 * For each of the letters A to D, what one block adds to the letter's sum: `pass` if the block's mean is 1, `fail` if
 * it is 0, and a value in between for a mean in between.
 */
const STEPS = params.cusum.good.map((good, k) => {
  const bad = params.cusum.bad[k]!;
  return { pass: Math.log(bad / good), fail: Math.log((1 - bad) / (1 - good)) };
});

/** A CUSUM sum below this counts as 0, since rounding leaves a small rest where positive and negative terms cancel. */
const ZERO = 1e-9;

/**
 * Computes the CUSUM (cumulative sum test) over paid blocks for each of the letters A, B, C, D
 * (verification-method.md section 4). When a sum reaches ln 200 the letter is denied until the sum is back at 0.
 * @param xs block means in time order, unweighted: of the outcome check if the block has one, else of the delivery
 * check
 */
export function cusum(xs: readonly number[]): CusumState[] {
  return STEPS.map(({ pass, fail }) => {
    let c = 0;
    let isLatched = false;
    for (const x of xs) {
      c = Math.max(0, c + x * pass + (1 - x) * fail);
      if (c < ZERO) isLatched = false;
      if (c >= CUSUM_LIMIT) isLatched = true;
    }
    return { c, isLatched };
  });
}

/** The best letter that the CUSUM of recent calls allows, as a number from 0 (A) to 4 (F). */
export const cusumCap = (xs: readonly number[]): number =>
  cusum(xs).reduce((cap, state, k) => (state.isLatched ? k + 1 : cap), 0);

/** The letter of one card, with the figures and caps that it follows from. */
export interface Grade {
  /** How deeply the answers were checked. */
  tier: Tier;
  composite: number;
  rawBand: Band;
  /** Number of paid blocks that count towards a letter (countTowardLetter). */
  progress: number;
  /** Is the upper bound of correctness already so low that the letter is F before there are enough calls? */
  isEarlyF: boolean;
  caps: Caps;
  /** The figures that the card shows, by component. */
  shownFigures: Record<keyof typeof params.weights, Figure | null>;
}

export type WeightName = keyof typeof params.weights;

/**
 * The order in which the composite's parts are added. Bounds have 6 decimals and weights 2, so a sum often lies exactly
 * between two numbers of 6 decimals. The order decides to which of them a double is rounded, so it is fixed.
 */
const SUM_ORDER: readonly WeightName[] = [
  "correctness",
  "schema_conformance",
  "honesty",
  "liveness",
  "price_stability",
  "latency_p95",
];

/** The composite: the weighted sum of lower bounds. A missing part adds 0, and the other weights do not change. */
export const computeComposite = (lowers: Partial<Record<WeightName, number | null>>): number =>
  round6Exactly(SUM_ORDER.reduce((sum, name) => sum + params.weights[name] * (lowers[name] ?? 0), 0));

/** Tiers with at least one sample, the deepest first; empty where no row of our own counts. */
export function sampledTiers(sums: Sums, figures: Figures): Tier[] {
  if (sums.seenLast === null) return [];
  const tiers: Tier[] = ["LIVENESS_VERIFIED"];
  if (figures.delivery) tiers.unshift("DELIVERY_VERIFIED");
  if (figures.outcome) tiers.unshift("OUTCOME_VERIFIED");
  return tiers;
}

/** The tier of the headline card, which GET /v1/check, the published index and the hold (hold.ts) use. */
export const headlineTier = (figures: Figures): Tier =>
  (figures.outcome?.w ?? 0) >= HEADLINE_OUTCOME_WEIGHT
    ? "OUTCOME_VERIFIED"
    : figures.delivery
      ? "DELIVERY_VERIFIED"
      : "LIVENESS_VERIFIED";

/** Is a moment more than `ms` before `now`? false for null. */
export const isLongAgo = (moment: number | null, ms: number, now: number): boolean =>
  moment !== null && moment < now - ms;

/**
 * Number of paid blocks that count towards a letter, at most the number that is needed.
 * @param weight weight W of the correctness figure, in blocks
 */
const countTowardLetter = (weight: number): number => Math.min(params.letter_min_effective_paid, Math.floor(weight));

/** Number of paid calls towards a letter, as `why` and the pages show it; 0 where none of our payments settled. */
export const paidProgress = (weight: number, settled: number): number =>
  settled < params.letter_min_settled_paid ? 0 : countTowardLetter(weight);

const REFUSES_PAYMENT_FLAG: Flag = "refuses_payment";

/**
 * Returns the {@link paidProgress} of a published card from the card alone: the weight W is in the `method` of its
 * correctness, and the flag `refuses_payment` marks that no payment settled.
 */
export function publishedProgress({ components, flags = [] }: Pick<SignedCard, "components" | "flags">): number {
  const weight = components ? parseWeight(components.correctness) : 0;
  return paidProgress(weight, flags.includes(REFUSES_PAYMENT_FLAG) ? 0 : Number.POSITIVE_INFINITY);
}

/** Reads the weight W, in blocks, from the `method` of a published component; 0 without a sample. */
export const parseWeight = ({ method }: Pick<Component, "method">): number =>
  Number(/;W=(\d{1,9}(?:\.\d{1,6})?);/.exec(method)?.[1] ?? 0);

/** Has a paid tier too few calls, or too old ones, for a letter? The caller has ruled out an early F before. */
function isUnrated(sums: Sums, weight: number, now: number): boolean {
  return (
    weight < params.letter_min_effective_paid ||
    isLongAgo(sums.paidLast, CHANGE_DELAYS_MS.unratedPaid, now) ||
    isLongAgo(sums.seenLast, CHANGE_DELAYS_MS.unseen, now)
  );
}

/** Grades one tier (verification-method.md section 4). @param now unix ms */
export function gradeTier(tier: Tier, sums: Sums, figures: Figures, now: number): Grade {
  const shownFigures = figuresShownOn(tier, figures);
  const composite = computeComposite(
    Object.fromEntries(Object.entries(shownFigures).map(([name, figure]) => [name, figure?.lower])) as Record<
      WeightName,
      number
    >,
  );
  const caps = computeCaps(tier, composite, sums, figures, now);
  const weight = shownFigures.correctness?.w ?? 0;
  const { min_weight, upper_below } = params.early_F;
  const isEarlyF =
    shownFigures.correctness !== null && weight >= min_weight && shownFigures.correctness.upper < upper_below;
  const tookMoney = caps.by_ttm === BANDS.indexOf("F");
  let rawBand: Band;
  if (tier === "LIVENESS_VERIFIED" || sums.settled < params.letter_min_settled_paid) rawBand = "UNRATED";
  else if (isEarlyF || tookMoney) rawBand = "F";
  else if (isUnrated(sums, weight, now)) rawBand = "UNRATED";
  else rawBand = BANDS[Math.max(0, ...Object.values(caps))]!;
  return { tier, composite, rawBand, progress: countTowardLetter(weight), isEarlyF, caps, shownFigures };
}
