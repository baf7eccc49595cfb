import { canonicalBytes } from "../../infra/canonical.ts";
import type { Clock } from "../../infra/clock.ts";
import { objectsBelow, type Store } from "../../infra/store/store.ts";
import { headersOf, historyKey, liveKey, VIEW } from "../published/objects.ts";
import type { HistoryNames } from "../record/history.ts";
import type { View } from "../record/volatile.ts";
import { swapPublic } from "./writes.ts";

/** How long a live table outlives its replacement: a reader may hold the view that named it. */
const KEPT_MS = 3_600_000;
const LIVE = "live/";
/** Numbers tried for one table before giving up; each one taken means another writer in the same millisecond. */
const MAX_TAKEN = 100;

/** The view that serving follows, or null before the first. */
export async function readView(store: Store): Promise<View | null> {
  const object = await store.get(VIEW);
  return object && viewOf(object.bytes);
}

const viewOf = (bytes: Uint8Array): View => JSON.parse(Buffer.from(bytes).toString("utf8")) as View;

/** Write one file of a partition's volatile table. @returns the key, for the view. */
export const writeLive = (store: Store, clock: Clock, partition: number, bytes: Uint8Array): Promise<string> =>
  writeNumbered(store, clock, (n) => liveKey(partition, n), bytes);

/** Write one bucket's history. @returns the key, for the view. */
export const writeHistory = (store: Store, clock: Clock, bucket: number, bytes: Uint8Array): Promise<string> =>
  writeNumbered(store, clock, (n) => historyKey(bucket, n), bytes);

/** Create an object under a number that nobody had: record time in milliseconds, counted on when taken. */
async function writeNumbered(
  store: Store,
  clock: Clock,
  keyOf: (n: number) => string,
  bytes: Uint8Array,
): Promise<string> {
  const now = clock.now().getTime();
  for (let n = now; n < now + MAX_TAKEN; n++) {
    const key = keyOf(n);
    const { contentType, cacheControl } = headersOf(key);
    if ((await store.create(key, bytes, { contentType, cacheControl })).result === "created") return key;
  }
  throw new Error(`no free number for ${keyOf(now)}`);
}

/**
 * Replace the view in one step: index, tree size, tables and positions move together or not at all. The history moves
 * at a slower pace: a view that names none keeps the one that is in force.
 */
export async function writeView(store: Store, view: View): Promise<void> {
  await swapPublic(store, VIEW, (object) => {
    const theirs = object && viewOf(object.bytes);
    // A publisher that was paused must not replace a newer view.
    if (theirs && theirs.tree_size > view.tree_size) return null;
    const history = view.history ?? theirs?.history;
    return canonicalBytes({ ...view, ...(history ? { history } : {}) });
  });
}

/** Put other history files in force; everything else of the view stays. @returns false when there is no view yet */
export function nameHistory(store: Store, history: HistoryNames): Promise<boolean> {
  return swapPublic(store, VIEW, (theirs) => theirs && canonicalBytes({ ...viewOf(theirs.bytes), history }));
}

/**
 * Delete live tables and history files that no view names and that are older than an hour of record time.
 * @param kept files that the next view names, however long ago they were written: a table is brought on, not made anew
 */
export async function collectLive(store: Store, clock: Clock, kept: Iterable<string> = []): Promise<number> {
  const view = await readView(store);
  const named = new Set([...kept, ...(view?.live ?? []), ...Object.values(view?.history?.files ?? {})]);
  const before = clock.now().getTime() - KEPT_MS;
  let collected = 0;
  for await (const { key } of objectsBelow(store, LIVE)) {
    const made = /^live\/(?:history\/)?\d+\.(\d+)\.arrow$/.exec(key)?.[1];
    if (made === undefined || named.has(key) || Number(made) > before) continue;
    await store.delete(key);
    collected++;
  }
  return collected;
}
