import { writeFile } from "node:fs/promises";
import type { Lake } from "../../infra/lake/duckdb.ts";
import type { ArchiveFold, LeafSpan } from "../published/archive-fold.ts";
import type { RecordReader } from "../published/reader.ts";
import type { ArchiveSubject } from "../record/vocabulary.ts";
import { Packing } from "./pack.ts";
import { type MadeFile, workPath } from "./subjects.ts";

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
  let rows = 0;
  let packing: Packing | null = null;
  const close = async () => {
    if (!packing) return;
    const path = workPath(lake);
    const { bytes, ...packed } = await packing.end();
    await writeFile(path, bytes);
    files.push({ path, packed, rows });
    [rows, packing] = [0, null];
  };
  for await (const { bytes, leaf } of reader.leaves(span.first, span.end)) {
    if (leaf.kind !== "grade" || leaf.day !== day || fold.subjectOf(leaf) !== subject) continue;
    rows++;
    packing ??= new Packing(0);
    await packing.write(Buffer.concat([bytes, LF]));
    if (rows === leavesAFile) await close();
  }
  await close();
  return files;
}

const LF = Buffer.from("\n");
