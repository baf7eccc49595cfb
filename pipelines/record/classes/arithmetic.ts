import type { Checker, Example, KnownAnswer } from "./checker.ts";

const number = (seed: Uint8Array, at: number): number => 1 + (((seed[at]! << 8) | seed[at + 1]!) % 9000);

const named = (value: unknown): value is { a: unknown; b: unknown } =>
  typeof value === "object" && value !== null && "a" in value && "b" in value;

/** A number in the form the example has it: text where a query or a careful body has text. */
const like = (example: unknown, value: number): number | string =>
  typeof example === "string" ? String(value) : value;

/**
 * Adds two numbers `a` and `b` from the query, or from a JSON body (a tool's arguments), and answers `{"sum": n}`: the
 * simplest class with a known answer.
 */
export const arithmetic: Checker = {
  name: "arithmetic",
  level: "truth",
  generate(seed: Uint8Array, example: Example): KnownAnswer | null {
    const { query, body } = example;
    const a = number(seed, 0);
    const b = number(seed, 2);
    const score = (parsed: unknown): number => (sumOf(parsed) === a + b ? 1 : 0);
    if (named(query)) return { input: { query: { ...query, a: String(a), b: String(b) } }, score };
    if (named(body)) return { input: { body: { ...body, a: like(body.a, a), b: like(body.b, b) } }, score };
    return null;
  },
  delivery: (parsed) => (sumOf(parsed) === undefined ? 0 : 1),
};

function sumOf(parsed: unknown): number | undefined {
  const sum = (parsed as { sum?: unknown } | null | undefined)?.sum;
  return typeof sum === "number" && Number.isFinite(sum) ? sum : undefined;
}
