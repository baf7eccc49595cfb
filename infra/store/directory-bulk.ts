import { dirname } from "node:path";
import type { FileBatch } from "./file-batch.ts";
import { makeFolders } from "./folders.ts";
import type { FsSeam } from "./fs.ts";
import type { Placing } from "./placing.ts";
import type { Bulk } from "./store.ts";

/** Staged bytes that are worth a sync of the disk: what a process that dies has to fetch again, at most twice. */
const FLUSH_BYTES = 32 * 1024 * 1024;
const FLUSH_OBJECTS = 4_096;
/** Steps of the file system at once. */
const LANES = 8;

interface Staged {
  key: string;
  path: string;
  temporary: string;
  /** Kept until the object is in place: a process that starts sweeps temporary files away. */
  bytes: Uint8Array;
}

export interface DirectoryBulkParts {
  fs: FsSeam;
  root: string;
  placing: Placing;
  /** @throws BadKey */
  path: (key: string) => string;
  /** Errors of the file system under the store's names. */
  naming: <T>(key: string, work: () => Promise<T>) => Promise<T>;
  /** The slow and sure way: durable when it resolves. */
  hold: (key: string, bytes: Uint8Array) => Promise<void>;
}

/**
 * Bulk of a folder. Objects wait in memory; a batch of them is written to temporary files, one sync of the whole file
 * system makes all of these durable, and only then they get their names; `settle` syncs once more, for the names. So
 * every object in sight is whole on the disk, as with `create`, for two syncs instead of three a file. Where the file
 * system cannot be synced whole each object is placed by itself.
 */
export class DirectoryBulk implements Bulk {
  #staged: Staged[] = [];
  #bytes = 0;
  /** Paths in place whose names are not known to be durable. */
  #unnamed = new Set<string>();
  readonly #folders = new Set<string>();
  readonly #files: FileBatch;
  #flushing: Promise<void> = Promise.resolve();
  #fault: { error: unknown } | null = null;

  constructor(private readonly parts: DirectoryBulkParts) {
    this.#files = parts.fs.openBatch();
  }

  async put(key: string, bytes: Uint8Array): Promise<void> {
    this.#throwFault();
    const path = this.parts.path(key);
    this.#staged.push({ key, path, temporary: this.parts.placing.newName(), bytes });
    this.#bytes += bytes.length;
    if (!this.#isFull()) return;
    // One batch fills while the one before it is written; a third has to wait.
    await this.#flushing;
    if (this.#isFull()) this.#flush();
  }

  #isFull(): boolean {
    return this.#bytes >= FLUSH_BYTES || this.#staged.length >= FLUSH_OBJECTS;
  }

  adopt(key: string): void {
    this.#unnamed.add(this.parts.path(key));
  }

  async settle(): Promise<void> {
    await this.#flushing;
    this.#flush();
    await this.#flushing;
    await this.#files.close();
    this.#throwFault();
    const { fs, root, placing } = this.parts;
    const unnamed = this.#unnamed;
    this.#unnamed = new Set();
    if (unnamed.size === 0 || (await fs.syncAll(root))) return;
    await lanes(unnamed, (path) => placing.adopt(path));
  }

  /** Begin to place what is staged. Its fault is told by the next call; never rejects. */
  #flush(): void {
    const batch = this.#staged;
    [this.#staged, this.#bytes] = [[], 0];
    // After a fault nothing more is placed.
    if (this.#fault || batch.length === 0) return;
    this.#flushing = this.#placed(batch).catch((error: unknown) => {
      this.#fault ??= { error };
    });
  }

  async #placed(batch: Staged[]): Promise<void> {
    const { fs, root, placing, hold, naming } = this.parts;
    const left = new Set(batch.map(({ temporary }) => temporary));
    try {
      const written = await this.#files.write(batch.map(({ temporary: path, bytes }) => ({ path, bytes })));
      for (const [i, { key }] of batch.entries()) await naming(key, async () => refuse(written[i], key));
      let slow = batch;
      if (await fs.syncAll(root)) {
        for (const { key, path } of batch) await naming(key, () => makeFolders(fs, root, dirname(path), this.#folders));
        const moved = await this.#files.move(batch.map(({ temporary: from, path: to }) => ({ from, to })));
        left.clear();
        slow = [];
        for (const [i, one] of batch.entries()) {
          // The name is taken, or the temporary file was swept away.
          if (moved[i] === "EEXIST" || moved[i] === "ENOENT") slow.push(one);
          else await naming(one.key, async () => refuse(moved[i], one.key));
          if (moved[i] === null) this.#unnamed.add(one.path);
        }
        // Somebody may have removed a folder under us.
        if (slow.length > 0) this.#folders.clear();
      }
      await lanes(slow, ({ key, bytes }) => hold(key, bytes));
    } finally {
      await lanes(left, (temporary) => placing.clear(temporary));
    }
  }

  #throwFault(): void {
    if (this.#fault) throw this.#fault.error;
  }
}

/** @throws the error that a file of a batch ended with */
function refuse(code: string | null | undefined, key: string): void {
  if (code) throw Object.assign(new Error(`${code}: ${key}`), { code });
}

/** All of it with a few steps under way; the first fault is thrown after all that was begun has ended. */
async function lanes<T>(items: Iterable<T>, work: (item: T) => Promise<void>): Promise<void> {
  const iterator = items[Symbol.iterator]();
  let fault: { error: unknown } | null = null;
  const lane = async () => {
    for (let next = iterator.next(); !next.done && !fault; next = iterator.next()) {
      await work(next.value).catch((error: unknown) => {
        fault ??= { error };
      });
    }
  };
  await Promise.all(Array.from({ length: LANES }, lane));
  if (fault) throw (fault as { error: unknown }).error;
}
