import { Failure } from "../../infra/errors.ts";
import type { Lake } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import type { ArchiveFold } from "../published/fold.ts";
import { dayOfManifest } from "../record/archive.ts";
import type { ArchiveLeaf } from "../record/leaf.ts";
import { isProbes, PROBES } from "./read-back.ts";

/** Files of one subject and UTC day that were made at the same positions, including replaced ones. */
interface Group {
  type: string;
  topic: string;
  day: string;
  /** Partition -> offset: the partition's rows below it are in these files or in earlier ones. */
  next: Record<string, number>;
  leaves: ArchiveLeaf[];
}

/** Groups of the files whose rows leave the lake, in the order of the log. */
function groupsOf(fold: ArchiveFold): Group[] {
  const groups = new Map<string, Group>();
  for (const leaf of fold.files.values()) {
    const { subject } = leaf.manifest;
    if (!isProbes(subject)) continue;
    const day = dayOfManifest(leaf.manifest);
    const { type, topic } = PROBES[subject];
    const next = leaf.positions[topic] ?? {};
    const name = JSON.stringify([type, day, next]);
    const group = groups.get(name) ?? { type, topic, day, next, leaves: [] };
    group.leaves.push(leaf);
    groups.set(name, group);
  }
  return [...groups.values()];
}

interface Noted {
  arc_id: string;
  part: number;
}
const nameOf = ({ arc_id, part }: Noted): string => `${arc_id} ${part}`;

async function notedIn(lake: Pick<Lake, "all">): Promise<Set<string>> {
  return new Set((await lake.all<Noted>("SELECT arc_id, part FROM archived")).map(nameOf));
}

/** Partitions of a group for which the lake has not recorded every file. */
const unnotedOf = ({ leaves }: Group, parts: Iterable<number>, noted: ReadonlySet<string>): number[] =>
  [...parts].filter((part) => leaves.some(({ manifest }) => !noted.has(nameOf({ arc_id: manifest.id, part }))));

const noteOf = ({ type, day, next, leaves }: Group, part: number, removed: number | null) => ({
  ids: JSON.stringify(leaves.map(({ manifest }) => manifest.id)),
  ...{ type, day, part, next: next[String(part)] ?? 0, removed },
});

/** The rows of a published file are not the ones in the lake: nothing was deleted, an operator has to look. */
const mismatch = (id: string, says: string): Failure => new Failure("record", `${id}: ${says}`);

/**
 * Makes the lake follow the archive's leaves. The leaves alone decide what was archived: rows of a type, UTC day and
 * partition below the leaf's positions leave the lake. This is done for each partition, since an owner's partitions
 * come and go, in one transaction that also records the manifests, and only if the lake has as many rows as the files.
 * May be called at any time, repeatedly, and after any failure.
 * @returns rows that were removed now
 * @throws Failure; groups that were followed before stay so
 */
export async function followArchive(lake: Lake, fold: ArchiveFold): Promise<number> {
  const noted = await notedIn(lake);
  let rows = 0;
  for (const group of groupsOf(fold)) {
    const here = await lake.all<{ part: number; next: bigint }>(
      "SELECT part, next FROM positions WHERE topic = $topic",
      {
        topic: group.topic,
      },
    );
    const loaded = new Map(here.map(({ part, next }) => [part, Number(next)]));
    const unnoted = unnotedOf(group, loaded.keys(), noted);
    if (unnoted.length > 0) rows += await evict(lake, group, unnoted, { fold, loaded, noted });
  }
  return rows;
}

async function evict(
  lake: Lake,
  group: Group,
  unnoted: readonly number[],
  { fold, loaded, noted }: { fold: ArchiveFold; loaded: ReadonlyMap<number, number>; noted: ReadonlySet<string> },
): Promise<number> {
  const { type, day, next, leaves } = group;
  const standing = leaves.filter(({ manifest }) => !fold.superseded.has(manifest.id));
  const filed = standing.reduce((sum, { manifest }) => sum + manifest.rows, 0);
  const parts = Object.keys(next).map(Number);
  const isWhole = parts.every(
    (part) =>
      (loaded.get(part) ?? -1) >= next[String(part)]! &&
      leaves.every(({ manifest }) => !noted.has(nameOf({ arc_id: manifest.id, part }))),
  );
  return lake.transaction(async (tx) => {
    let removed = 0;
    for (const part of unnoted) {
      const filedRows = { type, day, part, next: next[String(part)] ?? 0 };
      const count = async () => Number((await tx.all<{ n: bigint }>(sql("archive/evict:count"), filedRows))[0]!.n);
      await tx.run(sql("archive/evict:hanging"), filedRows);
      const before = await count();
      const take = () => tx.all<{ Count: bigint }>(sql("archive/evict:rows"), filedRows);
      const [taken] = before === 0 ? [{ Count: 0n }] : await take();
      const after = await count();
      if (Number(taken!.Count) !== before || after !== 0)
        throw mismatch(
          leaves[0]!.manifest.id,
          `${before} rows of partition ${part}, ${taken!.Count} left, ${after} are there`,
        );
      await tx.run(sql("archive/evict:note"), noteOf(group, part, before));
      removed += before;
    }
    // Fewer where other partitions have other owners, or were loaded without rows that were archived already.
    if (isWhole ? removed !== filed : removed > filed)
      throw mismatch(standing.map(({ manifest }) => manifest.id).join(", "), `${filed} rows, ${removed} in the lake`);
    return removed;
  });
}

/**
 * What ingest calls before it loads partitions that are new to this lake: it records which of their rows were archived,
 * so that these are counted in the totals and not loaded.
 * @param folded the archive's part of the published fold
 */
export const movedOut = (folded: () => Promise<ArchiveFold>) => ({
  async mark(lake: Lake): Promise<void> {
    const groups = groupsOf(await folded());
    const noted = await notedIn(lake);
    await lake.transaction(async (tx) => {
      const here = await tx.all<{ topic: string; part: number }>("SELECT topic, part FROM positions");
      for (const group of groups) {
        const loaded = new Set(here.filter(({ topic }) => topic === group.topic).map(({ part }) => part));
        const fresh = Object.keys(group.next)
          .map(Number)
          .filter((part) => !loaded.has(part));
        for (const part of unnotedOf(group, fresh, noted))
          await tx.run(sql("archive/evict:note"), noteOf(group, part, null));
      }
    });
  },
});
