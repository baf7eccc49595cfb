import type { Clock } from "../../infra/clock.ts";
import { Failure } from "../../infra/errors.ts";
import { type ObjectMeta, objectsBelow, type Store, type StoredObject } from "../../infra/store/store.ts";
import { MAX_BYTES } from "../published/limits.ts";
import { scanFrame } from "../published/lines.ts";
import { headersOf, INDEX_TABLES } from "../published/objects.ts";

/** A public object holds other bytes than the log commits to, as when two logs write to one store. */
export class PublicConflict extends Failure {
  constructor(readonly key: string) {
    super("failed", `${key} exists with other content: another log writes to this store, or it was changed`);
  }
}

const metadataOf = (key: string): ObjectMeta => headersOf(key);

/**
 * Returns whether the stored object has the content that we would write. Without this function the bytes must be equal.
 */
export type HasSameContent = (stored: Uint8Array) => boolean | Promise<boolean>;

/**
 * Creates a public object, or adopts the existing one if it has the same content.
 * @returns the stored bytes: ours, or the adopted ones
 * @throws PublicConflict, and what the store throws
 */
export async function putPublic(
  store: Store,
  key: string,
  bytes: Uint8Array,
  hasSameContent?: HasSameContent,
): Promise<Uint8Array> {
  if ((await store.create(key, bytes, metadataOf(key))).result === "created") return bytes;
  const stored = await store.get(key);
  const isEqual =
    stored && (hasSameContent ? await hasSameContent(stored.bytes) : Buffer.compare(stored.bytes, bytes) === 0);
  if (!isEqual) throw new PublicConflict(key);
  return stored.bytes;
}

/** {@link putPublic} for a zstd frame; compares unpacked bytes, since packed bytes differ between zstd versions. */
export const putPacked = (store: Store, key: string, packed: Uint8Array): Promise<Uint8Array> =>
  putPublic(store, key, packed, async (storedFrame) => {
    const [ownHash, storedHash] = await Promise.all([packed, storedFrame].map((frame) => contentHashOf(frame)));
    return ownHash !== null && ownHash === storedHash;
  });

/** sha256 of the unpacked bytes of a frame; null when it is not a valid frame. */
export async function contentHashOf(packed: Uint8Array): Promise<string | null> {
  const facts = await scanFrame(packed, MAX_BYTES.unpacked);
  return "not" in facts ? null : facts.sha256;
}

/**
 * Largest number of compare-and-swap attempts for one change. An attempt fails when another writer has replaced the
 * object.
 */
const MAX_SWAPS = 8;

/**
 * Replaces a mutable public object by compare-and-swap. `makeNext` gets the stored object and returns the new bytes,
 * or null to leave it unchanged. When another writer replaces the object first, `makeNext` is called again with the
 * new object.
 * @returns false when `makeNext` left the object unchanged
 */
export async function swapPublic(
  store: Store,
  key: string,
  makeNext: (stored: StoredObject | null) => Uint8Array | null | Promise<Uint8Array | null>,
): Promise<boolean> {
  for (let attempt = 0; attempt < MAX_SWAPS; attempt++) {
    const stored = await store.get(key);
    const bytes = await makeNext(stored);
    if (!bytes) return false;
    const swap = await store.swap(key, bytes, stored?.etag ?? null, metadataOf(key));
    if (swap.result === "swapped") return true;
  }
  throw new Error(`${key}: lost ${MAX_SWAPS} swaps in a row`);
}

/** Partial tiles and Parquet files of indexes are kept for at least 48 hours, as publication.md promises. */
const KEEP_MS = 48 * 3_600_000;

/**
 * Deletes partial tiles and partial entry bundles that are older than 48 hours and whose full tile or bundle exists,
 * from which readers of an old checkpoint can take the first entries (C2SP tlog-tiles, Partial Tiles). Others are kept.
 * @returns how many were deleted.
 */
export async function collectPartials(store: Store, clock: Clock): Promise<number> {
  const deleteBeforeMs = clock.now().getTime() - KEEP_MS;
  const hasFullObject = new Map<string, boolean>();
  let deletedCount = 0;
  for await (const { key, modifiedAt } of objectsBelow(store, "tile/")) {
    const fullKey = /^(.*)\.p\/\d+$/.exec(key)?.[1];
    if (fullKey === undefined || modifiedAt.getTime() > deleteBeforeMs) continue;
    if (!hasFullObject.has(fullKey)) hasFullObject.set(fullKey, (await store.head(fullKey)) !== null);
    if (!hasFullObject.get(fullKey)) continue;
    await store.delete(key);
    deletedCount++;
  }
  return deletedCount;
}

/**
 * Deletes Parquet files of indexes that are older than 48 hours, except that of the newest index. A file can be made
 * again from its index, which is kept.
 * @param newest key of the newest index's file
 * @returns how many were deleted
 */
export async function collectIndexTables(store: Store, clock: Clock, newest: string | undefined): Promise<number> {
  const deleteBeforeMs = clock.now().getTime() - KEEP_MS;
  let deletedCount = 0;
  for await (const { key, modifiedAt } of objectsBelow(store, INDEX_TABLES)) {
    if (key === newest || modifiedAt.getTime() > deleteBeforeMs) continue;
    await store.delete(key);
    deletedCount++;
  }
  return deletedCount;
}
