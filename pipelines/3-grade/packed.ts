import type { DuckDBDataChunk, DuckDBVector } from "@duckdb/node-api";
import { isCounted, readSample } from "./sample.ts";

/**
 * Bits in which sql/grade/chunk (packed) encodes the facts of a row. `kind`, `honest` and `schema` have two bits each.
 * `kind` is 0 for a probe of ours, 1 for our paid call, 2 for a call that its buyer published.
 * The last four members are the values of one field of three bits, which is 0 without a fault; `fault` means any other
 * fault. The higher bits of the number are the row's time.
 */
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
/**
 * Factor of the time in a packed number, which is time * PACKED_SCALE + bits of PACKED. The time is ms since the
 * start of the window, so the number stays far below 2^53 and is exact.
 */
export const PACKED_SCALE = 1 << 14;
/**
 * The facts of a row that grading uses, one bit for each fact. `own`: it counts and is not a buyer's call. `wall`: a
 * probe got a bot check, 403 or 429. `fits` and `misfits`: the answer was held against a schema; `honest` and
 * `dishonest`: the terms were compared with the listing; neither bit is set where that was not done. `timed`: its
 * latency counts.
 */
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
const toBoolean = (value: number): boolean | null => (value > 1 ? null : value === 1);

/**
 * Computes the bits of FACTS for a packed row by the rules of sample.ts, so that grading with and without a database
 * apply one set of rules.
 */
function unpackFacts(packed: number): number {
  const readBits = (bit: number, width: number) => Math.floor(packed / bit) % width;
  const kind = readBits(PACKED.kind, 4);
  const fault = readBits(PACKED.blocked, 8);
  const example = readBits(PACKED.example, 2) === 1;
  const row = {
    kind,
    fault: fault < FAULTS.length ? FAULTS[fault]! : "another",
    live: readBits(PACKED.live, 2) === 1,
    honest: toBoolean(readBits(PACKED.honest, 4)),
    settled: readBits(PACKED.settled, 2) === 1,
    delivered: readBits(PACKED.delivered, 2) === 1,
    refunded: readBits(PACKED.refunded, 2) === 1,
    schema_ok: toBoolean(readBits(PACKED.schema, 4)),
    ...{ obs_id: "", t: new Date(0), payer: null, input: null, response_sha256: null, pay_to: null },
    ...{ w: 1, delivery: 1, outcome: 1, latency_ms: 1, price: 1 },
  };
  const { paid, wall, answered, honest, delivered, schema_ok, ms } = readSample(row, kind === 1);
  const facts: Record<keyof typeof FACTS, boolean> = {
    ...{ paid, wall, answered, delivered, example, settled: row.settled, refunded: row.refunded, timed: ms !== null },
    counted: isCounted(row),
    own: isCounted(row) && kind < 2,
    unconfirmed: kind === 2 && row.fault === "unconfirmed",
    honest: honest === true,
    dishonest: honest === false,
    fits: schema_ok === true,
    misfits: schema_ok === false,
  };
  return (Object.keys(FACTS) as (keyof typeof FACTS)[]).reduce((bits, key) => bits + (facts[key] ? FACTS[key] : 0), 0);
}

/** {@link unpackFacts} of every packed value, computed once. */
const FACTS_BY_PACKED = Uint16Array.from({ length: PACKED_SCALE }, (_, packed) => unpackFacts(packed));

/** Marks a number that a row does not have. */
export const MISSING = Number.NaN;
/** Factor of the time in a stored row: time * FACTS_SCALE + bits of FACTS. The number stays far below 2^53. */
export const FACTS_SCALE = 1 << 15;

/** Number of rows of one endpoint of a chunk. */
export interface RowCounts {
  /** Upper bound of the number of all rows. */
  n: number;
  /** Upper bound of the number of rows of calls that we paid for. */
  paid: number;
}

/**
 * Numbers that are stored for a row: time with bits, latency in ms, price. A paid row has three more in the second
 * array: weight, delivery and outcome.
 */
const NUMBERS_PER_ROW = 3;

/**
 * The rows of a chunk, grouped by endpoint in two arrays: 24 bytes a row, and 24 more for a paid row. Rows arrive in
 * any order and are written to the place of their endpoint.
 */
export class PackedRows {
  /** Number of each endpoint's rows that no correction withdrew. */
  readonly rowsRead: Uint32Array;
  /** Number of our own rows (not those of buyers) of each endpoint that count as samples. */
  readonly rowsCounted: Uint32Array;
  /** 1 for an endpoint with a call that a buyer published and that still waits for its re-tests, else 0. */
  readonly unconfirmed: Uint8Array;
  readonly #rows: Float64Array;
  readonly #paid: Float64Array;
  readonly #firstIndex: Uint32Array;
  readonly #firstPaidIndex: Uint32Array;
  /** Index at which the endpoint's next row is written. */
  readonly #nextIndex: Uint32Array;
  readonly #nextPaidIndex: Uint32Array;

  /** @param counts row counts of the chunk's endpoints, in the order of their numbers */
  constructor(counts: readonly RowCounts[]) {
    const offsetsOf = (count: (rowCounts: RowCounts) => number): Uint32Array => {
      const first = new Uint32Array(counts.length + 1);
      counts.forEach((rowCounts, ep) => {
        first[ep + 1] = first[ep]! + count(rowCounts);
      });
      return first;
    };
    this.#firstIndex = offsetsOf(({ n }) => n);
    this.#firstPaidIndex = offsetsOf(({ paid }) => paid);
    this.#nextIndex = this.#firstIndex.slice();
    this.#nextPaidIndex = this.#firstPaidIndex.slice();
    this.#rows = new Float64Array(this.#firstIndex[counts.length]! * NUMBERS_PER_ROW);
    this.#paid = new Float64Array(this.#firstPaidIndex[counts.length]! * NUMBERS_PER_ROW);
    this.rowsRead = new Uint32Array(counts.length);
    this.rowsCounted = new Uint32Array(counts.length);
    this.unconfirmed = new Uint8Array(counts.length);
  }

  /** Adds a batch of rows in the columns of sql/grade/chunk (packed). */
  addBatch(batch: DuckDBDataChunk): void {
    const column = (index: number) => batch.getColumnVector(index) as DuckDBVector<number>;
    const [eps, facts, times, prices] = [column(0), column(1), column(2), column(3)];
    const [weights, deliveries, outcomes] = [column(4), column(5), column(6)];
    const count = batch.rowCount;
    for (let row = 0; row < count; row++) {
      const ep = eps.getItem(row)!;
      const packed = facts.getItem(row)!;
      const t = Math.floor(packed / PACKED_SCALE);
      const bits = FACTS_BY_PACKED[packed - t * PACKED_SCALE]!;
      this.rowsRead[ep]!++;
      if (bits & FACTS.counted && bits & FACTS.own) this.rowsCounted[ep]!++;
      if (bits & FACTS.unconfirmed) this.unconfirmed[ep] = 1;
      if (!(bits & FACTS.own)) continue;
      const price = prices.getItem(row)!;
      const rowIndex = this.#takeSlot(this.#nextIndex, this.#firstIndex, ep);
      this.#rows[rowIndex] = t * FACTS_SCALE + bits;
      this.#rows[rowIndex + 1] = bits & FACTS.timed ? times.getItem(row)! : MISSING;
      this.#rows[rowIndex + 2] = price > 0 ? price : MISSING;
      if (!(bits & FACTS.paid)) continue;
      const isDelivered = (bits & FACTS.delivered) !== 0;
      const outcome = outcomes.getItem(row)!;
      const paidIndex = this.#takeSlot(this.#nextPaidIndex, this.#firstPaidIndex, ep);
      this.#paid[paidIndex] = Math.min(weights.getItem(row)!, 1);
      this.#paid[paidIndex + 1] = isDelivered ? deliveries.getItem(row)! : 0;
      this.#paid[paidIndex + 2] = isDelivered || Number.isNaN(outcome) ? outcome : 0;
    }
  }

  /**
   * Takes the endpoint's next free index.
   * @throws Error where there are more rows than were counted, since a further row would overwrite another endpoint's
   * row
   */
  #takeSlot(nextIndex: Uint32Array, firstIndex: Uint32Array, ep: number): number {
    const index = nextIndex[ep]!++;
    if (index >= firstIndex[ep + 1]!)
      throw new Error("grade: samples changed while they were read; run it in a transaction");
    return index * NUMBERS_PER_ROW;
  }

  /**
   * Our own rows of one endpoint that count, three numbers a row; and three numbers for each paid row among them, in
   * their order.
   */
  rowsOf(ep: number): { rows: Float64Array; paid: Float64Array } {
    return {
      rows: this.#rows.subarray(this.#firstIndex[ep]! * NUMBERS_PER_ROW, this.#nextIndex[ep]! * NUMBERS_PER_ROW),
      paid: this.#paid.subarray(
        this.#firstPaidIndex[ep]! * NUMBERS_PER_ROW,
        this.#nextPaidIndex[ep]! * NUMBERS_PER_ROW,
      ),
    };
  }
}
