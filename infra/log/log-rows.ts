import type { Statement } from "better-sqlite3";
import { LogBusy, LogFull } from "./errors.ts";
import { type Appended, type LogRecord, type NewRecord, OffsetGone } from "./log.ts";
import { LANE_SPAN, type LogFile } from "./log-file.ts";
import { type PageOf, pageStatement, recordsOf } from "./log-rows-page.ts";

type Row = [place: number, eventId: string, key: string, value: Buffer, appendedMs: number];

export interface Bounds {
  start: number;
  end: number;
}

/** Rows of one look: quicker than one by one, and what is read past the bytes that were asked for stays small. */
const STEP = 64;

/** The statements over an open log file. Everything here is synchronous and, where it writes, durable on return. */
export class LogRows {
  readonly #file: LogFile;
  readonly #insert: Statement<Row>;
  readonly #page: PageOf;
  readonly #bounds: Statement<[lane: number], Bounds>;
  readonly #setNext: Statement<[next: number, lane: number]>;
  readonly #raise: Statement<[first: number, lane: number]>;
  readonly #drop: Statement<[from: number, below: number, limit: number]>;
  readonly #version: Statement<[], number>;

  constructor(file: LogFile) {
    const { db } = file;
    this.#file = file;
    this.#insert = db.prepare("INSERT INTO record VALUES (?, ?, ?, ?, ?)");
    this.#page = pageStatement(db);
    this.#bounds = db.prepare('SELECT first AS start, next AS "end" FROM lane WHERE lane = ?');
    this.#setNext = db.prepare("UPDATE lane SET next = ? WHERE lane = ?");
    this.#raise = db.prepare("UPDATE lane SET first = max(first, ?) WHERE lane = ?");
    this.#drop = db.prepare(
      "DELETE FROM record WHERE place IN (SELECT place FROM record WHERE place >= ? AND place < ? ORDER BY place LIMIT ?)",
    );
    this.#version = db.prepare<[], number>("PRAGMA data_version").pluck();
  }

  bounds(topic: string, partition: number): Bounds {
    return this.#bounds.get(this.#lane(topic, partition))!;
  }

  /** A number that differs after another connection committed; our own commits do not change it. */
  foreignVersion(): number {
    return this.#version.get()!;
  }

  /** One transaction for all batches: give offsets, insert, remember the next offset, commit with a sync. */
  append(batches: (readonly NewRecord[])[], appendedMs: number): Appended[][] {
    return this.#naming(() => {
      const write = this.#file.db.transaction(() => {
        const nextOf = new Map<number, number>();
        const appended = batches.map((batch) => batch.map((record) => this.#store(record, nextOf, appendedMs)));
        for (const [lane, next] of nextOf) this.#setNext.run(next, lane);
        return appended;
      });
      // Immediate: the offsets are read under the write lock, so another process cannot give the same ones.
      return write.immediate();
    });
  }

  #store(record: NewRecord, nextOf: Map<number, number>, appendedMs: number): Appended {
    const { topic, partition, eventId, key, value } = record;
    const lane = this.#lane(topic, partition);
    const offset = nextOf.get(lane) ?? this.#bounds.get(lane)!.end;
    nextOf.set(lane, offset + 1);
    const bytes = Buffer.from(value.buffer, value.byteOffset, value.byteLength);
    this.#insert.run(lane * LANE_SPAN + offset, eventId, key, bytes, appendedMs);
    return { topic, partition, offset, eventId };
  }

  /**
   * Rows from `from` on. They and the start they are judged by come from one snapshot, so that a truncation cannot slip
   * in between and make lost records look like a quiet partition.
   */
  range(topic: string, partition: number, from: number, limits: { maxRecords: number; maxBytes: number }): LogRecord[] {
    const base = this.#lane(topic, partition) * LANE_SPAN;
    const look = this.#file.db.transaction(() => {
      const { start } = this.bounds(topic, partition);
      if (from < start) throw new OffsetGone(topic, partition, from, start);
      const found: LogRecord[] = [];
      let bytes = 0;
      for (let next = Math.min(from, LANE_SPAN); found.length < limits.maxRecords; ) {
        const asked = Math.min(STEP, limits.maxRecords - found.length);
        const page = this.#page.get(base, base + next, base + LANE_SPAN, asked)!;
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
    this.#naming(() => this.#raise.run(first, this.#lane(topic, partition)));
  }

  /** Delete up to `limit` rows below the first kept offset; says how many. */
  dropUnseen(topic: string, partition: number, limit: number): number {
    const base = this.#lane(topic, partition) * LANE_SPAN;
    return this.#naming(() => this.#drop.run(base, base + this.bounds(topic, partition).start, limit).changes);
  }

  #lane(topic: string, partition: number): number {
    return this.#file.lanes.get(`${topic}/${partition}`)!;
  }

  #naming<T>(work: () => T): T {
    try {
      return work();
    } catch (error) {
      const code = error instanceof Error && "code" in error ? String(error.code) : "";
      if (code === "SQLITE_FULL" || code === "SQLITE_IOERR_SHMSIZE") throw new LogFull(this.#file.db.name, error);
      if (code.startsWith("SQLITE_BUSY")) throw new LogBusy("another process writes", error);
      throw error;
    }
  }
}
