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
export class OffsetGone extends Error {
  constructor(
    readonly topic: string,
    readonly partition: number,
    readonly asked: number,
    readonly start: number,
  ) {
    super(`log ${topic}/${partition}: offset ${asked} is gone, the first kept one is ${start}`);
    this.name = "OffsetGone";
  }
}
