import { randomBytes } from "node:crypto";
import { closeSync, openSync, writeSync } from "node:fs";
import { rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { sha256hex } from "../../infra/canonical.ts";
import type { Lake } from "../../infra/lake/duckdb.ts";
import type { Store } from "../../infra/store/store.ts";
import type { ZstdPacking } from "../../infra/zstd.ts";
import { Unproven } from "../published/errors.ts";
import { describeText, scanFrame } from "../published/lines.ts";
import { archiveFileKey, dayOfManifest } from "../record/archive.ts";
import type { RecordType } from "../record/bodies.ts";
import type { ArchiveLeaf } from "../record/leaf.ts";
import type { Topic } from "../record/topics.ts";
import type { ArchiveSubject } from "../record/vocabulary.ts";

/** The properties that an archive file in the store must have. */
export interface ExpectedFile {
  key: string;
  contentHash: string;
  unpackedBytes: number;
  rows: number;
}

/**
 * Reads a file back from the public store, as any reader would, unpacks it, and compares hash, length and number of
 * lines with the expected ones.
 * @param onRead called after the file was read and before it is checked
 * @param onText called with each piece of the unpacked text before the check; it must not keep the piece
 * @returns the packed bytes
 * @throws Unproven when the file differs or is missing, and errors of the store
 */
export async function readBack(
  publicStore: Pick<Store, "get">,
  { key, contentHash, unpackedBytes, rows }: ExpectedFile,
  onRead: () => void | Promise<void> = () => undefined,
  onText?: (piece: Uint8Array) => void,
): Promise<Uint8Array> {
  const expected = describeText({ size: unpackedBytes, lines: rows, sha256: contentHash });
  const object = await publicStore.get(key);
  if (!object) throw new Unproven(key, expected, "no object");
  await onRead();
  const actual = describeText(await scanFrame(object.bytes, unpackedBytes, { onChunk: onText }));
  if (actual !== expected) throw new Unproven(key, expected, actual);
  return object.bytes;
}

/**
 * Reads the file that an archive leaf names, checks it against the leaf, and unpacks it into the work folder.
 * @returns path of the unpacked text, which the caller removes
 * @throws Unproven
 */
export async function readLeafFile(
  publicStore: Pick<Store, "get">,
  lake: Pick<Lake, "workDir">,
  { manifest, sha256, unpacked_bytes }: ArchiveLeaf,
): Promise<string> {
  const { subject, rows, content_hash } = manifest;
  const key = archiveFileKey(subject, dayOfManifest(manifest), content_hash);
  const expected = { key, contentHash: content_hash, unpackedBytes: unpacked_bytes, rows };
  const path = workPath(lake);
  const file = openSync(path, "wx");
  const write = (piece: Uint8Array) => {
    for (let at = 0; at < piece.length; ) at += writeSync(file, piece, at);
  };
  try {
    const hash = sha256hex(await readBack(publicStore, expected, undefined, write));
    if (hash !== sha256) throw new Unproven(key, `packed ${sha256}`, hash);
    return path;
  } catch (error) {
    await rm(path, { force: true });
    throw error;
  } finally {
    closeSync(file);
  }
}

/** Subjects (kinds of archived rows) whose rows are records of the event log. Once archived, the lake deletes them. */
export const PROBE_SUBJECTS = {
  liveness_probes: { type: "handshake", topic: "observations.free" },
  mcp_probes: { type: "mcp.probe", topic: "observations.mcp" },
} as const satisfies Record<string, { type: RecordType; topic: Topic }>;
export type ProbeSubject = keyof typeof PROBE_SUBJECTS;

export const isProbeSubject = (subject: ArchiveSubject): subject is ProbeSubject =>
  Object.hasOwn(PROBE_SUBJECTS, subject);

/** Subject of the records of a type, or null for types that are not archived. */
export const subjectOf = (type: string): ProbeSubject | null =>
  (Object.keys(PROBE_SUBJECTS) as ProbeSubject[]).find((subject) => PROBE_SUBJECTS[subject].type === type) ?? null;

/** A local archive file that is not in the store yet. */
export interface MadeFile {
  /** Path of the compressed file. */
  path: string;
  contentHash: string;
  unpackedBytes: number;
  rows: number;
}

/** Returns an unused path in the lake's work folder, which is emptied at every start. */
const workPath = (lake: Pick<Lake, "workDir">): string =>
  join(lake.workDir, `archive-${randomBytes(8).toString("hex")}`);

/** Ends the compression and writes the compressed bytes to a local file. @param rows number of lines in the file */
export async function writeMadeFile(
  lake: Pick<Lake, "workDir">,
  packing: ZstdPacking,
  rows: number,
): Promise<MadeFile> {
  const { packed, sha256, bytes } = await packing.end();
  const path = workPath(lake);
  await writeFile(path, packed);
  return { path, contentHash: sha256, unpackedBytes: bytes, rows };
}

/** Removes local files that were put into the store or are no longer needed. */
export async function removeFiles(files: readonly Pick<MadeFile, "path">[]): Promise<void> {
  for (const { path } of files) await rm(path, { force: true });
}
