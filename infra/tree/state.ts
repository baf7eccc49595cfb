import { rootOf } from "./hash.ts";
import { TILE_WIDTH } from "./path.ts";
import { type Edge, type FetchObject, fetchEdge, rootOfEdge } from "./tiles.ts";

/** A tile to write: `width` hashes of 32 bytes. */
export interface Tile {
  level: number;
  n: number;
  width: number;
  bytes: Buffer;
}

/**
 * A tree as its writer holds it: size and right edge, a few KiB whatever the size. Immutable: `append` gives the next
 * state, so a writer that loses a race simply forgets it.
 */
export class TreeState {
  private constructor(
    readonly size: number,
    private readonly edge: Edge,
  ) {}

  static readonly empty = new TreeState(0, []);

  /** Read back from tiles and proven against the root. @throws MissingObject, Tampered */
  static async load(size: number, root: Uint8Array, fetch: FetchObject): Promise<TreeState> {
    return new TreeState(size, await fetchEdge(size, root, fetch));
  }

  root(): Buffer {
    return rootOfEdge(this.edge);
  }

  /**
   * The tree with these leaf hashes at its end, and exactly the tiles that a checkpoint of the new size needs and one
   * of the old size did not have: full ones that were completed, and the changed right edge.
   */
  append(leafHashes: readonly Buffer[]): { state: TreeState; tiles: Tile[] } {
    const edge: Buffer[][] = this.edge.map((hashes) => [...hashes]);
    const tiles: Tile[] = [];
    let incoming = leafHashes;
    for (let level = 0; incoming.length > 0; level++) {
      let hashes = edge[level] ?? [];
      const before = Math.floor(this.size / TILE_WIDTH ** (level + 1));
      const completed: Buffer[] = [];
      for (const hash of incoming) {
        hashes.push(hash);
        if (hashes.length < TILE_WIDTH) continue;
        tiles.push({ level, n: before + completed.length, width: TILE_WIDTH, bytes: Buffer.concat(hashes) });
        completed.push(rootOf(hashes));
        hashes = [];
      }
      edge[level] = hashes;
      if (hashes.length) {
        tiles.push({ level, n: before + completed.length, width: hashes.length, bytes: Buffer.concat(hashes) });
      }
      incoming = completed;
    }
    return { state: new TreeState(this.size + leafHashes.length, edge), tiles };
  }
}
