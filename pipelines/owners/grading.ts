import type { Lake } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import { type ListingFact, listingFacts } from "../2-ingest/listing-facts.ts";
import { lakePositions, type Positions } from "../2-ingest/load.ts";
import { gradeRun } from "../3-grade/grade.ts";
import type { Thief } from "../3-grade/kin.ts";
import type { RunLine } from "../record/card.ts";
import { rfc3339 } from "../record/time.ts";

/** What one look at a lake came to; rows, positions and what was dirty are of one moment. */
export interface Graded {
  facts: { listed: ListingFact[]; unlisted: string[] };
  /** Null when no endpoint was dirty or due. */
  run: Awaited<ReturnType<typeof gradeRun>> | null;
  /** The table of payees and domains that the run's flags were made from, and `run.kinSha256` is the hash of. */
  thieves: readonly Thief[];
  positions: Positions;
}

/**
 * One look at what is dirty or due in a lake, in one transaction.
 * @param due null: at everything
 * @param kin given this lake's thieves, the table of all lakes (default: this lake is the only one)
 */
export function gradeLake(
  lake: Lake,
  now: Date,
  due: readonly string[] | null,
  options: {
    saysNothing: (at: string, line: Pick<RunLine, "cap" | "cards">) => boolean;
    /** Told of every line, also of those that are left out. */
    onLine: (line: Pick<RunLine, "cap" | "due_at">) => void;
    kin?: (own: readonly Thief[], positions: Positions) => Promise<readonly Thief[]>;
  },
): Promise<Graded> {
  const at = rfc3339(now);
  return lake.transaction(async (tx) => {
    const facts = await listingFacts(tx, due === null ? "all" : "changed");
    const spokenOf = new Set((await tx.all<{ cap: string }>(sql("40_spoken_of"))).map(({ cap }) => cap));
    const dirty = (await tx.all<{ cap: string }>(sql("40_dirty"))).map(({ cap }) => cap);
    const caps = due === null ? "all" : [...new Set([...dirty, ...due])].sort();
    await tx.run(sql("41_graded"));
    const positions = await lakePositions(tx);
    let thieves: readonly Thief[] | null = null;
    const { kin } = options;
    const run = caps.length
      ? await gradeRun(tx, {
          now,
          caps,
          leaveOut: (line) => {
            options.onLine(line);
            return !spokenOf.has(line.cap) && options.saysNothing(at, line);
          },
          ...(kin
            ? {
                kin: async (own: readonly Thief[]) => {
                  thieves = await kin(own, positions);
                  return thieves;
                },
              }
            : {}),
        })
      : null;
    return { facts, run, thieves: thieves ?? (run ? await tx.all<Thief>(sql("51_thieves")) : []), positions };
  });
}
