import type { DuckDBConnection } from "@duckdb/node-api";
import type { Params, Statements } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import type { RunLine } from "../record/card.ts";
import { type Undigested, undigestedOf } from "./cards.ts";
import { digestIn, digestsOf } from "./digests.ts";
import { Kin, type Thief } from "./kin.ts";
import { type SumsRow, sumsOfRow } from "./sums-row.ts";
import { BATCH_CAPS, variablesOf } from "./variables.ts";

export interface GradeOptions {
  /** The run's moment: rows from here on are not read. */
  now: Date;
  /** Endpoints to grade; "all" is every endpoint with a sample or in `site`. Our own are left out. */
  caps: "all" | readonly string[];
  /** Rows in the engine's hands at once, about (default 4,000,000): bounds its memory. */
  chunkRows?: number;
  /**
   * Lines that need not be in the run, since nothing of them would be published: they are graded all the same, but their
   * rows are not digested, which costs as much as their letter. Called once a line (default: none is left out).
   */
  leaveOut?: (line: Undigested) => boolean;
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

const CHUNK_FILES = ["32_rows", "33_blocks", "34_parts", "35_buyers", "36_latency", "37_price", "38_sums"];
/** Left behind by a chunk; the lake's file stays small without them. */
const CHUNK_TABLES = "chunk rows blocks paid walls parts buyers strata crowded tail latency quoted price facts newest";
const TABLES = `${CHUNK_TABLES} evidence course counts emptied sums digest due kin_due`.split(" ");
const CLEAR = `DROP VIEW IF EXISTS grade_own; ${TABLES.map((name) => `DROP TABLE IF EXISTS grade_${name};`).join(" ")}`;

/** A lake (or an open transaction of one) as it is; a bare connection in the same clothes. */
function statementsOf(conn: DuckDBConnection | Statements): Statements {
  if ("all" in conn) return conn;
  return {
    run: async (text: string, values?: Params) => {
      await conn.run(text, values);
    },
    all: async <T>(text: string, values?: Params) => (await (await conn.run(text, values)).getRowObjectsJS()) as T[],
  };
}

async function fillDue(db: Statements, caps: GradeOptions["caps"]): Promise<void> {
  await db.run("CREATE OR REPLACE TEMP TABLE due_caps (cap VARCHAR)");
  if (caps === "all") await db.run("INSERT INTO due_caps SELECT cap FROM samples UNION SELECT cap FROM site");
  else
    await db.run(`INSERT INTO due_caps SELECT unnest(from_json($caps, '["VARCHAR"]'))`, { caps: JSON.stringify(caps) });
}

/** Make the sums of one chunk. */
async function sumChunk(db: Statements, chunk: number): Promise<void> {
  await db.run(`SET VARIABLE chunk = ${chunk};
    SET VARIABLE chunk_first = (SELECT min(cap) FROM grade_due WHERE chunk = ${chunk});
    SET VARIABLE chunk_last = (SELECT max(cap) FROM grade_due WHERE chunk = ${chunk});`);
  for (const file of CHUNK_FILES) await db.run(sql(file));
}

/** Some endpoints of a chunk, how many rows were read for them, and the lines that go into the run. */
interface Batch {
  caps: number;
  rows: number;
  lines: { ep: number; line: Undigested }[];
}

/** The chunk's sums, in order of cap. They are small beside the rows that they were made from. */
const readSums = (db: Statements): Promise<{ sums: string }[]> =>
  db.all("SELECT to_json(s)::VARCHAR AS sums FROM grade_sums s ORDER BY ep");

/** Cards of the chunk, batch by batch; each is made when it is asked for. */
function* batchesOf(
  found: readonly { sums: string }[],
  kin: Kin,
  { now, leaveOut = () => false }: GradeOptions,
): Generator<Batch> {
  for (let first = 0; first < found.length; first += BATCH_CAPS) {
    const batch: Batch = { caps: 0, rows: 0, lines: [] };
    for (const { sums: json } of found.slice(first, first + BATCH_CAPS)) {
      const row = JSON.parse(json) as SumsRow;
      const sums = sumsOfRow(row);
      const line = undigestedOf(sums, kin.of({ cap: sums.cap, pay_to: sums.payTo, domain: sums.domain }), now);
      batch.caps++;
      batch.rows += row.read;
      if (!leaveOut(line)) batch.lines.push({ ep: row.ep, line });
    }
    yield batch;
  }
}

/** Batches with their digests. While the engine makes those of one batch, the cards of the next are made here. */
async function* digested(db: Statements, batches: Generator<Batch>): AsyncGenerator<Batch & { digests: Digests }> {
  let batch: Batch | undefined = batches.next().value;
  while (batch) {
    const coming = digestsOf(
      db,
      batch.lines.map(({ ep }) => ep),
    );
    // It is awaited below; until then a failure must not count as unhandled.
    coming.catch(() => {});
    const following: Batch | undefined = batches.next().value;
    yield { ...batch, digests: await coming };
    batch = following;
  }
}

type Digests = Awaited<ReturnType<typeof digestsOf>>;

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
  const db = statementsOf(conn);
  await db.run(variablesOf(now, chunkRows));
  await db.run(sql("30_macros"));
  await fillDue(db, caps);
  await db.run(sql("31_kin"));
  const own = await db.all<Thief>("SELECT cap, pay_to, domain FROM thefts");
  const kin = new Kin(options.kin ? await options.kin(own) : own);
  const kinDue = await db.all<{ cap: string }>("SELECT cap FROM grade_kin_due ORDER BY cap");
  const chunks = await db.all<{ chunk: number }>("SELECT DISTINCT chunk FROM grade_due ORDER BY chunk");
  const read = { caps: 0, rows: 0, leftOut: 0 };
  for (const { chunk } of chunks) {
    await sumChunk(db, chunk);
    for await (const batch of digested(db, batchesOf(await readSums(db), kin, options))) {
      const lines = batch.lines.map(({ ep, line }) => ({ ...line, inputs_digest: digestIn(batch.digests, ep) }));
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
