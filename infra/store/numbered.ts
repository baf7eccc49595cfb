import type { Store } from "./store.ts";

/**
 * Key of object `n` under `prefix`. Such objects (generations of the tree, runs of grading) are numbered 0, 1, 2 ..
 * without gaps and are never removed.
 */
export const numberedKey = (prefix: string, n: number): string => `${prefix}/${String(n).padStart(20, "0")}`;

/**
 * Returns the highest number of an object under `prefix`. `known` is the number of an object that exists, or -1;
 * lower numbers are not checked.
 */
export const highestNumbered = (store: Pick<Store, "head">, prefix: string, known = -1): Promise<number> =>
  findHighest(known, async (n) => (await store.head(numberedKey(prefix, n))) !== null);

/**
 * Returns the highest number for which `exists` is true, where all numbers below it exist too; at least `known`. It
 * doubles its steps and then halves them, so it makes few calls, whereas a listing may have millions of entries.
 */
export async function findHighest(known: number, exists: (n: number) => Promise<boolean>): Promise<number> {
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
