import { mkdirSync } from "node:fs";
import { dirname } from "node:path";
import Database from "better-sqlite3";
import { Failure } from "../errors.ts";
import { isErrno } from "./store.ts";

/** Longest wait of one caller for other processes, ms. */
const WAIT_MS = 10_000;
const RETRY_MS = 4;
/** Most callers of this process that wait for the lock at once. */
const MAX_WAITING = 10_000;

/** Nothing was done: it may be tried again. */
const heldByOthers = (path: string, ms: number): Failure =>
  new Failure("failed", `store: lock ${path} was held by others for ${Math.round(ms)} ms`, { retriable: true });

/** One folder's lock as one process holds it. */
export interface FolderLock {
  /** Wait for the lock (bounded). @throws Failure when others held it too long */
  acquire(): Promise<() => void>;
  /** Waits until the lock is released in this process, then closes its file. */
  close(): Promise<void>;
}

/**
 * A lock between processes: the RESERVED lock that `BEGIN IMMEDIATE` takes on a SQLite file (Node has no flock). The
 * kernel drops it with the process, so kill -9 leaves nothing behind. Taking it writes nothing once the file was made, so
 * the lock works on a full disk, and objects can be deleted there.
 *
 * SQLite's busy handler is off and `acquire` retries on a timer: the holder may be another store of this process, which could
 * never release the lock while a blocking wait holds its thread.
 */
export function openFolderLock(path: string): FolderLock {
  const db = new Database(path, { timeout: 0 });
  makeFirstPage(db);
  const begin = db.prepare("BEGIN IMMEDIATE");
  const end = db.prepare("ROLLBACK");
  let held: Promise<void> = Promise.resolve();
  let waiting = 0;

  const tryBegin = (): boolean => {
    try {
      begin.run();
      return true;
    } catch (error) {
      if (isErrno(error, "SQLITE_BUSY")) return false;
      throw error;
    }
  };

  return {
    async acquire() {
      if (waiting >= MAX_WAITING) throw heldByOthers(path, 0);
      waiting++;
      // One connection holds at most one transaction, so callers of this lock object first wait for each other.
      const before = held;
      let free = () => {};
      held = new Promise((resolve) => {
        free = resolve;
      });
      await before;
      const from = performance.now();
      try {
        while (!tryBegin()) {
          const waited = performance.now() - from;
          if (waited > WAIT_MS) throw heldByOthers(path, waited);
          await new Promise((resolve) => setTimeout(resolve, RETRY_MS * (0.5 + Math.random())));
        }
      } catch (error) {
        free();
        throw error;
      } finally {
        waiting--;
      }
      return () => {
        end.run();
        free();
      };
    },
    async close() {
      await held;
      db.close();
    },
  };
}

/** Writes the first page of the file. Without it, every lock would make that page in a journal and roll it back. */
function makeFirstPage(db: Database.Database): void {
  try {
    if (db.pragma("user_version", { simple: true }) === 0) db.pragma("user_version = 1");
  } catch (error) {
    // Another process is writing the first page, or holds the lock.
    if (!isErrno(error, "SQLITE_BUSY")) throw error;
  }
}

/**
 * Chooses one of the processes that share a folder to do work that only one may do. That process holds the RESERVED lock of
 * a SQLite file until it closes it. The kernel drops the lock with the process, so after kill -9 another can take it.
 */
export interface Keeper {
  /** True when this process is the keeper, from this call on. Never waits. */
  tries(): boolean;
  /** Releases the lock, so that another process can take it. */
  close(): void;
}

/** @param path file of the lock; it is made with its folder when there is none */
export function openKeeper(path: string): Keeper {
  mkdirSync(dirname(path), { recursive: true });
  const db = new Database(path, { timeout: 0 });
  let held = false;
  return {
    tries() {
      if (held) return true;
      try {
        db.exec("BEGIN IMMEDIATE");
        held = true;
      } catch (error) {
        if (!isErrno(error, "SQLITE_BUSY")) throw error;
      }
      return held;
    },
    close() {
      if (held) db.exec("ROLLBACK");
      held = false;
      db.close();
    },
  };
}
