import type Database from "better-sqlite3";
import type { Statement } from "better-sqlite3";
import { Failure } from "../errors.ts";
import { type Appended, LogBusy, type LogRecord, type NewRecord, OffsetGone } from "./log.ts";
import { type LogFile, OFFSETS } from "./log-file.ts";

type Row = [position: number, eventId: string, key: string, value: Buffer, appendedMs: number];

export interface Bounds {
  start: number;
  end: number;
}

/** Rows of one look: quicker than one by one, and what is read past the bytes that were asked for stays small. */
const STEP = 64;

/** The statements over an open log file. What they write is committed on return, and durable by the file's next sync. */
export class LogRows {
  readonly #file: LogFile;
  readonly #insert: Statement<Row>;
  readonly #page: PageOf;
  readonly #bounds: Statement<[partition: number], Bounds>;
  readonly #setNext: Statement<[next: number, partition: number]>;
  readonly #raise: Statement<[first: number, partition: number]>;
  readonly #drop: Statement<[from: number, below: number, limit: number]>;
  readonly #version: Statement<[], number>;
  readonly #changes: Statement<[], number>;

  constructor(file: LogFile) {
    const { db } = file;
    this.#file = file;
    this.#insert = db.prepare("INSERT INTO record VALUES (?, ?, ?, ?, ?)");
    this.#page = pageStatement(db);
    this.#bounds = db.prepare('SELECT first AS start, next AS "end" FROM topic_partition WHERE number = ?');
    this.#setNext = db.prepare("UPDATE topic_partition SET next = ? WHERE number = ?");
    this.#raise = db.prepare("UPDATE topic_partition SET first = max(first, ?) WHERE number = ?");
    this.#drop = db.prepare(
      "DELETE FROM record WHERE position IN (SELECT position FROM record WHERE position >= ? AND position < ? ORDER BY position LIMIT ?)",
    );
    this.#version = db.prepare<[], number>("PRAGMA data_version").pluck();
    this.#changes = db.prepare<[], number>("SELECT total_changes()").pluck();
  }

  bounds(topic: string, partition: number): Bounds {
    return this.#bounds.get(this.#number(topic, partition))!;
  }

  /** Differs after every commit, of ours or of another connection: of its own commits a connection's number says nothing. */
  version(): string {
    return `${this.#changes.get()} ${this.#version.get()}`;
  }

  /** One transaction for all batches: give offsets, insert, remember the next offset, commit. */
  append(batches: (readonly NewRecord[])[], appendedMs: number): Appended[][] {
    return this.#naming(() => {
      const write = this.#file.db.transaction(() => {
        const nextOf = new Map<number, number>();
        const appended = batches.map((batch) => batch.map((record) => this.#store(record, nextOf, appendedMs)));
        for (const [number, next] of nextOf) this.#setNext.run(next, number);
        return appended;
      });
      // Immediate: the offsets are read under the write lock, so another process cannot give the same ones.
      return write.immediate();
    });
  }

  #store(record: NewRecord, nextOf: Map<number, number>, appendedMs: number): Appended {
    const { topic, partition, eventId, key, value } = record;
    const number = this.#number(topic, partition);
    const offset = nextOf.get(number) ?? this.#bounds.get(number)!.end;
    nextOf.set(number, offset + 1);
    const bytes = Buffer.from(value.buffer, value.byteOffset, value.byteLength);
    this.#insert.run(number * OFFSETS + offset, eventId, key, bytes, appendedMs);
    return { topic, partition, offset, eventId };
  }

  /**
   * Rows from `from` on. They and the start they are held against come from one snapshot, so that a truncation cannot slip
   * in between and make lost records look like a quiet partition.
   */
  range(topic: string, partition: number, from: number, limits: { maxRecords: number; maxBytes: number }): LogRecord[] {
    const base = this.#number(topic, partition) * OFFSETS;
    const look = this.#file.db.transaction(() => {
      const { start } = this.bounds(topic, partition);
      if (from < start) throw new OffsetGone(topic, partition, from, start);
      const found: LogRecord[] = [];
      let bytes = 0;
      for (let next = Math.min(from, OFFSETS); found.length < limits.maxRecords; ) {
        const asked = Math.min(STEP, limits.maxRecords - found.length);
        const page = this.#page.get(base, base + next, base + OFFSETS, asked)!;
        const records = recordsOf(topic, partition, page);
        for (const record of records) {
          bytes += record.value.byteLength;
          if (found.length > 0 && bytes > limits.maxBytes) return found;
          found.push(record);
          next = record.offset + 1;
        }
        if (records.length < asked) break;
      }
      return found;
    });
    return look();
  }

  /** Raise the first kept offset; nothing below it is seen any more. Never lowers it. */
  raiseStart(topic: string, partition: number, first: number): void {
    this.#naming(() => this.#raise.run(first, this.#number(topic, partition)));
  }

  /** Delete up to `limit` rows below the first kept offset; says how many. */
  dropUnseen(topic: string, partition: number, limit: number): number {
    const base = this.#number(topic, partition) * OFFSETS;
    return this.#naming(() => this.#drop.run(base, base + this.bounds(topic, partition).start, limit).changes);
  }

  #number(topic: string, partition: number): number {
    return this.#file.numbers.get(`${topic}/${partition}`)!;
  }

  #naming<T>(work: () => T): T {
    try {
      return work();
    } catch (error) {
      const code = error instanceof Error && "code" in error ? String(error.code) : "";
      if (code === "SQLITE_FULL" || code === "SQLITE_IOERR_SHMSIZE")
        throw new Failure("storage", `log ${this.#file.db.name}: no space left, nothing was stored`, { cause: error });
      if (code.startsWith("SQLITE_BUSY")) throw new LogBusy("another process writes", error);
      throw error;
    }
  }
}

/** Neighbouring records as one row: their numbers as JSON, their names in one text, their values in one piece. */
type Page = [numbers: string | null, names: string | null, values: Buffer | null];
type PageOf = Statement<[base: number, from: number, below: number, limit: number], Page>;

/**
 * The records of a range, in order, as one row: half the time of a row each, and one buffer where there were as many as
 * records. What one row says is gathered in one pass, so numbers, names and values are of the same records in the same
 * order whatever that order is; the offsets among the numbers tell it. No name has a NUL in it (log.ts), and a value
 * keeps its bytes: to the engine the concatenation is text, which it neither reads nor repairs.
 */
function pageStatement(db: Database.Database): PageOf {
  const page = db.prepare<[number, number, number, number], Page>(`
    SELECT '[' || group_concat((position - CAST(? AS INTEGER)) || ',' || octet_length(value) || ',' || appended_ms) || ']',
      group_concat(event_id || char(0) || key, char(0)), CAST(group_concat(value, '') AS BLOB)
    FROM (SELECT position, event_id, key, value, appended_ms FROM record WHERE position >= ? AND position < ? ORDER BY position LIMIT ?)`);
  page.raw();
  return page;
}

/** A page as the records it holds; their values are views of its one buffer. @throws Error when the engine mixed them up */
function recordsOf(topic: string, partition: number, [numbers, names, values]: Page): LogRecord[] {
  if (numbers === null || names === null || values === null) return [];
  const of = JSON.parse(numbers) as number[];
  const name = names.split("\0");
  const records: LogRecord[] = [];
  let at = 0;
  let before = -1;
  for (let i = 0; 3 * i < of.length; i++) {
    const [offset, bytes, ms] = [of[3 * i]!, of[3 * i + 1]!, of[3 * i + 2]!];
    if (offset <= before) throw new Error(`log ${topic}/${partition}: ${offset} came after ${before}`);
    before = offset;
    const value = values.subarray(at, at + bytes);
    at += bytes;
    const [eventId, key] = [name[2 * i]!, name[2 * i + 1]!];
    records.push({ topic, partition, offset, eventId, key, value, appendedAt: new Date(ms) });
  }
  if (at !== values.length || 2 * records.length !== name.length)
    throw new Error(`log ${topic}/${partition}: a page of ${records.length} records is not whole`);
  return records;
}
