import { type Checker, toWholeNumber } from "./checker.ts";

const drawNumber = (seed: Uint8Array, offset: number): number =>
  1 + (((seed[offset]! << 8) | seed[offset + 1]!) % 9000);

const isNumber = (value: unknown): boolean => typeof value === "number" && Number.isFinite(value);

/**
 * The simplest class with known answers: an endpoint takes two numbers `a` and `b` from its query or JSON body (an
 * MCP tool, from its arguments) and answers `{"sum": n}`.
 */
export const arithmetic: Checker = {
  name: "arithmetic",
  variants: {
    sum: {
      asks: ["a", "b"],
      answer: "/sum",
      draw(seed) {
        const a = drawNumber(seed, 0);
        const b = drawNumber(seed, 2);
        return { fields: { a, b }, truth: a + b };
      },
      solve({ a, b }) {
        const [first, second] = [toWholeNumber(a), toWholeNumber(b)];
        return first === null || second === null ? null : first + second;
      },
      delivery: (value) => (isNumber(value) ? 1 : 0),
      score: (value, truth) => (isNumber(value) && value === truth ? 1 : 0),
    },
  },
  scoreOther: (parsed) => (isNumber((parsed as { sum?: unknown } | null | undefined)?.sum) ? 1 : 0),
};
