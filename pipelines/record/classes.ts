/**
 * A class of endpoints whose answers we can check, and how. `any` is the class of everything else: only delivery is
 * evaluated. A class with `generate` makes inputs whose answer it knows; `score` compares with the truth.
 */
export interface Checker {
  name: string;
  /** The deepest thing it can check: truth (a known answer), schema, or parse. */
  level: "truth" | "schema" | "parse";
  /** A known-answer input from 32 pseudo-random bytes, in the form the endpoint's own example has; null when it has none. */
  generate(seed: Uint8Array, example: Example): KnownAnswer | null;
  /** Class check of a delivered answer (delivery): 0..1. `parsed` is the JSON value, or undefined when it is none. */
  delivery(parsed: unknown): number;
  /** Partial credit, 0..1, of an answer to a question whose `truth` is known. Never throws. */
  score(parsed: unknown, truth: unknown): number;
}

export interface Example {
  query?: Record<string, string> | undefined;
  body?: unknown;
}

/** Plain data: the answer is scored in another thread than the one that asked. */
export interface KnownAnswer {
  input: Example;
  /** What the checker that made it scores answers against. */
  truth: unknown;
}

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
const arithmetic: Checker = {
  name: "arithmetic",
  level: "truth",
  generate(seed: Uint8Array, example: Example): KnownAnswer | null {
    const { query, body } = example;
    const a = number(seed, 0);
    const b = number(seed, 2);
    const truth = a + b;
    if (named(query)) return { input: { query: { ...query, a: String(a), b: String(b) } }, truth };
    if (named(body)) return { input: { body: { ...body, a: like(body.a, a), b: like(body.b, b) } }, truth };
    return null;
  },
  delivery: (parsed) => (sumOf(parsed) === undefined ? 0 : 1),
  score: (parsed, truth) => (sumOf(parsed) === truth ? 1 : 0),
};

function sumOf(parsed: unknown): number | undefined {
  const sum = (parsed as { sum?: unknown } | null | undefined)?.sum;
  return typeof sum === "number" && Number.isFinite(sum) ? sum : undefined;
}

/** Everything we have no checker for: it came, it parses, it is no error page. */
export const any: Checker = { name: "any", level: "schema", generate: () => null, delivery: () => 1, score: () => 0 };

const CHECKERS: readonly Checker[] = [arithmetic, any];

/** The checker of a class by name; an unknown name is `any`. */
export const checkerOf = (name: string): Checker => CHECKERS.find((checker) => checker.name === name) ?? any;

/** Class of a listing by what its input and output look like; sellers may also name one (`class` in their listing). */
export function classOf(hints: {
  named?: string | undefined;
  example?: { query?: Record<string, string> } | null;
}): string {
  if (hints.named && checkerOf(hints.named) !== any) return hints.named;
  return any.name;
}
