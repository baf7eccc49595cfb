import { type BigIntStats, close, promises as disk, fstat, fsync, futimes, open, write } from "node:fs";
import { release } from "node:os";
import { promisify } from "node:util";
import { type FileBatch, openFileBatch } from "./file-batch.ts";
import { openFolderLock } from "./lock.ts";
import { syncWhole } from "./whole-sync.ts";

/**
 * What the directory store asks of a file system, one durable step each, so that a test can drop everything that was
 * not synced and fail any single step. POSIX meaning throughout, POSIX error codes on the thrown errors.
 */
export interface FsSeam {
  /** Open a file that must not exist yet (EEXIST). Its bytes and its name are volatile until synced. */
  openNew(path: string): Promise<NewFile>;
  /** fsync an existing file or folder. A folder's sync makes the names in it durable, not what they name. */
  sync(path: string): Promise<void>;
  /**
   * Make durable, at once, every file and every name that the file system of `path` holds by now, whoever wrote them.
   * False where this machine cannot, or cannot be trusted to: then nothing is known, and each is synced by itself.
   */
  syncAll(path: string): Promise<boolean>;
  /** One folder; its parent must exist. EEXIST when the name is taken. */
  mkdir(path: string): Promise<void>;
  /** A second name for a file; EEXIST when `to` is taken. The atomic step of create. */
  link(from: string, to: string): Promise<void>;
  /** Replaces `to`. The atomic step of swap. */
  rename(from: string, to: string): Promise<void>;
  unlink(path: string): Promise<void>;
  /** Many files at once. */
  openBatch(): FileBatch;
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

export interface FolderLock {
  /** Wait for the lock (bounded). @throws StoreBusy */
  acquire(): Promise<() => void>;
  /** Waits for the holder of this very lock object. */
  close(): Promise<void>;
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
  const handle = await disk.open(path, "r");
  try {
    await handle.sync();
  } finally {
    await handle.close();
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

/**
 * File systems of Linux whose syncfs(2) writes all that is dirty and waits for the disk. Others (FUSE, 9p, old overlays)
 * may only hand it on to somebody who does not. By statfs(2): ext2 to 4, XFS, Btrfs, F2FS, ZFS, tmpfs.
 */
const SYNCED_WHOLE: ReadonlySet<number> = new Set([0xef53, 0x58465342, 0x9123683e, 0xf2f52010, 0x2fc12fc1, 0x01021994]);

/** From Linux 5.8 on syncfs(2) fails when something could not be written back; before, it says that all is well. */
export function tellsOfErrors(kernel: string): boolean {
  const [major = 0, minor = 0] = kernel.split(".").map(Number);
  return major > 5 || (major === 5 && minor >= 8);
}

async function syncAll(path: string): Promise<boolean> {
  if (process.platform !== "linux" || !tellsOfErrors(release())) return false;
  const { type } = await disk.statfs(path);
  if (!SYNCED_WHOLE.has(type >>> 0)) return false;
  return syncWhole(path);
}

/** The file system of this machine. */
export const nodeFs: FsSeam = {
  openNew,
  sync,
  syncAll,
  mkdir: async (path) => {
    await disk.mkdir(path, { mode: 0o755 });
  },
  link: (from, to) => disk.link(from, to),
  rename: (from, to) => disk.rename(from, to),
  unlink: (path) => disk.unlink(path),
  openBatch: openFileBatch,
  readdir: async (path) =>
    (await disk.readdir(path, { withFileTypes: true })).map((e) => ({ name: e.name, kind: kindOf(e) })),
  stat: async (path) => toStat(await disk.stat(path, { bigint: true })),
  read,
  openLock: openFolderLock,
};
