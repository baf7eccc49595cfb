import type { Lake } from "../../../infra/lake/duckdb.ts";
import { sql } from "../../../infra/lake/sql.ts";
import { lakePositions, positionsOf } from "../../2-ingest/load.ts";
import { followArchive } from "../../5-archive/follow.ts";
import { firstRetainedDay } from "../../5-archive/place.ts";
import { readDaySpans } from "../../5-archive/probe-files.ts";
import { type ProbeSubject, subjectOf } from "../../5-archive/read-back.ts";
import { daysWithNews } from "../../5-archive/records.ts";
import type { PublishedFold } from "../../published/fold.ts";
import { addDays } from "../../record/time.ts";
import type { Positions } from "../../record/volatile.ts";
import { type ArchivePart, dayName, type PartDay } from "./archive-parts.ts";
import type { PartitionObjectParts } from "./partition-objects.ts";

export interface OwnArchiveParts extends PartitionObjectParts<ArchivePart> {
  /** Called after each step, so that a test can throw an error there. */
  onStep?: (step: OwnArchiveStep) => void | Promise<void>;
}

export type OwnArchiveStep = "taken out" | "looked" | "written";

export interface OwnArchiveReport {
  /**
   * Number of rows that were removed from the lake (the database of the log's rows), since they are in published
   * archive files.
   */
  removed: number;
  /** Number of rows in the lake that wait to be archived. */
  rows: number;
}

/** The number of rows of one partition, subject (kind of rows) and day that wait in the lake to be archived. */
interface WaitingRows {
  subject: ProbeSubject;
  day: string;
  part: number;
  rows: number;
}

interface WaitingState {
  /** Log positions up to which the lake is loaded. */
  ends: Positions;
  /** UTC day before which rows may be archived. */
  until: string;
  waiting: readonly WaitingRows[];
}

/**
 * Does an owner's part of archiving (docs/archive.md); an owner ingests and grades some partitions. Removes from the
 * lake the rows that are in a published archive file. For each partition, writes the number of the other rows that
 * are old enough, their segments (files of log records) and the log positions up to which it has read, into a private
 * object from which the publisher makes the archive files. May be called again at any time, also after a failure.
 * @throws PartitionsRevoked, OvertakenByOwner, Failure `record` and what lake and stores throw; no row is lost then
 */
export async function makeOwnArchive(
  parts: OwnArchiveParts,
  heldPartitions: readonly number[],
  now: Date,
): Promise<OwnArchiveReport> {
  const { lake, followed, objects, log, onStep } = parts;
  const fold = await followed.current();
  const tree = fold.size;
  const removed = await followArchive(lake, fold.archive);
  await onStep?.("taken out");
  const state = await readWaiting(lake, fold, now, log.partitions);
  await onStep?.("looked");
  if (!state) return { removed, rows: 0 };
  const lastFiledLeaf = Math.max(-1, ...[...fold.archive.files.values()].map(({ index }) => index));
  for (const partition of heldPartitions) {
    // Skips a partition that was assigned a moment ago and is not loaded yet, or that was lost since.
    if (!Object.values(state.ends).some((ends) => String(partition) in ends)) continue;
    const days = await waitingDaysOf(lake, state, partition);
    const positions = positionsOf(state.ends, partition);
    const part: ArchivePart = { v: 1, log: log.id, positions, tree, until: state.until, days };
    parts.refuseRevoked();
    const isUnchanged = (stored: ArchivePart): boolean =>
      stored.tree > lastFiledLeaf &&
      stored.until === state.until &&
      JSON.stringify(stored.days) === JSON.stringify(days);
    await objects.put(partition, part, (stored) => !isUnchanged(stored));
    await onStep?.("written");
  }
  return { removed, rows: state.waiting.reduce((sum, { rows }) => sum + rows, 0) };
}

/**
 * Reads, in one transaction, which rows wait and how far the lake is loaded; null before the evidence of the first
 * day was published.
 */
function readWaiting(lake: Lake, fold: PublishedFold, now: Date, partitions: number): Promise<WaitingState | null> {
  const { evidence } = fold;
  if (evidence.firstDay === "") return Promise.resolve(null);
  const firstUnclosedDay = addDays(evidence.newest, 1);
  return lake.transaction(async (tx) => {
    const ends = await lakePositions(tx);
    // A day with rows that are in no evidence file yet is not archived, nor are later days, since the archive must
    // not have rows that the evidence lacks.
    const [firstUnreadDay = firstUnclosedDay] = await daysWithNews(tx, evidence, ends, firstUnclosedDay, partitions);
    const [until = ""] = [firstRetainedDay(now), firstUnclosedDay, firstUnreadDay].sort();
    const rows = await tx.all<Omit<WaitingRows, "subject"> & { type: string }>(sql("archive/evict:waiting"), { until });
    const waiting = rows.flatMap(({ type, ...row }): WaitingRows[] => {
      const subject = subjectOf(type);
      return subject ? [{ subject, ...row }] : [];
    });
    return { ends, until, waiting };
  });
}

async function waitingDaysOf(
  lake: Lake,
  { waiting }: WaitingState,
  partition: number,
): Promise<Record<string, PartDay>> {
  const days: Record<string, PartDay> = {};
  for (const { subject, day, part, rows } of waiting) {
    if (part === partition) days[dayName(subject, day)] = { rows, spans: await readDaySpans(lake, subject, day, part) };
  }
  return days;
}
