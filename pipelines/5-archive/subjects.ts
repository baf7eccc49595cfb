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

/** A made file before it is put, and what was counted where its rows came from. */
export interface MadeFile {
  /** On this machine's disk: the packed bytes where {@link MadeFile.packed} says of what, else the text. */
  path: string;
  packed?: { contentHash: string; unpackedBytes: number };
  rows: number;
  /** Of the ids, knowing no order: {@link MadeFile.rows} and this are compared with what the lines tell. */
  digest: string;
  /** Ids of its rows on this machine's disk (sql/66_archive_keep), for taking them out. */
  ids?: string;
}
