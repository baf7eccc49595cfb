import type { Lake } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import { lakePositions } from "../2-ingest/load.ts";
import { type ListingFact, listingFacts } from "../2-ingest/volatile.ts";
import { type GradeOptions, gradeRun } from "../3-grade/grade.ts";
import type { Thief } from "../3-grade/related.ts";
import type { RunLine } from "../record/card.ts";
import { rfc3339 } from "../record/time.ts";
import type { Positions } from "../record/volatile.ts";

/** What one look at a lake came to; rows, positions and what was dirty are of one moment. */
export interface Graded {
  facts: { listed: ListingFact[]; unlisted: string[] };
  /** Null when no endpoint was dirty or due. */
  run: Awaited<ReturnType<typeof gradeRun>> | null;
  /**
   * The table of payees and domains that the run's flags were made from, and `run.relatedSha256` is the hash of; without a run
   * what this lake adds to it.
   */
  thieves: readonly Thief[];
  positions: Positions;
}

export interface LookOptions {
  saysNothing: (at: string, line: Pick<RunLine, "cap" | "cards">) => boolean;
  /** Told of every line, also of those that are left out. */
  onLine: (line: Pick<RunLine, "cap" | "due_at">) => void;
  /** The lake holds every partition: its own thieves are the table, and there is nobody to exchange it with. */
  holdsAll: boolean;
  /** Given the thieves of this lake, the table of all lakes. No transaction of the lake is open meanwhile. */
  exchange: (own: readonly Thief[], positions: Positions) => Promise<readonly Thief[]>;
}

/** Looks that found another table of our own than the one that was exchanged, before giving up until the next turn. */
const MAX_LOOKS = 4;

/** A look found thieves that the others were not told of: it is rolled back and begun anew once they were. */
class NotExchanged extends Error {
  constructor(
    readonly own: readonly Thief[],
    readonly positions: Positions,
  ) {
    super("this lake's thieves were not exchanged yet");
  }
}

/**
 * One look at what is dirty or due in a lake, in one transaction. A lake that holds every partition is looked at once. Of
 * several lakes each looks twice: the first look finds our thieves and is rolled back, the thieves are exchanged, and the
 * second look grades with the table of all lakes, if our thieves are unchanged. So a store that is slow to answer holds up
 * neither ingest nor another writer of this lake.
 * @param due null: at everything
 */
export async function gradeLake(
  lake: Lake,
  now: Date,
  due: readonly string[] | null,
  options: LookOptions,
): Promise<Graded> {
  let exchanged: Exchanged | null = null;
  for (let looks = 0; looks < MAX_LOOKS; looks++) {
    try {
      return await lookOnce(lake, now, due, { ...options, exchanged });
    } catch (error) {
      if (!(error instanceof NotExchanged)) throw error;
      exchanged = { own: textOf(error.own), table: await options.exchange(error.own, error.positions) };
    }
  }
  throw new Error(
    `thefts of this lake changed ${MAX_LOOKS} times while they were exchanged; the next turn looks again`,
  );
}

/** What was told of our thieves, and what all lakes together have. */
interface Exchanged {
  own: string;
  table: readonly Thief[];
}

/** Thieves in the order that the lake hands them out in: ascending by endpoint. */
const textOf = (thieves: readonly Thief[]): string => JSON.stringify(thieves);

function lookOnce(
  lake: Lake,
  now: Date,
  due: readonly string[] | null,
  { saysNothing, onLine, holdsAll, exchanged }: LookOptions & { exchanged: Exchanged | null },
): Promise<Graded> {
  const at = rfc3339(now);
  return lake.transaction(async (tx) => {
    const spokenOf = new Set((await tx.all<{ cap: string }>(sql("queries/news:corrected"))).map(({ cap }) => cap));
    const dirty = (await tx.all<{ cap: string }>(sql("queries/news:dirty"))).map(({ cap }) => cap);
    const caps = due === null ? "all" : [...new Set([...dirty, ...due])].sort();
    const positions = await lakePositions(tx);
    const related = async (own: readonly Thief[]): Promise<readonly Thief[]> => {
      if (holdsAll) return own;
      if (exchanged?.own !== textOf(own)) throw new NotExchanged(own, positions);
      return exchanged.table;
    };
    const leaveOut: GradeOptions["leaveOut"] = (line) => {
      onLine(line);
      return !spokenOf.has(line.cap) && saysNothing(at, line);
    };
    const run = caps.length > 0 ? await gradeRun(tx, { now, caps, leaveOut, related }) : null;
    // After the run: a look that is rolled back for want of an exchange does not pay for them.
    const facts = await listingFacts(tx, due === null ? "all" : "changed");
    await tx.run(sql("queries/news:graded"));
    const thieves = run && exchanged ? exchanged.table : await tx.all<Thief>(sql("grade/related:thieves"));
    return { facts, run, thieves, positions };
  });
}
