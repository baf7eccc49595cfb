import { turnByTurn } from "../../infra/concurrency.ts";
import type { Lake } from "../../infra/lake/duckdb.ts";
import { ZstdPacking } from "../../infra/zstd.ts";
import type { ArchiveFold, LeafSpan } from "../published/archive-fold.ts";
import type { RecordReader } from "../published/reader.ts";
import type { ArchiveSubject } from "../record/vocabulary.ts";
import { type MadeFile, madeFile } from "./subjects.ts";

/** Leaves that are looked at between two turns of others: a few milliseconds. */
const LEAVES_A_TURN = 64;
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
  let packing: ZstdPacking | null = null;
  const close = async () => {
    if (!packing) return;
    files.push(await madeFile(lake, packing, rows));
    [rows, packing] = [0, null];
  };
  const giveTurn = turnByTurn(LEAVES_A_TURN);
  for await (const { bytes, leaf } of reader.leaves(span.first, span.end)) {
    await giveTurn();
    if (leaf.kind !== "grade" || leaf.day !== day || fold.subjectOf(leaf) !== subject) continue;
    rows++;
    packing ??= new ZstdPacking(true);
    await packing.add(Buffer.concat([bytes, LF]));
    if (rows === leavesAFile) await close();
  }
  await close();
  return files;
}

const LF = Buffer.from("\n");
