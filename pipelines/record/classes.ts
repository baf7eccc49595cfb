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
 * The class of endpoints to which we know no right answer. Only delivery is checked: there is an answer, it parses,
 * and it is no error page.
 */
export const anyClass: Checker = { name: "any", variants: {} };

/**
 * The checkers of all classes (kinds of endpoints by the questions that they answer). docs/classes.md has a section
 * for each.
 */
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
  anyClass,
];

/** Returns the checker of a class by name; the checker of class `any` for an unknown name. */
export const checkerOf = (name: string): Checker => CHECKERS.find((checker) => checker.name === name) ?? anyClass;

/**
 * Returns the variant (kind of question) by which an answer is scored; null for a class or a variant that does not
 * exist or was removed.
 */
export function variantOf({ class: name, variant }: Pick<KnownAnswer, "class" | "variant">): Variant | null {
  const { variants } = checkerOf(name);
  return Object.hasOwn(variants, variant) ? variants[variant]! : null;
}

/** Returns the class that a listing names; `any` if it names none, or an unknown class. */
export function classOf(hints: { named?: string | undefined }): string {
  return checkerOf(hints.named ?? anyClass.name).name;
}
