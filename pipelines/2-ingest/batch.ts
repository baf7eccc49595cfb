import { appendFileSync, writeFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import { setImmediate } from "node:timers/promises";
import { RecordsLost } from "../../infra/chain/commit.ts";
import { type Log, type LogRecord, OffsetGone } from "../../infra/log/log.ts";
import { lineOf } from "./day-segments.ts";
import { type Rejected, readRow } from "./row.ts";

/**
 * Most rows and bytes of one batch, and so of one segment. 122,880 rows are one row group of the engine: it writes a
 * full row group directly to its file, and a smaller one first to the write-ahead log and then again.
 */
export const BATCH_ROWS = 122_880;
export const BATCH_BYTES = 96 * 1024 * 1024;
/** Size of the buffer for lines, bytes. Lines are written to the file when it is full. */
const HELD_BYTES = 1024 * 1024;

/** Records that the current readers refuse, as the lines of a segment's file of rejected records. */
export interface RejectedLines {
  records: number;
  bytes: Uint8Array;
  /** Why the first of these records was refused; null if there is none. */
  reason: string | null;
}

/** The records of one partition from offset `first` to before `next`, read and validated. */
export interface Batch {
  first: number;
  next: number;
  lastEventId: string;
  rows: number;
  rejected: RejectedLines;
  /** Path of a local file with the rows as lines (day-segments.ts). The caller removes the file. */
  lines: string;
}

/** Writes the valid records of one partition as lines, in their order, and keeps the bytes of the invalid ones. */
class BatchMaker {
  #held = Buffer.allocUnsafe(HELD_BYTES);
  #end = 0;
  #rows = 0;
  readonly #rejected: Rejected[] = [];

  /** @param linesPath path of the file of lines, which the constructor creates */
  constructor(private readonly lines: string) {
    writeFileSync(lines, "", { flag: "wx" });
  }

  add(records: readonly LogRecord[]): void {
    for (const record of records) {
      const read = readRow(record);
      if (read.ok) {
        this.#hold(lineOf(read.row));
        this.#rows++;
      } else this.#rejected.push(read.rejected);
    }
  }

  /** Writes the rest of the buffer. No record is added afterwards. */
  close(): Pick<Batch, "rows" | "rejected" | "lines"> {
    this.#write();
    const reason = this.#rejected[0]?.reason ?? null;
    const rejected = { records: this.#rejected.length, bytes: rejectedBytes(this.#rejected), reason };
    return { rows: this.#rows, rejected, lines: this.lines };
  }

  /**
   * Encodes a line into the buffer at once. If lines were first joined to a longer text, the garbage collector would
   * copy that text.
   */
  #hold(line: string): void {
    const most = 3 * line.length;
    if (this.#end + most > HELD_BYTES) this.#write();
    if (most > HELD_BYTES) appendFileSync(this.lines, line);
    else this.#end += this.#held.write(line, this.#end);
  }

  #write(): void {
    appendFileSync(this.lines, this.#held.subarray(0, this.#end));
    this.#end = 0;
  }
}

/** Encodes rejected records as the lines of a segment's file of rejected records. */
export const rejectedBytes = (rejected: readonly Rejected[]): Uint8Array =>
  Buffer.from(rejected.map((line) => `${JSON.stringify(line)}\n`).join(""), "utf8");

export const readRejected = (bytes: Uint8Array): Rejected[] =>
  Buffer.from(bytes)
    .toString("utf8")
    .split("\n")
    .filter(Boolean)
    .map((line) => JSON.parse(line) as Rejected);

const READ_RECORDS = 1_000;
const READ_BYTES = 8 * 1024 * 1024;
/**
 * Number of records after which other work gets a turn of the event loop. Commits and loads that run at the same time
 * need a turn for each statement, and the engine is idle until they get it. Reading records that are already in memory
 * never gives them one.
 */
const TURN_RECORDS = 100;

/**
 * Reads the next batch of a partition, from offset `from` to before `end`; null when there is no record.
 * @param path path of a new file for the batch's lines, which is removed if the reading fails
 * @throws RecordsLost when the log no longer keeps `from`
 */
export async function takeBatch(
  log: Log,
  { topic, partition }: { topic: string; partition: number },
  { from, end }: { from: number; end: number },
  path: string,
): Promise<Batch | null> {
  let [next, rows, bytes, lastEventId] = [from, 0, 0, ""];
  let maker: BatchMaker | null = null;
  try {
    while (rows < BATCH_ROWS && bytes < BATCH_BYTES && next < end) {
      const found = await log.read(topic, partition, next, {
        maxRecords: Math.min(READ_RECORDS, BATCH_ROWS - rows, end - next),
        maxBytes: Math.min(READ_BYTES, BATCH_BYTES - bytes),
      });
      const records = found.filter(({ offset }) => offset < end);
      if (records.length === 0) break;
      maker ??= new BatchMaker(path);
      for (let at = 0; at < records.length; at += TURN_RECORDS) {
        maker.add(records.slice(at, at + TURN_RECORDS));
        await setImmediate();
      }
      const last = records.at(-1)!;
      [next, rows, lastEventId] = [last.offset + 1, rows + records.length, last.eventId];
      for (const { value } of records) bytes += value.byteLength;
    }
    return maker && { first: from, next, lastEventId, ...maker.close() };
  } catch (error) {
    await rm(path, { force: true });
    // The log no longer has these records, and they were never committed.
    if (error instanceof OffsetGone) throw new RecordsLost(`${topic}/${partition}`, next, error.start);
    throw error;
  }
}
