import { round6 } from "./bounds.ts";
import { Blocks } from "./fold-blocks.ts";
import { FACTS, FACTS_SCALE, type PackedRows } from "./packed.ts";
import { AFTER, BLOCK_MS, DAY_MS, QUOTES_A_DAY, windowStart } from "./params.ts";
import { p95, priceStability } from "./scores.ts";
import type { Sums } from "./sums.ts";

/** The quotes of one endpoint by UTC day. */
class Prices {
  readonly #days = new Map<number, number[]>();

  /** @param price above 0 */
  add(day: number, price: number): void {
    const quotes = this.#days.get(day);
    if (!quotes) this.#days.set(day, [price]);
    // Most days have one price however often it was asked.
    else if (quotes.at(-1) !== price) quotes.push(price);
  }

  sums(): Pick<Sums, "price" | "dynamicPrice"> {
    const { w, s } = priceStability(this.#days);
    const dynamicPrice = [...this.#days.values()].some((quotes) => new Set(quotes).size > QUOTES_A_DAY);
    return { price: { w, s: round6(s) }, dynamicPrice };
  }
}

/** What the arithmetic over an endpoint's own rows gives: all of its sums but what sql/grade/chunk knows. */
export type Folded = Omit<
  Sums,
  "cap" | "emptied" | "buyers" | "payToChanged" | "disputed" | "payTo" | "domain" | "evidence"
>;

/** The newest value among rows, and whether two rows of one moment differ: then the greatest id decides (sql/grade/chunk). */
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

  /** @param now the run's moment: no row is of it or later */
  constructor(now: Date) {
    this.#since = windowStart(now).getTime();
    this.#theftBefore = now.getTime() - AFTER.pendingTheft - this.#since;
    const span = now.getTime() - this.#since;
    this.#blocks = new Blocks(Math.ceil(span / BLOCK_MS));
  }

  /** @returns the sums, and whether ids must decide which answer or quote is the newest */
  of(packed: PackedRows, ep: number): { folded: Folded; tied: boolean } {
    const { rows, paid } = packed.of(ep);
    this.#blocks.clear();
    const [free, ours, prices] = [[] as [number, number][], [] as [number, number][], new Prices()];
    const facts = new Facts(this.#theftBefore);
    for (let at = 0, paidAt = 0; at < rows.length; at += 3) {
      const row = rows[at]!;
      const t = Math.floor(row / FACTS_SCALE);
      const bits = row - t * FACTS_SCALE;
      const ms = rows[at + 1]!;
      const price = rows[at + 2]!;
      const block = Math.floor(t / BLOCK_MS);
      const isPaid = (bits & FACTS.paid) !== 0;
      this.#blocks.add(block, bits);
      // A number that is not there is NaN.
      if (!Number.isNaN(ms)) (isPaid ? ours : free).push([block, ms]);
      if (!Number.isNaN(price)) prices.add(Math.floor(t / DAY_MS), price);
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
      latency: { free: p95(free), paid: p95(ours) },
      ...prices.sums(),
      ...facts.sums(this.#since),
    };
    return { folded, tied: facts.tied };
  }
}

type FactSums = Omit<
  Folded,
  "counted" | "unconfirmed" | "parts" | "course" | "walled" | "latency" | "price" | "dynamicPrice"
>;

/** Facts from rows that are not samples of a part. Times are ms since the start of the window. */
class Facts {
  readonly #theftBefore: number;
  #first = Number.POSITIVE_INFINITY;
  #seen = NEVER;
  #live = NEVER;
  #firstPaid = Number.POSITIVE_INFINITY;
  #lastPaid = NEVER;
  readonly #honest = new Newest<boolean>();
  readonly #price = new Newest<number>();
  #tested = NEVER;
  #theft = NEVER;
  #thefts = 0;
  #taken = 0;
  readonly #theftBlocks = new Set<number>();
  #pending = Number.POSITIVE_INFINITY;
  readonly #counts = { refunds: 0, signed: 0, settled: 0, served: 0, examples: 0 };

  constructor(theftBefore: number) {
    this.#theftBefore = theftBefore;
  }

  add(t: number, bits: number, price: number): void {
    this.#first = Math.min(this.#first, t);
    this.#seen = later(this.#seen, t);
    if (bits & FACTS.answered) this.#live = later(this.#live, t);
    if (bits & (FACTS.honest | FACTS.dishonest)) this.#honest.add(t, (bits & FACTS.honest) !== 0);
    if (!Number.isNaN(price)) this.#price.add(t, price);
  }

  addPaid(t: number, block: number, bits: number, price: number): void {
    const counts = this.#counts;
    counts.signed++;
    this.#firstPaid = Math.min(this.#firstPaid, t);
    this.#lastPaid = later(this.#lastPaid, t);
    if (bits & FACTS.delivered) counts.served++;
    if (bits & FACTS.example) counts.examples++;
    if (!(bits & FACTS.settled)) return;
    counts.settled++;
    if (price > this.#tested) this.#tested = price;
    if (bits & FACTS.delivered) return;
    if (bits & FACTS.refunded) counts.refunds++;
    else if (t > this.#theftBefore) this.#pending = Math.min(this.#pending, t);
    else {
      this.#theft = later(this.#theft, t);
      this.#thefts++;
      if (!Number.isNaN(price)) this.#taken += price;
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
      theft:
        this.#theft === NEVER
          ? null
          : {
              blocks: this.#theftBlocks.size,
              calls: this.#thefts,
              sum: round6(this.#taken),
              last: since + this.#theft,
            },
      pendingFirst: moment(this.#pending),
      seenFirst: moment(this.#first),
      seenLast: moment(this.#seen),
      paidFirst: moment(this.#firstPaid),
      paidLast: moment(this.#lastPaid),
      liveLast: moment(this.#live),
      honestNow: this.#honest.value,
      priceNow: this.#price.value,
      priceTested: this.#tested === NEVER ? null : this.#tested,
    };
  }
}
