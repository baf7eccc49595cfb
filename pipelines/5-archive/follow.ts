import { Failure } from "../../infra/errors.ts";
import type { Lake } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import type { ArchiveFold } from "../published/fold.ts";
import { dayOfManifest } from "../record/archive.ts";
import type { ArchiveLeaf } from "../record/leaf.ts";
import { isProbeSubject, PROBE_SUBJECTS } from "./read-back.ts";

/**
 * Archive files of one subject (kind of row) and UTC day that were made at equal log positions, including files that
 * were replaced later.
 */
interface FileGroup {
  type: string;
  topic: string;
  day: string;
  /** Partition -> offset. The rows of the partition below this offset are in these files or in earlier ones. */
  next: Record<string, number>;
  leaves: ArchiveLeaf[];
}

/**
 * Groups the archive files of records of the event log, in the order of their leaves. Only these records are deleted
 * from the lake (the local database of rows) once they are archived.
 */
function groupFiles(fold: ArchiveFold): FileGroup[] {
  const groups = new Map<string, FileGroup>();
  for (const leaf of fold.files.values()) {
    const { subject } = leaf.manifest;
    if (!isProbeSubject(subject)) continue;
    const day = dayOfManifest(leaf.manifest);
    const { type, topic } = PROBE_SUBJECTS[subject];
    const next = leaf.positions[topic] ?? {};
    const name = JSON.stringify([type, day, next]);
    const group = groups.get(name) ?? { type, topic, day, next, leaves: [] };
    group.leaves.push(leaf);
    groups.set(name, group);
  }
  return [...groups.values()];
}

/**
 * A row of table `archived`: the lake has deleted those rows of partition `part` that archive file `arc_id` contains.
 */
interface NotedFile {
  arc_id: string;
  part: number;
}
const noteName = ({ arc_id, part }: NotedFile): string => `${arc_id} ${part}`;

async function readNotedFiles(lake: Pick<Lake, "all">): Promise<Set<string>> {
  return new Set((await lake.all<NotedFile>("SELECT arc_id, part FROM archived")).map(noteName));
}

/** Partitions of a group for which table `archived` lacks at least one of the group's files. */
const findUnnotedParts = ({ leaves }: FileGroup, parts: Iterable<number>, notedFiles: ReadonlySet<string>): number[] =>
  [...parts].filter((part) => leaves.some(({ manifest }) => !notedFiles.has(noteName({ arc_id: manifest.id, part }))));

/** @param removed number of rows that the lake deleted; null if the lake has not loaded them */
const noteParameters = ({ type, day, next, leaves }: FileGroup, part: number, removed: number | null) => ({
  ids: JSON.stringify(leaves.map(({ manifest }) => manifest.id)),
  ...{ type, day, part, next: next[String(part)] ?? 0, removed },
});

/**
 * The error for a published file whose rows do not match those in the lake. Nothing was deleted, and an operator has
 * to investigate.
 */
const createMismatch = (id: string, reason: string): Failure => new Failure("record", `${id}: ${reason}`);

/**
 * Deletes archived rows from the lake. Only the published leaves decide what was archived: rows of a leaf's type, UTC
 * day and partition below the leaf's positions. Each partition is handled by itself, since the set of partitions that
 * a process owns changes. The rows of a group are deleted and its files noted in `archived` in one transaction, and
 * only if the lake's number of rows fits the files. It may be called at any time, repeatedly, and after any failure.
 * @returns number of rows that this call removed
 * @throws Failure; groups that were finished before stay finished
 */
export async function followArchive(lake: Lake, fold: ArchiveFold): Promise<number> {
  const notedFiles = await readNotedFiles(lake);
  let rows = 0;
  for (const group of groupFiles(fold)) {
    const positions = await lake.all<{ part: number; next: bigint }>(
      "SELECT part, next FROM positions WHERE topic = $topic",
      {
        topic: group.topic,
      },
    );
    const loadedOffsets = new Map(positions.map(({ part, next }) => [part, Number(next)]));
    const unnotedParts = findUnnotedParts(group, loadedOffsets.keys(), notedFiles);
    if (unnotedParts.length > 0)
      rows += await evictRows(lake, group, unnotedParts, { fold, loadedOffsets, notedFiles });
  }
  return rows;
}

async function evictRows(
  lake: Lake,
  group: FileGroup,
  unnotedParts: readonly number[],
  {
    fold,
    loadedOffsets,
    notedFiles,
  }: { fold: ArchiveFold; loadedOffsets: ReadonlyMap<number, number>; notedFiles: ReadonlySet<string> },
): Promise<number> {
  const { type, day, next, leaves } = group;
  const validLeaves = leaves.filter(({ manifest }) => !fold.superseded.has(manifest.id));
  const filedCount = validLeaves.reduce((sum, { manifest }) => sum + manifest.rows, 0);
  const parts = Object.keys(next).map(Number);
  const isWhole = parts.every(
    (part) =>
      (loadedOffsets.get(part) ?? -1) >= next[String(part)]! &&
      leaves.every(({ manifest }) => !notedFiles.has(noteName({ arc_id: manifest.id, part }))),
  );
  return lake.transaction(async (tx) => {
    let removedRows = 0;
    for (const part of unnotedParts) {
      const filedRows = { type, day, part, next: next[String(part)] ?? 0 };
      const countRows = async () => Number((await tx.all<{ n: bigint }>(sql("archive/evict:count"), filedRows))[0]!.n);
      await tx.run(sql("archive/evict:hanging"), filedRows);
      const rowsBefore = await countRows();
      const deleteRows = () => tx.all<{ Count: bigint }>(sql("archive/evict:rows"), filedRows);
      const [deleted] = rowsBefore === 0 ? [{ Count: 0n }] : await deleteRows();
      const rowsAfter = await countRows();
      if (Number(deleted!.Count) !== rowsBefore || rowsAfter !== 0)
        throw createMismatch(
          leaves[0]!.manifest.id,
          `${rowsBefore} rows of partition ${part}, ${deleted!.Count} left, ${rowsAfter} are there`,
        );
      await tx.run(sql("archive/evict:note"), noteParameters(group, part, rowsBefore));
      removedRows += rowsBefore;
    }
    // The lake may have fewer rows than the files, when other processes own some partitions, or when this lake loaded
    // partitions after their rows were archived.
    if (isWhole ? removedRows !== filedCount : removedRows > filedCount)
      throw createMismatch(
        validLeaves.map(({ manifest }) => manifest.id).join(", "),
        `${filedCount} rows, ${removedRows} in the lake`,
      );
    return removedRows;
  });
}

/**
 * Makes the object that ingest calls before it loads partitions that are new to this lake. It records which rows of
 * those partitions were archived, so that these rows are counted in the totals but not loaded.
 * @param readFold reads the archive's part of the published leaves
 */
export const createArchivedMarker = (readFold: () => Promise<ArchiveFold>) => ({
  async mark(lake: Lake): Promise<void> {
    const groups = groupFiles(await readFold());
    const notedFiles = await readNotedFiles(lake);
    await lake.transaction(async (tx) => {
      const positions = await tx.all<{ topic: string; part: number }>("SELECT topic, part FROM positions");
      for (const group of groups) {
        const loadedParts = new Set(positions.filter(({ topic }) => topic === group.topic).map(({ part }) => part));
        const newParts = Object.keys(group.next)
          .map(Number)
          .filter((part) => !loadedParts.has(part));
        for (const part of findUnnotedParts(group, newParts, notedFiles))
          await tx.run(sql("archive/evict:note"), noteParameters(group, part, null));
      }
    });
  },
});
