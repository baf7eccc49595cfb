import { rm } from "node:fs/promises";
import type { Lake, Statements } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import type { Store } from "../../infra/store/store.ts";
import { STEPS } from "../2-ingest/load.ts";
import type { ArchiveFold } from "../4-publish/archive-fold.ts";
import { dayOfManifest } from "../record/archive.ts";
import type { ArchiveLeaf } from "../record/leaf.ts";
import { ArchiveMismatch } from "./errors.ts";
import { loadIds, readNamed } from "./read-back.ts";
import { isProbes, PROBES, type ProbeSubject, subjectOf } from "./subjects.ts";

export interface SettleParts {
  lake: Lake;
  publicStore: Pick<Store, "get">;
  /** Partitions of the event log. */
  partitions: number;
}

/** Texts of files that were read back a moment ago, by manifest id: they need not be read again. */
export type ReadBack = ReadonlyMap<string, string>;

/**
 * Make the lake follow the archive's leaves, which alone say what was moved: the rows of each file leave it, in one
 * transaction that also records the manifest, and only when every one of them is found. A lake that was loaded anew, where
 * they wait, takes their totals over on the way. May be called at any time, again and after any failure.
 * @returns rows that left the lake now
 * @throws ArchiveMismatch, ArchiveUnproven and what the store throws; what was followed before stays so
 */
export async function settle(parts: SettleParts, fold: ArchiveFold, texts: ReadBack = new Map()): Promise<number> {
  const followed = await followedBy(parts.lake);
  let rows = 0;
  for (const leaf of fold.files.values()) {
    if (followed.has(leaf.manifest.id)) continue;
    const removed = await follow(parts, fold, leaf, followed, texts);
    followed.set(leaf.manifest.id, removed);
    rows += removed;
  }
  await sortOut(parts, fold, followed);
  return rows;
}

async function followedBy(lake: Pick<Lake, "all">): Promise<Map<string, number>> {
  const rows = await lake.all<{ arc_id: string; removed: number }>(sql("69_archived"));
  return new Map(rows.map(({ arc_id, removed }) => [arc_id, removed]));
}

/** Take the rows of one file out. @returns how many there were in this lake */
async function follow(
  parts: SettleParts,
  fold: ArchiveFold,
  leaf: ArchiveLeaf,
  followed: ReadonlyMap<string, number>,
  texts: ReadBack,
): Promise<number> {
  const { id, subject } = leaf.manifest;
  // What replaced a wrong file holds its rows; of grades, which are leaves, nothing was ever in a lake.
  if (!isProbes(subject) || fold.superseded.has(id)) {
    await parts.lake.transaction((tx) => noted(tx, leaf, 0));
    return 0;
  }
  const replacedHere = leaf.supersedes !== null && (followed.get(leaf.supersedes) ?? 0) > 0;
  return withText(parts, leaf, texts, (path) =>
    parts.lake.transaction(async (tx) => {
      const { here, waiting, owed } = await found(tx, parts, subject, leaf, path);
      if (here + waiting !== owed && !replacedHere) {
        throw new ArchiveMismatch(id, `${owed} rows in its file, ${here} in the lake and ${waiting} waiting`);
      }
      if (waiting > 0) {
        await tx.run(sql("67_archive_known"));
        for (const step of ["13_knocks", "24_seen", "25_site"]) await tx.run(sql(step));
      }
      if (here > 0) await tx.run(sql("67_archive_take"));
      await noted(tx, leaf, here + waiting);
      return here + waiting;
    }),
  );
}

async function noted(tx: Statements, { manifest }: ArchiveLeaf, removed: number): Promise<void> {
  const { id, subject, rows } = manifest;
  const day = dayOfManifest(manifest);
  const values = { id, subject, day, rows, removed };
  await tx.run("INSERT INTO archived VALUES ($id, $subject, $day::DATE, $rows, $removed)", values);
  if (!isProbes(subject)) return;
  await tx.run("INSERT OR IGNORE INTO archived_day VALUES ($type, $day::DATE)", { type: PROBES[subject].type, day });
}

interface Found {
  here: number;
  waiting: number;
  owed: number;
}

async function found(
  tx: Statements,
  { partitions }: SettleParts,
  subject: ProbeSubject,
  { manifest }: ArchiveLeaf,
  path: string,
): Promise<Found> {
  const { type, topic } = PROBES[subject];
  const day = dayOfManifest(manifest);
  await loadIds(tx, path);
  await tx.run("SET VARIABLE archive_type = $type", { type });
  await tx.run("SET VARIABLE archive_day = $day", { day });
  const [row] = await tx.all<Found>(sql("67_archive_found"), { type, day, topic, shift: 6 - Math.log2(partitions) });
  return row!;
}

async function withText<T>(
  { publicStore, lake }: SettleParts,
  leaf: ArchiveLeaf,
  texts: ReadBack,
  work: (path: string) => Promise<T>,
): Promise<T> {
  const held = texts.get(leaf.manifest.id);
  const path = held ?? (await readNamed(publicStore, lake, leaf));
  try {
    return await work(path);
  } finally {
    if (held === undefined) await rm(path, { force: true });
  }
}

/**
 * Records that came for archived days: those that a file holds are copies, or came back with a segment that was joined
 * again, and go; the others are rows like any other, only late, and will make a further file.
 */
async function sortOut(parts: SettleParts, fold: ArchiveFold, followed: ReadonlyMap<string, number>): Promise<void> {
  const { lake } = parts;
  for (const { type, day } of await lake.all<{ type: string; day: string }>(sql("68_late_days"))) {
    const subject = subjectOf(type);
    if (subject === null) continue;
    for (const leaf of fold.standing(subject, day)) {
      if (!followed.has(leaf.manifest.id)) continue;
      await withText(parts, leaf, new Map(), (path) =>
        lake.transaction(async (tx) => {
          await found(tx, parts, subject, leaf, path);
          await tx.run(sql("67_archive_known"));
        }),
      );
    }
    await admit(lake, subject, day);
  }
}

async function admit(lake: Lake, subject: ProbeSubject, day: string): Promise<void> {
  const { type, topic } = PROBES[subject];
  await lake.transaction(async (tx) => {
    await tx.run("SET VARIABLE archive_type = $type", { type });
    await tx.run("SET VARIABLE archive_day = $day", { day });
    await tx.run(sql("68_late_admitted"));
    for (const step of STEPS[topic] ?? []) await tx.run(sql(step));
    await tx.run(sql("25_site"));
  });
}
