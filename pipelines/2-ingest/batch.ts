import { open, rm } from "node:fs/promises";
import { RecordsLost } from "../../infra/chain/errors.ts";
import { type Log, type LogRecord, OffsetGone } from "../../infra/log/log.ts";
import { Lines } from "./lines.ts";
import { type Rejected, readRow } from "./row.ts";

/**
 * Bounds of one batch, and so of one segment: what is held in memory and read in one go. 122,880 rows are one row group of
 * the engine: a full one goes straight into its file, a smaller one through the write-ahead log and then again.
 */
export const BATCH_ROWS = 122_880;
export const BATCH_BYTES = 96 * 1024 * 1024;
/** Between pages the loop has its turn: what is committed and loaded beside waits for it at each statement. */
const READ_RECORDS = 1_000;
const READ_BYTES = 8 * 1024 * 1024;

/** Records [first, next) of one partition, read and judged, on their way into a segment. */
export interface Batch {
  topic: string;
  partition: number;
  first: number;
  next: number;
  lastEventId: string;
  rows: number;
  rejected: Rejected[];
  /** NDJSON file with the rows. */
  lines: string;
}

/**
 * The next batch of a partition, from `from` on and below `end`; null when nothing is there.
 * @param lines file to write; the caller removes it
 * @throws RecordsLost when the log no longer keeps `from`.
 */
export async function takeBatch(
  log: Log,
  place: { topic: string; partition: number },
  range: { from: number; end: number },
  lines: string,
): Promise<Batch | null> {
  const { topic, partition } = place;
  const batch: Batch = {
    topic,
    partition,
    first: range.from,
    next: range.from,
    lastEventId: "",
    rows: 0,
    rejected: [],
    lines,
  };
  const file = await open(lines, "w");
  const page = new Lines();
  try {
    let bytes = 0;
    for (let taken = 0; taken < BATCH_ROWS && bytes < BATCH_BYTES && batch.next < range.end; ) {
      const maxRecords = Math.min(READ_RECORDS, BATCH_ROWS - taken, range.end - batch.next);
      const records = await readLog(log, topic, partition, batch.next, maxRecords);
      if (records.length === 0) break;
      judge(batch, records, page);
      await file.writeFile(page.take());
      taken += records.length;
      for (const record of records) bytes += record.value.byteLength;
    }
  } finally {
    await file.close();
  }
  if (batch.next > batch.first) return batch;
  await rm(lines, { force: true });
  return null;
}

/** Rows as lines for the file; rejected ones are kept in the batch. */
function judge(batch: Batch, records: readonly LogRecord[], page: Lines): void {
  for (const record of records) {
    const read = readRow(record);
    if (read.ok) {
      page.add(read.line);
      batch.rows++;
    } else {
      batch.rejected.push(read.rejected);
    }
  }
  const last = records.at(-1)!;
  batch.next = last.offset + 1;
  batch.lastEventId = last.eventId;
}

async function readLog(
  log: Log,
  topic: string,
  partition: number,
  from: number,
  maxRecords: number,
): Promise<LogRecord[]> {
  try {
    return await log.read(topic, partition, from, { maxRecords, maxBytes: READ_BYTES });
  } catch (error) {
    if (error instanceof OffsetGone) throw new RecordsLost(`${topic}/${partition}`, from, error.start);
    throw error;
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
