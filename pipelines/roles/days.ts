import type { Lake } from "../../infra/lake/duckdb.ts";
import { addReport, type EvidenceReport, MAX_DAYS_AT_ONCE } from "../5-archive/evidence.ts";
import type { FiledReport, PrinterEngine } from "./protocol/file-archive.ts";
import type { OwnArchiveParts } from "./protocol/own-archive.ts";
import type { Owner } from "./protocol/owner.ts";
import type { Filing, Publishing } from "./protocol/publishing.ts";

/**
 * Most rounds in one call, so that the call ends even if many days are due after a long outage. The next call does the
 * rest.
 */
const MAX_ROUNDS = 64;

export interface ArchiveReport extends FiledReport {
  /** Number of rows that were deleted from the lake. */
  removed: number;
}

/** Closes days until none is left, in a process that is both owner of all partitions and publisher. */
export async function closeDays(owner: Owner, publishing: Publishing, now: Date): Promise<EvidenceReport> {
  const report: EvidenceReport = { days: [], files: 0, rows: 0 };
  for (let n = 0; n < MAX_ROUNDS; n++) {
    await owner.makeEvidence(now);
    const closeReport = await publishing.publishEvidence();
    addReport(report, closeReport);
    if (closeReport.days.length < MAX_DAYS_AT_ONCE) break;
  }
  return report;
}

/**
 * Archives days, publishes their files and removes their rows from the lake, until no day is left (docs/archive.md).
 */
export async function archiveDays(
  { owner, publishing, filing }: { owner: Owner; publishing: Publishing; filing: Filing },
  now: Date,
  options: Pick<OwnArchiveParts, "onStep"> = {},
): Promise<ArchiveReport> {
  const report: ArchiveReport = { days: [], files: 0, rows: 0, removed: 0 };
  for (let n = 0; n < MAX_ROUNDS; n++) {
    // The evidence is published first, since a row may leave the lake only once the evidence has it.
    await closeDays(owner, publishing, now);
    report.removed += (await owner.makeArchive(now, options)).removed;
    const { days, files, rows } = await publishing.publishArchive(filing);
    if (files === 0) break;
    report.days = [...new Set([...report.days, ...days])].sort();
    report.files += files;
    report.rows += rows;
  }
  return report;
}

/** Makes a printer of archive lines from an open lake. Closing the printer does not close the lake. */
export const createPrinter = (lake: Lake) => async (): Promise<PrinterEngine> => ({
  workDir: lake.workDir,
  batches: (text, params) => lake.batches(text, params),
  close: async () => undefined,
});
