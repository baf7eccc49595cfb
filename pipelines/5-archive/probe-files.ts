import { randomBytes } from "node:crypto";
import { join } from "node:path";
import type { Lake, Statements } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import type { Positions } from "../2-ingest/load.ts";
import { type ProbeRow, probeLine } from "./probe-line.ts";
import { type MadeFile, PROBES, type ProbeSubject } from "./subjects.ts";

/** Rows of one file; a day with more has several. Bounds what is held packed in memory. */
export const ROWS_A_FILE = 1_000_000;

interface Members {
  rows: number;
  digest: string;
  last_cap: string | null;
  last_id: string | null;
}

/** A file in the lake's work folder, under a name that nobody had before; it is emptied at every start. */
export const workPath = (lake: Pick<Lake, "workDir">): string =>
  join(lake.workDir, `archive-${randomBytes(8).toString("hex")}.ndjson`);

/**
 * Rows of one subject and UTC day below the frozen positions as files, in the order of (capability, record); none when
 * there is no row. One transaction: lines, counts and digests are of one moment.
 * @param rowsAFile see {@link ROWS_A_FILE}
 */
export function probeFiles(
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

/** Files over what `archive_source` names. */
export async function writeFiles(
  tx: Statements,
  lake: Pick<Lake, "workDir">,
  subject: ProbeSubject,
  rowsAFile: number,
): Promise<MadeFile[]> {
  const isTool = subject === "mcp_probes";
  await tx.run("SET VARIABLE archive_tool = $isTool", { isTool });
  await tx.run(sql("64_archive_lines"));
  await mendOdd(tx, isTool);
  const files: MadeFile[] = [];
  for (let after = { cap: "", id: "" }; ; ) {
    const [members] = await tx.all<Members>(sql("65_archive_members"), { ...after, most: rowsAFile });
    if (!members || members.rows === 0) break;
    const path = workPath(lake);
    await tx.all(sql("65_archive_file"), { ...after, most: rowsAFile, path });
    files.push({ path, rows: members.rows, digest: members.digest });
    after = { cap: members.last_cap!, id: members.last_id! };
  }
  await tx.run("DROP TABLE archive_lines");
  return files;
}

async function mendOdd(tx: Statements, isTool: boolean): Promise<void> {
  for (const row of await tx.all<ProbeRow>(sql("64_archive_odd"))) {
    const { event_id, cap } = row;
    await tx.run(sql("64_archive_mended"), { event_id, cap, line: probeLine(row, isTool) });
  }
}
