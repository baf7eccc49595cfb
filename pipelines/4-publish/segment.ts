import { once } from "node:events";
import { CompressStream } from "zstd-napi";
import type { Store } from "../../infra/store/store.ts";
import { unpackBundle } from "../../infra/tree/bundle.ts";
import { entriesPath, TILE_WIDTH } from "../../infra/tree/path.ts";
import { MissingObject } from "../../infra/tree/tiles.ts";

const LF = Buffer.from("\n");

/**
 * Segment n: the 65,536 feed lines below full level-1 tile n, one zstd frame. Made from the bundles that are published
 * already, one at a time: about 2 ms of compression each, between which others get their turn.
 */
export async function packSegment(publicStore: Store, n: number): Promise<Buffer> {
  const packed: Buffer[] = [];
  const frame = new CompressStream({ compressionLevel: 3 });
  frame.on("data", (chunk: Buffer) => packed.push(chunk));
  const ended = once(frame, "end");
  for (let bundle = n * TILE_WIDTH; bundle < (n + 1) * TILE_WIDTH; bundle++) {
    const object = await publicStore.get(entriesPath(bundle));
    if (!object) throw new MissingObject(entriesPath(bundle));
    const entries = await unpackBundle(object.bytes, TILE_WIDTH);
    if (!frame.write(Buffer.concat(entries.flatMap((entry) => [entry, LF])))) await once(frame, "drain");
  }
  frame.end();
  await ended;
  return Buffer.concat(packed);
}
