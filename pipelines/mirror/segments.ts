import type { Store } from "../../infra/store/store.ts";
import { BadBundle, packBundle, unpackBundle } from "../../infra/tree/bundle.ts";
import { entriesPath, TILE_WIDTH } from "../../infra/tree/path.ts";
import { Tampered, type TileReader } from "../../infra/tree/tiles.ts";
import { segmentKey } from "../4-publish/objects.ts";
import { expose, type Tally } from "./copy.ts";
import { MAX } from "./limits.ts";
import { segmentBundles, segmentHashes } from "./segment-lines.ts";
import { MemorySink, type PartFile, type PartFolder } from "./sink.ts";
import { fetchInto, type Source } from "./source.ts";

/** A segment that was proven: its leaves hash to the tree's. */
export interface Segment {
  n: number;
  packed: Uint8Array;
  /** Of the 65,536 leaves, in order. */
  hashes: Buffer[];
}

/** Bundles packed at once: gzip has threads of its own. */
const PACKED_AT_ONCE = 4;

/** Copies segments: 65,536 leaves a request instead of 256, each segment under one hash of level 2. */
export class SegmentCopier {
  constructor(
    private readonly source: Source,
    private readonly store: Store,
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
    const want = await this.tiles.rootOfTile(1, n);
    const held = await this.store.get(key);
    const adopted = held && (await segmentHashes(held.bytes, want));
    if (adopted?.ok) {
      this.tally.adopted++;
      return { n, packed: held!.bytes, hashes: adopted.hashes };
    }
    const part = await this.parts?.open(key);
    for (let continued = (part?.at ?? 0) > 0; ; continued = false) {
      const packed = await this.#packed(key, part);
      if (!packed) return null;
      const proof = await segmentHashes(packed, want);
      if (proof.ok) {
        this.tally.fetched++;
        return { n, packed, hashes: proof.hashes };
      }
      await part?.remove();
      // Our own disk may have damaged what an earlier run left.
      if (!continued) throw new Tampered(key, want.toString("hex"), proof.got);
    }
  }

  /**
   * Put a proven segment, and before it the entry bundles below it, packed here.
   * @param each told of every bundle's entries, in order
   */
  async expose({ n, packed }: Segment, each: (entries: Buffer[]) => Promise<void>): Promise<void> {
    const packing: Promise<void>[] = [];
    let fault: { error: unknown } | null = null;
    const failed = (error: unknown) => {
      fault ??= { error };
    };
    let bundle = n * TILE_WIDTH;
    for await (const entries of segmentBundles(packed)) {
      packing.push(this.#bundle(bundle++, entries).catch(failed));
      await each(entries).catch(failed);
      if (packing.length >= PACKED_AT_ONCE) await packing.shift();
      if (fault) break;
    }
    await Promise.all(packing);
    if (fault) throw (fault as { error: unknown }).error;
    await expose(this.store, segmentKey(n), packed);
    await (await this.parts?.open(segmentKey(n)))?.remove();
  }

  async #bundle(n: number, entries: Buffer[]): Promise<void> {
    const key = entriesPath(n);
    const held = await this.store.get(key);
    if (held && (await holds(held.bytes, entries))) return;
    await expose(this.store, key, await packBundle(entries));
  }

  async #packed(key: string, part: PartFile | undefined): Promise<Uint8Array | null> {
    const sink = part ?? new MemorySink();
    return (await fetchInto(this.source, key, MAX.named, sink)) ? sink.bytes() : null;
  }
}

/** What an earlier run left need not be packed again. */
async function holds(packed: Uint8Array, entries: readonly Buffer[]): Promise<boolean> {
  try {
    const held = await unpackBundle(packed, entries.length);
    return held.every((entry, i) => entry.equals(entries[i]!));
  } catch (error) {
    if (error instanceof BadBundle) return false;
    throw error;
  }
}
