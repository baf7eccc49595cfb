import { sha256 } from "../../infra/canonical.ts";
import type { UnsignedCard } from "../record/card.ts";
import { addDays, dayOf } from "../record/time.ts";
import { BANDS, type Band, COMPONENTS, type Tier } from "../record/vocabulary.ts";
import { round6 } from "./bounds.ts";

/**
 * The members of a card that are compared to decide whether a newer card is published as a leaf (an entry of the
 * published tree).
 */
export interface CardFacts {
  /** The card with its letter after the hold, as it is or would be published. */
  card: Pick<UnsignedCard, "tier" | "band" | "components"> & { flags?: readonly string[] | undefined };
  /** The letter before the hold (hold.ts). */
  raw_band: Band;
  headline: boolean;
  /**
   * The rules that limit the letter (`Caps` in letter.ts), as a run names them: {rule: best letter that it allows, from
   * 0 (A) to 4 (F)}. A leaf does not have them; if one side of a comparison is from a leaf, leave them out on both
   * sides.
   */
  caps?: Readonly<Record<string, number>>;
}

/** The letter (`band`) of one tier (depth of the checks). */
export interface LetterOfTier {
  tier: Tier;
  band: Band;
}

/** What is kept of a published card to compare newer cards with it. `compared`: its {@link comparedHash}. */
export interface PublishedCardFacts extends LetterOfTier {
  compared: string;
}

/** The published cards of one endpoint, and when they were published. */
export interface PublishedFacts {
  cards: readonly PublishedCardFacts[];
  /** Time of the newest publication. */
  publishedAt: Date;
  /** UTC day of the newest publication that counts towards the limit of one a day; null before the first. */
  countedDay: string | null;
}

export type PublicationReason = "first_card" | "correction" | "worse_letter" | "changed" | "weekly";

/**
 * `now`: publish; `later`: wait for the next UTC day, since this day's publication was already used; `no`: there is
 * nothing new.
 */
export interface PublicationDecision {
  publish: "now" | "later" | "no";
  reason: PublicationReason | null;
  /** Does the publication count towards the limit of one a day? */
  counts: boolean;
}

const WEEK_DAYS = 7;
/**
 * Converts a lower bound to whole hundredths, rounded down. The product is rounded to 6 decimals first, since 100 *
 * 0.29 is below 29 as a double.
 */
const toHundredths = (lower: number | null | undefined): number | null =>
  lower == null ? null : Math.floor(round6(lower * 100));
/** Is the new letter worse for a buyer: a lower letter, no letter any more, or an F as the first letter? */
const isWorse = (before: Band, after: Band): boolean => {
  if (before === "UNRATED") return after === "F";
  return after === "UNRATED" || BANDS.indexOf(after) > BANDS.indexOf(before);
};

/**
 * Hashes the members of a card that make it worth publishing: without a correction, a newer card whose hash equals that
 * of the published card is published only once a week. The hash of every published card is kept in memory; the members
 * as text would take eight times as much.
 */
export const comparedHash = ({ card, raw_band, headline, caps }: CardFacts): string => {
  const compared = [
    card.tier,
    card.band,
    raw_band,
    headline,
    card.flags ?? [],
    Object.entries(caps ?? {}).sort(),
    COMPONENTS.map((name) => toHundredths(card.components?.[name]?.lower)),
  ];
  return sha256(JSON.stringify(compared)).toString("base64url").slice(0, 22);
};

/**
 * The reason why a publication may not wait, and does not use up the one publication of a UTC day: a first card, a
 * correction, or a worse letter; null where it may wait.
 * @param published letters of the published cards
 */
export function urgentReason(
  published: readonly LetterOfTier[],
  next: readonly LetterOfTier[],
  hasCorrection: boolean,
): PublicationReason | null {
  if (published.length === 0) return "first_card";
  if (hasCorrection) return "correction";
  for (const letter of next) {
    const publishedLetter = published.find(({ tier }) => tier === letter.tier);
    if (!publishedLetter) return "first_card";
    if (isWorse(publishedLetter.band, letter.band)) return "worse_letter";
  }
  return null;
}

/**
 * Decides whether an endpoint's new cards are published (verification-method.md section 6): if something changed, at
 * most once a UTC day; without a change once a week. Worse letters, corrections and first cards are published at once
 * and do not count towards the limit.
 * @param nextCards the cards as they would be published, after the hold (hold.ts)
 * @param hasCorrection true if a correction or a reinstatement is published together with the cards
 */
export function decidePublication(
  published: PublishedFacts | null,
  nextCards: readonly CardFacts[],
  now: Date,
  hasCorrection = false,
): PublicationDecision {
  const nextLetters = nextCards.map(({ card }) => card);
  const urgent = urgentReason(published?.cards ?? [], nextLetters, hasCorrection);
  if (!published || urgent) return { publish: "now", reason: urgent, counts: false };
  const isChanged = published.cards.map(({ compared }) => compared).join() !== nextCards.map(comparedHash).join();
  const today = dayOf(now);
  const isWeekOld = today >= addDays(dayOf(published.publishedAt), WEEK_DAYS);
  if (!isChanged && !isWeekOld) return { publish: "no", reason: null, counts: false };
  const reason = isChanged ? "changed" : "weekly";
  return published.countedDay === today
    ? { publish: "later", reason, counts: false }
    : { publish: "now", reason, counts: true };
}
