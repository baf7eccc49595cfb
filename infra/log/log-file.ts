import { randomBytes } from "node:crypto";
import { closeSync, existsSync, fdatasync, openSync, realpathSync } from "node:fs";
import { basename, join } from "node:path";
import { promisify } from "node:util";
import Database from "better-sqlite3";
import { isErrno } from "../store/store.ts";
import { type KnownLog, LogRefused, NONE_KNOWN, refuseNewLog, refuseOtherLog } from "./log.ts";

/**
 * Oldest version of SQLite that is accepted. Older ones can lose acknowledged transactions when two connections write
 * (the WAL-reset bug).
 */
const MIN_SQLITE = "3.51.3";
/** Version of the file's format (`user_version`). {@link migrateLogFile} brings an older file to it. */
export const LOG_FORMAT = 2;
/** Page size of a new file: of 4, 8 and 16 KiB the fastest for records of half a kilobyte. */
const PAGE_BYTES = 16_384;
/** Number of pages in the write-ahead log at which SQLite copies them into the main file (SQLite's own checkpoint). */
const CHECKPOINT_PAGES = 2_000;
const BUSY_TIMEOUT_MS = 5_000;
/** Pause between two attempts to set the journal mode, which SQLite refuses at once instead of waiting, ms. */
const RETRY_PAUSE_MS = 5;
const PARTITION_COUNTS = [1, 2, 4, 8, 16, 32, 64];

/**
 * Number of offsets that one partition can hold: 512 partitions of 2^44 offsets fill the 2^53 integers that a double
 * holds exactly.
 */
export const OFFSETS_PER_PARTITION = 2 ** 44;
const MAX_PARTITIONS = 512;

/** Returns the path of a log's file in its folder. */
export const logFileIn = (dir: string): string => join(dir, "log.sqlite");

/**
 * An open log file. Each partition of each topic has a number. The record at `offset` of a partition has the position
 * number * OFFSETS_PER_PARTITION + offset.
 */
export interface LogFile {
  db: Database.Database;
  /** Random id of the log, drawn when the file was created. */
  id: string;
  /** Number of partitions of each topic. */
  partitions: number;
  /** Number of each partition, by `topic/partition`. */
  numbers: ReadonlyMap<string, number>;
  /**
   * Resolves when all transactions that any process committed to the file before the call survive power loss. After
   * one rejection every later call rejects too, since the system reports a failed write once, and a later sync would
   * succeed without those bytes.
   */
  sync(): Promise<void>;
  /** Waits for running syncs, then closes the file. */
  close(): Promise<void>;
}

export interface LogFileOptions {
  topics: readonly string[];
  /** Number of partitions of a new log; an existing log keeps its own. */
  partitions: number;
  /** Largest size of the file, bytes (default: no limit). */
  maxBytes?: number;
  /** Longest wait for another process's write lock, ms (default 5,000). */
  busyMs?: number;
  /** Facts from other files about the log that this file should hold. */
  known?: KnownLog;
  /** Syncs an open file (default: fdatasync). Tests delay it or let it fail. */
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
 * Opens or creates the file. `maxBytes` limits its size; a full file fails as a full disk does. `busyMs` is the longest
 * wait for another process's write lock.
 * @throws LogRefused when the file is not a log of ours
 */
export function openLogFile(path: string, options: LogFileOptions): LogFile {
  const {
    topics,
    partitions,
    maxBytes,
    busyMs = BUSY_TIMEOUT_MS,
    syncFile = promisify(fdatasync),
    known = NONE_KNOWN,
  } = options;
  if (!PARTITION_COUNTS.includes(partitions)) {
    throw new LogRefused(`log ${path}: ${partitions} partitions, only ${PARTITION_COUNTS.join(", ")} are possible`);
  }
  const db = new Database(path, { timeout: busyMs });
  try {
    assertSqliteVersion(db.prepare<[], string>("SELECT sqlite_version()").pluck().get() ?? "");
    setDurable(db, path, busyMs);
    const made = db.transaction(() => createOrCheck(db, path, topics, partitions, known)).immediate();
    if (maxBytes !== undefined) db.pragma(`max_page_count = ${Math.max(1, Math.floor(maxBytes / PAGE_BYTES))}`);
    // SQLite's own sync at each commit would block the event loop for milliseconds, so from here on sync() does it. A
    // power cut may drop the newest commits that no sync followed; the file stays consistent.
    db.pragma("synchronous = NORMAL");
    return { db, ...made, numbers: readNumbers(db), ...createSync(db, `${realpathSync(path)}-wal`, syncFile) };
  } catch (error) {
    db.close();
    if (isErrno(error, "SQLITE_NOTADB", "SQLITE_CORRUPT")) {
      const name = basename(path);
      throw new LogRefused(
        `log ${path}: the file is damaged or no log; set it aside with ${name}-wal and ${name}-shm, do not delete them`,
        error,
      );
    }
    throw error;
  }
}

/**
 * Syncs the write-ahead log outside the event loop. Calls during a running sync share the next sync, since the running
 * one may have begun before their bytes were written.
 */
function createSync(
  db: Database.Database,
  wal: string,
  syncFile: (fd: number) => Promise<void>,
): Pick<LogFile, "sync" | "close"> {
  // The descriptor stays valid while a connection is open: SQLite rewrites the file from its start, and deletes it with
  // the last connection.
  const fd = openSync(wal, "r+");
  let lastSync = Promise.resolve();
  let nextSync: Promise<void> | null = null;
  const startSync = (): Promise<void> => {
    nextSync = null;
    return syncFile(fd);
  };
  return {
    sync() {
      if (nextSync === null) lastSync = nextSync = lastSync.then(startSync);
      return nextSync;
    },
    async close() {
      await lastSync.catch(() => undefined);
      db.close();
      closeSync(fd);
    },
  };
}

/** Checks the version of the SQLite library. @throws LogRefused when it is older than {@link MIN_SQLITE} */
export function assertSqliteVersion(version: string): void {
  const [a, b] = [version, MIN_SQLITE].map((v) => v.split(".").map(Number));
  const firstDifference = b!.findIndex((part, i) => part !== a![i]);
  const isOlder = firstDifference >= 0 && !(a![firstDifference]! > b![firstDifference]!);
  if (isOlder)
    throw new LogRefused(`SQLite ${version} can lose acknowledged records, ${MIN_SQLITE} or newer is needed`);
}

/**
 * Sets the file to durable commits. Each setting is read back, because SQLite keeps the old mode without an error when
 * it cannot set the new one.
 */
function setDurable(db: Database.Database, path: string, busyMs: number): void {
  db.pragma(`page_size = ${PAGE_BYTES}`);
  const mode = setWriteAhead(db, busyMs);
  if (mode !== "wal") throw new LogRefused(`log ${path}: this file system cannot hold a write-ahead log (${mode})`);
  // SQLite itself syncs the creation of the log, including the name of the new file.
  db.pragma("synchronous = FULL");
  if (db.pragma("synchronous", { simple: true }) !== 2)
    throw new LogRefused(`log ${path}: commits would not be synced`);
  db.pragma(`wal_autocheckpoint = ${CHECKPOINT_PAGES}`);
  db.pragma(`journal_size_limit = ${4 * CHECKPOINT_PAGES * PAGE_BYTES}`);
}

/**
 * Sets the file to a write-ahead log. When two processes do this to a new file at once, SQLite refuses one of them
 * immediately, whatever its timeout, since each would wait for the other. That process tries again here.
 * @returns the journal mode of the file
 */
function setWriteAhead(db: Database.Database, busyMs: number): unknown {
  const sleeping = new Int32Array(new SharedArrayBuffer(4));
  const deadline = performance.now() + busyMs;
  for (;;) {
    try {
      return db.pragma("journal_mode = WAL", { simple: true });
    } catch (error) {
      // If SQLite did wait, the time is already up.
      if (!isErrno(error, "SQLITE_BUSY") || performance.now() >= deadline) throw error;
      Atomics.wait(sleeping, 0, 0, RETRY_PAUSE_MS);
    }
  }
}

/**
 * Creates the log, or checks an existing one, in one transaction, so that two processes that start together create one
 * log. @param newPartitions number of partitions of a new log; an existing log keeps its own
 */
function createOrCheck(
  db: Database.Database,
  path: string,
  topics: readonly string[],
  newPartitions: number,
  known: KnownLog,
): Pick<LogFile, "id" | "partitions"> {
  const format = readFormat(db, path);
  if (format !== 0 && format !== LOG_FORMAT) {
    throw new LogRefused(
      `log ${path}: an older version wrote it (format ${format}, this one has ${LOG_FORMAT}): touchstone migrate brings it forward`,
    );
  }
  if (format === 0) {
    refuseNewLog(path, known);
    db.exec(SCHEMA);
    const insertMeta = db.prepare("INSERT INTO meta VALUES (?, ?)");
    insertMeta.run("id", randomBytes(16).toString("hex"));
    insertMeta.run("partitions", String(newPartitions));
  }
  const selectMeta = db.prepare<[string], string>("SELECT value FROM meta WHERE name = ?").pluck();
  const [id, partitions] = [selectMeta.get("id")!, Number(selectMeta.get("partitions"))];
  refuseOtherLog(path, id, known);
  addPartitions(db, topics, partitions);
  return { id, partitions };
}

/** Returns the format of the file; 0 for an empty file. @throws LogRefused for a file that a newer release wrote */
function readFormat(db: Database.Database, path: string): number {
  const format = Number(db.pragma("user_version", { simple: true }));
  if (format <= LOG_FORMAT) return format;
  throw new LogRefused(
    `log ${path}: a newer version wrote it (format ${format}, this one has ${LOG_FORMAT}): go on with that release; nothing was changed`,
  );
}

/** Statements that bring a file from each format to the next. */
const MIGRATION_STEPS: Readonly<Record<number, string>> = {
  1: `ALTER TABLE lane RENAME TO topic_partition;
    ALTER TABLE topic_partition RENAME COLUMN lane TO number;
    ALTER TABLE record RENAME COLUMN place TO position;`,
};

/**
 * Brings a log file to the current format in one transaction, so a kill leaves it unchanged. No process may have the
 * file open.
 * @returns the format that it had; null when there is no file, or an empty one
 * @throws LogRefused for a file of a newer release or of an unknown format; SQLite's own error when another process has
 * it open
 */
export function migrateLogFile(path: string): number | null {
  if (!existsSync(path)) return null;
  const db = new Database(path, { timeout: BUSY_TIMEOUT_MS });
  try {
    const oldFormat = readFormat(db, path);
    if (oldFormat === 0 || oldFormat === LOG_FORMAT) return oldFormat || null;
    db.pragma("synchronous = FULL");
    db.transaction(() => {
      for (let format = readFormat(db, path); format < LOG_FORMAT; format++) {
        const step = MIGRATION_STEPS[format];
        if (!step) throw new LogRefused(`log ${path}: format ${format} was never written`);
        db.exec(step);
        db.pragma(`user_version = ${format + 1}`);
      }
    }).exclusive();
    return oldFormat;
  } finally {
    db.close();
  }
}

/**
 * Adds the missing partitions. They are numbered in the order in which they are added, so a new topic gets the next
 * free numbers.
 */
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
