import type { Lake } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";

/** A record that the readers of today take, as a segment keeps it. */
export interface Row {
  offset: number;
  eventId: string;
  type: string;
  key: string;
  cap: string | null;
  /** Unix ms. */
  observedMs: number;
  producer: string;
  v: number;
  /** Unix ms. */
  appendedMs: number;
  /** The body's text as it came. */
  body: string;
  /** Members of the envelope that we do not know, as JSON text. */
  extra: string | null;
}

/** Stands between the fields of a line: no JSON text holds a control character but white space between its tokens. */
const FIELD = "\x1f";
const BREAK = /[\r\n]/g;

/**
 * One row as a line of a text file that {@link writeSegment} makes a segment of. Line breaks between the tokens of a body
 * become spaces; nothing else of it is changed.
 */
export function lineOf(row: Row): string {
  const body = row.body.includes("\n") || row.body.includes("\r") ? row.body.replace(BREAK, " ") : row.body;
  return (
    row.offset +
    FIELD +
    row.eventId +
    FIELD +
    row.type +
    FIELD +
    row.key +
    FIELD +
    (row.cap ?? "") +
    FIELD +
    row.observedMs +
    FIELD +
    row.producer +
    FIELD +
    row.v +
    FIELD +
    row.appendedMs +
    FIELD +
    body +
    FIELD +
    (row.extra ?? "") +
    "\n"
  );
}

/**
 * Lines of one partition, offsets ascending, into a segment: a Parquet file of one row group for each 122,880 rows. Columns,
 * of which only `cap` and `extra` may be null:
 *
 * | column | type | |
 * |---|---|---|
 * | topic | VARCHAR | the same in all rows |
 * | part | USMALLINT | partition, the same in all rows |
 * | offset | BIGINT | position in the log; rows rise by it |
 * | event_id | VARCHAR | copies of an event are rows too |
 * | type | VARCHAR | of the body |
 * | key | VARCHAR | that the record was appended under |
 * | cap | VARCHAR | as the envelope says it |
 * | observed_at | TIMESTAMP | UTC, whole ms |
 * | producer | VARCHAR | |
 * | v | USMALLINT | version of the envelope |
 * | appended_at | TIMESTAMP | UTC, whole ms |
 * | body | VARCHAR | JSON text of the body as it came |
 * | extra | VARCHAR | members of the envelope that this version does not know, as JSON text |
 */
export async function writeSegment(
  lake: Pick<Lake, "all">,
  { topic, partition }: { topic: string; partition: number },
  { lines, segment }: { lines: string; segment: string },
): Promise<void> {
  await lake.all(sql("staging/segment"), { topic, part: partition, lines, segment });
}
