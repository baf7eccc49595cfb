import { BANDS, type Letter, type Tier } from "../record/vocabulary.ts";
import { correctnessOf, type Figures } from "./components.ts";
import { cusumCap } from "./cusum.ts";
import { AFTER, params } from "./params.ts";
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
export function reached(gates: Gates, x: number): number {
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

/** All caps of a card of this tier (method, section 4). A part without a sample fails its gate, save those that say so. */
export function capsOf(tier: Tier, composite: number, sums: Sums, figures: Figures, now: number): Caps {
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
