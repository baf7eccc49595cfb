import { readFile } from "node:fs/promises";
import type { Lake, Statements } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import type { Positions } from "../2-ingest/load.ts";
import { ArchiveUnproven } from "./errors.ts";
import { unpackFile } from "./pack.ts";
import { packLines } from "./pack-lines.ts";
import { type ProbeRow, probeLine } from "./probe-line.ts";
import type { Counted } from "./read-back.ts";
import { type MadeFile, PROBES, type ProbeSubject } from "./subjects.ts";
import { removeFiles, workPath } from "./work-files.ts";

export { workPath };

/** Rows of one file; a day with more has several. Bounds what is held packed in memory. */
export const ROWS_A_FILE = 1_000_000;

/**
 * Rows of one subject and UTC day below the frozen positions as packed files, in the order of (capability, record); none
 * when there is no row. One transaction: lines, counts and digests are of one moment.
 * @param rowsAFile see {@link ROWS_A_FILE}
 * @throws ArchiveUnproven when the lines are not those of the rows
 */
export function packedProbes(
  lake: Lake,
  subject: ProbeSubject,
  day: string,
  ends: Positions,
  rowsAFile = ROWS_A_FILE,
): Promise<MadeFile[]> {
  const { type, topic } = PROBES[subject];
  const list = Object.entries(ends[topic] ?? {}).map(([part, next]) => ({ topic, part: Number(part), next }));
  return lake.transaction(async (tx) => {
    await tx.run("SET VARIABLE archive_type = $type", { type });
    await tx.run("SET VARIABLE archive_day = $day", { day });
    await tx.run("SET VARIABLE archive_ends = $ends", { ends: JSON.stringify(list) });
    await tx.run(sql("63_archive_source"));
    return writeFiles(tx, lake, subject, rowsAFile);
  });
}

/** {@link packedProbes}, unpacked. */
export async function probeFiles(...args: Parameters<typeof packedProbes>): Promise<MadeFile[]> {
  const files = await packedProbes(...args);
  return Promise.all(
    files.map(async ({ path, packed, rows, digest, ids }) => {
      const text = workPath(args[0]);
      await unpackFile(await readFile(path), text, packed!.unpackedBytes);
      await removeFiles([{ path, ids }]);
      return { path: text, rows, digest };
    }),
  );
}

/** Files over what `archive_source` names; the variable `archive_day` is their day. */
export async function writeFiles(
  tx: Statements,
  lake: Pick<Lake, "workDir">,
  subject: ProbeSubject,
  rowsAFile: number,
): Promise<MadeFile[]> {
  const isTool = subject === "mcp_probes";
  await tx.run("SET VARIABLE archive_tool = $isTool", { isTool });
  await tx.run(sql("64_archive_lines"));
  const [whole] = await tx.all<Counted & { odd: number; base: bigint | null }>(sql("64_archive_whole"));
  const { rows, digest, odd, base } = whole!;
  if (odd > 0) await mendOdd(tx, isTool);
  const files = await packLines(tx, lake, { base: base ?? 0n, rows }, rowsAFile);
  const want = `${rows} rows of ids ${digest}`;
  const got = `${files.reduce((sum, file) => sum + file.rows, 0)} rows of ids ${xorOf(files)}`;
  if (got === want) return files;
  await removeFiles(files);
  throw new ArchiveUnproven(`lines of ${subject}`, want, got);
}

const xorOf = (files: readonly MadeFile[]): string =>
  files.reduce((all, { digest }) => all ^ BigInt(digest), 0n).toString();

/** Rows that are made outside of the engine at once. */
const ODD_AT_ONCE = 1_000;

async function mendOdd(tx: Statements, isTool: boolean): Promise<void> {
  for (let after = { cap: "", id: "" }; ; ) {
    const rows = await tx.all<ProbeRow>(sql("64_archive_odd"), { ...after, most: ODD_AT_ONCE });
    const last = rows.at(-1);
    if (!last) return;
    const lines = rows.map((row) => ({ event_id: row.event_id, cap: row.cap, line: `${probeLine(row, isTool)}\n` }));
    await tx.run(sql("64_archive_mended"), { lines: JSON.stringify(lines) });
    after = { cap: last.cap, id: last.event_id };
  }
}
