import { mustPublish, type Reason } from "../3-grade/changed.ts";
import type { LetterOfTier, PublishedCap } from "./fold.ts";

/** Kinds that are published at once together with their consequence. */
const WITHDRAWING = new Set(["correction", "reinstated"]);

/** Was a correction or reinstatement published between these two positions? */
export const correctedBetween = (cap: PublishedCap, after: number, before = Number.POSITIVE_INFINITY): boolean =>
  cap.corrections.some((one) => one.leaf > after && one.leaf < before && WITHDRAWING.has(one.kind));

/** Reasons that do not use up the one publication of a day (grading-method.md section 6). */
const FREE: ReadonlySet<Reason | null> = new Set<Reason | null>(["first_card", "correction", "worse_letter"]);

/** Only letters decide whether a publication was free, so nothing else of an older group is kept. */
const factsOf = (letters: readonly LetterOfTier[]) =>
  letters.map(({ tier, band }) => ({
    card: { tier, band, flags: [], components: null },
    raw_band: band,
    headline: false,
  }));

/** Newest UTC day on which a group was published that counts toward "once a UTC day", "" for none. From leaves alone. */
export function lastCounted(cap: PublishedCap): string {
  const first = cap.cards[0];
  if (!first) return "";
  const now = new Date(cap.computedAt);
  const before = { cards: factsOf(cap.before), at: now, countedDay: null };
  const corrected = correctedBetween(cap, cap.beforeLeaf, first.leaf);
  const { reason } = mustPublish(before, factsOf(cap.cards), now, corrected);
  return FREE.has(reason) && reason !== null ? cap.countedBefore : cap.day;
}
