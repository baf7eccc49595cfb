import { appendFileSync, writeFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import { setImmediate } from "node:timers/promises";
import { RecordsLost } from "../../infra/chain/commit.ts";
import { type Log, type LogRecord, OffsetGone } from "../../infra/log/log.ts";
import { linePartsOf } from "./day-segments.ts";
import { type Rejected, readRow } from "./row.ts";

/**
 * Largest number of rows of one batch, and so of one segment (the Parquet file that is made of a batch). 122,880 rows
 * are one row group of DuckDB, which writes a full row group directly to the database file, and a smaller one first to
 * the write-ahead log and then again.
 */
export const BATCH_ROWS = 122_880;
/** Largest number of bytes of the records of one batch. */
export const BATCH_BYTES = 96 * 1024 * 1024;
/** Size of the buffer that collects lines until they are written to the file, bytes. */
const BUFFER_BYTES = 1024 * 1024;

/** The records of one partition from offset `first` to before `next`, read and validated. */
export interface Batch {
  first: number;
  next: number;
  lastEventId: string;
  /** Number of valid records. */
  rows: number;
  /**
   * The records that the current version refuses: their number, the content of the file of rejected records that
   * belongs to the segment, and why the first of them was refused (null if there is none).
   */
  rejected: { records: number; bytes: Uint8Array; reason: string | null };
  /** Path of a local file with the rows as lines (day-segments.ts). The caller removes the file. */
  linesPath: string;
}

/** Writes the valid records of one partition as lines, in their order, and keeps the bytes of the invalid ones. */
class BatchMaker {
  #buffer = Buffer.allocUnsafe(BUFFER_BYTES);
  #bufferedBytes = 0;
  #rows = 0;
  readonly #rejected: Rejected[] = [];

  /** @param linesPath path of the file of lines, which the constructor creates */
  constructor(private readonly linesPath: string) {
    writeFileSync(linesPath, "", { flag: "wx" });
  }

  add(records: readonly LogRecord[]): void {
    for (const record of records) {
      const rowResult = readRow(record);
      if (rowResult.ok) {
        for (const text of linePartsOf(rowResult.row)) this.#bufferText(text);
        this.#rows++;
      } else this.#rejected.push(rowResult.rejected);
    }
  }

  /** Writes the rest of the buffer. No record is added afterwards. */
  close(): Pick<Batch, "rows" | "rejected" | "linesPath"> {
    this.#flush();
    const reason = this.#rejected[0]?.reason ?? null;
    const rejected = { records: this.#rejected.length, bytes: encodeRejected(this.#rejected), reason };
    return { rows: this.#rows, rejected, linesPath: this.linesPath };
  }

  /**
   * Encodes a part of a line into the buffer at once. If the parts were first joined to a longer text, that text would
   * be copied once more, and the garbage collector would remove it.
   */
  #bufferText(text: string): void {
    const maxBytes = 3 * text.length;
    if (this.#bufferedBytes + maxBytes > BUFFER_BYTES) this.#flush();
    if (maxBytes > BUFFER_BYTES) appendFileSync(this.linesPath, text);
    else this.#bufferedBytes += this.#buffer.write(text, this.#bufferedBytes);
  }

  #flush(): void {
    appendFileSync(this.linesPath, this.#buffer.subarray(0, this.#bufferedBytes));
    this.#bufferedBytes = 0;
  }
}

/** Encodes rejected records as the lines of a segment's file of rejected records. */
export const encodeRejected = (rejected: readonly Rejected[]): Uint8Array =>
  Buffer.from(rejected.map((line) => `${JSON.stringify(line)}\n`).join(""), "utf8");

export const parseRejected = (bytes: Uint8Array): Rejected[] =>
  Buffer.from(bytes)
    .toString("utf8")
    .split("\n")
    .filter(Boolean)
    .map((line) => JSON.parse(line) as Rejected);

const MAX_RECORDS_PER_READ = 1_000;
const MAX_BYTES_PER_READ = 8 * 1024 * 1024;
/**
 * Number of records after which {@link takeBatch} gives other work a turn of the event loop. Commits and loads that run
 * at the same time need a turn for each SQL statement, and DuckDB is idle until they get it. Reading records that are
 * already in memory does not give them one.
 */
const RECORDS_PER_TURN = 100;

/**
 * Reads the next batch of a partition: the records from offset `from` on, until the batch is full or `end` is
 * reached. null when there is no record.
 * @param path path of a new file for the batch's lines, which is removed if the reading fails
 * @throws RecordsLost when the log no longer keeps `from`
 */
export async function takeBatch(
  log: Log,
  { topic, partition }: { topic: string; partition: number },
  { from, end }: { from: number; end: number },
  path: string,
): Promise<Batch | null> {
  let [next, recordCount, bytes, lastEventId] = [from, 0, 0, ""];
  let maker: BatchMaker | null = null;
  try {
    while (recordCount < BATCH_ROWS && bytes < BATCH_BYTES && next < end) {
      const limits = {
        maxRecords: Math.min(MAX_RECORDS_PER_READ, BATCH_ROWS - recordCount, end - next),
        maxBytes: Math.min(MAX_BYTES_PER_READ, BATCH_BYTES - bytes),
      };
      const readRecords = await log.read(topic, partition, next, limits).catch((error: unknown) => {
        // The records that were read are committed, and the next batch begins where the log cannot be read.
        if (recordCount > 0) return [];
        throw error;
      });
      const records = readRecords.filter(({ offset }) => offset < end);
      if (records.length === 0) break;
      maker ??= new BatchMaker(path);
      for (let start = 0; start < records.length; start += RECORDS_PER_TURN) {
        maker.add(records.slice(start, start + RECORDS_PER_TURN));
        await setImmediate();
      }
      const last = records.at(-1)!;
      [next, recordCount, lastEventId] = [last.offset + 1, recordCount + records.length, last.eventId];
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
