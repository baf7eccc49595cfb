import type { Bulk, Store } from "../../infra/store/store.ts";
import { packBundle, unpackBundle } from "../../infra/tree/bundle.ts";
import { leafHash, rootOf, sameHash } from "../../infra/tree/hash.ts";
import { edgeOf, entriesPath, TILE_WIDTH } from "../../infra/tree/path.ts";
import { Tampered, type TileReader } from "../../infra/tree/tiles.ts";
import { headersOf } from "../published/objects.ts";
import { fetchBundle } from "../published/reader.ts";
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
  /**
   * @param empty there was no object when the run began: none is looked for; what comes there meanwhile is compared by `put`
   * @param mended told of every object that was not there, or had other bytes
   */
  constructor(
    readonly store: Store,
    private readonly bulk: Bulk,
    private readonly empty = false,
    private readonly mended?: (mended: Mended) => void,
  ) {}

  /** What an earlier run left of an object, or null. */
  async held(key: string): Promise<Uint8Array | null> {
    return this.empty ? null : ((await this.store.get(key))?.bytes ?? null);
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
  settle(): Promise<void> {
    return this.bulk.settle();
  }
}

/** Leaves of a bundle, and their hashes. */
export interface ProvenBundle {
  n: number;
  entries: Buffer[];
  hashes: Buffer[];
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
    const edge = edgeOf(this.tiles.size, 0);
    const width = n < edge.full ? TILE_WIDTH : edge.width;
    const key = entriesPath(n, width);
    const want = n < edge.full ? await this.tiles.rootOfTile(0, n) : rootOf(await this.tiles.tile(0, n));
    const held = await this.exposed.held(key);
    const own = held && (await this.#proven(held, width, width, want));
    if (own?.ok) {
      this.exposed.adopt(key);
      this.tally.adopted++;
      return { n, ...own };
    }
    const { packed, holds } = await fetchBundle(objectsOf(this.source), n, width);
    const proven = await this.#proven(packed, holds, width, want);
    if (!proven.ok) throw new Tampered(key, want.toString("hex"), proven.got);
    await this.exposed.put(key, await packBundle(proven.entries));
    this.tally.fetched++;
    return { n, ...proven };
  }

  async #proven(
    packed: Uint8Array,
    of: number,
    width: number,
    want: Buffer,
  ): Promise<{ ok: true; entries: Buffer[]; hashes: Buffer[] } | { ok: false; got: string }> {
    let entries: Buffer[];
    try {
      entries = (await unpackBundle(packed, of)).slice(0, width);
    } catch (error) {
      return { ok: false, got: (error as Error).message };
    }
    const hashes = entries.map(leafHash);
    const got = rootOf(hashes);
    return sameHash(got, want) ? { ok: true, entries, hashes } : { ok: false, got: got.toString("hex") };
  }
}
