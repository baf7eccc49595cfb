import { round6 } from "./bounds.ts";
import { params, QUOTES_A_DAY } from "./params.ts";
import { priceScore } from "./price.ts";
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
