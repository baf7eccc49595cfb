import { bandToPublish, type DayLetter, type HeldLetter } from "../3-grade/hold.ts";
import type { PublishedCap } from "../published/caps.ts";
import type { PublishedCorrection, RawLetter } from "../published/endpoint.ts";
import type { Band } from "../record/vocabulary.ts";

/**
 * Returns whether a letter (published grade A to F) was computed from records that this correction withdrew. A
 * correction of all records affects every letter. A correction of one record affects the letters whose window
 * contains the record's time `observed_at`; without that time, the letters from the day of `grade_at` on; without
 * either, every letter. In doubt a letter counts as affected: our fault must not hold a seller down, and the seller's
 * other faults are still in the records of today's letter.
 */
function wasComputedFromWithdrawn({ day, windowStart, computedAt }: RawLetter, body: Record<string, unknown>): boolean {
  const { record_id, observed_at, grade_at } = body;
  if (record_id === null) return true;
  if (typeof observed_at === "string") return windowStart <= observed_at && observed_at < computedAt;
  return typeof grade_at !== "string" || grade_at.slice(0, 10) <= day;
}

/**
 * Returns whether this letter was computed from withdrawn records. When a correction is reinstated (taken back), the
 * letter counts again.
 */
function isVoided(letter: RawLetter, corrections: readonly PublishedCorrection[]): boolean {
  const reinstated = new Set(corrections.filter((one) => one.kind === "reinstated").map((one) => one.body.correction));
  return corrections.some(
    (one) =>
      one.kind === "correction" &&
      one.leaf > letter.leaf &&
      wasComputedFromWithdrawn(letter, one.body) &&
      !reinstated.has(one.body.id),
  );
}

/**
 * The published headline letters (those of main cards) in log order, for the hold: the worst letter of the last 14
 * days is published. A letter that was computed from withdrawn records is UNRATED.
 */
export const lettersOf = (
  cap: Pick<PublishedCap, "letters">,
  corrections: readonly PublishedCorrection[],
): DayLetter[] =>
  cap.letters.map((letter) => ({ day: letter.day, band: isVoided(letter, corrections) ? "UNRATED" : letter.band }));

/**
 * Computes the headline letter to publish today from the raw letters (letters before the hold) in the log and today's
 * raw letter.
 * @param corrections all corrections of this endpoint, including those that are published together with the letter
 */
export const holdOf = (
  cap: Pick<PublishedCap, "letters"> | undefined,
  corrections: readonly PublishedCorrection[],
  today: string,
  rawToday: Band,
): HeldLetter => bandToPublish(cap ? lettersOf(cap, corrections) : [], today, rawToday);
