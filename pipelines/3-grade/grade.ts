import type { DuckDBConnection } from "@duckdb/node-api";
import { sha256hex } from "../../infra/canonical.ts";
import type { Params, Statements } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import type { RunLine } from "../record/card.ts";
import { lineOf } from "./cards.ts";
import { Kin, type Thief } from "./kin.ts";
import { inputsDigest, type Sample } from "./sample.ts";
import { type SumsRow, sumsOfRow } from "./sums-row.ts";
import { BATCH_CAPS, variablesOf } from "./variables.ts";

export interface GradeOptions {
  /** The run's moment: rows from here on are not read. */
  now: Date;
  /** Endpoints to grade; "all" is every endpoint with a sample or in `site`. Our own are left out. */
  caps: "all" | readonly string[];
  /** Rows in the engine's hands at once, about (default 4,000,000): bounds its memory. */
  chunkRows?: number;
}

export interface GradeSummary {
  /** Of the payee and domain table that the kin flags were made from. */
  kinSha256: string;
  /** Endpoints graded, and rows of their window that no correction withdrew. */
  read: { caps: number; rows: number };
  /** Endpoints outside this run whose kin flags change by it: they are due as well. */
  kinDue: string[];
}

const CHUNK_FILES = ["32_rows", "33_blocks", "34_parts", "35_buyers", "36_latency", "37_price", "38_sums"];
/** Left behind by a chunk; the lake's file stays small without them. */
const CHUNK_TABLES = "chunk rows blocks paid walls parts buyers strata crowded tail latency quoted price facts newest";
const TABLES = `${CHUNK_TABLES} evidence course counts emptied sums digest due kin_due`.split(" ");
const CLEAR = `DROP VIEW IF EXISTS grade_own; ${TABLES.map((name) => `DROP TABLE IF EXISTS grade_${name};`).join(" ")}`;
const EMPTY_DIGEST = sha256hex("");

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

/** Where SQL would print a value unlike RFC 8785, the digest is made here, from the rows. */
async function slowDigest(db: Statements, ep: number): Promise<string> {
  return inputsDigest(
    await db.all<Sample>("SELECT * EXCLUDE (ep, b, blocked, counted) FROM grade_rows WHERE ep = $ep", { ep }),
  );
}

/** Make the sums of one chunk. @returns endpoints in it */
async function sumChunk(db: Statements, chunk: number): Promise<number> {
  await db.run(`SET VARIABLE chunk = ${chunk};
    SET VARIABLE chunk_first = (SELECT min(cap) FROM grade_due WHERE chunk = ${chunk});
    SET VARIABLE chunk_last = (SELECT max(cap) FROM grade_due WHERE chunk = ${chunk});`);
  for (const file of CHUNK_FILES) await db.run(sql(file));
  const [found] = await db.all<{ caps: number }>("SELECT count(*)::INTEGER AS caps FROM grade_chunk");
  return found?.caps ?? 0;
}

/** Lines of some endpoints of the chunk, in order of cap. */
async function readBatch(
  db: Statements,
  first: number,
  kin: Kin,
  now: Date,
): Promise<{ lines: RunLine[]; rows: number }> {
  await db.run(`SET VARIABLE ep_first = ${first}; SET VARIABLE ep_last = ${first + BATCH_CAPS - 1};`);
  await db.run(sql("39_digest"));
  const found = await db.all<{ sums: string; digest: string | null }>(
    `SELECT to_json(s)::VARCHAR AS sums, digest FROM grade_sums s LEFT JOIN grade_digest USING (ep)
    WHERE ep BETWEEN getvariable('ep_first') AND getvariable('ep_last') ORDER BY ep`,
  );
  const lines: RunLine[] = [];
  let rows = 0;
  for (const { sums: json, digest: fast } of found) {
    const row = JSON.parse(json) as SumsRow;
    const sums = sumsOfRow(row);
    const digest = fast ?? (row.read === 0 ? EMPTY_DIGEST : await slowDigest(db, row.ep));
    lines.push(lineOf(sums, kin.of({ cap: sums.cap, pay_to: sums.payTo, domain: sums.domain }), digest, now));
    rows += row.read;
  }
  return { lines, rows };
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
  { now, caps, chunkRows }: GradeOptions,
): AsyncGenerator<RunLine[], GradeSummary> {
  const db = statementsOf(conn);
  await db.run(variablesOf(now, chunkRows));
  await db.run(sql("30_macros"));
  await fillDue(db, caps);
  await db.run(sql("31_kin"));
  const kin = new Kin(await db.all<Thief>("SELECT cap, pay_to, domain FROM thefts"));
  const kinDue = await db.all<{ cap: string }>("SELECT cap FROM grade_kin_due ORDER BY cap");
  const chunks = await db.all<{ chunk: number }>("SELECT DISTINCT chunk FROM grade_due ORDER BY chunk");
  const read = { caps: 0, rows: 0 };
  for (const { chunk } of chunks) {
    const endpoints = await sumChunk(db, chunk);
    for (let first = 1; first <= endpoints; first += BATCH_CAPS) {
      const { lines, rows } = await readBatch(db, first, kin, now);
      read.caps += lines.length;
      read.rows += rows;
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
