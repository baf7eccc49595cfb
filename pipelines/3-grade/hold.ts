import { addDays } from "../record/time.ts";
import { BANDS, type Band } from "../record/vocabulary.ts";
import { params } from "./params.ts";

/**
 * A raw headline letter as a leaf published it. A letter that stood on withdrawn records is given as UNRATED: its days
 * are skipped, and the letter before it does not run on into them.
 */
export interface DayLetter {
  /** UTC date. */
  day: string;
  band: Band;
}

export interface Held {
  band: Band;
  /** First UTC day on which the letter may rise, null where nothing holds it down. */
  heldUntil: string | null;
}

const severity = (band: Band): number => (band === "UNRATED" ? -1 : BANDS.indexOf(band));

/**
 * The letters that stood on each day of the window, in time order: a day without a leaf had the last one before. Today
 * is about to have one, so nothing runs on into it.
 */
function* standing(letters: readonly DayLetter[], from: string, to: string): Generator<DayLetter> {
  let next = 0;
  let last: Band = "UNRATED";
  while (next < letters.length && letters[next]!.day < from) last = letters[next++]!.band;
  for (let day = from; day <= to; day = addDays(day, 1)) {
    if (letters[next]?.day !== day && day < to) yield { day, band: last };
    while (letters[next]?.day === day) {
      last = letters[next++]!.band;
      yield { day, band: last };
    }
  }
}

/**
 * The published letter: the worst raw headline letter of the last 14 days, today included (method, section 4). Down at
 * once, up after 14 clean days; from raw letters only, since published ones would latch. An UNRATED day is skipped, and
 * UNRATED today is UNRATED.
 * @param letters raw headline letters of leaves in log order, reaching at least one leaf further back than the window
 * @param today UTC date @param rawToday the letter that is about to be published
 */
export function publishedBand(letters: readonly DayLetter[], today: string, rawToday: Band): Held {
  // Most endpoints have no worse letter: their days are not gone through.
  const mayHold = letters.some(({ band }) => severity(band) > severity(rawToday));
  if (rawToday === "UNRATED" || !mayHold) return { band: rawToday, heldUntil: null };
  let held: Held = { band: rawToday, heldUntil: null };
  for (const { day, band } of standing(letters, addDays(today, 1 - params.hold_days), today)) {
    // The last day of the worst letter counts, so an equal one moves the rise further out.
    const worse = severity(band) > severity(rawToday) && severity(band) >= severity(held.band);
    if (worse) held = { band, heldUntil: addDays(day, params.hold_days) };
  }
  return held;
}
