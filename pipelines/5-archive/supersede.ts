import { rm } from "node:fs/promises";
import { Failure } from "../../infra/errors.ts";
import type { Lake } from "../../infra/lake/duckdb.ts";
import type { Store } from "../../infra/store/store.ts";
import type { Publisher } from "../4-publish/publisher.ts";
import type { ArchiveFold } from "../published/fold.ts";
import { RecordReader, readCheckpoint } from "../published/reader.ts";
import { type ArchiveManifest, dayOfManifest } from "../record/archive.ts";
import { archiveId } from "../record/ids.ts";
import type { ArchiveLeaf } from "../record/leaf.ts";
import { emptyFile, type FilingParts, fileOne } from "./filing.ts";
import { followArchive } from "./follow.ts";
import type { ArchivePlace } from "./place.ts";
import { gradeFiles, probeFiles, spansOf } from "./probe-files.ts";
import { isProbes, type MadeFile, PROBES, type ProbeSubject, readNamed, removeFiles } from "./read-back.ts";

export interface SupersedeParts extends ArchivePlace, Pick<FilingParts, "now" | "onStep"> {
  /** Has every partition, and everything that the log holds. */
  lake: Lake;
  privateStore: Store;
  publisher: Publisher;
  /** Id of the event log. */
  logId: string;
}

/** A file that replaces another is one file, however many rows it has. */
const ALL_ROWS = 1_000_000_000;

/**
 * Replaces a wrong file, when an operator asks for it. Its rows are made again from their source (the commit chain's
 * segments, which keep every record, or the log for grades). The new file's leaf names the one that it replaces, and
 * the reason. The wrong file stays in the store and in the log. Rows that only it had are in no valid file any more.
 * @throws Failure `unknown` for an unknown id, `usage` for a missing reason, `already` for one that was replaced already or
 * when the new bytes equal the old ones; Unproven, PublicConflict and what lake, stores and publisher throw
 */
export async function supersede(parts: SupersedeParts, id: string, reason: string): Promise<ArchiveManifest> {
  if (reason.trim() === "" || reason.length > 2_000)
    throw new Failure("usage", "the reason needs 1 to 2,000 characters");
  const { archive: fold } = await parts.publisher.current();
  const wrong = fold.files.get(id);
  if (!wrong) throw new Failure("unknown", `${id} is not in the archive`);
  const by = fold.superseded.get(id);
  if (by) throw new Failure("already", `${id} was replaced by ${by} already`);
  const { subject } = wrong.manifest;
  const day = dayOfManifest(wrong.manifest);
  const known = fold.filesOf(subject, day).length;
  const made = await madeAgain(parts, fold, wrong);
  const { contentHash } = made;
  if (fold.files.has(archiveId(subject, day, contentHash))) {
    await removeFiles([made]);
    throw new Failure("already", `nothing is wrong with ${id}: it comes out with the same bytes (${contentHash})`);
  }
  const what = { subject, day, supersedes: id, reason, positions: wrong.positions };
  try {
    const draft = await fileOne(parts, made, what);
    const { manifest } = draft;
    const { leaves, refused } = await parts.publisher.publishFilings([{ subject, day, known, drafts: [draft] }]);
    if (refused[0]) throw refused[0];
    if (leaves === 0) throw new Failure("already", `somebody else filed ${subject} of ${day} meanwhile: look again`);
    await followArchive(parts.lake, (await parts.publisher.current()).archive);
    return manifest;
  } finally {
    await removeFiles([made]);
  }
}

async function madeAgain(parts: SupersedeParts, fold: ArchiveFold, wrong: ArchiveLeaf): Promise<MadeFile> {
  const { subject } = wrong.manifest;
  const day = dayOfManifest(wrong.manifest);
  const others = fold.currentFilesOf(subject, day).filter(({ manifest }) => manifest.id !== wrong.manifest.id);
  const { lake, publicStore, trust } = parts;
  let made: MadeFile[];
  if (isProbes(subject)) made = await probesAgain(parts, subject, day, wrong, others);
  else {
    const end = wrong.positions.tree?.["0"] ?? 0;
    const below = others.map(({ positions }) => positions.tree?.["0"] ?? 0).filter((size) => size < end);
    const span = { first: Math.max(0, ...below), end };
    const reader = await RecordReader.open(publicStore, (await readCheckpoint(publicStore, trust))!);
    made = await gradeFiles(reader, lake, fold, { subject, day, span }, ALL_ROWS);
  }
  return made[0] ?? emptyFile(lake);
}

/** Makes the rows again from the segments, below the wrong file's positions, without those of other valid files. */
async function probesAgain(
  { lake, publicStore, privateStore, logId }: SupersedeParts,
  subject: ProbeSubject,
  day: string,
  wrong: ArchiveLeaf,
  others: readonly ArchiveLeaf[],
): Promise<MadeFile[]> {
  const parts = await Promise.all(
    Object.entries(wrong.positions[PROBES[subject].topic] ?? {}).map(async ([name, next]) => {
      const part = Number(name);
      return { part, first: 0, next, spans: await spansOf(lake, subject, day, part) };
    }),
  );
  const texts: string[] = [];
  try {
    for (const other of others) texts.push(await readNamed(publicStore, lake, other));
    const from = { printer: lake, privateStore, logId };
    return (await probeFiles(from, { subject, day, parts }, { rowsAFile: ALL_ROWS, others: texts })).files;
  } finally {
    for (const text of texts) await rm(text, { force: true });
  }
}
