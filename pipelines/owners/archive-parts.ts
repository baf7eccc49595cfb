import { z } from "zod";
import { Sha256Hex } from "../../infra/sha256-hex.ts";
import type { Store } from "../../infra/store/store.ts";
import type { ArchiveSubject } from "../record/vocabulary.ts";
import { PartitionObjects } from "./partition-objects.ts";

/** A partition's rows of one subject and day, or a million of them: lines in the order of the archive, packed, private. */
const PartFile = z.object({
  key: z.string(),
  rows: z.int().min(1),
  /** Of the packed bytes, and of what they unpack to. */
  sha256: Sha256Hex,
  content_hash: Sha256Hex,
  unpacked_bytes: z.int().min(1),
});
export type PartFile = z.infer<typeof PartFile>;

const PartDay = z.object({
  rows: z.int().min(1),
  /** Of the ids, knowing no order: the xor over all partitions is the one of the day. */
  digest: z.string().regex(/^\d+$/),
  files: z.array(PartFile).min(1),
});
export type PartDay = z.infer<typeof PartDay>;

/** What one partition has for the archive (`owners/archive/<partition>`): rows that are in its owner's lake and in no file. */
const Part = z.object({
  v: z.literal(1),
  log: z.string(),
  positions: z.record(z.string(), z.int()),
  /** Leaves that had been followed: what they say was filed had left the lake. */
  tree: z.int().min(0),
  /** Every day before this one is here, or has nothing of this partition. */
  until: z.string(),
  /** By {@link dayName}. */
  days: z.record(z.string(), PartDay),
});
export type ArchivePart = z.infer<typeof Part>;

export const archiveParts = (store: Store, logId: string): PartitionObjects<ArchivePart> =>
  new PartitionObjects(store, "archive", Part, logId);

export const dayName = (subject: ArchiveSubject, day: string): string => `${subject} ${day}`;

/** Folder of a partition's files; beside the parts, not among them. */
export const rowsFolder = (partition: number): string => `owners/archive-rows/${String(partition).padStart(2, "0")}/`;

/** Named by its content: whoever makes the same rows again finds them there. */
export const rowsKey = (partition: number, subject: ArchiveSubject, day: string, packedSha256: string): string =>
  `${rowsFolder(partition)}${subject}.${day}.${packedSha256}.ndjson.zst`;
