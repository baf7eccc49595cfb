import { mkdirSync } from "node:fs";
import { dirname } from "node:path";
import Database from "better-sqlite3";
import { isErrno } from "./errors.ts";

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
