import Database from "better-sqlite3";
import { isErrno, StoreBusy } from "./errors.ts";
import type { FolderLock } from "./fs.ts";

/** How long one swap waits for others before it gives up. */
const WAIT_MS = 10_000;
const RETRY_MS = 4;
/** Calls of one store that may stand in line. */
const MAX_WAITING = 10_000;

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
      if (waiting >= MAX_WAITING) throw new StoreBusy(path, 0);
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
          if (waited > WAIT_MS) throw new StoreBusy(path, waited);
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
