import { createHash } from "node:crypto";
import { leafHash, sameHash } from "../../infra/tree/hash.ts";
import { entriesPath, SEGMENT_LEAVES, TILE_WIDTH, tilePath } from "../../infra/tree/path.ts";
import { type Tile, TreeState } from "../../infra/tree/state.ts";
import { fetchTile, MissingObject, Tampered } from "../../infra/tree/tiles.ts";
import { segmentKey } from "../4-publish/objects.ts";
import { RecordReader } from "../4-publish/read.ts";
import { MAX } from "../mirror/limits.ts";
import type { Source } from "../mirror/source.ts";
import { BadFrame, streamFrame } from "../mirror/unpack.ts";
import { Check, type Finding, problemOf } from "./findings.ts";

const fetchFrom = (source: Source) => (path: string) =>
  source.get(path, path.startsWith("tile/entries/") ? MAX.bundle : MAX.tile);

const LF = Buffer.from("\n");

/** sha256 and length of the feed lines of the segment that is being read. */
class SegmentHash {
  #hash = createHash("sha256");
  bytes = 0;

  add(entries: readonly Buffer[]): void {
    for (const entry of entries) {
      this.#hash.update(entry).update(LF);
      this.bytes += entry.length + 1;
    }
  }

  /** The digest so far; a new segment begins. */
  end(): { sha256: string; bytes: number } {
    const ended = { sha256: this.#hash.digest("hex"), bytes: this.bytes };
    this.#hash = createHash("sha256");
    this.bytes = 0;
    return ended;
  }
}

/**
 * Every object that the checkpoint needs: entry bundles are proven under its root, the tree is made again from their
 * entries, and every tile and segment has to be what comes out. Memory is one bundle and the right edge of the tree.
 * @param onEntries told of every proven bundle, in order
 */
export async function auditTree(
  source: Source,
  head: { size: number; root: Buffer },
  onEntries: (entries: readonly Buffer[]) => void,
): Promise<Finding[]> {
  const [bundles, tiles, segments] = [new Check("entry bundles"), new Check("tiles"), new Check("segments")];
  const fetch = fetchFrom(source);
  let tree = TreeState.empty;
  const edge = new Map<number, Tile>();
  const segment = new SegmentHash();
  const sameTile = ({ level, n, width, bytes }: Tile) =>
    tiles.look(async () => {
      const path = tilePath(level, n, width);
      const theirs = Buffer.concat((await fetchTile(level, n, width, fetch)).slice(0, width));
      if (!theirs.equals(bytes)) throw new Tampered(path, hashOf(bytes), hashOf(theirs));
    });
  try {
    const reader = await RecordReader.over(fetch, head);
    for (let n = 0; n * TILE_WIDTH < head.size; n++) {
      const entries = await reader.entries(n).catch((error: unknown) => {
        throw named(error, entriesPath(n, Math.min(TILE_WIDTH, head.size - n * TILE_WIDTH)));
      });
      bundles.ok();
      onEntries(entries);
      segment.add(entries);
      const grown = tree.append(entries.map(leafHash));
      tree = grown.state;
      for (const tile of grown.tiles) {
        if (tile.width === TILE_WIDTH) await sameTile(tile);
        if (tile.width < TILE_WIDTH) edge.set(tile.level, tile);
        else if (edge.get(tile.level)?.n === tile.n) edge.delete(tile.level);
      }
      if (tree.size % SEGMENT_LEAVES === 0)
        await segments.look(() => sameSegment(source, tree.size / SEGMENT_LEAVES - 1, segment.end()));
    }
    for (const tile of edge.values()) await sameTile(tile);
    if (!sameHash(tree.root(), head.root))
      throw new Tampered("checkpoint", head.root.toString("hex"), tree.root().toString("hex"));
  } catch (error) {
    const problem = problemOf(error);
    if (!problem) throw error;
    bundles.bad(problem);
  }
  return [bundles.finding, tiles.finding, segments.finding];
}

const hashOf = (bytes: Buffer): string => `sha256 ${createHash("sha256").update(bytes).digest("hex")}`;

/** The same error with the object's name, where its thrower did not know it. */
function named(error: unknown, key: string): unknown {
  if ((error as Error).name === "BadBundle") (error as { key?: string }).key ??= key;
  return error;
}

async function sameSegment(source: Source, n: number, want: { sha256: string; bytes: number }): Promise<void> {
  const key = segmentKey(n);
  const packed = await source.get(key, MAX.named);
  if (!packed) throw new MissingObject(key);
  const hash = createHash("sha256");
  let got: string;
  try {
    await streamFrame(packed, want.bytes, (chunk) => void hash.update(chunk));
    got = hash.digest("hex");
  } catch (error) {
    if (!(error instanceof BadFrame)) throw error;
    got = error.message;
  }
  if (got !== want.sha256) throw new Tampered(key, want.sha256, got);
}
