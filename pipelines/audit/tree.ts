import { createHash } from "node:crypto";
import { BadBundle, unpackBundle } from "../../infra/tree/bundle.ts";
import { leafHash, sameHash } from "../../infra/tree/hash.ts";
import { entriesPath, SEGMENT_LEAVES, TILE_WIDTH, tilePath } from "../../infra/tree/path.ts";
import { type Tile, TreeState } from "../../infra/tree/state.ts";
import { type FetchObject, fetchTile, MissingObject, Tampered } from "../../infra/tree/tiles.ts";
import { segmentKey } from "../4-publish/objects.ts";
import { RecordReader } from "../4-publish/read.ts";
import { MAX } from "../mirror/limits.ts";
import type { Source } from "../mirror/source.ts";
import { BadFrame, streamFrame } from "../mirror/unpack.ts";
import { Check, type Finding, problemOf } from "./findings.ts";
import { fetchFrom } from "./leaves.ts";

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
 * Every object that the checkpoint needs: the tree is made again from all entries, its root has to be the checkpoint's,
 * and every tile and segment has to be what comes out. Memory is one bundle and the right edge of the tree.
 * @param onEntries told of every bundle, in order
 */
export async function auditTree(
  source: Source,
  head: { size: number; root: Buffer },
  onEntries: (entries: readonly Buffer[]) => void,
): Promise<Finding[]> {
  const [bundles, tiles, segments] = [new Check("entry bundles"), new Check("tiles"), new Check("segments")];
  const found = () => [bundles.finding, tiles.finding, segments.finding];
  try {
    const root = await rebuild(source, head.size, { bundles, tiles, segments }, onEntries);
    if (sameHash(root, head.root)) return found();
    // Some entry is not what was signed. The tiles say which, as far as they hold themselves.
    const reader = await RecordReader.over(fetchFrom(source), head);
    for (let n = 0; n * TILE_WIDTH < head.size; n++) await reader.entries(n);
    throw new Tampered("checkpoint", head.root.toString("hex"), root.toString("hex"));
  } catch (error) {
    const problem = problemOf(error);
    if (!problem) throw error;
    bundles.bad(problem);
  }
  return found();
}

type Checks = Record<"bundles" | "tiles" | "segments", Check>;

/** @returns the root over all entries; what tiles and segments differ in is in their checks */
async function rebuild(
  source: Source,
  size: number,
  { bundles, tiles, segments }: Checks,
  onEntries: (entries: readonly Buffer[]) => void,
): Promise<Buffer> {
  const fetch = fetchFrom(source);
  const segment = new SegmentHash();
  const edge = new Map<number, Tile>();
  let tree = TreeState.empty;
  const sameTile = (tile: Tile) => tiles.look(() => refuseOtherTile(tile, fetch));
  for (let n = 0; n * TILE_WIDTH < size; n++) {
    const entries = await entriesOf(fetch, n, Math.min(TILE_WIDTH, size - n * TILE_WIDTH));
    bundles.ok();
    onEntries(entries);
    segment.add(entries);
    const grown = tree.append(entries.map(leafHash));
    tree = grown.state;
    for (const tile of grown.tiles) {
      if (tile.width < TILE_WIDTH) edge.set(tile.level, tile);
      else if (edge.get(tile.level)?.n === tile.n) edge.delete(tile.level);
      if (tile.width === TILE_WIDTH) await sameTile(tile);
    }
    if (tree.size % SEGMENT_LEAVES === 0) {
      const want = segment.end();
      await segments.look(() => sameSegment(source, tree.size / SEGMENT_LEAVES - 1, want));
    }
  }
  for (const tile of edge.values()) await sameTile(tile);
  return tree.root();
}

async function refuseOtherTile({ level, n, width, bytes }: Tile, fetch: FetchObject): Promise<void> {
  const theirs = Buffer.concat((await fetchTile(level, n, width, fetch)).slice(0, width));
  if (!theirs.equals(bytes)) throw new Tampered(tilePath(level, n, width), hashOf(bytes), hashOf(theirs));
}

/** Entries of a bundle as they are stored. A partial one may have gone once the full one is there. */
async function entriesOf(fetch: FetchObject, n: number, width: number): Promise<Buffer[]> {
  const key = entriesPath(n, width);
  const own = await fetch(key);
  const packed = own ?? (width < TILE_WIDTH ? await fetch(entriesPath(n)) : null);
  if (!packed) throw new MissingObject(key);
  try {
    return (await unpackBundle(packed, own ? width : TILE_WIDTH)).slice(0, width);
  } catch (error) {
    if (error instanceof BadBundle) throw new Tampered(key, `${width} entries`, error.message);
    throw error;
  }
}

const hashOf = (bytes: Buffer): string => `sha256 ${createHash("sha256").update(bytes).digest("hex")}`;

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
