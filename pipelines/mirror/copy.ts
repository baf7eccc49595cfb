import type { Bulk, Store } from "../../infra/store/store.ts";
import { packBundle } from "../../infra/tree/bundle.ts";
import { entriesPath } from "../../infra/tree/path.ts";
import { Tampered, type TileReader } from "../../infra/tree/tiles.ts";
import { headersOf } from "../published/objects.ts";
import { bundleWidth, fetchProvenBundle, type ProvenBundle } from "../published/reader.ts";
import { createSourceFetch, type Source } from "../published/source.ts";

/** Counts of one run of a mirror. */
export interface CopyCounts {
  /** Objects that were fetched from the source. */
  fetched: number;
  /** Objects that an earlier run had left in the store and that were proven to be right. */
  adopted: number;
}

/** An object that a run with option `verify` wrote again: its file was damaged, or gone. */
export interface MendedObject {
  key: string;
  was: "damaged" | "gone";
}

/**
 * Writes the objects of one run into the folder that the mirror exposes, through the store's bulk writer, so that all
 * of them are durable together before the run is committed. If an earlier run was not committed, a power cut may have
 * torn its objects, so they are proven before they are adopted.
 */
export class ExposedStore {
  /** @param onMended called for each written object that was missing before, or that had other bytes */
  constructor(
    readonly store: Store,
    private readonly bulk: Bulk,
    private readonly onMended?: (mended: MendedObject) => void,
  ) {}

  /** Reads an object that an earlier run left; null when there is none. Its bytes are not proven. */
  async readStored(key: string): Promise<Uint8Array | null> {
    return (await this.store.get(key))?.bytes ?? null;
  }

  /**
   * Writes an object whose bytes were proven. A stored object with this key and other bytes was damaged and is
   * replaced.
   */
  async put(key: string, bytes: Uint8Array): Promise<void> {
    if (this.onMended) {
      const stored = await this.readStored(key);
      if (!stored || Buffer.compare(stored, bytes) !== 0) this.onMended({ key, was: stored ? "damaged" : "gone" });
    }
    const { contentType, cacheControl } = headersOf(key);
    await this.bulk.put(key, bytes, { contentType, cacheControl });
  }

  /** Keeps an object of an earlier run. The caller has proven its bytes. */
  adopt(key: string): void {
    this.bulk.adopt(key);
  }

  /** Deletes an object that could not be proven. */
  deleteObject(key: string): Promise<void> {
    return this.store.delete(key);
  }

  /** Resolves when everything that was put and adopted is durable. */
  flush(): Promise<void> {
    return this.bulk.flush();
  }
}

/** Copies entry bundles. Each bundle is compared with the tile above it before it is written. */
export class BundleCopier {
  constructor(
    private readonly source: Source,
    private readonly exposed: ExposedStore,
    private readonly tiles: TileReader,
    private readonly counts: CopyCounts,
  ) {}

  /**
   * Copies bundle n into the store, with as many entries as the tree has there, or adopts the bundle of an earlier
   * run. A fetched bundle is compressed again here, so that nothing from the source's gzip stream is passed on except
   * the proven entries.
   * @throws MissingObject, Tampered naming the bundle, what source and store throw
   */
  async copy(n: number): Promise<ProvenBundle> {
    const key = entriesPath(n, bundleWidth(n, this.tiles.size));
    const stored = await this.exposed.readStored(key);
    const storedBundle = stored && (await this.#proveBundle(n, key, stored));
    if (storedBundle) {
      this.exposed.adopt(key);
      this.counts.adopted++;
      return storedBundle;
    }
    const proven = await fetchProvenBundle(createSourceFetch(this.source), this.tiles, n);
    await this.exposed.put(key, await packBundle(proven.entries));
    this.counts.fetched++;
    return proven;
  }

  /** Proves the stored bytes of bundle n; null when they do not match the tree. */
  async #proveBundle(n: number, key: string, stored: Uint8Array): Promise<ProvenBundle | null> {
    try {
      return await fetchProvenBundle(async () => stored, this.tiles, n);
    } catch (error) {
      if (error instanceof Tampered && error.key === key) return null;
      throw error;
    }
  }
}
