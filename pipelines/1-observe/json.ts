import { canonicalBytes, sha256hex } from "../../infra/canonical.ts";

export {
  clean,
  get,
  isObject,
  type JsonObject,
  MAX_NESTED,
  MAX_VALUES_LONG_TEXT,
  parseBase64Json,
  parseJson,
  show,
  text,
  withoutSlashes,
} from "../record/json.ts";

/**
 * Returns the sha256 of a value's canonical JSON (RFC 8785). null when the value has no canonical form (too deep, a
 * number past 2^53, a lone surrogate). Such a value cannot be compared, and counts as not declared.
 */
export function hashOf(value: unknown): string | null {
  try {
    return sha256hex(canonicalBytes(value));
  } catch {
    return null;
  }
}

/** Largest value that the record keeps, in bytes of its canonical JSON. */
export const MAX_KEPT_BYTES = 32_768;

/** Returns the value if it is small enough and has a canonical form, else undefined. */
export function valueIfKeepable(value: unknown): unknown {
  if (value === undefined || value === null) return undefined;
  try {
    return canonicalBytes(value).length <= MAX_KEPT_BYTES ? value : undefined;
  } catch {
    return undefined;
  }
}

/** A type without its index signature: only the members that are declared by name. */
export type WithoutIndex<T> = { [K in keyof T as string extends K ? never : K]: T[K] };
