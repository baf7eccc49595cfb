import { dirname } from "node:path";
import { isErrno } from "./errors.ts";
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
 * Bulk of a folder. Bytes go to temporary files; now and then one sync of the whole file system makes all of them
 * durable, and only then they get their names; `settle` syncs once more, for the names. So every object in sight is
 * whole on the disk, as with `create`, for two syncs instead of three a file. Where the file system cannot be synced
 * whole each object is placed by itself.
 */
export class DirectoryBulk implements Bulk {
  #staged: Staged[] = [];
  #bytes = 0;
  /** Paths in place whose names are not known to be durable. */
  #unnamed = new Set<string>();
  readonly #folders = new Set<string>();
  #flushing: Promise<void> = Promise.resolve();
  #fault: { error: unknown } | null = null;

  constructor(private readonly parts: DirectoryBulkParts) {}

  async put(key: string, bytes: Uint8Array): Promise<void> {
    const { naming, placing, path } = this.parts;
    this.#throwFault();
    const at = path(key);
    const temporary = await naming(key, () => placing.stage(bytes));
    this.#staged.push({ key, path: at, temporary, bytes });
    this.#bytes += bytes.length;
    if (this.#bytes < FLUSH_BYTES && this.#staged.length < FLUSH_OBJECTS) return;
    // One batch fills while the one before it is written; a third has to wait.
    await this.#flushing;
    if (this.#bytes >= FLUSH_BYTES || this.#staged.length >= FLUSH_OBJECTS) this.#flush();
  }

  adopt(key: string): void {
    this.#unnamed.add(this.parts.path(key));
  }

  async settle(): Promise<void> {
    await this.#flushing;
    this.#flush();
    await this.#flushing;
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
    this.#flushing = this.#placed(batch).catch((error: unknown) => {
      this.#fault ??= { error };
    });
  }

  async #placed(batch: Staged[]): Promise<void> {
    const { fs, root, placing, hold } = this.parts;
    if (batch.length === 0) return;
    try {
      // After a fault the batch is only cleared away.
      if (this.#fault) return;
      const durable = await fs.syncAll(root);
      await lanes(batch, async ({ key, path, temporary, bytes }) => {
        if (durable && (await this.parts.naming(key, () => this.#linked(path, temporary)))) this.#unnamed.add(path);
        else await hold(key, bytes);
      });
    } finally {
      await lanes(batch, ({ temporary }) => placing.clear(temporary));
    }
  }

  /** False when the name is taken, or the temporary file was swept away. */
  async #linked(path: string, temporary: string): Promise<boolean> {
    const { fs, root } = this.parts;
    try {
      await makeFolders(fs, root, dirname(path), this.#folders);
      await fs.link(temporary, path);
      return true;
    } catch (error) {
      if (!isErrno(error, "EEXIST", "ENOENT")) throw error;
      // Somebody may have removed a folder under us.
      this.#folders.clear();
      return false;
    }
  }

  #throwFault(): void {
    if (this.#fault) throw this.#fault.error;
  }
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
