import { canonicalBytes } from "../../infra/canonical.ts";
import type { Clock } from "../../infra/clock.ts";
import type { Store } from "../../infra/store/store.ts";
import type { View } from "../record/volatile.ts";
import { headersOf, liveKey, VIEW } from "./objects.ts";
import { swapPublic } from "./writes.ts";

/** How long a live table outlives its replacement: a reader may hold the view that named it. */
const KEPT_MS = 3_600_000;
const LIVE = "live/";
/** Numbers tried for one table before giving up; each one taken means another writer in the same millisecond. */
const MAX_TAKEN = 100;

/** The view that serving follows, or null before the first. */
export async function readView(store: Store): Promise<View | null> {
  const object = await store.get(VIEW);
  return object && (JSON.parse(Buffer.from(object.bytes).toString("utf8")) as View);
}

/**
 * Write one partition's volatile table under a number that nobody had: record time in milliseconds, counted on when
 * taken. @returns the key, for the view.
 */
export async function writeLive(store: Store, clock: Clock, partition: number, bytes: Uint8Array): Promise<string> {
  const now = clock.now().getTime();
  for (let n = now; n < now + MAX_TAKEN; n++) {
    const key = liveKey(partition, n);
    const { contentType, cacheControl } = headersOf(key);
    if ((await store.create(key, bytes, { contentType, cacheControl })).result === "created") return key;
  }
  throw new Error(`no free number for a live table of partition ${partition}`);
}

/** Replace the view in one step: index, tree size, tables and positions move together or not at all. */
export async function writeView(store: Store, view: View): Promise<void> {
  await swapPublic(store, VIEW, () => canonicalBytes(view));
}

/** Delete live tables that no view names and that are older than an hour of record time. */
export async function sweepLive(store: Store, clock: Clock): Promise<number> {
  const named = new Set((await readView(store))?.live ?? []);
  const before = clock.now().getTime() - KEPT_MS;
  let swept = 0;
  for (let startAfter: string | undefined; ; ) {
    const page = await store.list(LIVE, startAfter ? { startAfter } : {});
    for (const { key } of page) {
      const made = /^live\/\d+\.(\d+)\.arrow$/.exec(key)?.[1];
      if (made === undefined || named.has(key) || Number(made) > before) continue;
      await store.delete(key);
      swept++;
    }
    startAfter = page.at(-1)?.key;
    if (!startAfter) return swept;
  }
}
