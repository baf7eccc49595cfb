import { dirname } from "node:path";
import { allAtOnce } from "../concurrency.ts";
import type { FsSeam } from "./fs.ts";
import type { Placing } from "./placing.ts";
import type { Bulk } from "./store.ts";

/** Files that are synced at once: the disk's journal makes one step of several. */
const SYNCS_AT_ONCE = 16;

export interface DirectoryBulkParts {
  fs: FsSeam;
  root: string;
  placing: Placing;
  /** @throws BadKey */
  path: (key: string) => string;
  /** Errors of the file system under the store's names. */
  naming: <T>(key: string, work: () => Promise<T>) => Promise<T>;
  /** The bytes under this key, or null. */
  read: (key: string) => Promise<Uint8Array | null>;
  /** The slow and sure way: durable when it resolves. */
  hold: (key: string, bytes: Uint8Array) => Promise<void>;
}

/**
 * Bulk of a folder: objects are written plainly and come into sight whole; `settle` syncs each file once, and then each
 * folder once, up to the root. An object that is there with other bytes is never replaced by one that is not durable: its
 * name may be needed by what was committed before.
 */
export class DirectoryBulk implements Bulk {
  /** Keys whose bytes or names are not known to be durable, and whether they are ours. */
  #waiting = new Map<string, boolean>();
  /** Of a sync: nobody may rely on this bulk any more. */
  #fault: { error: unknown } | null = null;

  constructor(private readonly parts: DirectoryBulkParts) {}

  async put(key: string, bytes: Uint8Array): Promise<void> {
    const { placing, path, naming, read, hold } = this.parts;
    const placed = await naming(key, () => placing.placeUnsynced(path(key), bytes));
    if (placed) this.#waiting.set(key, true);
    else if (Buffer.compare((await read(key)) ?? Buffer.alloc(0), bytes) === 0) this.adopt(key);
    else await hold(key, bytes);
  }

  adopt(key: string): void {
    this.parts.path(key);
    if (!this.#waiting.has(key)) this.#waiting.set(key, false);
  }

  async settle(): Promise<void> {
    const { fs, root, path, naming } = this.parts;
    const waiting = this.#waiting;
    this.#waiting = new Map();
    /** And a key in each of them. */
    const folders = new Map<string, string>();
    await this.#all(waiting, async ([key, isOurs]) => {
      const file = path(key);
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
