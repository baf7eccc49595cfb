import { type DayLetter, type Held, publishedBand } from "../3-grade/hold.ts";
import type { Band } from "../record/vocabulary.ts";
import type { PublishedCap, PublishedCorrection } from "./fold.ts";

/**
 * First day whose letters stood on what this correction withdrew: the day of the grade or record it names, or every day
 * when it names none. A day too many is skipped rather than one too few: our fault must not hold a seller down, and
 * what else the seller did is still in the rows of today's own letter.
 */
function withdrawsFrom(body: Record<string, unknown>): string {
  const when = body.record_id === null ? null : (body.observed_at ?? body.grade_at);
  return typeof when === "string" ? when.slice(0, 10) : "";
}

/** Did this letter stand on records that are withdrawn now? A later reinstatement makes it count again. */
function voided(letter: { leaf: number; day: string }, corrections: readonly PublishedCorrection[]): boolean {
  const reinstated = new Set(corrections.filter((one) => one.kind === "reinstated").map((one) => one.body.correction));
  return corrections.some(
    (one) =>
      one.kind === "correction" &&
      one.leaf > letter.leaf &&
      withdrawsFrom(one.body) <= letter.day &&
      !reinstated.has(one.body.id),
  );
}

/** Published headline letters of leaves in log order, as the hold reads them: UNRATED where it stood on withdrawn records. */
const lettersOf = (cap: PublishedCap, corrections: readonly PublishedCorrection[]): DayLetter[] =>
  cap.raw.map((letter) => ({ day: letter.day, band: voided(letter, corrections) ? "UNRATED" : letter.band }));

/**
 * The headline letter that is published today, by the raw letters in the log and today's own.
 * @param corrections all of this endpoint, those that are about to be published with the letter included
 */
export const holdOf = (
  cap: PublishedCap | undefined,
  corrections: readonly PublishedCorrection[],
  today: string,
  raw: Band,
): Held => publishedBand(cap ? lettersOf(cap, corrections) : [], today, raw);
