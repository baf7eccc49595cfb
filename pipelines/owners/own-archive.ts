import { readFile } from "node:fs/promises";
import { sha256hex } from "../../infra/canonical.ts";
import type { Lake } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import type { Store } from "../../infra/store/store.ts";
import type { Logger } from "../../infra/telemetry.ts";
import { lakePositions, type Positions } from "../2-ingest/load.ts";
import type { PublishedFold } from "../4-publish/fold.ts";
import type { Followed } from "../4-publish/followed.ts";
import { archivedUntil } from "../5-archive/archive.ts";
import { ArchiveUnproven } from "../5-archive/errors.ts";
import { packedProbes } from "../5-archive/probe-files.ts";
import { daysWithNews } from "../5-archive/records.ts";
import { settle } from "../5-archive/settle.ts";
import { type MadeFile, PROBES, type ProbeSubject, subjectOf } from "../5-archive/subjects.ts";
import { removeFiles } from "../5-archive/work-files.ts";
import { addDays } from "../record/time.ts";
import { type ArchivePart, dayName, type PartDay, type PartFile, rowsFolder, rowsKey } from "./archive-parts.ts";
import { HandsChanged } from "./hands.ts";
import type { PartitionObjects } from "./partition-objects.ts";
import { positionsOf } from "./payees.ts";

export interface OwnArchive {
  lake: Lake;
  privateStore: Store;
  publicStore: Store;
  followed: Followed;
  objects: PartitionObjects<ArchivePart>;
  log: { id: string; partitions: number };
  logger: Logger;
  /** @throws HandsChanged when one of these partitions is another's by now */
  refuseLost: (held: readonly number[]) => void;
  /** Rows of one file (default: a million). */
  rowsAFile?: number;
  /** A test lets it fail at each. */
  onStep?: (step: OwnArchiveStep) => void | Promise<void>;
}

export type OwnArchiveStep = "taken out" | "looked" | "made" | "put" | "said" | "swept";

export interface OwnArchiveReport {
  /** Rows that left the lake, by leaves. */
  removed: number;
  /** Rows that were put for the publisher to file now. */
  rows: number;
}

/** Days with rows that are said at once; after a long pause the next call goes on when these are filed. */
const DAYS_AT_ONCE = 8;

/** Rows of one partition, subject and day that wait in the lake. */
interface Waiting {
  subject: ProbeSubject;
  day: string;
  part: number;
  rows: number;
  digest: string;
}

interface Look {
  ends: Positions;
  until: string;
  waiting: readonly Waiting[];
}

/**
 * The owner's half of the archive (docs/archive.md): rows that a published file holds leave the lake; those of further
 * days that came of age are put where the publisher finds them, partition by partition, and stay here until its leaf
 * says that they are filed. May be called at any time, again and after any failure.
 * @throws HandsChanged, Outrun, ArchiveMismatch, ArchiveUnproven and what lake and stores throw; no row is lost then
 */
export async function makeOwnArchive(parts: OwnArchive, held: readonly number[], now: Date): Promise<OwnArchiveReport> {
  const { lake, followed, publicStore, objects, log, onStep } = parts;
  const fold = await followed.current();
  const tree = fold.size;
  const report: OwnArchiveReport = { removed: 0, rows: 0 };
  report.removed = await settle({ lake, publicStore, partitions: log.partitions }, fold.archive);
  await onStep?.("taken out");
  const look = await lookInto(lake, fold, now, log.partitions);
  await onStep?.("looked");
  if (!look) return report;
  const filedLast = Math.max(-1, ...[...fold.archive.files.values()].map(({ index }) => index));
  const said = await objects.ofOurs(held);
  for (const partition of held) {
    // Taken a moment ago and not loaded, or given back since.
    if (!Object.values(look.ends).some((ends) => String(partition) in ends)) continue;
    const before = said.get(partition);
    const { days, made } = await daysOf(parts, look, partition, before);
    const positions = positionsOf(look.ends, partition);
    const part: ArchivePart = { v: 1, log: log.id, positions, tree, until: look.until, days };
    parts.refuseLost(held);
    const same = (theirs: ArchivePart): boolean =>
      theirs.tree > filedLast && theirs.until === look.until && JSON.stringify(theirs.days) === JSON.stringify(days);
    await objects.put(partition, part, (theirs) => !same(theirs));
    await onStep?.("said");
    report.rows += made;
    if (!before || !same(before)) await sweep(parts, partition, [before, part]);
  }
  return report;
}

/** What waits in the lake, of one moment with how far it is loaded; null while nothing may be said of any day. */
function lookInto(lake: Lake, fold: PublishedFold, now: Date, partitions: number): Promise<Look | null> {
  const { evidence } = fold;
  if (evidence.first === "") return Promise.resolve(null);
  const closed = addDays(evidence.newest, 1);
  return lake.transaction(async (tx) => {
    const ends = await lakePositions(tx);
    // What no evidence holds yet has to stay: its file would say what the evidence does not.
    const [owed = closed] = await daysWithNews(tx, evidence, ends, closed, partitions);
    const [before = ""] = [archivedUntil(now), closed, owed].sort();
    const rows = await tx.all<Omit<Waiting, "subject"> & { type: string }>(sql("70_archive_rows"), { until: before });
    const days = [...new Set(rows.map(({ day }) => day))].sort();
    const until = days[DAYS_AT_ONCE] ?? before;
    const waiting = rows.flatMap(({ type, ...row }): Waiting[] => {
      const subject = subjectOf(type);
      return subject && row.day < until ? [{ subject, ...row }] : [];
    });
    return { ends, until, waiting };
  });
}

/** A partition's days: files that were put before and hold the very rows stand, the others are made. */
async function daysOf(
  parts: OwnArchive,
  { ends, waiting }: Look,
  partition: number,
  before: ArchivePart | undefined,
): Promise<{ days: Record<string, PartDay>; made: number }> {
  const days: Record<string, PartDay> = {};
  let made = 0;
  for (const row of waiting.filter(({ part }) => part === partition)) {
    const name = dayName(row.subject, row.day);
    const known = before?.days[name];
    const stands = known && known.rows === row.rows && known.digest === row.digest && (await areThere(parts, known));
    days[name] = stands ? known : await putDay(parts, ends, row);
    if (!stands) made += row.rows;
  }
  return { days, made };
}

async function areThere({ privateStore }: OwnArchive, { files }: PartDay): Promise<boolean> {
  for (const { key } of files) if (!(await privateStore.head(key))) return false;
  return true;
}

async function putDay(parts: OwnArchive, ends: Positions, row: Waiting): Promise<PartDay> {
  const { lake, rowsAFile, onStep } = parts;
  const { subject, day, part } = row;
  const { topic } = PROBES[subject];
  const next = ends[topic]?.[String(part)];
  const own: Positions = next === undefined ? {} : { [topic]: { [part]: next } };
  const made = await packedProbes(lake, subject, day, own, rowsAFile);
  try {
    await onStep?.("made");
    // The partition was given away between the look and the reading: whoever has it says its rows.
    if (made.rows !== row.rows || made.digest !== row.digest) throw new HandsChanged();
    const files: PartFile[] = [];
    for (const file of made.files) files.push(await putFile(parts, row, file));
    await onStep?.("put");
    return { rows: row.rows, digest: row.digest, files };
  } finally {
    await removeFiles(made.files);
  }
}

/** Put and read back: a file that nobody can read is told to the one who has its rows. @throws ArchiveUnproven */
async function putFile(
  { privateStore }: OwnArchive,
  { subject, day, part }: Waiting,
  { path, rows, packed }: MadeFile,
): Promise<PartFile> {
  const bytes = await readFile(path);
  const sha256 = sha256hex(bytes);
  const key = rowsKey(part, subject, day, sha256);
  await privateStore.create(key, bytes);
  const there = await privateStore.get(key);
  const got = there === null ? "no object" : sha256hex(there.bytes);
  if (got !== sha256) throw new ArchiveUnproven(key, sha256, got);
  return { key, rows, sha256, content_hash: packed.contentHash, unpacked_bytes: packed.unpackedBytes };
}

/** Files that neither this part nor the one before it names: the publisher may be reading what was said a moment ago. */
async function sweep(
  { privateStore, logger, onStep }: OwnArchive,
  partition: number,
  named: readonly (ArchivePart | undefined)[],
): Promise<void> {
  const keep = new Set(
    named.flatMap((part) => Object.values(part?.days ?? {}).flatMap(({ files }) => files.map(({ key }) => key))),
  );
  try {
    for (const { key } of await privateStore.list(rowsFolder(partition))) {
      if (!keep.has(key)) await privateStore.delete(key);
    }
  } catch (error) {
    // They take room and nothing else.
    logger.warn({ err: error, partition }, "rows of the archive that were filed could not be deleted");
  }
  await onStep?.("swept");
}
