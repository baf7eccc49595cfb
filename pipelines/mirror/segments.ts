import type { Jwks } from "../../infra/keys/jwk.ts";
import { entriesPath, TILE_WIDTH } from "../../infra/tree/path.ts";
import { Tampered, type TileReader } from "../../infra/tree/tiles.ts";
import { segmentKey } from "../4-publish/objects.ts";
import { vouchingIn } from "./card-signatures.ts";
import type { Exposed, Tally } from "./copy.ts";
import { inLanes } from "./lanes.ts";
import { MAX } from "./limits.ts";
import type { SegmentProof, SegmentThreads } from "./segment-threads.ts";
import { MemorySink, type PartFile, type PartFolder } from "./sink.ts";
import { fetchInto, type Source } from "./source.ts";
import type { Walk } from "./walk.ts";

/** A segment whose leaves hash to the tree's. */
export interface Segment {
  n: number;
  /** Its hash in level 2. */
  root: Buffer;
  proof: SegmentProof;
}

/** From this leaf of a segment on these keys vouch. */
export interface KeyEpoch {
  from: number;
  jwks: Jwks | null;
}

/** A segment that the walk has taken, and what its cards are to be held against. */
export interface Placed {
  from: number;
  epochs: KeyEpoch[];
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
   * Put a segment that the walk has placed, and before it the entry bundles below it, while its cards are verified.
   * @throws Unproven for a card that no key of its place signed; what the store throws
   */
  async expose({ n, proof }: Segment, placed: Placed, walk: Walk): Promise<void> {
    const first = n * TILE_WIDTH;
    const bundles = inLanes(WRITES_AT_ONCE, proof.bundles.entries(), ([i, bytes]) =>
      this.exposed.put(entriesPath(first + i), bytes),
    );
    // Whoever catches a fault of one knows that the other is not under way any more.
    const [written, signed] = await Promise.allSettled([bundles, this.#signed(n, proof.packed, placed, walk)]);
    if (signed.status === "rejected") throw signed.reason;
    if (written.status === "rejected") throw written.reason;
    await this.exposed.put(segmentKey(n), signed.value);
    await (await this.parts?.open(segmentKey(n)))?.remove();
  }

  /** @returns the segment, which was lent */
  async #signed(n: number, lent: Uint8Array, placed: Placed, walk: Walk): Promise<Uint8Array> {
    if (!this.cardSignatures) return lent;
    const epochs = placed.epochs.map(({ from, jwks }) => ({ from, vouching: jwks ? vouchingIn(jwks) : [] }));
    const { packed, doubtful } = await this.threads.cards(lent, placed.from, epochs);
    for (const one of doubtful) walk.doubted(n, one, placed);
    return packed;
  }

  async #packed(key: string, part: PartFile | undefined): Promise<Uint8Array | null> {
    const sink = part ?? new MemorySink();
    return (await fetchInto(this.source, key, MAX.named, sink)) ? sink.bytes() : null;
  }
}
