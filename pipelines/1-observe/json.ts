import { canonicalBytes, sha256hex } from "../../infra/canonical.ts";

export {
  clean,
  get,
  isObject,
  type JsonObject,
  MAX_NESTED,
  MOST_VALUES,
  parseBase64Json,
  parseJson,
  show,
  text,
  withoutSlashes,
} from "../record/json.ts";

/**
 * sha256 of the RFC 8785 bytes of a stranger's value. Null when it has none (too deep, a number past 2^53, a lone
 * surrogate): what cannot be written in one way cannot be compared, so it counts as not advertised.
 */
export function hashOf(value: unknown): string | null {
  try {
    return sha256hex(canonicalBytes(value));
  } catch {
    return null;
  }
}

/** Longest text of a value that we keep in the record. */
export const MAX_KEPT = 32_768;

/** The value itself when it is small and canonical enough to be written in the record, else undefined. */
export function keepable(value: unknown): unknown {
  if (value === undefined || value === null) return undefined;
  try {
    return canonicalBytes(value).length <= MAX_KEPT ? value : undefined;
  } catch {
    return undefined;
  }
}

/** The named members of a record's loose body, without the open rest. */
export type Named<T> = { [K in keyof T as string extends K ? never : K]: T[K] };
