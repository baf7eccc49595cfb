import type { Lake, Statements } from "../../../infra/lake/duckdb.ts";
import { sql } from "../../../infra/lake/sql.ts";
import { lakePositions } from "../../2-ingest/load.ts";
import { type ListingFact, listingFacts } from "../../2-ingest/volatile.ts";
import { type GradeOptions, type GradeSummary, gradeChunks } from "../../3-grade/grade.ts";
import type { Thief } from "../../3-grade/related.ts";
import { type PackedLines, packLines } from "../../4-publish/runs.ts";
import type { RunLine } from "../../record/card.ts";
import { rfc3339 } from "../../record/time.ts";
import type { Positions } from "../../record/volatile.ts";

/** Result of grading a lake in one transaction. An endpoint is dirty when records of it came in since its last grading. */
export interface GradeResult {
  facts: { listed: ListingFact[]; unlisted: string[] };
  /** Null when no endpoint was dirty or due. */
  run: GradedLines | null;
  /** Endpoints of this lake that took money, ascending. */
  thieves: readonly Thief[];
  positions: Positions;
}

/** Lines of a grade run, packed as its run objects will hold them. */
export interface GradedLines extends GradeSummary {
  objects: PackedLines[];
}

export interface LookOptions {
  changesNothing: (at: string, line: Pick<RunLine, "cap" | "cards">) => boolean;
  /** Called with every line, also with those that are left out. */
  onLine: (line: Pick<RunLine, "cap" | "due_at">) => void;
  /** The published table of payees and domains that flags of related parties are made from. */
  related: readonly Thief[];
  /** Most lines of one run object. */
  runLines: number;
}

/** Grades endpoints and packs the lines as they come, so that a million of them fit into memory. */
async function gradePacked(db: Statements, options: GradeOptions, runLines: number): Promise<GradedLines> {
  const objects: PackedLines[] = [];
  const lines: RunLine[] = [];
  const chunks = gradeChunks(db, options);
  for (;;) {
    const { value, done } = await chunks.next();
    if (!done) lines.push(...value);
    while (lines.length >= runLines || (done && lines.length > 0))
      objects.push(await packLines(lines.splice(0, runLines)));
    if (done) return { ...value, objects };
  }
}

/**
 * Grades the endpoints of a lake that are dirty or due, in one transaction.
 * @param due endpoints that are due by time; null: all endpoints
 */
export function gradeLake(
  lake: Lake,
  now: Date,
  due: readonly string[] | null,
  { changesNothing: saysNothing, onLine, related, runLines }: LookOptions,
): Promise<GradeResult> {
  const at = rfc3339(now);
  return lake.transaction(async (tx) => {
    const spokenOf = new Set((await tx.all<{ cap: string }>(sql("queries/news:corrected"))).map(({ cap }) => cap));
    const dirty = (await tx.all<{ cap: string }>(sql("queries/news:dirty"))).map(({ cap }) => cap);
    const caps = due === null ? "all" : [...new Set([...dirty, ...due])].sort();
    const positions = await lakePositions(tx);
    const leaveOut: GradeOptions["leaveOut"] = (line) => {
      onLine(line);
      return !spokenOf.has(line.cap) && saysNothing(at, line);
    };
    const run = caps.length > 0 ? await gradePacked(tx, { now, caps, leaveOut, related }, runLines) : null;
    const facts = await listingFacts(tx, due === null ? "all" : "changed");
    await tx.run(sql("queries/news:graded"));
    const thieves = run?.thieves ?? (await tx.all<Thief>(sql("grade/related:thieves")));
    return { facts, run, thieves, positions };
  });
}
