import { z } from "zod";
import { ArchiveManifest } from "../../pipelines/record/archive.ts";
import { ARCHIVE_SUBJECTS } from "../../pipelines/record/vocabulary.ts";
import { oneOfError, wholeNumber } from "./common.ts";

/** Query of GET /v1/archive. A page after the last one is empty and no error. */
export const ArchiveQuery = z.object({
  subject: z.enum(ARCHIVE_SUBJECTS, oneOfError(ARCHIVE_SUBJECTS)).optional(),
  page: wholeNumber(1, null, 1),
});
export type ArchiveQuery = z.infer<typeof ArchiveQuery>;

/** Path parameter of GET /v1/archive/{id}. */
export const ArchiveParams = z.object({
  id: z
    .string()
    .regex(
      /^arc_[0-9A-HJKMNP-TV-Z]{26}$/,
      "not an archive id: arc_ and 26 characters of 0-9 and A-Z without I, L, O, U",
    ),
});

/** Answer of GET /v1/archive: these members and no others. */
export const ArchiveList = z.strictObject({
  schema: z.literal("svc.archive.list.v1"),
  /** By subject, the time before a row may move to the archive (ISO 8601 duration). */
  kept_in_the_database_for: z.record(z.string(), z.string()),
  /** Kinds of records that never move from the database to the archive. */
  never_moved: z.array(z.string()),
  manifests: z.array(ArchiveManifest),
  /** Path of the next page; null on the last one. */
  next: z.string().nullable(),
});
export type ArchiveList = z.infer<typeof ArchiveList>;
export { ArchiveManifest };
