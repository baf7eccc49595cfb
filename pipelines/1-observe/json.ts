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
 * sha256 of the RFC 8785 bytes of a stranger's value. Null when the value has no canonical form (too deep, a number
 * past 2^53, a lone surrogate): it cannot be compared then, and counts as not advertised.
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
export function keepable(value: unknown): unknown {
  if (value === undefined || value === null) return undefined;
  try {
    return canonicalBytes(value).length <= MAX_KEPT ? value : undefined;
  } catch {
    return undefined;
  }
}

/** The members of a type that have names, without its index signature. */
export type Named<T> = { [K in keyof T as string extends K ? never : K]: T[K] };
