import { addDays } from "../record/time.ts";
import { BANDS, type Band, type Letter } from "../record/vocabulary.ts";
import type { PublishedCap, PublishedCorrection } from "./fold.ts";

/** Days of the hold, today included (grading-method.md section 4). */
export const HOLD_DAYS = 14;

/** Raw headline letters of one day that the hold counts. */
export interface DayLetter {
  day: string;
  band: Band;
}

/** 0 for A to 4 for F. */
export const rankOf = (letter: Letter): number => BANDS.indexOf(letter);

export const worse = (a: Letter, b: Letter): Letter => (rankOf(a) > rankOf(b) ? a : b);

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

/**
 * Raw headline letters of the last 14 days that the hold counts, from leaves alone: a day without a leaf has the letter
 * of the leaf before it; letters that stood on withdrawn records are left out. Today's own leaves are in; the letter
 * that is about to be published is not.
 */
export function heldLetters(
  cap: PublishedCap,
  corrections: readonly PublishedCorrection[],
  today: string,
): DayLetter[] {
  const letters: DayLetter[] = [];
  for (let back = HOLD_DAYS - 1; back >= 0; back--) {
    const day = addDays(today, -back);
    const own = cap.raw.filter((letter) => letter.day === day);
    const before = back > 0 && own.length === 0 ? cap.raw.findLast((letter) => letter.day < day) : undefined;
    for (const letter of before ? [before] : own) {
      if (!voided(letter, corrections)) letters.push({ day, band: letter.band });
    }
  }
  return letters;
}
