import { canonicalText, sha256hex } from "../../infra/canonical.ts";
import type { Lake } from "../../infra/lake/duckdb.ts";
import type { Store } from "../../infra/store/store.ts";
import type { Logger } from "../../infra/telemetry.ts";
import { ZstdPacking } from "../../infra/zstd.ts";
import { lakePositions } from "../2-ingest/load.ts";
import { type NonDeliveringSeller, RelatedParties } from "../3-grade/related.ts";
import type { DayClose, EvidenceDraft } from "../4-publish/filings.ts";
import { BadPrivateObject } from "../4-publish/generation.ts";
import type { Publisher } from "../4-publish/publisher.ts";
import { parseJson } from "../published/errors.ts";
import type { PublishedFold } from "../published/fold.ts";
import { evidenceKey } from "../published/objects.ts";
import { NonDeliveringSellers } from "../record/card.ts";
import type { RelatedPartiesLine } from "../record/evidence.ts";
import { addDays, dayOf } from "../record/time.ts";
import type { Positions } from "../record/volatile.ts";
import { linesOf } from "./lines.ts";
import { daysWithNews, positionsOfBucket, recordGroups } from "./records.ts";

export interface EvidenceReport {
  /**
   * Days that were closed, that is whose evidence files were published: days that ended, and earlier days of which
   * further records arrived after their last close.
   */
  days: string[];
  files: number;
  rows: number;
}

/** Sums up the closes of days for a report. */
export function summarizeCloses(closes: readonly DayClose[]): EvidenceReport {
  const drafts = closes.flatMap((close) => close.drafts);
  return {
    days: closes.map(({ day }) => day),
    files: drafts.filter(({ key }) => key !== null).length,
    rows: drafts.reduce((sum, { rows }) => sum + rows, 0),
  };
}

/** Adds the second report to the first. */
export function addReport(report: EvidenceReport, { days, files, rows }: EvidenceReport): void {
  report.days.push(...days);
  report.files += files;
  report.rows += rows;
}

/** Time from the end of a day until it is closed, ms. By then the records observed on that day have been ingested. */
const CLOSING_DELAY_MS = 6 * 3_600_000;
/** Largest number of new days in one publication. After a long pause, later publications close the other days. */
export const MAX_DAYS_AT_ONCE = 7;
/** Files that are written to the store at once. */
const PUTS_AT_ONCE = 8;

/**
 * What a process that owns partitions needs to make evidence files. The publisher of the tree then publishes the files.
 */
export interface FileParts {
  lake: Lake;
  privateStore: Store;
  publisher: Pick<Publisher, "current" | "putEvidence">;
  /** Id of the event log, and number of its partitions. */
  logId: string;
  partitions: number;
  logger: Logger;
}

/** What the publisher of the tree needs to close a day. It needs no lake (the database of rows). */
export interface CloseParts {
  privateStore: Store;
  publisher: Pick<Publisher, "current" | "putEvidence">;
  logger: Logger;
}

/** First UTC day that may not be closed yet. */
export const firstUnclosedDay = (now: Date): string => dayOf(new Date(now.getTime() - CLOSING_DELAY_MS));

/**
 * Finds the days to close now. Closed days with new records, or without their tables ({@link daysWithoutTables}), are
 * all returned, however many they are: a close states the log positions below which all records were read, which would
 * be false if it left such a day out.
 * @returns `days`: days to close again, then new days (at most MAX_DAYS_AT_ONCE); `more`: further new days are left for
 * a later call; `ends`: log positions up to which the lake is loaded; `until`: the first UTC day that may not be closed
 * yet
 */
export async function findDueDays({ lake, publisher, partitions }: FileParts, unclosedFrom: string) {
  const { evidence } = await publisher.current();
  const endPositions = await lakePositions(lake);
  // A closed day stays closed, even when a simulated clock runs through that day a second time after a crash.
  const afterNewest = evidence.newest ? addDays(evidence.newest, 1) : "";
  const endDay = unclosedFrom > afterNewest ? unclosedFrom : afterNewest;
  const newsDays = await daysWithNews(lake, evidence, endPositions, endDay, partitions);
  const daysLackingTables = daysWithoutTables(evidence);
  const daysToCloseAgain = [
    ...new Set([...newsDays.filter((day) => day <= evidence.newest), ...daysLackingTables]),
  ].sort();
  const days: string[] = [];
  const firstNewDay = afterNewest || newsDays[0];
  if (firstNewDay)
    for (let day = firstNewDay; day < endDay && days.length <= MAX_DAYS_AT_ONCE; day = addDays(day, 1)) days.push(day);
  return {
    days: [...daysToCloseAgain, ...days.slice(0, MAX_DAYS_AT_ONCE)],
    more: days.length > MAX_DAYS_AT_ONCE,
    ends: endPositions,
    until: endDay,
  };
}

/**
 * Closed days on which a card names, by its hash, a table of related parties (payees and domains that took money)
 * that no published file contains.
 */
export const daysWithoutTables = (evidence: PublishedFold["evidence"]): string[] =>
  [...evidence.relatedParties.keys()].filter((day) => day <= evidence.newest);

/**
 * Returns how often a day was closed, according to the published state. Call it before reading the files, since that
 * state may change meanwhile.
 */
export const countCloses = (evidence: PublishedFold["evidence"], day: string): number =>
  evidence.days.get(day)?.closes ?? 0;

/**
 * Makes the close of one day (its numbered evidence leaves) from the files of its buckets (fixed shares of the
 * endpoints), and adds the file with the day's tables of related parties.
 * @param close number of the close for which the files were made; the leaves have it as `freeze`
 * @returns null when a closed day has nothing new, or when another publisher, which read these records too, closed it
 * meanwhile
 */
export async function createClose(
  parts: CloseParts,
  day: string,
  close: number,
  buckets: readonly EvidenceDraft[],
): Promise<DayClose | null> {
  const { size, evidence, relatedParties } = await parts.publisher.current();
  if (countCloses(evidence, day) !== close) return null;
  const drafts: EvidenceDraft[] = [...buckets];
  const hashes = [...(evidence.relatedParties.get(day) ?? [])].sort(([, a], [, b]) => a - b).map(([hash]) => hash);
  const reportMissing = (hash: string) =>
    parts.logger.error({ day, kin: hash }, "no leaf and no run has a table of related parties: cards cannot be proven");
  const knownTables = relatedParties.tables(hashes);
  for (const hash of hashes) if (!knownTables.has(hash)) await loadKeptTable(parts.privateStore, hash, knownTables);
  const tables = tableLines(knownTables, hashes, reportMissing);
  if (tables.length > 0) {
    const file = newFile();
    await addLines(file, tables);
    drafts.push(await putFile(parts, day, "kin", file, { holds: "kin", bucket: null, positions: {}, below: size }));
  }
  if (drafts.length === 0 && close > 0) return null;
  if (drafts.length === 0) drafts.push(createEmptyDraft(day));
  return {
    day,
    close,
    drafts: drafts.map((draft, i) => ({ ...draft, freeze: close, part: i + 1, parts: drafts.length })),
  };
}

/**
 * Makes one file for each bucket that has a line, in ascending order. In memory it holds the records of one sample or
 * endpoint at a time, and the packed bytes of the few files that are being written.
 */
export async function makeBucketFiles(
  parts: FileParts,
  day: string,
  endPositions: Positions,
): Promise<EvidenceDraft[]> {
  const { evidence } = await parts.publisher.current();
  const puts: Promise<EvidenceDraft>[] = [];
  let bucket = -1;
  let file: LinesFile | null = null;
  const closeFile = async () => {
    if (!file) return;
    const positions = positionsOfBucket(endPositions, bucket, parts.partitions);
    const putting = putFile(parts, day, bucket, file, { holds: "rows", bucket, positions, below: null });
    // The promise is awaited later. Until then its rejection must not count as unhandled.
    putting.catch(() => undefined);
    puts.push(putting);
    if (puts.length % PUTS_AT_ONCE === 0) await Promise.all(puts);
  };
  for await (const group of recordGroups(parts, evidence, endPositions, day)) {
    const lines = linesOf(group.facts);
    if (lines.length === 0) continue;
    if (group.bucket !== bucket) {
      await closeFile();
      bucket = group.bucket;
      file = newFile();
    }
    await addLines(file!, lines);
  }
  await closeFile();
  return Promise.all(puts);
}

/** A file that is being made: lines in RFC 8785 form, each followed by a newline. */
interface LinesFile {
  packing: ZstdPacking;
  rows: number;
}

const newFile = (): LinesFile => ({ packing: new ZstdPacking(), rows: 0 });

async function addLines(file: LinesFile, lines: readonly unknown[]): Promise<void> {
  file.rows += lines.length;
  await file.packing.add(Buffer.from(lines.map((line) => `${canonicalText(line)}\n`).join("")));
}

type FileContents = Pick<EvidenceDraft, "holds" | "bucket" | "positions" | "below">;

async function putFile(
  { publisher }: { publisher: Pick<Publisher, "putEvidence"> },
  day: string,
  part: number | "kin",
  { packing, rows }: LinesFile,
  contents: FileContents,
): Promise<EvidenceDraft> {
  const { packed, sha256: unpackedSha256, bytes: unpackedBytes } = await packing.end();
  const key = evidenceKey(day, part, unpackedSha256);
  // Another writer with another compressor version may have stored these lines already. Then its file stays, and the
  // leaf names the hash of that file.
  const stored = await publisher.putEvidence(key, packed);
  return {
    ...{ kind: "evidence", day, freeze: 0, part: 1, parts: 1, ...contents, rows, key },
    ...{ sha256: sha256hex(stored), bytes: stored.length },
    ...{ unpacked_sha256: unpackedSha256, unpacked_bytes: unpackedBytes },
  };
}

/** The leaf for a day without rows. Such a day has a leaf too, so that readers notice when a day is withheld. */
const createEmptyDraft = (day: string): EvidenceDraft => ({
  ...{ kind: "evidence", day, freeze: 0, part: 1, parts: 1 },
  ...{ holds: "nothing", bucket: null, rows: 0, positions: {}, below: null },
  ...{ key: null, sha256: null, bytes: 0, unpacked_sha256: null, unpacked_bytes: 0 },
});

/**
 * Loads a table of related parties that runs of version 1 stored as a private object and that no leaf contains.
 * @throws BadPrivateObject when the object is damaged
 */
async function loadKeptTable(
  privateStore: Store,
  sha256: string,
  knownTables: Map<string, readonly NonDeliveringSeller[]>,
): Promise<void> {
  const key = `kin/${sha256}.json`;
  const object = await privateStore.get(key);
  if (!object) return;
  const { data } = NonDeliveringSellers.safeParse(parseJson(object.bytes));
  if (!data || new RelatedParties(data).sha256 !== sha256) throw new BadPrivateObject(key, "is not what its name says");
  knownTables.set(
    sha256,
    [...data].sort((a, b) => (a.cap < b.cap ? -1 : 1)),
  );
}

/**
 * Makes the lines of the file with a day's tables: one line for each table that a card of the day names, as changes
 * since the table of the line before. The first line changes an empty table.
 * @param hashes those of the tables, in the order of the first card that names each
 * @param reportMissing called with each hash whose table is not known
 */
function tableLines(
  tables: ReadonlyMap<string, readonly NonDeliveringSeller[]>,
  hashes: readonly string[],
  reportMissing: (sha256: string) => void,
): RelatedPartiesLine[] {
  const lines: RelatedPartiesLine[] = [];
  let previousTable: readonly NonDeliveringSeller[] = [];
  for (const tableHash of hashes) {
    const table = tables.get(tableHash);
    if (!table) {
      reportMissing(tableHash);
      continue;
    }
    const sellersBefore = new Map(previousTable.map((seller) => [seller.cap, seller]));
    const capsNow = new Set(table.map(({ cap }) => cap));
    const isSame = (a: NonDeliveringSeller, b: NonDeliveringSeller | undefined) =>
      b !== undefined && a.domain === b.domain && a.pay_to === b.pay_to;
    const add = table
      .filter((seller) => !isSame(seller, sellersBefore.get(seller.cap)))
      .map((seller) => ({ ...seller }));
    lines.push({ kin: tableHash, add, remove: previousTable.flatMap(({ cap }) => (capsNow.has(cap) ? [] : [cap])) });
    previousTable = table;
  }
  return lines;
}
