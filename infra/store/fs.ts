import { type BigIntStats, close, promises as disk, fstat, fsync, futimes, open, write } from "node:fs";
import { dirname, resolve } from "node:path";
import { promisify } from "node:util";
import { type FolderLock, openFolderLock } from "./lock.ts";
import { isErrno } from "./store.ts";

/**
 * What the directory store asks of a file system, one durable step each, so that a test can drop everything that was
 * not synced and fail any single step. POSIX meaning throughout, POSIX error codes on the thrown errors.
 */
export interface FsSeam {
  /** Open a file that must not exist yet (EEXIST). Its bytes and its name are volatile until synced. */
  openNew(path: string): Promise<NewFile>;
  /** fsync an existing file or folder. A folder's sync makes the names in it durable, not what they name. */
  sync(path: string): Promise<void>;
  /** One folder; its parent must exist. EEXIST when the name is taken. */
  mkdir(path: string): Promise<void>;
  /** A second name for a file; EEXIST when `to` is taken. The atomic step of create. */
  link(from: string, to: string): Promise<void>;
  /** Replaces `to`. The atomic step of swap. */
  rename(from: string, to: string): Promise<void>;
  unlink(path: string): Promise<void>;
  readdir(path: string): Promise<FolderEntry[]>;
  stat(path: string): Promise<FileStat>;
  /** Stat and bytes [start, end) through one descriptor, so both speak of the same version. `read` decides from the stat. */
  read(path: string, range: (stat: FileStat) => { start: number; end: number }): Promise<ReadFile>;
  /** The mutual exclusion of swaps on one folder, across processes. */
  openLock(path: string): FolderLock;
}

export interface NewFile {
  write(bytes: Uint8Array): Promise<void>;
  stat(): Promise<FileStat>;
  /** Set the modification time; milliseconds since 1970. */
  setModified(ms: number): Promise<void>;
  sync(): Promise<void>;
  close(): Promise<void>;
}

export interface FileStat {
  kind: "file" | "folder" | "other";
  size: number;
  inode: bigint;
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

const kindOf = (entry: { isFile(): boolean; isDirectory(): boolean }): FileStat["kind"] =>
  entry.isFile() ? "file" : entry.isDirectory() ? "folder" : "other";

const toStat = (s: BigIntStats): FileStat => ({
  kind: kindOf(s),
  size: Number(s.size),
  inode: s.ino,
  modifiedNs: s.mtimeNs,
});

/** By plain descriptors: the handles of node:fs/promises cost as much again as the calls themselves. */
const fd = {
  open: promisify(open),
  write: promisify(write),
  stat: promisify(fstat) as (file: number, how: { bigint: true }) => Promise<BigIntStats>,
  setTimes: promisify(futimes),
  sync: promisify(fsync),
  close: promisify(close),
};

async function openNew(path: string): Promise<NewFile> {
  const file = await fd.open(path, "wx", 0o644);
  return {
    write: async (bytes) => {
      for (let at = 0; at < bytes.length; ) at += (await fd.write(file, bytes, at, bytes.length - at)).bytesWritten;
    },
    stat: async () => toStat(await fd.stat(file, { bigint: true })),
    setModified: (ms) => fd.setTimes(file, ms / 1000, ms / 1000),
    sync: () => fd.sync(file),
    close: () => fd.close(file),
  };
}

async function sync(path: string): Promise<void> {
  const file = await fd.open(path, "r");
  try {
    await fd.sync(file);
  } finally {
    await fd.close(file);
  }
}

async function read(path: string, range: (stat: FileStat) => { start: number; end: number }): Promise<ReadFile> {
  const handle = await disk.open(path, "r");
  try {
    const stat = toStat(await handle.stat({ bigint: true }));
    const { start, end } = range(stat);
    const bytes = Buffer.allocUnsafeSlow(Math.max(0, end - start));
    for (let at = 0; at < bytes.length; ) {
      const { bytesRead } = await handle.read(bytes, at, bytes.length - at, start + at);
      if (bytesRead === 0) throw new Error(`${path} shrank while it was read`);
      at += bytesRead;
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
    (await disk.readdir(path, { withFileTypes: true })).map((e) => ({ name: e.name, kind: kindOf(e) })),
  stat: async (path) => toStat(await disk.stat(path, { bigint: true })),
  read,
  openLock: openFolderLock,
};

/** Folders remembered as durable; past this the memory is emptied and they are synced once more. */
const MAX_REMEMBERED = 50_000;

/**
 * Folders whose own name is on the disk for good. A file's fsync does not make its name durable, and its folder's fsync
 * does not make the folder's name durable: every parent up to the root has to be synced, also when another process made
 * the folder and may have died before its own sync.
 */
export class DurableFolders {
  readonly #fs: FsSeam;
  readonly #root: string;
  readonly #known = new Set<string>();
  /** Those that are there, and may be gone after a power cut. */
  readonly #made = new Set<string>();

  /** @param root an existing folder whose own name is already durable; see {@link makeFolder}. */
  constructor(fs: FsSeam, root: string) {
    this.#fs = fs;
    this.#root = root;
  }

  /** Make `folder` (below the root) and all on the way; on return each of them is named durably in its parent. */
  async ensure(folder: string): Promise<void> {
    if (folder === this.#root || this.#known.has(folder)) return;
    const parent = dirname(folder);
    await this.ensure(parent);
    await makeIfAbsent(this.#fs, folder);
    await this.#fs.sync(parent);
    if (this.#known.size >= MAX_REMEMBERED) this.#known.clear();
    this.#known.add(folder);
  }

  /** Make `folder` (below the root) and all on the way, without a sync of any. */
  async make(folder: string): Promise<void> {
    if (folder === this.#root || this.#known.has(folder) || this.#made.has(folder)) return;
    await this.make(dirname(folder));
    await makeIfAbsent(this.#fs, folder);
    if (this.#made.size >= MAX_REMEMBERED) this.#made.clear();
    this.#made.add(folder);
  }

  /** Forget everything: somebody removed a folder under us. */
  forget(): void {
    this.#known.clear();
    this.#made.clear();
  }
}

/** Looks before it makes: mkdir on a folder of somebody else's may say EACCES where EEXIST is meant. */
async function makeIfAbsent(fs: FsSeam, folder: string): Promise<void> {
  if (await isFolder(fs, folder)) return;
  try {
    await fs.mkdir(folder);
  } catch (error) {
    // Lost a race for the same folder, which is as good.
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
 * Make `path` and whatever is missing above it, and sync every folder on the way up: another process may have made them
 * and died before its own sync. Returns the absolute path.
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

/** A parent that we may not open, or that cannot be synced (a mount point's host), is not ours to make durable. */
async function syncIfAllowed(fs: FsSeam, folder: string): Promise<void> {
  try {
    await fs.sync(folder);
  } catch (error) {
    if (!isErrno(error, "EACCES", "EPERM", "EROFS", "EINVAL")) throw error;
  }
}
