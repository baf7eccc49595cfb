import { addDays } from "../record/time.ts";
import { BANDS, type Band } from "../record/vocabulary.ts";
import { params } from "./params.ts";

/**
 * A raw letter (before the hold) as a leaf of the endpoint's headline card published it. The caller passes a letter
 * that was based on withdrawn records as UNRATED: its days are skipped, and the letter before it does not continue into
 * them.
 */
export interface DayLetter {
  /** UTC date. */
  day: string;
  band: Band;
}

export interface HeldLetter {
  band: Band;
  /** First UTC day on which the letter may rise; null where no worse letter holds it down. */
  heldUntil: string | null;
}

const severity = (band: Band): number => (band === "UNRATED" ? -1 : BANDS.indexOf(band));

/**
 * Yields the letters of each day of the window, in time order. A day without a leaf has the last letter before it.
 * Today is an exception: its letter is about to be published, so no earlier letter continues into it.
 */
function* dailyLetters(letters: readonly DayLetter[], fromDay: string, toDay: string): Generator<DayLetter> {
  let nextIndex = 0;
  let lastBand: Band = "UNRATED";
  while (nextIndex < letters.length && letters[nextIndex]!.day < fromDay) lastBand = letters[nextIndex++]!.band;
  for (let day = fromDay; day <= toDay; day = addDays(day, 1)) {
    if (letters[nextIndex]?.day !== day && day < toDay) yield { day, band: lastBand };
    while (letters[nextIndex]?.day === day) {
      lastBand = letters[nextIndex++]!.band;
      yield { day, band: lastBand };
    }
  }
}

/**
 * The letter to publish: the worst raw letter of the headline card in the last 14 days, today included
 * (verification-method.md section 4). So a letter falls at once and rises after 14 days without a worse one. It is
 * computed from raw letters only: if published letters counted, a low letter would never end. UNRATED days are
 * skipped; if today is UNRATED, the result is UNRATED.
 * @param letters raw letters of headline cards in the order of their leaves; they include the last leaf before the 14
 * days, whose letter is valid until the next leaf
 * @param today UTC date
 * @param rawToday the letter that is about to be published
 */
export function bandToPublish(letters: readonly DayLetter[], today: string, rawToday: Band): HeldLetter {
  // Shortcut: most endpoints have no worse letter, and the loop over the days is not needed.
  const mayHold = letters.some(({ band }) => severity(band) > severity(rawToday));
  if (rawToday === "UNRATED" || !mayHold) return { band: rawToday, heldUntil: null };
  let heldLetter: HeldLetter = { band: rawToday, heldUntil: null };
  for (const { day, band } of dailyLetters(letters, addDays(today, 1 - params.hold_days), today)) {
    // The last day of the worst letter counts, so an equally bad letter on a later day postpones the rise.
    const isWorse = severity(band) > severity(rawToday) && severity(band) >= severity(heldLetter.band);
    if (isWorse) heldLetter = { band, heldUntil: addDays(day, params.hold_days) };
  }
  return heldLetter;
}
