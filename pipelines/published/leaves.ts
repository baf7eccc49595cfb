import type { Store } from "../../infra/store/store.ts";
import { unpackBundle } from "../../infra/tree/bundle.ts";
import { computeRoot, leafHash, sameHash } from "../../infra/tree/hash.ts";
import { entriesPath, SEGMENT_LEAVES, TILE_WIDTH } from "../../infra/tree/path.ts";
import { MissingObject, Tampered, type TileReader } from "../../infra/tree/tiles.ts";
import { BadFrame, streamFrame, ZstdPacking } from "../../infra/zstd.ts";
import { MAX_LEAF_BYTES } from "../record/leaf.ts";
import { parseEntry } from "./errors.ts";
import { MAX_BYTES } from "./limits.ts";
import { LineSplitter } from "./lines.ts";
import { segmentKey } from "./objects.ts";
import { type ReadLeaf, RecordReader } from "./reader.ts";
import { createSourceFetch, type Source } from "./source.ts";

/**
 * Yields every leaf below a checkpoint in order, each proven against its root. Leaves are read from segments (65,536
 * leaves in one file) where the source has them, else from entry bundles. One segment or bundle is in memory at a time.
 * @throws MissingObject, Tampered, Oversized, SourceDown; Unproven for a leaf that is not JSON with its index
 */
export async function* readProvenLeaves(
  source: Source,
  head: { size: number; root: Buffer },
): AsyncGenerator<ReadLeaf> {
  const reader = await RecordReader.openWithFetch(createSourceFetch(source), head);
  let nextLeaf = 0;
  for (; nextLeaf + SEGMENT_LEAVES <= head.size; nextLeaf += SEGMENT_LEAVES) {
    const entries = await fetchSegmentEntries(source, reader.tiles, nextLeaf / SEGMENT_LEAVES);
    if (!entries) break;
    for (const [i, bytes] of entries.entries())
      yield { index: nextLeaf + i, bytes, leaf: parseEntry(nextLeaf + i, bytes) };
  }
  yield* reader.leaves(nextLeaf);
}

/** Fetches and proves the leaves of segment n; null when the source does not have it. @throws Tampered */
async function fetchSegmentEntries(source: Source, tiles: TileReader, n: number): Promise<Buffer[] | null> {
  const packed = await source.get(segmentKey(n), MAX_BYTES.named);
  return packed && (await proveSegment(packed, tiles, n)).entries;
}

/** Leaves of a segment, and their hashes. */
export interface ProvenSegment {
  entries: Buffer[];
  hashes: Buffer[];
}

/**
 * Unpacks segment n and compares its root with the hash in tile level 2 of the tree. The frame is unpacked twice: first
 * only to hash its lines, and, if the root is right, again to keep them. So a forged segment costs time but no memory,
 * although a frame of some kilobytes can unpack to 4 GiB.
 * @throws Tampered, which names the segment
 */
export async function proveSegment(packed: Uint8Array, tiles: TileReader, n: number): Promise<ProvenSegment> {
  const key = segmentKey(n);
  const expectedRoot = await tiles.rootOfTile(1, n);
  const hashes: Buffer[] = [];
  try {
    await readSegmentLines(packed, (line) => hashes.push(leafHash(line)));
  } catch (error) {
    if (error instanceof BadFrame) throw new Tampered(key, expectedRoot.toString("hex"), error.message);
    throw error;
  }
  const root = computeRoot(hashes);
  if (!sameHash(root, expectedRoot)) throw new Tampered(key, expectedRoot.toString("hex"), root.toString("hex"));
  const entries: Buffer[] = [];
  await readSegmentLines(packed, (line) => entries.push(Buffer.from(line)));
  return { entries, hashes };
}

/** Number of unpacked bytes of a segment whose 65,536 leaves all have the greatest length. */
const MAX_SEGMENT_BYTES = SEGMENT_LEAVES * (MAX_LEAF_BYTES + 1);

/**
 * Reads the 65,536 lines of a packed segment, in bounded memory.
 * @param onLine called with each line, without its newline; must not keep the buffer, which is reused
 * @throws BadFrame at the first line that is too long, or for another number of lines
 */
async function readSegmentLines(packed: Uint8Array, onLine: (line: Buffer) => void): Promise<void> {
  const lines = new LineSplitter(MAX_LEAF_BYTES, onLine);
  await streamFrame(packed, MAX_SEGMENT_BYTES, (chunk) => {
    lines.add(chunk);
    if (lines.longest > MAX_LEAF_BYTES) throw new BadFrame(`a line of more than ${MAX_LEAF_BYTES} bytes`);
    if (lines.count > SEGMENT_LEAVES) throw new BadFrame(`more than ${SEGMENT_LEAVES} lines`);
  });
  if (!lines.isWhole) throw new BadFrame("it ends within a line");
  if (lines.count !== SEGMENT_LEAVES) throw new BadFrame(`${lines.count} lines`);
}

const LF = Buffer.from("\n");

/** Joins entries to lines, each followed by a newline, as in a segment. */
export const toFeedLines = (entries: readonly Buffer[]): Buffer =>
  Buffer.concat(entries.flatMap((entry) => [entry, LF]));

/**
 * Makes segment n from its entry bundles: the 65,536 entries below full tile n of level 1 as lines, in one zstd frame.
 * An auditor makes these bytes again and compares them with the published ones.
 * @throws MissingObject
 */
export async function packSegment(publicStore: Store, n: number): Promise<Buffer> {
  const packing = new ZstdPacking();
  for (let bundle = n * TILE_WIDTH; bundle < (n + 1) * TILE_WIDTH; bundle++) {
    const object = await publicStore.get(entriesPath(bundle));
    if (!object) throw new MissingObject(entriesPath(bundle));
    await packing.add(toFeedLines(await unpackBundle(object.bytes, TILE_WIDTH)));
  }
  return (await packing.end()).packed;
}
