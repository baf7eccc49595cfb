import { z } from "zod";
import type { Lake } from "../../infra/lake/duckdb.ts";
import type { Store } from "../../infra/store/store.ts";
import type { Logger } from "../../infra/telemetry.ts";
import type { Followed } from "../4-publish/followed.ts";
import type { EvidenceDraft, Freeze } from "../4-publish/freezes.ts";
import type { Publisher } from "../4-publish/publisher.ts";
import { putPacked } from "../4-publish/writes.ts";
import { bucketFiles, closedUntil, daysOwingKin, dueDays, freezeOf, freezesOf } from "../5-archive/evidence.ts";
import { partitionOfBucket } from "../record/ids.ts";
import { addDays } from "../record/time.ts";
import { PartitionObjects } from "./partition-objects.ts";
import { positionsOf } from "./payees.ts";

/**
 * What one partition has for the evidence (`owners/evidence/<partition>`): files that lie in the public store already and
 * that no leaf names yet. All of them were read up to the same positions: a later freeze says that everything before it
 * was read.
 */
const Part = z.object({
  v: z.literal(1),
  log: z.string(),
  positions: z.record(z.string(), z.int()),
  /** Every day before this one is here, or has nothing of this partition. */
  until: z.string(),
  /** Day -> which freeze of it, and its files. */
  days: z.record(z.string(), z.object({ freeze: z.int(), drafts: z.array(z.custom<EvidenceDraft>()) })),
});
type Part = z.infer<typeof Part>;

export const evidenceParts = (store: Store, logId: string): PartitionObjects<Part> =>
  new PartitionObjects(store, "evidence", Part, logId);

export interface OwnEvidence {
  lake: Lake;
  publicStore: Store;
  followed: Followed;
  objects: PartitionObjects<Part>;
  log: { id: string; partitions: number };
  logger: Logger;
}

const setOf = ({ until, days }: Pick<Part, "until" | "days">): string =>
  JSON.stringify([until, Object.entries(days).map(([day, { freeze }]) => [day, freeze])]);

/**
 * The owner's half: files of the closed days of its buckets, made once, and said for the publisher to name. Made anew, all
 * of them, when a further day closes or a record comes late. @returns files that were made
 */
export async function makeOwnEvidence(parts: OwnEvidence, held: readonly number[], now: Date): Promise<number> {
  const { lake, followed, objects, log } = parts;
  const publisher = {
    current: () => followed.current(),
    putEvidence: (key: string, bytes: Uint8Array) => putPacked(parts.publicStore, key, bytes),
  };
  const files = { lake, publisher, partitions: log.partitions, logger: parts.logger };
  const due = await dueDays(files, closedUntil(now));
  const { evidence } = followed.fold;
  const last = due.days.at(-1);
  const until = due.more && last ? addDays(last, 1) : due.until;
  // Drawn before the files are read: the fold moves on meanwhile, and files of the past under the number of a later
  // closing would say the same rows twice.
  const wanted = {
    until,
    days: Object.fromEntries(due.days.map((day) => [day, { freeze: freezesOf(evidence, day), drafts: [] }])),
  };
  const said = await objects.ofOurs(held);
  const stale = held.filter((partition) => {
    const theirs = said.get(partition);
    return !theirs || setOf(theirs) !== setOf(wanted);
  });
  if (stale.length === 0) return 0;
  const byDay = new Map<string, readonly EvidenceDraft[]>();
  for (const day of due.days) byDay.set(day, await bucketFiles(files, day, due.ends));
  const ends = due.ends;
  let made = 0;
  for (const partition of stale) {
    const own = (day: string): EvidenceDraft[] =>
      byDay.get(day)!.filter(({ bucket }) => partitionOfBucket(bucket!, log.partitions) === partition);
    const days = Object.fromEntries(due.days.map((day) => [day, { ...wanted.days[day]!, drafts: own(day) }]));
    const part: Part = { v: 1, log: log.id, positions: positionsOf(ends, partition), until, days };
    await objects.put(partition, part, () => true);
    made += Object.values(days).reduce((sum, { drafts }) => sum + drafts.length, 0);
  }
  return made;
}

export interface FreezeReport {
  days: string[];
  files: number;
}

/**
 * The publisher's half: close every day that all partitions have said theirs of, in order, and what came late. One
 * generation for all of it; when another publisher was quicker nothing is published and the next call looks again.
 */
export async function publishEvidence(
  parts: { publisher: Publisher; privateStore: Store; logger: Logger; partitions: number },
  objects: PartitionObjects<Part>,
): Promise<FreezeReport> {
  const { evidence } = await parts.publisher.current();
  const said = [...(await objects.all()).values()];
  const fitting = (day: string): EvidenceDraft[] =>
    said
      .flatMap(({ days }) => {
        const own = days[day];
        return own && own.freeze === freezesOf(evidence, day) ? own.drafts : [];
      })
      .sort((a, b) => a.bucket! - b.bucket!);
  const withFiles = new Set(
    said.flatMap(({ days }) => Object.keys(days).filter((day) => days[day]!.drafts.length > 0)),
  );
  const late = [
    ...new Set([...[...withFiles].filter((day) => day <= evidence.newest), ...daysOwingKin(evidence)]),
  ].sort();
  const freezes: Freeze[] = [];
  for (const day of [...late, ...closedDays(evidence.newest, withFiles, said, parts.partitions)]) {
    const freeze = await freezeOf(parts, day, freezesOf(evidence, day), fitting(day));
    if (freeze) freezes.push(freeze);
  }
  if (freezes.length === 0) return { days: [], files: 0 };
  const { leaves, refused } = await parts.publisher.publishFreezes(freezes);
  if (refused[0]) throw refused[0];
  if (leaves === 0) return { days: [], files: 0 };
  return { days: freezes.map(({ day }) => day), files: freezes.reduce((sum, { drafts }) => sum + drafts.length, 0) };
}

/** Days after the newest frozen one of which every partition has said what it has. */
function closedDays(
  newest: string,
  withFiles: ReadonlySet<string>,
  said: readonly Part[],
  partitions: number,
): string[] {
  if (said.length < partitions) return [];
  const until = said.map((part) => part.until).sort()[0]!;
  const days: string[] = [];
  const first = newest ? addDays(newest, 1) : [...withFiles].sort()[0];
  if (first) for (let day = first; day < until; day = addDays(day, 1)) days.push(day);
  return days;
}
