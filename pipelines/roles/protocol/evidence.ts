import { z } from "zod";
import type { Store } from "../../../infra/store/store.ts";
import type { Logger } from "../../../infra/telemetry.ts";
import { positionsOf } from "../../2-ingest/load.ts";
import type { DayClose, EvidenceDraft } from "../../4-publish/filings.ts";
import type { Publisher } from "../../4-publish/publisher.ts";
import { putPacked } from "../../4-publish/writes.ts";
import {
  countCloses,
  createClose,
  daysWithoutTables,
  type EvidenceReport,
  findDueDays,
  firstUnclosedDay,
  makeBucketFiles,
  summarizeCloses,
} from "../../5-archive/evidence.ts";
import type { EvidenceFold } from "../../published/fold.ts";
import { partitionOfBucket } from "../../record/ids.ts";
import { addDays } from "../../record/time.ts";
import { type PartitionObjectParts, PartitionObjects } from "./partition-objects.ts";

/**
 * The private object `owners/evidence/<partition>`, in which a partition's owner lists its evidence files (all
 * samples of a day) that are in the public store and that no leaf (entry of the public log) names yet. All files were
 * made from the records of the event log `log` (its id) below `positions` ({topic: next offset}), since the leaves of a
 * day's closing state that everything before its positions was read.
 */
const Part = z.object({
  v: z.literal(1),
  log: z.string(),
  positions: z.record(z.string(), z.int()),
  /**
   * The list is complete before this day: an earlier day that is missing in `days` has no new rows in this partition.
   */
  until: z.string(),
  /** The files by day, and the number of the day's closing (publication of its evidence) for which they were made. */
  days: z.record(z.string(), z.object({ close: z.int(), drafts: z.array(z.custom<EvidenceDraft>()) })),
});
type Part = z.infer<typeof Part>;

export const openEvidenceParts = (store: Store, log: { id: string; partitions: number }): PartitionObjects<Part> =>
  new PartitionObjects(store, "evidence", Part, log);

export interface OwnEvidenceParts extends PartitionObjectParts<Part> {
  publicStore: Store;
  privateStore: Store;
  logger: Logger;
}

/** Returns a text that is equal for two objects if their `until`, their days and the days' numbers of closings are. */
const evidenceSetKey = ({ until, days }: Pick<Part, "until" | "days">): string =>
  JSON.stringify([until, Object.entries(days).map(([day, { close }]) => [day, close])]);

/**
 * Makes the evidence files of finished days for the owner's partitions and writes their names for the publisher. When
 * a further day ends or a record arrives late, all files that are not published yet are made again.
 * @returns number of files made
 */
export async function makeOwnEvidence(
  parts: OwnEvidenceParts,
  heldPartitions: readonly number[],
  now: Date,
): Promise<number> {
  const { lake, followed, objects, log } = parts;
  const publisher = {
    current: () => followed.current(),
    putEvidence: (key: string, bytes: Uint8Array) => putPacked(parts.publicStore, key, bytes),
  };
  const files = {
    ...{ lake, publisher, privateStore: parts.privateStore, logger: parts.logger },
    ...{ logId: log.id, partitions: log.partitions },
  };
  const due = await findDueDays(files, firstUnclosedDay(now));
  const { evidence } = followed.fold;
  const lastDay = due.days.at(-1);
  const endDay = due.more && lastDay ? addDays(lastDay, 1) : due.until;
  // The numbers of the closings are read before the files are made. If a closing is published meanwhile, these files
  // keep the old number, so that they are not published a second time as those of the next closing.
  const wantedSet = {
    until: endDay,
    days: Object.fromEntries(due.days.map((day) => [day, { close: countCloses(evidence, day), drafts: [] }])),
  };
  const writtenParts = await objects.readOwn(heldPartitions);
  const stalePartitions = heldPartitions.filter((partition) => {
    const writtenPart = writtenParts.get(partition);
    return !writtenPart || evidenceSetKey(writtenPart) !== evidenceSetKey(wantedSet);
  });
  if (stalePartitions.length === 0) return 0;
  const byDay = new Map<string, readonly EvidenceDraft[]>();
  for (const day of due.days) byDay.set(day, await makeBucketFiles(files, day, due.ends));
  const ends = due.ends;
  let filesMade = 0;
  for (const partition of stalePartitions) {
    const draftsOfPartition = (day: string): EvidenceDraft[] =>
      byDay.get(day)!.filter(({ bucket }) => partitionOfBucket(bucket!, log.partitions) === partition);
    const days = Object.fromEntries(
      due.days.map((day) => [day, { ...wantedSet.days[day]!, drafts: draftsOfPartition(day) }]),
    );
    const part: Part = { v: 1, log: log.id, positions: positionsOf(ends, partition), until: endDay, days };
    parts.refuseRevoked();
    await objects.put(partition, part, () => true);
    filesMade += Object.values(days).reduce((sum, { drafts }) => sum + drafts.length, 0);
  }
  return filesMade;
}

/**
 * Closes, in order, each day for which the owners of all partitions have written their files, that is, publishes the
 * leaves that name the files. Closes days with late records again. The publisher calls this function. All closings
 * are published at once; if another publisher was faster, nothing is published.
 */
export async function publishEvidence(
  parts: { publisher: Publisher; privateStore: Store; logger: Logger; partitions: number; now: Date },
  objects: PartitionObjects<Part>,
): Promise<EvidenceReport> {
  const nothing = { days: [], files: 0, rows: 0 };
  const { evidence } = await parts.publisher.current();
  const usableParts = [...(await objects.readAll()).values()].filter((part) => !isOutdated(part, evidence));
  const draftsOf = (day: string): EvidenceDraft[] =>
    usableParts
      .flatMap(({ days }) => {
        const dayFiles = days[day];
        return dayFiles && dayFiles.close === countCloses(evidence, day) ? dayFiles.drafts : [];
      })
      .sort((a, b) => a.bucket! - b.bucket!);
  const daysWithFiles = new Set(
    usableParts.flatMap(({ days }) => Object.keys(days).filter((day) => days[day]!.drafts.length > 0)),
  );
  const lateDays = [
    ...new Set([...[...daysWithFiles].filter((day) => day <= evidence.newest), ...daysWithoutTables(evidence)]),
  ].sort();
  const closes: DayClose[] = [];
  for (const day of [...lateDays, ...findClosableDays(evidence.newest, daysWithFiles, usableParts, parts)]) {
    const close = await createClose(parts, day, countCloses(evidence, day), draftsOf(day));
    if (close) closes.push(close);
  }
  // `evidence` has changed if another publisher has closed days meanwhile.
  if (closes.length === 0 || usableParts.some((part) => isOutdated(part, evidence))) return nothing;
  const { leaves, refused } = await parts.publisher.publishDayCloses(closes);
  if (refused[0]) throw refused[0];
  return leaves === 0 ? nothing : summarizeCloses(closes);
}

/**
 * Returns whether a part has files of a day that was closed with other owners' files, and without these, after this
 * owner had read the number of the day's closings. Then no file of the part may be published, not even files of other
 * days: their leaves would declare that everything before the part's positions was read, and the records in the files
 * that are left out would never be published. The owner makes all files again.
 */
const isOutdated = ({ days }: Part, evidence: EvidenceFold): boolean =>
  Object.entries(days).some(
    ([day, { close, drafts }]) =>
      close !== countCloses(evidence, day) && !drafts.every((draft) => isPublished(draft, evidence)),
  );

/** Returns whether the day's published files of this bucket have read as far as this file. */
function isPublished({ day, bucket, positions }: EvidenceDraft, evidence: EvidenceFold): boolean {
  const published = evidence.days.get(day)?.buckets.get(bucket!) ?? {};
  return Object.entries(positions).every(([topic, next]) => (published[topic] ?? 0) >= next);
}

/**
 * Returns the days after the newest closed day for which the owner of every partition has written its files and which
 * are over by the publisher's clock, since that of an owner may be ahead.
 */
function findClosableDays(
  newest: string,
  daysWithFiles: ReadonlySet<string>,
  parts: readonly Part[],
  { partitions, now }: { partitions: number; now: Date },
): string[] {
  if (parts.length < partitions) return [];
  const endDay = [firstUnclosedDay(now), ...parts.map((part) => part.until)].sort()[0]!;
  const days: string[] = [];
  const firstDay = newest ? addDays(newest, 1) : [...daysWithFiles].sort()[0];
  if (firstDay) for (let day = firstDay; day < endDay; day = addDays(day, 1)) days.push(day);
  return days;
}
