import { Failure } from "../errors.ts";

/**
 * The event log: every fact that arrives is appended once. Technology only: values are opaque bytes, and the caller
 * picks the partition. Adapters: `embedded.ts` (SQLite, one machine), `kafka/kafka.ts` (a cluster).
 *
 * Durability: when `append` resolves, every record of the batch survives kill -9 and power loss (embedded) or the loss
 * of a minority of brokers (Kafka). When it rejects, any prefix or nothing may have been stored: append again with the
 * same event id and let readers drop the copy.
 * Order: within one (topic, partition) offsets rise by append order; a batch keeps its order. Nothing across partitions.
 * Offsets: non-negative integers below 2^53, never reused, also not after truncation.
 */
export interface Log {
  /** Id drawn when the log was created. A log with another id is another log, whatever its topics are called. */
  readonly id: string;
  /** Partitions of every topic: 1, 2, 4 .. 64. Fixed at creation. */
  readonly partitions: number;
  /** Append a batch. Atomic in the embedded log; in Kafka atomic per partition only. At most MAX_BATCH records. */
  append(records: readonly NewRecord[]): Promise<Appended[]>;
  /**
   * Records of one partition from `from` on, in offset order; empty when none are there after `waitMs` (default 0).
   * @throws OffsetGone when `from` lies below the first kept offset.
   */
  read(topic: string, partition: number, from: number, options?: ReadOptions): Promise<LogRecord[]>;
  /** First kept offset and next offset to be given (`start === end` when empty). */
  bounds(topic: string, partition: number): Promise<{ start: number; end: number }>;
  /** Drop records below `below`. Only the embedded log does this; Kafka has its own retention and refuses. */
  truncate(topic: string, partition: number, below: number): Promise<void>;
  /** Release files and sockets; waits for appends under way. */
  close(): Promise<void>;
}

export interface NewRecord {
  topic: string;
  partition: number;
  /** Known before the act, so a copy carries the same one (`rec_..`). */
  eventId: string;
  key: string;
  value: Uint8Array;
}

export interface Appended {
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
  /** At most this many records (default 1,000, at most 10,000). */
  maxRecords?: number;
  /** Stop after this many value bytes, but always give one record (default 8 MiB). */
  maxBytes?: number;
  /** Wait this long for a first record (default 0). */
  waitMs?: number;
  signal?: AbortSignal;
}

/** Records in one append. */
export const MAX_BATCH = 10_000;
/** Bytes in one value; more is refused before anything is stored. */
export const MAX_VALUE_BYTES = 1024 * 1024;

/** The log no longer keeps what was asked for: records are lost to this reader. Never skipped silently. */
export class OffsetGone extends Failure {
  constructor(
    readonly topic: string,
    readonly partition: number,
    readonly asked: number,
    readonly start: number,
  ) {
    super("failed", `log ${topic}/${partition}: offset ${asked} is gone, the first kept one is ${start}`);
  }
}

/** UTF-16 units in a key or an event id. */
const MAX_NAME = 1_024;
/** Value bytes in one append: what one transaction or one request can carry. */
export const MAX_BATCH_BYTES = 64 * 1024 * 1024;
const MAX_WAIT_MS = 3_600_000;
const MAX_READ = 10_000;

/** Half a surrogate pair or a NUL would not come back as it went in. */
const UNSAFE = /[\p{Surrogate}\0]/u;

/** What a log consists of: its topics, each of as many partitions. */
interface Shape {
  readonly topics: ReadonlySet<string>;
  readonly partitions: number;
}

/** @throws BadRecord unless the topic exists and has this partition. */
export function checkPartition({ topics, partitions }: Shape, topic: string, partition: number): void {
  if (!topics.has(topic)) throw new BadRecord(`no topic ${JSON.stringify(topic.slice(0, 120))}`);
  if (!Number.isInteger(partition) || partition < 0 || partition >= partitions) {
    throw new BadRecord(`${topic} has no partition ${partition}, only 0 to ${partitions - 1}`);
  }
}

/** @throws BadRecord unless the whole batch can be stored. Returns its value bytes. */
export function checkBatch(shape: Shape, records: readonly NewRecord[]): number {
  if (records.length > MAX_BATCH) throw new BadRecord(`${records.length} records in one append, at most ${MAX_BATCH}`);
  let bytes = 0;
  for (const record of records) {
    checkPartition(shape, record.topic, record.partition);
    checkName("event id", record.eventId);
    checkName("key", record.key);
    if (record.value.byteLength > MAX_VALUE_BYTES) {
      throw new BadRecord(`${record.eventId} has ${record.value.byteLength} bytes, at most ${MAX_VALUE_BYTES}`);
    }
    bytes += record.value.byteLength;
  }
  if (bytes > MAX_BATCH_BYTES) throw new BadRecord(`${bytes} bytes in one append, at most ${MAX_BATCH_BYTES}`);
  return bytes;
}

function checkName(what: string, name: string): void {
  if (name.length === 0 || name.length > MAX_NAME || UNSAFE.test(name)) {
    throw new BadRecord(`${JSON.stringify(name.slice(0, 120))} is no ${what}`);
  }
}

/** @throws BadRecord unless `offset` can be one. */
export function checkOffset(offset: number): void {
  if (!Number.isSafeInteger(offset) || offset < 0) throw new BadRecord(`${offset} is no offset`);
}

/** Options with their defaults. @throws BadRecord when a bound is out of range. */
export function readLimits(options: ReadOptions = {}): { maxRecords: number; maxBytes: number; waitMs: number } {
  const { maxRecords = 1_000, maxBytes = 8 * 1024 * 1024, waitMs = 0 } = options;
  if (!Number.isInteger(maxRecords) || maxRecords < 1 || maxRecords > MAX_READ) {
    throw new BadRecord(`cannot read ${maxRecords} records at once, only 1 to ${MAX_READ}`);
  }
  if (!(maxBytes >= 0)) throw new BadRecord(`cannot read ${maxBytes} bytes`);
  if (!(waitMs >= 0 && waitMs <= MAX_WAIT_MS)) throw new BadRecord(`cannot wait ${waitMs} ms, at most ${MAX_WAIT_MS}`);
  return { maxRecords, maxBytes, waitMs };
}

/** Too much is under way already, here or in another process that holds the file. Nothing was stored; append again. */
export class LogBusy extends Failure {
  constructor(what: string, cause?: unknown) {
    super("busy", `log is busy: ${what}`, { cause });
  }
}

/** The log was closed under the call. An append that gets this was not stored. */
export class LogClosed extends Failure {
  constructor() {
    super("failed", "log is closed");
  }
}

/** A record, partition or option that no log takes. Nothing was stored. */
export class BadRecord extends Failure {
  constructor(why: string) {
    super("failed", `log: ${why}`);
  }
}

/** The log cannot be opened as asked: another partition count, a file of a newer make, a library that loses data. */
export class LogRefused extends Failure {
  constructor(why: string, cause?: unknown) {
    super("record", why, { cause });
  }
}

/** What is known of a log before it is opened, so that none is made in the place of one that was lost. */
export interface KnownLog {
  /** Id that what was made from the log names; null where nothing names one. */
  id: string | null;
  /** May a log be made where there is none? Not where something was made from one already. */
  mayMake: boolean;
  /** May who opens it begin a cluster's log whose topics were declared? Only with the private store at hand. */
  mayBegin: boolean;
}

/** Nothing is known of the log, also not whether a private store was made from another one. */
export const NONE_KNOWN: KnownLog = { id: null, mayMake: true, mayBegin: false };

/** @param where the log is looked for @throws LogRefused where there is none and one was there before */
export function refuseNewLog(where: string, { id, mayMake }: KnownLog): void {
  if (mayMake) return;
  const named = id === null ? "" : ` (its id is ${id})`;
  throw new LogRefused(
    `log ${where}: there is none, and what was made from one is here${named}: put the log back from its backup; ` +
      "nothing was made or changed (docs/operate, backup and restore)",
  );
}

/** @throws LogRefused for another log than the one that is known */
export function refuseOtherLog(where: string, found: string, { id }: KnownLog): void {
  if (id === null || id === found) return;
  throw new LogRefused(
    `log ${where}: its id is ${found}, and the private store was made from log ${id}: put back the one that belongs to ` +
      "the other; nothing was made or changed (docs/operate, backup and restore)",
  );
}

/** The brokers did not do it after every try. Of an append any prefix may have been stored; append again. */
export class LogDown extends Failure {
  constructor(doing: string, cause?: unknown) {
    super("storage", `log: ${doing} failed: ${(cause as Error | undefined)?.message ?? String(cause)}`, { cause });
  }
}

/** The topics are there, nobody has begun the log, and who asks may not: to be asked again once a role has. */
export class LogNotBegun extends LogDown {
  constructor(doing: string, cause?: unknown) {
    super(doing, cause);
    this.name = "LogNotBegun";
  }
}
