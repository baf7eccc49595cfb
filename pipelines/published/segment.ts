import { once } from "node:events";
import { CompressStream } from "zstd-napi";
import type { Store } from "../../infra/store/store.ts";
import { unpackBundle } from "../../infra/tree/bundle.ts";
import { entriesPath, TILE_WIDTH } from "../../infra/tree/path.ts";
import { MissingObject } from "../../infra/tree/tiles.ts";

const LF = Buffer.from("\n");

/** Feed lines of these entries. */
export const linesOf = (entries: readonly Buffer[]): Buffer => Buffer.concat(entries.flatMap((entry) => [entry, LF]));

/**
 * A segment in the making: 65,536 feed lines in one zstd frame, one write a bundle. Whoever packs the same lines so, with the
 * same build of zstd, has the same bytes: an auditor holds those against ours.
 */
export class SegmentPacking {
  readonly #frame = new CompressStream({ compressionLevel: 3 });
  readonly #packed: Buffer[] = [];
  readonly #ended = once(this.#frame, "end");

  constructor() {
    this.#frame.on("data", (chunk: Buffer) => this.#packed.push(chunk));
    // Looked at in `end`; until then a failure is not an unhandled one.
    this.#ended.catch(() => undefined);
  }

  /** Lines of the next bundle. About 2 ms of work, between which others get their turn. */
  async add(lines: Buffer): Promise<void> {
    if (!this.#frame.write(lines)) await once(this.#frame, "drain");
  }

  async end(): Promise<Buffer> {
    this.#frame.end();
    await this.#ended;
    return Buffer.concat(this.#packed);
  }
}

/** Segment n, the feed lines below full level-1 tile n, made from the bundles that are there already. @throws MissingObject */
export async function packSegment(publicStore: Store, n: number): Promise<Buffer> {
  const packing = new SegmentPacking();
  for (let bundle = n * TILE_WIDTH; bundle < (n + 1) * TILE_WIDTH; bundle++) {
    const object = await publicStore.get(entriesPath(bundle));
    if (!object) throw new MissingObject(entriesPath(bundle));
    await packing.add(linesOf(await unpackBundle(object.bytes, TILE_WIDTH)));
  }
  return packing.end();
}
