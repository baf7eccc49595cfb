import { type Checker, numeric, RandomDraws, yes } from "./checker.ts";

/** Pairs of tokens that trade everywhere; below them, pairs of currencies for which central banks publish rates. */
const PAIRS: readonly (readonly [base: string, quote: string])[] = [
  ["BTC", "USD"],
  ["ETH", "USD"],
  ["SOL", "USD"],
];
const RATES: typeof PAIRS = [
  ["EUR", "USD"],
  ["GBP", "USD"],
  ["USD", "JPY"],
  ["EUR", "CHF"],
];

/**
 * Largest relative difference of a right answer from our reference: markets differ, and the two are of different
 * seconds.
 */
const PRICE_WITHIN = 0.02;
/** Largest relative difference of an answer that gets half. */
const HALF_WITHIN = 0.05;

function nearness(value: unknown, truth: unknown): number {
  const said = numeric(value);
  if (said === undefined || typeof truth !== "number" || !(truth > 0)) return 0;
  const off = Math.abs(said - truth) / truth;
  return off <= PRICE_WITHIN ? 1 : off <= HALF_WITHIN ? 0.5 : 0;
}

const variant = (pairs: typeof PAIRS, answer: string): Checker["variants"][string] => ({
  asks: ["base", "quote"],
  answer: `/${answer}`,
  async draw(seed, { price }) {
    const [base, quote] = new RandomDraws(seed).pick(pairs);
    const truth = (await price?.(base, quote)) ?? null;
    return truth === null ? null : { fields: { base, quote }, truth };
  },
  // Of other pairs our reference may mean another token, or another market.
  solve: async ({ base, quote }, { price }) =>
    pairs.some((pair) => pair[0] === base && pair[1] === quote)
      ? ((await price?.(String(base), String(quote))) ?? null)
      : null,
  delivery: (value) => yes((numeric(value) ?? 0) > 0),
  score: nearness,
});

/** The price of a token or a currency now, compared with a reference of ours that is asked at the same moment. */
export const tokenPrice: Checker = {
  name: "token-price",
  variants: { token: variant(PAIRS, "price"), currency: variant(RATES, "rate") },
};
