import { canonicalBytes, MAX_DEPTH, sha256hex } from "../../infra/canonical.ts";

/** Strangers' JSON, read without trust: every getter takes anything and answers undefined for what is not there. */
export type JsonObject = Record<string, unknown>;

export const isObject = (value: unknown): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** An own member of an object: `__proto__` and `constructor` of a stranger's JSON never reach a prototype. */
export const get = (value: unknown, ...path: string[]): unknown => {
  let at = value;
  for (const key of path) {
    if (typeof at !== "object" || at === null || !Object.hasOwn(at, key)) return undefined;
    at = (at as JsonObject)[key];
  }
  return at;
};

/** Cut to `max` and made well-formed: a lone surrogate, the stranger's or from our cut, has no RFC 8785 form. */
export const clean = (value: string, max: number): string => value.slice(0, max).replace(/\p{Surrogate}/gu, "\ufffd");

/** Without the slashes at its end. A regular expression would backtrack at every slash. */
export function withoutSlashes(value: string): string {
  let end = value.length;
  while (value[end - 1] === "/") end--;
  return value.slice(0, end);
}

/** Text of at least one character, cut to `max`; undefined for anything else. */
export const text = (value: unknown, max: number): string | undefined =>
  typeof value === "string" && value.trim() ? clean(value.trim(), max) : undefined;

/** Nesting of a stranger's JSON that is read: what walks it may recurse. Twice what the record can hold. */
export const MAX_NESTED = 2 * MAX_DEPTH;
/** Values of one text that are read: terms and documents of real sellers have some thousands. */
const MAX_VALUES = 200_000;
/** Values where many are honest: a paid answer may be a megabyte of numbers, a catalogue may send all its rows at once. */
export const MOST_VALUES = 1_000_000;

const [QUOTE, BACKSLASH, COMMA] = ['"', "\\", ","].map((char) => char.charCodeAt(0));
const [OPEN, CLOSE, OPEN_LIST, CLOSE_LIST] = [..."{}[]"].map((char) => char.charCodeAt(0));

/** Where the text that begins at this quote ends: at the next one that no odd number of backslashes stands before. */
function endOfString(json: string, quote: number): number {
  for (let end = json.indexOf('"', quote + 1); end >= 0; end = json.indexOf('"', end + 1)) {
    let before = end - 1;
    while (json.charCodeAt(before) === BACKSLASH) before--;
    if ((end - before) % 2 === 1) return end;
  }
  return json.length;
}

/** Is this JSON, if it is any, nested at most {@link MAX_NESTED} deep, with at most `maxValues` values? Linear. */
function isBounded(json: string, maxValues: number): boolean {
  let depth = 0;
  let values = 1;
  for (let i = 0; i < json.length; i++) {
    const code = json.charCodeAt(i);
    if (code === QUOTE) i = endOfString(json, i);
    else if (code === COMMA) values++;
    else if (code === OPEN || code === OPEN_LIST) {
      values++;
      if (++depth > MAX_NESTED) return false;
    } else if (code === CLOSE || code === CLOSE_LIST) depth--;
    if (values > maxValues) return false;
  }
  return true;
}

/**
 * Bytes or text as JSON; undefined when it is none, and when it is nested too deep or has too many values to be walked.
 * Invalid UTF-8 is no JSON.
 */
export function parseJson(input: Uint8Array | string, maxValues = MAX_VALUES): unknown {
  try {
    const json = typeof input === "string" ? input : new TextDecoder("utf-8", { fatal: true }).decode(input);
    return isBounded(json, maxValues) ? JSON.parse(json) : undefined;
  } catch {
    return undefined;
  }
}

/** Any value as JSON text; what is nested too deep to print is only named. */
export function show(value: unknown): string {
  try {
    return JSON.stringify(value) ?? typeof value;
  } catch {
    return `unprintable ${typeof value}`;
  }
}

/** Base64 (either alphabet) of JSON; undefined when it is none. Node's decoder skips what it does not know. */
export const parseBase64Json = (input: string): unknown => parseJson(Buffer.from(input, "base64"));

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
