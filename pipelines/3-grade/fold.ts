import { round6 } from "./bounds.ts";
import { Blocks } from "./fold-blocks.ts";
import { Latencies } from "./fold-latency.ts";
import { type PackedRows, SAID, SAID_SCALE } from "./packed.ts";
import { AFTER, BLOCK_MS, DAY_MS, params, QUOTES_A_DAY, windowStart } from "./params.ts";
import { priceScore } from "./scores.ts";
import type { Sums } from "./sums.ts";

const { baseline_days } = params.price;

/** The quotes of one endpoint by UTC day, used again for the next. */
export class Prices {
  readonly #lowest: Float64Array;
  readonly #dearest: Float64Array;
  /** Every different quote of a day with more than one: few endpoints have any. */
  readonly #quotes = new Map<number, Set<number>>();

  /** @param days of the window */
  constructor(days: number) {
    this.#lowest = new Float64Array(days);
    this.#dearest = new Float64Array(days);
  }

  clear(): void {
    this.#lowest.fill(Number.POSITIVE_INFINITY);
    this.#dearest.fill(0);
    this.#quotes.clear();
  }

  /** @param price above 0 */
  add(day: number, price: number): void {
    const lowest = this.#lowest[day]!;
    const dearest = this.#dearest[day]!;
    if (price === lowest && price === dearest) return;
    if (dearest > 0) {
      const quotes = this.#quotes.get(day);
      if (quotes) quotes.add(price);
      else this.#quotes.set(day, new Set([lowest, price]));
    }
    if (price < lowest) this.#lowest[day] = price;
    if (price > dearest) this.#dearest[day] = price;
  }

  /** How far each day's dearest quote lies above the lowest of the days before. */
  sums(): Pick<Sums, "price" | "dynamicPrice"> {
    let w = 0;
    let s = 0;
    for (let day = 0; day < this.#dearest.length; day++) {
      const dearest = this.#dearest[day]!;
      if (dearest === 0) continue;
      let before = Number.POSITIVE_INFINITY;
      for (let d = Math.max(0, day - baseline_days); d < day; d++) before = Math.min(before, this.#lowest[d]!);
      if (before === Number.POSITIVE_INFINITY) continue;
      w++;
      s += priceScore(round6(dearest / before));
    }
    const dynamicPrice = [...this.#quotes.values()].some((quotes) => quotes.size > QUOTES_A_DAY);
    return { price: { w, s: round6(s) }, dynamicPrice };
  }
}

/** What the arithmetic over an endpoint's own rows gives: all of its sums but what sql/grade/chunk knows. */
export type Folded = Omit<
  Sums,
  "cap" | "emptied" | "buyers" | "payToChanged" | "disputed" | "payTo" | "domain" | "evidence"
>;

/** The newest of what rows say, and whether two rows of one moment differ: then the greatest id decides, elsewhere. */
class Newest<T> {
  t = Number.NEGATIVE_INFINITY;
  value: T | null = null;
  tied = false;

  add(t: number, value: T): void {
    if (t > this.t) {
      this.t = t;
      this.value = value;
      this.tied = false;
    } else if (t === this.t && value !== this.value) this.tied = true;
  }
}

const later = Math.max;
const NEVER = Number.NEGATIVE_INFINITY;

/**
 * Sums of one endpoint after the other from packed rows: what `sumsOf` of pure.ts does with objects, in one pass over
 * plain numbers. Its working arrays are of one window, so a run has one of it.
 */
export class Fold {
  readonly #since: number;
  readonly #theftBefore: number;
  readonly #blocks: Blocks;
  readonly #free: Latencies;
  readonly #paid: Latencies;
  readonly #prices: Prices;

  /** @param now the run's moment: no row is of it or later */
  constructor(now: Date) {
    this.#since = windowStart(now).getTime();
    this.#theftBefore = now.getTime() - AFTER.pendingTheft - this.#since;
    const span = now.getTime() - this.#since;
    const blocks = Math.ceil(span / BLOCK_MS);
    this.#blocks = new Blocks(blocks);
    this.#free = new Latencies(blocks);
    this.#paid = new Latencies(blocks);
    this.#prices = new Prices(Math.ceil(span / DAY_MS));
  }

  /** @returns the sums, and whether the newest answer or quote needs an id to be told */
  of(packed: PackedRows, ep: number): { folded: Folded; tied: boolean } {
    const { rows, paid } = packed.of(ep);
    for (const part of [this.#blocks, this.#free, this.#paid, this.#prices]) part.clear();
    const facts = new Facts(this.#theftBefore);
    for (let at = 0, paidAt = 0; at < rows.length; at += 3) {
      const said = rows[at]!;
      const t = Math.floor(said / SAID_SCALE);
      const bits = said - t * SAID_SCALE;
      const ms = rows[at + 1]!;
      const price = rows[at + 2]!;
      const block = Math.floor(t / BLOCK_MS);
      const isPaid = (bits & SAID.paid) !== 0;
      this.#blocks.add(block, bits);
      // A number that is not there is NaN.
      if (!Number.isNaN(ms)) (isPaid ? this.#paid : this.#free).add(block, ms);
      if (!Number.isNaN(price)) this.#prices.add(Math.floor(t / DAY_MS), price);
      facts.add(t, bits, price);
      if (!isPaid) continue;
      this.#blocks.addPaid(block, bits, paid[paidAt]!, paid[paidAt + 1]!, paid[paidAt + 2]!);
      facts.addPaid(t, block, bits, price);
      paidAt += 3;
    }
    const folded = {
      counted: packed.counted[ep]!,
      unconfirmed: packed.unconfirmed[ep] === 1,
      ...this.#blocks.parts(),
      latency: { free: this.#free.stratum(), paid: this.#paid.stratum() },
      ...this.#prices.sums(),
      ...facts.sums(this.#since),
    };
    return { folded, tied: facts.tied };
  }
}

type FactSums = Omit<
  Folded,
  "counted" | "unconfirmed" | "parts" | "course" | "walled" | "latency" | "price" | "dynamicPrice"
>;

/** What rows say beside the parts. Times are ms since the start of the window. */
class Facts {
  readonly #theftBefore: number;
  #seen = NEVER;
  #live = NEVER;
  #lastPaid = NEVER;
  readonly #honest = new Newest<boolean>();
  readonly #price = new Newest<number>();
  #tested = NEVER;
  #theft = NEVER;
  readonly #theftBlocks = new Set<number>();
  #pending = Number.POSITIVE_INFINITY;
  readonly #counts = { refunds: 0, signed: 0, settled: 0, served: 0, examples: 0 };

  constructor(theftBefore: number) {
    this.#theftBefore = theftBefore;
  }

  add(t: number, bits: number, price: number): void {
    this.#seen = later(this.#seen, t);
    if (bits & SAID.answered) this.#live = later(this.#live, t);
    if (bits & (SAID.honest | SAID.dishonest)) this.#honest.add(t, (bits & SAID.honest) !== 0);
    if (!Number.isNaN(price)) this.#price.add(t, price);
  }

  addPaid(t: number, block: number, bits: number, price: number): void {
    const counts = this.#counts;
    counts.signed++;
    this.#lastPaid = later(this.#lastPaid, t);
    if (bits & SAID.delivered) counts.served++;
    if (bits & SAID.example) counts.examples++;
    if (!(bits & SAID.settled)) return;
    counts.settled++;
    if (price > this.#tested) this.#tested = price;
    if (bits & SAID.delivered) return;
    if (bits & SAID.refunded) counts.refunds++;
    else if (t > this.#theftBefore) this.#pending = Math.min(this.#pending, t);
    else {
      this.#theft = later(this.#theft, t);
      this.#theftBlocks.add(block);
    }
  }

  get tied(): boolean {
    return this.#honest.tied || this.#price.tied;
  }

  /** @param since start of the window, ms */
  sums(since: number): FactSums {
    const moment = (t: number): number | null => (Number.isFinite(t) ? since + t : null);
    return {
      ...this.#counts,
      theft: this.#theft === NEVER ? null : { blocks: this.#theftBlocks.size, last: since + this.#theft },
      pendingFirst: moment(this.#pending),
      seenLast: moment(this.#seen),
      paidLast: moment(this.#lastPaid),
      liveLast: moment(this.#live),
      honestNow: this.#honest.value,
      priceNow: this.#price.value,
      priceTested: this.#tested === NEVER ? null : this.#tested,
    };
  }
}
