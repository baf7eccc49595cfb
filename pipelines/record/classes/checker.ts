/**
 * A class of endpoints whose answers we can check, and how. `any` is the class of everything else: only delivery is
 * judged. A class with `generate` makes inputs whose answer it knows; `score` compares with the truth.
 */
export interface Checker {
  name: string;
  /** The deepest thing it can check: truth (a known answer), schema, or parse. */
  level: "truth" | "schema" | "parse";
  /** A known-answer input from 32 pseudo-random bytes, in the form the endpoint's own example has; null when it has none. */
  generate(seed: Uint8Array, example: Example): KnownAnswer | null;
  /** Class check of a delivered answer (delivery): 0..1. `parsed` is the JSON value, or undefined when it is none. */
  delivery(parsed: unknown): number;
}

export interface Example {
  query?: Record<string, string> | undefined;
  body?: unknown;
}

export interface KnownAnswer {
  input: Example;
  /** Partial credit of an answer, 0..1. Never throws. */
  score(parsed: unknown): number;
}
