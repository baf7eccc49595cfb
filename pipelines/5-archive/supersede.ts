import { createReadStream } from "node:fs";
import { rm } from "node:fs/promises";
import { Failure } from "../../infra/errors.ts";
import type { Lake } from "../../infra/lake/duckdb.ts";
import type { Store } from "../../infra/store/store.ts";
import type { Publisher } from "../4-publish/publisher.ts";
import { parseJson } from "../published/errors.ts";
import type { ArchiveFold } from "../published/fold.ts";
import { LineSplitter } from "../published/lines.ts";
import { RecordReader, readCheckpoint } from "../published/reader.ts";
import { type ArchiveManifest, dayOfManifest } from "../record/archive.ts";
import { archiveId } from "../record/ids.ts";
import { type ArchiveLeaf, MAX_LEAF_BYTES } from "../record/leaf.ts";
import { createEmptyFile, type FilingParts, storeMadeFile } from "./filing.ts";
import { followArchive } from "./follow.ts";
import type { ArchivePlace } from "./place.ts";
import { makeGradeFiles, makeProbeFiles, readDaySpans } from "./probe-files.ts";
import {
  isProbeSubject,
  type MadeFile,
  PROBE_SUBJECTS,
  type ProbeSubject,
  readLeafFile,
  removeFiles,
} from "./read-back.ts";

export interface SupersedeParts extends ArchivePlace, Pick<FilingParts, "now" | "onStep"> {
  /** A lake that has loaded every partition and all records of the log. */
  lake: Lake;
  privateStore: Store;
  publisher: Publisher;
  /** Id of the event log. */
  logId: string;
}

/** A limit of rows that no file reaches, so that the rows which replace those of one file are again in one file. */
const UNLIMITED_ROWS = 1_000_000_000;

/**
 * Replaces a wrong archive file on an operator's request. The rows are made again from their source: the segment
 * files, which keep every record, or the tree for grades. The new file's leaf names the file that it replaces and the
 * reason. The wrong file stays in the store, and its leaf in the tree. Rows that only the wrong file had are in no
 * valid file afterwards.
 * @throws Failure `unknown` for an unknown id, `usage` for a missing reason, `already` when the file was replaced
 * before or the new bytes equal the old ones; Unproven, PublicConflict, and errors of lake, stores and publisher
 */
export async function supersede(parts: SupersedeParts, id: string, reason: string): Promise<ArchiveManifest> {
  if (reason.trim() === "" || reason.length > 2_000)
    throw new Failure("usage", "the reason needs 1 to 2,000 characters");
  const { archive: fold } = await parts.publisher.current();
  const wrongLeaf = fold.files.get(id);
  if (!wrongLeaf) throw new Failure("unknown", `${id} is not in the archive`);
  const replacement = fold.superseded.get(id);
  if (replacement) throw new Failure("already", `${id} was replaced by ${replacement} already`);
  const { subject } = wrongLeaf.manifest;
  const day = dayOfManifest(wrongLeaf.manifest);
  const filesBefore = fold.filesOf(subject, day).length;
  const madeFile = await remakeFile(parts, fold, wrongLeaf);
  const { contentHash } = madeFile;
  if (fold.files.has(archiveId(subject, day, contentHash))) {
    await removeFiles([madeFile]);
    throw new Failure("already", `nothing is wrong with ${id}: it comes out with the same bytes (${contentHash})`);
  }
  const description = { subject, day, supersedes: id, reason, positions: wrongLeaf.positions };
  try {
    const draft = await storeMadeFile(parts, madeFile, description);
    const { manifest } = draft;
    const { leaves, refused } = await parts.publisher.publishFilings([{ subject, day, filesBefore, drafts: [draft] }]);
    if (refused[0]) throw refused[0];
    if (leaves === 0) throw new Failure("already", `somebody else filed ${subject} of ${day} meanwhile: look again`);
    await followArchive(parts.lake, (await parts.publisher.current()).archive);
    return manifest;
  } finally {
    await removeFiles([madeFile]);
  }
}

async function remakeFile(parts: SupersedeParts, fold: ArchiveFold, wrongLeaf: ArchiveLeaf): Promise<MadeFile> {
  const { subject } = wrongLeaf.manifest;
  const day = dayOfManifest(wrongLeaf.manifest);
  const otherFiles = fold.currentFilesOf(subject, day).filter(({ manifest }) => manifest.id !== wrongLeaf.manifest.id);
  const { lake, publicStore, trust } = parts;
  let madeFiles: MadeFile[];
  if (isProbeSubject(subject)) madeFiles = await remakeProbes(parts, subject, day, wrongLeaf, otherFiles);
  else {
    const endOf = ({ positions }: ArchiveLeaf): number => positions.tree?.["0"] ?? 0;
    const end = endOf(wrongLeaf);
    const first = Math.max(0, ...otherFiles.map(endOf).filter((size) => size < end));
    // Files that were made of one span have the same end.
    const filedTogether = otherFiles.filter((other) => endOf(other) === end);
    const rows = { subject, day, span: { first, end }, others: await readGradeIndexes(parts, filedTogether) };
    const reader = await RecordReader.open(publicStore, (await readCheckpoint(publicStore, trust))!);
    madeFiles = await makeGradeFiles(reader, lake, fold, rows, UNLIMITED_ROWS);
  }
  return madeFiles[0] ?? createEmptyFile(lake);
}

/** Reads the indexes of the leaves that files of grades hold. @throws Unproven */
async function readGradeIndexes(
  { lake, publicStore }: Pick<SupersedeParts, "lake" | "publicStore">,
  files: readonly ArchiveLeaf[],
): Promise<Set<number>> {
  const indexes = new Set<number>();
  const addLine = (line: Buffer) => {
    // A file that is wrong too may have lines without an index.
    const { index } = Object(parseJson(line)) as { index?: unknown };
    if (typeof index === "number") indexes.add(index);
  };
  for (const file of files) {
    const path = await readLeafFile(publicStore, lake, file);
    const lines = new LineSplitter(MAX_LEAF_BYTES, addLine);
    try {
      for await (const chunk of createReadStream(path)) lines.add(chunk as Buffer);
    } finally {
      await rm(path, { force: true });
    }
  }
  return indexes;
}

/**
 * Makes the rows of probes again from the segment files: all rows below the wrong file's positions, except those in
 * other valid files.
 */
async function remakeProbes(
  { lake, publicStore, privateStore, logId }: SupersedeParts,
  subject: ProbeSubject,
  day: string,
  wrongLeaf: ArchiveLeaf,
  otherFiles: readonly ArchiveLeaf[],
): Promise<MadeFile[]> {
  const parts = await Promise.all(
    Object.entries(wrongLeaf.positions[PROBE_SUBJECTS[subject].topic] ?? {}).map(async ([name, next]) => {
      const part = Number(name);
      return { part, first: 0, next, spans: await readDaySpans(lake, subject, day, part) };
    }),
  );
  const textPaths: string[] = [];
  try {
    for (const other of otherFiles) textPaths.push(await readLeafFile(publicStore, lake, other));
    const sources = { printer: lake, privateStore, logId };
    return (await makeProbeFiles(sources, { subject, day, parts }, { rowsAFile: UNLIMITED_ROWS, others: textPaths }))
      .files;
  } finally {
    for (const path of textPaths) await rm(path, { force: true });
  }
}
