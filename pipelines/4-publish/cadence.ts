import type { Band } from "../record/vocabulary.ts";
import type { LetterOfTier, PublishedCap } from "./fold.ts";

/** When a group of cards may be published (grading-method.md section 6), as far as leaves alone decide it. */

/** Kinds that are published at once together with their consequence. */
const WITHDRAWING = new Set(["correction", "reinstated"]);

/** Was a correction or reinstatement published after this leaf? */
export const correctedSince = (cap: PublishedCap, leaf: number): boolean =>
  cap.corrections.some((one) => one.leaf > leaf && WITHDRAWING.has(one.kind));

/** Bad news for whoever reads the card: a lower letter, a letter gone, or a first letter that is an F. */
const worsens = (old: Band, now: Band): boolean => (old === "UNRATED" ? now === "F" : now > old);

/**
 * Is a group of cards published at once, whatever was published that day: the first card of a tier, or a letter that is
 * worse than the same tier's before?
 */
export function urgent(before: readonly LetterOfTier[], now: readonly LetterOfTier[]): boolean {
  return now.some(({ tier, band }) => {
    const old = before.find((card) => card.tier === tier);
    return !old || worsens(old.band, band);
  });
}

/** Newest UTC day on which a group was published that counts toward "once a UTC day", "" for none. */
export function lastCounted(cap: PublishedCap): string {
  const first = cap.cards[0];
  if (!first) return "";
  const free =
    urgent(cap.before, cap.cards) ||
    cap.corrections.some((one) => one.leaf > cap.beforeLeaf && one.leaf < first.leaf && WITHDRAWING.has(one.kind));
  return free ? cap.countedBefore : cap.day;
}
