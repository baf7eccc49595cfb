import { rm } from "node:fs/promises";
import type { Lake, Statements } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import type { Store } from "../../infra/store/store.ts";
import { STEPS } from "../2-ingest/load.ts";
import type { ArchiveFold } from "../4-publish/archive-fold.ts";
import { dayOfManifest } from "../record/archive.ts";
import type { ArchiveLeaf } from "../record/leaf.ts";
import { ArchiveMismatch } from "./errors.ts";
import { xorOf } from "./id-digest.ts";
import { between, nameSource } from "./probe-files.ts";
import { loadIds, readNamed } from "./read-back.ts";
import { type HeldRows, PROBES, type ProbeSubject, subjectOf } from "./subjects.ts";

export interface SettleParts {
  lake: Lake;
  publicStore: Pick<Store, "get">;
  /** Partitions of the event log. */
  partitions: number;
}

/** Where the rows of files stand that were made and read back a moment ago, by manifest id: they need not be read again. */
export type Held = ReadonlyMap<string, HeldRows>;

/**
 * Make the lake follow the archive's leaves, which alone say what was moved: the rows of each file leave it, in one
 * transaction that also records the manifest, and only when every one of them is found. A lake follows a leaf partition by
 * partition, since partitions come and go. A lake that was loaded anew, where
 * they wait, takes their totals over on the way. May be called at any time, again and after any failure.
 * @returns rows that left the lake now
 * @throws ArchiveMismatch, ArchiveUnproven and what the store throws; what was followed before stays so
 */
export async function settle(parts: SettleParts, fold: ArchiveFold, held: Held = new Map()): Promise<number> {
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
      const removed = await follow(parts, leaf, { isReplaced, mayDiffer }, held.get(id));
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
  how: { isReplaced: boolean; mayDiffer: boolean },
  held: HeldRows | undefined,
): Promise<number> {
  const { isReplaced, mayDiffer } = how;
  const removed = held && !isReplaced && !mayDiffer ? await followHeld(parts, leaf, held) : null;
  return (
    removed ??
    withIds(parts, leaf, async (tx, { type }) => {
      await nameParts(tx, parts, leaf);
      await tx.run(sql("67_archive_owed"));
      await tx.run(sql("67_archive_here"));
      const found = await tx.all<Found>(sql("67_archive_found"), { type });
      for (const { part, owed, here, waiting } of isReplaced || mayDiffer ? [] : found) {
        if (here + waiting === owed) continue;
        const got = `${owed} rows of partition ${part}, ${here} in the lake and ${waiting} waiting`;
        throw new ArchiveMismatch(leaf.manifest.id, got);
      }
      if (!isReplaced) {
        await takeOut(tx, found);
        await tx.run(sql("67_archive_take_here"));
      }
      return noted(tx, leaf, isReplaced ? found.map((one) => ({ ...one, here: 0, waiting: 0 })) : found);
    })
  );
}

/**
 * {@link follow} by where the rows stood when the file was made, whose text was read back: when as many stand there now and
 * their ids have the same checksum, they are the same, and no id of a million is looked for.
 * @returns null when they are not: the file's own words say then what to take
 */
async function followHeld({ lake, ...parts }: SettleParts, leaf: ArchiveLeaf, held: HeldRows): Promise<number | null> {
  const { subject } = leaf.manifest;
  return lake.transaction(async (tx) => {
    await nameSource(tx, subject as ProbeSubject, dayOfManifest(leaf.manifest), held.ends);
    await nameParts(tx, parts, leaf);
    await tx.run("SET VARIABLE archive_between = $between", { between: JSON.stringify(between(held)) });
    await tx.run(sql("67_archive_same"));
    const same = await tx.all<{ part: number; here: number; look: string }>(sql("67_archive_same_found"));
    const rows = same.reduce((sum, { here }) => sum + here, 0);
    if (rows !== held.rows || xorOf(same.map(({ look }) => look)) !== held.look) return null;
    const found = same.map(({ part, here }) => ({ part, here, owed: here, waiting: 0 }));
    await takeOut(tx, found);
    const [taken] = await tx.all<{ Count: bigint }>(sql("67_archive_same_take"));
    if (Number(taken!.Count) !== rows)
      throw new ArchiveMismatch(leaf.manifest.id, `${rows} rows, ${taken!.Count} taken`);
    return noted(tx, leaf, found);
  });
}

/** Partitions of this lake that have not followed the leaf yet. */
async function nameParts(
  tx: Statements,
  { partitions }: Pick<SettleParts, "partitions">,
  leaf: ArchiveLeaf,
): Promise<void> {
  const { id, subject } = leaf.manifest;
  const what = { arc_id: id, topic: PROBES[subject as ProbeSubject].topic, shift: 6 - Math.log2(partitions) };
  await tx.run("SET VARIABLE archive_what = $what", { what: JSON.stringify(what) });
  await tx.run(sql("67_archive_parts"));
}

/** The manifest was followed. @returns rows that left */
async function noted(tx: Statements, { manifest }: ArchiveLeaf, found: readonly Found[]): Promise<number> {
  const { type } = PROBES[manifest.subject as ProbeSubject];
  for (const { part, here, waiting } of found)
    await tx.run(sql("67_archive_noted"), { arc_id: manifest.id, part, removed: here + waiting });
  await tx.run(sql("67_archive_day"), { type, day: dayOfManifest(manifest) });
  return found.reduce((sum, { here, waiting }) => sum + here + waiting, 0);
}

/**
 * What hangs on the rows of a file leaves, and rows that wait: those are in no total yet, since their lake was loaded after
 * they had been filed.
 */
async function takeOut(tx: Statements, found: readonly Found[]): Promise<void> {
  for (const { part, waiting } of found) {
    if (waiting === 0) continue;
    await tx.run("SET VARIABLE archive_part = $part", { part });
    await tx.run(sql("67_archive_known"));
    for (const step of ["68_late_staged", "13_knocks", "24_seen", "25_site"]) await tx.run(sql(step));
  }
  if (found.some(({ here }) => here > 0)) await tx.run(sql("67_archive_take"));
}

/** One transaction with the ids of a file at hand. */
async function withIds<T>(
  { publicStore, lake }: Pick<SettleParts, "publicStore" | "lake">,
  leaf: ArchiveLeaf,
  work: (tx: Statements, probes: (typeof PROBES)[ProbeSubject]) => Promise<T>,
): Promise<T> {
  const day = dayOfManifest(leaf.manifest);
  const probes = PROBES[leaf.manifest.subject as ProbeSubject];
  const text = await readNamed(publicStore, lake, leaf);
  try {
    return await lake.transaction(async (tx) => {
      await loadIds(tx, text);
      await tx.run("SET VARIABLE archive_type = $type", { type: probes.type });
      await tx.run("SET VARIABLE archive_day = $day", { day });
      return work(tx, probes);
    });
  } finally {
    await rm(text, { force: true });
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
      await withIds(parts, leaf, (tx) => tx.run(sql("67_archive_copies")));
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
      for (const step of ["68_late_staged", ...(STEPS[topic] ?? []), "25_site"]) await tx.run(sql(step));
    }
  });
}
