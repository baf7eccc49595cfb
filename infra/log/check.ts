import { BadRecord } from "./errors.ts";
import { MAX_BATCH, MAX_VALUE_BYTES, type NewRecord, type ReadOptions } from "./log.ts";

/** UTF-16 units in a key or an event id. */
const MAX_NAME = 1_024;
/** Value bytes in one append: what one transaction or one request can carry. */
export const MAX_BATCH_BYTES = 64 * 1024 * 1024;
const MAX_WAIT_MS = 3_600_000;
const MAX_READ = 10_000;

/** Half a surrogate pair or a NUL would not come back as it went in. */
const UNSAFE = /[\p{Surrogate}\0]/u;

/** What a log consists of: its topics, each of as many partitions. */
export interface Shape {
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
