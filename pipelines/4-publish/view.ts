import { canonicalBytes } from "../../infra/canonical.ts";
import type { Clock } from "../../infra/clock.ts";
import { objectsBelow, type Store } from "../../infra/store/store.ts";
import { headersOf, historyKey, liveKey, VIEW } from "../published/objects.ts";
import type { HistoryNames } from "../record/history.ts";
import type { View } from "../record/volatile.ts";
import { swapPublic } from "./writes.ts";

/** Time for which a replaced file under `live/` is kept, ms, since a reader may still use the view that named it. */
const KEEP_MS = 3_600_000;
const LIVE_FOLDER = "live/";
/**
 * Largest number of numbers that are tried for one file. A number is taken if another writer created a file in the same
 * millisecond.
 */
const MAX_NUMBERS_TRIED = 100;

/** Reads the view, the object from which serving learns the files to load; null before the first. */
export async function readView(store: Store): Promise<View | null> {
  const object = await store.get(VIEW);
  return object && parseView(object.bytes);
}

const parseView = (bytes: Uint8Array): View => JSON.parse(Buffer.from(bytes).toString("utf8")) as View;

/**
 * Writes one file of a partition's volatile table, which has the facts that change more often than cards.
 * @returns the key, for the view.
 */
export const writeLiveTable = (store: Store, clock: Clock, partition: number, bytes: Uint8Array): Promise<string> =>
  writeNumbered(store, clock, (n) => liveKey(partition, n), bytes);

/** Writes the chart data of one bucket (a fixed share of all endpoints). @returns the key, for the view. */
export const writeHistory = (store: Store, clock: Clock, bucket: number, bytes: Uint8Array): Promise<string> =>
  writeNumbered(store, clock, (n) => historyKey(bucket, n), bytes);

/** Creates an object under an unused number: the record time in milliseconds, or the next free number. */
async function writeNumbered(
  store: Store,
  clock: Clock,
  keyOf: (n: number) => string,
  bytes: Uint8Array,
): Promise<string> {
  const now = clock.now().getTime();
  for (let n = now; n < now + MAX_NUMBERS_TRIED; n++) {
    const key = keyOf(n);
    const { contentType, cacheControl } = headersOf(key);
    if ((await store.create(key, bytes, { contentType, cacheControl })).result === "created") return key;
  }
  throw new Error(`no free number for ${keyOf(now)}`);
}

/**
 * Replaces index, tree size, tables and positions of the view in one atomic step. A new view without chart files
 * (`history`) keeps those of the stored view, since they change less often.
 */
export async function writeView(store: Store, view: View): Promise<void> {
  await swapPublic(store, VIEW, (object) => {
    const storedView = object && parseView(object.bytes);
    // A publisher that was paused must not replace a newer view.
    if (storedView && storedView.tree_size > view.tree_size) return null;
    const history = view.history ?? storedView?.history;
    return canonicalBytes({ ...view, ...(history ? { history } : {}) });
  });
}

/** Replaces the chart files in the view and nothing else. @returns false when there is no view yet */
export function nameHistory(store: Store, history: HistoryNames): Promise<boolean> {
  return swapPublic(store, VIEW, (stored) => stored && canonicalBytes({ ...parseView(stored.bytes), history }));
}

/**
 * Deletes volatile tables and chart files that no view names and that are older than an hour of record time.
 * @param keysInUse files that the next view will name, which may be old: a table keeps its older files
 */
export async function collectLiveFiles(store: Store, clock: Clock, keysInUse: Iterable<string> = []): Promise<number> {
  const view = await readView(store);
  const namedKeys = new Set([...keysInUse, ...(view?.live ?? []), ...Object.values(view?.history?.files ?? {})]);
  const deleteBeforeMs = clock.now().getTime() - KEEP_MS;
  let deletedCount = 0;
  for await (const { key } of objectsBelow(store, LIVE_FOLDER)) {
    const madeAtMs = /^live\/(?:history\/)?\d+\.(\d+)\.arrow$/.exec(key)?.[1];
    if (madeAtMs === undefined || namedKeys.has(key) || Number(madeAtMs) > deleteBeforeMs) continue;
    await store.delete(key);
    deletedCount++;
  }
  return deletedCount;
}
