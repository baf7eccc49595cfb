import type { Bulk, Store } from "../../infra/store/store.ts";
import { packBundle } from "../../infra/tree/bundle.ts";
import { entriesPath } from "../../infra/tree/path.ts";
import { Tampered, type TileReader } from "../../infra/tree/tiles.ts";
import { headersOf } from "../published/objects.ts";
import { bundleWidth, fetchProvenBundle, type ProvenBundle } from "../published/reader.ts";
import { createSourceFetch, type Source } from "../published/source.ts";

/** Counts of a run. */
export interface CopyCounts {
  /** Objects that were fetched from the source. */
  fetched: number;
  /** Objects that an earlier run had left here. */
  adopted: number;
}

/** An object that a verifying run replaced, and why. */
export interface MendedObject {
  key: string;
  was: "damaged" | "gone";
}

/**
 * The objects of one run. They are written through the store's bulk, so that all of them are durable together before
 * the commit. Objects of an earlier run were durable only if that run committed, so they are proven before they are
 * adopted.
 */
export class ExposedStore {
  /** @param onMended called for every written object that was not there, or had other bytes */
  constructor(
    readonly store: Store,
    private readonly bulk: Bulk,
    private readonly onMended?: (mended: MendedObject) => void,
  ) {}

  /** Reads an object that an earlier run left; null when there is none. Its bytes are not proven. */
  async readStored(key: string): Promise<Uint8Array | null> {
    return (await this.store.get(key))?.bytes ?? null;
  }

  /** Writes an object whose bytes were proven. One with other bytes under its name was damaged and is replaced. */
  async put(key: string, bytes: Uint8Array): Promise<void> {
    if (this.onMended) {
      const stored = await this.readStored(key);
      if (!stored || Buffer.compare(stored, bytes) !== 0) this.onMended({ key, was: stored ? "damaged" : "gone" });
    }
    const { contentType, cacheControl } = headersOf(key);
    await this.bulk.put(key, bytes, { contentType, cacheControl });
  }

  /** Keeps an object of an earlier run, whose bytes were proven. */
  adopt(key: string): void {
    this.bulk.adopt(key);
  }

  /** Deletes an object that could not be proven. */
  withdraw(key: string): Promise<void> {
    return this.store.delete(key);
  }

  /** Resolves when everything that was put and adopted is durable. */
  flush(): Promise<void> {
    return this.bulk.flush();
  }
}

/** Copies entry bundles. Each is proven by the tile above it before it is written. */
export class BundleCopier {
  constructor(
    private readonly source: Source,
    private readonly exposed: ExposedStore,
    private readonly tiles: TileReader,
    private readonly counts: CopyCounts,
  ) {}

  /**
   * Copies bundle n into the store, with as many entries as the tree has in it, or adopts the one of an earlier run. A
   * fetched bundle is packed again here, so that nothing of a stranger's gzip is passed on except the proven entries.
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

  /** Bundle n from an earlier run, proven; null when its bytes do not match the tree. */
  async #proveBundle(n: number, key: string, stored: Uint8Array): Promise<ProvenBundle | null> {
    try {
      return await fetchProvenBundle(async () => stored, this.tiles, n);
    } catch (error) {
      if (error instanceof Tampered && error.key === key) return null;
      throw error;
    }
  }
}
