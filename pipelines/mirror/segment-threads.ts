import { availableParallelism } from "node:os";
import { Worker } from "node:worker_threads";
import { bundleLevel } from "../../infra/tree/bundle.ts";
import { SEGMENT_LEAVES, TILE_WIDTH } from "../../infra/tree/path.ts";
import type { Vouching } from "../record/card-cut.mjs";
import { MAX_LEAF_BYTES } from "../record/leaf.ts";

/** A leaf of a segment, by its number in it. */
export interface SegmentLeaf {
  i: number;
  entry: Uint8Array;
}

/** What a segment holds whose lines hash to the tree's. */
export interface SegmentProof {
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

/** Lines that a zstd frame holds. */
export interface Frame {
  size: number;
  lines: number;
  /** Of the longest line, without its newline. */
  longest: number;
  sha256: string;
}

/** From this leaf of the segment on these keys vouch for cards. */
export interface Epoch {
  from: number;
  vouching: [kid: string, key: Vouching][];
}

interface Waiting {
  resolve: (answer: object) => void;
  reject: (error: Error) => void;
}

interface Thread {
  worker: Worker;
  waiting: Map<number, Waiting>;
  /** Why nothing can be asked any more. */
  dead: Error | null;
}

/**
 * Reads segments on all cores: hashes, entry bundles, signatures (segment-worker.mjs). A segment stays with the thread
 * that proved it until it is forgotten. Begins no thread before it is asked.
 */
export class SegmentThreads {
  readonly #threads: Thread[] = [];
  #asked = 0;
  #closed = false;

  /** @param width threads at most (default: one a core) */
  constructor(readonly width: number = availableParallelism()) {}

  /** Begin the threads for segments [first, end), so that they are ready when the first has come. */
  begin(first: number, end: number): void {
    for (let n = first; n < Math.min(end, first + this.width); n++) this.#threads[n % this.width] ??= begun();
  }

  /** Hold segment n against `want`, its hash in level 2 of the tree. @throws when a thread dies */
  async prove(n: number, packed: Uint8Array, want: Uint8Array): Promise<SegmentProof | { got: string }> {
    const ask = { packed, want, first: n * SEGMENT_LEAVES, level: bundleLevel(TILE_WIDTH) };
    const answer = (await this.#ask(n, "prove", ask)) as Answered | { got: string };
    if ("got" in answer) return answer;
    let at = 0;
    const bundles = answer.lengths.map((length) => {
      at += length;
      return answer.bundles.subarray(at - length, at);
    });
    return { ...answer, bundles };
  }

  /** What a frame of lines unpacks to, or why it is none of at most `maxBytes`. */
  async frame(packed: Uint8Array, maxBytes: number): Promise<Frame | { got: string }> {
    return (await this.#ask(this.#asked, "frame", { packed, maxBytes })) as Frame | { got: string };
  }

  /** Cards of a proven segment, from its leaf `from` on, that no thread found signed. */
  async cards(n: number, from: number, epochs: Epoch[]): Promise<(SegmentLeaf & { epoch: number })[]> {
    const { doubtful } = (await this.#ask(n, "cards", { from, epochs })) as {
      doubtful: (SegmentLeaf & { epoch: number })[];
    };
    return doubtful;
  }

  forget(n: number): void {
    this.#threads[n % this.width]?.worker.postMessage({ what: "forget", id: n });
  }

  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all(this.#threads.map((thread) => thread?.worker.terminate()));
  }

  #ask(n: number, what: string, more: object): Promise<object> {
    if (this.#closed) throw new Error("the threads are closed");
    this.#threads[n % this.width] ??= begun();
    const { worker, waiting, dead } = this.#threads[n % this.width]!;
    if (dead) return Promise.reject(dead);
    const ask = this.#asked++;
    return new Promise((resolve, reject) => {
      waiting.set(ask, { resolve, reject });
      worker.postMessage({ ask, id: n, what, maxLine: MAX_LEAF_BYTES, ...more });
    });
  }
}

function begun(): Thread {
  // The flags of a test runner or loader are not for this thread: it needs none.
  const worker = new Worker(new URL("./segment-worker.mjs", import.meta.url), { execArgv: [] });
  const waiting = new Map<number, Waiting>();
  const thread: Thread = { worker, waiting, dead: null };
  const died = (error: Error) => {
    thread.dead ??= error;
    for (const { reject } of waiting.values()) reject(thread.dead);
    waiting.clear();
  };
  worker.on("message", ({ ask, ...answer }: { ask: number }) => {
    waiting.get(ask)?.resolve(answer);
    waiting.delete(ask);
  });
  worker.on("error", died);
  worker.on("exit", () => died(new Error("a thread that reads segments ended")));
  return thread;
}
