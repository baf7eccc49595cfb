import type { DuckDBConnection } from "@duckdb/node-api";
import { forEachYielding } from "../../infra/concurrency.ts";
import { type Statements, toStatements } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import type { RunLine } from "../record/card.ts";
import { gradeLine, type LineWithoutDigest } from "./cards.ts";
import { digestsOf, getDigest, type PrintedRows, printRows, type Window } from "./digests.ts";
import { Fold, type FoldedSums } from "./fold.ts";
import { MISSING, PACKED, PACKED_SCALE, PackedRows, type RowCounts } from "./packed.ts";
import { BLOCK_MS, CHANGE_DELAYS_MS, EVIDENCE_ROWS, params, windowStart } from "./params.ts";
import { type NonDeliveringSeller, RelatedParties } from "./related.ts";
import type { PartName, Sums } from "./sums.ts";

/**
 * About how many rows a chunk (endpoints whose rows are in memory together) has, at 24 bytes each. Chunks should be
 * large, since every chunk reads the rows of all endpoints in the window again.
 */
const CHUNK_ROWS = 16_000_000;
/** Largest number of endpoints in a batch (a part of a chunk). */
const BATCH_ENDPOINTS = 8_192;
/**
 * About how many rows a batch has. The rows of a batch are in memory as text of 350 bytes each, from which the
 * digests are computed.
 */
const BATCH_ROWS = 900_000;
/**
 * Number of endpoints whose sums are in memory at once. It is small so that the sums are freed soon: the garbage
 * collector copies objects that live longer.
 */
const SLICE_ENDPOINTS = 256;
/** Number of endpoints that are graded before other work gets a turn of the event loop: a few milliseconds of work. */
const LINES_PER_TURN = 32;

/** The run's window as parameters of sql/grade: rows from the window's start to before the run's time, unix ms. */
const toWindow = (now: Date): Window => ({ window_start: windowStart(now).getTime(), now: now.getTime() });

/** A row of `grade_endpoints` (sql/grade/chunk). */
interface EndpointRow {
  /** Index of the endpoint within its chunk. */
  ep: number;
  cap: string;
  pay_to: string | null;
  domain: string | null;
  disputed: boolean;
  /** Did a correction withdraw a row of the endpoint that lies in the window? */
  withdrew: boolean;
  pay_to_changed: boolean;
  evidence: string[] | null;
  buyers: { part: PartName; xs: number[] }[] | null;
}

/**
 * Adds the sums from SQL to the folded sums of one endpoint. It writes into the given object, since a copy would cost
 * as much as folding.
 */
const completeSums = (row: EndpointRow, folded: FoldedSums): Sums =>
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
  /** Time of the run: only earlier rows are read. */
  now: Date;
  /** About how many rows the database writes as text at once, to be hashed into digests (default 900,000). */
  batchRows?: number;
  /**
   * Returns true for a line that can be left out of the run because nothing of it would be published. The line is
   * graded, but the digest of its rows is not computed, since that costs as much as grading. Called once for each
   * line (default: no line is left out).
   */
  leaveOut?: (line: LineWithoutDigest) => boolean;
}

/** Reads the rows of one chunk, grouped by endpoint. */
async function gatherRows(
  db: Statements,
  chunk: number,
  window: Window,
): Promise<{ counts: RowCounts[]; rows: PackedRows }> {
  const parameters = {
    block_ms: BLOCK_MS,
    worst_blocks: params.buyers.worst_blocks_per_payer,
    evidence_rows: EVIDENCE_ROWS,
  };
  await db.run(sql("grade/chunk:gather"), { chunk, ...window, ...parameters });
  const counts: RowCounts[] = [];
  for await (const batch of db.batches("SELECT n, paid FROM grade_chunk ORDER BY ep"))
    for (const [n, paid] of batch.getRows()) counts.push({ n: Number(n), paid: Number(paid) });
  const rows = new PackedRows(counts);
  const packedParameters = { ...window, ...PACKED, scale: PACKED_SCALE, none: MISSING };
  for await (const batch of db.batches(sql("grade/chunk:packed"), packedParameters)) rows.addBatch(batch);
  return { counts, rows };
}

/**
 * Cuts the chunk into batches, limited by endpoints and by rows. Yields the end of each batch: the number that
 * follows that of the batch's last endpoint.
 */
function* batchEnds(counts: readonly RowCounts[], batchRows: number): Generator<number> {
  let firstEp = 0;
  let rowsInBatch = 0;
  for (const [ep, count] of counts.entries()) {
    rowsInBatch += count.n;
    if (ep + 1 - firstEp < BATCH_ENDPOINTS && rowsInBatch < batchRows && ep + 1 < counts.length) continue;
    yield ep + 1;
    firstEp = ep + 1;
    rowsInBatch = 0;
  }
}

/** Part of a chunk: the number of its endpoints and of the rows read for them, and the lines that go into the run. */
interface Batch {
  endpointCount: number;
  rows: number;
  lines: { ep: number; rows: number; line: LineWithoutDigest }[];
}

const readEndpoints = (db: Statements, first: number, end: number): Promise<{ row: string }[]> =>
  db.all(sql("grade/chunk:endpoints"), { first, end });

/** Computes the sums of some endpoints. Where two newest rows of one moment differ, a query decides by their ids. */
async function foldEndpoints(
  db: Statements,
  rows: readonly EndpointRow[],
  fold: Fold,
  packedRows: PackedRows,
  window: Window,
): Promise<Sums[]> {
  const tiedSums = new Map<number, Sums>();
  const allSums = rows.map((row) => {
    const { folded, isTied } = fold.foldEndpoint(packedRows, row.ep);
    const sums = completeSums(row, folded);
    if (isTied) tiedSums.set(row.ep, sums);
    return sums;
  });
  if (tiedSums.size === 0) return allSums;
  type Newest = { ep: number; honest_now: boolean | null; price_now: number | null };
  for (const { ep, honest_now, price_now } of await db.all<Newest>(sql("grade/chunk:newest"), {
    ...window,
    tied: JSON.stringify([...tiedSums.keys()]),
  }))
    Object.assign(tiedSums.get(ep)!, { honestNow: honest_now, priceNow: price_now });
  return allSums;
}

/**
 * Yields the graded lines of a chunk batch by batch. The endpoints of the next batch are read before a batch is
 * yielded, so that the caller's own statements can follow.
 */
async function* gradeBatches(
  db: Statements,
  chunk: number,
  related: RelatedParties,
  options: BatchOptions,
): AsyncGenerator<Batch> {
  const { now, leaveOut = () => false, batchRows = BATCH_ROWS } = options;
  const window = toWindow(now);
  const { counts, rows } = await gatherRows(db, chunk, window);
  const fold = new Fold(now);
  const ends = [...batchEnds(counts, batchRows)];
  let endpointRows = await readEndpoints(db, 0, ends[0]!);
  for (const [i, end] of ends.entries()) {
    const batch: Batch = { endpointCount: endpointRows.length, rows: 0, lines: [] };
    for (let first = 0; first < endpointRows.length; first += SLICE_ENDPOINTS) {
      const endpoints = endpointRows
        .slice(first, first + SLICE_ENDPOINTS)
        .map(({ row }) => JSON.parse(row) as EndpointRow);
      const allSums = await foldEndpoints(db, endpoints, fold, rows, window);
      const gradeEndpoint = ([i, sums]: [number, Sums]): void => {
        const { ep } = endpoints[i]!;
        const line = gradeLine(sums, related.flagsOf({ cap: sums.cap, pay_to: sums.payTo, domain: sums.domain }), now);
        batch.rows += rows.rowsRead[ep]!;
        if (!leaveOut(line)) batch.lines.push({ ep, rows: rows.rowsRead[ep]!, line });
      };
      await forEachYielding(allSums.entries(), LINES_PER_TURN, gradeEndpoint);
    }
    if (i + 1 < ends.length) endpointRows = await readEndpoints(db, end, ends[i + 1]!);
    yield batch;
  }
}

export interface GradeOptions extends BatchOptions {
  /**
   * Endpoints to grade; "all" means every endpoint with a sample or with a row in the table `site`. Endpoints of our
   * own service are left out.
   */
  endpointIds: "all" | readonly string[];
  /** About how many rows are in memory at once (default 16,000,000). */
  chunkRows?: number;
  /**
   * The table of related parties (payees and domains that took money) for the flags. Default: the endpoints of this
   * lake that took money; use it only where nothing was published yet.
   */
  related?: readonly NonDeliveringSeller[];
}

export interface GradeSummary {
  /**
   * Endpoints of this lake that took money without an answer, as this run found, ascending: rows of the next table of
   * related parties.
   */
  nonDelivering: NonDeliveringSeller[];
  /**
   * Number of graded endpoints, of their rows in the window that no correction withdrew, and of lines that were left
   * out.
   */
  read: { caps: number; rows: number; leftOut: number };
}

type DigestedBatch = Omit<Batch, "lines"> & { lines: RunLine[] };

/** Starts the statement that reads the rows of a batch as text. */
function startPrinting(db: Statements, batch: Batch, window: Window): Promise<PrintedRows[]> {
  const eps = batch.lines.map(({ ep }) => ep);
  const printing = printRows(db, eps, window);
  // The promise is awaited later. Until then its rejection must not count as unhandled.
  printing.catch(() => {});
  return printing;
}

/**
 * Adds digests to batches. While DuckDB writes the rows of one batch as text, this process grades the next batch and
 * hashes the previous one.
 */
async function* digestBatches(
  db: Statements,
  batches: AsyncGenerator<Batch>,
  window: Window,
): AsyncGenerator<DigestedBatch> {
  let batch: Batch | undefined = (await batches.next()).value;
  let printing = batch && startPrinting(db, batch, window);
  while (batch && printing) {
    const nextBatch: Batch | undefined = (await batches.next()).value;
    const printed = await printing;
    printing = nextBatch && startPrinting(db, nextBatch, window);
    const digests = await digestsOf(db, printed, window);
    const lines = batch.lines.map(({ ep, rows, line }) => ({ ...line, inputs_digest: getDigest(digests, ep, rows) }));
    yield { ...batch, lines };
    batch = nextBatch;
  }
}

/**
 * Grades endpoints batch by batch, ascending by capability id, in bounded memory. It reads the tables `samples`,
 * `withdrawn` and `site`, and keeps the table `thefts` between runs, so that a run of a few endpoints reads no
 * others. It also yields lines of endpoints that did not change: the publisher compares them with what is published.
 * Run it inside one transaction if anything else writes to the lake.
 * @returns at the end, what the run header needs
 * @throws Error of DuckDB; then `thefts` may be newer than what is published, and the next run corrects that
 */
export async function* gradeChunks(
  conn: DuckDBConnection | Statements,
  options: GradeOptions,
): AsyncGenerator<RunLine[], GradeSummary> {
  const { now, endpointIds, chunkRows = CHUNK_ROWS } = options;
  const db = "all" in conn ? conn : toStatements(conn);
  const window = toWindow(now);
  const theftBefore = now.getTime() - CHANGE_DELAYS_MS.pendingTheft;
  if (endpointIds === "all") await db.run(sql("grade/due:every"));
  else await db.run(sql("grade/due:given"), { caps: JSON.stringify(endpointIds) });
  const parameters = { theft_before: theftBefore, chunk_rows: chunkRows, block_ms: BLOCK_MS };
  await db.run(sql("grade/due:chunks"), { ...window, ...parameters });
  await db.run(sql("grade/digest:printing"));
  const nonDelivering = await db.all<NonDeliveringSeller>(sql("grade/related:thieves"));
  const related = new RelatedParties(options.related ?? nonDelivering);
  const chunks = await db.all<{ chunk: number }>("SELECT DISTINCT chunk FROM grade_due ORDER BY chunk");
  const read = { caps: 0, rows: 0, leftOut: 0 };
  for (const { chunk } of chunks) {
    for await (const batch of digestBatches(db, gradeBatches(db, chunk, related, options), window)) {
      const { lines } = batch;
      read.caps += batch.endpointCount;
      read.rows += batch.rows;
      read.leftOut += batch.endpointCount - lines.length;
      yield lines;
    }
  }
  await db.run(sql("grade/due:clear"));
  return { nonDelivering, read };
}
