import { needHigh, needLow, round6 } from "./bounds.ts";
import { PERCENTILE } from "./params.ts";
import { EPSILON, type Stratum } from "./scores.ts";

/** Below this many rows insertion is the quickest way to sort. */
const FEW = 24;

/**
 * The latencies of one stratum of one endpoint, used again for the next. All three order statistics lie at the slow end,
 * so only that end is sorted: a quicksort that goes to the slow side first and stops when it weighs enough.
 */
export class Latencies {
  #ms = new Float64Array(1_024);
  #block = new Int32Array(1_024);
  /** Rows of each block. */
  readonly #inBlock: Uint32Array;
  #count = 0;
  #blocks = 0;
  /** Weight of the rows that are in order, and how much of it is wanted. */
  #sorted = 0;
  #wanted = 0;

  /** @param blocks of the window */
  constructor(blocks: number) {
    this.#inBlock = new Uint32Array(blocks);
  }

  clear(): void {
    this.#inBlock.fill(0);
    this.#count = 0;
    this.#blocks = 0;
  }

  add(block: number, ms: number): void {
    if (this.#count === this.#ms.length) this.#grow();
    this.#ms[this.#count] = ms;
    this.#block[this.#count++] = block;
    if (this.#inBlock[block]!++ === 0) this.#blocks++;
  }

  /** Order statistics, a row weighing 1/(rows of its block); null where there are too few blocks for a bound. */
  stratum(): Stratum | null {
    const w = this.#blocks;
    const high = needHigh(w);
    if (!(w >= high)) return null;
    const from = { p95: PERCENTILE * w - EPSILON, high, low: w - needLow(w) };
    // One more than what lies above the lowest statistic: the row that reaches it, and what rounding may take.
    this.#wanted = w - Math.min(from.p95, from.high, from.low) + 1;
    this.#sorted = 0;
    this.#sort(0, this.#count - 1);
    const found = { w, p95: Number.NaN, high: Number.NaN, low: Number.NaN };
    let slower = 0;
    for (let i = this.#count - 1; i >= 0; ) {
      const ms = this.#ms[i]!;
      const s = round6(w - slower);
      if (s >= from.p95) found.p95 = ms;
      if (s >= from.high) found.high = ms;
      if (s >= from.low) found.low = ms;
      if (slower >= this.#wanted) break;
      for (; i >= 0 && this.#ms[i] === ms; i--) slower += this.#weight(i);
    }
    return found;
  }

  #weight(i: number): number {
    return 1 / this.#inBlock[this.#block[i]!]!;
  }

  #sort(first: number, last: number): void {
    if (last - first < FEW) {
      this.#insert(first, last);
      for (let i = first; i <= last; i++) this.#sorted += this.#weight(i);
      return;
    }
    const pivot = this.#ms[(first + last) >> 1]!;
    let i = first;
    let j = last;
    while (i <= j) {
      while (this.#ms[i]! < pivot) i++;
      while (this.#ms[j]! > pivot) j--;
      if (i <= j) this.#swap(i++, j--);
    }
    // What lies between j and i equals the pivot.
    this.#sort(i, last);
    for (let k = j + 1; k < i; k++) this.#sorted += this.#weight(k);
    if (this.#sorted < this.#wanted) this.#sort(first, j);
  }

  #insert(first: number, last: number): void {
    for (let i = first + 1; i <= last; i++) {
      const ms = this.#ms[i]!;
      const block = this.#block[i]!;
      let j = i - 1;
      for (; j >= first && this.#ms[j]! > ms; j--) {
        this.#ms[j + 1] = this.#ms[j]!;
        this.#block[j + 1] = this.#block[j]!;
      }
      this.#ms[j + 1] = ms;
      this.#block[j + 1] = block;
    }
  }

  #swap(i: number, j: number): void {
    const ms = this.#ms[i]!;
    const block = this.#block[i]!;
    this.#ms[i] = this.#ms[j]!;
    this.#block[i] = this.#block[j]!;
    this.#ms[j] = ms;
    this.#block[j] = block;
  }

  #grow(): void {
    const [ms, block] = [this.#ms, this.#block];
    this.#ms = new Float64Array(ms.length * 2);
    this.#ms.set(ms);
    this.#block = new Int32Array(block.length * 2);
    this.#block.set(block);
  }
}
