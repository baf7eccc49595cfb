import type { Store } from "../../infra/store/store.ts";
import { packBundle, unpackBundle } from "../../infra/tree/bundle.ts";
import { leafHash, rootOf, sameHash } from "../../infra/tree/hash.ts";
import { edgeOf, entriesPath, TILE_WIDTH } from "../../infra/tree/path.ts";
import { type FetchObject, MissingObject, Tampered, type TileReader } from "../../infra/tree/tiles.ts";
import { headersOf } from "../4-publish/objects.ts";
import { MAX } from "./limits.ts";
import type { Source } from "./source.ts";

/** What a run did, for its summary. */
export interface Tally {
  /** Objects that came from the source, and those that an earlier run had left here already. */
  fetched: number;
  adopted: number;
}

/** Put an object whose bytes were proven; one of that name with other bytes was damaged and is replaced. */
export async function expose(store: Store, key: string, bytes: Uint8Array): Promise<void> {
  const { contentType, cacheControl } = headersOf(key);
  if ((await store.create(key, bytes, { contentType, cacheControl })).result === "created") return;
  const there = await store.get(key);
  if (there && Buffer.compare(there.bytes, bytes) === 0) return;
  const swap = await store.swap(key, bytes, there?.etag ?? null, { contentType, cacheControl });
  if (swap.result === "lost") throw new Error(`${key} changed while it was being replaced`);
}

/** Copies entry bundles, each proven by the tile above it before it is written. */
export class BundleCopier {
  constructor(
    private readonly source: Source,
    private readonly store: Store,
    private readonly tiles: TileReader,
    private readonly tally: Tally,
  ) {}

  /**
   * Have bundle n in the store, whole as far as the tree goes. What is written is packed here, so that nothing of a
   * stranger's gzip but the proven entries is handed on.
   * @throws MissingObject, Tampered naming the bundle, what source and store throw
   */
  async copy(n: number): Promise<void> {
    const edge = edgeOf(this.tiles.size, 0);
    const width = n < edge.full ? TILE_WIDTH : edge.width;
    const key = entriesPath(n, width);
    const want = n < edge.full ? await this.tiles.rootOfTile(0, n) : rootOf(await this.tiles.tile(0, n));
    const held = await this.store.get(key);
    if (held && (await this.#proven(held.bytes, width, width, want)).ok) {
      this.tally.adopted++;
      return;
    }
    const { bytes, of } = await this.#fetch(n, width, key);
    const entries = await this.#proven(bytes, of, width, want);
    if (!entries.ok) throw new Tampered(key, want.toString("hex"), entries.got);
    await expose(this.store, key, await packBundle(entries.entries));
    this.tally.fetched++;
  }

  /** A partial bundle may have gone once the full one is there: its first entries are the same. */
  async #fetch(n: number, width: number, key: string): Promise<{ bytes: Uint8Array; of: number }> {
    const bytes = await this.source.get(key, MAX.bundle);
    if (bytes) return { bytes, of: width };
    const full = width < TILE_WIDTH ? await this.source.get(entriesPath(n), MAX.bundle) : null;
    if (!full) throw new MissingObject(key);
    return { bytes: full, of: TILE_WIDTH };
  }

  async #proven(
    packed: Uint8Array,
    of: number,
    width: number,
    want: Buffer,
  ): Promise<{ ok: true; entries: Buffer[] } | { ok: false; got: string }> {
    let entries: Buffer[];
    try {
      entries = (await unpackBundle(packed, of)).slice(0, width);
    } catch (error) {
      return { ok: false, got: (error as Error).message };
    }
    const got = rootOf(entries.map(leafHash));
    return sameHash(got, want) ? { ok: true, entries } : { ok: false, got: got.toString("hex") };
  }
}

/** Tiles of the source by path, for the tree's readers, which prove them. */
export const tilesFrom =
  (source: Source): FetchObject =>
  (path) =>
    source.get(path, MAX.tile);
