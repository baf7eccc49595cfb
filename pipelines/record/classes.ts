import { arithmetic } from "./classes/arithmetic.ts";
import { calendarFacts } from "./classes/calendar.ts";
import { chainData } from "./classes/chain-data.ts";
import type { Checker, KnownAnswer, Variant } from "./classes/checker.ts";
import { companyName } from "./classes/company-name.ts";
import { encodings } from "./classes/encodings.ts";
import { geoFacts } from "./classes/geo.ts";
import { knownRows } from "./classes/known-rows.ts";
import { llmEcho } from "./classes/llm-echo.ts";
import { plantedPage } from "./classes/planted-page.ts";
import { tokenPrice } from "./classes/token-price.ts";

export type { Checker, Example, KnownAnswer, TruthSources, Variant } from "./classes/checker.ts";

/**
 * The class of endpoints without a checker: only delivery is checked, that is, an answer came, parses, and is no error
 * page.
 */
export const any: Checker = { name: "any", variants: {} };

/** Every class with its checker. Each has a section in docs/classes.md. */
export const CHECKERS: readonly Checker[] = [
  arithmetic,
  encodings,
  calendarFacts,
  geoFacts,
  llmEcho,
  plantedPage,
  chainData,
  tokenPrice,
  companyName,
  knownRows,
  any,
];

/** The checker of a class by name; an unknown name is `any`. */
export const checkerOf = (name: string): Checker => CHECKERS.find((checker) => checker.name === name) ?? any;

/** The question that an answer is compared with; null for a class or a question that is not known (any more). */
export function variantOf({ class: name, variant }: Pick<KnownAnswer, "class" | "variant">): Variant | null {
  const { variants } = checkerOf(name);
  return Object.hasOwn(variants, variant) ? variants[variant]! : null;
}

/** The class that a listing names (`class`); `any` where it names none, or one that no checker has. */
export function classOf(hints: { named?: string | undefined }): string {
  return checkerOf(hints.named ?? any.name).name;
}
