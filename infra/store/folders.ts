import { dirname, resolve } from "node:path";
import { isErrno } from "./errors.ts";
import type { FsSeam } from "./fs.ts";

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
