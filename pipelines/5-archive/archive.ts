import { sql } from "../../infra/lake/sql.ts";
import type { CheckpointTrust } from "../../infra/tree/checkpoint.ts";
import { lakePositions, type Positions } from "../2-ingest/load.ts";
import type { ArchiveDraft, Filing } from "../4-publish/archive-fold.ts";
import type { PublishedFold } from "../4-publish/fold.ts";
import { RecordReader, readCheckpoint } from "../4-publish/read.ts";
import { KEPT_DAYS } from "../record/archive.ts";
import { addDays, DAY_MS, dayOf } from "../record/time.ts";
import { ARCHIVE_SUBJECTS, type ArchiveSubject } from "../record/vocabulary.ts";
import { type EvidenceParts, makeEvidence } from "./evidence.ts";
import { emptyFile, type FilingParts, fileOne } from "./filing.ts";
import { gradeFiles } from "./grade-files.ts";
import { packedProbes } from "./probe-files.ts";
import { settle } from "./settle.ts";
import { type HeldRows, isProbes, type MadeFile, PROBES, subjectOf } from "./subjects.ts";
import { removeFiles } from "./work-files.ts";

export interface ArchiveParts extends EvidenceParts, FilingParts {
  /** Keys of our own checkpoint: grades are read from the proven log. */
  trust: CheckpointTrust;
  /** Rows of one file of probes (default: a million). */
  rowsAFile?: number;
}

/** What the archive needs beside the parts of every job. */
export type ArchivePlace = Pick<ArchiveParts, "publicStore" | "trust" | "cards" | "jwks" | "baseUrl">;

export interface ArchiveReport {
  /** Days that got files, oldest first. */
  days: string[];
  files: number;
  /** Lines of those files. */
  rows: number;
  /** Rows that left the lake. */
  removed: number;
}

/** Days in one publication, and publications in one call: after a long pause the next call goes on. */
const DAYS_AT_ONCE = 4;
const MAX_PUBLICATIONS = 128;

/**
 * File every UTC day that ended 110 days ago and has no file yet, and what came late for days that have (publication.md,
 * Archive): put, read back, signed, published as leaves, and only then taken out of the lake by those leaves. May be called
 * again at any time and after any failure: what is done is read from the tree and the lake, files are named by content.
 * @throws ArchiveUnproven, ArchiveMismatch, PublicConflict and what lake, stores and publisher throw; no row is lost then
 */
export async function makeArchive(parts: ArchiveParts, now: Date): Promise<ArchiveReport> {
  const report: ArchiveReport = { days: [], files: 0, rows: 0, removed: 0 };
  const { lake, publisher, onStep } = parts;
  report.removed += await settle(parts, (await publisher.current()).archive);
  await onStep?.("settled", null, null);
  // Everything below these positions is in the evidence before it may leave the lake.
  const ends = await lakePositions(lake);
  await makeEvidence(parts, now);
  for (let n = 0; n < MAX_PUBLICATIONS; n++) {
    const fold = await publisher.current();
    const due = await dueDays(parts, fold, now);
    if (due.size === 0) return report;
    const all: MadeFile[] = [];
    const held = new Map<string, HeldRows>();
    try {
      const filings = await filingsOf(parts, fold, [...due].slice(0, DAYS_AT_ONCE), ends, { all, held });
      if (filings.length === 0) return report;
      const { leaves, refused } = await publisher.publishFilings(filings);
      if (refused[0]) throw refused[0];
      await onStep?.("published", null, null);
      // Also when another publisher was quicker: what he filed leaves our lake, and what is still owed shows at the next look.
      report.removed += await settle(parts, (await publisher.current()).archive, held);
      await onStep?.("taken out", null, null);
      if (leaves > 0) counted(report, filings);
    } finally {
      await removeFiles(all);
    }
  }
  return report;
}

function counted(report: ArchiveReport, filings: readonly Filing[]): void {
  const drafts = filings.flatMap((filing) => filing.drafts);
  report.files += drafts.length;
  report.rows += drafts.reduce((sum, { manifest }) => sum + manifest.rows, 0);
  report.days = [...new Set([...report.days, ...filings.map(({ day }) => day)])].sort();
}

/** UTC days before this one have ended so long ago that their rows may move. */
export const archivedUntil = (now: Date): string => dayOf(new Date(now.getTime() - KEPT_DAYS * DAY_MS));

/** Subjects that have something to file, by day, oldest first. */
async function dueDays(
  { lake }: Pick<ArchiveParts, "lake">,
  { archive, evidence }: PublishedFold,
  now: Date,
): Promise<Map<string, ArchiveSubject[]>> {
  const due = new Map<string, ArchiveSubject[]>();
  // The evidence closes days without a gap from the first recorded one on, and before anything leaves.
  const { first } = evidence;
  if (first === "") return due;
  const [until = ""] = [archivedUntil(now), addDays(evidence.newest, 1)].sort();
  const rows = await lake.all<{ type: string; day: string }>(sql("62_archive_days"), { until });
  const here = new Set(rows.map(({ type, day }) => `${subjectOf(type)} ${day}`));
  for (let day = first; day < until; day = addDays(day, 1)) {
    const owed = ARCHIVE_SUBJECTS.filter((subject) => {
      if (archive.filed(subject, day).length === 0) return true;
      return isProbes(subject) ? here.has(`${subject} ${day}`) : archive.gradesToFile(subject, day) !== null;
    });
    if (owed.length > 0) due.set(day, owed);
  }
  return due;
}

/** Put the files of these days. @param made takes what lies on this disk, and where the rows of each manifest stand */
async function filingsOf(
  parts: ArchiveParts,
  fold: PublishedFold,
  due: readonly [string, ArchiveSubject[]][],
  ends: Positions,
  { all, held }: { all: MadeFile[]; held: Map<string, HeldRows> },
): Promise<Filing[]> {
  const filings: Filing[] = [];
  for (const [day, subjects] of due) {
    for (const subject of subjects) {
      const known = fold.archive.filed(subject, day).length;
      const { made, positions } = await madeFiles(parts, fold, subject, day, ends);
      // A further file of nothing would say nothing.
      if (made.length === 0 && known === 0) made.push(await emptyFile(parts.lake));
      all.push(...made);
      await parts.onStep?.("made", subject, day);
      const drafts: ArchiveDraft[] = [];
      for (const file of made) {
        const draft = await fileOne(parts, file, { subject, day, supersedes: null, reason: null, positions });
        await removeFiles([{ path: file.path }]);
        if (file.held) held.set(draft.manifest.id, file.held);
        drafts.push(draft);
      }
      if (drafts.length > 0) filings.push({ subject, day, known, drafts });
    }
  }
  return filings;
}

async function madeFiles(
  parts: ArchiveParts,
  fold: PublishedFold,
  subject: ArchiveSubject,
  day: string,
  ends: Positions,
): Promise<{ made: MadeFile[]; positions: ArchiveDraft["positions"] }> {
  const { lake, publicStore, trust, rowsAFile } = parts;
  if (isProbes(subject)) {
    const { topic } = PROBES[subject];
    const { files } = await packedProbes(lake, subject, day, ends, rowsAFile, false);
    return { made: files, positions: { [topic]: ends[topic] ?? {} } };
  }
  const span = fold.archive.gradesToFile(subject, day);
  if (!span) return { made: [], positions: { tree: { "0": 0 } } };
  const reader = await RecordReader.open(publicStore, (await readCheckpoint(publicStore, trust))!);
  const made = await gradeFiles(reader, lake, fold.archive, { subject, day, span }, rowsAFile);
  return { made, positions: { tree: { "0": span.end } } };
}
