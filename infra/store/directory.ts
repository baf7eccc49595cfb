import { dirname, resolve } from "node:path";
import { sha256hex } from "../canonical.ts";
import { forEachSettled } from "../concurrency.ts";
import { Failure, isDiskFull } from "../errors.ts";
import { type FileStat, type FsSeam, makeFolder, nodeFs } from "./fs.ts";
import type { FolderLock } from "./lock.ts";
import { ObjectPlacer } from "./placing.ts";
import {
  BadKey,
  type Bulk,
  checkKey,
  isErrno,
  type ObjectInfo,
  ObjectTooLarge,
  putDurably,
  type Store,
  type StoredObject,
  StoreFull,
  type SwapResult,
} from "./store.ts";

/** Folder of the store's lock and temporary files. A key cannot contain `~`, so no key leads here and no list shows it. */
const INTERNAL_FOLDER = ".~store";
const DEFAULT_MAX_BYTES = 256 * 1024 * 1024;
const DEFAULT_LIMIT = 1_000;
/** Largest number of bytes of a file name on common file systems; a longer segment of a key is refused. */
const MAX_NAME_BYTES = 255;

/**
 * Opens a folder as an object store. The object `a/b` is the file `a/b`, so any web server can serve it. Several
 * processes may share the folder. Content type and cache control are not stored; the HTTP layer derives them from the
 * key. Only regular files are objects; a folder stays when its last object is deleted.
 *
 * An etag is a hash of inode, size and modification time, so that no file needs to be read for it. A swap always raises
 * the modification time, and a delete waits until the disk's clock has passed it, so an old etag never fits a later
 * object.
 * Errors: BadKey, StoreFull, ObjectTooLarge; Failure when another process keeps the lock, or a key is both an object
 * and a folder; other errors of the file system unchanged.
 */
export async function openDirectoryStore(root: string, options: { fs?: FsSeam } = {}): Promise<Store> {
  const fs = options.fs ?? nodeFs;
  const path = await makeFolder(fs, root);
  const temporary = await makeFolder(fs, `${path}/${INTERNAL_FOLDER}/tmp`);
  const lock = fs.openLock(`${path}/${INTERNAL_FOLDER}/lock.sqlite`);
  const placing = new ObjectPlacer(fs, path, temporary);
  await placing.collectGarbage(lock);
  return new DirectoryStore(fs, path, placing, lock);
}

/** The part of a store that only reads: it writes no file, makes no folder and takes no lock. */
export type ReadableStore = Pick<Store, "get" | "getRange" | "head" | "list" | "close">;

/** Opens a folder for reading only; the process needs no right to write there. A missing folder has no objects. */
export const readDirectoryStore = (root: string): ReadableStore => new DirectoryReader(nodeFs, resolve(root));

class DirectoryReader implements ReadableStore {
  constructor(
    protected readonly fs: FsSeam,
    protected readonly root: string,
  ) {}

  async get(key: string, options: { maxBytes?: number } = {}): Promise<StoredObject | null> {
    const maxBytes = options.maxBytes ?? DEFAULT_MAX_BYTES;
    const content = await this.read(key, (size) => {
      if (size > maxBytes) throw new ObjectTooLarge(key, size, maxBytes);
      return { start: 0, end: size };
    });
    return content && { ...toObjectInfo(key, content.stat), bytes: content.bytes };
  }

  async getRange(key: string, start: number, end: number): Promise<Uint8Array | null> {
    if (!Number.isSafeInteger(start) || !Number.isSafeInteger(end) || start < 0 || end < start) {
      throw new RangeError(`store: [${start}, ${end}) is no range of ${key}`);
    }
    const content = await this.read(key, (size) => ({ start: Math.min(start, size), end: Math.min(end, size) }));
    return content?.bytes ?? null;
  }

  async head(key: string): Promise<ObjectInfo | null> {
    const stat = await this.stat(this.path(key));
    return stat && toObjectInfo(key, stat);
  }

  async list(prefix: string, options: { startAfter?: string; limit?: number } = {}): Promise<ObjectInfo[]> {
    const limit = options.limit ?? DEFAULT_LIMIT;
    if (!Number.isSafeInteger(limit) || limit < 1) throw new RangeError(`store: a listing of ${limit} keys`);
    const objects: ObjectInfo[] = [];
    for await (const key of walkKeys(this.fs, this.root, prefix, options.startAfter ?? "")) {
      const stat = await this.stat(`${this.root}/${key}`);
      if (stat) objects.push(toObjectInfo(key, stat));
      if (objects.length === limit) break;
    }
    return objects;
  }

  async close(): Promise<void> {}

  /** Returns the path of the file that holds the object of a key. @throws BadKey */
  path(key: string): string {
    const segments = checkKey(key).split("/");
    if (segments.some((segment) => segment.length > MAX_NAME_BYTES)) throw new BadKey(key);
    return `${this.root}/${key}`;
  }

  /** Returns the stat of an object's file; null when there is none or the path is a folder. */
  protected async stat(path: string): Promise<FileStat | null> {
    const stat = await this.fs.stat(path).catch(undefinedIfMissing);
    return stat?.kind === "file" ? stat : null;
  }

  private async read(key: string, range: (size: number) => { start: number; end: number }) {
    const path = this.path(key);
    if (!(await this.stat(path))) return null;
    return (await this.fs.read(path, (stat) => range(stat.size)).catch(undefinedIfMissing)) ?? null;
  }
}

class DirectoryStore extends DirectoryReader implements Store {
  constructor(
    fs: FsSeam,
    root: string,
    private readonly placing: ObjectPlacer,
    private readonly lock: FolderLock,
  ) {
    super(fs, root);
  }

  async create(key: string, bytes: Uint8Array): Promise<{ result: "created" | "exists" }> {
    const path = this.path(key);
    return withStoreErrors(key, async () => {
      const existing = await this.stat(path);
      if (!existing && (await this.placing.place(path, bytes, null))) return { result: "created" };
      await this.#refuseFolder(key, path);
      await this.placing.adopt(path).catch(undefinedIfMissing);
      return { result: "exists" };
    });
  }

  async swap(key: string, bytes: Uint8Array, expected: string | null): Promise<SwapResult> {
    const path = this.path(key);
    const release = await this.lock.acquire();
    try {
      return await withStoreErrors(key, async () => {
        const oldStat = await this.stat(path);
        if ((oldStat ? etagOf(oldStat) : null) !== expected) return { result: "lost" };
        const newStat = await this.placing.place(path, bytes, oldStat);
        if (newStat) return { result: "swapped", etag: etagOf(newStat) };
        await this.#refuseFolder(key, path);
        return { result: "lost" };
      });
    } finally {
      release();
    }
  }

  async delete(key: string): Promise<void> {
    const path = this.path(key);
    const release = await this.lock.acquire();
    try {
      const stat = await this.stat(path);
      if (!stat) return;
      await this.placing.waitPast(stat);
      await this.fs.unlink(path).catch(undefinedIfMissing);
      await this.fs.sync(dirname(path));
    } finally {
      release();
    }
  }

  bulk(): Bulk {
    return new DirectoryBulk(this, this.fs, this.root, this.placing);
  }

  override close(): Promise<void> {
    return this.lock.close();
  }

  /**
   * Throws when the path is a folder. If `create` returned `exists`, or `swap` returned `lost`, the caller would read
   * the key, find nothing and try again for ever.
   */
  async #refuseFolder(key: string, path: string): Promise<void> {
    const stat = await this.fs.stat(path).catch(undefinedIfMissing);
    if (stat && stat.kind !== "file") throw kindConflict(key);
  }
}

const etagOf = (stat: FileStat): string => sha256hex(`${stat.inode} ${stat.size} ${stat.modifiedNs}`).slice(0, 16);

const toObjectInfo = (key: string, stat: FileStat): ObjectInfo => ({
  key,
  size: stat.size,
  etag: etagOf(stat),
  modifiedAt: new Date(Number(stat.modifiedNs / 1_000_000n)),
});

/** Makes the error for a key such as `a/b` beside an object `a`: the path `a` would have to be a file and a folder. */
const kindConflict = (key: string): Failure =>
  new Failure("failed", `store: ${key} crosses an object and a folder of the same name`);

/**
 * Runs `work`. A full disk, and an object and a folder of one name, are thrown as errors of the store; other errors
 * unchanged.
 */
async function withStoreErrors<T>(key: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (isDiskFull(error)) throw new StoreFull(key, error);
    if (isErrno(error, "ENOTDIR", "EISDIR")) throw kindConflict(key);
    throw error;
  }
}

function undefinedIfMissing(error: unknown): undefined {
  if (isErrno(error, "ENOENT", "ENOTDIR")) return undefined;
  throw error;
}

const SEGMENT = /^(?!\.{1,2}$)[A-Za-z0-9._=-]+$/;
const PREFIX = /^(?!\/)[A-Za-z0-9._=/-]*$/;

/**
 * Yields keys below `prefix` in bytewise order, after `startAfter`. It reads one folder at a time, and only folders
 * that can hold such keys. File names that no key can have (the store's `.~store`, an editor's backup) are skipped.
 * @param root absolute path of the store.
 */
async function* walkKeys(fs: FsSeam, root: string, prefix: string, startAfter: string): AsyncGenerator<string> {
  // No key begins with an invalid prefix, and `..` would lead out of the root.
  if (
    !PREFIX.test(prefix) ||
    prefix
      .split("/")
      .slice(0, -1)
      .some((s) => !SEGMENT.test(s))
  )
    return;
  const folder = prefix.slice(0, prefix.lastIndexOf("/") + 1);
  yield* walkFolder(fs, root, folder, prefix, startAfter);
}

/**
 * Yields the keys of one folder, as `walkKeys` does.
 * @param folder its key with a trailing slash, or "" for the root
 */
async function* walkFolder(
  fs: FsSeam,
  root: string,
  folder: string,
  prefix: string,
  startAfter: string,
): AsyncGenerator<string> {
  for (const { key, isFolder } of await sortedEntries(fs, root, folder)) {
    if (isFolder) {
      if (!key.startsWith(prefix) && !prefix.startsWith(key)) continue;
      // All keys in the folder begin with `key`. So when `key` is before `startAfter`, all of them are, unless
      // `startAfter` is in the folder itself.
      if (key < startAfter && !startAfter.startsWith(key)) continue;
      yield* walkFolder(fs, root, key, prefix, startAfter);
    } else if (key.startsWith(prefix) && key > startAfter) {
      yield key;
    }
  }
}

/** Returns the entries of a folder in bytewise order of their keys (ASCII); the key of a folder ends with a slash. */
async function sortedEntries(fs: FsSeam, root: string, folder: string): Promise<{ key: string; isFolder: boolean }[]> {
  try {
    return (await fs.readdir(folder === "" ? root : `${root}/${folder.slice(0, -1)}`))
      .filter((entry) => entry.kind !== "other" && SEGMENT.test(entry.name))
      .map(({ name, kind }) => ({ key: folder + name + (kind === "folder" ? "/" : ""), isFolder: kind === "folder" }))
      .sort((a, b) => (a.key < b.key ? -1 : 1));
  } catch (error) {
    if (isErrno(error, "ENOENT", "ENOTDIR")) return [];
    throw error;
  }
}

/** Number of files that are synced at once, since the file system writes its journal once for several syncs. */
const SYNCS_AT_ONCE = 16;

/**
 * Bulk of a directory store. `put` creates an object without a sync; `flush` syncs each file once, then each folder
 * once, up to the root. An object that exists with other bytes is replaced durably at once, since an earlier checkpoint
 * may name its key.
 */
class DirectoryBulk implements Bulk {
  /** Keys of objects that may not be durable yet; true for those that this bulk created. */
  #pendingKeys = new Map<string, boolean>();
  /** The first error of a sync. Every `flush` from then on throws it. */
  #syncError: { error: unknown } | null = null;

  constructor(
    private readonly store: DirectoryStore,
    private readonly fs: FsSeam,
    private readonly root: string,
    private readonly placing: ObjectPlacer,
  ) {}

  async put(key: string, bytes: Uint8Array): Promise<void> {
    const wasPlaced = await withStoreErrors(key, () => this.placing.placeUnsynced(this.store.path(key), bytes));
    if (wasPlaced) this.#pendingKeys.set(key, true);
    else if (Buffer.compare((await this.store.get(key))?.bytes ?? Buffer.alloc(0), bytes) === 0) this.adopt(key);
    // `putDurably` makes the object durable before it resolves.
    else await putDurably(this.store, key, bytes);
  }

  adopt(key: string): void {
    this.store.path(key);
    if (!this.#pendingKeys.has(key)) this.#pendingKeys.set(key, false);
  }

  async flush(): Promise<void> {
    const { fs, root } = this;
    const keysToSync = this.#pendingKeys;
    this.#pendingKeys = new Map();
    /** Folders to sync; the value is the key of an object inside, for error messages. */
    const folders = new Map<string, string>();
    await this.#runAll(keysToSync, async ([key, isOurs]) => {
      const file = this.store.path(key);
      for (let folder = dirname(file); ; folder = dirname(folder)) {
        folders.set(folder, key);
        if (folder === root) break;
      }
      try {
        await withStoreErrors(key, () => fs.sync(file));
      } catch (error) {
        // The kernel may have dropped the bytes and reports it once: a later sync would succeed. So the file is removed.
        if (isOurs) await fs.unlink(file).catch(() => undefined);
        throw error;
      }
    });
    await this.#runAll(folders, ([folder, key]) => withStoreErrors(key, () => fs.sync(folder)));
    if (this.#syncError) throw this.#syncError.error;
  }

  /** Runs `work` on all items, even when some fail, and keeps the first error. */
  async #runAll<T>(items: Iterable<T>, work: (item: T) => Promise<void>): Promise<void> {
    for (const error of await forEachSettled(items, SYNCS_AT_ONCE, work)) this.#syncError ??= { error };
  }
}
