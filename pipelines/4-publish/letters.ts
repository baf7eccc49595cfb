import { type DayLetter, type HeldLetter, publishedBand } from "../3-grade/hold.ts";
import type { PublishedCap } from "../published/caps.ts";
import type { PublishedCorrection, RawLetter } from "../published/endpoint.ts";
import type { Band } from "../record/vocabulary.ts";

/**
 * Did a letter stand on what this correction withdrew? On every record: yes. On one of them: when it was observed in the
 * letter's window, before its run. A correction that says no time of its record goes by the day of the grade it names,
 * or takes every letter: one too many is skipped rather than one too few, since our fault must not hold a seller down,
 * and what else the seller did is still in the rows of today's own letter.
 */
function stoodOn({ day, windowStart, computedAt }: RawLetter, body: Record<string, unknown>): boolean {
  const { record_id, observed_at, grade_at } = body;
  if (record_id === null) return true;
  if (typeof observed_at === "string") return windowStart <= observed_at && observed_at < computedAt;
  return typeof grade_at !== "string" || grade_at.slice(0, 10) <= day;
}

/** Did this letter stand on records that are withdrawn now? A later reinstatement makes it count again. */
function voided(letter: RawLetter, corrections: readonly PublishedCorrection[]): boolean {
  const reinstated = new Set(corrections.filter((one) => one.kind === "reinstated").map((one) => one.body.correction));
  return corrections.some(
    (one) =>
      one.kind === "correction" && one.leaf > letter.leaf && stoodOn(letter, one.body) && !reinstated.has(one.body.id),
  );
}

/** Published headline letters of leaves in log order, as the hold reads them: UNRATED where it stood on withdrawn records. */
export const lettersOf = (
  cap: Pick<PublishedCap, "letters">,
  corrections: readonly PublishedCorrection[],
): DayLetter[] =>
  cap.letters.map((letter) => ({ day: letter.day, band: voided(letter, corrections) ? "UNRATED" : letter.band }));

/**
 * The headline letter that is published today, by the raw letters in the log and today's own.
 * @param corrections all of this endpoint, those that are about to be published with the letter included
 */
export const holdOf = (
  cap: Pick<PublishedCap, "letters"> | undefined,
  corrections: readonly PublishedCorrection[],
  today: string,
  raw: Band,
): HeldLetter => publishedBand(cap ? lettersOf(cap, corrections) : [], today, raw);
