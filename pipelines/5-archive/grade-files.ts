import { open } from "node:fs/promises";
import type { Lake } from "../../infra/lake/duckdb.ts";
import type { ArchiveFold, LeafSpan } from "../4-publish/archive-fold.ts";
import type { RecordReader } from "../4-publish/read.ts";
import type { ArchiveSubject } from "../record/vocabulary.ts";
import { workPath } from "./probe-files.ts";
import { digestOfPlaces } from "./read-back.ts";
import type { MadeFile } from "./subjects.ts";

/** Leaves of one file: they have some two kilobytes each. */
const LEAVES_A_FILE = 100_000;

/**
 * The grades of one UTC day, by the leaf's `day`, as they stand in the log: its bytes, a line each, in its order. Those of
 * the tools of an MCP server are a subject of their own.
 * @param span leaves that are looked at
 */
export async function gradeFiles(
  reader: RecordReader,
  lake: Pick<Lake, "workDir">,
  fold: Pick<ArchiveFold, "subjectOf">,
  { subject, day, span }: { subject: ArchiveSubject; day: string; span: LeafSpan },
  leavesAFile = LEAVES_A_FILE,
): Promise<MadeFile[]> {
  const files: MadeFile[] = [];
  let places: number[] = [];
  let text: Buffer[] = [];
  const close = async () => {
    if (places.length === 0) return;
    const path = workPath(lake);
    const file = await open(path, "w");
    try {
      await file.writeFile(Buffer.concat(text));
    } finally {
      await file.close();
    }
    files.push({ path, rows: places.length, digest: digestOfPlaces(places) });
    [places, text] = [[], []];
  };
  for await (const { index, bytes, leaf } of reader.leaves(span.first, span.end)) {
    if (leaf.kind !== "grade" || leaf.day !== day || fold.subjectOf(leaf) !== subject) continue;
    places.push(index);
    text.push(bytes, LF);
    if (places.length === leavesAFile) await close();
  }
  await close();
  return files;
}

const LF = Buffer.from("\n");
