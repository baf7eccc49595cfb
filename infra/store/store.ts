import { Failure } from "../errors.ts";

/**
 * An object store. Implementations: `directory.ts` (one machine) and `s3/s3.ts`. Keys are relative POSIX paths of
 * `[A-Za-z0-9._=-]` segments, at most 512 bytes, without empty, `.` or `..` segments; other keys are refused.
 *
 * Durability: when `create` or `swap` resolves, the object survives kill -9 and power loss; a directory store has then
 * synced the file, its folder and each folder it created. A reader sees an object whole or not at all. When `create`
 * returns `exists`, the store has first made the other writer's object durable.
 */
export interface Store {
  /** Reads a whole object; null when there is none. Throws when it is larger than `maxBytes` (default 256 MiB). */
  get(key: string, options?: { maxBytes?: number }): Promise<StoredObject | null>;
  /** Reads the bytes [start, end) of an object, cut at its end; null when there is none. */
  getRange(key: string, start: number, end: number): Promise<Uint8Array | null>;
  /** Reads size, etag and time of an object without its bytes; null when there is none. */
  head(key: string): Promise<ObjectInfo | null>;
  /** Creates an object. `exists` when the key is taken, maybe with other bytes: read and compare them before relying on it. */
  create(key: string, bytes: Uint8Array, meta?: ObjectMeta): Promise<{ result: "created" | "exists" }>;
  /**
   * Replaces the object if its etag is `expected`, or creates it if `expected` is null and there is none. Otherwise
   * changes nothing and returns `lost`.
   */
  swap(key: string, bytes: Uint8Array, expected: string | null, meta?: ObjectMeta): Promise<SwapResult>;
  /** Lists keys below `prefix` in bytewise order, after `startAfter` (exclusive), at most `limit` (default 1,000). */
  list(prefix: string, options?: { startAfter?: string; limit?: number }): Promise<ObjectInfo[]>;
  /** Removes an object; no error when there is none. */
  delete(key: string): Promise<void>;
  /** Begins a {@link Bulk}; present where many objects together are cheaper to make durable. Callers use {@link bulkOf}. */
  bulk?(): Bulk;
  close(): Promise<void>;
}

/**
 * Writes many objects and makes them durable together with `flush`. A checkpoint that names the objects is written
 * after `flush`. When `put` resolves, readers see the whole object. A power cut before `flush` may tear or lose a new
 * object. So a process that finds an object that no checkpoint names checks the object's hash, and puts the object
 * again if the hash differs. An object that existed before with other bytes stays whole: after the power cut it has the
 * old or the new bytes. End every bulk with `flush`, also after a fault, to make durable what was put.
 */
export interface Bulk {
  /**
   * Writes an object whose bytes the caller has verified. An object of that key with other bytes counts as damaged and
   * is replaced.
   * @throws what `create` and `swap` throw
   */
  put(key: string, bytes: Uint8Array, meta?: ObjectMeta): Promise<void>;
  /**
   * Lets `flush` make an object durable that the caller found in the store and verified; its writer may not have
   * synced it.
   */
  adopt(key: string): void;
  /**
   * Makes all objects durable that were put and adopted. @throws when an object may not be durable; then every later
   * `flush` throws too
   */
  flush(): Promise<void>;
}

export type SwapResult = { result: "swapped"; etag: string } | { result: "lost" };

export interface ObjectMeta {
  contentType?: string;
  cacheControl?: string;
  /** Encoding of an object that is stored and served compressed (entry bundles). */
  contentEncoding?: string;
}

export interface ObjectInfo {
  key: string;
  size: number;
  /** Opaque. Equal etags of one key mean equal bytes. */
  etag: string;
  modifiedAt: Date;
}

export interface StoredObject extends ObjectInfo {
  bytes: Uint8Array;
}

/** Thrown for a key that no store accepts: a path out of the store, other characters, or too long. */
export class BadKey extends Failure {
  constructor(key: string) {
    super("failed", `not a store key: ${JSON.stringify(key.slice(0, 120))}`);
  }
}

const VALID_KEY = /^(?!.*(?:^|\/)\.{1,2}(?:\/|$))[A-Za-z0-9._=-]+(?:\/[A-Za-z0-9._=-]+)*$/;

/** Returns `key` unchanged. @throws BadKey unless it is valid */
export function checkKey(key: string): string {
  if (key.length > 512 || !VALID_KEY.test(key)) throw new BadKey(key);
  return key;
}

/** Largest number of attempts to replace an object that other processes replace at the same time. */
const MAX_ATTEMPTS = 5;

/**
 * Writes an object durably; an object of that key with other bytes is replaced.
 * @throws what the store throws; Error when other processes keep writing other bytes to the key
 */
export async function putDurably(store: Store, key: string, bytes: Uint8Array, meta?: ObjectMeta): Promise<void> {
  for (let tries = 0; tries < MAX_ATTEMPTS; tries++) {
    // If `create` answers `exists`, it has made the object of the other writer durable.
    if ((await store.create(key, bytes, meta)).result === "created") return;
    const existing = await store.get(key);
    if (existing && Buffer.compare(existing.bytes, bytes) === 0) return;
    if ((await store.swap(key, bytes, existing?.etag ?? null, meta)).result === "swapped") return;
  }
  throw new Error(`${key} changed while it was being replaced`);
}

/**
 * Yields all objects below `prefix` in bytewise order, page by page. The caller may delete objects that were yielded
 * while it iterates.
 */
export async function* objectsBelow(store: Pick<Store, "list">, prefix: string): AsyncGenerator<ObjectInfo> {
  for (let startAfter: string | undefined; ; ) {
    const page = await store.list(prefix, startAfter ? { startAfter } : {});
    yield* page;
    startAfter = page.at(-1)?.key;
    if (!startAfter) return;
  }
}

/** Begins a bulk. On a store without `bulk` each object is durable when its `put` resolves. */
export const bulkOf = (store: Store): Bulk =>
  store.bulk?.() ?? {
    put: (key, bytes, meta) => putDurably(store, key, bytes, meta),
    adopt: () => undefined,
    flush: async () => undefined,
  };

/** Thrown when the disk or a quota is full. Nothing of the object is visible; free space and try again. */
export class StoreFull extends Failure {
  constructor(key: string, cause?: unknown) {
    super("storage", `store: no space left for ${key}`, { cause });
  }
}

/** Thrown for an object that is larger than the caller accepts. */
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

/**
 * Thrown when the store does not enforce create-only or compare-and-swap writes, or refuses our credentials. Such a
 * store is not used.
 */
export class StoreUnfit extends Failure {
  constructor(reason: string, cause?: unknown) {
    super("storage", `store: ${reason}`, { cause });
  }
}

/** Thrown when the store answers a request with 403; some also do so when an object is missing (refusal-reader.ts). */
export class StoreRefused extends StoreUnfit {}

/** Thrown when no attempt got a usable answer from the store. A write may or may not have been done. */
export class StoreDown extends Failure {
  constructor(action: string, tries: number, cause?: unknown) {
    const why = (cause as Error | undefined)?.message ?? String(cause);
    super("storage", `store: ${action} failed ${tries} times: ${why}`, { cause, retriable: true });
  }
}
