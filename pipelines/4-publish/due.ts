import { headlineOf, type PublishedCap } from "../published/caps.ts";
import type { PublishedFold } from "../published/fold.ts";
import { addDays } from "../record/time.ts";
import { holdOf } from "./letters.ts";
import { Moments } from "./moments.ts";

/** Days after which a card is signed again although nothing changed (verification-method.md section 6). */
const WEEKLY_DAYS = 7;

/** First UTC day on which this card may rise because its hold ends, or null when nothing holds it. */
export function heldUntil(cap: PublishedCap, today: string): string | null {
  const headline = headlineOf(cap);
  if (!headline || headline.band === headline.raw_band) return null;
  // What held it yesterday may have left the window today: then the hold is over.
  return holdOf(cap, cap.corrections, today, headline.raw_band).heldUntil ?? today;
}

/** Is the endpoint to be looked at on this UTC day although no record came in? */
function isDue(cap: PublishedCap, today: string): boolean {
  if (cap.cards.length === 0) return false;
  if (addDays(cap.day, WEEKLY_DAYS) <= today) return true;
  const until = heldUntil(cap, today);
  return until !== null && until <= today;
}

/** First day, from `today` on, on which {@link isDue} holds if nothing is published before; null without a card. */
function nextLook(cap: PublishedCap, today: string): string | null {
  if (cap.cards.length === 0) return null;
  const weekly = addDays(cap.day, WEEKLY_DAYS);
  const until = heldUntil(cap, today);
  return until !== null && until < weekly ? until : weekly;
}

/**
 * Endpoints to look at on a UTC day although no record came in: the weekly card and the end of a hold. `due_at` moments
 * of the runs themselves, and changes that wait because a card was published that day, are the grader's. Follows one
 * fold, so that a day costs by what is due and by what was published since it was last asked, not by what there is.
 */
export class DueDays {
  readonly #fold: PublishedFold;
  readonly #days = new Moments();
  #changed: Set<string>;

  constructor(fold: PublishedFold) {
    this.#fold = fold;
    this.#changed = new Set(fold.caps.keys());
    fold.onChange((cap) => this.#changed.add(cap));
  }

  due(today: string): string[] {
    for (const name of this.#changed) {
      const cap = this.#fold.caps.get(name)!;
      // From its own day on: the clock may be asked for a day before one that was asked for already.
      this.#days.set(name, nextLook(cap, cap.day));
    }
    this.#changed.clear();
    const due: string[] = [];
    for (const name of this.#days.due(today)) {
      const cap = this.#fold.caps.get(name)!;
      if (isDue(cap, today)) due.push(name);
      else this.#days.set(name, nextLook(cap, today));
    }
    return due;
  }
}
