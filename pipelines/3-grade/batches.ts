import type { Statements } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import { type Undigested, undigestedOf } from "./cards.ts";
import { type EndpointRow, sumsOfRow } from "./endpoint-row.ts";
import { Fold } from "./fold.ts";
import type { Kin } from "./kin.ts";
import { PackedRows, type Place } from "./packed.ts";
import type { Sums } from "./sums.ts";
import { BATCH_CAPS, BATCH_ROWS, SLICE_CAPS } from "./variables.ts";

export interface BatchOptions {
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

const CHUNK_FILES = ["33_rows", "35_buyers", "36_endpoints"];

/** The rows of one chunk, by endpoint. */
async function gather(db: Statements, chunk: number): Promise<{ places: Place[]; rows: PackedRows }> {
  await db.run(`SET VARIABLE chunk = ${chunk}`);
  for (const file of CHUNK_FILES) await db.run(sql(file));
  const places: Place[] = [];
  for await (const batch of db.batches("SELECT n, paid FROM grade_due WHERE chunk = param('chunk') ORDER BY ep"))
    for (const [n, paid] of batch.getRows()) places.push({ n: Number(n), paid: Number(paid) });
  const rows = new PackedRows(places);
  for await (const batch of db.batches(sql("34_packed"))) rows.take(batch);
  return { places, rows };
}

/** Ends of batches of the chunk: so many endpoints, or so many rows. */
function* endsOf(places: readonly Place[], batchRows: number): Generator<number> {
  let first = 0;
  let n = 0;
  for (const [ep, place] of places.entries()) {
    n += place.n;
    if (ep + 1 - first < BATCH_CAPS && n < batchRows && ep + 1 < places.length) continue;
    yield ep + 1;
    first = ep + 1;
    n = 0;
  }
}

/** Some endpoints of a chunk, how many rows were read for them, and the lines that go into the run. */
export interface Batch {
  caps: number;
  rows: number;
  lines: { ep: number; rows: number; line: Undigested }[];
}

const readEndpoints = (db: Statements, first: number, end: number): Promise<{ row: string }[]> =>
  db.all("SELECT to_json(e)::VARCHAR AS row FROM grade_endpoints e WHERE ep >= $first AND ep < $end ORDER BY ep", {
    first,
    end,
  });

/** Sums of some endpoints; where two rows of one moment differ the engine looks at their ids. */
async function sumsOf(db: Statements, rows: readonly EndpointRow[], fold: Fold, packed: PackedRows): Promise<Sums[]> {
  const tied = new Map<number, Sums>();
  const all = rows.map((row) => {
    const { folded, tied: isTied } = fold.of(packed, row.ep);
    const sums = sumsOfRow(row, folded);
    if (isTied) tied.set(row.ep, sums);
    return sums;
  });
  if (tied.size === 0) return all;
  await db.run("SET VARIABLE tied = $tied", { tied: JSON.stringify([...tied.keys()]) });
  type Newest = { ep: number; honest_now: boolean | null; price_now: number | null };
  for (const { ep, honest_now, price_now } of await db.all<Newest>(sql("37_newest")))
    Object.assign(tied.get(ep)!, { honestNow: honest_now, priceNow: price_now });
  return all;
}

/** Cards of the chunk, batch by batch; each is made when it is asked for, from endpoints that were read before. */
export async function* batchesOf(
  db: Statements,
  chunk: number,
  kin: Kin,
  options: BatchOptions,
): AsyncGenerator<Batch> {
  const { now, leaveOut = () => false, batchRows = BATCH_ROWS } = options;
  const { places, rows } = await gather(db, chunk);
  const fold = new Fold(now);
  const ends = [...endsOf(places, batchRows)];
  let found = await readEndpoints(db, 0, ends[0]!);
  for (const [i, end] of ends.entries()) {
    const batch: Batch = { caps: found.length, rows: 0, lines: [] };
    for (let first = 0; first < found.length; first += SLICE_CAPS) {
      const endpoints = found.slice(first, first + SLICE_CAPS).map(({ row }) => JSON.parse(row) as EndpointRow);
      for (const [at, sums] of (await sumsOf(db, endpoints, fold, rows)).entries()) {
        const { ep } = endpoints[at]!;
        const line = undigestedOf(sums, kin.of({ cap: sums.cap, pay_to: sums.payTo, domain: sums.domain }), now);
        batch.rows += rows.read[ep]!;
        if (!leaveOut(line)) batch.lines.push({ ep, rows: rows.read[ep]!, line });
      }
    }
    if (i + 1 < ends.length) found = await readEndpoints(db, end, ends[i + 1]!);
    yield batch;
  }
}
