import { canonicalText } from "../../infra/canonical.ts";
import { TextPacker } from "../../infra/zstd.ts";
import { parseWeight, publishedProgress } from "../../pipelines/3-grade/letter.ts";
import {
  type Endpoint,
  emptyEndpoint,
  type ListingFacts,
  type Projection,
} from "../../pipelines/published/endpoint.ts";
import type { SignedCard } from "../../pipelines/record/card.ts";
import { cardTime, type GradeLeaf } from "../../pipelines/record/leaf.ts";
import type { Band, Tier } from "../../pipelines/record/vocabulary.ts";

/**
 * Compresses leaves (entries of the log) with a card, which differ from each other in figures and hashes only.
 * Compressed leaves never leave the process.
 */
const leaves = new TextPacker();

/** Returns the RFC 8785 text of a leaf that {@link CardEntry} holds compressed. */
export const unpackLeaf = (packed: string): string => leaves.unpack(packed);

/** One published card. Fields that are read often are held beside the leaf, which stays compressed. */
export interface CardEntry {
  /** Index of the card's leaf in the log. */
  leaf: number;
  /** The leaf, compressed: as text, all cards would take most of a replica's memory. */
  packed: string;
  /** Whether this is the endpoint's headline card, which GET /v1/check shows. */
  headline: boolean;
  /** What measured the card: probes, paid calls, or paid calls whose answers were checked. */
  tier: Tier;
  /** The letter, or UNRATED. */
  band: Band;
  /** True if a sample counts for the card. False for a card without components. */
  measured: boolean;
  /** Weighted sum of the lower bounds of the card's components; the letter depends on it. */
  composite: number;
  /** Number of records behind the card; undefined: the card does not state it. */
  samples: number | undefined;
  /** Total weight of the paid samples (W in the method of `correctness`), 0 when there are none. */
  paidSamples: number;
  /** Number of paid calls that count toward a letter, 0 to 30, as in the card's `why`. */
  progress: number;
  /** 95th percentile of latency on the card, ms; null: not known. */
  latencyMs: number | null;
}

/** One published headline letter, for the chart of letters. */
export interface DatedLetter {
  /** Time of the grading run that made the card, RFC 3339. */
  at: string;
  /** The letter that this run alone gives, before the rule that a letter rises only after 14 clean days. */
  raw: Band;
  /** The published letter. */
  band: Band;
  /** Index of the card's leaf in the log. */
  leaf: number;
}

/**
 * Number of newest letters that an entry keeps. A card is signed about once a day at most (verification-method.md
 * section 6).
 */
export const MAX_LETTERS = 120;

/**
 * Returns the 95th percentile of latency, ms, from the method string of the card's component `latency_p95`
 * (verification-method.md section 3); null if the card has none.
 */
export function latencyOf({ components }: Pick<SignedCard, "components">): number | null {
  const ms = /;p95_ms=(\d{1,7})(?:;|$)/.exec(components?.latency_p95.method ?? "")?.[1];
  return ms === undefined ? null : Number(ms);
}

/** The published state of one endpoint, as of a size of the log. */
export type Entry = Endpoint<CardEntry, DatedLetter>;

/** The entry of an endpoint that is listed in the market index. */
export type ListedEntry = Entry & { listing: ListingFacts };

/** Reports whether an endpoint is listed now. */
export const isListed = (entry: Entry | undefined): entry is ListedEntry => entry?.listed === true;

/** How serving folds leaves into an entry: it holds each card compressed, and the newest letters for the chart. */
export const SERVING_PROJECTION: Projection<Entry> = {
  createEndpoint: emptyEndpoint,
  card: (leaf, bytes) => ({
    leaf: leaf.index,
    packed: leaves.pack(bytes ?? canonicalText(leaf)),
    headline: leaf.headline,
    tier: leaf.card.tier,
    band: leaf.card.band,
    measured: leaf.card.components !== null,
    composite: leaf.card.composite,
    samples: leaf.card.sample_count,
    paidSamples: leaf.card.components ? parseWeight(leaf.card.components.correctness) : 0,
    progress: publishedProgress(leaf.card),
    latencyMs: latencyOf(leaf.card),
  }),
  letters: (before, leaf) => {
    const letter = { at: cardTime(leaf), raw: leaf.raw_band, band: leaf.card.band, leaf: leaf.index };
    return [...before, letter].slice(-MAX_LETTERS);
  },
};

/** Returns the card that GET /v1/check shows, or null before the first one. */
export const headlineOf = (entry: Entry): CardEntry | null => entry.cards.find((card) => card.headline) ?? null;

/** Unpacks the whole leaf of a card. */
export const leafOf = (card: CardEntry): GradeLeaf => JSON.parse(unpackLeaf(card.packed)) as GradeLeaf;

/** Unpacks the signed card in a card's leaf. */
export const cardOf = (card: CardEntry): SignedCard => leafOf(card).card;
