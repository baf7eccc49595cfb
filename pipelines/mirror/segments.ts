import { eachAtOnce } from "../../infra/concurrency.ts";
import { entriesPath, TILE_WIDTH } from "../../infra/tree/path.ts";
import { Tampered, type TileReader } from "../../infra/tree/tiles.ts";
import { vouchingIn } from "../published/card-signatures.ts";
import { MAX } from "../published/limits.ts";
import { segmentKey } from "../published/objects.ts";
import { MemorySink, type PartFile, type PartFolder } from "../published/sink.ts";
import { fetchInto, type Source } from "../published/source.ts";
import type { Exposed, Tally } from "./copy.ts";
import type { SegmentProof, SegmentThreads } from "./segment-threads.ts";
import type { TakenSegment, Walk } from "./walk.ts";

/** A segment whose leaves hash to the tree's. */
export interface Segment {
  n: number;
  /** Its hash in level 2. */
  root: Buffer;
  proof: SegmentProof;
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
    private readonly threads: SegmentThreads,
    private readonly cardSignatures: boolean,
  ) {}

  /**
   * Segment n from here or from the source, proven; null when the source has none, and its bundles have to do.
   * @throws Tampered naming the segment, Oversized, SourceDown
   */
  async fetch(n: number): Promise<Segment | null> {
    const key = segmentKey(n);
    const root = await this.tiles.rootOfTile(1, n);
    const held = await this.exposed.held(key);
    // Whoever holds it may hold the memory too.
    const adopted = held && (await this.threads.prove(n, Buffer.from(held), root));
    if (adopted && !("got" in adopted)) {
      this.tally.adopted++;
      return { n, root, proof: adopted };
    }
    const part = await this.parts?.open(key);
    for (let continued = (part?.at ?? 0) > 0; ; continued = false) {
      const packed = await this.#packed(key, part);
      if (!packed) return null;
      const proof = await this.threads.prove(n, packed, root);
      if (!("got" in proof)) {
        this.tally.fetched++;
        return { n, root, proof };
      }
      await part?.remove();
      // Our own disk may have damaged what an earlier run left.
      if (!continued) throw new Tampered(key, root.toString("hex"), proof.got);
    }
  }

  /**
   * Put a segment that the walk has taken, and before it the entry bundles below it, while its cards are verified.
   * @throws Unproven for a card that no key of its position signed; what the store throws
   */
  async expose({ n, proof }: Segment, taken: TakenSegment, walk: Walk): Promise<void> {
    const first = n * TILE_WIDTH;
    const bundles = eachAtOnce(proof.bundles.entries(), WRITES_AT_ONCE, ([i, bytes]) =>
      this.exposed.put(entriesPath(first + i), bytes),
    );
    // Whoever catches a fault of one knows that the other is not under way any more.
    const [written, signed] = await Promise.allSettled([bundles, this.#signed(n, proof.packed, taken, walk)]);
    if (signed.status === "rejected") throw signed.reason;
    if (written.status === "rejected") throw written.reason;
    await this.exposed.put(segmentKey(n), signed.value);
    await (await this.parts?.open(segmentKey(n)))?.remove();
  }

  /** @returns the segment, which was lent */
  async #signed(n: number, lent: Uint8Array, taken: TakenSegment, walk: Walk): Promise<Uint8Array> {
    if (!this.cardSignatures) return lent;
    const epochs = taken.epochs.map(({ from, jwks }) => ({ from, vouching: jwks ? vouchingIn(jwks) : [] }));
    const { packed, doubtful } = await this.threads.cards(lent, taken.from, epochs);
    for (const one of doubtful) walk.doubted(n, one, taken);
    return packed;
  }

  async #packed(key: string, part: PartFile | undefined): Promise<Uint8Array | null> {
    const sink = part ?? new MemorySink();
    return (await fetchInto(this.source, key, MAX.named, sink)) ? sink.bytes() : null;
  }
}
