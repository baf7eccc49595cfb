/**
 * RFC 8785 (JSON Canonicalization Scheme) without Node's modules, for browsers, clients and auditors that rebuild signed
 * bytes. Values are checked and printed in one walk, since cards are printed by the million; tests compare it with the
 * package `canonicalize`. Code that runs on Node imports `canonical.ts`, which adds hashing.
 */

/** A value that RFC 8785 can print. Other values (function, bigint, NaN) are refused. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json | undefined };

/** Deepest nesting that is printed. The walk recurses, so untrusted objects are bounded to protect the stack. */
export const MAX_DEPTH = 64;

/**
 * Largest integer that is published, 2^53 - 1. Above it two different integers in a text parse to the same double, so a
 * signature over one would hold for the other (RFC 7493 section 2.2).
 */
export const MAX_INTEGER = Number.MAX_SAFE_INTEGER;

export interface CanonicalOptions {
  /** Refuses integers past 2^53 - 1; set for everything that is published. Plain RFC 8785 prints them. */
  published?: boolean;
}

const LONE_SURROGATE = /\p{Surrogate}/u;

/** Matches ASCII text that needs no escapes. */
const PLAIN = /^[ !#-[\]-~]*$/;

/** State of a walk: the path of names and positions to the current value, for messages. */
interface Walk {
  at: (string | number)[];
  published: boolean;
}

function fail(what: string, { at }: Walk): never {
  throw new TypeError(`not canonical: ${what} at /${at.join("/")}`);
}

function printString(value: string, what: string, walk: Walk): string {
  if (PLAIN.test(value)) return `"${value}"`;
  if (LONE_SURROGATE.test(value)) fail(what, walk);
  // For well-formed text RFC 8785 section 3.2.2.2 is what JSON.stringify prints.
  return JSON.stringify(value);
}

function printNumber(value: number, walk: Walk): string {
  if (!Number.isFinite(value)) fail(String(value), walk);
  const isPast = walk.published && Number.isInteger(value) && Math.abs(value) > MAX_INTEGER;
  if (isPast) fail(`integer past 2^53 - 1 (${value})`, walk);
  return String(value);
}

function printArray(value: readonly unknown[], walk: Walk): string {
  let text = "";
  // By index, so that a hole is refused like an undefined element.
  for (let i = 0; i < value.length; i++) {
    walk.at.push(i);
    text += `${i > 0 ? "," : ""}${print(value[i], walk)}`;
    walk.at.pop();
  }
  return `[${text}]`;
}

/** Prints the members with these names, in this order, without braces. */
function printMembers(value: Record<string, unknown>, names: readonly string[], walk: Walk): string {
  let text = "";
  for (const name of names) {
    const item = value[name];
    if (item === undefined) continue;
    const printed = printString(name, "lone surrogate in a name", walk);
    walk.at.push(name);
    text += `${text ? "," : ""}${printed}:${print(item, walk)}`;
    walk.at.pop();
  }
  return text;
}

/** Reports whether a value is an instance of a class (Date, Map, Buffer), which JSON.stringify might print differently. */
function isInstance(value: object): boolean {
  const proto = Object.getPrototypeOf(value);
  return proto !== null && Object.getPrototypeOf(proto) !== null;
}

/** Returns the names of a plain object in the order of RFC 8785 section 3.2.3 (by UTF-16 code unit). */
function namesOf(value: object, walk: Walk): string[] {
  if (isInstance(value)) fail("an instance of a class", walk);
  return Object.keys(value).sort();
}

function print(value: unknown, walk: Walk): string {
  if (walk.at.length > MAX_DEPTH) fail(`deeper than ${MAX_DEPTH}`, walk);
  if (value === null || typeof value === "boolean") return String(value);
  if (typeof value === "string") return printString(value, "lone surrogate", walk);
  if (typeof value === "number") return printNumber(value, walk);
  if (Array.isArray(value)) return printArray(value, walk);
  if (typeof value !== "object") fail(typeof value, walk);
  return `{${printMembers(value as Record<string, unknown>, namesOf(value, walk), walk)}}`;
}

/**
 * Returns the RFC 8785 text of a JSON value. Members that are `undefined` are left out, as JSON.stringify does.
 * @throws TypeError with the path, on functions, bigint, NaN, infinities, undefined in an array, instances of classes, lone
 * surrogates (RFC 8785 section 3.2.2.2), nesting past MAX_DEPTH and, with `published`, integers past 2^53 - 1
 */
export const canonicalText = (value: unknown, { published = false }: CanonicalOptions = {}): string =>
  print(value, { at: [], published });

/** The text of an object split at the position of one more member: the members before and after it, without braces. */
export interface SplitText {
  before: string;
  after: string;
}

/**
 * Returns the RFC 8785 text of an object without one member, split where that member belongs. {@link joinHalves} inserts
 * the member later, so that a member that is already printed, or not yet known, need not be printed with the others.
 * @throws TypeError as {@link canonicalText} does
 */
export function canonicalHalves(object: object, name: string, { published = false }: CanonicalOptions = {}): SplitText {
  const walk: Walk = { at: [], published };
  const names = namesOf(object, walk);
  const half = (of: readonly string[]) => printMembers(object as Record<string, unknown>, of, walk);
  return { before: half(names.filter((one) => one < name)), after: half(names.filter((one) => one > name)) };
}

const joined = (a: string, b: string): string => (a && b ? `${a},${b}` : a || b);

/** Joins a split object. @param member the member between the halves, printed as `"name":value`; none by default */
export const joinHalves = ({ before, after }: SplitText, member = ""): string =>
  `{${joined(joined(before, member), after)}}`;
