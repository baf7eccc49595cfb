import type { Bulk, Store } from "../../infra/store/store.ts";
import { packBundle } from "../../infra/tree/bundle.ts";
import { entriesPath } from "../../infra/tree/path.ts";
import { Tampered, type TileReader } from "../../infra/tree/tiles.ts";
import { headersOf } from "../published/objects.ts";
import { bundleWidth, type ProvenBundle, provenBundle } from "../published/reader.ts";
import { objectsOf, type Source } from "../published/source.ts";

/** What a run did, for its summary. */
export interface Tally {
  /** Objects that came from the source, and those that an earlier run had left here already. */
  fetched: number;
  adopted: number;
}

/** An object that a verifying run put right, and what was wrong with it. */
export interface Mended {
  key: string;
  was: "damaged" | "gone";
}

/**
 * Where the objects of one run go: found in the store, put by way of its bulk, so that all of them are durable together
 * before the commit. What an earlier run left was durable only if that run committed: it is proven before it is adopted.
 */
export class Exposed {
  /** @param mended told of every object that was not there, or had other bytes */
  constructor(
    readonly store: Store,
    private readonly bulk: Bulk,
    private readonly mended?: (mended: Mended) => void,
  ) {}

  /** What an earlier run left of an object, or null. */
  async held(key: string): Promise<Uint8Array | null> {
    return (await this.store.get(key))?.bytes ?? null;
  }

  /** An object whose bytes were proven; one of that name with other bytes was damaged and is replaced. */
  async put(key: string, bytes: Uint8Array): Promise<void> {
    if (this.mended) {
      const held = await this.held(key);
      if (!held || Buffer.compare(held, bytes) !== 0) this.mended({ key, was: held ? "damaged" : "gone" });
    }
    const { contentType, cacheControl } = headersOf(key);
    await this.bulk.put(key, bytes, { contentType, cacheControl });
  }

  /** Rely on an object of an earlier run, whose bytes were proven. */
  adopt(key: string): void {
    this.bulk.adopt(key);
  }

  /** Take away what nothing proves. */
  withdraw(key: string): Promise<void> {
    return this.store.delete(key);
  }

  /** Everything put and adopted is durable when this resolves. */
  flush(): Promise<void> {
    return this.bulk.flush();
  }
}

/** Copies entry bundles, each proven by the tile above it before it is written. */
export class BundleCopier {
  constructor(
    private readonly source: Source,
    private readonly exposed: Exposed,
    private readonly tiles: TileReader,
    private readonly tally: Tally,
  ) {}

  /**
   * Have bundle n in the store, whole as far as the tree goes. What is written is packed here, so that nothing of a
   * stranger's gzip but the proven entries is handed on.
   * @throws MissingObject, Tampered naming the bundle, what source and store throw
   */
  async copy(n: number): Promise<ProvenBundle> {
    const key = entriesPath(n, bundleWidth(n, this.tiles.size));
    const held = await this.exposed.held(key);
    const own = held && (await this.#proven(n, key, held));
    if (own) {
      this.exposed.adopt(key);
      this.tally.adopted++;
      return own;
    }
    const proven = await provenBundle(objectsOf(this.source), this.tiles, n);
    await this.exposed.put(key, await packBundle(proven.entries));
    this.tally.fetched++;
    return proven;
  }

  /** What an earlier run left of bundle n, or null when it does not hold. */
  async #proven(n: number, key: string, held: Uint8Array): Promise<ProvenBundle | null> {
    try {
      return await provenBundle(async () => held, this.tiles, n);
    } catch (error) {
      if (error instanceof Tampered && error.key === key) return null;
      throw error;
    }
  }
}
