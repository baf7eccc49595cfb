import type { Store } from "./store.ts";

/** Objects with dense numbers from 0 that are created once and never removed: generations and runs. */
export const numberedKey = (prefix: string, n: number): string => `${prefix}/${String(n).padStart(20, "0")}`;

/** Highest number that exists, or `known` (-1 = none known) when nothing lies beyond it. */
export const highestNumbered = (store: Pick<Store, "head">, prefix: string, known = -1): Promise<number> =>
  highest(known, async (n) => (await store.head(numberedKey(prefix, n))) !== null);

/**
 * The same of any dense numbers: found by doubling steps and halving them, so that a few looks do instead of a listing of
 * millions.
 */
export async function highest(known: number, exists: (n: number) => Promise<boolean>): Promise<number> {
  let low = known;
  let step = 1;
  while (await exists(low + step)) {
    low += step;
    step *= 2;
  }
  let high = low + step;
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (await exists(middle)) low = middle;
    else high = middle;
  }
  return low;
}
