import { randomBytes } from "node:crypto";
import { dirname } from "node:path";
import { isDiskFull } from "../errors.ts";
import { DurableFolders, type FileStat, type FsSeam } from "./fs.ts";
import type { FolderLock } from "./lock.ts";
import { isErrno } from "./store.ts";

/**
 * Largest number of attempts to write an object. A process that starts may remove our temporary file as garbage, which
 * makes one attempt fail.
 */
const MAX_ATTEMPTS = 3;

/**
 * Writes objects as files: writes a temporary file, syncs it, links it to its name (if that is free) or renames it
 * over the old object, and syncs the folders. After a crash at any step the object is whole or absent. An object that
 * was placed without a sync is whole for readers, and may be torn or lost by a power cut.
 */
export class ObjectPlacer {
  readonly #fs: FsSeam;
  readonly #temporaryFolder: string;
  readonly #folders: DurableFolders;
  /** Random prefix of the names of this process's temporary files. */
  readonly #prefix = randomBytes(12).toString("hex");
  #usedNames = 0;

  /** `root` (the store's folder) and `temporary` must be existing folders on one file system. */
  constructor(fs: FsSeam, root: string, temporary: string) {
    this.#fs = fs;
    this.#temporaryFolder = temporary;
    this.#folders = new DurableFolders(fs, root);
  }

  /**
   * Removes all temporary files, since dead writers may have left them behind. A live writer whose file is removed
   * notices it and writes the file again.
   */
  async collectGarbage(lock: FolderLock): Promise<void> {
    const release = await lock.acquire();
    try {
      const leftovers = await this.#fs.readdir(this.#temporaryFolder);
      for (const { name } of leftovers) await this.#removeTemporary(`${this.#temporaryFolder}/${name}`);
    } finally {
      release();
    }
  }

  /**
   * Writes an object durably and returns the stat of its file. With `oldStat` null it creates the object, and returns
   * null when the name is taken. With `oldStat` it replaces that object; the caller must hold the lock.
   */
  place(path: string, bytes: Uint8Array, oldStat: FileStat | null): Promise<FileStat | null> {
    return this.#withTemporaryFile(async (temporary) => {
      const stat = await this.#writeTemporary(temporary, bytes, oldStat);
      await this.#folders.ensure(dirname(path));
      if (oldStat) await this.#fs.rename(temporary, path);
      else await this.#fs.link(temporary, path);
      await this.#fs.sync(dirname(path));
      return stat;
    }, oldStat === null);
  }

  /**
   * Creates an object without a sync: the caller syncs the file and all folders above it later.
   * @returns false when the name is taken
   */
  async placeUnsynced(path: string, bytes: Uint8Array): Promise<boolean> {
    const wasPlaced = await this.#withTemporaryFile(async (temporary) => {
      const file = await this.#fs.openNew(temporary);
      await file.write(bytes).finally(() => file.close());
      await this.#folders.make(dirname(path));
      await this.#fs.link(temporary, path);
      return true;
    }, true);
    return wasPlaced ?? false;
  }

  /**
   * Runs `work` with a temporary file name, again when another process removed the file.
   * @param mustBeFree true: returns null when the object's name is taken
   */
  async #withTemporaryFile<T>(work: (temporary: string) => Promise<T>, mustBeFree: boolean): Promise<T | null> {
    for (let attempt = 1; ; attempt++) {
      const temporary = this.#newName();
      try {
        return await work(temporary);
      } catch (error) {
        if (isErrno(error, "EEXIST") && mustBeFree) return null;
        if (!isErrno(error, "ENOENT") || attempt === MAX_ATTEMPTS) throw error;
        this.#folders.forget();
      } finally {
        await this.#removeTemporary(temporary);
      }
    }
  }

  /** Makes an object of another writer durable: that writer may have died after it linked the name and before it synced. */
  async adopt(path: string): Promise<void> {
    await this.#folders.ensure(dirname(path));
    await this.#fs.sync(path);
    await this.#fs.sync(dirname(path));
  }

  /**
   * Waits until a new file would get a later modification time than `stat`; at most half a second, in case the clock
   * was set back. Returns at once on a full disk, so that the caller can delete.
   */
  async waitPast(stat: FileStat): Promise<void> {
    for (let tries = 0; tries < 100; tries++) {
      const now = await this.#diskTime();
      if (now === null || now > stat.modifiedNs) return;
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }

  /** Returns the modification time that a new file gets, in ns since 1970; null on a full disk. */
  async #diskTime(): Promise<bigint | null> {
    const probePath = this.#newName();
    try {
      const file = await this.#fs.openNew(probePath);
      return (await file.stat().finally(() => file.close())).modifiedNs;
    } catch (error) {
      if (isDiskFull(error)) return null;
      throw error;
    } finally {
      await this.#removeTemporary(probePath);
    }
  }

  async #writeTemporary(path: string, bytes: Uint8Array, oldStat: FileStat | null): Promise<FileStat> {
    const file = await this.#fs.openNew(path);
    try {
      await file.write(bytes);
      let stat = await file.stat();
      // The disk's clock advances every few milliseconds; two swaps within one tick must still get different times.
      if (oldStat && stat.modifiedNs <= oldStat.modifiedNs) {
        await file.setModified(Number(oldStat.modifiedNs / 1_000_000n) + 2);
        stat = await file.stat();
      }
      await file.sync();
      return stat;
    } finally {
      await file.close();
    }
  }

  #newName(): string {
    return `${this.#temporaryFolder}/${this.#prefix}${this.#usedNames++}`;
  }

  /** Removes a temporary file. Errors are ignored, so as not to hide an earlier one; the next open removes what is left. */
  async #removeTemporary(path: string): Promise<void> {
    await this.#fs.unlink(path).catch(() => undefined);
  }
}
