import type { Lake } from "../../infra/lake/duckdb.ts";
import type { Store } from "../../infra/store/store.ts";
import type { Logger } from "../../infra/telemetry.ts";
import type { ArchiveDraft, Filing } from "../4-publish/archive-fold.ts";
import type { PublishedFold } from "../4-publish/fold.ts";
import type { Publisher } from "../4-publish/publisher.ts";
import { RecordReader, readCheckpoint } from "../4-publish/read.ts";
import { type ArchivePlace, type ArchiveReport, archivedUntil } from "../5-archive/archive.ts";
import { emptyFile, type FilingParts, fileOne } from "../5-archive/filing.ts";
import { gradeFiles } from "../5-archive/grade-files.ts";
import { isProbes, type MadeFile, PROBES, type ProbeSubject } from "../5-archive/subjects.ts";
import { removeFiles } from "../5-archive/work-files.ts";
import { addDays } from "../record/time.ts";
import { ARCHIVE_SUBJECTS, type ArchiveSubject } from "../record/vocabulary.ts";
import { type ArchivePart, dayName, type PartDay } from "./archive-parts.ts";
import { mergeRows } from "./merge-rows.ts";
import type { PartitionObjects } from "./partition-objects.ts";

export interface FileArchiveParts extends ArchivePlace, Pick<FilingParts, "now" | "onStep"> {
  publisher: Publisher;
  privateStore: Store;
  /** Partitions of the event log. */
  partitions: number;
  logger: Logger;
  /** An engine for the files that are being made, with nothing in it: the publisher has no lake. Opened when there is one. */
  scratch: () => Promise<Lake>;
  /** Rows of one file of probes (default: a million). */
  rowsAFile?: number;
}

/** Days in one publication, and publications in one call: after a long pause the next call goes on. */
const DAYS_AT_ONCE = 4;
const MAX_PUBLICATIONS = 32;

type Said = ReadonlyMap<number, ArchivePart>;

/**
 * The publisher's half of the archive: for every day that all owners have said theirs of, the file of each subject, with
 * the bytes that one owner of all partitions would have made; read back, signed, published as leaves. Rows leave the lakes
 * of their owners by those leaves alone. May be called at any time and again after any failure: what is done is read from
 * the tree, files are named by content.
 * @throws ArchiveUnproven, PublicConflict and what stores and publisher throw; nothing of that day is published then
 */
export async function fileArchive(
  parts: FileArchiveParts,
  objects: PartitionObjects<ArchivePart>,
): Promise<Omit<ArchiveReport, "removed">> {
  const report = { days: [] as string[], files: 0, rows: 0 };
  let scratch: Lake | null = null;
  try {
    for (let n = 0; n < MAX_PUBLICATIONS; n++) {
      const fold = await parts.publisher.current();
      const said = await objects.all();
      const due = dueDays(fold, said, parts);
      if (due.size === 0) return report;
      scratch ??= await parts.scratch();
      const filings: Filing[] = [];
      for (const [day, subjects] of [...due].slice(0, DAYS_AT_ONCE)) {
        for (const subject of subjects)
          filings.push(await filingOf({ ...parts, lake: scratch }, fold, said, subject, day));
      }
      const { leaves, refused } = await parts.publisher.publishFilings(
        filings.filter(({ drafts }) => drafts.length > 0),
      );
      if (refused[0]) throw refused[0];
      await parts.onStep?.("published", null, null);
      // Another publisher was quicker, or the owners have still to follow: the next call looks again.
      if (leaves === 0) return report;
      const drafts = filings.flatMap((filing) => filing.drafts);
      report.files += drafts.length;
      report.rows += drafts.reduce((sum, { manifest }) => sum + manifest.rows, 0);
      report.days = [...new Set([...report.days, ...filings.map(({ day }) => day)])].sort();
    }
    return report;
  } finally {
    await scratch?.close();
  }
}

/** Subjects that have something to file, by day, oldest first; nothing before all partitions have said theirs. */
function dueDays(
  { archive, evidence }: PublishedFold,
  said: Said,
  { partitions, now }: Pick<FileArchiveParts, "partitions" | "now">,
): Map<string, ArchiveSubject[]> {
  const due = new Map<string, ArchiveSubject[]>();
  const everyone = Array.from({ length: partitions }, (_, partition) => said.get(partition));
  if (evidence.first === "" || everyone.includes(undefined)) return due;
  const theirs = everyone.map((part) => part!.until);
  const [until = ""] = [archivedUntil(now()), addDays(evidence.newest, 1), ...theirs].sort();
  for (let day = evidence.first; day < until; day = addDays(day, 1)) {
    const owed = ARCHIVE_SUBJECTS.filter((subject) => {
      if (archive.filed(subject, day).length === 0) return true;
      return isProbes(subject)
        ? saidOf(archive, said, subject, day).length > 0
        : archive.gradesToFile(subject, day) !== null;
    });
    if (owed.length > 0) due.set(day, owed);
  }
  return due;
}

/**
 * What the partitions have of a subject and day; nothing before every one of them has followed the day's last file: what
 * was said before that may be in it.
 */
function saidOf(
  archive: PublishedFold["archive"],
  said: Said,
  subject: ProbeSubject,
  day: string,
): [number, PartDay][] {
  const last = archive.filed(subject, day).at(-1)?.index ?? -1;
  const all = [...said].sort(([a], [b]) => a - b);
  if (all.some(([, { tree }]) => tree <= last)) return [];
  return all.flatMap(([partition, { days }]): [number, PartDay][] => {
    const own = days[dayName(subject, day)];
    return own ? [[partition, own]] : [];
  });
}

async function filingOf(
  parts: FileArchiveParts & { lake: Lake },
  fold: PublishedFold,
  said: Said,
  subject: ArchiveSubject,
  day: string,
): Promise<Filing> {
  const known = fold.archive.filed(subject, day).length;
  const { made, positions } = await madeFiles(parts, fold, said, subject, day);
  // A further file of nothing would say nothing.
  if (made.length === 0 && known === 0) made.push(await emptyFile(parts.lake));
  await parts.onStep?.("made", subject, day);
  const drafts: ArchiveDraft[] = [];
  for (const file of made) {
    drafts.push(await fileOne(parts, file, { subject, day, supersedes: null, reason: null, positions }));
    await removeFiles([file]);
  }
  return { subject, day, known, drafts };
}

async function madeFiles(
  parts: FileArchiveParts & { lake: Lake },
  fold: PublishedFold,
  said: Said,
  subject: ArchiveSubject,
  day: string,
): Promise<{ made: MadeFile[]; positions: ArchiveDraft["positions"] }> {
  const { lake, privateStore, publicStore, trust, rowsAFile } = parts;
  if (isProbes(subject)) {
    const { topic } = PROBES[subject];
    const below = [...said].sort(([a], [b]) => a - b).map(([p, { positions }]) => [String(p), positions[topic] ?? 0]);
    const days = saidOf(fold.archive, said, subject, day);
    const made = await mergeRows(lake, privateStore, days, rowsAFile);
    return { made, positions: { [topic]: Object.fromEntries(below) } };
  }
  const span = fold.archive.gradesToFile(subject, day);
  if (!span) return { made: [], positions: { tree: { "0": 0 } } };
  const reader = await RecordReader.open(publicStore, (await readCheckpoint(publicStore, trust))!);
  const made = await gradeFiles(reader, lake, fold.archive, { subject, day, span }, rowsAFile);
  return { made, positions: { tree: { "0": span.end } } };
}
