import type { DuckDBConnection } from "@duckdb/node-api";
import { forEachYielding } from "../../infra/concurrency.ts";
import { type Statements, toStatements } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import type { RunLine } from "../record/card.ts";
import { type Undigested, undigestedOf } from "./cards.ts";
import { digestIn, digestsOf, type Printed, print, type Window } from "./digests.ts";
import { Fold, type Folded } from "./fold.ts";
import { NONE, PACKED, PACKED_SCALE, PackedRows, type RowCounts } from "./packed.ts";
import { AFTER, BLOCK_MS, EVIDENCE_ROWS, params, windowStart } from "./params.ts";
import { RelatedParties, type Thief } from "./related.ts";
import type { PartName, Sums } from "./sums.ts";

/** Rows that are gathered at once, about: 24 bytes each. Every chunk reads the window of all endpoints again. */
const CHUNK_ROWS = 16_000_000;
/** Endpoints whose cards are in hand at once, and about how many rows: those to digest take 350 bytes each. */
const BATCH_CAPS = 8_192;
const BATCH_ROWS = 900_000;
/** Endpoints whose sums are in hand at once: what lives longer than a moment is copied by every collection of garbage. */
const SLICE_CAPS = 256;
/** Of them, how many are graded between two turns of others: a few milliseconds. */
const LINES_A_TURN = 32;

/** The run's window as sql/grade asks for it: rows from its start on and before the run's moment, unix ms. */
const windowOf = (now: Date): Window => ({ window_start: windowStart(now).getTime(), now: now.getTime() });

/** A row of `grade_endpoints` (sql/grade/chunk). */
interface EndpointRow {
  /** Number of the endpoint in its chunk. */
  ep: number;
  cap: string;
  pay_to: string | null;
  domain: string | null;
  disputed: boolean;
  /** A correction withdrew a row of its window. */
  withdrew: boolean;
  pay_to_changed: boolean;
  evidence: string[] | null;
  buyers: { part: PartName; xs: number[] }[] | null;
}

/** All sums of one endpoint: written into the folded ones, since a copy of so many would cost as much as making them. */
const sumsOfRow = (row: EndpointRow, folded: Folded): Sums =>
  Object.assign(folded, {
    cap: row.cap,
    emptied: folded.seenLast === null && row.withdrew,
    buyers: row.buyers ? Object.fromEntries(row.buyers.map(({ part, xs }) => [part, xs])) : {},
    payToChanged: row.pay_to_changed,
    disputed: row.disputed,
    payTo: row.pay_to,
    domain: row.domain,
    evidence: row.evidence ?? [],
  });

interface BatchOptions {
  /** The run's moment: rows from here on are not read. */
  now: Date;
  /** Rows that are printed at once, about (default 900,000). */
  batchRows?: number;
  /**
   * Lines that need not be in the run, since nothing of them would be published: they are graded all the same, but their
   * rows are not digested, which costs as much as their letter. Called once a line (default: none is left out).
   */
  leaveOut?: (line: Undigested) => boolean;
}

/** The rows of one chunk, by endpoint. */
async function gather(
  db: Statements,
  chunk: number,
  window: Window,
): Promise<{ counts: RowCounts[]; rows: PackedRows }> {
  const numbers = {
    block_ms: BLOCK_MS,
    worst_blocks: params.buyers.worst_blocks_per_payer,
    evidence_rows: EVIDENCE_ROWS,
  };
  await db.run(sql("grade/chunk:gather"), { chunk, ...window, ...numbers });
  const counts: RowCounts[] = [];
  for await (const batch of db.batches("SELECT n, paid FROM grade_chunk ORDER BY ep"))
    for (const [n, paid] of batch.getRows()) counts.push({ n: Number(n), paid: Number(paid) });
  const rows = new PackedRows(counts);
  const packed = { ...window, ...PACKED, scale: PACKED_SCALE, none: NONE };
  for await (const batch of db.batches(sql("grade/chunk:packed"), packed)) rows.take(batch);
  return { counts, rows };
}

/** Ends of batches of the chunk: so many endpoints, or so many rows. */
function* endsOf(counts: readonly RowCounts[], batchRows: number): Generator<number> {
  let first = 0;
  let n = 0;
  for (const [ep, of] of counts.entries()) {
    n += of.n;
    if (ep + 1 - first < BATCH_CAPS && n < batchRows && ep + 1 < counts.length) continue;
    yield ep + 1;
    first = ep + 1;
    n = 0;
  }
}

/** Some endpoints of a chunk, how many rows were read for them, and the lines that go into the run. */
interface Batch {
  caps: number;
  rows: number;
  lines: { ep: number; rows: number; line: Undigested }[];
}

const readEndpoints = (db: Statements, first: number, end: number): Promise<{ row: string }[]> =>
  db.all(sql("grade/chunk:endpoints"), { first, end });

/** Sums of some endpoints; where two rows of one moment differ the engine looks at their ids. */
async function sumsOf(
  db: Statements,
  rows: readonly EndpointRow[],
  fold: Fold,
  packed: PackedRows,
  window: Window,
): Promise<Sums[]> {
  const tied = new Map<number, Sums>();
  const all = rows.map((row) => {
    const { folded, tied: isTied } = fold.of(packed, row.ep);
    const sums = sumsOfRow(row, folded);
    if (isTied) tied.set(row.ep, sums);
    return sums;
  });
  if (tied.size === 0) return all;
  type Newest = { ep: number; honest_now: boolean | null; price_now: number | null };
  for (const { ep, honest_now, price_now } of await db.all<Newest>(sql("grade/chunk:newest"), {
    ...window,
    tied: JSON.stringify([...tied.keys()]),
  }))
    Object.assign(tied.get(ep)!, { honestNow: honest_now, priceNow: price_now });
  return all;
}

/** Cards of the chunk, batch by batch; each is made when it is asked for, from endpoints that were read before. */
async function* batchesOf(
  db: Statements,
  chunk: number,
  related: RelatedParties,
  options: BatchOptions,
): AsyncGenerator<Batch> {
  const { now, leaveOut = () => false, batchRows = BATCH_ROWS } = options;
  const window = windowOf(now);
  const { counts, rows } = await gather(db, chunk, window);
  const fold = new Fold(now);
  const ends = [...endsOf(counts, batchRows)];
  let found = await readEndpoints(db, 0, ends[0]!);
  for (const [i, end] of ends.entries()) {
    const batch: Batch = { caps: found.length, rows: 0, lines: [] };
    for (let first = 0; first < found.length; first += SLICE_CAPS) {
      const endpoints = found.slice(first, first + SLICE_CAPS).map(({ row }) => JSON.parse(row) as EndpointRow);
      const all = await sumsOf(db, endpoints, fold, rows, window);
      const grade = ([at, sums]: [number, Sums]): void => {
        const { ep } = endpoints[at]!;
        const line = undigestedOf(sums, related.of({ cap: sums.cap, pay_to: sums.payTo, domain: sums.domain }), now);
        batch.rows += rows.read[ep]!;
        if (!leaveOut(line)) batch.lines.push({ ep, rows: rows.read[ep]!, line });
      };
      await forEachYielding(all.entries(), LINES_A_TURN, grade);
    }
    if (i + 1 < ends.length) found = await readEndpoints(db, end, ends[i + 1]!);
    yield batch;
  }
}

export interface GradeOptions extends BatchOptions {
  /** Endpoints to grade; "all" is every endpoint with a sample or in `site`. Our own are left out. */
  caps: "all" | readonly string[];
  /** Rows that are gathered at once, about (default 16,000,000): bounds the memory. */
  chunkRows?: number;
  /**
   * The table of payees and domains that flags of related parties are made from (default: the endpoints of this lake that
   * took money, for a lake that nothing was published of).
   */
  related?: readonly Thief[];
}

export interface GradeSummary {
  /** Endpoints of this lake that took money as the run leaves them, ascending: rows of the next table of related parties. */
  thieves: Thief[];
  /** Endpoints graded, rows of their window that no correction withdrew, and lines that were left out. */
  read: { caps: number; rows: number; leftOut: number };
}

type Digested = Omit<Batch, "lines"> & { lines: RunLine[] };

/** Begin to print the rows of a batch. */
function printing(db: Statements, batch: Batch, window: Window): Promise<Printed[]> {
  const eps = batch.lines.map(({ ep }) => ep);
  const coming = print(db, eps, window);
  // It is awaited later; until then a failure must not count as unhandled.
  coming.catch(() => {});
  return coming;
}

/** Batches with their digests. While the engine prints one batch, the cards of the next and the hashes of the last are made. */
async function* digested(db: Statements, batches: AsyncGenerator<Batch>, window: Window): AsyncGenerator<Digested> {
  let batch: Batch | undefined = (await batches.next()).value;
  let coming = batch && printing(db, batch, window);
  while (batch && coming) {
    const following: Batch | undefined = (await batches.next()).value;
    const printed = await coming;
    coming = following && printing(db, following, window);
    const digests = await digestsOf(db, printed, window);
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
  const { now, caps, chunkRows = CHUNK_ROWS } = options;
  const db = "all" in conn ? conn : toStatements(conn);
  const window = windowOf(now);
  const theftBefore = now.getTime() - AFTER.pendingTheft;
  if (caps === "all") await db.run(sql("grade/due:every"));
  else await db.run(sql("grade/due:given"), { caps: JSON.stringify(caps) });
  const numbers = { theft_before: theftBefore, chunk_rows: chunkRows, block_ms: BLOCK_MS };
  await db.run(sql("grade/due:chunks"), { ...window, ...numbers });
  await db.run(sql("grade/digest:printing"));
  const thieves = await db.all<Thief>(sql("grade/related:thieves"));
  const related = new RelatedParties(options.related ?? thieves);
  const chunks = await db.all<{ chunk: number }>("SELECT DISTINCT chunk FROM grade_due ORDER BY chunk");
  const read = { caps: 0, rows: 0, leftOut: 0 };
  for (const { chunk } of chunks) {
    for await (const batch of digested(db, batchesOf(db, chunk, related, options), window)) {
      const { lines } = batch;
      read.caps += batch.caps;
      read.rows += batch.rows;
      read.leftOut += batch.caps - lines.length;
      yield lines;
    }
  }
  await db.run(sql("grade/due:clear"));
  return { thieves, read };
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
