import { type CorrectionLeaf, cardMoment, type GradeLeaf, type Leaf, type ListingLeaf } from "../record/leaf.ts";
import { addDays } from "../record/time.ts";
import type { Band } from "../record/vocabulary.ts";

export type ListingFacts = Pick<
  ListingLeaf,
  "capability_id" | "url" | "method" | "tool" | "class" | "description" | "seller_controlled" | "defects" | "offers"
>;

/** A raw headline letter, as a leaf published it. */
export interface RawLetter {
  leaf: number;
  day: string;
  band: Band;
  /** First moment of the rows it stood on; "" where the card does not say it: any correction may then concern it. */
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

/** What is published of one endpoint after some leaves. Never changed in place: each leaf makes a new one. */
export interface Endpoint<Card = unknown, Letter = unknown> {
  cap: string;
  /** The newest listing, null before the first. A delisting leaves it here. */
  listing: ListingFacts | null;
  /** In the market index: a listing came, and no delisting after it. */
  listed: boolean;
  /** Cards of the newest run that published any, deepest tier first. */
  cards: readonly Card[];
  /** Moment of that run (RFC 3339), "" before the first. */
  computedAt: string;
  /** Position of the newest card, -1 before the first. */
  cardLeaf: number;
  /** Headline letters in log order, as many as the projection keeps. */
  letters: readonly Letter[];
  /** Corrections, disputes and reinstatements in log order. */
  corrections: readonly PublishedCorrection[];
}

/** What one reader of the tree keeps of the leaves of an endpoint. */
export interface Projection<E extends Endpoint> {
  /** An endpoint of which only its id is known. */
  bare(cap: string): E;
  /** @param bytes the leaf in RFC 8785 form, where the caller has it */
  card(leaf: GradeLeaf, bytes: Buffer | undefined): E["cards"][number];
  /** The letters kept once this headline is one of them. */
  letters(before: E["letters"], leaf: GradeLeaf): E["letters"];
  /** What changes, beside the cards, with the first card of a run. */
  run?(before: E, leaf: GradeLeaf): Partial<E>;
}

/** One object for all: most endpoints have no defects, letters or corrections, and there are many endpoints. */
const NONE: readonly never[] = Object.freeze([]);

/** The members of {@link Endpoint} before the first leaf. */
export const unknownEndpoint = (cap: string): Endpoint<never, never> => ({
  cap,
  listing: null,
  listed: false,
  cards: NONE,
  computedAt: "",
  cardLeaf: -1,
  letters: NONE,
  corrections: NONE,
});

/** The endpoint that a leaf is about; null for one that every endpoint's fold leaves out. */
export function endpointOf(leaf: Leaf): string | null {
  switch (leaf.kind) {
    case "grade":
      return leaf.card.capability_id;
    case "listing":
    case "delisting":
    case "correction":
    case "dispute":
    case "reinstated":
      return leaf.capability_id;
    default:
      return null;
  }
}

/**
 * The endpoint after one more leaf, which is about it ({@link endpointOf}). Pure: replaying a log to size N gives the
 * state at N.
 */
export function nextEndpoint<E extends Endpoint>(old: E, leaf: Leaf, projection: Projection<E>, bytes?: Buffer): E {
  switch (leaf.kind) {
    case "listing":
      return { ...old, listing: listingFacts(leaf), listed: true };
    case "delisting":
      return { ...old, listed: false };
    case "correction":
    case "dispute":
    case "reinstated": {
      const { index, kind, position = null, body } = leaf;
      return { ...old, corrections: [...old.corrections, { leaf: index, kind, position, body }] };
    }
    case "grade":
      return graded(old, leaf, projection, bytes);
    default:
      return old;
  }
}

function graded<E extends Endpoint>(old: E, leaf: GradeLeaf, projection: Projection<E>, bytes: Buffer | undefined): E {
  const computedAt = cardMoment(leaf);
  const card = projection.card(leaf, bytes);
  const letters = leaf.headline ? projection.letters(old.letters, leaf) : old.letters;
  // Cards of one endpoint in one run are neighbours in the log; any other card begins a new group.
  const isSameRun = old.cardLeaf === leaf.index - 1 && old.computedAt === computedAt;
  const cards = isSameRun ? [...old.cards, card] : [card];
  const run = isSameRun ? undefined : projection.run?.(old, leaf);
  return { ...old, ...run, cards, computedAt, cardLeaf: leaf.index, letters };
}

/** The members of a listing that are compared and shown; a leaf's position and unknown members aside. */
export const listingFacts = (listing: ListingFacts | ListingLeaf): ListingFacts => ({
  capability_id: listing.capability_id,
  url: listing.url,
  method: listing.method,
  tool: listing.tool,
  class: listing.class,
  description: listing.description,
  seller_controlled: listing.seller_controlled,
  defects: listing.defects.length > 0 ? listing.defects : (NONE as unknown as ListingFacts["defects"]),
  offers: listing.offers?.length === 0 ? (NONE as unknown as ListingFacts["offers"]) : listing.offers,
});

/** Days of letters that the hold needs: its 14 and one to spare. The newest letter before them is kept too, it runs on. */
const HOLD_DAYS = 15;

/** Raw letters of the days that a hold on this leaf's day, or on a later one, can still see. */
export function rawLetters(before: readonly RawLetter[], leaf: GradeLeaf): readonly RawLetter[] {
  const { index, day, raw_band: band, card } = leaf;
  const letter = { leaf: index, day, band, windowStart: card.window_start ?? "", computedAt: cardMoment(leaf) };
  const raw = [...before, letter];
  const first = addDays(day, -HOLD_DAYS);
  return raw.slice(Math.max(0, raw.findIndex((one) => one.day >= first) - 1));
}
