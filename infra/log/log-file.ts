import { randomBytes } from "node:crypto";
import { closeSync, existsSync, fdatasync, openSync, realpathSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import Database from "better-sqlite3";
import { isErrno } from "../store/store.ts";
import { type KnownLog, LogRefused, NONE_KNOWN, refuseNewLog, refuseOtherLog } from "./log.ts";

/** Older libraries can lose acknowledged transactions when two connections write (the WAL-reset bug). */
const MIN_SQLITE = "3.51.3";
/** Form of the file (`user_version`); an older one is brought to it by {@link migrateLogFile}. */
export const LOG_FORMAT = 2;
/** Of 4, 8 and 16 KiB the fastest for records of half a kilobyte. */
const PAGE_BYTES = 16_384;
const CHECKPOINT_PAGES = 2_000;
const BUSY_MS = 5_000;
/** Between two tries of what SQLite refuses at once instead of waiting. */
const PAUSE_MS = 5;
const PARTITION_COUNTS = [1, 2, 4, 8, 16, 32, 64];

/** Offsets that a partition can hold: 512 partitions of 2^44 fill the 2^53 that a number keeps exactly. */
export const OFFSETS = 2 ** 44;
const MAX_PARTITIONS = 512;

/** The file of a log in its folder. */
export const logFileIn = (dir: string): string => join(dir, "log.sqlite");

/** An open log file. Each partition of each topic has a number; record `offset` of it has the position number * OFFSETS + offset. */
export interface LogFile {
  db: Database.Database;
  id: string;
  /** `topic/partition` -> its number. */
  numbers: ReadonlyMap<string, number>;
  /**
   * Resolves when everything that was committed before the call, by whatever process, survives power loss. Once it has
   * rejected it always does: of what a failed sync did not write the next one may say that all is well.
   */
  sync(): Promise<void>;
  /** Waits for syncs under way. */
  close(): Promise<void>;
}

export interface LogFileOptions {
  topics: readonly string[];
  partitions: number;
  maxBytes?: number;
  busyMs?: number;
  /** What is known of the log that the file should hold. */
  known?: KnownLog;
  /** Syncs an open file (default: the system's fdatasync). A test holds it up, or lets it fail. */
  syncFile?: (fd: number) => Promise<void>;
}

const SCHEMA = `
  CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
  -- first = first kept offset, next = next to be given; it survives truncation, so no offset is given twice.
  CREATE TABLE topic_partition (number INTEGER PRIMARY KEY, topic TEXT NOT NULL, partition INTEGER NOT NULL,
    first INTEGER NOT NULL, next INTEGER NOT NULL, UNIQUE (topic, partition)) STRICT;
  CREATE TABLE record (position INTEGER PRIMARY KEY, event_id TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL,
    appended_ms INTEGER NOT NULL) STRICT;
  PRAGMA user_version = ${LOG_FORMAT};
`;

/**
 * Open or create the file. `maxBytes` bounds its size: a full file answers as a full disk does. `busyMs`: how long to
 * wait for the write lock of another process.
 * @throws LogRefused when it is not a log of ours, or one with another partition count.
 */
export function openLogFile(path: string, options: LogFileOptions): LogFile {
  const {
    topics,
    partitions,
    maxBytes,
    busyMs = BUSY_MS,
    syncFile = promisify(fdatasync),
    known = NONE_KNOWN,
  } = options;
  if (!PARTITION_COUNTS.includes(partitions)) {
    throw new LogRefused(`log ${path}: ${partitions} partitions, only ${PARTITION_COUNTS.join(", ")} are possible`);
  }
  const db = new Database(path, { timeout: busyMs });
  try {
    assertSqlite(db.prepare<[], string>("SELECT sqlite_version()").pluck().get() ?? "");
    setDurable(db, path, busyMs);
    const id = db.transaction(() => createOrCheck(db, path, topics, partitions, known)).immediate();
    if (maxBytes !== undefined) db.pragma(`max_page_count = ${Math.max(1, Math.floor(maxBytes / PAGE_BYTES))}`);
    // SQLite's own sync at each commit would hold up the event loop for milliseconds: from here on it is ours (sync()).
    // Commits that no sync followed vanish with the power, the newest first, and the file stays whole.
    db.pragma("synchronous = NORMAL");
    return { db, id, numbers: readNumbers(db), ...syncing(db, `${realpathSync(path)}-wal`, syncFile) };
  } catch (error) {
    db.close();
    if (isErrno(error, "SQLITE_NOTADB", "SQLITE_CORRUPT")) {
      throw new LogRefused(`log ${path}: the file is damaged or no log; set it aside, do not delete it`, error);
    }
    throw error;
  }
}

/**
 * Syncs the write-ahead log outside the event loop. Calls that arrive while a sync runs share the next one, since the running
 * one may have begun before their bytes were written.
 */
function syncing(
  db: Database.Database,
  wal: string,
  syncFile: (fd: number) => Promise<void>,
): Pick<LogFile, "sync" | "close"> {
  // The same file for as long as a connection is open: SQLite writes it anew from its start, and deletes it with the last.
  const fd = openSync(wal, "r+");
  let last = Promise.resolve();
  let next: Promise<void> | null = null;
  const begin = (): Promise<void> => {
    next = null;
    return syncFile(fd);
  };
  return {
    sync() {
      if (next === null) last = next = last.then(begin);
      return next;
    },
    async close() {
      await last.catch(() => undefined);
      db.close();
      closeSync(fd);
    },
  };
}

/** @throws LogRefused when the SQLite library is older than {@link MIN_SQLITE}. */
export function assertSqlite(version: string): void {
  const [a, b] = [version, MIN_SQLITE].map((v) => v.split(".").map(Number));
  const differs = b!.findIndex((part, i) => part !== a![i]);
  const older = differs >= 0 && !(a![differs]! > b![differs]!);
  if (older) throw new LogRefused(`SQLite ${version} can lose acknowledged records, ${MIN_SQLITE} or newer is needed`);
}

/** Read the settings back: SQLite keeps the old mode without an error where it cannot do the new one. */
function setDurable(db: Database.Database, path: string, busyMs: number): void {
  db.pragma(`page_size = ${PAGE_BYTES}`);
  const mode = writeAhead(db, busyMs);
  if (mode !== "wal") throw new LogRefused(`log ${path}: this file system cannot hold a write-ahead log (${mode})`);
  // What makes the log is synced by SQLite itself, and the name of the new file with it.
  db.pragma("synchronous = FULL");
  if (db.pragma("synchronous", { simple: true }) !== 2)
    throw new LogRefused(`log ${path}: commits would not be synced`);
  db.pragma(`wal_autocheckpoint = ${CHECKPOINT_PAGES}`);
  db.pragma(`journal_size_limit = ${4 * CHECKPOINT_PAGES * PAGE_BYTES}`);
}

/**
 * Of two that turn a new file into a write-ahead log at the same moment SQLite refuses one at once, whatever time to wait it
 * was given: each would wait for the other. The one that is refused tries again, when the other is through.
 * @returns the mode that the file has now
 */
function writeAhead(db: Database.Database, busyMs: number): unknown {
  const sleeping = new Int32Array(new SharedArrayBuffer(4));
  const until = performance.now() + busyMs;
  for (;;) {
    try {
      return db.pragma("journal_mode = WAL", { simple: true });
    } catch (error) {
      // Where it did wait, the time is up.
      if (!isErrno(error, "SQLITE_BUSY") || performance.now() >= until) throw error;
      Atomics.wait(sleeping, 0, 0, PAUSE_MS);
    }
  }
}

/** Returns the log's id. In one transaction, so that two processes that start together make one log. */
function createOrCheck(
  db: Database.Database,
  path: string,
  topics: readonly string[],
  partitions: number,
  known: KnownLog,
): string {
  const format = formatOf(db, path);
  if (format !== 0 && format !== LOG_FORMAT) {
    throw new LogRefused(
      `log ${path}: an older version wrote it (format ${format}, this one has ${LOG_FORMAT}): touchstone migrate brings it forward`,
    );
  }
  if (format === 0) {
    refuseNewLog(path, known);
    db.exec(SCHEMA);
    const set = db.prepare("INSERT INTO meta VALUES (?, ?)");
    set.run("id", randomBytes(16).toString("hex"));
    set.run("partitions", String(partitions));
  }
  const get = db.prepare<[string], string>("SELECT value FROM meta WHERE name = ?").pluck();
  const kept = Number(get.get("partitions"));
  if (kept !== partitions) {
    throw new LogRefused(`log ${path}: has ${kept} partitions for good, it was opened with ${partitions}`);
  }
  const id = get.get("id")!;
  refuseOtherLog(path, id, known);
  addPartitions(db, topics, partitions);
  return id;
}

/** 0: an empty file. @throws LogRefused for one that a newer release wrote */
function formatOf(db: Database.Database, path: string): number {
  const format = Number(db.pragma("user_version", { simple: true }));
  if (format <= LOG_FORMAT) return format;
  throw new LogRefused(
    `log ${path}: a newer version wrote it (format ${format}, this one has ${LOG_FORMAT}): go on with that release; nothing was changed`,
  );
}

/** Statements that bring a file of a format to the next one. */
const STEPS: Readonly<Record<number, string>> = {
  1: `ALTER TABLE lane RENAME TO topic_partition;
    ALTER TABLE topic_partition RENAME COLUMN lane TO number;
    ALTER TABLE record RENAME COLUMN place TO position;`,
};

/**
 * Bring a log file to the format of today, in one transaction: a kill leaves it as it was. No process may have it open.
 * @returns the format that it had; null: there is no file, or an empty one
 * @throws LogRefused for a file of a newer release, or of a format that was never written; LogBusy's cause as it is
 */
export function migrateLogFile(path: string): number | null {
  if (!existsSync(path)) return null;
  const db = new Database(path, { timeout: BUSY_MS });
  try {
    const found = formatOf(db, path);
    if (found === 0 || found === LOG_FORMAT) return found || null;
    db.pragma("synchronous = FULL");
    db.transaction(() => {
      for (let format = formatOf(db, path); format < LOG_FORMAT; format++) {
        const step = STEPS[format];
        if (!step) throw new LogRefused(`log ${path}: format ${format} was never written`);
        db.exec(step);
        db.pragma(`user_version = ${format + 1}`);
      }
    }).exclusive();
    return found;
  } finally {
    db.close();
  }
}

/** Partitions are numbered as they come, so a topic that is new gets the next free numbers. */
function addPartitions(db: Database.Database, topics: readonly string[], partitions: number): void {
  const add = db.prepare(
    "INSERT INTO topic_partition SELECT coalesce(max(number) + 1, 0), ?, ?, 0, 0 FROM topic_partition WHERE true " +
      "ON CONFLICT DO NOTHING",
  );
  for (const topic of topics) for (let p = 0; p < partitions; p++) add.run(topic, p);
}

function readNumbers(db: Database.Database): ReadonlyMap<string, number> {
  const rows = db
    .prepare<[], { number: number; name: string }>(
      "SELECT number, topic || '/' || partition AS name FROM topic_partition",
    )
    .all();
  if (rows.some((row) => row.number >= MAX_PARTITIONS))
    throw new LogRefused(`more than ${MAX_PARTITIONS} partitions in one log`);
  return new Map(rows.map((row) => [row.name, row.number]));
}
