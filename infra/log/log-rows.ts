import type Database from "better-sqlite3";
import type { Statement } from "better-sqlite3";
import { Failure, isDiskFull } from "../errors.ts";
import { type AppendedRecord, LogBusy, type LogRecord, type NewRecord, OffsetGone, OffsetPastEnd } from "./log.ts";
import { type LogFile, OFFSETS_PER_PARTITION } from "./log-file.ts";

type Row = [position: number, eventId: string, key: string, value: Buffer, appendedMs: number];

/** First kept offset of a partition, and the next offset to be assigned. */
export interface Bounds {
  start: number;
  end: number;
}

/**
 * Rows that one statement reads. Reading row by row would be slower; with more rows, much would be read beyond the
 * requested bytes.
 */
const ROWS_AT_ONCE = 64;

/**
 * Prepared statements on an open log file. A write is committed when its method returns, and durable after the file's
 * next sync.
 */
export class LogRows {
  readonly #file: LogFile;
  readonly #insert: Statement<Row>;
  readonly #readPage: PageStatement;
  readonly #bounds: Statement<[partition: number], Bounds>;
  readonly #setNext: Statement<[next: number, partition: number]>;
  readonly #raiseStart: Statement<[first: number, partition: number]>;
  readonly #dropRows: Statement<[from: number, below: number, limit: number]>;
  readonly #version: Statement<[], number>;
  readonly #changes: Statement<[], number>;

  constructor(file: LogFile) {
    const { db } = file;
    this.#file = file;
    this.#insert = db.prepare("INSERT INTO record VALUES (?, ?, ?, ?, ?)");
    this.#readPage = pageStatement(db);
    this.#bounds = db.prepare('SELECT first AS start, next AS "end" FROM topic_partition WHERE number = ?');
    this.#setNext = db.prepare("UPDATE topic_partition SET next = ? WHERE number = ?");
    this.#raiseStart = db.prepare("UPDATE topic_partition SET first = max(first, ?) WHERE number = ?");
    this.#dropRows = db.prepare(
      "DELETE FROM record WHERE position IN (SELECT position FROM record WHERE position >= ? AND position < ? ORDER BY position LIMIT ?)",
    );
    this.#version = db.prepare<[], number>("PRAGMA data_version").pluck();
    this.#changes = db.prepare<[], number>("SELECT total_changes()").pluck();
  }

  bounds(topic: string, partition: number): Bounds {
    return this.#bounds.get(this.#number(topic, partition))!;
  }

  /**
   * Returns a text that differs after each commit of any connection. `data_version` does not count a connection's own
   * commits, so its own changes are added.
   */
  version(): string {
    return `${this.#changes.get()} ${this.#version.get()}`;
  }

  /**
   * Appends all batches in one transaction: assigns offsets, inserts the rows, and stores each partition's next offset.
   */
  append(batches: (readonly NewRecord[])[], appendedMs: number): AppendedRecord[][] {
    return this.#withNamedErrors(() => {
      const write = this.#file.db.transaction(() => {
        const nextOffsets = new Map<number, number>();
        const appended = batches.map((batch) => batch.map((record) => this.#store(record, nextOffsets, appendedMs)));
        for (const [number, next] of nextOffsets) this.#setNext.run(next, number);
        return appended;
      });
      // `immediate` takes the write lock before the offsets are read, so that another process cannot assign the same
      // offsets.
      return write.immediate();
    });
  }

  #store(record: NewRecord, nextOffsets: Map<number, number>, appendedMs: number): AppendedRecord {
    const { topic, partition, eventId, key, value } = record;
    const number = this.#number(topic, partition);
    const offset = nextOffsets.get(number) ?? this.#bounds.get(number)!.end;
    nextOffsets.set(number, offset + 1);
    const bytes = Buffer.from(value.buffer, value.byteOffset, value.byteLength);
    this.#insert.run(number * OFFSETS_PER_PARTITION + offset, eventId, key, bytes, appendedMs);
    return { topic, partition, offset, eventId };
  }

  /**
   * Reads rows from `from` on. The rows and the bounds come from one snapshot; otherwise a truncation in between could
   * make lost records look like an empty partition.
   */
  range(topic: string, partition: number, from: number, limits: { maxRecords: number; maxBytes: number }): LogRecord[] {
    const base = this.#number(topic, partition) * OFFSETS_PER_PARTITION;
    const readRows = this.#file.db.transaction(() => {
      const { start, end } = this.bounds(topic, partition);
      if (from < start) throw new OffsetGone(topic, partition, from, start);
      if (from > end) throw new OffsetPastEnd(topic, partition, from, end);
      const result: LogRecord[] = [];
      let byteCount = 0;
      for (let next = Math.min(from, OFFSETS_PER_PARTITION); result.length < limits.maxRecords; ) {
        const limit = Math.min(ROWS_AT_ONCE, limits.maxRecords - result.length);
        const page = this.#readPage.get(base, base + next, base + OFFSETS_PER_PARTITION, limit)!;
        const records = toRecords(topic, partition, page);
        for (const record of records) {
          byteCount += record.value.byteLength;
          if (result.length > 0 && byteCount > limits.maxBytes) return result;
          result.push(record);
          next = record.offset + 1;
        }
        if (records.length < limit) break;
      }
      return result;
    });
    return readRows();
  }

  /** Raises the first kept offset; records below it are no longer visible. Never lowers it. */
  raiseStart(topic: string, partition: number, first: number): void {
    this.#withNamedErrors(() => this.#raiseStart.run(first, this.#number(topic, partition)));
  }

  /** Deletes up to `limit` rows below the first kept offset. @returns the number of deleted rows */
  dropUnseen(topic: string, partition: number, limit: number): number {
    const base = this.#number(topic, partition) * OFFSETS_PER_PARTITION;
    return this.#withNamedErrors(
      () => this.#dropRows.run(base, base + this.bounds(topic, partition).start, limit).changes,
    );
  }

  #number(topic: string, partition: number): number {
    return this.#file.numbers.get(`${topic}/${partition}`)!;
  }

  #withNamedErrors<T>(work: () => T): T {
    try {
      return work();
    } catch (error) {
      if (isDiskFull(error))
        throw new Failure("storage", `log ${this.#file.db.name}: no space left, nothing was stored`, { cause: error });
      const code = error instanceof Error && "code" in error ? String(error.code) : "";
      if (code.startsWith("SQLITE_BUSY")) throw new LogBusy("another process writes", error);
      throw error;
    }
  }
}

/**
 * Consecutive records in one row: `numbers` is a JSON array of each record's offset, value length and append time,
 * `names` a text of their event ids and keys, `values` a buffer of their values. All are null for no records.
 */
type RecordPage = [numbers: string | null, names: string | null, values: Buffer | null];
type PageStatement = Statement<[base: number, from: number, below: number, limit: number], RecordPage>;

/**
 * Prepares the statement that reads the records of a range, in order, as one row. That takes half the time of one row
 * for each record, and one buffer holds all values. The aggregates run in one pass, so numbers, names and values list
 * the records in one order, which `toRecords` checks by the offsets among the numbers. Names contain no NUL (log.ts).
 * Values keep their bytes: SQLite treats the concatenation as text, but neither checks nor changes it.
 */
function pageStatement(db: Database.Database): PageStatement {
  const page = db.prepare<[number, number, number, number], RecordPage>(`
    SELECT '[' || group_concat((position - CAST(? AS INTEGER)) || ',' || octet_length(value) || ',' || appended_ms) || ']',
      group_concat(event_id || char(0) || key, char(0)), CAST(group_concat(value, '') AS BLOB)
    FROM (SELECT position, event_id, key, value, appended_ms FROM record WHERE position >= ? AND position < ? ORDER BY position LIMIT ?)`);
  page.raw();
  return page;
}

/**
 * Splits a page into its records, whose values are views of the page's buffer. @throws Error when the page is
 * inconsistent
 */
function toRecords(topic: string, partition: number, [numbers, names, values]: RecordPage): LogRecord[] {
  if (numbers === null || names === null || values === null) return [];
  const fields = JSON.parse(numbers) as number[];
  const nameParts = names.split("\0");
  const records: LogRecord[] = [];
  let valueStart = 0;
  let previousOffset = -1;
  for (let i = 0; 3 * i < fields.length; i++) {
    const [offset, bytes, ms] = [fields[3 * i]!, fields[3 * i + 1]!, fields[3 * i + 2]!];
    if (offset <= previousOffset) throw new Error(`log ${topic}/${partition}: ${offset} came after ${previousOffset}`);
    previousOffset = offset;
    const value = values.subarray(valueStart, valueStart + bytes);
    valueStart += bytes;
    const [eventId, key] = [nameParts[2 * i]!, nameParts[2 * i + 1]!];
    records.push({ topic, partition, offset, eventId, key, value, appendedAt: new Date(ms) });
  }
  if (valueStart !== values.length || 2 * records.length !== nameParts.length)
    throw new Error(`log ${topic}/${partition}: a page of ${records.length} records is not whole`);
  return records;
}
