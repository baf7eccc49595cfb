import { ByteCache } from "../../infra/bounded-map.ts";
import { sha256hex } from "../../infra/canonical.ts";
import type { Clock } from "../../infra/clock.ts";
import type { Store, StoredObject } from "../../infra/store/store.ts";
import { VIEW } from "../../pipelines/published/objects.ts";
import type { Source } from "../../pipelines/published/source.ts";

/** The part of a public store that serving reads. */
export type ReadStore = Pick<Store, "get" | "getRange" | "head">;

export interface LiveBounds {
  /** Largest number of bytes of one object. */
  maxBytes: number;
  /** Largest number of bytes of all cached objects. */
  cacheBytes: number;
  /** How long `live/view.json` is served from the cache, ms. */
  viewTtlMs: number;
}

const LIVE_BOUNDS: LiveBounds = { maxBytes: 256 * 1024 * 1024, cacheBytes: 384 * 1024 * 1024, viewTtlMs: 1_000 };

/**
 * Reads objects below `live/` from a replica's source. Mirrors do not copy them, since no proof covers them. Their
 * keys are never reused, so all but `live/view.json`, which is replaced, stay valid in the cache. Concurrent requests
 * for one key share a read.
 */
export class LiveObjects {
  readonly #cached: ByteCache<StoredObject>;
  readonly #pendingReads = new Map<string, Promise<StoredObject | null>>();
  #cachedView: { object: StoredObject | null; at: number } | null = null;

  constructor(
    private readonly source: Source,
    private readonly clock: Pick<Clock, "monotonic" | "now">,
    private readonly bounds: LiveBounds = LIVE_BOUNDS,
  ) {
    this.#cached = new ByteCache(bounds.cacheBytes);
  }

  /** Reads an object from the cache or the source. @throws Oversized, SourceDown, and other errors of the source */
  async get(key: string): Promise<StoredObject | null> {
    if (key === VIEW && this.#cachedView && this.clock.monotonic() - this.#cachedView.at < this.bounds.viewTtlMs)
      return this.#cachedView.object;
    const cached = this.#cached.get(key);
    if (cached) return cached;
    const pending = this.#pendingReads.get(key) ?? this.#read(key).finally(() => this.#pendingReads.delete(key));
    this.#pendingReads.set(key, pending);
    return pending;
  }

  async #read(key: string): Promise<StoredObject | null> {
    const bytes = await this.source.get(key, this.bounds.maxBytes);
    const object = bytes && {
      ...{ key, bytes, size: bytes.length, modifiedAt: this.clock.now() },
      etag: sha256hex(bytes).slice(0, 32),
    };
    if (key === VIEW) this.#cachedView = { object, at: this.clock.monotonic() };
    else if (object) this.#cached.set(key, object, object.size);
    return object;
  }
}

/**
 * Returns a replica's read-only public store: verified objects from its disk, objects below `live/` from the source.
 */
export function createReplicaStore(proven: ReadStore, live: Pick<LiveObjects, "get">): ReadStore {
  const isLive = (key: string): boolean => key.startsWith("live/");
  return {
    get: (key, options) => (isLive(key) ? live.get(key) : proven.get(key, options)),
    head: (key) => (isLive(key) ? live.get(key) : proven.head(key)),
    async getRange(key, start, end) {
      if (!isLive(key)) return proven.getRange(key, start, end);
      return (await live.get(key))?.bytes.subarray(start, end) ?? null;
    },
  };
}
