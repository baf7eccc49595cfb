import { type Checker, numeric, RandomDraws, yes } from "./checker.ts";

/** What is asked for: pairs that trade everywhere, and currencies of which central banks publish a rate. */
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

/** How far a right answer may be from our reference: prices of two places differ, and each is of another second. */
const PRICE_WITHIN = 0.02;
/** Between that and this an answer is neither right nor quite wrong: half. */
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
  delivery: (value) => yes((numeric(value) ?? 0) > 0),
  score: nearness,
});

/** What a token or a currency costs now, held against a reference of ours that was asked in the same moment. */
export const tokenPrice: Checker = {
  name: "token-price",
  variants: { token: variant(PAIRS, "price"), currency: variant(RATES, "rate") },
};
