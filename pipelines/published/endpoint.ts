import { type CorrectionLeaf, cardTime, type GradeLeaf, type Leaf, type ListingLeaf } from "../record/leaf.ts";
import { addDays } from "../record/time.ts";
import type { Band } from "../record/vocabulary.ts";

export type ListingFacts = Pick<
  ListingLeaf,
  "capability_id" | "url" | "method" | "tool" | "class" | "description" | "seller_controlled" | "defects" | "offers"
>;

/**
 * The letter of a headline (main) card in a grade leaf, without the hold: that rule delays a rise until 14 clean days
 * passed.
 */
export interface RawLetter {
  /** Log position of the leaf, and its UTC day. */
  leaf: number;
  day: string;
  band: Band;
  /**
   * Time of the oldest row from which the letter was computed. "" if the card does not name it; then any correction
   * may affect the letter.
   */
  windowStart: string;
  /** Time of the run that computed the letter, RFC 3339. */
  computedAt: string;
}

export interface PublishedCorrection {
  /** Log position of its leaf. */
  leaf: number;
  kind: CorrectionLeaf["kind"];
  /** Offset of the correction's record in the topic `corrections`; null in older leaves, which do not name it. */
  position: number | null;
  body: Record<string, unknown>;
}

/** Everything published about one endpoint up to some leaf. Immutable: each further leaf makes a new object. */
export interface Endpoint<Card = unknown, Letter = unknown> {
  cap: string;
  /** The newest listing, null before the first. A delisting does not remove it. */
  listing: ListingFacts | null;
  /** Whether the endpoint is in the market index: true after a listing leaf, until a delisting leaf. */
  listed: boolean;
  /** Cards of the newest run (grading) that published any, from the deepest tier (depth of checks) on. */
  cards: readonly Card[];
  /** Time of that run (RFC 3339), "" before the first. */
  computedAt: string;
  /** Position of the newest card, -1 before the first. */
  cardLeaf: number;
  /** Letters of headline cards in log order, as many as the projection keeps. */
  letters: readonly Letter[];
  /** Corrections, disputes and reinstatements in log order. */
  corrections: readonly PublishedCorrection[];
}

/** Decides what one reader of the log (serving, publisher or auditor) keeps of the leaves of an endpoint. */
export interface Projection<E extends Endpoint> {
  /** Makes an endpoint of which only the id is known. */
  createEndpoint(cap: string): E;
  /** @param bytes the leaf in RFC 8785 form, where the caller has it */
  card(leaf: GradeLeaf, bytes: Buffer | undefined): E["cards"][number];
  /** Returns the letters to keep after this leaf, whose card is a headline. */
  letters(before: E["letters"], leaf: GradeLeaf): E["letters"];
  /** Returns the members besides the cards that change with the first card of a run (one grading of the endpoint). */
  run?(before: E, leaf: GradeLeaf): Partial<E>;
}

/** One shared empty list saves memory: there are many endpoints, and most have no defects, letters or corrections. */
const EMPTY_LIST: readonly never[] = Object.freeze([]);

/** Makes an {@link Endpoint} as it is before its first leaf. */
export const emptyEndpoint = (cap: string): Endpoint<never, never> => ({
  cap,
  listing: null,
  listed: false,
  cards: EMPTY_LIST,
  computedAt: "",
  cardLeaf: -1,
  letters: EMPTY_LIST,
  corrections: EMPTY_LIST,
});

/** The id of the endpoint that a leaf is about; null for a leaf that is about no endpoint. */
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
 * Applies one leaf to the endpoint that it is about ({@link endpointOf}) and returns the new endpoint. Pure: replaying
 * a log to size N gives the state at N.
 */
export function applyLeafToEndpoint<E extends Endpoint>(
  old: E,
  leaf: Leaf,
  projection: Projection<E>,
  bytes?: Buffer,
): E {
  switch (leaf.kind) {
    case "listing":
      return { ...old, listing: toListingFacts(leaf), listed: true };
    case "delisting":
      return { ...old, listed: false };
    case "correction":
    case "dispute":
    case "reinstated": {
      const { index, kind, position = null, body } = leaf;
      return { ...old, corrections: [...old.corrections, { leaf: index, kind, position, body }] };
    }
    case "grade":
      return applyGrade(old, leaf, projection, bytes);
    default:
      return old;
  }
}

function applyGrade<E extends Endpoint>(
  old: E,
  leaf: GradeLeaf,
  projection: Projection<E>,
  bytes: Buffer | undefined,
): E {
  const computedAt = cardTime(leaf);
  const card = projection.card(leaf, bytes);
  const letters = leaf.headline ? projection.letters(old.letters, leaf) : old.letters;
  // Cards of one endpoint in one run are neighbours in the log; any other card begins a new group.
  const isSameRun = old.cardLeaf === leaf.index - 1 && old.computedAt === computedAt;
  const cards = isSameRun ? old.cards.concat(card) : [card];
  const run = isSameRun ? undefined : projection.run?.(old, leaf);
  return { ...old, ...run, cards, computedAt, cardLeaf: leaf.index, letters };
}

/** The members of a listing that are compared and shown, without the leaf's position and unknown members. */
export const toListingFacts = (listing: ListingFacts | ListingLeaf): ListingFacts => ({
  capability_id: listing.capability_id,
  url: listing.url,
  method: listing.method,
  tool: listing.tool,
  class: listing.class,
  description: listing.description,
  seller_controlled: listing.seller_controlled,
  defects: listing.defects.length > 0 ? listing.defects : (EMPTY_LIST as unknown as ListingFacts["defects"]),
  offers: listing.offers?.length === 0 ? (EMPTY_LIST as unknown as ListingFacts["offers"]) : listing.offers,
});

/** Days of letters to keep: 14 for the hold (a letter rises only after 14 clean days), and one to spare. */
const HOLD_DAYS = 15;

/**
 * Returns the raw letters to keep after this leaf: those of the days that the hold still considers, and the last
 * letter before them, which was still valid when these days began.
 */
export function keepRawLetters(before: readonly RawLetter[], leaf: GradeLeaf): readonly RawLetter[] {
  const { index, day, raw_band: band, card } = leaf;
  const letter = { leaf: index, day, band, windowStart: card.window_start ?? "", computedAt: cardTime(leaf) };
  const letters = [...before, letter];
  const firstDay = addDays(day, -HOLD_DAYS);
  return letters.slice(Math.max(0, letters.findIndex((one) => one.day >= firstDay) - 1));
}
