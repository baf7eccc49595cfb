/**
 * Seed of all random numbers of a run of the tests. One number in the commit, so the same commit is tested the same way
 * wherever that is done; `npm run test:drawn` draws others, SEED=n has one of them again.
 */
export const SEED = Number(process.env.SEED ?? 20_261_121);

/** mulberry32: 32-bit pseudo-random numbers of a seed. A failure that names its seed can be had again. */
export function randomInts(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return (t ^ (t >>> 14)) >>> 0;
  };
}

/** The same as numbers in [0, 1). */
export function drawn(seed: number): () => number {
  const random = randomInts(seed);
  return () => random() / 2 ** 32;
}
