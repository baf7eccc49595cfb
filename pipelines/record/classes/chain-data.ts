import {
  booleanScore,
  boundedText,
  type Checker,
  type Question,
  type Sources,
  toNumber,
  toWholeNumber,
  type Variant,
} from "./checker.ts";

type Block = NonNullable<Awaited<ReturnType<NonNullable<Sources["block"]>>>>;

const lowerCaseText = (value: unknown): string => boundedText(value, 100)?.toLowerCase() ?? "";

/** Parses unix seconds, decimal or in the hexadecimal form that nodes use. */
function toUnixSeconds(value: unknown): number | undefined {
  const text = lowerCaseText(value);
  return /^0x[0-9a-f]{1,13}$/.test(text) ? Number.parseInt(text.slice(2), 16) : toNumber(value);
}

const blockVariant = (
  answer: string,
  truthOf: (block: Block) => string | number,
): Omit<Variant, "delivery" | "score"> => ({
  asks: ["block"],
  fixed: ["network"],
  answer: `/${answer}`,
  async draw(seed, { block: readBlock }): Promise<Question | null> {
    const block = (await readBlock?.(seed)) ?? null;
    return block && { fields: { block: block.number, network: block.network }, truth: truthOf(block) };
  },
  async solve({ block: blockNumber, network }, { block: readBlock }) {
    const height = toWholeNumber(blockNumber);
    const block = height === null || height < 0 ? null : ((await readBlock?.(height)) ?? null);
    // A question by our operator's mapping has no field for the network, since the endpoint serves only one.
    return block && (network === undefined || network === block.network) ? truthOf(block) : null;
  },
});

/**
 * The class of endpoints that return data of a block. We ask about final blocks, which never change, read the right
 * value from nodes of our own choice, which have to agree, and record it with the question.
 */
export const chainData: Checker = {
  name: "chain-data",
  variants: {
    block_hash: {
      ...blockVariant("hash", ({ hash }) => hash),
      delivery: (value) => booleanScore(/^0x[0-9a-f]{64}$/.test(lowerCaseText(value))),
      score: (value, truth) =>
        booleanScore(lowerCaseText(value) === lowerCaseText(truth) && lowerCaseText(truth) !== ""),
    },
    block_time: {
      ...blockVariant("timestamp", ({ time }) => time),
      delivery: (value) => booleanScore(toUnixSeconds(value) !== undefined),
      score: (value, truth) => booleanScore(toUnixSeconds(value) === truth),
    },
  },
};
