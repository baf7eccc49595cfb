import { canonicalText } from "../../infra/canonical.ts";
import { decidePublication, type PublicationReason } from "../3-grade/changed.ts";
import { cardTextOf } from "../record/card-cut.ts";
import type { Band, Tier } from "../record/vocabulary.ts";
import { type Endpoint, type Projection, type RawLetter, rawLetters } from "./endpoint.ts";

/** What is published of one endpoint, as the fold of the leaves (fold.ts) keeps it. */
export interface PublishedCard {
  /** Log position of its leaf. */
  leaf: number;
  tier: Tier;
  band: Band;
  raw_band: Band;
  headline: boolean;
  why: string;
  /** null where the card has no such member. */
  sample_count: number | null;
  /** It has components: one without stands on nothing that was measured (publication.md, Leaves). */
  measured: boolean;
  /** RFC 8785 text of the signed card. */
  text: string;
}

export interface LetterOfTier {
  tier: Tier;
  band: Band;
}

export interface PublishedCap extends Endpoint<PublishedCard, RawLetter> {
  /** Letters of the group before the newest one. */
  before: readonly LetterOfTier[];
  /** Position of its last leaf, -1 for none. */
  beforeLeaf: number;
  /** Newest day of an older group that counted toward "once a UTC day", "" for none. */
  countedBefore: string;
  /** Of the newest group: its UTC day, and {topic: next offset} of what its run had read. */
  day: string;
  positions: Record<string, number>;
}

/** What the publisher and the auditor keep of an endpoint. */
export const PUBLISHED: Projection<PublishedCap> = {
  // One literal: members that a spread adds lie outside the object, and each leaf would copy them from there.
  bare: (cap) => ({
    cap,
    listing: null,
    listed: false,
    cards: [],
    computedAt: "",
    cardLeaf: -1,
    letters: [],
    corrections: [],
    before: [],
    beforeLeaf: -1,
    countedBefore: "",
    day: "",
    positions: {},
  }),
  card: ({ index, card, raw_band, headline, why }, bytes) => ({
    leaf: index,
    tier: card.tier,
    band: card.band,
    raw_band,
    headline,
    why,
    sample_count: card.sample_count ?? null,
    measured: card.components !== null,
    text: (bytes && cardTextOf(bytes)) ?? canonicalText(card),
  }),
  letters: rawLetters,
  run: (old, { day, inputs }) => ({
    before: old.cards.map(({ tier, band }) => ({ tier, band })),
    beforeLeaf: old.cardLeaf,
    countedBefore: lastCounted(old),
    day,
    positions: inputs.positions,
  }),
};

/** The card that a check shows, or null before the first. */
export const headlineOf = (cap: PublishedCap): PublishedCard | null => cap.cards.find((card) => card.headline) ?? null;

/** Kinds that are published at once together with their consequence. */
const WITHDRAWING = new Set(["correction", "reinstated"]);

/** Was a correction or reinstatement published between these two positions? */
export const correctedBetween = (cap: PublishedCap, after: number, before = Number.POSITIVE_INFINITY): boolean =>
  cap.corrections.some((one) => one.leaf > after && one.leaf < before && WITHDRAWING.has(one.kind));

/** Reasons that do not use up the one publication of a day (verification-method.md section 6). */
const FREE: ReadonlySet<PublicationReason | null> = new Set<PublicationReason | null>([
  "first_card",
  "correction",
  "worse_letter",
]);

/** Only letters decide whether a publication was free, so nothing else of an older group is kept. */
const factsOf = (letters: readonly LetterOfTier[]) =>
  letters.map(({ tier, band }) => ({
    card: { tier, band, flags: [], components: null },
    raw_band: band,
    headline: false,
  }));

/** Newest UTC day on which a group was published that counts toward "once a UTC day"; "" for none. */
export function lastCounted(cap: PublishedCap): string {
  const first = cap.cards[0];
  if (!first) return "";
  const now = new Date(cap.computedAt);
  const before = { cards: factsOf(cap.before), at: now, countedDay: null };
  const corrected = correctedBetween(cap, cap.beforeLeaf, first.leaf);
  const { reason } = decidePublication(before, factsOf(cap.cards), now, corrected);
  return FREE.has(reason) && reason !== null ? cap.countedBefore : cap.day;
}
