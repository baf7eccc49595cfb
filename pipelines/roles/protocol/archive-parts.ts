import { z } from "zod";
import type { Store } from "../../../infra/store/store.ts";
import type { ArchiveSubject } from "../../record/vocabulary.ts";
import { PartitionObjects } from "./partition-objects.ts";

const PartDay = z.object({
  /** Number of the day's rows that are in the owner's lake and in no archive file. */
  rows: z.int().min(1),
  /**
   * First and last offset of each segment with rows of the day or of a neighbouring day, which may hold copies of an
   * event.
   */
  spans: z.array(z.tuple([z.int(), z.int()])),
});
export type PartDay = z.infer<typeof PartDay>;

/** The rows of one partition that wait for the archive (`owners/archive/<partition>`). */
const Part = z.object({
  v: z.literal(1),
  log: z.string(),
  positions: z.record(z.string(), z.int()),
  /**
   * Number of leaves that the owner had read. Rows of archive files that these leaves name have been removed from the
   * owner's lake.
   */
  tree: z.int().min(0),
  /** Complete up to this day: an earlier day that is missing here has no rows in this partition. */
  until: z.string(),
  /** The waiting rows, by {@link dayName}. */
  days: z.record(z.string(), PartDay),
});
export type ArchivePart = z.infer<typeof Part>;

export const openArchiveParts = (
  store: Store,
  log: { id: string; partitions: number },
): PartitionObjects<ArchivePart> => new PartitionObjects(store, "archive", Part, log);

export const dayName = (subject: ArchiveSubject, day: string): string => `${subject} ${day}`;
