import { randomBytes } from "node:crypto";
import { rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Lake } from "../../infra/lake/duckdb.ts";
import type { ZstdPacking } from "../../infra/zstd.ts";
import type { RecordType } from "../record/bodies.ts";
import type { Topic } from "../record/topics.ts";
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
  contentHash: string;
  unpackedBytes: number;
  rows: number;
}

/** A file in the lake's work folder, under a name that nobody had before; it is emptied at every start. */
export const workPath = (lake: Pick<Lake, "workDir">): string =>
  join(lake.workDir, `archive-${randomBytes(8).toString("hex")}`);

/** All that was packed, as a file. @param rows lines in it */
export async function madeFile(lake: Pick<Lake, "workDir">, packing: ZstdPacking, rows: number): Promise<MadeFile> {
  const { packed, sha256, bytes } = await packing.end();
  const path = workPath(lake);
  await writeFile(path, packed);
  return { path, contentHash: sha256, unpackedBytes: bytes, rows };
}

/** Made files that are put, or will not be. */
export async function removeFiles(files: readonly Pick<MadeFile, "path">[]): Promise<void> {
  for (const { path } of files) await rm(path, { force: true });
}
