import { rename, rm } from "node:fs/promises";
import parquet from "parquetjs-lite";

const { ParquetSchema, ParquetWriter } = parquet;

/** Rows in memory at once. */
const ROW_GROUP = 4096;
const packed = { compression: "GZIP", optional: true } as const;

/**
 * Columns of every table. Plain types only: readers disagree about INTERVAL and UUID columns (publication.md). Moments
 * are TIMESTAMP in UTC to the millisecond, as the record has them. Every column may be null.
 */
export const COLUMN = {
  text: { type: "UTF8", ...packed },
  texts: { type: "UTF8", compression: "GZIP", repeated: true },
  number: { type: "DOUBLE", ...packed },
  count: { type: "INT64", ...packed },
  yesNo: { type: "BOOLEAN", ...packed },
  moment: { type: "TIMESTAMP_MILLIS", ...packed },
} as const;

export type Columns = Record<string, (typeof COLUMN)[keyof typeof COLUMN]>;
export type Row = Record<string, unknown>;

/** A moment of the record (RFC 3339) as a column has it; null for none, and for a text that is none. */
export function moment(text: string | null | undefined): Date | null {
  const at = text ? new Date(text) : null;
  return at && !Number.isNaN(at.getTime()) ? at : null;
}

/** Members without a value are left out: that is null in the file. */
const present = (row: Row): Row =>
  Object.fromEntries(Object.entries(row).filter(([, value]) => value !== null && value !== undefined));

/**
 * Write rows as Parquet (gzip, parquetjs-lite: no native code, so a mirror without DuckDB can do it). The file has its
 * name only once it is whole.
 * @param facts key and value metadata of the file
 * @returns rows written
 */
export async function writeParquet(
  path: string,
  columns: Columns,
  facts: Record<string, string>,
  rows: AsyncIterable<Row>,
  onProgress: (rows: number) => void = () => undefined,
): Promise<number> {
  const partial = `${path}.partial`;
  const writer = await ParquetWriter.openFile(new ParquetSchema(columns), partial, { rowGroupSize: ROW_GROUP });
  let written = 0;
  try {
    for (const [name, value] of Object.entries(facts)) writer.setMetadata(name, value);
    for await (const row of rows) {
      await writer.appendRow(present(row));
      if (++written % ROW_GROUP === 0) onProgress(written);
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
