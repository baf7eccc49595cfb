import type { DuckDBConnection } from "@duckdb/node-api";
import type { Statements } from "../../../infra/lake/duckdb.ts";
import { type GradeOptions, type GradeSummary, gradeChunks } from "../../../pipelines/3-grade/grade.ts";
import type { RunLine } from "../../../pipelines/record/card.ts";

/** Grades endpoints as {@link gradeChunks} does, but returns all lines of the run at once. */
export async function gradeRun(
  conn: DuckDBConnection | Statements,
  options: GradeOptions,
): Promise<GradeSummary & { lines: RunLine[] }> {
  const lines: RunLine[] = [];
  const chunks = gradeChunks(conn, options);
  for (;;) {
    const { value, done } = await chunks.next();
    if (done) return { lines, ...value };
    for (const line of value) lines.push(line);
  }
}
