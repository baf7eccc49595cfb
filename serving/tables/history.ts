import type { Store } from "../../infra/store/store.ts";
import type { Logger } from "../../infra/telemetry.ts";
import type { HistoryDay } from "../../pipelines/record/history.ts";
import { HistoryFile } from "../../pipelines/record/history-arrow.ts";
import { bucketOf } from "../../pipelines/record/ids.ts";
import type { View } from "./view.ts";

export interface HistoryBounds {
  /** Most bytes of one file; a larger one is not read. */
  maxFileBytes: number;
  /** Most bytes of all cached files. */
  maxBytes: number;
}

const HISTORY_BOUNDS: HistoryBounds = { maxFileBytes: 32 * 1024 * 1024, maxBytes: 96 * 1024 * 1024 };

interface CachedFile {
  file: HistoryFile;
  bytes: number;
}

/**
 * Daily prices and latencies, read from the history file of an endpoint's bucket when a page needs them. Files never change
 * under their name, so the cache stays valid; the least recently used file is evicted first.
 */
export class HistoryTables {
  readonly #held = new Map<string, CachedFile>();
  /** Running reads by key, which concurrent requests share. */
  readonly #coming = new Map<string, Promise<HistoryFile | null>>();
  #bytes = 0;

  constructor(
    private readonly store: Pick<Store, "get">,
    private readonly logger: Logger,
    private readonly bounds: HistoryBounds = HISTORY_BOUNDS,
  ) {}

  /**
   * Returns the days of one endpoint, oldest first; synchronously when its file is cached. Null when there is no history
   * yet, or its file cannot be read: the page is then shown without charts.
   */
  of(view: View, cap: string): HistoryDay[] | null | Promise<HistoryDay[] | null> {
    const key = view.volatile.history.get(bucketOf(cap));
    if (key === undefined) return null;
    const held = this.#held.get(key);
    if (!held) return this.#load(key).then((file) => file?.daysOf(cap) ?? null);
    this.#held.delete(key);
    this.#held.set(key, held);
    return held.file.daysOf(cap);
  }

  /** Bytes of all cached files. */
  get bytes(): number {
    return this.#bytes;
  }

  #load(key: string): Promise<HistoryFile | null> {
    const coming = this.#coming.get(key) ?? this.#read(key).finally(() => this.#coming.delete(key));
    this.#coming.set(key, coming);
    return coming;
  }

  async #read(key: string): Promise<HistoryFile | null> {
    try {
      const object = await this.store.get(key, { maxBytes: this.bounds.maxFileBytes });
      if (!object) throw new Error(`the view names ${key}, which is not there`);
      const file = new HistoryFile(object.bytes);
      this.#keep(key, { file, bytes: object.bytes.length });
      return file;
    } catch (error) {
      this.logger.warn({ err: error, key }, "a history file could not be read; its pages have no charts");
      return null;
    }
  }

  #keep(key: string, held: CachedFile): void {
    this.#held.set(key, held);
    this.#bytes += held.bytes;
    while (this.#bytes > this.bounds.maxBytes) {
      const [oldest, dropped] = this.#held.entries().next().value!;
      this.#held.delete(oldest);
      this.#bytes -= dropped.bytes;
    }
  }
}
