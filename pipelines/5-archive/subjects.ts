import type { Topic } from "../../infra/log/log.ts";
import type { Positions } from "../2-ingest/load.ts";
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
  /** Where its rows stand in the lake, for taking them out. */
  held?: HeldRows;
}

/** Where a line stands: capability, then record. Both are ASCII: their order as strings is that of their bytes. */
export interface Place {
  cap: string;
  id: string;
}

/** Rows of a file as they stood when it was made: all of one subject and day between two places, below these positions. */
export interface HeldRows {
  ends: Positions;
  first: Place;
  last: Place;
  rows: number;
  /** Checksum of their ids, knowing no order. */
  look: string;
}
