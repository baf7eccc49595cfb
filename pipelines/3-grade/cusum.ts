import { CUSUM_H, params } from "./params.ts";

/** One letter's sum: C and whether it holds the letter back. */
export interface CusumState {
  c: number;
  latched: boolean;
}

/** What one block adds to the sum of letter k: a miss `fail`, a success `pass`, partial credit in between. */
const STEPS = params.cusum.good.map((good, k) => {
  const bad = params.cusum.bad[k]!;
  return { pass: Math.log(bad / good), fail: Math.log((1 - bad) / (1 - good)) };
});

/** Below this a sum is 0: its terms cancel only to the last bits. */
const ZERO = 1e-9;

/**
 * CUSUM over paid blocks for the letters A, B, C, D (method, section 4): at ln 200 it takes the letter away until it
 * is back at 0. @param xs block means in time order, unweighted, of the deepest check there was
 */
export function cusum(xs: readonly number[]): CusumState[] {
  return STEPS.map(({ pass, fail }) => {
    let c = 0;
    let latched = false;
    for (const x of xs) {
      c = Math.max(0, c + x * pass + (1 - x) * fail);
      if (c < ZERO) latched = false;
      if (c >= CUSUM_H) latched = true;
    }
    return { c, latched };
  });
}

/** The best letter that recent calls leave, as a number: 0 A .. 4 F. */
export const cusumCap = (xs: readonly number[]): number =>
  cusum(xs).reduce((cap, state, k) => (state.latched ? k + 1 : cap), 0);
