import type { Lake } from "../../infra/lake/duckdb.ts";
import { addReport, type EvidenceReport, MAX_DAYS_AT_ONCE } from "../5-archive/evidence.ts";
import type { FiledReport, PrinterEngine } from "./protocol/file-archive.ts";
import type { OwnArchiveParts } from "./protocol/own-archive.ts";
import type { Owner } from "./protocol/owner.ts";
import type { ArchivingParts, Publishing } from "./protocol/publishing.ts";

/**
 * Largest number of rounds (of some days each) in one call, so that the call ends even if many days are due after a
 * long outage. The next call does the rest.
 */
const MAX_ROUNDS = 64;

export interface ArchiveReport extends FiledReport {
  /** Number of rows that were deleted from the lake (the database of the log's rows) since they are archived. */
  removed: number;
}

/**
 * Publishes the evidence files (all samples, by day) of finished days until none is left, in a process that both owns
 * all partitions and publishes.
 */
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
 * Writes and publishes the archive files of old days and removes their rows from the lake, until no day is left
 * (docs/archive.md).
 */
export async function archiveDays(
  { owner, publishing, archivingParts }: { owner: Owner; publishing: Publishing; archivingParts: ArchivingParts },
  now: Date,
  options: Pick<OwnArchiveParts, "onStep"> = {},
): Promise<ArchiveReport> {
  const report: ArchiveReport = { days: [], files: 0, rows: 0, removed: 0 };
  for (let n = 0; n < MAX_ROUNDS; n++) {
    // The evidence files are published first, since a row may be removed from the lake only once it is in one.
    await closeDays(owner, publishing, now);
    report.removed += (await owner.makeArchive(now, options)).removed;
    const { days, files, rows } = await publishing.publishArchive(archivingParts);
    if (files === 0) break;
    report.days = [...new Set([...report.days, ...days])].sort();
    report.files += files;
    report.rows += rows;
  }
  return report;
}

/**
 * Returns a function that makes an engine which prints archive lines from an open lake. Closing the engine does not
 * close the lake.
 */
export const createPrinterOpener = (lake: Lake) => async (): Promise<PrinterEngine> => ({
  workDir: lake.workDir,
  batches: (text, params) => lake.batches(text, params),
  close: async () => undefined,
});
