import { MAX_DEPTH } from "../../infra/canonical-text.ts";

/** Functions that read strangers' JSON. Every getter accepts any value and returns undefined for what is missing. */
export type JsonObject = Record<string, unknown>;

export const isObject = (value: unknown): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/**
 * Returns the value at a path of own members. Only own members are read, so that `__proto__` or `constructor` in a
 * stranger's JSON never reach a prototype.
 */
export const get = (value: unknown, ...path: string[]): unknown => {
  let current = value;
  for (const key of path) {
    if (typeof current !== "object" || current === null || !Object.hasOwn(current, key)) return undefined;
    current = (current as JsonObject)[key];
  }
  return current;
};

/**
 * Cuts a text to `max` characters and then replaces lone surrogates, which have no RFC 8785 form. The text may
 * contain some, and the cut may leave one.
 */
export const clean = (value: string, max: number): string => value.slice(0, max).replace(/\p{Surrogate}/gu, "\ufffd");

/**
 * Removes the slashes at the end of a text. It uses a loop, since a regular expression would take quadratic time on
 * many slashes.
 */
export function withoutSlashes(value: string): string {
  let end = value.length;
  while (value[end - 1] === "/") end--;
  return value.slice(0, end);
}

/** Returns a trimmed text of at least one character, cut to `max`; undefined for anything else. */
export const text = (value: unknown, max: number): string | undefined =>
  typeof value === "string" && value.trim() ? clean(value.trim(), max) : undefined;

/**
 * Deepest nesting of a stranger's JSON that is parsed, since functions that walk the value may recurse. It is twice
 * the depth that a record may have.
 */
export const MAX_NESTED = 2 * MAX_DEPTH;
/**
 * Largest number of values in one JSON text that is parsed. Payment terms and API descriptions of real sellers have
 * some thousands.
 */
export const MAX_VALUES = 200_000;
/**
 * Largest number of values in a JSON text of a kind that may be long: a paid answer may be a megabyte of numbers, and a
 * catalogue may send all its endpoints at once.
 */
export const MAX_VALUES_LONG_TEXT = 1_000_000;

const [QUOTE, BACKSLASH, COMMA] = ['"', "\\", ","].map((char) => char.charCodeAt(0));
const [OPEN, CLOSE, OPEN_LIST, CLOSE_LIST] = [..."{}[]"].map((char) => char.charCodeAt(0));

/**
 * Finds the end of the string that begins at this quote: the next quote that is not preceded by an odd number of
 * backslashes.
 */
function findStringEnd(json: string, quote: number): number {
  for (let end = json.indexOf('"', quote + 1); end >= 0; end = json.indexOf('"', end + 1)) {
    let before = end - 1;
    while (json.charCodeAt(before) === BACKSLASH) before--;
    if ((end - before) % 2 === 1) return end;
  }
  return json.length;
}

/**
 * Is a text, assuming that it is JSON, nested at most {@link MAX_NESTED} deep, with at most `maxValues` values? Takes
 * linear time.
 */
export function isBounded(json: string, maxValues = MAX_VALUES): boolean {
  let depth = 0;
  let values = 1;
  for (let i = 0; i < json.length; i++) {
    const code = json.charCodeAt(i);
    if (code === QUOTE) i = findStringEnd(json, i);
    else if (code === COMMA) values++;
    else if (code === OPEN || code === OPEN_LIST) {
      values++;
      if (++depth > MAX_NESTED) return false;
    } else if (code === CLOSE || code === CLOSE_LIST) depth--;
    if (values > maxValues) return false;
  }
  return true;
}

/** Parses JSON; undefined for a text that is no JSON or no UTF-8, is nested too deep, or has too many values. */
export function parseJson(input: Uint8Array | string, maxValues = MAX_VALUES): unknown {
  try {
    const json = typeof input === "string" ? input : new TextDecoder("utf-8", { fatal: true }).decode(input);
    return isBounded(json, maxValues) ? JSON.parse(json) : undefined;
  } catch {
    return undefined;
  }
}

/** Returns any value as JSON text, or only its type if the value has no JSON form or is nested too deep to print. */
export function show(value: unknown): string {
  try {
    return JSON.stringify(value) ?? typeof value;
  } catch {
    return `unprintable ${typeof value}`;
  }
}

/**
 * Base64 in the standard or the URL-safe alphabet, padded or not (RFC 4648 sections 4 and 5). The decoders of all
 * wallets decode these characters alike.
 */
const PLAIN_BASE64 = /^[A-Za-z0-9+/_-]*={0,2}$/;

/** Is this base64 that all decoders decode alike? Decoders differ in how they treat other characters. */
export const isPlainBase64 = (input: string): boolean =>
  PLAIN_BASE64.test(input) && removePadding(input).length % 4 !== 1;

function removePadding(input: string): string {
  let end = input.length;
  while (input[end - 1] === "=") end--;
  return input.slice(0, end);
}

/** Decodes base64 in either alphabet, ignoring white space; null when the text is no base64. */
function decodeBase64(input: string): Uint8Array | null {
  const standard = removePadding(input.replace(/[\t\n\f\r ]/g, ""))
    .replaceAll("-", "+")
    .replaceAll("_", "/");
  try {
    return Uint8Array.from(atob(standard), (char) => char.charCodeAt(0));
  } catch {
    return null;
  }
}

/**
 * Parses JSON as the clients of the payment protocols do: it replaces bytes that are no UTF-8, since Latin-1 text
 * from `btoa` is common. Like {@link parseJson}, it returns undefined for a text that is no JSON, is nested too deep,
 * or has too many values.
 */
export const parseLooseJson = (bytes: Uint8Array): unknown => parseJson(new TextDecoder().decode(bytes));

/** Parses JSON that is encoded in base64; undefined if the text is no base64 or what it encodes is no JSON. */
export function parseBase64Json(input: string): unknown {
  const bytes = decodeBase64(input);
  return bytes === null ? undefined : parseLooseJson(bytes);
}
