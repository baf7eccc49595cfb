import { ByteCache } from "../../infra/bounded-map.ts";
import type { Store } from "../../infra/store/store.ts";
import type { Logger } from "../../infra/telemetry.ts";
import type { HistoryDay } from "../../pipelines/record/history.ts";
import { HistoryFile } from "../../pipelines/record/history-arrow.ts";
import { bucketOf } from "../../pipelines/record/ids.ts";
import type { View } from "./view.ts";

export interface HistoryBounds {
  /** Largest number of bytes of one file; a larger one is not read. */
  maxFileBytes: number;
  /** Largest number of bytes of all cached files. */
  maxBytes: number;
}

const HISTORY_BOUNDS: HistoryBounds = { maxFileBytes: 32 * 1024 * 1024, maxBytes: 96 * 1024 * 1024 };

/**
 * Daily prices and latencies, read when a page needs them. The endpoints of one bucket (a group by a hash of their
 * ids) share a history file. Files never change under their name, so the cache stays valid; the least recently used
 * file is evicted first.
 */
export class HistoryTables {
  readonly #cached: ByteCache<HistoryFile>;
  /** Running reads by key, which concurrent requests share. */
  readonly #pendingReads = new Map<string, Promise<HistoryFile | null>>();

  constructor(
    private readonly store: Pick<Store, "get">,
    private readonly logger: Logger,
    private readonly bounds: HistoryBounds = HISTORY_BOUNDS,
  ) {
    this.#cached = new ByteCache(bounds.maxBytes);
  }

  /**
   * Returns the days of one endpoint, oldest first; synchronously when its file is cached. Null when there is no
   * history yet, or its file cannot be read: the page is then shown without charts.
   */
  daysOf(view: View, cap: string): HistoryDay[] | null | Promise<HistoryDay[] | null> {
    const key = view.volatile.history.get(bucketOf(cap));
    if (key === undefined) return null;
    const cached = this.#cached.get(key);
    return cached ? cached.daysOf(cap) : this.#load(key).then((file) => file?.daysOf(cap) ?? null);
  }

  /** Bytes of all cached files. */
  get cachedBytes(): number {
    return this.#cached.bytes;
  }

  #load(key: string): Promise<HistoryFile | null> {
    const pending = this.#pendingReads.get(key) ?? this.#read(key).finally(() => this.#pendingReads.delete(key));
    this.#pendingReads.set(key, pending);
    return pending;
  }

  async #read(key: string): Promise<HistoryFile | null> {
    try {
      const object = await this.store.get(key, { maxBytes: this.bounds.maxFileBytes });
      if (!object) throw new Error(`the view names ${key}, which is not there`);
      const file = new HistoryFile(object.bytes);
      this.#cached.set(key, file, object.bytes.length);
      return file;
    } catch (error) {
      this.logger.warn({ err: error, key }, "a history file could not be read; its pages have no charts");
      return null;
    }
  }
}
