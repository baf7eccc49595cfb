import { type BigIntStats, close, promises as disk, fstat, fsync, futimes, open, write } from "node:fs";
import { dirname, resolve } from "node:path";
import { promisify } from "node:util";
import { type FolderLock, openFolderLock } from "./lock.ts";
import { isErrno } from "./store.ts";

/**
 * The file system calls of the directory store, with POSIX semantics and POSIX error codes on the errors. Tests
 * implement it to fail any single call, and to lose everything that was not synced.
 */
export interface FsSeam {
  /** Creates a file; EEXIST when the name is taken. Its bytes and its name can be lost until they are synced. */
  openNew(path: string): Promise<NewFile>;
  /** Calls fsync on a file or folder. For a folder this makes the names in it durable, not the contents of its files. */
  sync(path: string): Promise<void>;
  /** Creates a folder; its parent must exist. EEXIST when the name is taken. */
  mkdir(path: string): Promise<void>;
  /** Gives a file a second name; EEXIST when `to` is taken. The store creates objects atomically with this call. */
  link(from: string, to: string): Promise<void>;
  /** Renames a file over `to`. The store swaps objects atomically with this call. */
  rename(from: string, to: string): Promise<void>;
  unlink(path: string): Promise<void>;
  readdir(path: string): Promise<FolderEntry[]>;
  stat(path: string): Promise<FileStat>;
  /**
   * Reads a file's stat and, through the same descriptor, the bytes that `range` chooses by that stat, so that stat and
   * bytes are of one version of the file.
   */
  read(path: string, range: (stat: FileStat) => { start: number; end: number }): Promise<ReadFile>;
  /** Opens the lock that the processes sharing a store take for swaps and deletes. */
  openLock(path: string): FolderLock;
}

export interface NewFile {
  write(bytes: Uint8Array): Promise<void>;
  stat(): Promise<FileStat>;
  /** Sets the modification time, milliseconds since 1970. */
  setModified(ms: number): Promise<void>;
  sync(): Promise<void>;
  close(): Promise<void>;
}

export interface FileStat {
  kind: "file" | "folder" | "other";
  size: number;
  inode: bigint;
  /** Modification time, nanoseconds since 1970. */
  modifiedNs: bigint;
}

export interface FolderEntry {
  name: string;
  kind: "file" | "folder" | "other";
}

export interface ReadFile {
  stat: FileStat;
  bytes: Uint8Array;
}

const entryKind = (entry: { isFile(): boolean; isDirectory(): boolean }): FileStat["kind"] =>
  entry.isFile() ? "file" : entry.isDirectory() ? "folder" : "other";

const toStat = (s: BigIntStats): FileStat => ({
  kind: entryKind(s),
  size: Number(s.size),
  inode: s.ino,
  modifiedNs: s.mtimeNs,
});

/** Calls on plain descriptors. The file handles of node:fs/promises would double the cost of each call. */
const fdCalls = {
  open: promisify(open),
  write: promisify(write),
  stat: promisify(fstat) as (file: number, how: { bigint: true }) => Promise<BigIntStats>,
  setTimes: promisify(futimes),
  sync: promisify(fsync),
  close: promisify(close),
};

async function openNew(path: string): Promise<NewFile> {
  const file = await fdCalls.open(path, "wx", 0o644);
  return {
    write: async (bytes) => {
      for (let offset = 0; offset < bytes.length; )
        offset += (await fdCalls.write(file, bytes, offset, bytes.length - offset)).bytesWritten;
    },
    stat: async () => toStat(await fdCalls.stat(file, { bigint: true })),
    setModified: (ms) => fdCalls.setTimes(file, ms / 1000, ms / 1000),
    sync: () => fdCalls.sync(file),
    close: () => fdCalls.close(file),
  };
}

async function sync(path: string): Promise<void> {
  const file = await fdCalls.open(path, "r");
  try {
    await fdCalls.sync(file);
  } finally {
    await fdCalls.close(file);
  }
}

async function read(path: string, range: (stat: FileStat) => { start: number; end: number }): Promise<ReadFile> {
  const handle = await disk.open(path, "r");
  try {
    const stat = toStat(await handle.stat({ bigint: true }));
    const { start, end } = range(stat);
    const bytes = Buffer.allocUnsafeSlow(Math.max(0, end - start));
    for (let offset = 0; offset < bytes.length; ) {
      const { bytesRead } = await handle.read(bytes, offset, bytes.length - offset, start + offset);
      if (bytesRead === 0) throw new Error(`${path} shrank while it was read`);
      offset += bytesRead;
    }
    return { stat, bytes };
  } finally {
    await handle.close();
  }
}

/** The file system of this machine. */
export const nodeFs: FsSeam = {
  openNew,
  sync,
  mkdir: async (path) => {
    await disk.mkdir(path, { mode: 0o755 });
  },
  link: (from, to) => disk.link(from, to),
  rename: (from, to) => disk.rename(from, to),
  unlink: (path) => disk.unlink(path),
  readdir: async (path) =>
    (await disk.readdir(path, { withFileTypes: true })).map((e) => ({ name: e.name, kind: entryKind(e) })),
  stat: async (path) => toStat(await disk.stat(path, { bigint: true })),
  read,
  openLock: openFolderLock,
};

/**
 * Largest number of folders that are remembered as durable. When there are more, all are forgotten and synced again on
 * their next use.
 */
const MAX_REMEMBERED_FOLDERS = 50_000;

/**
 * Makes folders and remembers those whose names are durable. An fsync of a file does not make the file's name
 * durable, and an fsync of its folder does not make the folder's name durable. So every parent up to the root is
 * synced, even if another process made the folder: that process may have died before its sync.
 */
export class DurableFolders {
  readonly #fs: FsSeam;
  readonly #root: string;
  readonly #durableFolders = new Set<string>();
  /** Folders that exist and may be lost by a power cut. */
  readonly #createdFolders = new Set<string>();

  /** @param root an existing folder whose own name is already durable; see {@link makeFolder}. */
  constructor(fs: FsSeam, root: string) {
    this.#fs = fs;
    this.#root = root;
  }

  /** Makes `folder` (below the root) and its parents; on return the names of all of them are durable. */
  async ensure(folder: string): Promise<void> {
    if (folder === this.#root || this.#durableFolders.has(folder)) return;
    const parent = dirname(folder);
    await this.ensure(parent);
    await makeIfAbsent(this.#fs, folder);
    await this.#fs.sync(parent);
    if (this.#durableFolders.size >= MAX_REMEMBERED_FOLDERS) this.#durableFolders.clear();
    this.#durableFolders.add(folder);
  }

  /** Makes `folder` (below the root) and its parents without a sync. */
  async make(folder: string): Promise<void> {
    if (folder === this.#root || this.#durableFolders.has(folder) || this.#createdFolders.has(folder)) return;
    await this.make(dirname(folder));
    await makeIfAbsent(this.#fs, folder);
    if (this.#createdFolders.size >= MAX_REMEMBERED_FOLDERS) this.#createdFolders.clear();
    this.#createdFolders.add(folder);
  }

  /** Forgets all folders, after another process removed one. */
  forget(): void {
    this.#durableFolders.clear();
    this.#createdFolders.clear();
  }
}

/**
 * Makes a folder unless it exists. It calls stat first, since mkdir of an existing folder of another user may fail with
 * EACCES instead of EEXIST.
 */
async function makeIfAbsent(fs: FsSeam, folder: string): Promise<void> {
  if (await isFolder(fs, folder)) return;
  try {
    await fs.mkdir(folder);
  } catch (error) {
    // Another process made the folder in between.
    if (!isErrno(error, "EEXIST") || !(await isFolder(fs, folder))) throw error;
  }
}

async function isFolder(fs: FsSeam, path: string): Promise<boolean> {
  try {
    const { kind } = await fs.stat(path);
    if (kind === "folder") return true;
  } catch (error) {
    if (isErrno(error, "ENOENT")) return false;
    throw error;
  }
  throw Object.assign(new Error(`ENOTDIR: ${path} is no folder`), { code: "ENOTDIR" });
}

/**
 * Creates `path` and its missing parents, and syncs every parent folder: another process may have created one and died
 * before its sync. @returns the absolute path
 */
export async function makeFolder(fs: FsSeam, path: string): Promise<string> {
  const folder = resolve(path);
  const parent = dirname(folder);
  if (parent === folder) return folder;
  await makeFolder(fs, parent);
  await makeIfAbsent(fs, folder);
  await syncIfAllowed(fs, parent);
  return folder;
}

/**
 * Syncs a folder, unless this process may not open it, or its file system cannot sync it (it may belong to another
 * mount).
 */
async function syncIfAllowed(fs: FsSeam, folder: string): Promise<void> {
  try {
    await fs.sync(folder);
  } catch (error) {
    if (!isErrno(error, "EACCES", "EPERM", "EROFS", "EINVAL")) throw error;
  }
}
