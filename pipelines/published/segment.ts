import type { Store } from "../../infra/store/store.ts";
import { unpackBundle } from "../../infra/tree/bundle.ts";
import { entriesPath, TILE_WIDTH } from "../../infra/tree/path.ts";
import { MissingObject } from "../../infra/tree/tiles.ts";
import { ZstdPacking } from "../../infra/zstd.ts";

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
