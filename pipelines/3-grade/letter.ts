import { BANDS, type Band, type Tier } from "../record/vocabulary.ts";
import { round6Exactly } from "./bounds.ts";
import { type Caps, capsOf } from "./caps.ts";
import { type Figure, type Figures, shownOn } from "./components.ts";
import { AFTER, HEADLINE_OUTCOME_W, params } from "./params.ts";
import type { Sums } from "./sums.ts";

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

/** Figures have 6 decimals and weights 2, so sums often end on a half: who adds doubles in this order gets our side of it. */
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

/** Whether a moment lies further back than `ms`. A moment that never was does not. */
export const longAgo = (moment: number | null, ms: number, now: number): boolean =>
  moment !== null && moment < now - ms;

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
  const progress = Math.min(params.letter_min_effective_paid, Math.floor(weight));
  return { tier, composite, raw, progress, early, caps, shown };
}
