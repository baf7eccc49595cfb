import { canonicalText } from "../../infra/canonical.ts";
import { TextPacker } from "../../infra/zstd.ts";
import { comparedHash, type LetterOfTier, urgentReason } from "../3-grade/changed.ts";
import { cardTextOf } from "../record/card-cut.ts";
import type { Band, Tier } from "../record/vocabulary.ts";
import { type Endpoint, keepRawLetters, type Projection, type RawLetter } from "./endpoint.ts";

/**
 * One published card (signed grade) of an endpoint, as the fold of the leaves (fold.ts) keeps it. A leaf is one entry
 * of the public log. `tier` is the depth of the checks, `band` the published letter, `raw_band` the letter without
 * the rule that delays a rise; `headline` is true for the card that GET /v1/check shows.
 */
export interface PublishedCard {
  /** Log position of the card's leaf. */
  leaf: number;
  tier: Tier;
  band: Band;
  raw_band: Band;
  headline: boolean;
  /** Hash of what makes a card worth publishing: a newer one with this hash is published only weekly (changed.ts). */
  compared: string;
}

const texts = new TextPacker();

/**
 * The headline card. Its text is kept in packed form, since the index shows it; the text of other cards is not kept.
 */
export class HeadlineCard implements PublishedCard {
  readonly headline = true;
  private readonly packed: string;

  constructor(
    readonly leaf: number,
    readonly tier: Tier,
    readonly band: Band,
    readonly raw_band: Band,
    readonly compared: string,
    readonly why: string,
    /** null if the card has no such member. */
    readonly sample_count: number | null,
    /** Has the card `components`? A card without them rests on no measurement (publication.md, Leaves). */
    readonly measured: boolean,
    text: string,
  ) {
    this.packed = texts.pack(text);
  }

  /** RFC 8785 text of the signed card. */
  get text(): string {
    return texts.unpack(this.packed);
  }
}

export interface PublishedCap extends Endpoint<PublishedCard, RawLetter> {
  /** Letters of the group of cards before `cards`. A group is what one grading published. */
  previousLetters: readonly LetterOfTier[];
  /** Log position of the last leaf of that older group, -1 when there is none. */
  previousLeaf: number;
  /** Newest day on which an older group used up the one publication of a UTC day, "" for none. */
  previousCountedDay: string;
  /** UTC day of the newest group, and how far its grading had read the event log: {topic: next offset}. */
  day: string;
  positions: Record<string, number>;
}

/** What publisher and auditor keep of an endpoint's leaves. */
export const PUBLISHED_PROJECTION: Projection<PublishedCap> = {
  // Written as one literal, since V8 stores members that a spread adds outside of the object, which makes each copy
  // slower.
  createEndpoint: (cap) => ({
    cap,
    listing: null,
    listed: false,
    cards: [],
    computedAt: "",
    cardLeaf: -1,
    letters: [],
    corrections: [],
    previousLetters: [],
    previousLeaf: -1,
    previousCountedDay: "",
    day: "",
    positions: {},
  }),
  card: ({ index, card, raw_band, headline, why }, bytes) => {
    const { tier, band } = card;
    const compared = comparedHash({ card, raw_band, headline });
    if (!headline) return { leaf: index, tier, band, raw_band, headline, compared };
    const [samples, measured] = [card.sample_count ?? null, card.components !== null] as const;
    const text = (bytes && cardTextOf(bytes)) ?? canonicalText(card);
    return new HeadlineCard(index, tier, band, raw_band, compared, why, samples, measured, text);
  },
  letters: keepRawLetters,
  run: (old, { day, inputs }) => ({
    previousLetters: old.cards.map(({ tier, band }) => ({ tier, band })),
    previousLeaf: old.cardLeaf,
    previousCountedDay: lastCountedDayOf(old),
    day,
    positions: inputs.positions,
  }),
};

/** The card that GET /v1/check shows, the headline; null before the first. */
export const headlineOf = (cap: PublishedCap): HeadlineCard | null =>
  cap.cards.find((card) => card instanceof HeadlineCard) ?? null;

/** Kinds of corrections that are published at once, together with the cards that they change. */
const WITHDRAWING_KINDS = new Set(["correction", "reinstated"]);

/** Returns whether a correction or reinstatement was published between these two log positions. */
export const wasCorrectedBetween = (cap: PublishedCap, after: number, before = Number.POSITIVE_INFINITY): boolean =>
  cap.corrections.some((one) => one.leaf > after && one.leaf < before && WITHDRAWING_KINDS.has(one.kind));

/**
 * Newest UTC day whose one publication a group of cards has used up (verification-method.md section 6); "" for none.
 */
export function lastCountedDayOf(cap: PublishedCap): string {
  const firstCard = cap.cards[0];
  if (!firstCard) return "";
  const wasCorrected = wasCorrectedBetween(cap, cap.previousLeaf, firstCard.leaf);
  return urgentReason(cap.previousLetters, cap.cards, wasCorrected) ? cap.previousCountedDay : cap.day;
}
