import type { Clock } from "../../infra/clock.ts";
import { Failure } from "../../infra/errors.ts";
import { type ObjectMeta, objectsBelow, type Store, type StoredObject } from "../../infra/store/store.ts";
import { MAX } from "../published/limits.ts";
import { scanFrame } from "../published/lines.ts";
import { headersOf, INDEX_TABLES } from "../published/objects.ts";

/** A public key that holds other bytes than the log commits to: two logs write to one store. */
export class PublicConflict extends Failure {
  constructor(readonly key: string) {
    super("failed", `${key} exists with other content: another log writes to this store, or it was changed`);
  }
}

const meta = (key: string): ObjectMeta => headersOf(key);

/** Whether the object that is there has our content; default: equal bytes. */
export type Same = (theirs: Uint8Array) => boolean | Promise<boolean>;

/**
 * Create a public object, or adopt the one that is there when it says the same.
 * @returns the bytes that are there now: ours, or those adopted
 * @throws PublicConflict, and what the store throws
 */
export async function putPublic(store: Store, key: string, bytes: Uint8Array, same?: Same): Promise<Uint8Array> {
  if ((await store.create(key, bytes, meta(key))).result === "created") return bytes;
  const theirs = await store.get(key);
  const equal = theirs && (same ? await same(theirs.bytes) : Buffer.compare(theirs.bytes, bytes) === 0);
  if (!equal) throw new PublicConflict(key);
  return theirs.bytes;
}

/** {@link putPublic} of a zstd frame: what counts is what it unpacks to, since compressors differ between versions. */
export const putPacked = (store: Store, key: string, packed: Uint8Array): Promise<Uint8Array> =>
  putPublic(store, key, packed, async (theirs) => {
    const [ours, other] = await Promise.all([packed, theirs].map((frame) => contentOf(frame)));
    return ours !== null && ours === other;
  });

/** sha256 of what a frame unpacks to, or null when it is none. */
export async function contentOf(packed: Uint8Array): Promise<string | null> {
  const facts = await scanFrame(packed, MAX.unpacked);
  return "not" in facts ? null : facts.sha256;
}

/** Swaps that are tried before giving up; each one that is lost means that another writer has replaced the object. */
const MAX_SWAPS = 8;

/**
 * Replace a mutable public object by compare-and-swap. `next` sees what is there and answers with the new bytes, or
 * null to leave it; it is asked again after every lost race.
 * @returns false when `next` left it as it is.
 */
export async function swapPublic(
  store: Store,
  key: string,
  next: (theirs: StoredObject | null) => Uint8Array | null | Promise<Uint8Array | null>,
): Promise<boolean> {
  for (let attempt = 0; attempt < MAX_SWAPS; attempt++) {
    const theirs = await store.get(key);
    const bytes = await next(theirs);
    if (!bytes) return false;
    const swap = await store.swap(key, bytes, theirs?.etag ?? null, meta(key));
    if (swap.result === "swapped") return true;
  }
  throw new Error(`${key}: lost ${MAX_SWAPS} swaps in a row`);
}

/** Promise of publication.md: a partial tile, and the Parquet file of an index, are there for 48 hours at least. */
const KEPT_MS = 48 * 3_600_000;

/**
 * Delete partial tiles and partial entry bundles that are older than 48 hours and whose full one is there: readers of
 * an old checkpoint cut theirs from it (C2SP tlog-tiles, Partial Tiles). One that is not full yet is always kept.
 * @returns how many were deleted.
 */
export async function collectPartials(store: Store, clock: Clock): Promise<number> {
  const before = clock.now().getTime() - KEPT_MS;
  const full = new Map<string, boolean>();
  let collected = 0;
  for await (const { key, modifiedAt } of objectsBelow(store, "tile/")) {
    const whole = /^(.*)\.p\/\d+$/.exec(key)?.[1];
    if (whole === undefined || modifiedAt.getTime() > before) continue;
    if (!full.has(whole)) full.set(whole, (await store.head(whole)) !== null);
    if (!full.get(whole)) continue;
    await store.delete(key);
    collected++;
  }
  return collected;
}

/**
 * Delete the Parquet files of indexes that are older than 48 hours, all but that of the newest index. The indexes stay, and
 * anybody makes the file of one again. @param newest key of the one that stays @returns how many were deleted
 */
export async function collectIndexTables(store: Store, clock: Clock, newest: string | undefined): Promise<number> {
  const before = clock.now().getTime() - KEPT_MS;
  let collected = 0;
  for await (const { key, modifiedAt } of objectsBelow(store, INDEX_TABLES)) {
    if (key === newest || modifiedAt.getTime() > before) continue;
    await store.delete(key);
    collected++;
  }
  return collected;
}
