import type { Store } from "../../infra/store/store.ts";
import { unpackBundle } from "../../infra/tree/bundle.ts";
import { computeRoot, leafHash, sameHash } from "../../infra/tree/hash.ts";
import { entriesPath, SEGMENT_LEAVES, TILE_WIDTH } from "../../infra/tree/path.ts";
import { MissingObject, Tampered, type TileReader } from "../../infra/tree/tiles.ts";
import { BadFrame, streamFrame, ZstdPacking } from "../../infra/zstd.ts";
import { type Leaf, MAX_LEAF_BYTES } from "../record/leaf.ts";
import { MAX } from "./limits.ts";
import { Lines } from "./lines.ts";
import { segmentKey } from "./objects.ts";
import { type ReadLeaf, RecordReader } from "./reader.ts";
import { objectsOf, type Source } from "./source.ts";

/**
 * Every leaf below a checkpoint in order, each proven under its root before it is given out: from segments where they
 * are, else from entry bundles. One segment or bundle in memory at a time.
 * @throws MissingObject, Tampered, Oversized, SourceDown
 */
export async function* provenLeaves(source: Source, head: { size: number; root: Buffer }): AsyncGenerator<ReadLeaf> {
  const reader = await RecordReader.over(objectsOf(source), head);
  let at = 0;
  for (; at + SEGMENT_LEAVES <= head.size; at += SEGMENT_LEAVES) {
    const entries = await segmentOf(source, reader.tiles, at / SEGMENT_LEAVES);
    if (!entries) break;
    for (const [i, bytes] of entries.entries())
      yield { index: at + i, bytes, leaf: JSON.parse(bytes.toString()) as Leaf };
  }
  yield* reader.leaves(at);
}

/** Leaves of segment n, or null where there is none. @throws Tampered */
async function segmentOf(source: Source, tiles: TileReader, n: number): Promise<Buffer[] | null> {
  const packed = await source.get(segmentKey(n), MAX.named);
  return packed && (await provenSegment(packed, tiles, n)).entries;
}

/** Leaves of a segment, and their hashes. */
export interface ProvenSegment {
  entries: Buffer[];
  hashes: Buffer[];
}

/** What segment n holds, held against its hash in level 2 of the tree. @throws Tampered naming it */
export async function provenSegment(packed: Uint8Array, tiles: TileReader, n: number): Promise<ProvenSegment> {
  const key = segmentKey(n);
  const want = await tiles.rootOfTile(1, n);
  let entries: Buffer[];
  try {
    entries = await segmentLines(packed);
  } catch (error) {
    if (error instanceof BadFrame) throw new Tampered(key, want.toString("hex"), error.message);
    throw error;
  }
  const hashes = entries.map(leafHash);
  const got = computeRoot(hashes);
  if (!sameHash(got, want)) throw new Tampered(key, want.toString("hex"), got.toString("hex"));
  return { entries, hashes };
}

/** All that 65,536 leaves of full length have. */
const MAX_SEGMENT_BYTES = SEGMENT_LEAVES * (MAX_LEAF_BYTES + 1);

/** 65,536 lines that are no longer than a leaf. @throws BadFrame as soon as it is none of that */
async function segmentLines(packed: Uint8Array): Promise<Buffer[]> {
  const entries: Buffer[] = [];
  const lines = new Lines(MAX_LEAF_BYTES, (line) => entries.push(Buffer.from(line)));
  await streamFrame(packed, MAX_SEGMENT_BYTES, (chunk) => {
    lines.add(chunk);
    if (lines.longest > MAX_LEAF_BYTES) throw new BadFrame(`a line of more than ${MAX_LEAF_BYTES} bytes`);
    if (lines.count > SEGMENT_LEAVES) throw new BadFrame(`more than ${SEGMENT_LEAVES} lines`);
  });
  if (!lines.isWhole) throw new BadFrame("it ends within a line");
  if (lines.count !== SEGMENT_LEAVES) throw new BadFrame(`${lines.count} lines`);
  return entries;
}

const LF = Buffer.from("\n");

/** Feed lines of these entries. */
export const linesOf = (entries: readonly Buffer[]): Buffer => Buffer.concat(entries.flatMap((entry) => [entry, LF]));

/**
 * Segment n, the feed lines below full level-1 tile n, made from the bundles that are there already: 65,536 lines in one zstd
 * frame, one piece a bundle. An auditor packs the same and holds it against ours.
 * @throws MissingObject
 */
export async function packSegment(publicStore: Store, n: number): Promise<Buffer> {
  const packing = new ZstdPacking();
  for (let bundle = n * TILE_WIDTH; bundle < (n + 1) * TILE_WIDTH; bundle++) {
    const object = await publicStore.get(entriesPath(bundle));
    if (!object) throw new MissingObject(entriesPath(bundle));
    await packing.add(linesOf(await unpackBundle(object.bytes, TILE_WIDTH)));
  }
  return (await packing.end()).packed;
}
