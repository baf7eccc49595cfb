import { rename, rm } from "node:fs/promises";
import { Writable } from "node:stream";
import parquet from "parquetjs-lite";
import type { YieldToOthers } from "../../infra/concurrency.ts";

const { ParquetSchema, ParquetWriter } = parquet;

/** Number of rows that are in memory at once: those of one row group of the file. */
const ROWS_PER_GROUP = 4096;
const gzipOptional = { compression: "GZIP", optional: true } as const;

/**
 * Column types of all tables. Only plain types, since readers disagree about INTERVAL and UUID columns
 * (publication.md). Times are TIMESTAMP in UTC with milliseconds, as in the record. Every column may be null.
 */
export const COLUMN = {
  text: { type: "UTF8", ...gzipOptional },
  texts: { type: "UTF8", compression: "GZIP", repeated: true },
  number: { type: "DOUBLE", ...gzipOptional },
  count: { type: "INT64", ...gzipOptional },
  yesNo: { type: "BOOLEAN", ...gzipOptional },
  moment: { type: "TIMESTAMP_MILLIS", ...gzipOptional },
} as const;

type Column = (typeof COLUMN)[keyof typeof COLUMN];
export type Columns = Record<string, Column>;
export type Row = Record<string, unknown>;

/** Converts a time of the record (RFC 3339) for a `moment` column; null for null and for a malformed time. */
export function toDate(text: string | null | undefined): Date | null {
  const at = text ? new Date(text) : null;
  return at && !Number.isNaN(at.getTime()) ? at : null;
}

/** Leaves out members without a value: they are null in the file. */
const dropEmpty = (row: Row): Row =>
  Object.fromEntries(Object.entries(row).filter(([, value]) => value !== null && value !== undefined));

/**
 * Writes rows as a Parquet file (gzip, by parquetjs-lite, which has no native code, so that a mirror without DuckDB
 * can do it). The file gets its name only when it is complete.
 * @param facts key-value metadata of the file
 * @returns number of rows
 */
export async function writeParquet(
  path: string,
  columns: Columns,
  facts: Record<string, string>,
  rows: AsyncIterable<Row>,
  onProgress: (rows: number) => void = () => undefined,
): Promise<number> {
  const partial = `${path}.partial`;
  const writer = await ParquetWriter.openFile(new ParquetSchema(columns), partial, { rowGroupSize: ROWS_PER_GROUP });
  let written = 0;
  try {
    for (const [name, value] of Object.entries(facts)) writer.setMetadata(name, value);
    for await (const row of rows) {
      await writer.appendRow(dropEmpty(row));
      if (++written % ROWS_PER_GROUP === 0) onProgress(written);
    }
    await writer.close();
    await rename(partial, path);
  } catch (error) {
    await writer.close().catch(() => undefined);
    await rm(partial, { force: true });
    throw error;
  }
  return written;
}

/** Rows per group of {@link toParquetBytes}. Packing one group blocks the process for tens of milliseconds. */
const SMALL_GROUP_ROWS = 1024;
const ROWS_PER_TURN = 32;

/**
 * Makes a Parquet file (snappy) from rows, in memory. Equal rows give equal bytes: snappyjs is JavaScript of a pinned
 * version, while gzip depends on the running Node.
 * @param giveTurn awaited after every few rows, so that other work of the process gets its turn
 */
export async function toParquetBytes(
  columns: Columns,
  facts: Record<string, string>,
  rows: Iterable<Row>,
  giveTurn: YieldToOthers,
): Promise<Buffer> {
  const chunks: Buffer[] = [];
  const stream = new Writable({
    write(chunk: Buffer, _encoding, done) {
      chunks.push(chunk);
      done();
    },
  });
  const snappyColumns = Object.entries(columns).map(
    ([name, column]) => [name, { ...column, compression: "SNAPPY" }] as const,
  );
  const schema = new ParquetSchema(Object.fromEntries(snappyColumns));
  const writer = await ParquetWriter.openStream(schema, stream, { rowGroupSize: SMALL_GROUP_ROWS });
  for (const [name, value] of Object.entries(facts)) writer.setMetadata(name, value);
  let appended = 0;
  for (const row of rows) {
    if (appended++ % ROWS_PER_TURN === 0) await giveTurn();
    await writer.appendRow(dropEmpty(row));
  }
  await writer.close();
  return Buffer.concat(chunks);
}
