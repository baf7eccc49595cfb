import { sha256hex } from "../../infra/canonical.ts";
import type { Clock } from "../../infra/clock.ts";
import type { Store, StoredObject } from "../../infra/store/store.ts";
import { VIEW } from "../../pipelines/published/objects.ts";
import type { Source } from "../../pipelines/published/source.ts";

/** What serving reads of a public store. */
export type ReadStore = Pick<Store, "get" | "getRange" | "head">;

export interface LiveBounds {
  /** Bytes of one object, and of all that are held. */
  maxBytes: number;
  heldBytes: number;
  /** How long the view is handed out without another look at the source, steady ms. */
  viewMs: number;
}

const LIVE_BOUNDS: LiveBounds = { maxBytes: 256 * 1024 * 1024, heldBytes: 384 * 1024 * 1024, viewMs: 1_000 };

/**
 * The objects below `live/`, which no mirror copies since nothing proves them: read from the source, whose keys are
 * never used twice, so all but the view are kept as long as there is room. Many who ask at once cause one read.
 */
export class LiveObjects {
  readonly #held = new Map<string, StoredObject>();
  readonly #coming = new Map<string, Promise<StoredObject | null>>();
  #view: { object: StoredObject | null; at: number } | null = null;
  #bytes = 0;

  constructor(
    private readonly source: Source,
    private readonly clock: Pick<Clock, "monotonic" | "now">,
    private readonly bounds: LiveBounds = LIVE_BOUNDS,
  ) {}

  /** @throws Oversized, SourceDown and what else the source throws */
  async get(key: string): Promise<StoredObject | null> {
    if (key === VIEW && this.#view && this.clock.monotonic() - this.#view.at < this.bounds.viewMs)
      return this.#view.object;
    const held = this.#held.get(key);
    if (held) {
      this.#held.delete(key);
      this.#held.set(key, held);
      return held;
    }
    const coming = this.#coming.get(key) ?? this.#read(key).finally(() => this.#coming.delete(key));
    this.#coming.set(key, coming);
    return coming;
  }

  async #read(key: string): Promise<StoredObject | null> {
    const bytes = await this.source.get(key, this.bounds.maxBytes);
    const object = bytes && {
      ...{ key, bytes, size: bytes.length, modifiedAt: this.clock.now() },
      etag: sha256hex(bytes).slice(0, 32),
    };
    if (key === VIEW) this.#view = { object, at: this.clock.monotonic() };
    else if (object) this.#keep(object);
    return object;
  }

  #keep(object: StoredObject): void {
    this.#held.set(object.key, object);
    this.#bytes += object.size;
    while (this.#bytes > this.bounds.heldBytes) {
      const [oldest, dropped] = this.#held.entries().next().value!;
      this.#held.delete(oldest);
      this.#bytes -= dropped.size;
    }
  }
}

/** A replica's public store: what is proven from its own disk, what is live from the source. Only read. */
export function replicaStore(proven: ReadStore, live: Pick<LiveObjects, "get">): ReadStore {
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
