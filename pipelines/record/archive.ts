import { z } from "zod";
import { Sha256Hex } from "../../infra/sha256-hex.ts";
import { isId } from "./ids.ts";
import { ARCHIVE_SUBJECTS, type ArchiveSubject } from "./vocabulary.ts";

/**
 * The signed description of one archive file, as the public interface defines it ("Archive manifest"). It has exactly
 * these members. `subject`: the kind of rows in the file.
 */
export const ArchiveManifest = z.strictObject({
  schema: z.literal("svc.archive.v1"),
  id: z.string().refine((text) => isId("arc", text), "not an archive id"),
  subject: z.enum(ARCHIVE_SUBJECTS),
  from: z.string(),
  to: z.string(),
  rows: z.int().min(0),
  content_hash: Sha256Hex,
  bytes: z.int().min(0),
  verified_at: z.string(),
  format: z.string(),
  file: z.url(),
  reproduce: z.string(),
  signing_key_id: z.string(),
  canonicalization: z.literal("RFC8785"),
  signature: z.string(),
});
export type ArchiveManifest = z.infer<typeof ArchiveManifest>;

/**
 * Number of days for which every table keeps a row before the row may move to the archive. Grading reads only rows
 * that are not older: 90 days of samples and 14 days of earlier letters.
 */
export const RETENTION_DAYS = 110;
const RETENTION_DURATION = `P${RETENTION_DAYS}D`;
/** Time before a row may move to the archive, by subject, as ISO 8601 duration. */
export const RETENTION_OF: Record<ArchiveSubject, string> = {
  liveness_probes: RETENTION_DURATION,
  mcp_probes: RETENTION_DURATION,
  grades: RETENTION_DURATION,
  mcp_grades: RETENTION_DURATION,
};

/** Kinds of records that never move from the database to the archive. */
export const NEVER_ARCHIVED = ["paid_calls", "settlements", "corrections", "disputes", "listings", "orders"] as const;

/** Format of each subject's files. */
const FORMATS: Record<ArchiveSubject, string> = {
  liveness_probes: "NDJSON, one liveness probe a line",
  mcp_probes: "NDJSON, one probe of an MCP tool a line",
  grades: "NDJSON, one grade leaf a line",
  mcp_grades: "NDJSON, one grade leaf of an MCP tool a line",
};

/**
 * Returns the member `format` of a manifest.
 * @param supersedes id of the wrong file that this file replaces, or null
 */
export const manifestFormat = (subject: ArchiveSubject, supersedes: string | null): string =>
  supersedes === null ? FORMATS[subject] : `${FORMATS[subject]}; replaces ${supersedes}`;

/**
 * Returns the shell command that fetches a file and prints the hash of its unpacked bytes. It needs curl, zstd and
 * sha256sum.
 */
export const reproduceCommand = (file: string): string => `curl -fsS '${file}' | zstd -dc | sha256sum`;

/** Returns the UTC day of a manifest. */
export const dayOfManifest = ({ from }: Pick<ArchiveManifest, "from">): string => from.slice(0, 10);

/**
 * Returns the store key of an archive file. The key contains the hash of the unpacked bytes, since the packed bytes
 * depend on the compressor's version.
 */
export const archiveFileKey = (subject: ArchiveSubject, day: string, contentHash: string): string =>
  `archive/${subject}/${day}.${contentHash.slice(0, 16)}.ndjson.zst`;

export const archiveManifestKey = (id: string): string => `archive/${id}.json`;
