import { z } from "zod";
import type { Store } from "../../../infra/store/store.ts";
import type { ArchiveSubject } from "../../record/vocabulary.ts";
import { PartitionObjects } from "./partition-objects.ts";

const PartDay = z.object({
  /** Rows of the day that are in the owner's lake and in no file. */
  rows: z.int().min(1),
  /** Offsets, both inclusive, of the segments that have the day or a day beside it, where copies of an event may lie. */
  spans: z.array(z.tuple([z.int(), z.int()])),
});
export type PartDay = z.infer<typeof PartDay>;

/** What one partition has for the archive (`owners/archive/<partition>`). */
const Part = z.object({
  v: z.literal(1),
  log: z.string(),
  positions: z.record(z.string(), z.int()),
  /** Number of leaves that the owner had followed; rows of archive files that these name have left its lake. */
  tree: z.int().min(0),
  /** Complete up to this day: an earlier day that is missing here has no rows in this partition. */
  until: z.string(),
  /** By {@link dayName}. */
  days: z.record(z.string(), PartDay),
});
export type ArchivePart = z.infer<typeof Part>;

export const openArchiveParts = (
  store: Store,
  log: { id: string; partitions: number },
): PartitionObjects<ArchivePart> => new PartitionObjects(store, "archive", Part, log);

export const dayName = (subject: ArchiveSubject, day: string): string => `${subject} ${day}`;
