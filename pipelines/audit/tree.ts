import { createHash } from "node:crypto";
import { mapConcurrent, range } from "../../infra/concurrency.ts";
import { packBundle } from "../../infra/tree/bundle.ts";
import { leafHash, sameHash } from "../../infra/tree/hash.ts";
import { edgeOf, levelsOf, SEGMENT_LEAVES, TILE_WIDTH, tilePath } from "../../infra/tree/path.ts";
import { type FetchObject, fetchTile, MissingObject, Tampered, type Tile, TreeState } from "../../infra/tree/tiles.ts";
import { ZstdPacking } from "../../infra/zstd.ts";
import { proveSegment, toFeedLines } from "../published/leaves.ts";
import { MAX_BYTES } from "../published/limits.ts";
import { scanFrame } from "../published/lines.ts";
import { segmentKey } from "../published/objects.ts";
import { fetchBundle, RecordReader, unpackEntries } from "../published/reader.ts";
import { createSourceFetch, type Source } from "../published/source.ts";
import { Check, type Finding, type PackedBytesCheck, problemOf } from "./findings.ts";

/** Number of bundles (files of 256 entries) that are fetched and unpacked ahead of the one that is checked. */
const BUNDLES_AHEAD = 8;

/** Called with the entries of each bundle, in order, before the root over all of them is known. */
export type OnEntries = (entries: readonly Buffer[]) => void | Promise<void>;

/**
 * Checks the entry bundles, tiles and segments of a tree. Builds the tree again from all entries: its root must be the
 * checkpoint's, and every tile and segment must equal the built one. Some bundles, one packed segment and the right
 * edge of the tree are in memory.
 * @returns the findings, and whether the entries give the root. If so, every leaf is proven, even if a tile is broken
 */
export async function auditTree(
  source: Source,
  head: { size: number; root: Buffer },
  packing: PackedBytesCheck,
  onEntries: OnEntries,
): Promise<{ findings: Finding[]; givesRoot: boolean }> {
  const [bundles, tiles, segments] = [new Check("entry bundles"), new Check("tiles"), new Check("segments")];
  const resultOf = (givesRoot: boolean) => ({
    findings: [bundles.finding, tiles.finding, segments.finding],
    givesRoot,
  });
  try {
    const root = await rebuild(source, head.size, { bundles, tiles, segments }, packing, onEntries);
    if (sameHash(root, head.root)) return resultOf(true);
    // If all tiles agree with the entries, the checkpoint was signed for another tree.
    const got = root.toString("hex");
    if (tiles.finding.result === "ok") throw new Tampered("checkpoint", head.root.toString("hex"), got);
    // Otherwise an entry may differ from the signed one. This reader compares bundles with proven tiles and throws at
    // the first that differs.
    const reader = await RecordReader.openWithFetch(createSourceFetch(source), head);
    for (let n = 0; n * TILE_WIDTH < head.size; n++) await reader.entries(n);
    throw new Tampered("checkpoint", head.root.toString("hex"), got);
  } catch (error) {
    const problem = problemOf(error);
    if (!problem) throw error;
    bundles.addProblem(problem);
  }
  return resultOf(false);
}

type Checks = Record<"bundles" | "tiles" | "segments", Check>;

/**
 * Builds the tree from all entries, and records differing tiles and segments in their checks.
 * @returns the root over all entries
 */
async function rebuild(
  source: Source,
  size: number,
  { bundles, tiles, segments }: Checks,
  packing: PackedBytesCheck,
  onEntries: OnEntries,
): Promise<Buffer> {
  const fetch = createSourceFetch(source);
  /** The newest partial tile of each level, by level. */
  const partialTiles = new Map<number, Tile>();
  /** The segment that is being read, packed as the publisher packs it: its entries as lines, in one frame. */
  let segment = new ZstdPacking();
  let tree = TreeState.empty;
  const runTileCheck = (tile: Tile) => tiles.runStep(() => checkTile(tile, fetch));
  const numbers = range(0, Math.ceil(size / TILE_WIDTH));
  const fetched = mapConcurrent(BUNDLES_AHEAD, numbers, (n) =>
    fetchAndRepackBundle(fetch, n, Math.min(TILE_WIDTH, size - n * TILE_WIDTH)),
  );
  for await (const { key, entries, packed, repackedBytes } of fetched) {
    bundles.countOk();
    packing.add("entry bundles", key, packed, repackedBytes);
    await onEntries(entries);
    if (tree.size - (tree.size % SEGMENT_LEAVES) + SEGMENT_LEAVES <= size) await segment.add(toFeedLines(entries));
    const growth = tree.append(entries.map(leafHash));
    tree = growth.state;
    for (const tile of growth.tiles) {
      if (tile.width < TILE_WIDTH) partialTiles.set(tile.level, tile);
      else if (partialTiles.get(tile.level)?.n === tile.n) partialTiles.delete(tile.level);
      if (tile.width === TILE_WIDTH) await runTileCheck(tile);
    }
    if (tree.size % SEGMENT_LEAVES === 0) {
      const fullSegment = segment;
      segment = new ZstdPacking();
      await segments.runStep(() => compareSegment(source, tree.size / SEGMENT_LEAVES - 1, fullSegment, packing));
    }
  }
  for (const tile of partialTiles.values()) await runTileCheck(tile);
  return tree.root();
}

/** Compares a stored tile with the built one. @throws Tampered, MissingObject */
async function checkTile({ level, n, width, bytes }: Tile, fetch: FetchObject): Promise<void> {
  const storedBytes = Buffer.concat((await fetchTile(level, n, width, fetch)).slice(0, width));
  if (!storedBytes.equals(bytes)) throw new Tampered(tilePath(level, n, width), hashOf(bytes), hashOf(storedBytes));
}

/** Fetches a bundle and returns its entries, its stored bytes, and the bytes that our packer makes of its entries. */
async function fetchAndRepackBundle(fetch: FetchObject, n: number, width: number) {
  const bundle = await fetchBundle(fetch, n, width);
  const allEntries = await unpackEntries(bundle);
  return { ...bundle, entries: allEntries.slice(0, width), repackedBytes: await packBundle(allEntries) };
}

const hashOf = (bytes: Buffer): string => `sha256 ${createHash("sha256").update(bytes).digest("hex")}`;

/** Compares a stored segment with the built one. @throws Tampered, MissingObject, Oversized */
async function compareSegment(
  source: Source,
  n: number,
  builtSegment: ZstdPacking,
  packing: PackedBytesCheck,
): Promise<void> {
  const key = segmentKey(n);
  const expectedSegment = await builtSegment.end();
  const packed = await source.get(key, MAX_BYTES.named);
  if (!packed) throw new MissingObject(key);
  if (Buffer.compare(packed, expectedSegment.packed) !== 0) {
    const facts = await scanFrame(packed, expectedSegment.bytes);
    const got = "not" in facts ? facts.not : facts.sha256;
    if (got !== expectedSegment.sha256) throw new Tampered(key, expectedSegment.sha256, got);
  }
  packing.add("segments", key, packed, expectedSegment.packed);
}

/** Called for consecutive leaves that cannot be proven, with the position of the first and their number. */
type OnHole = (first: number, count: number) => void;

const BUNDLES_OF_SEGMENT = SEGMENT_LEAVES / TILE_WIDTH;

/**
 * Reads the leaves of a tree whose entries do not give the checkpoint's root. Each bundle is compared with the tile
 * above it. If a bundle does not match or is missing, its leaves are taken from their segment; if that fails too, they
 * are reported to `onHole`. Every tile and segment is checked too. This is slower than {@link auditTree} and used only
 * for a broken tree.
 * @throws Tampered, MissingObject when the right edge does not give the root, since then nothing can be proven;
 * SourceDown
 */
export async function salvage(
  source: Source,
  head: { size: number; root: Buffer },
  onEntries: OnEntries,
  onHole: OnHole,
): Promise<Finding[]> {
  const [bundles, tiles, segments] = [new Check("entry bundles"), new Check("tiles"), new Check("segments")];
  const reader = await RecordReader.openWithFetch(createSourceFetch(source), head);
  const segment = new SegmentEntries(source, reader, segments);
  for (let n = 0; n * TILE_WIDTH < head.size; n++) {
    let entries: readonly Buffer[] | null = null;
    await bundles.runStep(async () => {
      entries = await reader.entries(n);
    });
    entries ??= await segment.bundle(n);
    if (entries) await onEntries(entries);
    else onHole(n * TILE_WIDTH, Math.min(TILE_WIDTH, head.size - n * TILE_WIDTH));
  }
  for (let level = 0; level < levelsOf(head.size); level++) {
    const { full, width } = edgeOf(head.size, level);
    // The edge was proven when the reader was opened.
    tiles.countOk(width > 0 ? 1 : 0);
    for (let n = 0; n < full; n++) await tiles.runStep(async () => void (await reader.tiles.tile(level, n)));
  }
  for (let n = 0; (n + 1) * SEGMENT_LEAVES <= head.size; n++) await segment.readSegment(n);
  return [bundles.finding, tiles.finding, segments.finding];
}

/** Reads segments, each at most once. The one that was read last is kept in memory. */
class SegmentEntries {
  readonly #segmentsTried = new Set<number>();
  #lastSegment: { n: number; entries: Buffer[] } | null = null;

  constructor(
    private readonly source: Source,
    private readonly reader: RecordReader,
    private readonly check: Check,
  ) {}

  /** Returns the leaves of bundle n; null when the tree does not fill its segment, or that is broken or missing. */
  async bundle(n: number): Promise<Buffer[] | null> {
    const segment = Math.floor(n / BUNDLES_OF_SEGMENT);
    if ((segment + 1) * SEGMENT_LEAVES > this.reader.size) return null;
    await this.readSegment(segment);
    if (this.#lastSegment?.n !== segment) return null;
    const start = (n % BUNDLES_OF_SEGMENT) * TILE_WIDTH;
    return this.#lastSegment.entries.slice(start, start + TILE_WIDTH);
  }

  /** Reads and proves segment n, unless that was tried before. */
  async readSegment(n: number): Promise<void> {
    if (this.#segmentsTried.has(n)) return;
    this.#segmentsTried.add(n);
    this.#lastSegment = null;
    await this.check.runStep(async () => {
      const packed = await this.source.get(segmentKey(n), MAX_BYTES.named);
      if (!packed) throw new MissingObject(segmentKey(n));
      this.#lastSegment = { n, entries: (await proveSegment(packed, this.reader.tiles, n)).entries };
    });
  }
}
