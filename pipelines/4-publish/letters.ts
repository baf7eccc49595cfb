import { bandToPublish, type DayLetter, type HeldLetter } from "../3-grade/hold.ts";
import type { PublishedCap } from "../published/caps.ts";
import type { PublishedCorrection, RawLetter } from "../published/endpoint.ts";
import type { Band } from "../record/vocabulary.ts";

/**
 * Did a letter rest on the records that this correction withdrew? If it withdrew all records: yes. If it withdrew one
 * record: yes if that was observed within the letter's window and before its run. Without the record's time, the day of
 * the named grade decides; without that, every letter counts as affected. Rather too many letters are skipped than too
 * few: our fault must not hold a seller down, and the seller's other faults are still in the rows of today's letter.
 */
function restedOnWithdrawn({ day, windowStart, computedAt }: RawLetter, body: Record<string, unknown>): boolean {
  const { record_id, observed_at, grade_at } = body;
  if (record_id === null) return true;
  if (typeof observed_at === "string") return windowStart <= observed_at && observed_at < computedAt;
  return typeof grade_at !== "string" || grade_at.slice(0, 10) <= day;
}

/** Did this letter rest on records that are withdrawn now? After a reinstatement the letter counts again. */
function isVoided(letter: RawLetter, corrections: readonly PublishedCorrection[]): boolean {
  const reinstated = new Set(corrections.filter((one) => one.kind === "reinstated").map((one) => one.body.correction));
  return corrections.some(
    (one) =>
      one.kind === "correction" &&
      one.leaf > letter.leaf &&
      restedOnWithdrawn(letter, one.body) &&
      !reinstated.has(one.body.id),
  );
}

/** The published headline letters in log order, for the hold; a letter that rested on withdrawn records is UNRATED. */
export const lettersOf = (
  cap: Pick<PublishedCap, "letters">,
  corrections: readonly PublishedCorrection[],
): DayLetter[] =>
  cap.letters.map((letter) => ({ day: letter.day, band: isVoided(letter, corrections) ? "UNRATED" : letter.band }));

/**
 * Computes the headline letter to publish today from the raw letters in the log and today's raw letter.
 * @param corrections all corrections of this endpoint, including those that are published together with the letter
 */
export const holdOf = (
  cap: Pick<PublishedCap, "letters"> | undefined,
  corrections: readonly PublishedCorrection[],
  today: string,
  rawToday: Band,
): HeldLetter => bandToPublish(cap ? lettersOf(cap, corrections) : [], today, rawToday);
