import { z } from "zod";
import type { Store } from "../../../infra/store/store.ts";
import type { ArchiveSubject } from "../../record/vocabulary.ts";
import { PartitionObjects } from "./partition-objects.ts";

const PartDay = z.object({
  /** Number of the day's rows that are in the lake (database) of the partition's owner and in no archive file. */
  rows: z.int().min(1),
  /**
   * First and last log offset of each segment (file of log records) that has rows of the day, or of a neighbouring
   * day, since such a segment may have a copy of one of the day's rows.
   */
  spans: z.array(z.tuple([z.int(), z.int()])),
});
export type PartDay = z.infer<typeof PartDay>;

/**
 * The private object `owners/archive/<partition>`, in which the owner of a partition lists the rows that wait to be
 * archived. The publisher reads it. `positions`: log offsets up to which the owner had read.
 */
const Part = z.object({
  v: z.literal(1),
  log: z.string(),
  positions: z.record(z.string(), z.int()),
  /**
   * Number of leaves (entries of the public log) that the owner had read. Rows in the archive files that these leaves
   * name have been removed from the owner's lake.
   */
  tree: z.int().min(0),
  /**
   * The list is complete before this day: an earlier day that is missing in `days` has no waiting rows in this
   * partition.
   */
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
