import { lower, round6 } from "../../pipelines/3-grade/bounds.ts";
import { bestLetterReached, computeComposite, parseWeight } from "../../pipelines/3-grade/letter.ts";
import { params } from "../../pipelines/3-grade/params.ts";
import { BANDS, COMPONENTS, type ComponentName, type Letter } from "../../pipelines/record/vocabulary.ts";

/** A card (signed grade) whose signature is valid. Its members are as its signer wrote them. */
export interface Card {
  [member: string]: unknown;
  capability_id: string;
  tier: string;
  band: string;
  composite: number;
  components: Partial<
    Record<ComponentName, { point: number | null; lower: number | null; upper?: number | null; method: string }>
  > | null;
  flags?: readonly string[];
}

/** Largest allowed difference of a bound from the one computed from the printed figures, which have six decimals. */
const TOLERANCE = 1e-4;
/** Largest factor by which calls that buyers published may raise the weight of the service's own calls. */
const MAX_BUYERS_FACTOR = 1 + params.buyers.budget_share_of_own;

const letterRank = (letter: string): number => BANDS.indexOf(letter as Letter);
const NO_LIMIT = 0;

/** Flags that limit the letter, with the best letter that each allows (verification-method.md section 4). */
const FLAG_LETTER_LIMITS: Readonly<Record<string, string>> = {
  dark: params.stale.dark_72h,
  stale_paid: params.stale.paid_30d,
  listing_mismatch: params.listing_mismatch_now,
  price_untested: params.price_untested_cap,
};

/**
 * Components whose bound follows from the point estimate, the weight of the samples (W) and their design effect (deff).
 * The bound of latency is a quantile instead.
 */
const BOUNDED_COMPONENTS = COMPONENTS.filter((name) => name !== "latency_p95");

/**
 * Returns the greatest lower bound that a component's own figures allow; null if the text of its method names no
 * weight, or the component has no point estimate.
 */
function greatestLowerBound({ point, method }: { point: number | null; method: string }): number | null {
  const deff = Number(/;deff=(\d{1,9}(?:\.\d{1,6})?)/.exec(method)?.[1] ?? 1);
  const effectiveCount = parseWeight({ method }) / deff;
  if (point === null || !(effectiveCount > 0)) return null;
  return Math.max(
    lower(point * effectiveCount, effectiveCount) ?? 0,
    lower(point * effectiveCount * MAX_BUYERS_FACTOR, effectiveCount * MAX_BUYERS_FACTOR) ?? 0,
  );
}

/** Returns the contradictions between a card and its own figures, in words; empty if there are none. */
export function findContradictions(card: Card): string[] {
  const { band, tier, components, flags = [] } = card;
  if (components === null) return band === "UNRATED" ? [] : [`the letter is ${band}, and the card has no figure`];
  const contradictions: string[] = [];
  const lowerBounds = Object.fromEntries(COMPONENTS.map((name) => [name, components[name]?.lower ?? null]));
  const composite = computeComposite(lowerBounds);
  if (composite !== card.composite)
    contradictions.push(`the composite is ${card.composite}, and its parts make ${composite}`);
  for (const name of BOUNDED_COMPONENTS) {
    const part = components[name];
    const allowed = part && greatestLowerBound(part);
    if (allowed != null && round6(part!.lower ?? 0) > allowed + TOLERANCE) {
      contradictions.push(`the bound of ${name} is ${part!.lower}, and its figures allow ${round6(allowed)}`);
    }
  }
  if (band === "UNRATED") return contradictions;
  const { bands } = params;
  const correctness = components.correctness;
  const letterLimits: Record<string, number> = {
    composite: bestLetterReached(bands.composite, composite),
    correctness: bestLetterReached(bands.correctness, correctness?.lower ?? 0),
    honesty: bestLetterReached(bands.honesty, components.honesty?.lower ?? 0),
    liveness: bestLetterReached(bands.liveness, components.liveness?.lower ?? 0),
    "price stability":
      components.price_stability?.lower == null
        ? NO_LIMIT
        : bestLetterReached(bands.price_stability, components.price_stability.lower),
    tier: tier === "DELIVERY_VERIFIED" ? letterRank(params.tier_cap.DELIVERY_VERIFIED) : NO_LIMIT,
    ...Object.fromEntries(
      flags.flatMap((flag) =>
        FLAG_LETTER_LIMITS[flag] ? [[`flag ${flag}`, letterRank(FLAG_LETTER_LIMITS[flag])]] : [],
      ),
    ),
  };
  const letter = letterRank(band);
  for (const [what, limit] of Object.entries(letterLimits)) {
    if (limit > letter) contradictions.push(`the letter is ${band}, and its ${what} allows ${BANDS[limit]} at best`);
  }
  const weight = correctness ? parseWeight(correctness) : 0;
  if (tier === "LIVENESS_VERIFIED") contradictions.push(`the letter is ${band}, and nothing was paid`);
  else if (band !== "F" && weight < params.letter_min_effective_paid) {
    contradictions.push(`the letter is ${band}, and ${weight} paid calls are behind it`);
  }
  return contradictions;
}
