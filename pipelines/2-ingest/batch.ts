import { setImmediate } from "node:timers/promises";
import { RecordsLost } from "../../infra/chain/errors.ts";
import { type Log, type LogRecord, OffsetGone, type ReadOptions } from "../../infra/log/log.ts";
import type { OpenedBatch } from "../../infra/log/packed.ts";
import { type Rejected, readRow } from "./row.ts";
import { Segment } from "./segment.ts";

/**
 * Bounds of one batch, and so of one segment: what is held in memory and read in one go. 122,880 rows are one row group of
 * the engine: a full one goes straight into its file, a smaller one through the write-ahead log and then again.
 */
export const BATCH_ROWS = 122_880;
export const BATCH_BYTES = 96 * 1024 * 1024;
const READ_RECORDS = 1_000;
const READ_BYTES = 8 * 1024 * 1024;
/**
 * After so many records the loop has its turn: what is committed and loaded beside waits for it at each statement, while
 * the engine stands still. Records that lie ready never wait for anything, and would keep it to the end of the batch.
 */
const TURN_RECORDS = 100;

export interface Place {
  topic: string;
  partition: number;
}

/** Records that the readers of today do not take, as the lines of a segment's rejected file. */
export interface RejectedLines {
  records: number;
  bytes: Uint8Array;
  /** Of the first of them; null where there is none. */
  reason: string | null;
}

/** Records [first, next) of one partition, read and judged, on their way into a segment. */
export interface Batch extends Place {
  first: number;
  next: number;
  lastEventId: string;
  rows: number;
  rejected: RejectedLines;
  /** The segment: a Parquet file with the rows. */
  segment: Uint8Array;
}

/** Takes the records of one partition in their order and judges them, up to the bounds of a batch. */
export class BatchMaker {
  /** Offset of the first record that was not taken. */
  next: number;
  readonly #segment: Segment;
  readonly #rejected: Rejected[] = [];
  #lastEventId = "";
  /** Where the record stands that was taken last, if nobody took it out of its batch yet. */
  #lastOpened: OpenedBatch | null = null;
  #lastAt = 0;
  #taken = 0;
  #bytes = 0;

  /** @param first offset that the batch begins with @param end records from here on are another batch's */
  constructor(
    private readonly place: Place,
    private readonly first: number,
    private readonly end: number,
  ) {
    this.next = first;
    this.#segment = new Segment(place);
  }

  get isEmpty(): boolean {
    return this.#taken === 0;
  }

  get isFull(): boolean {
    return this.#taken >= BATCH_ROWS || this.#bytes >= BATCH_BYTES || this.next >= this.end;
  }

  /** What may be read for it in one go. More than one record past its bytes are never given. */
  get room(): { maxRecords: number; maxBytes: number } {
    return {
      maxRecords: Math.min(READ_RECORDS, BATCH_ROWS - this.#taken, this.end - this.next),
      maxBytes: Math.min(READ_BYTES, BATCH_BYTES - this.#bytes),
    };
  }

  /** What passes becomes a row; the rest is kept as it came. False when the record is another batch's. */
  add(record: LogRecord): boolean {
    if (this.isFull || record.offset >= this.end) return false;
    this.#judge(record);
    this.#lastEventId = record.eventId;
    this.#took(record.offset, record.value.byteLength);
    return true;
  }

  /** The same for a record of an opened batch, which need not be taken out of it where it is known. */
  addOpened(batch: OpenedBatch, i: number): boolean {
    const offset = batch.offset(i);
    if (this.isFull || offset >= this.end) return false;
    if (!this.#segment.addKnown(batch, i)) this.#judge(batch.opened(i));
    this.#took(offset, batch.valueEnd(i) - batch.valueAt(i));
    this.#lastOpened = batch;
    this.#lastAt = i;
    return true;
  }

  #judge(record: LogRecord): void {
    const read = readRow(record);
    if (read.ok) this.#segment.add(read.row);
    else this.#rejected.push(read.rejected);
  }

  #took(offset: number, bytes: number): void {
    this.next = offset + 1;
    this.#taken++;
    this.#bytes += bytes;
    this.#lastOpened = null;
  }

  /** Nothing may be added any more. */
  close(): Batch {
    const { topic, partition } = this.place;
    const reason = this.#rejected[0]?.reason ?? null;
    const lastEventId = this.#lastOpened?.eventId(this.#lastAt) ?? this.#lastEventId;
    return {
      ...{ topic, partition, first: this.first, next: this.next, lastEventId },
      rows: this.#segment.rows,
      rejected: { records: this.#rejected.length, bytes: rejectedBytes(this.#rejected), reason },
      segment: this.#segment.close(),
    };
  }
}

/**
 * The next batch of a partition, from `from` on and below `end`; null when nothing is there.
 * @throws RecordsLost when the log no longer keeps `from`.
 */
export async function takeBatch(
  log: Log,
  place: Place,
  { from, end }: { from: number; end: number },
): Promise<Batch | null> {
  const maker = new BatchMaker(place, from, end);
  while (!maker.isFull) {
    const records = await readLog(log, place, maker.next, maker.room);
    for (let at = 0; at < records.length; at += TURN_RECORDS) {
      for (const record of records.slice(at, at + TURN_RECORDS)) maker.add(record);
      await setImmediate();
    }
    if (records.length === 0) break;
  }
  return maker.isEmpty ? null : maker.close();
}

const readLog = (log: Log, { topic, partition }: Place, from: number, room: ReadOptions): Promise<LogRecord[]> =>
  log.read(topic, partition, from, room).catch((error: unknown) => refuseGone(error, { topic, partition }, from));

/** @throws RecordsLost in the place of the log's own error, since what is gone was never committed; else what came */
export function refuseGone(error: unknown, { topic, partition }: Place, from: number): never {
  if (error instanceof OffsetGone) throw new RecordsLost(`${topic}/${partition}`, from, error.start);
  throw error;
}

/** Lines of a segment's rejected file. */
export const rejectedBytes = (rejected: readonly Rejected[]): Uint8Array =>
  Buffer.from(rejected.map((line) => `${JSON.stringify(line)}\n`).join(""), "utf8");

export const readRejected = (bytes: Uint8Array): Rejected[] =>
  Buffer.from(bytes)
    .toString("utf8")
    .split("\n")
    .filter(Boolean)
    .map((line) => JSON.parse(line) as Rejected);
