import type { DuckDBConnection } from "@duckdb/node-api";
import { type Statements, statementsOn } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import type { RunLine } from "../record/card.ts";
import { type Batch, type BatchOptions, batchesOf } from "./batches.ts";
import { digestIn, digestsOf, type Printed, print } from "./digests.ts";
import { Kin, type Thief } from "./kin.ts";
import { variablesOf } from "./variables.ts";

export interface GradeOptions extends BatchOptions {
  /** Endpoints to grade; "all" is every endpoint with a sample or in `site`. Our own are left out. */
  caps: "all" | readonly string[];
  /** Rows that are gathered at once, about (default 16,000,000): bounds the memory. */
  chunkRows?: number;
  /**
   * Given the endpoints of this lake that took money, those of all lakes: asked once, before the first card is made
   * (default: this lake is the only one).
   */
  kin?: (own: readonly Thief[]) => Promise<readonly Thief[]>;
}

export interface GradeSummary {
  /** Of the payee and domain table that the kin flags were made from. */
  kinSha256: string;
  /** Endpoints graded, rows of their window that no correction withdrew, and lines that were left out. */
  read: { caps: number; rows: number; leftOut: number };
  /** Endpoints outside this run whose kin flags change by it: they are due as well. */
  kinDue: string[];
}

const TABLES = ["withdrawn", "due", "kin_due", "buyers", "evidence", "payees", "endpoints"];
/** What a run leaves behind; the lake's file stays small without it. */
const CLEAR = ["DROP VIEW IF EXISTS grade_rows;", ...TABLES.map((name) => `DROP TABLE IF EXISTS grade_${name};`)].join(
  "\n",
);

async function fillDue(db: Statements, caps: GradeOptions["caps"]): Promise<void> {
  await db.run("CREATE OR REPLACE TEMP TABLE due_caps (cap VARCHAR)");
  if (caps === "all") await db.run("INSERT INTO due_caps SELECT cap FROM every_sample UNION SELECT cap FROM site");
  else
    await db.run(`INSERT INTO due_caps SELECT unnest(from_json($caps, '["VARCHAR"]'))`, { caps: JSON.stringify(caps) });
}

type Digested = Omit<Batch, "lines"> & { lines: RunLine[] };

/** Begin to print the rows of a batch. */
function printing(db: Statements, batch: Batch): Promise<Printed[]> {
  const eps = batch.lines.map(({ ep }) => ep);
  const coming = print(db, eps);
  // It is awaited later; until then a failure must not count as unhandled.
  coming.catch(() => {});
  return coming;
}

/** Batches with their digests. While the engine prints one batch, the cards of the next and the hashes of the last are made. */
async function* digested(db: Statements, batches: AsyncGenerator<Batch>): AsyncGenerator<Digested> {
  let batch: Batch | undefined = (await batches.next()).value;
  let coming = batch && printing(db, batch);
  while (batch && coming) {
    const following: Batch | undefined = (await batches.next()).value;
    const printed = await coming;
    coming = following && printing(db, following);
    const digests = await digestsOf(db, printed);
    const lines = batch.lines.map(({ ep, rows, line }) => ({ ...line, inputs_digest: digestIn(digests, ep, rows) }));
    yield { ...batch, lines };
    batch = following;
  }
}

/**
 * Grade endpoints batch by batch, ascending by cap, in bounded memory. Reads `samples`, `withdrawn` and `site`; keeps
 * `thefts` between runs, so that a run of a few endpoints never reads the others. Lines of endpoints that did not change
 * come too: the publisher compares with what is published. Run it inside one transaction where writers are about.
 * @returns at the end, what the run header needs @throws Error of the engine; `thefts` may be newer than what is
 * published then, which the next run puts right
 */
export async function* gradeChunks(
  conn: DuckDBConnection | Statements,
  options: GradeOptions,
): AsyncGenerator<RunLine[], GradeSummary> {
  const { now, caps, chunkRows } = options;
  const db = "all" in conn ? conn : statementsOn(conn);
  await db.run(variablesOf(now, chunkRows));
  await db.run(sql("30_macros"));
  await db.run(sql("38_json"));
  await fillDue(db, caps);
  await db.run(sql("31_due"));
  await db.run(sql("32_kin"));
  const own = await db.all<Thief>("SELECT cap, pay_to, domain FROM thefts");
  const kin = new Kin(options.kin ? await options.kin(own) : own);
  const kinDue = await db.all<{ cap: string }>("SELECT cap FROM grade_kin_due ORDER BY cap");
  const chunks = await db.all<{ chunk: number }>("SELECT DISTINCT chunk FROM grade_due ORDER BY chunk");
  const read = { caps: 0, rows: 0, leftOut: 0 };
  for (const { chunk } of chunks) {
    for await (const batch of digested(db, batchesOf(db, chunk, kin, options))) {
      const { lines } = batch;
      read.caps += batch.caps;
      read.rows += batch.rows;
      read.leftOut += batch.caps - lines.length;
      yield lines;
    }
  }
  await db.run(CLEAR);
  return { kinSha256: kin.sha256, read, kinDue: kinDue.map(({ cap }) => cap) };
}

/** All lines of a run at once; see {@link gradeChunks}, which holds one batch at a time. */
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
