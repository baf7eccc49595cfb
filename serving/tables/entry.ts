import { Compressor, Decompressor } from "zstd-napi";
import { canonicalText } from "../../infra/canonical.ts";
import { progressOfCard, weightIn } from "../../pipelines/3-grade/letter.ts";
import {
  type Endpoint,
  type ListingFacts,
  type Projection,
  unknownEndpoint,
} from "../../pipelines/published/endpoint.ts";
import type { SignedCard } from "../../pipelines/record/card.ts";
import { cardMoment, type GradeLeaf } from "../../pipelines/record/leaf.ts";
import type { Band, Tier } from "../../pipelines/record/vocabulary.ts";

/**
 * Leaves of cards as this process keeps them: the first one it met is the dictionary of all others, which differ from it
 * in figures and hashes only. A string of one byte a character, which costs the heap its length and nothing besides.
 * Packed text never leaves the process, and is read by it alone.
 */
export type PackedLeaf = string & { readonly packed: unique symbol };

class LeafPacker {
  readonly #pack = new Compressor();
  readonly #unpack = new Decompressor();
  #ready = false;

  pack(bytes: Uint8Array): PackedLeaf {
    if (!this.#ready) {
      this.#pack.setParameters({ compressionLevel: 1, contentSizeFlag: true });
      this.#pack.loadDictionary(bytes);
      this.#unpack.loadDictionary(bytes);
      this.#ready = true;
    }
    return this.#pack.compress(bytes).toString("latin1") as PackedLeaf;
  }

  unpack(packed: PackedLeaf): string {
    return this.#unpack.decompress(Buffer.from(packed, "latin1")).toString("utf8");
  }
}

const packer = new LeafPacker();

/** @param bytes RFC 8785 text of a leaf */
export const packLeaf = (bytes: Uint8Array): PackedLeaf => packer.pack(bytes);

/** The same text again. */
export const unpackLeaf = (packed: PackedLeaf): string => packer.unpack(packed);

/** One published card: what is read at every turn is taken out, the leaf itself stays packed until it is asked for. */
export interface CardEntry {
  /** Log position of its leaf. */
  leaf: number;
  /** RFC 8785 text of the leaf, packed: a market of cards as text would be most of the memory of a replica. */
  packed: PackedLeaf;
  headline: boolean;
  tier: Tier;
  band: Band;
  /** false for a card on which nothing counts (any more): it has no components. */
  measured: boolean;
  composite: number;
  /** Paid samples: W of correctness, 0 where nothing was paid. */
  paidSamples: number;
  /** Paid calls toward a letter, 0 to 30, as its `why` counts them. */
  progress: number;
}

/** One published headline letter, for the chart of letters. */
export interface DatedLetter {
  /** Moment of its run, RFC 3339. */
  at: string;
  /** This card's own letter, before the hold of 14 days. */
  raw: Band;
  band: Band;
}

/**
 * Letters that an entry remembers, the newest: a card is signed at most about once a day (verification-method.md
 * section 6).
 */
export const MAX_LETTERS = 120;

/** What the tree says of one endpoint, as of a size of the log. */
export type Entry = Endpoint<CardEntry, DatedLetter>;

/** An endpoint of the market index. */
export type ListedEntry = Entry & { listing: ListingFacts };

export const isListed = (entry: Entry | undefined): entry is ListedEntry => entry?.listed === true;

/** What serving keeps of an endpoint: its cards packed, and letters for the chart. */
export const SERVING_PROJECTION: Projection<Entry> = {
  bare: unknownEndpoint,
  card: (leaf, bytes = Buffer.from(canonicalText(leaf))) => ({
    leaf: leaf.index,
    packed: packLeaf(bytes),
    headline: leaf.headline,
    tier: leaf.card.tier,
    band: leaf.card.band,
    measured: leaf.card.components !== null,
    composite: leaf.card.composite,
    paidSamples: leaf.card.components ? weightIn(leaf.card.components.correctness) : 0,
    progress: progressOfCard(leaf.card),
  }),
  letters: (before, leaf) => {
    const letter = { at: cardMoment(leaf), raw: leaf.raw_band, band: leaf.card.band };
    return [...before, letter].slice(-MAX_LETTERS);
  },
};

/** The card that a check shows, or null before the first one. */
export const headlineOf = (entry: Entry): CardEntry | null => entry.cards.find((card) => card.headline) ?? null;

/** The whole leaf of a card. */
export const leafOf = (card: CardEntry): GradeLeaf => JSON.parse(unpackLeaf(card.packed)) as GradeLeaf;

export const cardOf = (card: CardEntry): SignedCard => leafOf(card).card;
