import { randomBytes } from "node:crypto";
import { mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { SegmentRef } from "../../infra/chain/commit.ts";
import { openChain } from "../../infra/chain/commits.ts";
import type { Lake } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import type { Store } from "../../infra/store/store.ts";

export interface DaySegmentsParts {
  lake: Pick<Lake, "all" | "workDir">;
  privateStore: Store;
  logId: string;
}

/**
 * Selects the records of one partition that were observed on a UTC day and whose offset is below the one that `below`
 * has for their topic.
 */
export interface DayRecords {
  partition: number;
  day: string;
  below: Readonly<Record<string, number>>;
}

/** Copies of segments on this machine, which exist until `close` is called. */
export interface DaySegments {
  /** Folder of the copies, which `close` removes. */
  folder: string;
  /** Glob for `read_parquet`, or null when there is no segment. */
  files: string | null;
  close(): Promise<void>;
}

/** Selects segments of one partition of a topic. */
export interface SegmentSelection {
  topic: string;
  partition: number;
  wants: (ref: SegmentRef) => boolean;
}

/**
 * Copies live segments (Parquet files that the newest commit of a partition's commit chain lists) to this machine.
 * @throws DamagedChain, and what the store throws
 */
export async function openSegments(
  { workDir, privateStore, logId }: { workDir: string; privateStore: Store; logId: string },
  selections: readonly SegmentSelection[],
): Promise<DaySegments> {
  const folder = join(workDir, `day-${randomBytes(8).toString("hex")}`);
  const close = () => rm(folder, { recursive: true, force: true });
  let count = 0;
  try {
    await mkdir(folder);
    for (const { topic, partition, wants } of selections) {
      const chain = openChain(privateStore, { logId, topic, partition });
      for (const ref of (await chain.head()).live) {
        if (ref.rows === 0 || !wants(ref)) continue;
        await writeFile(join(folder, `${count++}.parquet`), await chain.readSegment(ref));
      }
    }
  } catch (error) {
    await close();
    throw error;
  }
  return { folder, files: count === 0 ? null : join(folder, "*.parquet"), close };
}

/**
 * Copies the live segments of one partition that have records of a day below the given positions. Callers read the
 * bodies of probes from these files, since the lake (the DuckDB database) does not keep these bodies. The files also
 * hold rows of other days, rows at later positions, and second copies of an event, which the caller filters out. The
 * lake knows which days a file has that it loaded. A file that it has not loaded, for example because another
 * ingester joined several files, is always included.
 * @throws DamagedChain, and what the store throws
 */
export async function openDaySegments(
  { lake, privateStore, logId }: DaySegmentsParts,
  { partition, day, below }: DayRecords,
): Promise<DaySegments> {
  const otherDayFiles = await lake.all<{ topic: string; file: string }>(sql("staging/loaded:other_days"), {
    part: partition,
    day,
  });
  const excludedFiles = new Set(otherDayFiles.map(({ topic, file }) => `${topic}/${file}`));
  const selections = Object.entries(below).map(([topic, next]) => ({
    topic,
    partition,
    wants: ({ first, file }: SegmentRef) => first < next && !excludedFiles.has(`${topic}/${file}`),
  }));
  return openSegments({ workDir: lake.workDir, privateStore, logId }, selections);
}

/** A valid record, in the form in which a segment stores it. */
export interface Row {
  offset: number;
  eventId: string;
  type: string;
  key: string;
  /** Id of the capability (endpoint) that the record is about, or null. */
  cap: string | null;
  /** Unix ms. */
  observedMs: number;
  producer: string;
  v: number;
  /** Unix ms. */
  appendedMs: number;
  /** Text of the body, unchanged. */
  body: string;
  /**
   * Properties of the record's envelope that this version does not know, as the JSON text of an object; null if there
   * are none.
   */
  extra: string | null;
}

/**
 * Separates the fields of a line. No field contains this character: JSON text has no control characters except white
 * space between its tokens, and row.ts rejects keys and producers that have one.
 */
const SEPARATOR = "\x1f";
const LINE_BREAKS = /[\r\n]/g;

/**
 * Formats a row as a line for {@link writeSegment}, in three parts that follow each other: the fields before the body,
 * the body, and the rest. Line breaks between the tokens of a body become spaces; its other bytes are unchanged.
 */
export function linePartsOf(row: Row): [before: string, body: string, rest: string] {
  const { offset, eventId, type, key, cap, observedMs, producer, v, appendedMs, extra } = row;
  const body = row.body.includes("\n") || row.body.includes("\r") ? row.body.replace(LINE_BREAKS, " ") : row.body;
  // Null becomes an empty field. Joining an array would take three times as long as one template.
  const before =
    `${offset}${SEPARATOR}${eventId}${SEPARATOR}${type}${SEPARATOR}${key}${SEPARATOR}${cap ?? ""}${SEPARATOR}${observedMs}${SEPARATOR}` +
    `${producer}${SEPARATOR}${v}${SEPARATOR}${appendedMs}${SEPARATOR}`;
  return [before, body, `${SEPARATOR}${extra ?? ""}\n`];
}

/**
 * Writes lines of one partition, offsets ascending, as a segment: a Parquet file with a row group for each 122,880
 * rows. Only `cap` and `extra` may be null:
 *
 * | column | type | |
 * |---|---|---|
 * | topic | VARCHAR | equal in all rows |
 * | part | USMALLINT | partition, equal in all rows |
 * | offset | BIGINT | position in the log, ascending |
 * | event_id | VARCHAR | second copies of an event have rows too |
 * | type | VARCHAR | of the body |
 * | key | VARCHAR | of the record in the log |
 * | cap | VARCHAR | of the envelope |
 * | observed_at | TIMESTAMP | UTC, whole ms |
 * | producer | VARCHAR | |
 * | v | USMALLINT | version of the envelope |
 * | appended_at | TIMESTAMP | UTC, whole ms |
 * | body | VARCHAR | JSON text of the body, as it was appended |
 * | extra | VARCHAR | members of the envelope that this version does not know, a JSON object |
 */
export async function writeSegment(
  lake: Pick<Lake, "all">,
  { topic, partition }: { topic: string; partition: number },
  { lines, segment }: { lines: string; segment: string },
): Promise<void> {
  await lake.all(sql("staging/segment:written"), { topic, part: partition, lines, segment });
}
