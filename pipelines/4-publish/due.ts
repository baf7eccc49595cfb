import { headlineOf, type PublishedCap } from "../published/caps.ts";
import type { PublishedFold } from "../published/fold.ts";
import { addDays } from "../record/time.ts";
import { holdOf } from "./letters.ts";
import { MomentIndex } from "./moments.ts";

/**
 * Days after which a card (an endpoint's signed grade) is signed again although nothing changed
 * (verification-method.md section 6).
 */
const WEEKLY_DAYS = 7;

/**
 * First UTC day on which the headline letter (that of the endpoint's main card) may rise because its hold ends; null
 * when no hold applies. A hold publishes the worst letter of the last 14 days.
 */
export function holdEndOf(cap: PublishedCap, today: string): string | null {
  const headline = headlineOf(cap);
  if (!headline || headline.band === headline.raw_band) return null;
  // If the letter that caused the hold has left the 14 days today, the hold is over.
  return holdOf(cap, cap.corrections, today, headline.raw_band).heldUntil ?? today;
}

/** Returns whether the endpoint must be graded on this UTC day although no new record of it arrived. */
function isDue(cap: PublishedCap, today: string): boolean {
  if (cap.cards.length === 0) return false;
  if (addDays(cap.day, WEEKLY_DAYS) <= today) return true;
  const holdEnd = holdEndOf(cap, today);
  return holdEnd !== null && holdEnd <= today;
}

/**
 * First day, from `today` on, on which {@link isDue} is true if nothing is published until then; null without a card.
 */
function nextDueDay(cap: PublishedCap, today: string): string | null {
  if (cap.cards.length === 0) return null;
  const weekly = addDays(cap.day, WEEKLY_DAYS);
  const holdEnd = holdEndOf(cap, today);
  return holdEnd !== null && holdEnd < weekly ? holdEnd : weekly;
}

/**
 * Finds the endpoints that must be graded on a UTC day although no record of them arrived: because their weekly card
 * is due, or because a hold ends. The grader itself finds endpoints whose `due_at` (a time at which a grade changes
 * without records) has passed, and changes that wait because a card was already published that day. The cost of a
 * call grows with the due endpoints and with those published since the last call, not with all endpoints.
 */
export class DueDays {
  readonly #fold: PublishedFold;
  readonly #nextDueDays = new MomentIndex();
  #changedEndpoints: Set<string>;

  constructor(fold: PublishedFold) {
    this.#fold = fold;
    this.#changedEndpoints = new Set(fold.caps.keys());
    fold.onChange((cap) => this.#changedEndpoints.add(cap));
  }

  findDueEndpoints(today: string): string[] {
    for (const capId of this.#changedEndpoints) {
      const cap = this.#fold.caps.get(capId)!;
      // Computed from the day of the newest cards, not from `today`, since a caller may pass an earlier day than
      // before.
      this.#nextDueDays.set(capId, nextDueDay(cap, cap.day));
    }
    this.#changedEndpoints.clear();
    const dueEndpoints: string[] = [];
    for (const capId of this.#nextDueDays.findDue(today)) {
      const cap = this.#fold.caps.get(capId)!;
      if (isDue(cap, today)) dueEndpoints.push(capId);
      else this.#nextDueDays.set(capId, nextDueDay(cap, today));
    }
    return dueEndpoints;
  }
}
