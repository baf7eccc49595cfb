import { setImmediate } from "node:timers/promises";
import { RecordsLost } from "../../infra/chain/errors.ts";
import { type Log, type LogRecord, OffsetGone } from "../../infra/log/log.ts";
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

/** Records [first, next) of one partition, read and judged, on their way into a segment. */
export interface Batch {
  topic: string;
  partition: number;
  first: number;
  next: number;
  lastEventId: string;
  rows: number;
  rejected: Rejected[];
  /** The segment: a Parquet file with the rows. */
  segment: Uint8Array;
}

/**
 * The next batch of a partition, from `from` on and below `end`; null when nothing is there.
 * @throws RecordsLost when the log no longer keeps `from`.
 */
export async function takeBatch(
  log: Log,
  place: { topic: string; partition: number },
  { from, end }: { from: number; end: number },
): Promise<Batch | null> {
  const { topic, partition } = place;
  const segment = new Segment({ topic, partition });
  const rejected: Rejected[] = [];
  let next = from;
  let lastEventId = "";
  for (let taken = 0, bytes = 0; taken < BATCH_ROWS && bytes < BATCH_BYTES && next < end; ) {
    const maxRecords = Math.min(READ_RECORDS, BATCH_ROWS - taken, end - next);
    const records = await readLog(log, topic, partition, next, maxRecords);
    const last = records.at(-1);
    if (!last) break;
    for (let at = 0; at < records.length; at += TURN_RECORDS) {
      judge(records.slice(at, at + TURN_RECORDS), segment, rejected);
      await setImmediate();
    }
    next = last.offset + 1;
    lastEventId = last.eventId;
    taken += records.length;
    for (const record of records) bytes += record.value.byteLength;
  }
  if (next === from) return null;
  return {
    ...{ topic, partition, first: from, next, lastEventId, rows: segment.rows, rejected },
    segment: segment.close(),
  };
}

/** What passes becomes a row; the rest is kept as it came. */
function judge(records: readonly LogRecord[], segment: Segment, rejected: Rejected[]): void {
  for (const record of records) {
    const read = readRow(record);
    if (read.ok) segment.add(read.row);
    else rejected.push(read.rejected);
  }
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
