import { mkdirSync } from "node:fs";
import { dirname } from "node:path";
import Database from "better-sqlite3";
import { Failure } from "../errors.ts";
import { isErrno } from "./store.ts";

/** Longest wait of one caller for the lock while other processes hold it, ms. */
const MAX_WAIT_MS = 10_000;
const RETRY_MS = 4;
/** Largest number of callers of this process that wait for the lock at once. */
const MAX_WAITING = 10_000;

/** Makes the error for a lock that could not be taken. Nothing was done, so the caller may try again. */
const lockTimeoutError = (path: string, ms: number): Failure =>
  new Failure("failed", `store: lock ${path} was held by others for ${Math.round(ms)} ms`, { retriable: true });

/** The lock of one folder, as one process uses it. */
export interface FolderLock {
  /**
   * Waits for earlier callers of this process, and then at most 10 s until no other process holds the lock.
   * @returns the function that releases the lock; it may be called once
   * @throws Failure when other processes held the lock longer, or too many callers wait
   */
  acquire(): Promise<() => void>;
  /** Waits until the lock is released in this process, then closes its file. */
  close(): Promise<void>;
}

/**
 * A lock between processes: the RESERVED lock that `BEGIN IMMEDIATE` takes on a SQLite file (Node has no flock). The
 * kernel releases it when the process ends, so kill -9 leaves nothing behind. Once the file exists, taking the lock
 * writes nothing, so it works on a full disk, where objects must be deleted.
 *
 * SQLite's own waiting is off and `acquire` retries on a timer: the holder may be another store of this process, which
 * could not release the lock while a blocking wait holds the thread.
 */
export function openFolderLock(path: string): FolderLock {
  const db = new Database(path, { timeout: 0 });
  makeFirstPage(db);
  const begin = db.prepare("BEGIN IMMEDIATE");
  const end = db.prepare("ROLLBACK");
  let lastRelease: Promise<void> = Promise.resolve();
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
      if (waiting >= MAX_WAITING) throw lockTimeoutError(path, 0);
      waiting++;
      // One connection holds at most one transaction, so callers of this lock object first wait for each other.
      const earlierRelease = lastRelease;
      let releaseNext = () => {};
      lastRelease = new Promise((resolve) => {
        releaseNext = resolve;
      });
      await earlierRelease;
      const startedAt = performance.now();
      try {
        while (!tryBegin()) {
          const waitedMs = performance.now() - startedAt;
          if (waitedMs > MAX_WAIT_MS) throw lockTimeoutError(path, waitedMs);
          await new Promise((resolve) => setTimeout(resolve, RETRY_MS * (0.5 + Math.random())));
        }
      } catch (error) {
        releaseNext();
        throw error;
      } finally {
        waiting--;
      }
      return () => {
        end.run();
        releaseNext();
      };
    },
    async close() {
      await lastRelease;
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
 * Chooses one of the processes that share a folder to do work that only one may do. That process holds the RESERVED
 * lock of a SQLite file until it calls `close`. The kernel drops the lock with the process, so after kill -9 another
 * can take it.
 */
export interface ProcessLock {
  /** Takes the lock if it is free. Returns true if this process holds it now. Never waits. */
  tryAcquire(): boolean;
  /** Releases the lock, so that another process can take it. */
  close(): void;
}

/** Opens a process lock. @param path file of the lock; it is created with its folder when absent */
export function openProcessLock(path: string): ProcessLock {
  mkdirSync(dirname(path), { recursive: true });
  const db = new Database(path, { timeout: 0 });
  let isHeld = false;
  return {
    tryAcquire() {
      if (isHeld) return true;
      try {
        db.exec("BEGIN IMMEDIATE");
        isHeld = true;
      } catch (error) {
        if (!isErrno(error, "SQLITE_BUSY")) throw error;
      }
      return isHeld;
    },
    close() {
      if (isHeld) db.exec("ROLLBACK");
      isHeld = false;
      db.close();
    },
  };
}
