import { dirname, resolve } from "node:path";
import { sha256hex } from "../canonical.ts";
import { allAtOnce } from "../concurrency.ts";
import { Failure } from "../errors.ts";
import { type FileStat, type FsSeam, makeFolder, nodeFs } from "./fs.ts";
import type { FolderLock } from "./lock.ts";
import { Placing } from "./placing.ts";
import {
  BadKey,
  type Bulk,
  checkKey,
  hold,
  isErrno,
  type ObjectInfo,
  ObjectTooLarge,
  type Store,
  type StoredObject,
  StoreFull,
  type SwapResult,
} from "./store.ts";

/** `~` is no key character, so no key can name what is in here and no listing shows it. */
const OWN_FOLDER = ".~store";
const DEFAULT_MAX_BYTES = 256 * 1024 * 1024;
const DEFAULT_LIMIT = 1_000;
/** File systems take names of 255 bytes; object stores do not mind. */
const MAX_NAME = 255;

/**
 * A folder as an object store: the object `a/b` is the file `a/b`, so any web server can serve it. Several processes may
 * share it. Content type and cache control are not kept: they follow from the key, and the HTTP layer derives them.
 * Only regular files are objects; folders stay when their last object goes.
 *
 * etag = inode, size and modification time, hashed: no file is read for it. A swap makes the time strictly rise and a
 * delete waits until the disk's clock has passed it, so an old etag never fits a later object, whatever its bytes.
 * Errors: BadKey, StoreFull, ObjectTooLarge; Failure where others keep the lock, or a key is an object and a folder;
 * and what else the file system throws, as it is.
 */
export async function openDirectoryStore(root: string, options: { fs?: FsSeam } = {}): Promise<Store> {
  const fs = options.fs ?? nodeFs;
  const path = await makeFolder(fs, root);
  const temporary = await makeFolder(fs, `${path}/${OWN_FOLDER}/tmp`);
  const lock = fs.openLock(`${path}/${OWN_FOLDER}/lock.sqlite`);
  const placing = new Placing(fs, path, temporary);
  await placing.collectGarbage(lock);
  return new DirectoryStore(fs, path, placing, lock);
}

/** What is read of a store: nothing is written, made or locked by it. */
export type ReadableStore = Pick<Store, "get" | "getRange" | "head" | "list" | "close">;

/** A folder as an object store that is only read, so that it may be anybody's; one that is not there has no objects. */
export const readDirectoryStore = (root: string): ReadableStore => new DirectoryReader(nodeFs, resolve(root));

class DirectoryReader implements ReadableStore {
  constructor(
    protected readonly fs: FsSeam,
    protected readonly root: string,
  ) {}

  async get(key: string, options: { maxBytes?: number } = {}): Promise<StoredObject | null> {
    const maxBytes = options.maxBytes ?? DEFAULT_MAX_BYTES;
    const found = await this.read(key, (size) => {
      if (size > maxBytes) throw new ObjectTooLarge(key, size, maxBytes);
      return { start: 0, end: size };
    });
    return found && { ...info(key, found.stat), bytes: found.bytes };
  }

  async getRange(key: string, start: number, end: number): Promise<Uint8Array | null> {
    if (!Number.isSafeInteger(start) || !Number.isSafeInteger(end) || start < 0 || end < start) {
      throw new RangeError(`store: [${start}, ${end}) is no range of ${key}`);
    }
    const found = await this.read(key, (size) => ({ start: Math.min(start, size), end: Math.min(end, size) }));
    return found?.bytes ?? null;
  }

  async head(key: string): Promise<ObjectInfo | null> {
    const stat = await this.stat(this.path(key));
    return stat && info(key, stat);
  }

  async list(prefix: string, options: { startAfter?: string; limit?: number } = {}): Promise<ObjectInfo[]> {
    const limit = options.limit ?? DEFAULT_LIMIT;
    if (!Number.isSafeInteger(limit) || limit < 1) throw new RangeError(`store: a listing of ${limit} keys`);
    const found: ObjectInfo[] = [];
    for await (const key of walkKeys(this.fs, this.root, prefix, options.startAfter ?? "")) {
      const stat = await this.stat(`${this.root}/${key}`);
      if (stat) found.push(info(key, stat));
      if (found.length === limit) break;
    }
    return found;
  }

  async close(): Promise<void> {}

  /** @throws BadKey */
  path(key: string): string {
    const segments = checkKey(key).split("/");
    if (segments.some((segment) => segment.length > MAX_NAME)) throw new BadKey(key);
    return `${this.root}/${key}`;
  }

  /** Null also for a folder: it is no object. */
  protected async stat(path: string): Promise<FileStat | null> {
    const stat = await this.fs.stat(path).catch(unlessMissing);
    return stat?.kind === "file" ? stat : null;
  }

  private async read(key: string, range: (size: number) => { start: number; end: number }) {
    const path = this.path(key);
    if (!(await this.stat(path))) return null;
    return (await this.fs.read(path, (stat) => range(stat.size)).catch(unlessMissing)) ?? null;
  }
}

class DirectoryStore extends DirectoryReader implements Store {
  constructor(
    fs: FsSeam,
    root: string,
    private readonly placing: Placing,
    private readonly lock: FolderLock,
  ) {
    super(fs, root);
  }

  async create(key: string, bytes: Uint8Array): Promise<{ result: "created" | "exists" }> {
    const path = this.path(key);
    return naming(key, async () => {
      const taken = await this.stat(path);
      if (!taken && (await this.placing.place(path, bytes, null))) return { result: "created" };
      await this.#refuseFolder(key, path);
      await this.placing.adopt(path).catch(unlessMissing);
      return { result: "exists" };
    });
  }

  async swap(key: string, bytes: Uint8Array, expected: string | null): Promise<SwapResult> {
    const path = this.path(key);
    const release = await this.lock.acquire();
    try {
      return await naming(key, async () => {
        const before = await this.stat(path);
        if ((before ? etagOf(before) : null) !== expected) return { result: "lost" };
        const after = await this.placing.place(path, bytes, before);
        if (after) return { result: "swapped", etag: etagOf(after) };
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
      await this.placing.outlive(stat);
      await this.fs.unlink(path).catch(unlessMissing);
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

  /** The name is taken, but not by an object: saying `exists` or `lost` would send the caller round in circles. */
  async #refuseFolder(key: string, path: string): Promise<void> {
    const stat = await this.fs.stat(path).catch(unlessMissing);
    if (stat && stat.kind !== "file") throw crossing(key);
  }
}

const etagOf = (stat: FileStat): string => sha256hex(`${stat.inode} ${stat.size} ${stat.modifiedNs}`).slice(0, 16);

const info = (key: string, stat: FileStat): ObjectInfo => ({
  key,
  size: stat.size,
  etag: etagOf(stat),
  modifiedAt: new Date(Number(stat.modifiedNs / 1_000_000n)),
});

/** A folder cannot hold `a` and `a/b` at once: one of them is taken as the other kind. */
const crossing = (key: string): Failure =>
  new Failure("failed", `store: ${key} crosses an object and a folder of the same name`);

/** Full disks and kind conflicts under their own names; everything else as it came. */
async function naming<T>(key: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (isErrno(error, "ENOSPC", "EDQUOT")) throw new StoreFull(key, error);
    if (isErrno(error, "ENOTDIR", "EISDIR")) throw crossing(key);
    throw error;
  }
}

function unlessMissing(error: unknown): undefined {
  if (isErrno(error, "ENOENT", "ENOTDIR")) return undefined;
  throw error;
}

const SEGMENT = /^(?!\.{1,2}$)[A-Za-z0-9._=-]+$/;
const PREFIX = /^(?!\/)[A-Za-z0-9._=/-]*$/;

/**
 * Keys below `prefix` in bytewise order, after `startAfter`, one folder read at a time: a folder that holds nothing
 * wanted is never opened. Names that no key can have (our own `.~store`, an editor's backup) do not exist here.
 * @param root absolute path of the store.
 */
async function* walkKeys(fs: FsSeam, root: string, prefix: string, startAfter: string): AsyncGenerator<string> {
  // Nothing can lie below a prefix that no key starts with; `..` would leave the root.
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

/** @param folder key of the folder with its trailing slash, or "" for the root. */
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
      // Every key in it begins with its name: all are past when the name is, unless startAfter lies inside.
      if (key < startAfter && !startAfter.startsWith(key)) continue;
      yield* walkFolder(fs, root, key, prefix, startAfter);
    } else if (key.startsWith(prefix) && key > startAfter) {
      yield key;
    }
  }
}

/** Key characters are ASCII, so the order of UTF-16 units is the order of bytes; a folder sorts with its slash. */
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

/** Files that are synced at once: the disk's journal makes one step of several. */
const SYNCS_AT_ONCE = 16;

/**
 * Bulk of a folder: objects are written plainly and come into sight whole; `flush` syncs each file once, and then each
 * folder once, up to the root. An object that is there with other bytes is never replaced by one that is not durable: its
 * name may be needed by what was committed before.
 */
class DirectoryBulk implements Bulk {
  /** Keys whose bytes or names are not known to be durable, and whether they are ours. */
  #waiting = new Map<string, boolean>();
  /** Of a sync: nobody may rely on this bulk any more. */
  #fault: { error: unknown } | null = null;

  constructor(
    private readonly store: DirectoryStore,
    private readonly fs: FsSeam,
    private readonly root: string,
    private readonly placing: Placing,
  ) {}

  async put(key: string, bytes: Uint8Array): Promise<void> {
    const placed = await naming(key, () => this.placing.placeUnsynced(this.store.path(key), bytes));
    if (placed) this.#waiting.set(key, true);
    else if (Buffer.compare((await this.store.get(key))?.bytes ?? Buffer.alloc(0), bytes) === 0) this.adopt(key);
    // The slow and sure way: durable when it resolves.
    else await hold(this.store, key, bytes);
  }

  adopt(key: string): void {
    this.store.path(key);
    if (!this.#waiting.has(key)) this.#waiting.set(key, false);
  }

  async flush(): Promise<void> {
    const { fs, root } = this;
    const waiting = this.#waiting;
    this.#waiting = new Map();
    /** And a key in each of them. */
    const folders = new Map<string, string>();
    await this.#all(waiting, async ([key, isOurs]) => {
      const file = this.store.path(key);
      for (let folder = dirname(file); ; folder = dirname(folder)) {
        folders.set(folder, key);
        if (folder === root) break;
      }
      try {
        await naming(key, () => fs.sync(file));
      } catch (error) {
        // The kernel may have dropped what it could not write, and says so once: a later sync would find nothing amiss.
        if (isOurs) await fs.unlink(file).catch(() => undefined);
        throw error;
      }
    });
    await this.#all(folders, ([folder, key]) => naming(key, () => fs.sync(folder)));
    if (this.#fault) throw this.#fault.error;
  }

  /** All of it, whatever fails: what can be made durable is. */
  async #all<T>(items: Iterable<T>, work: (item: T) => Promise<void>): Promise<void> {
    for (const error of await allAtOnce(items, SYNCS_AT_ONCE, work)) this.#fault ??= { error };
  }
}
