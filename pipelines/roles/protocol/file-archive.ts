import type { Store } from "../../../infra/store/store.ts";
import type { Logger } from "../../../infra/telemetry.ts";
import type { ArchiveDraft, Filing } from "../../4-publish/filings.ts";
import type { Publisher } from "../../4-publish/publisher.ts";
import { createEmptyFile, type FilingParts, storeMadeFile } from "../../5-archive/filing.ts";
import { type ArchivePlace, firstRetainedDay } from "../../5-archive/place.ts";
import { type LinePrinter, makeGradeFiles, makeProbeFiles, type PartRows } from "../../5-archive/probe-files.ts";
import {
  isProbeSubject,
  type MadeFile,
  PROBE_SUBJECTS,
  type ProbeSubject,
  removeFiles,
} from "../../5-archive/read-back.ts";
import { Unproven } from "../../published/errors.ts";
import type { PublishedFold } from "../../published/fold.ts";
import { RecordReader, readCheckpoint } from "../../published/reader.ts";
import { addDays } from "../../record/time.ts";
import { ARCHIVE_SUBJECTS, type ArchiveSubject } from "../../record/vocabulary.ts";
import { type ArchivePart, dayName, type PartDay } from "./archive-parts.ts";
import type { PartitionObjects } from "./partition-objects.ts";

/** A database engine that prints the lines of archive files. It is closed when they are printed. */
export type PrinterEngine = LinePrinter & { close(): Promise<void> };

export interface FileArchiveParts extends ArchivePlace, Pick<FilingParts, "now" | "onStep"> {
  publisher: Publisher;
  privateStore: Store;
  /** The event log. */
  log: { id: string; partitions: number };
  logger: Logger;
  /** Opens the engine when there are days to archive, since the publisher has no lake. */
  openPrinter: () => Promise<PrinterEngine>;
  /** Largest number of rows of one file of probes (default: a million). */
  rowsPerFile?: number;
}

export interface FiledReport {
  /** Days for which files were published, oldest first. */
  days: string[];
  files: number;
  /** Number of lines in the published files. */
  rows: number;
}

/** Largest number of days whose files are published at once. */
const DAYS_PER_PUBLICATION = 4;
/** Largest number of publications in one call. If more are due, as after a long pause, the next call continues. */
const MAX_PUBLICATIONS = 32;

type PartsByPartition = ReadonlyMap<number, ArchivePart>;

/**
 * Archives old days; the publisher calls this function. Owners (processes that ingest and grade some partitions) list
 * the rows that wait to be archived. For each day that the lists of all owners cover, and for each subject (kind of
 * rows), it prints a file from the segments (files of log records) up to the owners' positions, reads the file back,
 * signs its description and publishes that as a leaf (entry of the public log). Owners remove the rows once they have
 * read the leaf. May be called again at any time, also after a failure: published files are not made again, and an
 * unpublished file gets the same name, since files are named by content.
 * @throws Unproven, PublicConflict and errors of stores and publisher; then nothing of that day is published
 */
export async function fileArchive(
  parts: FileArchiveParts,
  objects: PartitionObjects<ArchivePart>,
): Promise<FiledReport> {
  const report: FiledReport = { days: [], files: 0, rows: 0 };
  let printer: PrinterEngine | null = null;
  try {
    for (let n = 0; n < MAX_PUBLICATIONS; n++) {
      const fold = await parts.publisher.current();
      const byPartition = await objects.readAll();
      const dueDays = findDueDays(fold, byPartition, parts);
      if (dueDays.size === 0) return report;
      printer ??= await parts.openPrinter();
      const filings: Filing[] = [];
      for (const [day, subjects] of [...dueDays].slice(0, DAYS_PER_PUBLICATION)) {
        for (const subject of subjects)
          filings.push(await makeFiling({ ...parts, printer: printer }, fold, byPartition, subject, day));
      }
      const { leaves, refused } = await parts.publisher.publishFilings(
        filings.filter(({ drafts }) => drafts.length > 0),
      );
      if (refused[0]) throw refused[0];
      await parts.onStep?.("published", null, null);
      // Nothing was published: another publisher was faster, or there was nothing to publish. The next call tries
      // again.
      if (leaves === 0) return report;
      const drafts = filings.flatMap((filing) => filing.drafts);
      report.files += drafts.length;
      report.rows += drafts.reduce((sum, { manifest }) => sum + manifest.rows, 0);
      report.days = [...new Set([...report.days, ...filings.map(({ day }) => day)])].sort();
    }
    return report;
  } finally {
    await printer?.close();
  }
}

/**
 * Finds the subjects of which files are missing, by day, oldest first; empty until the owners of all partitions have
 * written their lists.
 */
function findDueDays(
  { archive, evidence }: PublishedFold,
  byPartition: PartsByPartition,
  { log, now }: Pick<FileArchiveParts, "log" | "now">,
): Map<string, ArchiveSubject[]> {
  const dueDays = new Map<string, ArchiveSubject[]>();
  const allParts = Array.from({ length: log.partitions }, (_, partition) => byPartition.get(partition));
  if (evidence.firstDay === "" || allParts.includes(undefined)) return dueDays;
  const ownersUntil = allParts.map((part) => part!.until);
  const [endDay = ""] = [firstRetainedDay(now()), addDays(evidence.newest, 1), ...ownersUntil].sort();
  for (let day = evidence.firstDay; day < endDay; day = addDays(day, 1)) {
    const missingSubjects = ARCHIVE_SUBJECTS.filter((subject) => {
      if (archive.filesOf(subject, day).length === 0) return true;
      return isProbeSubject(subject)
        ? daysOfParts(archive, byPartition, subject, day).length > 0
        : archive.gradesToFile(subject, day) !== null;
    });
    if (missingSubjects.length > 0) dueDays.set(day, missingSubjects);
  }
  return dueDays;
}

/**
 * Returns the waiting rows of a subject and day, by partition. The result is empty until all owners have read the
 * leaf of the day's newest file, since rows in older lists may be in that file.
 */
function daysOfParts(
  archive: PublishedFold["archive"],
  byPartition: PartsByPartition,
  subject: ProbeSubject,
  day: string,
): [number, PartDay][] {
  const lastLeaf = archive.filesOf(subject, day).at(-1)?.index ?? -1;
  const sortedParts = [...byPartition].sort(([a], [b]) => a - b);
  if (sortedParts.some(([, { tree }]) => tree <= lastLeaf)) return [];
  return sortedParts.flatMap(([partition, { days }]): [number, PartDay][] => {
    const waitingRows = days[dayName(subject, day)];
    return waitingRows ? [[partition, waitingRows]] : [];
  });
}

async function makeFiling(
  parts: FileArchiveParts & { printer: LinePrinter },
  fold: PublishedFold,
  byPartition: PartsByPartition,
  subject: ArchiveSubject,
  day: string,
): Promise<Filing> {
  const filesBefore = fold.archive.filesOf(subject, day).length;
  const { made, positions } = isProbeSubject(subject)
    ? await fileProbes(parts, fold, byPartition, subject, day)
    : await fileGrades(parts, fold, subject, day);
  // An empty file is made only if the day has no file yet.
  if (made.length === 0 && filesBefore === 0) made.push(await createEmptyFile(parts.printer));
  try {
    await parts.onStep?.("made", subject, day);
    const drafts: ArchiveDraft[] = [];
    for (const file of made)
      drafts.push(await storeMadeFile(parts, file, { subject, day, supersedes: null, reason: null, positions }));
    return { subject, day, filesBefore, drafts };
  } finally {
    await removeFiles(made);
  }
}

interface MadeFiles {
  made: MadeFile[];
  positions: ArchiveDraft["positions"];
}

/**
 * Makes the files of probes (recorded unpaid requests) of a day.
 * @throws Unproven if a partition's segments have another number of rows than its owner has listed
 */
async function fileProbes(
  parts: FileArchiveParts & { printer: LinePrinter },
  { archive }: PublishedFold,
  byPartition: PartsByPartition,
  subject: ProbeSubject,
  day: string,
): Promise<MadeFiles> {
  const { topic } = PROBE_SUBJECTS[subject];
  const endOffsetOf = (part: number): number => byPartition.get(part)!.positions[topic] ?? 0;
  const filedPositions = archive.filesOf(subject, day).map(({ positions }) => positions[topic] ?? {});
  const days = daysOfParts(archive, byPartition, subject, day);
  const partRows = days.map(([part, { spans }]): PartRows => {
    const first = Math.max(0, ...filedPositions.map((positions) => positions[String(part)] ?? 0));
    return { part, first, next: endOffsetOf(part), spans };
  });
  const sources = { printer: parts.printer, privateStore: parts.privateStore, logId: parts.log.id };
  const { rowsPerFile: rowsAFile } = parts;
  const { files: madeFiles, rows } = await makeProbeFiles(sources, { subject, day, parts: partRows }, { rowsAFile });
  const [expectedCounts, printedCounts] = [
    JSON.stringify(days.map(([part, { rows }]) => [part, rows])),
    JSON.stringify([...rows].sort(([a], [b]) => a - b)),
  ];
  if (expectedCounts !== printedCounts) {
    await removeFiles(madeFiles);
    throw new Unproven(`rows of ${subject} of ${day}, by partition`, expectedCounts, printedCounts);
  }
  const endPositions = [...byPartition.keys()].sort((a, b) => a - b).map((part) => [String(part), endOffsetOf(part)]);
  return { made: madeFiles, positions: { [topic]: Object.fromEntries(endPositions) } };
}

async function fileGrades(
  { printer, publicStore, trust, rowsPerFile: rowsAFile }: FileArchiveParts & { printer: LinePrinter },
  { archive }: PublishedFold,
  subject: ArchiveSubject,
  day: string,
): Promise<MadeFiles> {
  const span = archive.gradesToFile(subject, day);
  if (!span) return { made: [], positions: { tree: { "0": 0 } } };
  const reader = await RecordReader.open(publicStore, (await readCheckpoint(publicStore, trust))!);
  const madeFiles = await makeGradeFiles(reader, printer, archive, { subject, day, span }, rowsAFile);
  return { made: madeFiles, positions: { tree: { "0": span.end } } };
}
