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
 * sha256 of the RFC 8785 bytes of a stranger's value. null when the value has no such form (too deep, a number past
 * 2^53, a lone surrogate): then it cannot be compared, and it counts as not declared.
 */
export function hashOf(value: unknown): string | null {
  try {
    return sha256hex(canonicalBytes(value));
  } catch {
    return null;
  }
}

/** Longest value that the record keeps, bytes of its canonical form. */
export const MAX_KEPT = 32_768;

/** The value when it is small enough and has a canonical form, else undefined. */
export function valueIfKeepable(value: unknown): unknown {
  if (value === undefined || value === null) return undefined;
  try {
    return canonicalBytes(value).length <= MAX_KEPT ? value : undefined;
  } catch {
    return undefined;
  }
}

/** A type without its index signature: only the members that are declared by name. */
export type WithoutIndex<T> = { [K in keyof T as string extends K ? never : K]: T[K] };
