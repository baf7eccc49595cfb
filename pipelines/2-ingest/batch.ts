import { appendFileSync, writeFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import { setImmediate } from "node:timers/promises";
import { RecordsLost } from "../../infra/chain/commit.ts";
import { type Log, type LogRecord, OffsetGone } from "../../infra/log/log.ts";
import { lineOf } from "./day-segments.ts";
import { type Rejected, readRow } from "./row.ts";

/**
 * Bounds of one batch, and so of one segment. 122,880 rows are one row group of the engine: a full one goes straight into
 * its file, a smaller one through the write-ahead log and then again.
 */
export const BATCH_ROWS = 122_880;
export const BATCH_BYTES = 96 * 1024 * 1024;
/** Bytes of lines that are held before they are written. */
const HELD_BYTES = 1024 * 1024;

/** Records that the readers of today refuse, as lines of a segment's rejected file. */
export interface RejectedLines {
  records: number;
  bytes: Uint8Array;
  /** Why the first of them was refused; null where there is none. */
  reason: string | null;
}

/** Records [first, next) of one partition, read and validated. */
export interface Batch {
  first: number;
  next: number;
  lastEventId: string;
  rows: number;
  rejected: RejectedLines;
  /** Local file with the rows as lines (day-segments.ts); the caller removes it. */
  lines: string;
}

/** Takes the records of one partition in their order: writes the sound ones as lines, and keeps the bytes of the others. */
class BatchMaker {
  #held = Buffer.allocUnsafe(HELD_BYTES);
  #end = 0;
  #rows = 0;
  readonly #rejected: Rejected[] = [];

  /** @param lines path of the file of lines, which is made here */
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

  /** Writes what is held; nothing is added afterwards. */
  close(): Pick<Batch, "rows" | "rejected" | "lines"> {
    this.#write();
    const reason = this.#rejected[0]?.reason ?? null;
    const rejected = { records: this.#rejected.length, bytes: rejectedBytes(this.#rejected), reason };
    return { rows: this.#rows, rejected, lines: this.lines };
  }

  /** Encodes a line at once: as part of a longer text it would be copied by the garbage collector. */
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

/** Lines of a segment's rejected file. */
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
 * After so many records the event loop has a turn. Commits and loads that run beside need one for each statement, and the
 * engine idles meanwhile. Reads of records that are in memory already never give one.
 */
const TURN_RECORDS = 100;

/**
 * Reads the next batch of a partition, from `from` on and below `end`; null when there is none.
 * @param path of a new file for its lines, which is removed if this fails
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
    // Those records were never committed.
    if (error instanceof OffsetGone) throw new RecordsLost(`${topic}/${partition}`, next, error.start);
    throw error;
  }
}
