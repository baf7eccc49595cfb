import type { UnsignedCard } from "../record/card.ts";
import { addDays, dayOf } from "../record/time.ts";
import { BANDS, type Band, COMPONENTS } from "../record/vocabulary.ts";
import { round6 } from "./bounds.ts";

/** What of one published card decides whether the next one is worth a leaf. */
export interface CardFacts {
  /** As published or about to be: after the hold. */
  card: Pick<UnsignedCard, "tier" | "band" | "components"> & { flags?: readonly string[] | undefined };
  raw_band: Band;
  headline: boolean;
  /** Caps that bind, as a run names them. A leaf does not carry them: leave them out on both sides then. */
  caps?: Readonly<Record<string, number>>;
}

/** What is published of one endpoint. */
export interface PublishedFacts {
  cards: readonly CardFacts[];
  /** Moment of the newest publication. */
  at: Date;
  /** UTC day of the newest publication that counts towards the one a day, null before the first. */
  countedDay: string | null;
}

export type Reason = "first_card" | "correction" | "worse_letter" | "changed" | "weekly";

/** `now` publishes; `later` waits for the next UTC day, since this day's one was used; `no` has nothing to say. */
export interface Verdict {
  publish: "now" | "later" | "no";
  reason: Reason | null;
  /** Whether it uses up the one publication of this day. */
  counts: boolean;
}

const WEEK_DAYS = 7;
/** The 0.01 grid line under a lower bound; rounding first, since 100 * 0.29 is below 29. */
const gridLine = (lower: number | null | undefined): number | null =>
  lower == null ? null : Math.floor(round6(lower * 100));
/** Is the change bad news for a buyer: a lower letter, a lost letter, or a first letter that is an F? */
const worsens = (before: Band, after: Band): boolean => {
  if (before === "UNRATED") return after === "F";
  return after === "UNRATED" || BANDS.indexOf(after) > BANDS.indexOf(before);
};

const signature = ({ card, raw_band, headline, caps }: CardFacts): string =>
  JSON.stringify([
    card.tier,
    card.band,
    raw_band,
    headline,
    card.flags ?? [],
    Object.entries(caps ?? {}).sort(),
    COMPONENTS.map((name) => gridLine(card.components?.[name].lower)),
  ]);

/** What may not wait: a first card, a correction with its consequence, a worse published letter. */
function urgency(published: PublishedFacts | null, next: readonly CardFacts[], corrected: boolean): Reason | null {
  if (!published || published.cards.length === 0) return "first_card";
  if (corrected) return "correction";
  for (const { card } of next) {
    const before = published.cards.find((known) => known.card.tier === card.tier);
    if (!before) return "first_card";
    if (worsens(before.card.band, card.band)) return "worse_letter";
  }
  return null;
}

/**
 * Whether an endpoint's cards are signed anew (method, section 6): when something changed, once a UTC day at most and
 * weekly at least; bad news, corrections and first cards at once, and those do not count.
 * @param next the cards as they would be published, after the hold @param corrected a correction or a reinstatement
 * goes with them
 */
export function mustPublish(
  published: PublishedFacts | null,
  next: readonly CardFacts[],
  now: Date,
  corrected = false,
): Verdict {
  const urgent = urgency(published, next, corrected);
  if (!published || urgent) return { publish: "now", reason: urgent, counts: false };
  const changed = published.cards.map(signature).join() !== next.map(signature).join();
  const today = dayOf(now);
  const aWeekOld = today >= addDays(dayOf(published.at), WEEK_DAYS);
  if (!changed && !aWeekOld) return { publish: "no", reason: null, counts: false };
  const reason = changed ? "changed" : "weekly";
  return published.countedDay === today
    ? { publish: "later", reason, counts: false }
    : { publish: "now", reason, counts: true };
}
