import type { Topic } from "../../infra/log/log.ts";
import type { RecordType } from "../record/bodies.ts";
import type { ArchiveSubject } from "../record/vocabulary.ts";

/** Subjects whose rows are records of the event log, and leave the lake for good. */
export const PROBES = {
  liveness_probes: { type: "handshake", topic: "observations.free" },
  mcp_probes: { type: "mcp.probe", topic: "observations.mcp" },
} as const satisfies Record<string, { type: RecordType; topic: Topic }>;
export type ProbeSubject = keyof typeof PROBES;

export const isProbes = (subject: ArchiveSubject): subject is ProbeSubject => Object.hasOwn(PROBES, subject);

/** Subject of the records of a type, or null for those that never move. */
export const subjectOf = (type: string): ProbeSubject | null =>
  (Object.keys(PROBES) as ProbeSubject[]).find((subject) => PROBES[subject].type === type) ?? null;

/** A made file before it is put: packed, and what it unpacks to. */
export interface MadeFile {
  /** Of the packed bytes on this machine's disk. */
  path: string;
  packed: { contentHash: string; unpackedBytes: number };
  rows: number;
  /** Of the ids that its lines have to tell (line-ids.ts); leaves, which never leave a lake, have none. */
  told?: string;
  /** Ids of its rows on this machine's disk (sql/66_archive_keep), for taking them out. */
  ids?: string;
}
