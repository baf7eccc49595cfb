import { randomBytes } from "node:crypto";
import { dirname } from "node:path";
import { DurableFolders, type FileStat, type FsSeam } from "./fs.ts";
import type { FolderLock } from "./lock.ts";
import { isErrno } from "./store.ts";

/** A process that starts collects garbage and may take our temporary file: write it again, this often. */
const TRIES = 3;

/**
 * Gives bytes a name in one atomic step: written to a temporary file, synced, then linked (only if the name is free) or
 * renamed (over the old object), then the folders synced. A crash anywhere shows the object whole or not at all. What is
 * to be synced later is whole for everybody who reads it, and may be torn or gone after a power cut.
 */
export class Placing {
  readonly #fs: FsSeam;
  readonly #temporary: string;
  readonly #folders: DurableFolders;
  /** Names of temporary files: no other process has this beginning. */
  readonly #own = randomBytes(12).toString("hex");
  #names = 0;

  /** @param root and `temporary`: existing folders on one file system. */
  constructor(fs: FsSeam, root: string, temporary: string) {
    this.#fs = fs;
    this.#temporary = temporary;
    this.#folders = new DurableFolders(fs, root);
  }

  /** Remove what writers that died left behind. A living creator notices and writes its file again. */
  async collectGarbage(lock: FolderLock): Promise<void> {
    const release = await lock.acquire();
    try {
      const left = await this.#fs.readdir(this.#temporary);
      for (const { name } of left) await this.#clear(`${this.#temporary}/${name}`);
    } finally {
      release();
    }
  }

  /**
   * Durable on return. `before` null: only if the name is free, else null is returned. `before` given: replaces that
   * object, and the caller holds the lock.
   */
  place(path: string, bytes: Uint8Array, before: FileStat | null): Promise<FileStat | null> {
    return this.#attempt(async (temporary) => {
      const stat = await this.#writeTemporary(temporary, bytes, before);
      await this.#folders.ensure(dirname(path));
      if (before) await this.#fs.rename(temporary, path);
      else await this.#fs.link(temporary, path);
      await this.#fs.sync(dirname(path));
      return stat;
    }, before === null);
  }

  /** In sight on return, and to be synced: file, folder and folders on the way. @returns false when the name is taken */
  async placeUnsynced(path: string, bytes: Uint8Array): Promise<boolean> {
    const placed = await this.#attempt(async (temporary) => {
      const file = await this.#fs.openNew(temporary);
      await file.write(bytes).finally(() => file.close());
      await this.#folders.make(dirname(path));
      await this.#fs.link(temporary, path);
      return true;
    }, true);
    return placed ?? false;
  }

  /** @param free is the name to be free? Then null says that it is not */
  async #attempt<T>(work: (temporary: string) => Promise<T>, free: boolean): Promise<T | null> {
    for (let attempt = 1; ; attempt++) {
      const temporary = this.#newName();
      try {
        return await work(temporary);
      } catch (error) {
        if (isErrno(error, "EEXIST") && free) return null;
        if (!isErrno(error, "ENOENT") || attempt === TRIES) throw error;
        this.#folders.forget();
      } finally {
        await this.#clear(temporary);
      }
    }
  }

  /** Make an object durable that somebody else placed: its writer may have died between the name and the syncs. */
  async adopt(path: string): Promise<void> {
    await this.#folders.ensure(dirname(path));
    await this.#fs.sync(path);
    await this.#fs.sync(dirname(path));
  }

  /**
   * Wait until a new file would be younger than `stat`, at most half a second (a clock that was set back). A full disk
   * ends the waiting: deleting is what would free it.
   */
  async outlive(stat: FileStat): Promise<void> {
    for (let tries = 0; tries < 100; tries++) {
      const now = await this.#diskTime();
      if (now === null || now > stat.modifiedNs) return;
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }

  async #diskTime(): Promise<bigint | null> {
    const probe = this.#newName();
    try {
      const file = await this.#fs.openNew(probe);
      return (await file.stat().finally(() => file.close())).modifiedNs;
    } catch (error) {
      if (isErrno(error, "ENOSPC", "EDQUOT")) return null;
      throw error;
    } finally {
      await this.#clear(probe);
    }
  }

  async #writeTemporary(path: string, bytes: Uint8Array, before: FileStat | null): Promise<FileStat> {
    const file = await this.#fs.openNew(path);
    try {
      await file.write(bytes);
      let stat = await file.stat();
      // The disk's clock ticks every few milliseconds: two swaps in one tick must still differ.
      if (before && stat.modifiedNs <= before.modifiedNs) {
        await file.setModified(Number(before.modifiedNs / 1_000_000n) + 2);
        stat = await file.stat();
      }
      await file.sync();
      return stat;
    } finally {
      await file.close();
    }
  }

  #newName(): string {
    return `${this.#temporary}/${this.#own}${this.#names++}`;
  }

  /** What cannot be removed now goes at the next open; it must not hide the error that brought us here. */
  async #clear(path: string): Promise<void> {
    await this.#fs.unlink(path).catch(() => undefined);
  }
}
