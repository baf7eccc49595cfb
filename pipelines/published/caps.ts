import { mustPublish, type Reason } from "../3-grade/changed.ts";
import type { CorrectionLeaf, ListingLeaf } from "../record/leaf.ts";
import type { Band, Tier } from "../record/vocabulary.ts";

/** What is published of one endpoint, as the fold of the leaves (fold.ts) keeps it. */
export interface PublishedCard {
  /** Log position of its leaf. */
  leaf: number;
  tier: Tier;
  band: Band;
  raw_band: Band;
  headline: boolean;
  why: string;
  /** null: not said by the card. */
  sample_count: number | null;
  /** It has components: one without stands on nothing that was measured (publication.md, Leaves). */
  measured: boolean;
  /** RFC 8785 text of the signed card. */
  text: string;
}

export type ListingFacts = Pick<
  ListingLeaf,
  "capability_id" | "url" | "method" | "tool" | "class" | "description" | "seller_controlled" | "defects"
>;

export interface LetterOfTier {
  tier: Tier;
  band: Band;
}

/** A raw headline letter, as a leaf published it. */
export interface RawLetter {
  leaf: number;
  day: string;
  band: Band;
  /** The rows it stood on: observed from the start of its window on, before the moment of its run. */
  /** "" where the card does not say it: any correction may then concern it. */
  windowStart: string;
  computedAt: string;
}

export interface PublishedCorrection {
  leaf: number;
  kind: CorrectionLeaf["kind"];
  /** Offset of its record in the topic `corrections`; unknown in leaves that do not say it. */
  position: number | null;
  body: Record<string, unknown>;
}

export interface PublishedCap {
  cap: string;
  /** Newest listing, null before the first and after a delisting. */
  listing: ListingFacts | null;
  /** The newest group of cards, deepest first; it stands in for every card before it. */
  cards: PublishedCard[];
  /** Letters of the group before that one. */
  before: LetterOfTier[];
  /** Position of its last leaf, -1 for none. */
  beforeLeaf: number;
  /** Newest day of an older group that counted toward "once a UTC day", "" for none. */
  countedBefore: string;
  computedAt: string;
  day: string;
  positions: Record<string, number>;
  /** Headline letters of the days that a hold can still see, and the newest one before them. */
  raw: RawLetter[];
  corrections: PublishedCorrection[];
}

/** The members of a listing that are compared and shown; a leaf's position and unknown members aside. */
export const listingFacts = (listing: ListingFacts): ListingFacts => ({
  capability_id: listing.capability_id,
  url: listing.url,
  method: listing.method,
  tool: listing.tool,
  class: listing.class,
  description: listing.description,
  seller_controlled: listing.seller_controlled,
  defects: listing.defects,
});

/** The card that a check shows, or null before the first. */
export const headlineOf = (cap: PublishedCap): PublishedCard | null => cap.cards.find((card) => card.headline) ?? null;

/** Kinds that are published at once together with their consequence. */
const WITHDRAWING = new Set(["correction", "reinstated"]);

/** Was a correction or reinstatement published between these two positions? */
export const correctedBetween = (cap: PublishedCap, after: number, before = Number.POSITIVE_INFINITY): boolean =>
  cap.corrections.some((one) => one.leaf > after && one.leaf < before && WITHDRAWING.has(one.kind));

/** Reasons that do not use up the one publication of a day (verification-method.md section 6). */
const FREE: ReadonlySet<Reason | null> = new Set<Reason | null>(["first_card", "correction", "worse_letter"]);

/** Only letters decide whether a publication was free, so nothing else of an older group is kept. */
const factsOf = (letters: readonly LetterOfTier[]) =>
  letters.map(({ tier, band }) => ({
    card: { tier, band, flags: [], components: null },
    raw_band: band,
    headline: false,
  }));

/** Newest UTC day on which a group was published that counts toward "once a UTC day", "" for none. From leaves alone. */
export function lastCounted(cap: PublishedCap): string {
  const first = cap.cards[0];
  if (!first) return "";
  const now = new Date(cap.computedAt);
  const before = { cards: factsOf(cap.before), at: now, countedDay: null };
  const corrected = correctedBetween(cap, cap.beforeLeaf, first.leaf);
  const { reason } = mustPublish(before, factsOf(cap.cards), now, corrected);
  return FREE.has(reason) && reason !== null ? cap.countedBefore : cap.day;
}
