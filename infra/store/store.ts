import { Failure } from "../errors.ts";

/**
 * An object store. Adapters: `directory.ts` (one machine), `s3/s3.ts`. Keys are relative POSIX paths of
 * `[A-Za-z0-9._=-]` segments: no empty, `.` or `..` segment, at most 512 bytes; anything else is refused.
 *
 * Durability: when `create` or `swap` resolves, the object survives kill -9 and power loss; a directory store has then
 * fsynced the file, its folder and every folder made on the way. A reader sees an object whole or not at all.
 * Whoever finds an object that another wrote (`exists`) may rely on it: the adapter makes it durable first.
 */
export interface Store {
  /** The whole object, or null when there is none. `maxBytes` (default 256 MiB) bounds what is read. */
  get(key: string, options?: { maxBytes?: number }): Promise<StoredObject | null>;
  /** Bytes [start, end) of the object (end past its size is cut), or null when there is none. */
  getRange(key: string, start: number, end: number): Promise<Uint8Array | null>;
  head(key: string): Promise<ObjectInfo | null>;
  /** Create-only. `exists` when the key is taken, whatever its bytes are: read it back and compare before adopting. */
  create(key: string, bytes: Uint8Array, meta?: ObjectMeta): Promise<{ result: "created" | "exists" }>;
  /** Compare-and-swap. `expected` is the etag that was read, or null for "there is none". `lost` when it differs. */
  swap(key: string, bytes: Uint8Array, expected: string | null, meta?: ObjectMeta): Promise<SwapResult>;
  /** Keys below `prefix` in bytewise order, after `startAfter` (exclusive), at most `limit` (default 1,000). */
  list(prefix: string, options?: { startAfter?: string; limit?: number }): Promise<ObjectInfo[]>;
  /** Remove; no error when there is none. Only for lake compaction, expired partial tiles and live tables. */
  delete(key: string): Promise<void>;
  /** Where many objects are made durable together for less than each by itself; by {@link bulkOf} on any store. */
  bulk?(): Bulk;
  close(): Promise<void>;
}

/**
 * Many objects that have to be durable only once all of them are there: what commits to them (a checkpoint) is written after
 * `flush`. An object is in sight, whole, when its `put` resolves. A power cut before `flush` may leave it torn or gone, so
 * whoever finds an object that nothing commits to proves it by its hash, and puts it again if it does not hold. What was
 * there before with other bytes stays whole, as it is or replaced. End every bulk with `flush`, also after a fault: what
 * was put and proven is kept.
 */
export interface Bulk {
  /**
   * The key is to hold these bytes, which the caller has proven; one of that name with other bytes was damaged and is
   * replaced. @throws what `create` and `swap` throw
   */
  put(key: string, bytes: Uint8Array, meta?: ObjectMeta): Promise<void>;
  /** Rely on an object that was found, and proven: it may not be on the disk yet. */
  adopt(key: string): void;
  /** Everything put and adopted so far is there and durable. @throws when that is not known of all of it, from then on */
  flush(): Promise<void>;
}

export type SwapResult = { result: "swapped"; etag: string } | { result: "lost" };

export interface ObjectMeta {
  contentType?: string;
  cacheControl?: string;
  /** Of an object that is stored packed and handed out so (entry bundles). */
  contentEncoding?: string;
}

export interface ObjectInfo {
  key: string;
  size: number;
  /** Opaque; equal etags mean equal bytes of the same write. */
  etag: string;
  modifiedAt: Date;
}

export interface StoredObject extends ObjectInfo {
  bytes: Uint8Array;
}

/** A key the store never takes: traversal, odd characters, too long. */
export class BadKey extends Failure {
  constructor(key: string) {
    super("failed", `not a store key: ${JSON.stringify(key.slice(0, 120))}`);
  }
}

const KEY = /^(?!.*(?:^|\/)\.{1,2}(?:\/|$))[A-Za-z0-9._=-]+(?:\/[A-Za-z0-9._=-]+)*$/;

/** @throws BadKey unless `key` is one; returns it unchanged. */
export function checkKey(key: string): string {
  if (key.length > 512 || !KEY.test(key)) throw new BadKey(key);
  return key;
}

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
    flush: async () => undefined,
  };

/** The disk (or a quota) is full. Nothing of the object is visible; free space and try again. */
export class StoreFull extends Failure {
  constructor(key: string, cause?: unknown) {
    super("storage", `store: no space left for ${key}`, { cause });
  }
}

/** The object is larger than the caller is ready to hold in memory. */
export class ObjectTooLarge extends Failure {
  constructor(
    readonly key: string,
    readonly size: number,
    readonly maxBytes: number,
  ) {
    super("failed", `store: ${key} has ${size} bytes, more than the ${maxBytes} asked for`);
  }
}

/** True when `error` is a Node system error with one of `codes`. */
export function isErrno(error: unknown, ...codes: string[]): boolean {
  return error instanceof Error && "code" in error && typeof error.code === "string" && codes.includes(error.code);
}

/** The store does not do what the contract rests on (create-only, compare-and-swap), or keeps us out: never used. */
export class StoreUnfit extends Failure {
  constructor(says: string, cause?: unknown) {
    super("storage", `store: ${says}`, { cause });
  }
}

/** We may not read that key, or there is none and we may not be told so (unlisted.ts). */
export class StoreRefused extends StoreUnfit {}

/** The store did not answer, or not as a store does, after every try. Whether the last write holds is not known. */
export class StoreDown extends Failure {
  constructor(doing: string, tries: number, cause?: unknown) {
    const why = (cause as Error | undefined)?.message ?? String(cause);
    super("storage", `store: ${doing} failed ${tries} times: ${why}`, { cause, retriable: true });
  }
}
