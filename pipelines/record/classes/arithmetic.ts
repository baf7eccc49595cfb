import type { Checker, Example, KnownAnswer } from "./checker.ts";

const number = (seed: Uint8Array, at: number): number => 1 + (((seed[at]! << 8) | seed[at + 1]!) % 9000);

/** Adds two numbers `a` and `b` from the query and answers `{"sum": n}`: the simplest class with a known answer. */
export const arithmetic: Checker = {
  name: "arithmetic",
  level: "truth",
  generate(seed: Uint8Array, example: Example): KnownAnswer | null {
    const query = example.query;
    if (!query || !("a" in query) || !("b" in query)) return null;
    const a = number(seed, 0);
    const b = number(seed, 2);
    return {
      input: { query: { ...query, a: String(a), b: String(b) } },
      score: (parsed) => (sumOf(parsed) === a + b ? 1 : 0),
    };
  },
  delivery: (parsed) => (sumOf(parsed) === undefined ? 0 : 1),
};

function sumOf(parsed: unknown): number | undefined {
  const sum = (parsed as { sum?: unknown } | null | undefined)?.sum;
  return typeof sum === "number" && Number.isFinite(sum) ? sum : undefined;
}
