import { sha256hex } from "../../infra/canonical.ts";
import type { Lake } from "../../infra/lake/duckdb.ts";
import type { Store } from "../../infra/store/store.ts";
import type { Logger } from "../../infra/telemetry.ts";
import { lakePositions, type Positions } from "../2-ingest/load.ts";
import type { PublishedFold } from "../4-publish/fold.ts";
import type { EvidenceDraft, Freeze } from "../4-publish/freezes.ts";
import { evidenceKey } from "../4-publish/objects.ts";
import type { Publisher } from "../4-publish/publisher.ts";
import { addDays, dayOf } from "../record/time.ts";
import { PackedLines } from "./file.ts";
import { kinLines } from "./kin-tables.ts";
import { linesOf } from "./lines.ts";
import { daysWithNews, mattersOf, positionsOfBucket } from "./records.ts";

export interface EvidenceParts {
  lake: Lake;
  privateStore: Store;
  publisher: Publisher;
  /** Partitions of the event log. */
  partitions: number;
  logger: Logger;
}

export interface EvidenceReport {
  /** Freezes that were published: of days closed now, and of earlier days that got records since. */
  days: string[];
  files: number;
  rows: number;
}

/** A day is closed this long after its end: what is observed has been ingested by then. */
const CLOSED_AFTER_MS = 6 * 3_600_000;
/** Days that go into one publication, and publications in one call: after a long pause the next call goes on. */
const DAYS_AT_ONCE = 7;
const MAX_PUBLICATIONS = 64;
/** Files on their way to the store at once. */
const PUTS_AT_ONCE = 8;

/**
 * Publish the evidence of every closed UTC day that has none yet, and of records that came late (records.md, Evidence).
 * May be called again at any time and after any failure: what is published is read from the tree, files are named by
 * their content and created once, and the leaves of a day come in one generation or not at all.
 * @throws what lake, stores and publisher throw
 */
export async function makeEvidence(parts: EvidenceParts, now: Date): Promise<EvidenceReport> {
  const report: EvidenceReport = { days: [], files: 0, rows: 0 };
  const until = closedUntil(now);
  for (let n = 0; n < MAX_PUBLICATIONS; n++) {
    const due = await dueDays(parts, until);
    const freezes: Freeze[] = [];
    for (const day of due.days) {
      // Asked before the files are read: what another publisher freezes meanwhile is not to be said again.
      const closing = freezesOf((await parts.publisher.current()).evidence, day);
      const freeze = await freezeOf(parts, day, closing, await bucketFiles(parts, day, due.ends));
      if (freeze) freezes.push(freeze);
    }
    if (freezes.length === 0) return report;
    // When another publisher was quicker nothing is published, and what is still owed is seen by the next look.
    const { leaves, refused } = await parts.publisher.publishFreezes(freezes);
    if (refused[0]) throw refused[0];
    const drafts = leaves > 0 ? freezes.flatMap((freeze) => freeze.drafts) : [];
    report.days.push(...new Set(drafts.map(({ day }) => day)));
    report.files += drafts.filter(({ key }) => key !== null).length;
    report.rows += drafts.reduce((sum, { rows }) => sum + rows, 0);
    if (!due.more && leaves > 0) return report;
  }
  return report;
}

/** What an owner of partitions needs to make files: it publishes none of them. */
export type FileParts = Omit<EvidenceParts, "publisher" | "privateStore"> & {
  publisher: Pick<Publisher, "current" | "putEvidence">;
};

/** What the tree's maker needs to freeze a day: it reads no lake. */
export type FreezeParts = Pick<EvidenceParts, "privateStore" | "logger" | "publisher">;

/** First day that is not closed at this moment. */
export const closedUntil = (now: Date): string => dayOf(new Date(now.getTime() - CLOSED_AFTER_MS));

/** Days to freeze now: late ones all together, since the next freeze says that everything before it was read. */
export async function dueDays({ lake, publisher, partitions }: FileParts, closed: string) {
  const { evidence } = await publisher.current();
  const ends = await lakePositions(lake);
  // A day that was closed stays closed, also for a clock that lives it again after a crash.
  const afterNewest = evidence.newest ? addDays(evidence.newest, 1) : "";
  const until = closed > afterNewest ? closed : afterNewest;
  const news = await daysWithNews(lake, evidence, ends, until, partitions);
  const named = daysOwingKin(evidence);
  const late = [...new Set([...news.filter((day) => day <= evidence.newest), ...named])].sort();
  const days: string[] = [];
  const first = afterNewest || news[0];
  if (first) for (let day = first; day < until && days.length <= DAYS_AT_ONCE; day = addDays(day, 1)) days.push(day);
  return { days: [...late, ...days.slice(0, DAYS_AT_ONCE)], more: days.length > DAYS_AT_ONCE, ends, until };
}

/** Frozen days with cards that name a table which no file holds. */
export const daysOwingKin = (evidence: PublishedFold["evidence"]): string[] =>
  [...evidence.kin.keys()].filter((day) => day <= evidence.newest);

/** Freezes of a day that are published. The fold moves on while one waits: ask before the files are read. */
export const freezesOf = (evidence: PublishedFold["evidence"], day: string): number =>
  evidence.days.get(day)?.freezes ?? 0;

/**
 * The closing of one day: files of its buckets and of its tables.
 * @param freeze which closing of the day the files were read for
 * @returns null when a frozen day has nothing new, or another publisher was quicker: then the files say what his say
 */
export async function freezeOf(
  parts: FreezeParts,
  day: string,
  freeze: number,
  buckets: readonly EvidenceDraft[],
): Promise<Freeze | null> {
  const { size, evidence } = await parts.publisher.current();
  if (freezesOf(evidence, day) !== freeze) return null;
  const drafts: EvidenceDraft[] = [...buckets];
  const names = [...(evidence.kin.get(day) ?? [])].sort(([, a], [, b]) => a - b).map(([kin]) => kin);
  const missing = (kin: string) =>
    parts.logger.error({ day, kin }, "a kin table was never kept: cards cannot be proven");
  const tables = await kinLines(parts.privateStore, names, missing);
  if (tables.length > 0) {
    const file = new PackedLines();
    await file.add(tables);
    drafts.push(await put(parts, day, "kin", file, { holds: "kin", bucket: null, positions: {}, below: size }));
  }
  if (drafts.length === 0 && freeze > 0) return null;
  if (drafts.length === 0) drafts.push(nothingOf(day));
  return { day, freeze, drafts: drafts.map((draft, i) => ({ ...draft, freeze, part: i + 1, parts: drafts.length })) };
}

/**
 * One file for each bucket with a line, ascending. One thing of the bucket that is being read is in memory at a time, and
 * the packed bytes of the few files that are being put.
 */
export async function bucketFiles(parts: FileParts, day: string, ends: Positions): Promise<EvidenceDraft[]> {
  const { evidence } = await parts.publisher.current();
  const puts: Promise<EvidenceDraft>[] = [];
  let bucket = -1;
  let file: PackedLines | null = null;
  const close = async () => {
    if (!file) return;
    const positions = positionsOfBucket(ends, bucket, parts.partitions);
    const putting = put(parts, day, bucket, file, { holds: "rows", bucket, positions, below: null });
    // Awaited below; until then its failure is not an unhandled one.
    putting.catch(() => undefined);
    puts.push(putting);
    if (puts.length % PUTS_AT_ONCE === 0) await Promise.all(puts);
  };
  for await (const matter of mattersOf(parts.lake, evidence, ends, day)) {
    const lines = linesOf(matter.facts);
    if (lines.length === 0) continue;
    if (matter.bucket !== bucket) {
      await close();
      bucket = matter.bucket;
      file = new PackedLines();
    }
    await file!.add(lines);
  }
  await close();
  return Promise.all(puts);
}

type Held = Pick<EvidenceDraft, "holds" | "bucket" | "positions" | "below">;

async function put(
  { publisher }: { publisher: Pick<Publisher, "putEvidence"> },
  day: string,
  part: number | "kin",
  lines: PackedLines,
  held: Held,
): Promise<EvidenceDraft> {
  const { bytes, rows, unpackedSha256, unpackedBytes } = await lines.end();
  const key = evidenceKey(day, part, unpackedSha256);
  // Another writer's compressor may have packed the same lines into other bytes: those stand, and the leaf names them.
  const there = await publisher.putEvidence(key, bytes);
  return {
    ...{ kind: "evidence", day, freeze: 0, part: 1, parts: 1, ...held, rows, key },
    ...{ sha256: sha256hex(there), bytes: there.length },
    ...{ unpacked_sha256: unpackedSha256, unpacked_bytes: unpackedBytes },
  };
}

/** A day without a row says so: a day that is missing is one that was kept back. */
const nothingOf = (day: string): EvidenceDraft => ({
  ...{ kind: "evidence", day, freeze: 0, part: 1, parts: 1 },
  ...{ holds: "nothing", bucket: null, rows: 0, positions: {}, below: null },
  ...{ key: null, sha256: null, bytes: 0, unpacked_sha256: null, unpacked_bytes: 0 },
});
