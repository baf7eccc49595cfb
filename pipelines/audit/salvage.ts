import { edgeOf, levelsOf, SEGMENT_LEAVES, TILE_WIDTH } from "../../infra/tree/path.ts";
import { MissingObject } from "../../infra/tree/tiles.ts";
import { provenSegment } from "../published/leaves.ts";
import { MAX } from "../published/limits.ts";
import { segmentKey } from "../published/objects.ts";
import { RecordReader } from "../published/reader.ts";
import { objectsOf, type Source } from "../published/source.ts";
import { Check, type Finding } from "./findings.ts";
import type { OnEntries } from "./tree.ts";

/** Told of leaves that nothing here proves any more. */
export type OnHole = (first: number, count: number) => void;

const BUNDLES_OF_SEGMENT = SEGMENT_LEAVES / TILE_WIDTH;

/**
 * The leaves of a tree whose entries do not lead to the checkpoint's root: each bundle by the tile above it, else the
 * segment that has its leaves too, else a hole. Every tile and segment is looked at. Slower than a sound tree's reading,
 * and only for one that is broken.
 * @throws Tampered, MissingObject when the right edge does not lead to the root: then there is nothing to prove by;
 * SourceDown
 */
export async function salvage(
  source: Source,
  head: { size: number; root: Buffer },
  onEntries: OnEntries,
  onHole: OnHole,
): Promise<Finding[]> {
  const [bundles, tiles, segments] = [new Check("entry bundles"), new Check("tiles"), new Check("segments")];
  const reader = await RecordReader.over(objectsOf(source), head);
  const segment = new SegmentEntries(source, reader, segments);
  for (let n = 0; n * TILE_WIDTH < head.size; n++) {
    let entries: readonly Buffer[] | null = null;
    await bundles.look(async () => {
      entries = await reader.entries(n);
    });
    entries ??= await segment.bundle(n);
    if (entries) await onEntries(entries);
    else onHole(n * TILE_WIDTH, Math.min(TILE_WIDTH, head.size - n * TILE_WIDTH));
  }
  for (let level = 0; level < levelsOf(head.size); level++) {
    const { full, width } = edgeOf(head.size, level);
    // The edge was proven when the reader was opened.
    tiles.ok(width > 0 ? 1 : 0);
    for (let n = 0; n < full; n++) await tiles.look(async () => void (await reader.tiles.tile(level, n)));
  }
  for (let n = 0; (n + 1) * SEGMENT_LEAVES <= head.size; n++) await segment.read(n);
  return [bundles.finding, tiles.finding, segments.finding];
}

/** Segments, each read once and one of them held. */
class SegmentEntries {
  readonly #looked = new Set<number>();
  #held: { n: number; entries: Buffer[] } | null = null;

  constructor(
    private readonly source: Source,
    private readonly reader: RecordReader,
    private readonly check: Check,
  ) {}

  /** Leaves of bundle n, or null when its segment is not whole, broken, or not there. */
  async bundle(n: number): Promise<Buffer[] | null> {
    const of = Math.floor(n / BUNDLES_OF_SEGMENT);
    if ((of + 1) * SEGMENT_LEAVES > this.reader.size) return null;
    await this.read(of);
    if (this.#held?.n !== of) return null;
    const at = (n % BUNDLES_OF_SEGMENT) * TILE_WIDTH;
    return this.#held.entries.slice(at, at + TILE_WIDTH);
  }

  async read(n: number): Promise<void> {
    if (this.#looked.has(n)) return;
    this.#looked.add(n);
    this.#held = null;
    await this.check.look(async () => {
      const packed = await this.source.get(segmentKey(n), MAX.named);
      if (!packed) throw new MissingObject(segmentKey(n));
      this.#held = { n, entries: (await provenSegment(packed, this.reader.tiles, n)).entries };
    });
  }
}
