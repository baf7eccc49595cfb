import { decompress } from "zstd-napi";
import type { Store } from "../../infra/store/store.ts";
import { packBundle, unpackBundle } from "../../infra/tree/bundle.ts";
import { entriesPath, SEGMENT_LEAVES, tilePath } from "../../infra/tree/path.ts";
import type { Growth } from "./live.ts";
import { segmentKey } from "./objects.ts";
import { packSegment } from "./segment.ts";
import { putPublic } from "./writes.ts";

/**
 * Everything that a checkpoint of the new size commits to: tiles, bundles, and each segment that was completed. All
 * create-only, so doing it again, or after another writer died half way, changes nothing.
 */
export async function writeTree(store: Store, { live, tiles, bundles, from }: Growth): Promise<void> {
  const writes: (() => Promise<unknown>)[] = tiles.map(
    (tile) => () => putPublic(store, tilePath(tile.level, tile.n, tile.width), tile.bytes),
  );
  for (const { n, entries } of bundles) writes.push(() => writeBundle(store, n, entries));
  await inTurns(writes);
  const [first, end] = [from, live.tree.size].map((size) => Math.floor(size / SEGMENT_LEAVES)) as [number, number];
  for (let n = first; n < end; n++) {
    const packed = await packSegment(store, n);
    // Two compressors may pack one segment differently.
    await putPublic(store, segmentKey(n), packed, (theirs) => decompress(theirs).equals(decompress(packed)));
  }
}

/** Writes under way at once: a large batch must not hold every file handle of the machine. */
const WRITES_AT_ONCE = 16;

async function inTurns(writes: readonly (() => Promise<unknown>)[]): Promise<void> {
  for (let at = 0; at < writes.length; at += WRITES_AT_ONCE) {
    await Promise.all(writes.slice(at, at + WRITES_AT_ONCE).map((write) => write()));
  }
}

async function writeBundle(store: Store, n: number, entries: readonly Buffer[]): Promise<void> {
  const packed = await packBundle(entries);
  await putPublic(store, entriesPath(n, entries.length), packed, async (theirs) => {
    const other = await unpackBundle(theirs, entries.length);
    return other.every((entry, i) => entry.equals(entries[i]!));
  });
}
