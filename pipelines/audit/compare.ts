import { canonicalText } from "../../infra/canonical.ts";

/** The first place where two values differ, as a path from the top; members in the order of RFC 8785. */
export interface Difference {
  field: string;
  expected: string;
  got: string;
}

const MAX_SHOWN = 200;
const shown = (value: unknown): string => (value === undefined ? "nothing" : canonicalText(value).slice(0, MAX_SHOWN));
const isObject = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null;

/** @param expected what was recomputed @param got what is published @returns null when their RFC 8785 bytes are equal */
export function firstDifference(expected: unknown, got: unknown, field = ""): Difference | null {
  if (expected !== undefined && got !== undefined && canonicalText(expected) === canonicalText(got)) return null;
  const inside = isObject(expected) && isObject(got) && Array.isArray(expected) === Array.isArray(got);
  if (!inside) return { field, expected: shown(expected), got: shown(got) };
  for (const name of [...new Set([...Object.keys(expected), ...Object.keys(got)])].sort()) {
    const same = expected[name] === got[name];
    const difference = same ? null : firstDifference(expected[name], got[name], field ? `${field}.${name}` : name);
    if (difference) return difference;
  }
  return { field, expected: shown(expected), got: shown(got) };
}
