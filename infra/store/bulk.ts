import type { Bulk, ObjectMeta, Store } from "./store.ts";

/** Others that replace the same damaged object are waited out this often. */
const TRIES = 5;

/**
 * The key holds these bytes, durably; one of that name with other bytes is replaced.
 * @throws what the store throws; Error when others keep writing other bytes there
 */
export async function hold(store: Store, key: string, bytes: Uint8Array, meta?: ObjectMeta): Promise<void> {
  for (let tries = 0; tries < TRIES; tries++) {
    // Whatever it answers: an object that is there is durable then, also one that another run is just replacing.
    if ((await store.create(key, bytes, meta)).result === "created") return;
    const there = await store.get(key);
    if (there && Buffer.compare(there.bytes, bytes) === 0) return;
    if ((await store.swap(key, bytes, there?.etag ?? null, meta)).result === "swapped") return;
  }
  throw new Error(`${key} changed while it was being replaced`);
}

/** A bulk of any store; where it has none of its own each object is durable when its `put` resolves. */
export const bulkOf = (store: Store): Bulk =>
  store.bulk?.() ?? {
    put: (key, bytes, meta) => hold(store, key, bytes, meta),
    adopt: () => undefined,
    settle: async () => undefined,
  };
