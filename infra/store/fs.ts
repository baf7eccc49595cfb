import { type BigIntStats, close, promises as disk, fstat, fsync, futimes, open, write } from "node:fs";
import { promisify } from "node:util";
import { type FolderLock, openFolderLock } from "./lock.ts";

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
