import { ThreadPool } from "../../infra/thread-pool.ts";
import { bundleLevel } from "../../infra/tree/bundle.ts";
import { SEGMENT_LEAVES, TILE_WIDTH } from "../../infra/tree/path.ts";
import type { TextOfLines } from "../published/lines.mjs";
import type { Vouching } from "../record/card-cut.mjs";
import { MAX_LEAF_BYTES } from "../record/leaf.ts";

/** A leaf of a segment, by its number in it. */
export interface SegmentLeaf {
  i: number;
  entry: Uint8Array;
}

/** What a segment holds whose lines hash to the tree's. */
export interface SegmentProof {
  /** The segment itself. */
  packed: Uint8Array;
  /** Of the 65,536 leaves in order, 32 bytes each: the 256 tiles of level 0. */
  hashes: Uint8Array;
  /** Full tile of level 1. */
  tops: Uint8Array;
  /** Its 256 entry bundles, packed. */
  bundles: Uint8Array[];
  /** Leaves that name keys, an index, evidence or the archive. */
  followed: SegmentLeaf[];
  /** The first leaf that is not JSON with its index. */
  bad: { i: number; text: string } | null;
}

type Answered = Omit<SegmentProof, "bundles"> & { bundles: Uint8Array; lengths: number[] };

/** A card that no thread found signed, and under which of the epochs it stands. */
export type Doubtful = SegmentLeaf & { epoch: number };

/** From this leaf of the segment on these keys vouch for cards. */
export interface Epoch {
  from: number;
  vouching: [kid: string, key: Vouching][];
}

/**
 * Reads segments on all cores: hashes, entry bundles, signatures (segment-worker.mjs). Packed bytes are lent: they are the
 * thread's while it reads them, and come back with its answer. Begins no thread before it is asked.
 */
export class SegmentThreads {
  readonly #threads: ThreadPool;

  /** @param width threads at most (default: one a core) */
  constructor(width?: number) {
    this.#threads = new ThreadPool(new URL("./segment-worker.mjs", import.meta.url), "reads segments", width);
  }

  get width(): number {
    return this.#threads.width;
  }

  /** Begin threads for so many segments, so that they are ready when the first has come. */
  begin(segments: number): void {
    this.#threads.begin(segments);
  }

  /**
   * Hold segment n against `want`, its hash in level 2 of the tree.
   * @param packed lent: use what the proof gives back instead @throws when a thread dies
   */
  async prove(n: number, packed: Uint8Array, want: Uint8Array): Promise<SegmentProof | { got: string }> {
    const ask = { what: "prove", packed, want, first: n * SEGMENT_LEAVES, level: bundleLevel(TILE_WIDTH) };
    const answer = await this.#ask<Answered | { got: string }>(ask, packed);
    if ("got" in answer) return answer;
    let at = 0;
    const bundles = answer.lengths.map((length) => {
      at += length;
      return answer.bundles.subarray(at - length, at);
    });
    return { ...answer, bundles };
  }

  /** What a frame of lines unpacks to, or why it is none of at most `maxBytes`. */
  frame(packed: Uint8Array, maxBytes: number): Promise<TextOfLines | { got: string }> {
    return this.#ask({ what: "frame", packed, maxBytes });
  }

  /** Cards of a proven segment, from its leaf `from` on, that no thread found signed. @param packed lent */
  cards(packed: Uint8Array, from: number, epochs: Epoch[]): Promise<{ packed: Uint8Array; doubtful: Doubtful[] }> {
    return this.#ask({ what: "cards", packed, from, epochs }, packed);
  }

  close(): Promise<void> {
    return this.#threads.close();
  }

  #ask<T extends object>(question: object, lent?: Uint8Array): Promise<T> {
    // Nothing else lies in memory that goes away.
    const moved = lent && lent.byteLength === lent.buffer.byteLength ? [lent.buffer as ArrayBuffer] : [];
    return this.#threads.ask<T>({ maxLine: MAX_LEAF_BYTES, ...question }, moved);
  }
}
