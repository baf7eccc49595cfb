import { rm, writeFile } from "node:fs/promises";
import { openChain } from "../../infra/chain/commits.ts";
import type { Statements } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import type { ArchiveFold } from "../4-publish/archive-fold.ts";
import { RecordReader, readCheckpoint } from "../4-publish/read.ts";
import { type ArchiveManifest, dayOfManifest } from "../record/archive.ts";
import { archiveId } from "../record/ids.ts";
import type { ArchiveLeaf } from "../record/leaf.ts";
import type { ArchiveParts } from "./archive.ts";
import { CannotSupersede } from "./errors.ts";
import { emptyFile, fileOne } from "./filing.ts";
import { gradeFiles } from "./grade-files.ts";
import { writeFiles } from "./probe-files.ts";
import { loadIds, readNamed } from "./read-back.ts";
import { settle } from "./settle.ts";
import { isProbes, type MadeFile, PROBES, type ProbeSubject } from "./subjects.ts";
import { removeFiles, workPath } from "./work-files.ts";

export interface SupersedeParts extends ArchiveParts {
  logId: string;
}

/** A file that is made again is one file, however many rows it has. */
const ALL_ROWS = 1_000_000_000;

/**
 * Replace a wrong file, by an operator's word: its rows are made again from where they came (the commit chain's segments,
 * which keep every record; the log, for grades), and the new file's leaf says which one it replaces and why. The wrong one
 * stays in the store and in the log. Rows that only the wrong file had are in no standing file any more.
 * @throws CannotSupersede for an unknown id, one that was replaced already, a missing reason, or when the same bytes come
 * out; ArchiveUnproven, PublicConflict and what lake, stores and publisher throw
 */
export async function supersede(parts: SupersedeParts, id: string, reason: string): Promise<ArchiveManifest> {
  if (reason.trim() === "" || reason.length > 2_000)
    throw new CannotSupersede("the reason needs 1 to 2,000 characters");
  const { archive: fold } = await parts.publisher.current();
  const wrong = fold.files.get(id);
  if (!wrong) throw new CannotSupersede(`${id} is not in the archive`);
  const by = fold.superseded.get(id);
  if (by) throw new CannotSupersede(`${id} was replaced by ${by} already`);
  // What was filed has left the lake before anything is compared with it.
  await settle(parts, fold);
  const { subject } = wrong.manifest;
  const day = dayOfManifest(wrong.manifest);
  const known = fold.filed(subject, day).length;
  const made = await madeAgain(parts, fold, wrong);
  const { contentHash } = made.packed;
  if (fold.files.has(archiveId(subject, day, contentHash))) {
    await removeFiles([made]);
    throw new CannotSupersede(`nothing is wrong with ${id}: the same bytes come out (${contentHash})`);
  }
  const what = { subject, day, supersedes: id, reason, positions: wrong.positions };
  const draft = await fileOne(parts, made, what);
  try {
    const { manifest } = draft;
    const { leaves, refused } = await parts.publisher.publishFilings([{ subject, day, known, drafts: [draft] }]);
    if (refused[0]) throw refused[0];
    if (leaves === 0) throw new CannotSupersede(`somebody else filed ${subject} of ${day} meanwhile: look again`);
    await settle(parts, (await parts.publisher.current()).archive);
    return manifest;
  } finally {
    await removeFiles([made]);
  }
}

async function madeAgain(parts: SupersedeParts, fold: ArchiveFold, wrong: ArchiveLeaf): Promise<MadeFile> {
  const { subject } = wrong.manifest;
  const day = dayOfManifest(wrong.manifest);
  const others = fold.standing(subject, day).filter(({ manifest }) => manifest.id !== wrong.manifest.id);
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

/** The rows from the segments. Reads every segment of the topic: an operator's command, not a job. */
async function probesAgain(
  parts: SupersedeParts,
  subject: ProbeSubject,
  day: string,
  wrong: ArchiveLeaf,
  others: readonly ArchiveLeaf[],
): Promise<MadeFile[]> {
  const { lake, publicStore } = parts;
  const { type, topic } = PROBES[subject];
  return lake.transaction(async (tx) => {
    await tx.run(sql("63_archive_chain"));
    for (const [part, next] of Object.entries(wrong.positions[topic] ?? {})) {
      await readSegments(tx, parts, { topic, partition: Number(part) }, { type, day, next });
    }
    for (const other of others) {
      const path = await readNamed(publicStore, lake, other);
      await loadIds(tx, path);
      await tx.run(sql("63_archive_other"));
      await rm(path, { force: true });
    }
    await tx.run("SET VARIABLE archive_day = $day", { day });
    await tx.run(sql("63_archive_again"));
    return (await writeFiles(tx, lake, { subject, day }, ALL_ROWS)).files;
  });
}

async function readSegments(
  tx: Statements,
  { lake, privateStore, logId }: SupersedeParts,
  place: { topic: string; partition: number },
  wanted: { type: string; day: string; next: number },
): Promise<void> {
  const chain = openChain(privateStore, { logId, ...place });
  for (const ref of (await chain.head()).live) {
    if (ref.first >= wanted.next) continue;
    const segment = workPath(lake);
    await writeFile(segment, await chain.readSegment(ref));
    await tx.run(sql("63_archive_segment"), { segment, part: place.partition, ...wanted });
    await rm(segment, { force: true });
  }
}
