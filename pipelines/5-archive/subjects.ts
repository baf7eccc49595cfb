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

/** A made file before it is packed: its text on this machine's disk, and what was counted where the rows came from. */
export interface MadeFile {
  path: string;
  rows: number;
  /** Of the ids, knowing no order: {@link MadeFile.rows} and this are compared with the file that was read back. */
  digest: string;
}
