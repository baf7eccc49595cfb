import { booleanScore, type Checker, RandomDraws, toNumber } from "./checker.ts";

/** Token pairs that many markets trade. */
const TOKEN_PAIRS: readonly (readonly [base: string, quote: string])[] = [
  ["BTC", "USD"],
  ["ETH", "USD"],
  ["SOL", "USD"],
];
/** Currency pairs for which central banks publish rates. */
const CURRENCY_PAIRS: typeof TOKEN_PAIRS = [
  ["EUR", "USD"],
  ["GBP", "USD"],
  ["USD", "JPY"],
  ["EUR", "CHF"],
];

/**
 * Largest relative difference from our reference price that scores 1. It is not 0, since markets differ and the two
 * prices are read at different seconds.
 */
const FULL_SCORE_WITHIN = 0.02;
/** Largest relative difference that scores 0.5. */
const HALF_SCORE_WITHIN = 0.05;

function scorePrice(value: unknown, truth: unknown): number {
  const answer = toNumber(value);
  if (answer === undefined || typeof truth !== "number" || !(truth > 0)) return 0;
  const relativeDifference = Math.abs(answer - truth) / truth;
  return relativeDifference <= FULL_SCORE_WITHIN ? 1 : relativeDifference <= HALF_SCORE_WITHIN ? 0.5 : 0;
}

const priceVariant = (pairs: typeof TOKEN_PAIRS, answer: string): Checker["variants"][string] => ({
  asks: ["base", "quote"],
  answer: `/${answer}`,
  async draw(seed, { price }) {
    const [base, quote] = new RandomDraws(seed).pick(pairs);
    const truth = (await price?.(base, quote)) ?? null;
    return truth === null ? null : { fields: { base, quote }, truth };
  },
  // Other pairs get no answer: our reference may use a name for another token than the seller does.
  solve: async ({ base, quote }, { price }) =>
    pairs.some((pair) => pair[0] === base && pair[1] === quote)
      ? ((await price?.(String(base), String(quote))) ?? null)
      : null,
  delivery: (value) => booleanScore((toNumber(value) ?? 0) > 0),
  score: scorePrice,
});

/**
 * The class of endpoints that return the current price of a token or a currency. It is compared with a reference
 * source that is read at about the same time.
 */
export const tokenPrice: Checker = {
  name: "token-price",
  variants: { token: priceVariant(TOKEN_PAIRS, "price"), currency: priceVariant(CURRENCY_PAIRS, "rate") },
};
