import { round6 } from "./bounds.ts";
import { BlockSums } from "./fold-blocks.ts";
import { FACTS, FACTS_SCALE, type PackedRows } from "./packed.ts";
import { BLOCK_MS, CHANGE_DELAYS_MS, DAY_MS, MAX_PRICES_A_DAY, windowStart } from "./params.ts";
import { p95, priceStability } from "./scores.ts";
import type { Sums } from "./sums.ts";

/** The quoted prices of one endpoint by UTC day. */
class DayPrices {
  readonly #days = new Map<number, number[]>();

  /** @param price above 0 */
  add(day: number, price: number): void {
    const quotes = this.#days.get(day);
    if (!quotes) this.#days.set(day, [price]);
    // A repeated price is stored once: most days have one price in all of their 402s.
    else if (quotes.at(-1) !== price) quotes.push(price);
  }

  sums(): Pick<Sums, "price" | "dynamicPrice"> {
    const { w, s } = priceStability(this.#days);
    const dynamicPrice = [...this.#days.values()].some((quotes) => new Set(quotes).size > MAX_PRICES_A_DAY);
    return { price: { w, s: round6(s) }, dynamicPrice };
  }
}

/** The sums that are computed from our own rows of an endpoint; sql/grade/chunk supplies the others. */
export type FoldedSums = Omit<
  Sums,
  "cap" | "emptied" | "buyers" | "payToChanged" | "disputed" | "payTo" | "domain" | "evidence"
>;

/**
 * The newest value of a fact among rows. `isTied`: two rows at the newest moment have different values. Then the row
 * with the greatest id counts, which sql/grade/chunk finds.
 */
class Newest<T> {
  t = Number.NEGATIVE_INFINITY;
  value: T | null = null;
  isTied = false;

  add(t: number, value: T): void {
    if (t > this.t) {
      this.t = t;
      this.value = value;
      this.isTied = false;
    } else if (t === this.t && value !== this.value) this.isTied = true;
  }
}

const latest = Math.max;
const NEVER = Number.NEGATIVE_INFINITY;

/**
 * Computes the sums of endpoints from packed rows, one endpoint after the other. It does what `sumRows` of pure.ts
 * does with objects, in one pass over plain numbers. A run makes only one Fold, since its working arrays are as long
 * as the window.
 */
export class Fold {
  readonly #windowStartMs: number;
  readonly #theftBefore: number;
  readonly #blocks: BlockSums;

  /** @param now time of the grading run: all rows are earlier */
  constructor(now: Date) {
    this.#windowStartMs = windowStart(now).getTime();
    this.#theftBefore = now.getTime() - CHANGE_DELAYS_MS.pendingTheft - this.#windowStartMs;
    const windowMs = now.getTime() - this.#windowStartMs;
    this.#blocks = new BlockSums(Math.ceil(windowMs / BLOCK_MS));
  }

  /** @returns the sums; `isTied` is true where the newest answer or price is ambiguous and the rows' ids must decide */
  foldEndpoint(packedRows: PackedRows, ep: number): { folded: FoldedSums; isTied: boolean } {
    const { rows, paid } = packedRows.rowsOf(ep);
    this.#blocks.clear();
    const [freeLatencies, paidLatencies, prices] = [
      [] as [number, number][],
      [] as [number, number][],
      new DayPrices(),
    ];
    const facts = new FactFold(this.#theftBefore);
    for (let index = 0, paidIndex = 0; index < rows.length; index += 3) {
      const row = rows[index]!;
      const t = Math.floor(row / FACTS_SCALE);
      const bits = row - t * FACTS_SCALE;
      const ms = rows[index + 1]!;
      const price = rows[index + 2]!;
      const block = Math.floor(t / BLOCK_MS);
      const isPaid = (bits & FACTS.paid) !== 0;
      this.#blocks.add(block, bits);
      // NaN marks a missing number.
      if (!Number.isNaN(ms)) (isPaid ? paidLatencies : freeLatencies).push([block, ms]);
      if (!Number.isNaN(price)) prices.add(Math.floor(t / DAY_MS), price);
      facts.add(t, bits, price);
      if (!isPaid) continue;
      this.#blocks.addPaid(block, bits, paid[paidIndex]!, paid[paidIndex + 1]!, paid[paidIndex + 2]!);
      facts.addPaid(t, block, bits, price);
      paidIndex += 3;
    }
    const folded = {
      counted: packedRows.rowsCounted[ep]!,
      unconfirmed: packedRows.unconfirmed[ep] === 1,
      ...this.#blocks.sumParts(),
      latency: { free: p95(freeLatencies), paid: p95(paidLatencies) },
      ...prices.sums(),
      ...facts.sums(this.#windowStartMs),
    };
    return { folded, isTied: facts.hasTie };
  }
}

type FactMembers = Omit<
  FoldedSums,
  "counted" | "unconfirmed" | "parts" | "course" | "walled" | "latency" | "price" | "dynamicPrice"
>;

/**
 * Collects the facts that are no sums of time blocks ({@link BlockSums}): first and last times, thefts, counts. Times
 * are ms since the start of the window.
 */
class FactFold {
  readonly #theftBefore: number;
  #firstSeen = Number.POSITIVE_INFINITY;
  #lastSeen = NEVER;
  #lastLive = NEVER;
  #firstPaid = Number.POSITIVE_INFINITY;
  #lastPaid = NEVER;
  readonly #newestHonesty = new Newest<boolean>();
  readonly #newestPrice = new Newest<number>();
  #highestPaidPrice = NEVER;
  #lastTheft = NEVER;
  #theftCount = 0;
  #takenSum = 0;
  readonly #theftBlocks = new Set<number>();
  #firstPending = Number.POSITIVE_INFINITY;
  readonly #counts = { refunds: 0, signed: 0, settled: 0, served: 0, examples: 0 };

  constructor(theftBefore: number) {
    this.#theftBefore = theftBefore;
  }

  add(t: number, bits: number, price: number): void {
    this.#firstSeen = Math.min(this.#firstSeen, t);
    this.#lastSeen = latest(this.#lastSeen, t);
    if (bits & FACTS.answered) this.#lastLive = latest(this.#lastLive, t);
    if (bits & (FACTS.honest | FACTS.dishonest)) this.#newestHonesty.add(t, (bits & FACTS.honest) !== 0);
    if (!Number.isNaN(price)) this.#newestPrice.add(t, price);
  }

  addPaid(t: number, block: number, bits: number, price: number): void {
    const counts = this.#counts;
    counts.signed++;
    this.#firstPaid = Math.min(this.#firstPaid, t);
    this.#lastPaid = latest(this.#lastPaid, t);
    if (bits & FACTS.delivered) counts.served++;
    if (bits & FACTS.example) counts.examples++;
    if (!(bits & FACTS.settled)) return;
    counts.settled++;
    if (price > this.#highestPaidPrice) this.#highestPaidPrice = price;
    if (bits & FACTS.delivered) return;
    if (bits & FACTS.refunded) counts.refunds++;
    else if (t > this.#theftBefore) this.#firstPending = Math.min(this.#firstPending, t);
    else {
      this.#lastTheft = latest(this.#lastTheft, t);
      this.#theftCount++;
      if (!Number.isNaN(price)) this.#takenSum += price;
      this.#theftBlocks.add(block);
    }
  }

  get hasTie(): boolean {
    return this.#newestHonesty.isTied || this.#newestPrice.isTied;
  }

  /** @param since start of the window, ms */
  sums(since: number): FactMembers {
    const toMoment = (t: number): number | null => (Number.isFinite(t) ? since + t : null);
    return {
      ...this.#counts,
      theft:
        this.#lastTheft === NEVER
          ? null
          : {
              blocks: this.#theftBlocks.size,
              calls: this.#theftCount,
              sum: round6(this.#takenSum),
              last: since + this.#lastTheft,
            },
      pendingFirst: toMoment(this.#firstPending),
      seenFirst: toMoment(this.#firstSeen),
      seenLast: toMoment(this.#lastSeen),
      paidFirst: toMoment(this.#firstPaid),
      paidLast: toMoment(this.#lastPaid),
      liveLast: toMoment(this.#lastLive),
      honestNow: this.#newestHonesty.value,
      priceNow: this.#newestPrice.value,
      priceTested: this.#highestPaidPrice === NEVER ? null : this.#highestPaidPrice,
    };
  }
}
