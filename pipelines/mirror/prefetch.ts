import { range } from "../../infra/concurrency.ts";
import { edgeOf, entriesPath, TILE_WIDTH } from "../../infra/tree/path.ts";
import { Oversized } from "../published/errors.ts";
import { MAX, packedBound } from "../published/limits.ts";
import { HINT_INDEX, kindOfKey, shardKey } from "../published/objects.ts";
import { parseJson } from "../published/parse.ts";
import { IndexList, type ShardLine } from "../published/shards.ts";
import type { Sink } from "../published/sink.ts";
import { fetchInto, type Source } from "../published/source.ts";
import { NewestIndex } from "./state.ts";

/** Objects on their way at once: each waits for a round trip and for hardly anything else. */
export const PREFETCH_AT_ONCE = 32;
/** Longest object that is fetched before it is asked for: shards and bundles have some ten kilobytes. */
export const PREFETCH_OBJECT_BYTES = 1024 * 1024;
/** All that is here or on its way, each at its longest; what was looked at may be above it. */
export const PREFETCH_BYTES = 96 * 1024 * 1024;
/** Items that are prefetched before their turn. */
const AHEAD = 2 * PREFETCH_AT_ONCE;

/** An object that will be asked for soon. */
export interface ToFetch {
  key: string;
  maxBytes: number;
}

interface Begun {
  /** Undefined: not fetched, for whatever reason. */
  bytes: Promise<Uint8Array | undefined>;
  /** Of memory, that may still be on their way. */
  size: number;
}

/**
 * A source of which small objects are fetched before they are asked for, many at once, while whoever asks is busy with
 * others: a source that is far away costs a round trip for each. It changes when an object is fetched and nothing else:
 * what did not come ahead, for whatever reason, is asked for in its turn as if nobody had tried. Nothing here is proven.
 * A source that is not `distant` is only handed on.
 */
export class Prefetch implements Source {
  readonly name: string;
  readonly #queued = new Map<string, number>();
  readonly #begun = new Map<string, Begun>();
  readonly #running = new Set<Promise<unknown>>();
  #bytes = 0;
  #stopped = false;

  /** @param has is the object here already, from an earlier run? */
  constructor(
    private readonly source: Source,
    private readonly has: (key: string) => Promise<boolean>,
  ) {
    this.name = source.name;
  }

  /** Is anything prefetched? */
  get distant(): boolean {
    return this.source.distant === true && !this.#stopped;
  }

  /** Fetch these as soon as there is room, in this order. */
  want<T>(items: Iterable<T>, toFetchOf: (item: T) => ToFetch | null): void {
    if (!this.distant) return;
    for (const item of items) {
      const next = toFetchOf(item);
      if (next && !this.#begun.has(next.key)) this.#queued.set(next.key, next.maxBytes);
    }
    this.#fill();
  }

  /** The items in their order, each prefetched before its turn. */
  *announced<T>(items: Iterable<T>, toFetchOf: (item: T) => ToFetch | null): Generator<T> {
    const next: T[] = [];
    for (const item of items) {
      next.push(item);
      this.want([item], toFetchOf);
      if (next.length > AHEAD) yield next.shift()!;
    }
    yield* next;
  }

  /** The object now, which stays here for whoever asks for it later; null where it did not come. Never rejects. */
  async look({ key, maxBytes }: ToFetch): Promise<Uint8Array | null> {
    if (this.distant && !this.#begun.has(key)) this.#begin(key, maxBytes);
    return (await this.#begun.get(key)?.bytes) ?? null;
  }

  async get(key: string, maxBytes: number): Promise<Uint8Array | null> {
    this.#queued.delete(key);
    const begun = this.#begun.get(key);
    if (begun) {
      this.#begun.delete(key);
      const bytes = await begun.bytes;
      this.#bytes -= begun.size;
      this.#fill();
      if (bytes && bytes.length <= maxBytes) return bytes;
    }
    return this.source.get(key, maxBytes);
  }

  into(key: string, maxBytes: number, sink: Sink): Promise<boolean> {
    return fetchInto(this.source, key, maxBytes, sink);
  }

  /** Nothing is prefetched any more, and nothing is on its way when this resolves. */
  async stop(): Promise<void> {
    this.#stopped = true;
    this.#queued.clear();
    await Promise.all(this.#running);
    this.#begun.clear();
  }

  async close(): Promise<void> {
    await this.stop();
    await this.source.close();
  }

  #fill(): void {
    for (const [key, maxBytes] of this.#queued) {
      const size = Math.min(maxBytes, PREFETCH_OBJECT_BYTES);
      if (this.#running.size >= PREFETCH_AT_ONCE || this.#bytes + size > PREFETCH_BYTES) return;
      this.#begin(key, size);
    }
  }

  #begin(key: string, size: number): void {
    this.#queued.delete(key);
    this.#bytes += size;
    const begun: Begun = { size, bytes: this.#fetched(key, size) };
    this.#begun.set(key, begun);
    const running = begun.bytes.then((bytes) => {
      this.#running.delete(running);
      // From here on it has the memory that it has.
      const left = bytes?.length ?? 0;
      this.#bytes -= begun.size - left;
      begun.size = left;
      this.#fill();
    });
    this.#running.add(running);
  }

  /** Never rejects: whoever needs the object will see for himself. */
  async #fetched(key: string, maxBytes: number): Promise<Uint8Array | undefined> {
    try {
      if (await this.has(key)) return undefined;
      return (await this.source.get(key, maxBytes)) ?? undefined;
    } catch (error) {
      // A source that does not answer is not pressed any further.
      if (!(error instanceof Oversized)) {
        this.#stopped = true;
        this.#queued.clear();
      }
      return undefined;
    }
  }
}

/** Longest list of shards that is prefetched: ten million endpoints have some six megabytes. */
const MAX_LIST_BYTES = 16 * 1024 * 1024;

/** Bundle n of a tree of `size` leaves, as far as the tree goes. */
export const bundleToFetch =
  (size: number) =>
  (n: number): ToFetch => {
    const { full, width } = edgeOf(size, 0);
    return { key: entriesPath(n, n < full ? TILE_WIDTH : width), maxBytes: MAX.bundle };
  };

export const shardToFetch = (line: ShardLine): ToFetch => ({
  key: shardKey(line.sha256),
  maxBytes: packedBound(line.bytes),
});

/**
 * While segments come, what will be asked for behind them: the bundles from leaf `from` on, and the index that the source
 * hints at, with its shards. The hint is believed for nothing else: the leaf that names the index decides later.
 * Never rejects: what goes wrong here goes wrong again in its turn, and is told of there.
 */
export async function prefetchBehind(prefetch: Prefetch, from: number, size: number): Promise<void> {
  if (!prefetch.distant) return;
  prefetch.want(range(Math.floor(from / TILE_WIDTH), Math.ceil(size / TILE_WIDTH)), bundleToFetch(size));
  const hint = await prefetch.look({ key: HINT_INDEX, maxBytes: MAX.hint });
  const { data: newest } = NewestIndex.safeParse(hint && parseJson(hint));
  if (!newest || kindOfKey(newest.key) !== "indexList") return;
  const bytes = await prefetch.look({ key: newest.key, maxBytes: MAX_LIST_BYTES });
  const { data: list } = IndexList.safeParse(bytes && parseJson(bytes));
  if (list) prefetch.want(list.shards, shardToFetch);
}
