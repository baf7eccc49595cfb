import { type Checker, numeric, type Question, type Sources, short, type Variant, wholeOf, yes } from "./checker.ts";

type Block = NonNullable<Awaited<ReturnType<NonNullable<Sources["block"]>>>>;

const hex = (value: unknown): string => short(value, 100)?.toLowerCase() ?? "";

/** Unix seconds, also from hexadecimal, in which nodes write them. */
function seconds(value: unknown): number | undefined {
  const text = hex(value);
  return /^0x[0-9a-f]{1,13}$/.test(text) ? Number.parseInt(text.slice(2), 16) : numeric(value);
}

const variant = (answer: string, truthOf: (block: Block) => string | number): Omit<Variant, "delivery" | "score"> => ({
  asks: ["block"],
  fixed: ["network"],
  answer: `/${answer}`,
  async draw(seed, { block: ask }): Promise<Question | null> {
    const block = (await ask?.(seed)) ?? null;
    return block && { fields: { block: block.number, network: block.network }, truth: truthOf(block) };
  },
  async solve({ block: number, network }, { block: ask }) {
    const height = wholeOf(number);
    const block = height === null || height < 0 ? null : ((await ask?.(height)) ?? null);
    // In an operator's form the network is not among the fields: it is the endpoint's own.
    return block && (network === undefined || network === block.network) ? truthOf(block) : null;
  },
});

/**
 * Data of a final block of a chain that we read ourselves. Such a block never changes, and what we read when the
 * question is made is recorded with it.
 */
export const chainData: Checker = {
  name: "chain-data",
  variants: {
    block_hash: {
      ...variant("hash", ({ hash }) => hash),
      delivery: (value) => yes(/^0x[0-9a-f]{64}$/.test(hex(value))),
      score: (value, truth) => yes(hex(value) === hex(truth) && hex(truth) !== ""),
    },
    block_time: {
      ...variant("timestamp", ({ time }) => time),
      delivery: (value) => yes(seconds(value) !== undefined),
      score: (value, truth) => yes(seconds(value) === truth),
    },
  },
};
