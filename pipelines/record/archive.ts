import { z } from "zod";
import { Sha256Hex } from "../../infra/sha256-hex.ts";
import { isId } from "./ids.ts";
import { ARCHIVE_SUBJECTS, type ArchiveSubject } from "./vocabulary.ts";

/** The archive manifest of the interface ("Archive manifest"): these members and no other. */
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
 * Days that every table keeps a row before it may move to the archive: more than grading reads (90 days and 14 of
 * hold).
 */
export const KEPT_DAYS = 110;
const KEPT = `P${KEPT_DAYS}D`;
export const KEPT_FOR: Record<ArchiveSubject, string> = {
  liveness_probes: KEPT,
  mcp_probes: KEPT,
  grades: KEPT,
  mcp_grades: KEPT,
};

/** Kinds of records that never leave the database. */
export const NEVER_MOVED = ["paid_calls", "settlements", "corrections", "disputes", "listings", "orders"] as const;

/** Format of each subject's files. */
const LINE_OF: Record<ArchiveSubject, string> = {
  liveness_probes: "NDJSON, one liveness probe a line",
  mcp_probes: "NDJSON, one probe of an MCP tool a line",
  grades: "NDJSON, one grade leaf a line",
  mcp_grades: "NDJSON, one grade leaf of an MCP tool a line",
};

/** `format` of a manifest. @param supersedes id of the wrong file that this one replaces, or null */
export const formatOf = (subject: ArchiveSubject, supersedes: string | null): string =>
  supersedes === null ? LINE_OF[subject] : `${LINE_OF[subject]}; replaces ${supersedes}`;

/** The command that fetches a file and prints its hash; it needs curl, zstd and sha256sum. */
export const reproduceOf = (file: string): string => `curl -fsS '${file}' | zstd -dc | sha256sum`;

/** The UTC day that a manifest is for. */
export const dayOfManifest = ({ from }: Pick<ArchiveManifest, "from">): string => from.slice(0, 10);

/** Key of a file. It names the hash of the unpacked bytes, since compressors differ between versions. */
export const archiveFileKey = (subject: ArchiveSubject, day: string, contentHash: string): string =>
  `archive/${subject}/${day}.${contentHash.slice(0, 16)}.ndjson.zst`;

export const archiveManifestKey = (id: string): string => `archive/${id}.json`;
