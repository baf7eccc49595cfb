import { mkdirSync } from "node:fs";
import { dirname } from "node:path";
import Database from "better-sqlite3";
import { Failure } from "../errors.ts";
import { isErrno } from "./store.ts";

/** How long one swap waits for others before it gives up. */
const WAIT_MS = 10_000;
const RETRY_MS = 4;
/** Calls of one store that may stand in line. */
const MAX_WAITING = 10_000;

/** Nothing was done: it may be tried again. */
const heldByOthers = (path: string, ms: number): Failure =>
  new Failure("failed", `store: lock ${path} was held by others for ${Math.round(ms)} ms`, { retriable: true });

/** One folder's lock as one process holds it. */
export interface FolderLock {
  /** Wait for the lock (bounded). @throws Failure when others held it too long */
  acquire(): Promise<() => void>;
  /** Waits for the holder of this very lock object. */
  close(): Promise<void>;
}

/**
 * A lock between processes: the RESERVED lock that `BEGIN IMMEDIATE` takes on a SQLite file (Node has no flock). The
 * kernel drops it with the process, so kill -9 leaves nothing behind. After the file was made nothing is written, so a
 * full disk can still be locked, and emptied.
 *
 * The busy handler is off and we retry on a timer: the holder may be another store of this very process, and a blocking
 * wait would keep it from ever letting go.
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
      // One connection holds at most one transaction, so calls of this store queue up first.
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

/** On a file without pages every lock would set one up in a journal and take it back. */
function makeFirstPage(db: Database.Database): void {
  try {
    if (db.pragma("user_version", { simple: true }) === 0) db.pragma("user_version = 1");
  } catch (error) {
    // Somebody else is making it, or holds the lock on one that is made.
    if (!isErrno(error, "SQLITE_BUSY")) throw error;
  }
}

/**
 * Which of the processes that share a folder does its one piece of work: the RESERVED lock of SQLite on a file, taken
 * once and kept. The kernel drops it with the process, so after kill -9 the next one that tries has it.
 */
export interface Keeper {
  /** True when this process is the keeper, from this call on. Never waits. */
  tries(): boolean;
  /** Lets go, so that another may. */
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
