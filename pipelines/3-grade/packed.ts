import type { DuckDBDataChunk, DuckDBVector } from "@duckdb/node-api";
import { counts, readingOf } from "./sample.ts";

/** Where sql/grade/chunk (packed) puts the facts of a row in one number, below its time. */
export const PACKED = {
  kind: 1,
  live: 1 << 2,
  settled: 1 << 3,
  delivered: 1 << 4,
  refunded: 1 << 5,
  honest: 1 << 6,
  schema: 1 << 8,
  example: 1 << 10,
  blocked: 1 << 11,
  bad_input: 2 << 11,
  unconfirmed: 3 << 11,
  fault: 4 << 11,
} as const;
/** A window's milliseconds times this stay far below 2^53. */
export const PACKED_SCALE = 1 << 14;
/** What a row tells about each part of the grade, a bit each. */
export const FACTS = {
  counted: 1,
  own: 1 << 1,
  unconfirmed: 1 << 2,
  paid: 1 << 3,
  wall: 1 << 4,
  answered: 1 << 5,
  honest: 1 << 6,
  dishonest: 1 << 7,
  settled: 1 << 8,
  refunded: 1 << 9,
  delivered: 1 << 10,
  example: 1 << 11,
  fits: 1 << 12,
  misfits: 1 << 13,
  timed: 1 << 14,
} as const;

const FAULTS = [null, "blocked", "bad_input", "unconfirmed"];
const known = (value: number): boolean | null => (value > 1 ? null : value === 1);

/** Bits of FACTS for a packed row, by the rules of sample.ts, which grading without a database uses too. */
function factsOf(packed: number): number {
  const at = (bit: number, width: number) => Math.floor(packed / bit) % width;
  const kind = at(PACKED.kind, 4);
  const fault = at(PACKED.blocked, 8);
  const example = at(PACKED.example, 2) === 1;
  const row = {
    kind,
    fault: fault < FAULTS.length ? FAULTS[fault]! : "another",
    live: at(PACKED.live, 2) === 1,
    honest: known(at(PACKED.honest, 4)),
    settled: at(PACKED.settled, 2) === 1,
    delivered: at(PACKED.delivered, 2) === 1,
    refunded: at(PACKED.refunded, 2) === 1,
    schema_ok: known(at(PACKED.schema, 4)),
    ...{ obs_id: "", t: new Date(0), payer: null, input: null, response_sha256: null, pay_to: null },
    ...{ w: 1, delivery: 1, outcome: 1, latency_ms: 1, price: 1 },
  };
  const { paid, wall, answered, honest, delivered, schema_ok, ms } = readingOf(row, kind === 1);
  const facts: Record<keyof typeof FACTS, boolean> = {
    ...{ paid, wall, answered, delivered, example, settled: row.settled, refunded: row.refunded, timed: ms !== null },
    counted: counts(row),
    own: counts(row) && kind < 2,
    unconfirmed: kind === 2 && row.fault === "unconfirmed",
    honest: honest === true,
    dishonest: honest === false,
    fits: schema_ok === true,
    misfits: schema_ok === false,
  };
  return (Object.keys(FACTS) as (keyof typeof FACTS)[]).reduce((bits, key) => bits + (facts[key] ? FACTS[key] : 0), 0);
}

/** {@link factsOf} of every value that can be packed, computed once. */
const FACTS_OF = Uint16Array.from({ length: PACKED_SCALE }, (_, packed) => factsOf(packed));

/** A number that a row does not have. */
export const NONE = Number.NaN;
/** Where a row is kept its time stands before its bits of FACTS; it stays far below 2^53. */
export const FACTS_SCALE = 1 << 15;

/** Number of rows of one endpoint of a chunk. */
export interface RowCounts {
  /** At least as many rows as will come, and as many of them that we paid for. */
  n: number;
  paid: number;
}

/** Numbers of a row: time and bits, ms, price; of a paid one also weight, delivery and outcome. */
const WIDTH = 3;

/**
 * The rows of a chunk, gathered by endpoint in two arrays: 24 bytes a row and as many again for a paid one. They come in
 * any order, and are written to where their endpoint's rows lie.
 */
export class PackedRows {
  /** Rows that no correction withdrew, those that count, and whether a published call waits for its re-tests. */
  readonly read: Uint32Array;
  readonly counted: Uint32Array;
  readonly unconfirmed: Uint8Array;
  readonly #rows: Float64Array;
  readonly #paid: Float64Array;
  readonly #first: Uint32Array;
  readonly #firstPaid: Uint32Array;
  /** Where the next row goes. */
  readonly #next: Uint32Array;
  readonly #nextPaid: Uint32Array;

  /** @param counts of the rows of all endpoints of the chunk, by their number in it */
  constructor(counts: readonly RowCounts[]) {
    const firsts = (count: (of: RowCounts) => number): Uint32Array => {
      const first = new Uint32Array(counts.length + 1);
      counts.forEach((of, ep) => {
        first[ep + 1] = first[ep]! + count(of);
      });
      return first;
    };
    this.#first = firsts(({ n }) => n);
    this.#firstPaid = firsts(({ paid }) => paid);
    this.#next = this.#first.slice();
    this.#nextPaid = this.#firstPaid.slice();
    this.#rows = new Float64Array(this.#first[counts.length]! * WIDTH);
    this.#paid = new Float64Array(this.#firstPaid[counts.length]! * WIDTH);
    this.read = new Uint32Array(counts.length);
    this.counted = new Uint32Array(counts.length);
    this.unconfirmed = new Uint8Array(counts.length);
  }

  /** Take a batch of rows as sql/grade/chunk (packed) gives them. */
  take(batch: DuckDBDataChunk): void {
    const column = (index: number) => batch.getColumnVector(index) as DuckDBVector<number>;
    const [eps, facts, times, prices] = [column(0), column(1), column(2), column(3)];
    const [weights, deliveries, outcomes] = [column(4), column(5), column(6)];
    const count = batch.rowCount;
    for (let row = 0; row < count; row++) {
      const ep = eps.getItem(row)!;
      const packed = facts.getItem(row)!;
      const t = Math.floor(packed / PACKED_SCALE);
      const bits = FACTS_OF[packed - t * PACKED_SCALE]!;
      this.read[ep]!++;
      if (bits & FACTS.counted && bits & FACTS.own) this.counted[ep]!++;
      if (bits & FACTS.unconfirmed) this.unconfirmed[ep] = 1;
      if (!(bits & FACTS.own)) continue;
      const price = prices.getItem(row)!;
      const at = this.#slot(this.#next, this.#first, ep);
      this.#rows[at] = t * FACTS_SCALE + bits;
      this.#rows[at + 1] = bits & FACTS.timed ? times.getItem(row)! : NONE;
      this.#rows[at + 2] = price > 0 ? price : NONE;
      if (!(bits & FACTS.paid)) continue;
      const came = (bits & FACTS.delivered) !== 0;
      const outcome = outcomes.getItem(row)!;
      const paidAt = this.#slot(this.#nextPaid, this.#firstPaid, ep);
      this.#paid[paidAt] = Math.min(weights.getItem(row)!, 1);
      this.#paid[paidAt + 1] = came ? deliveries.getItem(row)! : 0;
      this.#paid[paidAt + 2] = came || Number.isNaN(outcome) ? outcome : 0;
    }
  }

  /** One more than were counted would lie among its neighbour's, and be graded as theirs. */
  #slot(next: Uint32Array, first: Uint32Array, ep: number): number {
    const at = next[ep]!++;
    if (at >= first[ep + 1]!) throw new Error("grade: samples changed while they were read; run it in a transaction");
    return at * WIDTH;
  }

  /** Our own counted rows of one endpoint: three numbers each; and three of each paid one among them, in their order. */
  of(ep: number): { rows: Float64Array; paid: Float64Array } {
    return {
      rows: this.#rows.subarray(this.#first[ep]! * WIDTH, this.#next[ep]! * WIDTH),
      paid: this.#paid.subarray(this.#firstPaid[ep]! * WIDTH, this.#nextPaid[ep]! * WIDTH),
    };
  }
}
