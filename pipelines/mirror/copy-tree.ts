import { ahead, range, UnderWay } from "../../infra/concurrency.ts";
import { SEGMENT_LEAVES, TILE_WIDTH } from "../../infra/tree/path.ts";
import type { TileReader } from "../../infra/tree/tiles.ts";
import { segmentKey } from "../published/objects.ts";
import { packSegment } from "../published/segment.ts";
import type { PartFolder } from "../published/sink.ts";
import { BundleCopier, type Exposed, type Tally } from "./copy.ts";
import { bundleToFetch, type Prefetch, prefetchBehind } from "./prefetch.ts";
import type { SegmentThreads } from "./segment-threads.ts";
import { SegmentCopier } from "./segments.ts";
import type { Walk } from "./walk.ts";

/** Segments under way at once: one more than threads read, and no fewer than so many. Each is some 20 MB packed. */
const SEGMENTS_AHEAD = 3;
/** Of a segment that was begun before, this many missing leaves are worth fetching it whole; fewer come as bundles. */
const WORTH_LEAVES = SEGMENT_LEAVES / 4;

export interface TreeCopy {
  source: Prefetch;
  exposed: Exposed;
  tiles: TileReader;
  tally: Tally;
  parts: PartFolder | null;
  width: number;
  threads: SegmentThreads;
  cardSignatures: boolean;
  onProgress: (done: number, of: number, what: "leaves" | "bundles") => void;
}

/**
 * Every leaf below `head` into the store and through the walk, in order: whole segments, and what is left by entry
 * bundles; where the source has no segment, its bundles. Tiles are made by the walk.
 * @throws Tampered naming segment, bundle or tile; MissingObject, Oversized, SourceDown, what the walk throws
 */
export async function copyTree(copy: TreeCopy, walk: Walk, head: { size: number; root: Buffer }): Promise<void> {
  const { source, exposed, tiles, tally, parts, width, onProgress } = copy;
  const { threads, cardSignatures } = copy;
  const segments = new SegmentCopier(source, exposed, tiles, tally, parts, threads, cardSignatures);
  const packHere = Math.floor(walk.size / SEGMENT_LEAVES);
  const missing = (packHere + 1) * SEGMENT_LEAVES - walk.size;
  const first = missing > WORTH_LEAVES ? packHere : packHere + 1;
  const end = Math.floor(head.size / SEGMENT_LEAVES);
  // What is missing of a segment that nearly was whole: its bundles, before the segments behind it.
  if (first > packHere && end > packHere) await byBundles(copy, walk, first * SEGMENT_LEAVES);
  const unpacked: number[] = [];
  threads.begin(end - first);
  const atOnce = Math.min(width, Math.max(SEGMENTS_AHEAD, threads.width + 1));
  if (end > first) void prefetchBehind(source, end * SEGMENT_LEAVES, head.size);
  const fetched = ahead(atOnce, range(first, end), async (n) => ({ n, segment: await segments.fetch(n) }));
  // Segments that the walk has taken are written a few at once, since their cards take longest.
  const exposing = new UnderWay(atOnce);
  try {
    for await (const { n, segment } of fetched) {
      if (segment) {
        const taken = await walk.segment(n, segment.root, segment.proof);
        await exposing.add(() => segments.expose(segment, taken, walk));
      } else {
        unpacked.push(n);
        await byBundles(copy, walk, (n + 1) * SEGMENT_LEAVES);
      }
      onProgress(walk.size, head.size, "leaves");
    }
  } finally {
    await exposing.settled();
  }
  await exposing.drained();
  await byBundles(copy, walk, head.size);
  await walk.end(head);
  if (first > packHere && end > packHere) unpacked.push(packHere);
  await packSegments(exposed, unpacked);
}

/** Segments that came as bundles, made from these. One that is there may be torn, as an earlier run left it. */
async function packSegments(exposed: Exposed, numbers: readonly number[]): Promise<void> {
  for (const n of numbers) await exposed.put(segmentKey(n), await packSegment(exposed.store, n));
}

/** The next leaves up to `size`, bundles fetched and proven ahead of the walk. */
async function byBundles({ source, exposed, tiles, tally, width, onProgress }: TreeCopy, walk: Walk, size: number) {
  const copier = new BundleCopier(source, exposed, tiles, tally);
  const [first, end] = [Math.floor(walk.size / TILE_WIDTH), Math.ceil(size / TILE_WIDTH)];
  let done = 0;
  const numbers = source.announced(range(first, end), bundleToFetch(tiles.size));
  for await (const bundle of ahead(width, numbers, (n) => copier.copy(n))) {
    await walk.bundle(bundle);
    onProgress(++done, end - first, "bundles");
  }
}
