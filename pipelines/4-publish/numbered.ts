import type { Store } from "../../infra/store/store.ts";

/** Objects with dense numbers from 0 that are created once and never removed: generations and runs. */
export const numberedKey = (prefix: string, n: number): string => `${prefix}/${String(n).padStart(20, "0")}`;

/**
 * Highest number that exists, or `known` (-1 = none known) when nothing lies beyond it. Since numbers are dense it is
 * found by doubling steps and halving them: a few heads instead of a listing of millions.
 */
export async function highestNumbered(store: Store, prefix: string, known = -1): Promise<number> {
  const exists = async (n: number): Promise<boolean> => (await store.head(numberedKey(prefix, n))) !== null;
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
