import { Compressor, Decompressor } from "zstd-napi";
import type { SignedCard } from "../../pipelines/record/card.ts";
import type { GradeLeaf } from "../../pipelines/record/leaf.ts";
import type { Band, Tier } from "../../pipelines/record/vocabulary.ts";
import type { Correction, Defect } from "../schemas/common.ts";

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
  /** RFC 3339; of a card that does not say it, when it was published. */
  computedAt: string;
  /** Paid samples: W of correctness, 0 where nothing was paid. */
  paidSamples: number;
  /** Paid calls toward a letter, 0 to 30, as its `why` counts them. */
  progress: number;
}

/** One published headline letter, for the chart of letters. */
export interface LetterAt {
  /** As {@link CardEntry.computedAt} of its card. */
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

/** An endpoint that a listing described. */
export type ListedEntry = Entry & { url: string; method: string };

export const isListed = (entry: Entry | undefined): entry is ListedEntry =>
  entry?.listed === true && entry.url !== null && entry.method !== null;

/** What the tree says of one endpoint, as of a size of the log. Never changed in place: a fold makes a new one. */
export interface Entry {
  cap: string;
  /** Normalised url; null until a listing named it. */
  url: string | null;
  method: string | null;
  tool: string | null;
  class: string;
  description: string | null;
  /** In the market index: a listing leaf came, and no delisting after it. */
  listed: boolean;
  defects: readonly Defect[];
  /** Cards of the newest run that published any, deepest tier first; exactly one is the headline. */
  cards: readonly CardEntry[];
  /** Headline letters in the order they were published, at most the newest {@link MAX_LETTERS}. */
  letters: readonly LetterAt[];
  /** In the order they were published. */
  corrections: readonly Correction[];
  disputes: readonly Record<string, unknown>[];
  /** Ids of corrections that were taken back: their records count again. */
  takenBack: readonly string[];
}

/** The card that a check shows, or null before the first one. */
export const headlineOf = (entry: Entry): CardEntry | null => entry.cards.find((card) => card.headline) ?? null;

/** The whole leaf of a card. */
export const leafOf = (card: CardEntry): GradeLeaf => JSON.parse(unpackLeaf(card.packed)) as GradeLeaf;

export const cardOf = (card: CardEntry): SignedCard => leafOf(card).card;
