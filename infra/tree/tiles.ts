import { BoundedMap } from "../bounded-map.ts";
import { Failure } from "../errors.ts";
import { computeRoot, HASH_BYTES, nodeHash, sameHash } from "./hash.ts";
import { edgeOf, levelsOf, TILE_WIDTH, tilePath } from "./path.ts";
import type { NodeReader } from "./proof.ts";

/** Fetches an object of the log by its path; null when there is none. */
export type FetchObject = (path: string) => Promise<Uint8Array | null>;

/** Thrown when the log lacks an object that it must have according to its checkpoint. */
export class MissingObject extends Failure {
  constructor(readonly key: string) {
    super("failed", `missing: ${key}`, { retriable: true });
  }
}

/** Thrown for an object whose bytes do not match the hashes under the checkpoint. */
export class Tampered extends Failure {
  constructor(
    readonly key: string,
    readonly expected: string,
    readonly got: string,
  ) {
    super("tampered", `${key} is not what the checkpoint commits to: expected ${expected}, got ${got}`);
  }
}

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex");

/** Fetches a tile of `width` hashes. If a partial tile was deleted, the full one is used (C2SP tlog-tiles allows that). */
export async function fetchTile(level: number, n: number, width: number, fetch: FetchObject): Promise<Buffer[]> {
  const path = tilePath(level, n, width);
  const bytes = (await fetch(path)) ?? (width < TILE_WIDTH ? await fetch(tilePath(level, n)) : null);
  if (!bytes) throw new MissingObject(path);
  if (bytes.length !== width * HASH_BYTES && bytes.length !== TILE_WIDTH * HASH_BYTES) {
    throw new Tampered(path, `${width * HASH_BYTES} bytes`, `${bytes.length} bytes`);
  }
  const hashes: Buffer[] = [];
  for (let i = 0; i < width; i++) hashes.push(Buffer.from(bytes.subarray(i * HASH_BYTES, (i + 1) * HASH_BYTES)));
  return hashes;
}

/** The right edge of a tree: for each tile level, from level 0 on, the hashes after the last full tile. */
type Edge = readonly (readonly Buffer[])[];

/**
 * Computes the root of the tree with this right edge. The edge's hashes are roots of complete subtrees, the largest on
 * the left.
 */
function rootOfEdge(edge: Edge): Buffer {
  let root: Buffer | null = null;
  for (const hashes of edge) {
    let end = hashes.length;
    for (let width = 1; width < TILE_WIDTH; width *= 2) {
      if ((hashes.length & width) === 0) continue;
      const block = computeRoot(hashes, end - width, end);
      root = root ? nodeHash(block, root) : block;
      end -= width;
    }
  }
  return root ?? computeRoot([]);
}

/** Reads the right edge of the tree of `size` leaves and proves it against the root. @throws MissingObject, Tampered */
async function fetchEdge(size: number, root: Uint8Array, fetch: FetchObject): Promise<Edge> {
  const levels = Array.from({ length: levelsOf(size) }, (_, level) => edgeOf(size, level));
  const edge = await Promise.all(
    levels.map(({ full, width }, level) => (width ? fetchTile(level, full, width, fetch) : [])),
  );
  const got = rootOfEdge(edge);
  if (!sameHash(got, root)) throw new Tampered(`right edge of ${size} leaves`, hex(root), hex(got));
  return edge;
}

/** Number of full tiles that a reader keeps, 8 KiB each: enough to walk the tree in order. */
const MAX_CACHED_TILES = 64;

/**
 * Reads hashes of a tree and proves each before it returns it: the right edge against the checkpoint's root, a full
 * tile against its hash in the tile above.
 */
export class TileReader {
  #tiles = new BoundedMap<string, Promise<Buffer[]>>(MAX_CACHED_TILES);

  private constructor(
    readonly size: number,
    private readonly edge: Edge,
    private readonly fetch: FetchObject,
  ) {}

  /** @throws MissingObject; Tampered when the right edge does not lead to this root */
  static async open(size: number, root: Uint8Array, fetch: FetchObject): Promise<TileReader> {
    return new TileReader(size, await fetchEdge(size, root, fetch), fetch);
  }

  /** Returns the proven hashes of tile n on a level: 256, or fewer at the right edge. */
  tile(level: number, n: number): Promise<readonly Buffer[]> {
    const { full } = edgeOf(this.size, level);
    if (n > full || n < 0) throw new RangeError(`no tile ${n} on level ${level} of a tree of ${this.size}`);
    if (n === full) return Promise.resolve(this.edge[level] ?? []);
    const key = tilePath(level, n);
    let cached = this.#tiles.get(key);
    if (!cached) {
      cached = this.#fetchProven(level, n);
      this.#tiles.set(key, cached);
      cached.catch(() => this.#tiles.delete(key));
    }
    return cached;
  }

  /** Returns the proven root of full tile n, which is its hash in the tile above. */
  async rootOfTile(level: number, n: number): Promise<Buffer> {
    const above = await this.tile(level + 1, Math.floor(n / TILE_WIDTH));
    return above[n % TILE_WIDTH]!;
  }

  async #fetchProven(level: number, n: number): Promise<Buffer[]> {
    const expected = await this.rootOfTile(level, n);
    const hashes = await fetchTile(level, n, TILE_WIDTH, this.fetch);
    const got = computeRoot(hashes);
    if (!sameHash(got, expected)) throw new Tampered(tilePath(level, n), hex(expected), hex(got));
    return hashes;
  }

  /** Returns the proven hash of a complete subtree, for creating proofs. */
  readonly node: NodeReader = async (level, index) => {
    const span = 2 ** (level % 8);
    const first = index * span;
    const tileLevel = Math.floor(level / 8);
    const hashes = await this.tile(tileLevel, Math.floor(first / TILE_WIDTH));
    const offset = first % TILE_WIDTH;
    if (offset + span > hashes.length) throw new RangeError(`no complete subtree ${index} of height ${level}`);
    return computeRoot(hashes, offset, offset + span);
  };
}

/** Tile `n` (from 0) of a level, to be written: `width` hashes of 32 bytes. */
export interface Tile {
  level: number;
  n: number;
  width: number;
  bytes: Buffer;
}

/**
 * State of a tree for its writer: size and right edge, a few KiB for a tree of any size. The state is immutable:
 * `append` returns the next state, which a writer discards when another writer published first.
 */
export class TreeState {
  private constructor(
    readonly size: number,
    private readonly edge: Edge,
  ) {}

  static readonly empty = new TreeState(0, []);

  /** Loads the state from tiles and proves it against the root. @throws MissingObject, Tampered */
  static async load(size: number, root: Uint8Array, fetch: FetchObject): Promise<TreeState> {
    return new TreeState(size, await fetchEdge(size, root, fetch));
  }

  root(): Buffer {
    return rootOfEdge(this.edge);
  }

  /**
   * Appends leaf hashes.
   * @returns the new state, and the tiles to write: full tiles that were completed, and the partial tiles of the
   * changed right edge
   */
  append(leafHashes: readonly Buffer[]): { state: TreeState; tiles: Tile[] } {
    const edge: Buffer[][] = this.edge.map((hashes) => [...hashes]);
    const tiles: Tile[] = [];
    let incoming = leafHashes;
    for (let level = 0; incoming.length > 0; level++) {
      let hashes = edge[level] ?? [];
      const fullTilesBefore = Math.floor(this.size / TILE_WIDTH ** (level + 1));
      const completed: Buffer[] = [];
      for (const hash of incoming) {
        hashes.push(hash);
        if (hashes.length < TILE_WIDTH) continue;
        tiles.push({ level, n: fullTilesBefore + completed.length, width: TILE_WIDTH, bytes: Buffer.concat(hashes) });
        completed.push(computeRoot(hashes));
        hashes = [];
      }
      edge[level] = hashes;
      if (hashes.length) {
        tiles.push({
          level,
          n: fullTilesBefore + completed.length,
          width: hashes.length,
          bytes: Buffer.concat(hashes),
        });
      }
      incoming = completed;
    }
    return { state: new TreeState(this.size + leafHashes.length, edge), tiles };
  }
}
