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
import { PROBES, type ProbeSubject, subjectOf } from "./subjects.ts";

export interface SettleParts {
  lake: Lake;
  publicStore: Pick<Store, "get">;
  /** Partitions of the event log. */
  partitions: number;
}

/** Where the ids of files lie that were made and read back a moment ago, by manifest id: they need not be read again. */
export type KeptIds = ReadonlyMap<string, string>;

/**
 * Make the lake follow the archive's leaves, which alone say what was moved: the rows of each file leave it, in one
 * transaction that also records the manifest, and only when every one of them is found. A lake follows a leaf partition by
 * partition, since partitions come and go. A lake that was loaded anew, where
 * they wait, takes their totals over on the way. May be called at any time, again and after any failure.
 * @returns rows that left the lake now
 * @throws ArchiveMismatch, ArchiveUnproven and what the store throws; what was followed before stays so
 */
export async function settle(parts: SettleParts, fold: ArchiveFold, kept: KeptIds = new Map()): Promise<number> {
  let rows = 0;
  // Of grades, which are leaves, nothing was ever in a lake.
  for (const subject of Object.keys(PROBES) as ProbeSubject[]) {
    const followed = await followedBy(parts.lake, subject);
    for (const leaf of fold.files.values()) {
      const { id } = leaf.manifest;
      if (leaf.manifest.subject !== subject || followed.get(id)?.whole) continue;
      // What replaced a wrong file holds its rows.
      const isReplaced = fold.superseded.has(id);
      const mayDiffer = leaf.supersedes !== null && (followed.get(leaf.supersedes)?.removed ?? 0) > 0;
      const removed = await follow(parts, leaf, { isReplaced, mayDiffer }, kept);
      followed.set(id, { whole: true, removed: (followed.get(id)?.removed ?? 0) + removed });
      rows += removed;
    }
  }
  await sortOut(parts, fold);
  if (rows > 0) await parts.lake.run(sql("69_shapes_left"));
  return rows;
}

interface Followed {
  /** By every partition that is here. */
  whole: boolean;
  removed: number;
}

async function followedBy(lake: Pick<Lake, "all">, subject: ProbeSubject): Promise<Map<string, Followed>> {
  const { topic } = PROBES[subject];
  const rows = await lake.all<Followed & { arc_id: string }>(sql("69_archived"), { topic });
  return new Map(rows.map(({ arc_id, whole, removed }) => [arc_id, { whole, removed }]));
}

interface Found {
  part: number;
  owed: number;
  here: number;
  waiting: number;
}

/** Take the rows of one file out, those of the partitions that have not done so yet. @returns how many there were */
async function follow(
  parts: SettleParts,
  leaf: ArchiveLeaf,
  { isReplaced, mayDiffer }: { isReplaced: boolean; mayDiffer: boolean },
  kept: KeptIds,
): Promise<number> {
  const { id } = leaf.manifest;
  return withIds(parts, leaf, kept, async (tx, { type, topic }, day) => {
    const what = { arc_id: id, topic, shift: 6 - Math.log2(parts.partitions) };
    await tx.run("SET VARIABLE archive_what = $what", { what: JSON.stringify(what) });
    await tx.run(sql("67_archive_parts"));
    await tx.run(sql(kept.has(id) ? "67_archive_kept" : "67_archive_owed"));
    await tx.run(sql("67_archive_here"));
    const found = await tx.all<Found>(sql("67_archive_found"), { type });
    for (const { part, owed, here, waiting } of isReplaced || mayDiffer ? [] : found) {
      if (here + waiting === owed) continue;
      throw new ArchiveMismatch(id, `${owed} rows of partition ${part}, ${here} in the lake and ${waiting} waiting`);
    }
    if (!isReplaced) await takeOut(tx, found);
    for (const { part, here, waiting } of found) {
      await tx.run(sql("67_archive_noted"), { arc_id: id, part, removed: isReplaced ? 0 : here + waiting });
    }
    await tx.run(sql("67_archive_day"), { type, day });
    return isReplaced ? 0 : found.reduce((sum, { here, waiting }) => sum + here + waiting, 0);
  });
}

/** Rows that wait are in no total yet: their lake was loaded after they had been filed. */
async function takeOut(tx: Statements, found: readonly Found[]): Promise<void> {
  for (const { part, waiting } of found) {
    if (waiting === 0) continue;
    await tx.run("SET VARIABLE archive_part = $part", { part });
    await tx.run(sql("67_archive_known"));
    for (const step of ["13_knocks", "24_seen", "25_site"]) await tx.run(sql(step));
  }
  if (found.some(({ here }) => here > 0)) await tx.run(sql("67_archive_take"));
}

/** One transaction with the ids of a file at hand. */
async function withIds<T>(
  { publicStore, lake }: SettleParts,
  leaf: ArchiveLeaf,
  kept: KeptIds,
  work: (tx: Statements, probes: (typeof PROBES)[ProbeSubject], day: string) => Promise<T>,
): Promise<T> {
  const { id, subject } = leaf.manifest;
  const day = dayOfManifest(leaf.manifest);
  const probes = PROBES[subject as ProbeSubject];
  const ids = kept.get(id);
  const text = ids === undefined ? await readNamed(publicStore, lake, leaf) : null;
  try {
    return await lake.transaction(async (tx) => {
      if (text !== null) await loadIds(tx, text);
      else await tx.run("SET VARIABLE archive_path = $ids", { ids: ids! });
      await tx.run("SET VARIABLE archive_type = $type", { type: probes.type });
      await tx.run("SET VARIABLE archive_day = $day", { day });
      return work(tx, probes, day);
    });
  } finally {
    if (text !== null) await rm(text, { force: true });
  }
}

/**
 * Records that came for archived days: those that a file holds are copies, or came back with a segment that was joined
 * again, and go; the others are rows like any other, only late, and will make a further file. Every standing file has been
 * followed by now, so those that a new lake still had to count are counted.
 */
async function sortOut(parts: SettleParts, fold: ArchiveFold): Promise<void> {
  const { lake } = parts;
  for (const { type, day, parts: waiting } of await lake.all<LateDay>(sql("68_late_days"))) {
    const subject = subjectOf(type);
    if (subject === null) continue;
    for (const leaf of fold.standing(subject, day)) {
      await withIds(parts, leaf, new Map(), (tx) => tx.run(sql("67_archive_copies")));
    }
    await admit(lake, subject, day, waiting);
  }
}

interface LateDay {
  type: string;
  day: string;
  parts: number[];
}

async function admit(lake: Lake, subject: ProbeSubject, day: string, waiting: readonly number[]): Promise<void> {
  const { type, topic } = PROBES[subject];
  await lake.transaction(async (tx) => {
    await tx.run("SET VARIABLE archive_type = $type", { type });
    await tx.run("SET VARIABLE archive_day = $day", { day });
    for (const part of waiting) {
      await tx.run("SET VARIABLE archive_part = $part", { part });
      await tx.run(sql("68_late_admitted"));
      for (const step of STEPS[topic] ?? []) await tx.run(sql(step));
      await tx.run(sql("25_site"));
    }
  });
}
