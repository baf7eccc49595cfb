import type { DuckDBDataChunk, DuckDBVector } from "@duckdb/node-api";
import { PACKED_SCALE, SAID, SAID_BY } from "./facts.ts";

/** A number that a row does not have. */
export const NONE = Number.NaN;
/** Where a row is kept its time stands before its bits of SAID; it stays far below 2^53. */
export const SAID_SCALE = 1 << 15;

/** One endpoint's place among the rows of its chunk. */
export interface Place {
  /** At least as many rows as will come, and as many of them that we paid for. */
  n: number;
  paid: number;
}

/** Numbers of a row: what it says, ms, price; of a paid one also its weight, delivery and outcome. */
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

  /** @param places of all endpoints of the chunk, by their number in it */
  constructor(places: readonly Place[]) {
    const firsts = (count: (place: Place) => number): Uint32Array => {
      const first = new Uint32Array(places.length + 1);
      places.forEach((place, ep) => {
        first[ep + 1] = first[ep]! + count(place);
      });
      return first;
    };
    this.#first = firsts(({ n }) => n);
    this.#firstPaid = firsts(({ paid }) => paid);
    this.#next = this.#first.slice();
    this.#nextPaid = this.#firstPaid.slice();
    this.#rows = new Float64Array(this.#first[places.length]! * WIDTH);
    this.#paid = new Float64Array(this.#firstPaid[places.length]! * WIDTH);
    this.read = new Uint32Array(places.length);
    this.counted = new Uint32Array(places.length);
    this.unconfirmed = new Uint8Array(places.length);
  }

  /** Take a batch of rows as sql/34_packed.sql gives them. */
  take(batch: DuckDBDataChunk): void {
    const column = (index: number) => batch.getColumnVector(index) as DuckDBVector<number>;
    const [eps, facts, times, prices] = [column(0), column(1), column(2), column(3)];
    const [weights, deliveries, outcomes] = [column(4), column(5), column(6)];
    const count = batch.rowCount;
    for (let row = 0; row < count; row++) {
      const ep = eps.getItem(row)!;
      const packed = facts.getItem(row)!;
      const t = Math.floor(packed / PACKED_SCALE);
      const bits = SAID_BY[packed - t * PACKED_SCALE]!;
      this.read[ep]!++;
      if (bits & SAID.counted) this.counted[ep]!++;
      if (bits & SAID.unconfirmed) this.unconfirmed[ep] = 1;
      if (!(bits & SAID.own)) continue;
      const price = prices.getItem(row)!;
      const at = this.#place(this.#next, this.#first, ep);
      this.#rows[at] = t * SAID_SCALE + bits;
      this.#rows[at + 1] = bits & SAID.timed ? times.getItem(row)! : NONE;
      this.#rows[at + 2] = price > 0 ? price : NONE;
      if (!(bits & SAID.paid)) continue;
      const came = (bits & SAID.delivered) !== 0;
      const outcome = outcomes.getItem(row)!;
      const paidAt = this.#place(this.#nextPaid, this.#firstPaid, ep);
      this.#paid[paidAt] = Math.min(weights.getItem(row)!, 1);
      this.#paid[paidAt + 1] = came ? deliveries.getItem(row)! : 0;
      this.#paid[paidAt + 2] = came || Number.isNaN(outcome) ? outcome : 0;
    }
  }

  /** One more than were counted would lie among its neighbour's, and be graded as theirs. */
  #place(next: Uint32Array, first: Uint32Array, ep: number): number {
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
