import { closeSync, openSync, writeSync } from "node:fs";
import type { LogRecord } from "../../infra/log/log.ts";
import { type Rejected, readRow } from "./row.ts";
import { lineOf } from "./segment.ts";

/**
 * Bounds of one batch, and so of one segment. 122,880 rows are one row group of the engine: a full one goes straight into
 * its file, a smaller one through the write-ahead log and then again.
 */
export const BATCH_ROWS = 122_880;
export const BATCH_BYTES = 96 * 1024 * 1024;
/** Characters of lines that are held before they are written. */
const HELD_CHARS = 1024 * 1024;

/** Records that the readers of today do not take, as the lines of a segment's rejected file. */
export interface RejectedLines {
  records: number;
  bytes: Uint8Array;
  /** Of the first of them; null where there is none. */
  reason: string | null;
}

/** Records [first, next) of one partition, read and validated. */
export interface Batch {
  topic: string;
  partition: number;
  first: number;
  next: number;
  lastEventId: string;
  rows: number;
  rejected: RejectedLines;
  /** File with the rows as lines (segment.ts), on this machine; whoever takes the batch removes it. */
  lines: string;
}

/** What is made of the records of one batch. */
export type Made = Pick<Batch, "rows" | "rejected" | "lines">;

/** Takes the records of one partition in their order: what passes becomes a line, the rest is kept as it came. */
export class BatchMaker {
  readonly #file: number;
  #held = "";
  #rows = 0;
  readonly #rejected: Rejected[] = [];

  /** @param path of the file with the lines, made here */
  constructor(private readonly path: string) {
    this.#file = openSync(path, "wx");
  }

  add(records: readonly LogRecord[]): void {
    for (const record of records) {
      const read = readRow(record);
      if (read.ok) {
        this.#held += lineOf(read.row);
        this.#rows++;
      } else this.#rejected.push(read.rejected);
      if (this.#held.length > HELD_CHARS) this.#write();
    }
  }

  /** Nothing may be added any more. */
  close(): Made {
    this.#write();
    closeSync(this.#file);
    const reason = this.#rejected[0]?.reason ?? null;
    const rejected = { records: this.#rejected.length, bytes: rejectedBytes(this.#rejected), reason };
    return { rows: this.#rows, rejected, lines: this.path };
  }

  /** What was added is nobody's. */
  drop(): void {
    closeSync(this.#file);
  }

  #write(): void {
    const bytes = Buffer.from(this.#held, "utf8");
    for (let at = 0; at < bytes.length; ) at += writeSync(this.#file, bytes, at);
    this.#held = "";
  }
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

/** Records on their way to the thread: values in one piece, since each piece costs a message as much as a thousand bytes. */
export interface Packed {
  topic: string;
  partition: number;
  eventIds: string[];
  keys: string[];
  /** Three numbers a record: offset, Unix ms of the append, where its value ends. */
  numbers: Float64Array;
  values: Uint8Array;
}

/** What the thread is told: a batch begins, records of it, it ends. One batch after the other. */
export type Ask = { what: "begin"; path: string } | { what: "records"; packed: Packed } | { what: "end" };
/** What it answers: records were parsed; a batch was made, or failed and nothing more comes of it. */
export type Answer =
  | { what: "parsed"; bytes: number }
  | { what: "made"; made: Made }
  | { what: "failed"; reason: string };

function recordsOf({ topic, partition, eventIds, keys, numbers, values }: Packed): LogRecord[] {
  let from = 0;
  return eventIds.map((eventId, i) => {
    const [offset, appendedMs, end] = [numbers[3 * i]!, numbers[3 * i + 1]!, numbers[3 * i + 2]!];
    const value = values.subarray(from, end);
    from = end;
    return { topic, partition, offset, eventId, key: keys[i]!, appendedAt: new Date(appendedMs), value };
  });
}

/** The inside of the thread. What fails is told once, at the end of its batch. */
export class ParsingBeside {
  #maker: BatchMaker | null = null;
  #failed: string | null = null;

  constructor(private readonly tell: (answer: Answer) => void) {}

  #end(maker: BatchMaker): void {
    this.#maker = null;
    this.tell({ what: "made", made: maker.close() });
  }

  hear(ask: Ask): void {
    try {
      if (ask.what === "begin") {
        this.#failed = null;
        this.#maker = new BatchMaker(ask.path);
      } else if (ask.what === "records") this.#maker?.add(recordsOf(ask.packed));
      else if (this.#maker) this.#end(this.#maker);
    } catch (error) {
      this.#maker?.drop();
      this.#maker = null;
      this.#failed ??= (error as Error).message;
    }
    if (ask.what === "records") this.tell({ what: "parsed", bytes: ask.packed.values.byteLength });
    if (ask.what === "end" && this.#failed !== null) this.tell({ what: "failed", reason: this.#failed });
  }
}
