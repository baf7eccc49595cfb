import canonicalize from "canonicalize";

/**
 * RFC 8785 without Node: what a browser, a client or an auditor needs to rebuild signed bytes.
 * `canonical.ts` adds hashing; on the server import that one.
 */

/** What RFC 8785 can print. Anything else (undefined, function, bigint, NaN) is refused before it becomes bad bytes. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json | undefined };

/** Nesting that we sign or hash; the canonicalizer recurses and would overflow the stack near 5,000. */
export const MAX_DEPTH = 64;

/** Past this, two different integers in a text are the same double, so a signature would hold for both. */
export const MAX_INTEGER = 2 ** 53;

export interface CanonicalOptions {
  /** Refuse integers past 2^53: for everything that is published. Plain RFC 8785 prints them. */
  published?: boolean;
}

export const LONE_SURROGATE = /\p{Surrogate}/u;

const fail = (what: string, path: string): never => {
  throw new TypeError(`not canonical: ${what} at ${path || "/"}`);
};

/** Why this number is not printed, or null. */
export function numberFault(value: number, published: boolean): string | null {
  if (!Number.isFinite(value)) return String(value);
  const isPast = published && Number.isInteger(value) && Math.abs(value) > MAX_INTEGER;
  return isPast ? `integer past 2^53 (${value})` : null;
}

/** A Date, Map, Buffer or database value has its own idea of JSON; what is signed must be what is sent. */
export function isInstance(value: object): boolean {
  const proto = Object.getPrototypeOf(value);
  return proto !== null && Object.getPrototypeOf(proto) !== null;
}

function refuseObject(value: object, path: string, depth: number, published: boolean): void {
  if (isInstance(value)) fail("an instance of a class", path);
  for (const [key, item] of Object.entries(value)) {
    if (LONE_SURROGATE.test(key)) fail("lone surrogate in a name", path);
    if (item !== undefined) refuse(item, `${path}/${key}`, depth + 1, published);
  }
}

function refuse(value: unknown, path: string, depth: number, published: boolean): void {
  if (depth > MAX_DEPTH) fail(`deeper than ${MAX_DEPTH}`, path);
  if (value === null || typeof value === "boolean") return;
  if (typeof value === "string") {
    if (LONE_SURROGATE.test(value)) fail("lone surrogate", path);
  } else if (typeof value === "number") {
    const fault = numberFault(value, published);
    if (fault !== null) fail(fault, path);
  } else if (Array.isArray(value)) {
    // By index, so that a hole counts as the undefined it reads as: the canonicalizer would print `[1,,2]`.
    for (let i = 0; i < value.length; i++) refuse(value[i], `${path}/${i}`, depth + 1, published);
  } else if (typeof value === "object") {
    refuseObject(value, path, depth, published);
  } else {
    fail(typeof value, path);
  }
}

/**
 * RFC 8785 text of a JSON value. Members that are `undefined` are left out, as JSON.stringify does.
 * @throws TypeError, naming the place, on functions, bigint, NaN, infinities, undefined in an array, instances of
 * classes, lone surrogates (RFC 8785 section 3.2.2.2), nesting past MAX_DEPTH and, with `published`, integers past 2^53.
 */
export function canonicalText(value: unknown, options: CanonicalOptions = {}): string {
  refuse(value, "", 0, options.published ?? false);
  const text = canonicalize(value);
  if (text === undefined) throw new TypeError("not canonical: nothing to print");
  return text;
}
