import { addDays } from "../record/time.ts";
import { headlineOf, type PublishedCap, type PublishedFold } from "./fold.ts";
import { holdOf } from "./letters.ts";

/** Days after which a card is signed again although nothing changed (grading-method.md section 6). */
const WEEKLY_DAYS = 7;

/** First UTC day on which this card may rise because its hold ends, or null when nothing holds it. */
export function heldUntil(cap: PublishedCap, today: string): string | null {
  const headline = headlineOf(cap);
  if (!headline || headline.band === headline.raw_band) return null;
  // What held it yesterday may have left the window today: then the hold is over.
  return holdOf(cap, cap.corrections, today, headline.raw_band).heldUntil ?? today;
}

/**
 * Endpoints to look at on this UTC day although no record came in: the weekly card, the end of a hold, and changes that
 * had to wait because a card was published that day. `due_at` moments of the runs themselves are the grader's.
 */
export function dueCaps(fold: PublishedFold, today: string, deferred: ReadonlySet<string>): string[] {
  const due: string[] = [];
  for (const cap of fold.caps.values()) {
    if (cap.cards.length === 0) continue;
    const waited = deferred.has(cap.cap) && cap.day < today;
    const weekly = addDays(cap.day, WEEKLY_DAYS) <= today;
    const until = waited || weekly ? today : heldUntil(cap, today);
    if (until !== null && until <= today) due.push(cap.cap);
  }
  return due;
}
