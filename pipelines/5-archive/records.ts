import { createYielder } from "../../infra/concurrency.ts";
import type { Lake } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import { type DaySegmentsParts, openDaySegments } from "../2-ingest/day-segments.ts";
import { positionsOf } from "../2-ingest/load.ts";
import type { EvidenceFold } from "../published/fold.ts";
import { partitionOfBucket } from "../record/ids.ts";
import type { Positions } from "../record/volatile.ts";
import type { Fact } from "./lines.ts";

/** Topics of the event log whose records become evidence. */
const EVIDENCE_TOPICS = ["observations.free", "observations.paid", "observations.mcp", "corrections"] as const;

/** Number of records after which the loop yields to other work of the process; they take a few milliseconds. */
const FACTS_PER_TURN = 32;

/** A row of evidence/records (of_day). */
interface RecordRow {
  bucket: number;
  /** Id of the sample, or of the capability whose corrections these are, that the record is about. */
  about: string;
  event_id: string;
  type: string;
  cap: string;
  topic: string;
  log_offset: number;
  /** When the record was observed, unix ms. */
  t: number;
  /** JSON. */
  body: string;
  /** Does the record belong to the evidence file that is being made? */
  member: boolean;
}

/** All records of the log about one sample, or about one capability's corrections. */
export interface RecordGroup {
  bucket: number;
  facts: Fact[];
}

const positionsText = (ends: Positions): string =>
  JSON.stringify(
    EVIDENCE_TOPICS.flatMap((topic) =>
      Object.entries(ends[topic] ?? {}).map(([part, next]) => ({ topic, part: Number(part), next })),
    ),
  );

/** {topic: next offset} of the partition that contains a bucket (a fixed share of the endpoints). */
export const positionsOfBucket = (ends: Positions, bucket: number, partitions: number): Record<string, number> =>
  positionsOf(ends, partitionOfBucket(bucket, partitions), EVIDENCE_TOPICS);

/**
 * For each topic and partition: the highest next offset in the published closes, up to which evidence files have read
 * it. One number holds for all closed days, since the files of such days that an owner made up to the same positions
 * are published together or not at all (roles/protocol/evidence.ts).
 */
function closedPositions(fold: EvidenceFold, partitions: number): Positions {
  const positionsRead: Positions = {};
  for (const { buckets } of fold.days.values()) {
    for (const [bucket, positions] of buckets) {
      const part = String(partitionOfBucket(bucket, partitions));
      for (const [topic, next] of Object.entries(positions)) {
        positionsRead[topic] ??= {};
        positionsRead[topic][part] = Math.max(positionsRead[topic][part] ?? 0, next);
      }
    }
  }
  return positionsRead;
}

/**
 * Returns the days, ascending, that have records which no close (publication of a day's evidence) has read: closed
 * days with later records, and unclosed days before `until`.
 * @param ends offsets of the event log up to which the lake is loaded
 */
export async function daysWithNews(
  lake: Pick<Lake, "all">,
  fold: EvidenceFold,
  ends: Positions,
  until: string,
  partitions: number,
): Promise<string[]> {
  const rows = await lake.all<{ day: string }>(sql("evidence/records:days"), {
    until,
    newest: fold.newest || "0001-01-01",
    read: positionsText(closedPositions(fold, partitions)),
    ends: positionsText(ends),
  });
  return rows.map(({ day }) => day);
}

/**
 * Yields the records that a close of this day has to read, grouped by sample or capability: partition by partition,
 * bucket by bucket, ascending by id. One group at a time is in memory. The lake (local database) knows which records
 * these are; their bodies are read from the segment files of the day.
 */
export async function* recordGroups(
  parts: DaySegmentsParts & { lake: Pick<Lake, "stream"> },
  fold: EvidenceFold,
  ends: Positions,
  day: string,
): AsyncGenerator<RecordGroup> {
  const partitions = new Set(EVIDENCE_TOPICS.flatMap((topic) => Object.keys(ends[topic] ?? {}).map(Number)));
  for (const partition of [...partitions].sort((a, b) => a - b)) {
    const endOffsets = positionsOf(ends, partition, EVIDENCE_TOPICS);
    const segments = await openDaySegments(parts, { partition, day, below: endOffsets });
    try {
      // null: no segment has a record of this day.
      if (segments.files !== null)
        yield* recordGroupsIn(parts.lake, fold, endOffsets, { partition, day, files: segments.files });
    } finally {
      await segments.close();
    }
  }
}

async function* recordGroupsIn(
  lake: Pick<Lake, "stream">,
  fold: EvidenceFold,
  endOffsets: Readonly<Record<string, number>>,
  { partition: part, day, files }: { partition: number; day: string; files: string },
): AsyncGenerator<RecordGroup> {
  const positionsRead = [...(fold.days.get(day)?.buckets ?? [])].flatMap(([bucket, positions]) =>
    Object.entries(positions).map(([topic, next]) => ({ bucket, topic, next })),
  );
  const endsText = JSON.stringify(Object.entries(endOffsets).map(([topic, next]) => ({ topic, part, next })));
  const params = { day, files, ends: endsText, known: JSON.stringify(positionsRead) };
  const pauseEveryFewFacts = createYielder(FACTS_PER_TURN);
  let group: (RecordGroup & { about: string; cap: string }) | null = null;
  for await (const rows of lake.stream<RecordRow>(sql("evidence/records:of_day"), params)) {
    for (const { bucket, about, log_offset, body, ...rest } of rows) {
      // DuckDB returns thousands of rows at once, and the caller makes lines of each, so the loop yields in between.
      await pauseEveryFewFacts();
      const fact: Fact = { ...rest, subjectId: about, offset: log_offset, body: JSON.parse(body) };
      if (group && group.bucket === bucket && group.about === about && group.cap === fact.cap) {
        group.facts.push(fact);
        continue;
      }
      if (group) yield group;
      group = { bucket, about, cap: fact.cap, facts: [fact] };
    }
  }
  if (group) yield group;
}
