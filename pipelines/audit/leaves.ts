import { SEGMENT_LEAVES } from "../../infra/tree/path.ts";
import { type FetchObject, Tampered, TileReader } from "../../infra/tree/tiles.ts";
import { segmentKey } from "../4-publish/objects.ts";
import { type ReadLeaf, RecordReader } from "../4-publish/read.ts";
import { MAX } from "../mirror/limits.ts";
import { segmentBundles, segmentHashes } from "../mirror/segment-lines.ts";
import type { Source } from "../mirror/source.ts";
import type { Leaf } from "../record/leaf.ts";

/** Tiles and entry bundles of a source by path, bounded, for the tree's readers. */
export const fetchFrom =
  (source: Source): FetchObject =>
  (path) =>
    source.get(path, path.startsWith("tile/entries/") ? MAX.bundle : MAX.tile);

/**
 * Every leaf below a checkpoint in order, each proven under its root before it is given out: from segments where they
 * are, else from entry bundles. One segment or bundle in memory at a time.
 * @throws MissingObject, Tampered, Oversized, SourceDown
 */
export async function* provenLeaves(source: Source, head: { size: number; root: Buffer }): AsyncGenerator<ReadLeaf> {
  const fetch = fetchFrom(source);
  const reader = await RecordReader.over(fetch, head);
  const tiles = await TileReader.open(head.size, head.root, fetch);
  let at = 0;
  for (; at + SEGMENT_LEAVES <= head.size; at += SEGMENT_LEAVES) {
    const entries = await segmentOf(source, tiles, at / SEGMENT_LEAVES);
    if (!entries) break;
    for (const [i, bytes] of entries.entries())
      yield { index: at + i, bytes, leaf: JSON.parse(bytes.toString()) as Leaf };
  }
  yield* reader.leaves(at);
}

/** Lines of segment n, or null where there is none. @throws Tampered */
async function segmentOf(source: Source, tiles: TileReader, n: number): Promise<Buffer[] | null> {
  const key = segmentKey(n);
  const packed = await source.get(key, MAX.named);
  if (!packed) return null;
  const want = await tiles.rootOfTile(1, n);
  const proof = await segmentHashes(packed, want);
  if (!proof.ok) throw new Tampered(key, want.toString("hex"), proof.got);
  const entries: Buffer[] = [];
  for await (const bundle of segmentBundles(packed)) entries.push(...bundle);
  return entries;
}
