import { forEachConcurrent, mapConcurrent, range } from "../../infra/concurrency.ts";
import { packBundle } from "../../infra/tree/bundle.ts";
import { entriesPath, SEGMENT_LEAVES, TILE_WIDTH } from "../../infra/tree/path.ts";
import { Tampered, type TileReader } from "../../infra/tree/tiles.ts";
import { type ProvenSegment, packSegment, proveSegment } from "../published/leaves.ts";
import { MAX_BYTES } from "../published/limits.ts";
import { segmentKey } from "../published/objects.ts";
import { MemorySink, type PartFile, type PartFolder } from "../published/sink.ts";
import { fetchInto, type Source } from "../published/source.ts";
import { BundleCopier, type CopyCounts, type ExposedStore } from "./copy.ts";
import type { LeafWalk } from "./walk.ts";

/**
 * Number of segments (files of 65,536 leaves) that are fetched and proven ahead of the walk, which reads the leaves in
 * order. Each takes some 100 MB unpacked.
 */
const SEGMENTS_AHEAD = 2;
/**
 * A segment of which some leaves were copied before is fetched whole if more than this many leaves are missing.
 * Otherwise the missing leaves are fetched as bundles (files of 256 leaves).
 */
const MIN_MISSING_LEAVES = SEGMENT_LEAVES / 4;

export interface TreeCopy {
  source: Source;
  exposed: ExposedStore;
  tiles: TileReader;
  counts: CopyCounts;
  /** Folder for incomplete segments, which a later run continues. */
  parts: PartFolder | null;
  /** Number of bundles that are fetched at once. */
  width: number;
  onProgress: (done: number, of: number, what: "leaves" | "bundles") => void;
}

/**
 * Copies the leaves below `head` that the walk has not read yet into the store, and passes them to the walk in order.
 * Leaves are fetched as segments; those after the last full segment, and those of segments that the source does not
 * have, as entry bundles. The walk makes and writes the tiles.
 * @throws Tampered naming segment, bundle or tile; MissingObject, Oversized, SourceDown, what the walk throws
 */
export async function copyTree(copy: TreeCopy, walk: LeafWalk, head: { size: number; root: Buffer }): Promise<void> {
  const { source, exposed, tiles, counts, parts, onProgress } = copy;
  const segments = new SegmentCopier(source, exposed, tiles, counts, parts);
  const firstSegment = Math.floor(walk.size / SEGMENT_LEAVES);
  const missingLeaves = (firstSegment + 1) * SEGMENT_LEAVES - walk.size;
  const firstWholeSegment = missingLeaves > MIN_MISSING_LEAVES ? firstSegment : firstSegment + 1;
  const endSegment = Math.floor(head.size / SEGMENT_LEAVES);
  // If an earlier run copied most of a segment, its missing bundles are copied before the segments after it.
  const fillsFirstSegment = firstWholeSegment > firstSegment && endSegment > firstSegment;
  if (fillsFirstSegment) await copyBundles(copy, walk, firstWholeSegment * SEGMENT_LEAVES);
  const segmentsToPack: number[] = [];
  const fetched = mapConcurrent(SEGMENTS_AHEAD, range(firstWholeSegment, endSegment), async (n) => ({
    n,
    segment: await segments.fetch(n),
  }));
  for await (const { n, segment } of fetched) {
    if (segment) {
      const alreadyRead = walk.size - n * SEGMENT_LEAVES;
      await walk.addLeaves(segment.entries.slice(alreadyRead), segment.hashes.slice(alreadyRead));
      await segments.expose(segment);
    } else {
      segmentsToPack.push(n);
      await copyBundles(copy, walk, (n + 1) * SEGMENT_LEAVES);
    }
    onProgress(walk.size, head.size, "leaves");
  }
  await copyBundles(copy, walk, head.size);
  await walk.end(head);
  if (fillsFirstSegment) segmentsToPack.push(firstSegment);
  await packSegments(exposed, segmentsToPack);
}

/**
 * Packs the segments whose leaves were fetched as bundles. A segment that exists already is replaced, since an
 * earlier run may have been killed while writing it.
 */
async function packSegments(exposed: ExposedStore, numbers: readonly number[]): Promise<void> {
  for (const n of numbers) await exposed.put(segmentKey(n), await packSegment(exposed.store, n));
}

/**
 * Fetches the next leaves up to position `size` as bundles. Up to `width` bundles are fetched and proven ahead of the
 * walk.
 */
async function copyBundles(
  { source, exposed, tiles, counts, width, onProgress }: TreeCopy,
  walk: LeafWalk,
  size: number,
) {
  const copier = new BundleCopier(source, exposed, tiles, counts);
  const [first, end] = [Math.floor(walk.size / TILE_WIDTH), Math.ceil(size / TILE_WIDTH)];
  let bundlesDone = 0;
  for await (const bundle of mapConcurrent(width, range(first, end), (n) => copier.copy(n))) {
    await walk.addBundle(bundle);
    onProgress(++bundlesDone, end - first, "bundles");
  }
}

/** A segment whose leaves were proven to be in the tree, and its compressed bytes. */
interface Segment extends ProvenSegment {
  n: number;
  packed: Uint8Array;
}

/** Number of bundles that are written to the store at once. */
const WRITES_AT_ONCE = 8;

/**
 * Copies segments. One request fetches a segment of 65,536 leaves (a bundle has 256), and one hash of tile level 2
 * proves it.
 */
class SegmentCopier {
  constructor(
    private readonly source: Source,
    private readonly exposed: ExposedStore,
    private readonly tiles: TileReader,
    private readonly counts: CopyCounts,
    private readonly partFolder: PartFolder | null,
  ) {}

  /**
   * Returns segment n, proven, from an earlier run or from the source; null when the source does not have it.
   * @throws Tampered naming the segment, Oversized, SourceDown
   */
  async fetch(n: number): Promise<Segment | null> {
    const key = segmentKey(n);
    const storedBytes = await this.exposed.readStored(key);
    const storedSegment = storedBytes && (await this.#proveSegment(n, storedBytes));
    if (storedSegment && !(storedSegment instanceof Tampered)) {
      this.counts.adopted++;
      return storedSegment;
    }
    const partFile = await this.partFolder?.open(key);
    for (let isContinued = (partFile?.receivedBytes ?? 0) > 0; ; isContinued = false) {
      const packed = await this.#fetchPacked(key, partFile);
      if (!packed) return null;
      const provenSegment = await this.#proveSegment(n, packed);
      if (!(provenSegment instanceof Tampered)) {
        this.counts.fetched++;
        return provenSegment;
      }
      await partFile?.remove();
      // The part from an earlier run may have been damaged by our own disk, so the whole segment is fetched once more.
      if (!isContinued) throw provenSegment;
    }
  }

  /** Writes the entry bundles of a segment that the walk has read, then the segment. @throws what the store throws */
  async expose({ n, packed, entries }: Segment): Promise<void> {
    await forEachConcurrent(range(0, TILE_WIDTH), WRITES_AT_ONCE, async (i) => {
      const bundle = await packBundle(entries.slice(i * TILE_WIDTH, (i + 1) * TILE_WIDTH));
      await this.exposed.put(entriesPath(n * TILE_WIDTH + i), bundle);
    });
    await this.exposed.put(segmentKey(n), packed);
    await (await this.partFolder?.open(segmentKey(n)))?.remove();
  }

  async #proveSegment(n: number, packed: Uint8Array): Promise<Segment | Tampered> {
    try {
      return { n, packed, ...(await proveSegment(packed, this.tiles, n)) };
    } catch (error) {
      if (error instanceof Tampered && error.key === segmentKey(n)) return error;
      throw error;
    }
  }

  async #fetchPacked(key: string, part: PartFile | undefined): Promise<Uint8Array | null> {
    const sink = part ?? new MemorySink();
    return (await fetchInto(this.source, key, MAX_BYTES.named, sink)) ? sink.bytes() : null;
  }
}
