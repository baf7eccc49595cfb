import { edgeOf, TILE_WIDTH, tilePath } from "../../infra/tree/path.ts";
import { base64 } from "../client/bytes.ts";
import { BadObject, type Get, nodeHash } from "./objects.ts";

/** A tree of the log: its number of leaves, and its root hash in base64. */
export interface TreeRoot {
  size: number;
  root: string;
}

const HASH_BYTES = 32;
/** Number of tree levels from one level of tiles to the next. */
const TILE_HEIGHT = 8;

/** Thrown when a hash tile of the tree was not given. */
class NotGiven extends Error {}

/** Reads hashes of complete subtrees from the tiles of a tree (c2sp.org/tlog-tiles). The caller verifies them. */
class Tiles {
  readonly #tiles = new Map<string, Promise<Uint8Array>>();

  constructor(
    private readonly get: Get,
    private readonly size: number,
  ) {}

  /**
   * Returns the hash of the subtree over the leaves [index * 2^level, (index + 1) * 2^level).
   * @throws NotGiven, BadObject
   */
  async node(level: number, index: number): Promise<Uint8Array> {
    const [tileLevel, levelInTile] = [Math.floor(level / TILE_HEIGHT), level % TILE_HEIGHT];
    const firstHash = index * 2 ** levelInTile;
    const n = Math.floor(firstHash / TILE_WIDTH);
    const tile = await this.#tile(tileLevel, n);
    const hashAt = (i: number): Uint8Array => tile.subarray(i * HASH_BYTES, (i + 1) * HASH_BYTES);
    let hashes = Array.from({ length: 2 ** levelInTile }, (_, i) => hashAt(firstHash - n * TILE_WIDTH + i));
    while (hashes.length > 1) {
      const pairs = Array.from({ length: hashes.length / 2 }, (_, i) => [hashes[2 * i]!, hashes[2 * i + 1]!] as const);
      hashes = await Promise.all(pairs.map(([left, right]) => nodeHash(left, right)));
    }
    return hashes[0]!;
  }

  #tile(level: number, n: number): Promise<Uint8Array> {
    const { full, width } = edgeOf(this.size, level);
    const tileWidth = n < full ? TILE_WIDTH : width;
    const key = tilePath(level, n, tileWidth);
    const pending = this.#tiles.get(key) ?? this.#fetch(key, tileWidth, tilePath(level, n));
    this.#tiles.set(key, pending);
    return pending;
  }

  /** Fetches a tile. The last tile of a level may be partial; if it is gone, the full tile that replaced it is read. */
  async #fetch(key: string, width: number, fullTileKey: string): Promise<Uint8Array> {
    const maxBytes = TILE_WIDTH * HASH_BYTES;
    const bytes =
      (await this.get(key, maxBytes)) ?? (key === fullTileKey ? null : await this.get(fullTileKey, maxBytes));
    if (!bytes) throw new NotGiven(`${key} was not given`);
    if (bytes.length < width * HASH_BYTES) throw new BadObject(`${key} has ${bytes.length} bytes`);
    return bytes;
  }
}

/**
 * Verifies that the newer tree begins with the leaves of the older one. The hashes of subtrees, read from the tiles,
 * must lead to both roots (RFC 9162 section 2.1.4). Only a few tiles of each level are read.
 * @param older of at least one leaf, smaller than the newer
 * @returns null if the newer tree continues the older one; a text with the reason, if tiles were not given
 * @throws BadObject if a root does not follow from the tiles
 */
export async function proveContinuation(older: TreeRoot, newer: TreeRoot, get: Get): Promise<string | null> {
  const tiles = new Tiles(get, newer.size);
  const olderHashes: Uint8Array[] = [];
  const hashRange = async (start: number, end: number): Promise<Uint8Array> => {
    const level = Math.log2(end - start);
    if (Number.isInteger(level) && (end <= older.size || start >= older.size)) {
      const hash = await tiles.node(level, start / (end - start));
      if (end <= older.size) olderHashes.push(hash);
      return hash;
    }
    let width = 1;
    while (width * 2 < end - start) width *= 2;
    const left = await hashRange(start, start + width);
    return nodeHash(left, await hashRange(start + width, end));
  };
  try {
    const root = await hashRange(0, newer.size);
    let olderRoot = olderHashes.pop()!;
    for (const hash of olderHashes.reverse()) olderRoot = await nodeHash(hash, olderRoot);
    if (base64(root) !== newer.root) throw new BadObject("the tiles lead to another root than the checkpoint's");
    if (base64(olderRoot) !== older.root)
      throw new BadObject(`fork: its first ${older.size} leaves are other ones than this browser has proven before`);
    return null;
  } catch (error) {
    if (error instanceof NotGiven) return error.message;
    throw error;
  }
}
