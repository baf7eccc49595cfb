import { Failure } from "../errors.ts";

/**
 * The event log, to which every incoming fact is appended once. Values are opaque bytes, and the caller chooses the
 * partition. Implementations: `embedded.ts` (SQLite, one machine) and `kafka/kafka.ts` (a cluster).
 *
 * Durability: when `append` resolves, every record of the batch survives kill -9 and power loss (embedded), or the loss
 * of a minority of brokers (Kafka). When it rejects, nothing or any prefix may have been stored: append again with the
 * same event ids, and let readers drop duplicates.
 * Order: within one partition of a topic, offsets rise in the order of appends, and a batch keeps its order. There is
 * no order across partitions.
 * Offsets: non-negative integers below 2^53. They are never reused, not even after truncation.
 */
export interface Log {
  /**
   * Random id from the creation of the log. A log with another id is another log, even if its topics have the same
   * names.
   */
  readonly id: string;
  /** Number of partitions of every topic: 1, 2, 4 .. 64. Fixed at creation. */
  readonly partitions: number;
  /**
   * Appends a batch of at most MAX_BATCH_RECORDS records. The embedded log appends it atomically; Kafka does so only
   * within each partition.
   */
  append(records: readonly NewRecord[]): Promise<AppendedRecord[]>;
  /**
   * Reads records of one partition from offset `from` on, in offset order. Empty when none arrives within `waitMs`
   * (default 0).
   * @throws OffsetGone when `from` is below the first kept offset, OffsetPastEnd when it is above the next one to be
   * assigned
   */
  read(topic: string, partition: number, from: number, options?: ReadOptions): Promise<LogRecord[]>;
  /** Returns the first kept offset and the next offset to be assigned; they are equal when the partition is empty. */
  bounds(topic: string, partition: number): Promise<{ start: number; end: number }>;
  /** Drops the records below `below`. Only the embedded log can do this; Kafka has its own retention and refuses. */
  truncate(topic: string, partition: number, below: number): Promise<void>;
  /** Waits for running appends, then releases files and sockets. */
  close(): Promise<void>;
}

export interface NewRecord {
  topic: string;
  partition: number;
  /** Id (`rec_..`), drawn before the event happens, so that a repeated append has the same id. */
  eventId: string;
  /** What the record is about, such as a capability id; never empty. The caller chooses the partition by it. */
  key: string;
  value: Uint8Array;
}

export interface AppendedRecord {
  topic: string;
  partition: number;
  offset: number;
  eventId: string;
}

export interface LogRecord extends NewRecord {
  offset: number;
  appendedAt: Date;
}

export interface ReadOptions {
  /** Largest number of records (default 1,000, at most 10,000). */
  maxRecords?: number;
  /** Stops after this number of value bytes, but always returns one record (default 8 MiB). */
  maxBytes?: number;
  /** Longest wait for a first record, ms (default 0). */
  waitMs?: number;
  signal?: AbortSignal;
}

/** Largest number of records in one append. */
export const MAX_BATCH_RECORDS = 10_000;
/** Largest value, bytes. A larger one is refused before anything is stored. */
export const MAX_VALUE_BYTES = 1024 * 1024;

/**
 * Thrown when the log no longer keeps the requested records. They are lost to this reader, which must not skip them
 * silently.
 */
export class OffsetGone extends Failure {
  constructor(
    readonly topic: string,
    readonly partition: number,
    readonly requestedOffset: number,
    readonly start: number,
  ) {
    super("failed", `log ${topic}/${partition}: offset ${requestedOffset} is gone, the first kept one is ${start}`);
  }
}

/**
 * Thrown when records are requested from above the next offset to be assigned. A reader that continues where it stopped
 * has then read records that the log has lost since. The log will assign the offsets of the lost records to new ones,
 * which the reader would skip if it continued.
 */
export class OffsetPastEnd extends Failure {
  constructor(
    readonly topic: string,
    readonly partition: number,
    readonly requestedOffset: number,
    readonly end: number,
  ) {
    super("record", `log ${topic}/${partition}: it ends at ${end}, ${requestedOffset} was reached already`);
  }
}

/** Longest key or event id, in UTF-16 units. */
const MAX_NAME_CHARS = 1_024;
/** Largest total of value bytes in one append, which must fit into one transaction or one request. */
export const MAX_BATCH_BYTES = 64 * 1024 * 1024;
const MAX_WAIT_MS = 3_600_000;
const MAX_READ_RECORDS = 10_000;

/** Matches a lone surrogate or a NUL, which would be read back differently from how it was written. */
const UNSAFE_CHARACTER = /[\p{Surrogate}\0]/u;

/** The topics of a log, and the number of partitions that each of them has. */
interface LogShape {
  readonly topics: ReadonlySet<string>;
  readonly partitions: number;
}

/** Checks that a topic exists and has this partition. @throws BadRecord otherwise */
export function checkPartition({ topics, partitions }: LogShape, topic: string, partition: number): void {
  if (!topics.has(topic)) throw new BadRecord(`no topic ${JSON.stringify(topic.slice(0, 120))}`);
  if (!Number.isInteger(partition) || partition < 0 || partition >= partitions) {
    throw new BadRecord(`${topic} has no partition ${partition}, only 0 to ${partitions - 1}`);
  }
}

/** Checks that the whole batch can be stored. @returns the sum of its value bytes @throws BadRecord otherwise */
export function checkBatch(shape: LogShape, records: readonly NewRecord[]): number {
  if (records.length > MAX_BATCH_RECORDS)
    throw new BadRecord(`${records.length} records in one append, at most ${MAX_BATCH_RECORDS}`);
  let byteCount = 0;
  for (const record of records) {
    checkPartition(shape, record.topic, record.partition);
    checkName("event id", record.eventId);
    checkName("key", record.key);
    if (record.value.byteLength > MAX_VALUE_BYTES) {
      throw new BadRecord(`${record.eventId} has ${record.value.byteLength} bytes, at most ${MAX_VALUE_BYTES}`);
    }
    byteCount += record.value.byteLength;
  }
  if (byteCount > MAX_BATCH_BYTES) throw new BadRecord(`${byteCount} bytes in one append, at most ${MAX_BATCH_BYTES}`);
  return byteCount;
}

function checkName(what: string, name: string): void {
  if (name.length === 0 || name.length > MAX_NAME_CHARS || UNSAFE_CHARACTER.test(name)) {
    throw new BadRecord(`${JSON.stringify(name.slice(0, 120))} is no ${what}`);
  }
}

/** Checks that a number can be an offset of a log. @throws BadRecord otherwise */
export function checkOffset(offset: number): void {
  if (!Number.isSafeInteger(offset) || offset < 0) throw new BadRecord(`${offset} is no offset`);
}

/**
 * Returns the limits of one read, with defaults for absent options.
 * @throws BadRecord when an option is out of range
 */
export function readLimits(options: ReadOptions = {}): { maxRecords: number; maxBytes: number; waitMs: number } {
  const { maxRecords = 1_000, maxBytes = 8 * 1024 * 1024, waitMs = 0 } = options;
  if (!Number.isInteger(maxRecords) || maxRecords < 1 || maxRecords > MAX_READ_RECORDS) {
    throw new BadRecord(`cannot read ${maxRecords} records at once, only 1 to ${MAX_READ_RECORDS}`);
  }
  if (!(maxBytes >= 0)) throw new BadRecord(`cannot read ${maxBytes} bytes`);
  if (!(waitMs >= 0 && waitMs <= MAX_WAIT_MS)) throw new BadRecord(`cannot wait ${waitMs} ms, at most ${MAX_WAIT_MS}`);
  return { maxRecords, maxBytes, waitMs };
}

/**
 * Thrown when too many appends wait in this process, or when another process keeps the write lock of the file. Nothing
 * was stored; append again.
 */
export class LogBusy extends Failure {
  constructor(what: string, cause?: unknown) {
    super("busy", `log is busy: ${what}`, { cause });
  }
}

/** Thrown by calls on a closed log, and by reads during which it is closed. An append that throws it stored nothing. */
export class LogClosed extends Failure {
  constructor() {
    super("failed", "log is closed");
  }
}

/** Thrown for a record, partition or option that no log accepts. Nothing was stored. */
export class BadRecord extends Failure {
  constructor(why: string) {
    super("failed", `log: ${why}`);
  }
}

/**
 * Thrown when the log cannot be opened as requested: another number of partitions, a file of a newer release, or a
 * library that loses data.
 */
export class LogRefused extends Failure {
  constructor(why: string, cause?: unknown) {
    super("record", why, { cause });
  }
}

/** Facts about a log from other files, before it is opened, so that no new log is created in place of a lost one. */
export interface KnownLog {
  /** Id of the log that data in the private store was made from; null when nothing names a log. */
  id: string | null;
  /** Whether a log may be created when there is none; false when data was already made from one. */
  mayMake: boolean;
  /**
   * Whether this process may begin a cluster's log whose topics exist already, by writing the record with the log's
   * id; requires the private store.
   */
  mayBegin: boolean;
}

/** The facts of a process that reads no other file: nothing names a log, and a missing log may be created. */
export const NONE_KNOWN: KnownLog = { id: null, mayMake: true, mayBegin: false };

/**
 * Checks that a new log may be created.
 * @param where place of the log, for the message
 * @throws LogRefused when data was already made from an earlier log
 */
export function refuseNewLog(where: string, { id, mayMake }: KnownLog): void {
  if (mayMake) return;
  const idText = id === null ? "" : ` (its id is ${id})`;
  throw new LogRefused(
    `log ${where}: there is none, and what was made from one is here${idText}: put the log back from its backup; ` +
      "nothing was made or changed (docs/operate, backup and restore)",
  );
}

/** Checks that a log is the one that the private store was made from. @throws LogRefused for another log */
export function refuseOtherLog(where: string, foundId: string, { id }: KnownLog): void {
  if (id === null || id === foundId) return;
  throw new LogRefused(
    `log ${where}: its id is ${foundId}, and the private store was made from log ${id}: put back the one that belongs to ` +
      "the other; nothing was made or changed (docs/operate, backup and restore)",
  );
}

/**
 * Thrown when the brokers failed every attempt of a call. A failed append may have stored nothing or any prefix of the
 * records; append again.
 */
export class LogDown extends Failure {
  constructor(action: string, cause?: unknown) {
    super("storage", `log: ${action} failed: ${(cause as Error | undefined)?.message ?? String(cause)}`, { cause });
  }
}

/**
 * Thrown when the topics exist, but the record with the log's id was not yet written, and this process may not write
 * it. Try again after another role has begun the log by writing it.
 */
export class LogNotBegun extends LogDown {
  constructor(action: string, cause?: unknown) {
    super(action, cause);
    this.name = "LogNotBegun";
  }
}
