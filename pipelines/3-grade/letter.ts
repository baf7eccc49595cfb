import type { Component, SignedCard } from "../record/card.ts";
import { BANDS, type Band, type Flag, type Letter, type Tier } from "../record/vocabulary.ts";
import { round6Exactly } from "./bounds.ts";
import { correctnessOf, type Figure, type Figures, shownOn } from "./components.ts";
import { AFTER, CUSUM_H, HEADLINE_OUTCOME_W, params } from "./params.ts";
import type { Sums } from "./sums.ts";

/** The caps of a letter, named as the vectors name them, in the order in which `why` gives their reasons. */
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

/** The best letter that each leaves: 0 A .. 4 F. */
export type Caps = Record<CapName, number>;

type Gates = Partial<Record<string, number>>;
const FREE = 0;
const number = (letter: string): number => BANDS.indexOf(letter as Letter);

/** The best letter whose gate x reaches. */
function reached(gates: Gates, x: number): number {
  const letter = BANDS.findIndex((band) => gates[band] !== undefined && x >= gates[band]);
  return letter < 0 ? BANDS.length - 1 : letter;
}

/** Settlements of ours that brought nothing. They stay in the window for its whole length. */
function byTheft(sums: Sums, figures: Figures, now: number): number {
  const rule = params.took_the_money;
  if (!sums.theft) return FREE;
  const { blocks, last } = sums.theft;
  const paidBlocks = sums.parts.delivery?.m ?? 0;
  // A quotient, since 0.1 times a whole number is not always the number it should be.
  if (blocks >= rule.min_blocks_F && figures.delivery && blocks / paidBlocks >= rule.min_share_of_paid_blocks_F)
    return number(rule.three_blocks_and_10pct);
  if (blocks >= 2) return number(rule.two_blocks);
  return last > now - AFTER.freshTheft ? number(rule.one_in_30d) : FREE;
}

/** What an endpoint does now: caps that come and go by themselves. */
function byState(sums: Sums, now: number): Pick<Caps, "by_stale" | "by_mismatch" | "by_dark" | "by_price"> {
  const { paidLast, liveLast, priceNow } = sums;
  const untested = params.price_untested_factor * (sums.priceTested ?? 0);
  return {
    by_stale: paidLast !== null && paidLast < now - AFTER.stalePaid ? number(params.stale.paid_30d) : FREE,
    by_mismatch: sums.honestNow === false ? number(params.listing_mismatch_now) : FREE,
    by_dark: liveLast === null || liveLast < now - AFTER.dark ? number(params.stale.dark_72h) : FREE,
    by_price: paidLast !== null && priceNow !== null && priceNow > untested ? number(params.price_untested_cap) : FREE,
  };
}

/** All caps of a card of this tier (method, section 4). A part without a sample fails its gate unless noted. */
function capsOf(tier: Tier, composite: number, sums: Sums, figures: Figures, now: number): Caps {
  const { bands } = params;
  const { outcome, delivery, paid_honesty: paid, price_stability: price } = figures;
  const check = correctnessOf(tier);
  const deeper = tier === "DELIVERY_VERIFIED" && outcome && outcome.w >= params.deeper_cap.min_weight ? outcome : null;
  const paidGates = params.paid_honesty_cap;
  return {
    by_composite: reached(bands.composite, composite),
    by_correctness: reached(bands.correctness, (check && figures[check]?.lower) ?? 0),
    by_honesty: reached(bands.honesty, figures.honesty?.lower ?? 0),
    by_liveness: reached(bands.liveness, figures.liveness?.lower ?? 0),
    by_paid_honesty: paid && paid.w >= paidGates.min_weight ? reached(paidGates.lower_must_reach, paid.lower) : FREE,
    by_tier: tier === "DELIVERY_VERIFIED" ? number(params.tier_cap.DELIVERY_VERIFIED) : FREE,
    by_delivery: tier === "OUTCOME_VERIFIED" ? reached(bands.correctness, delivery?.lower ?? 0) : FREE,
    by_deeper: deeper ? reached(bands.correctness, deeper.upper) : FREE,
    by_ttm: byTheft(sums, figures, now),
    ...byState(sums, now),
    by_price_stability: price ? reached(bands.price_stability, price.lower) : FREE,
    cusum_cap: cusumCap(sums.course),
  };
}

/** One letter's sum: C and whether it holds the letter back. */
interface CusumState {
  c: number;
  latched: boolean;
}

/** What one block adds to the sum of letter k: a miss `fail`, a success `pass`, partial credit in between. */
const STEPS = params.cusum.good.map((good, k) => {
  const bad = params.cusum.bad[k]!;
  return { pass: Math.log(bad / good), fail: Math.log((1 - bad) / (1 - good)) };
});

/** Below this a sum is 0: its terms cancel only to the last bits. */
const ZERO = 1e-9;

/**
 * CUSUM over paid blocks for the letters A, B, C, D (method, section 4): at ln 200 it takes the letter away until it
 * is back at 0. @param xs block means in time order, unweighted, of the deepest check there was
 */
export function cusum(xs: readonly number[]): CusumState[] {
  return STEPS.map(({ pass, fail }) => {
    let c = 0;
    let latched = false;
    for (const x of xs) {
      c = Math.max(0, c + x * pass + (1 - x) * fail);
      if (c < ZERO) latched = false;
      if (c >= CUSUM_H) latched = true;
    }
    return { c, latched };
  });
}

/** The best letter that recent calls leave, as a number: 0 A .. 4 F. */
export const cusumCap = (xs: readonly number[]): number =>
  cusum(xs).reduce((cap, state, k) => (state.latched ? k + 1 : cap), 0);

/** One card's letter and what it stands on. */
export interface Grade {
  tier: Tier;
  composite: number;
  raw: Band;
  progress: number;
  /** Upper bound of correctness already below the early-F line. */
  early: boolean;
  caps: Caps;
  shown: Record<keyof typeof params.weights, Figure | null>;
}

export type WeightName = keyof typeof params.weights;

/** Figures have 6 decimals and weights 2, so sums often end on a half; adding doubles in this order fixes the rounding. */
const ADDED: readonly WeightName[] = [
  "correctness",
  "schema_conformance",
  "honesty",
  "liveness",
  "price_stability",
  "latency_p95",
];

/** Weighted sum of lower bounds. A missing part keeps its weight and adds 0. */
export const compositeOf = (lowers: Partial<Record<WeightName, number | null>>): number =>
  round6Exactly(ADDED.reduce((sum, name) => sum + params.weights[name] * (lowers[name] ?? 0), 0));

/** Tiers with at least one sample, deepest first; none where no row of ours counts. */
export function tiersOf(sums: Sums, figures: Figures): Tier[] {
  if (sums.seenLast === null) return [];
  const tiers: Tier[] = ["LIVENESS_VERIFIED"];
  if (figures.delivery) tiers.unshift("DELIVERY_VERIFIED");
  if (figures.outcome) tiers.unshift("OUTCOME_VERIFIED");
  return tiers;
}

/** The tier that check, index and hold go by. */
export const headlineOf = (figures: Figures): Tier =>
  (figures.outcome?.w ?? 0) >= HEADLINE_OUTCOME_W
    ? "OUTCOME_VERIFIED"
    : figures.delivery
      ? "DELIVERY_VERIFIED"
      : "LIVENESS_VERIFIED";

/** Whether a moment lies further back than `ms`; false for null. */
export const longAgo = (moment: number | null, ms: number, now: number): boolean =>
  moment !== null && moment < now - ms;

/** Whole paid blocks toward a letter. @param weight W of correctness */
const blocksToward = (weight: number): number => Math.min(params.letter_min_effective_paid, Math.floor(weight));

/** Paid calls toward a letter, as `why` and every page tell it. Where no payment settled nobody paid, whatever we sent. */
export const progressOf = (weight: number, settled: number): number =>
  settled < params.letter_min_settled_paid ? 0 : blocksToward(weight);

const FLAG_UNPAID: Flag = "refuses_payment";

/** Progress of a published card: W is in the `method` of its correctness, and a flag marks that nothing settled. */
export function progressOfCard({ components, flags = [] }: Pick<SignedCard, "components" | "flags">): number {
  const weight = components ? weightIn(components.correctness) : 0;
  return progressOf(weight, flags.includes(FLAG_UNPAID) ? 0 : Number.POSITIVE_INFINITY);
}

/** W of a published component, blocks; 0 without a sample. */
export const weightIn = ({ method }: Pick<Component, "method">): number =>
  Number(/;W=(\d{1,9}(?:\.\d{1,6})?);/.exec(method)?.[1] ?? 0);

/** Why a paid tier has no letter yet, apart from bad news early. */
function unrated(sums: Sums, weight: number, now: number): boolean {
  return (
    weight < params.letter_min_effective_paid ||
    longAgo(sums.paidLast, AFTER.unratedPaid, now) ||
    longAgo(sums.seenLast, AFTER.unseen, now)
  );
}

/** The letter of one tier (method, section 4). @param now ms */
export function gradeTier(tier: Tier, sums: Sums, figures: Figures, now: number): Grade {
  const shown = shownOn(tier, figures);
  const composite = compositeOf(
    Object.fromEntries(Object.entries(shown).map(([name, figure]) => [name, figure?.lower])) as Record<
      WeightName,
      number
    >,
  );
  const caps = capsOf(tier, composite, sums, figures, now);
  const weight = shown.correctness?.w ?? 0;
  const { min_weight, upper_below } = params.early_F;
  const early = shown.correctness !== null && weight >= min_weight && shown.correctness.upper < upper_below;
  const thief = caps.by_ttm === BANDS.indexOf("F");
  let raw: Band;
  if (tier === "LIVENESS_VERIFIED" || sums.settled < params.letter_min_settled_paid) raw = "UNRATED";
  else if (early || thief) raw = "F";
  else if (unrated(sums, weight, now)) raw = "UNRATED";
  else raw = BANDS[Math.max(0, ...Object.values(caps))]!;
  return { tier, composite, raw, progress: blocksToward(weight), early, caps, shown };
}
