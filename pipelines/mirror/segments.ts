import { eachAtOnce, range } from "../../infra/concurrency.ts";
import { packBundle } from "../../infra/tree/bundle.ts";
import { entriesPath, TILE_WIDTH } from "../../infra/tree/path.ts";
import { Tampered, type TileReader } from "../../infra/tree/tiles.ts";
import { type ProvenSegment, provenSegment } from "../published/leaves.ts";
import { MAX } from "../published/limits.ts";
import { segmentKey } from "../published/objects.ts";
import { MemorySink, type PartFile, type PartFolder } from "../published/sink.ts";
import { fetchInto, type Source } from "../published/source.ts";
import type { Exposed, Tally } from "./copy.ts";

/** A segment whose leaves hash to the tree's. */
export interface Segment extends ProvenSegment {
  n: number;
  packed: Uint8Array;
}

/** Bundles on their way to the store at once. */
const WRITES_AT_ONCE = 8;

/** Copies segments: 65,536 leaves a request instead of 256, each segment under one hash of level 2. */
export class SegmentCopier {
  constructor(
    private readonly source: Source,
    private readonly exposed: Exposed,
    private readonly tiles: TileReader,
    private readonly tally: Tally,
    private readonly parts: PartFolder | null,
  ) {}

  /**
   * Segment n from here or from the source, proven; null when the source has none, and its bundles have to do.
   * @throws Tampered naming the segment, Oversized, SourceDown
   */
  async fetch(n: number): Promise<Segment | null> {
    const key = segmentKey(n);
    const held = await this.exposed.held(key);
    const adopted = held && (await this.#proven(n, held));
    if (adopted && !(adopted instanceof Tampered)) {
      this.tally.adopted++;
      return adopted;
    }
    const part = await this.parts?.open(key);
    for (let continued = (part?.at ?? 0) > 0; ; continued = false) {
      const packed = await this.#packed(key, part);
      if (!packed) return null;
      const proven = await this.#proven(n, packed);
      if (!(proven instanceof Tampered)) {
        this.tally.fetched++;
        return proven;
      }
      await part?.remove();
      // Our own disk may have damaged what an earlier run left.
      if (!continued) throw proven;
    }
  }

  /** Put a segment that the walk has taken, and before it the entry bundles below it. @throws what the store throws */
  async expose({ n, packed, entries }: Segment): Promise<void> {
    await eachAtOnce(range(0, TILE_WIDTH), WRITES_AT_ONCE, async (i) => {
      const bundle = await packBundle(entries.slice(i * TILE_WIDTH, (i + 1) * TILE_WIDTH));
      await this.exposed.put(entriesPath(n * TILE_WIDTH + i), bundle);
    });
    await this.exposed.put(segmentKey(n), packed);
    await (await this.parts?.open(segmentKey(n)))?.remove();
  }

  async #proven(n: number, packed: Uint8Array): Promise<Segment | Tampered> {
    try {
      return { n, packed, ...(await provenSegment(packed, this.tiles, n)) };
    } catch (error) {
      if (error instanceof Tampered && error.key === segmentKey(n)) return error;
      throw error;
    }
  }

  async #packed(key: string, part: PartFile | undefined): Promise<Uint8Array | null> {
    const sink = part ?? new MemorySink();
    return (await fetchInto(this.source, key, MAX.named, sink)) ? sink.bytes() : null;
  }
}
