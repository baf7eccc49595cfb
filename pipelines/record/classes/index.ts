import { arithmetic } from "./arithmetic.ts";
import type { Checker } from "./checker.ts";

/** Everything we have no checker for: it came, it parses, it is no error page. */
export const any: Checker = { name: "any", level: "schema", generate: () => null, delivery: () => 1 };

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
