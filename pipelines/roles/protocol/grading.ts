import type { Lake, Statements } from "../../../infra/lake/duckdb.ts";
import { sql } from "../../../infra/lake/sql.ts";
import { lakePositions } from "../../2-ingest/load.ts";
import { type ListingFact, listingFacts } from "../../2-ingest/volatile.ts";
import { type GradeOptions, type GradeSummary, gradeChunks } from "../../3-grade/grade.ts";
import type { NonDeliveringSeller } from "../../3-grade/related.ts";
import { type PackedLines, packLines } from "../../4-publish/runs.ts";
import type { RunLine } from "../../record/card.ts";
import { rfc3339 } from "../../record/time.ts";
import type { Positions } from "../../record/volatile.ts";

/**
 * Result of grading a lake (a database of the log's rows) in one transaction. An endpoint is dirty if records about it
 * were loaded since its last grading, and due if its card changes by time alone. `facts`: the listings of the dirty
 * endpoints, or of all endpoints if all were graded; `positions`: the log positions up to which the lake was loaded.
 */
export interface GradeResult {
  facts: { listed: ListingFact[]; unlisted: string[] };
  /** The cards of the graded endpoints, except those that change nothing; null if no endpoint was dirty or due. */
  run: GradedLines | null;
  /** Endpoints of this lake that took money without an answer, ascending. */
  nonDelivering: readonly NonDeliveringSeller[];
  positions: Positions;
}

/**
 * Lines of a grading run (one line has the cards of one endpoint), packed as they are written into the run's private
 * objects.
 */
export interface GradedLines extends GradeSummary {
  objects: PackedLines[];
}

export interface GradeLakeOptions {
  /** Returns whether a line of the run with this time (RFC 3339) would change nothing that is published. */
  changesNothing: (at: string, line: Pick<RunLine, "cap" | "cards">) => boolean;
  /** Called with every line, also with those that are left out since they change nothing. */
  onLine: (line: Pick<RunLine, "cap" | "due_at">) => void;
  /**
   * The published table of endpoints that took money without an answer, from which other endpoints of their payees
   * and domains get flags.
   */
  related: readonly NonDeliveringSeller[];
  /** Largest number of lines of one run object. */
  runLines: number;
}

/** Grades endpoints and packs the lines chunk by chunk, so that the lines of a million endpoints fit into memory. */
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
 * Grades the endpoints of a lake that have new records, and those in `dueCaps`, in one transaction.
 * @param dueCaps endpoints to grade beside those with new records; null to grade all endpoints
 */
export function gradeLake(
  lake: Lake,
  now: Date,
  dueCaps: readonly string[] | null,
  { changesNothing: isUnchanged, onLine, related, runLines }: GradeLakeOptions,
): Promise<GradeResult> {
  const at = rfc3339(now);
  return lake.transaction(async (tx) => {
    const correctedCaps = new Set((await tx.all<{ cap: string }>(sql("queries/news:corrected"))).map(({ cap }) => cap));
    const changedCaps = (await tx.all<{ cap: string }>(sql("queries/news:dirty"))).map(({ cap }) => cap);
    const caps = dueCaps === null ? "all" : [...new Set([...changedCaps, ...dueCaps])].sort();
    const positions = await lakePositions(tx);
    const leaveOut: GradeOptions["leaveOut"] = (line) => {
      onLine(line);
      return !correctedCaps.has(line.cap) && isUnchanged(at, line);
    };
    const run = caps.length > 0 ? await gradePacked(tx, { now, endpointIds: caps, leaveOut, related }, runLines) : null;
    const facts = await listingFacts(tx, dueCaps === null ? "all" : "changed");
    await tx.run(sql("queries/news:graded"));
    const nonDelivering = run?.nonDelivering ?? (await tx.all<NonDeliveringSeller>(sql("grade/related:thieves")));
    return { facts, run, nonDelivering, positions };
  });
}
