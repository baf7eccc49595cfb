/**
 * Prints JSON by RFC 8785 (JSON Canonicalization Scheme) without Node's modules, for browsers, clients and auditors
 * that rebuild the bytes of a signature. A value is checked and printed in one walk, since millions of cards are
 * printed; tests compare the output with that of the package `canonicalize`. Code that runs on Node imports
 * `canonical.ts`, which adds hashing.
 */

/** A value that RFC 8785 can print. Other values (function, bigint, NaN) are refused. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json | undefined };

/**
 * Deepest nesting that is printed. The walk recurses, so this limit keeps untrusted objects from overflowing the stack.
 */
export const MAX_DEPTH = 64;

/**
 * Largest integer that may be published, 2^53 - 1. Above it, different integers in a text parse to the same double, so
 * a signature over one integer would also verify for another (RFC 7493 section 2.2).
 */
export const MAX_INTEGER = Number.MAX_SAFE_INTEGER;

export interface CanonicalOptions {
  /**
   * True: integers above 2^53 - 1 are refused, as in everything that is published. False (default): they are printed,
   * as plain RFC 8785 does.
   */
  published?: boolean;
}

const LONE_SURROGATE = /\p{Surrogate}/u;

/** Matches ASCII text that needs no escapes. */
const UNESCAPED_ASCII = /^[ !#-[\]-~]*$/;

/** State of a walk through a value; `path` leads to the part that is being printed, for error messages. */
interface Walk {
  path: (string | number)[];
  published: boolean;
}

function fail(what: string, { path: at }: Walk): never {
  throw new TypeError(`not canonical: ${what} at /${at.join("/")}`);
}

function printString(value: string, what: string, walk: Walk): string {
  if (UNESCAPED_ASCII.test(value)) return `"${value}"`;
  if (LONE_SURROGATE.test(value)) fail(what, walk);
  // JSON.stringify prints well-formed text as RFC 8785 section 3.2.2.2 requires.
  return JSON.stringify(value);
}

function printNumber(value: number, walk: Walk): string {
  if (!Number.isFinite(value)) fail(String(value), walk);
  const isTooLarge = walk.published && Number.isInteger(value) && Math.abs(value) > MAX_INTEGER;
  if (isTooLarge) fail(`integer past 2^53 - 1 (${value})`, walk);
  return String(value);
}

function printArray(value: readonly unknown[], walk: Walk): string {
  let text = "";
  // The loop goes by index, so that a hole in the array is refused like an undefined element.
  for (let i = 0; i < value.length; i++) {
    walk.path.push(i);
    text += `${i > 0 ? "," : ""}${print(value[i], walk)}`;
    walk.path.pop();
  }
  return `[${text}]`;
}

/** Prints the members with these names, in the given order, without braces. Members that are undefined are left out. */
function printMembers(value: Record<string, unknown>, names: readonly string[], walk: Walk): string {
  let text = "";
  for (const name of names) {
    const item = value[name];
    if (item === undefined) continue;
    const printed = printString(name, "lone surrogate in a name", walk);
    walk.path.push(name);
    text += `${text ? "," : ""}${printed}:${print(item, walk)}`;
    walk.path.pop();
  }
  return text;
}

/**
 * Reports whether a value is an instance of a class (Date, Map, Buffer), which JSON.stringify might print differently.
 */
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
  if (walk.path.length > MAX_DEPTH) fail(`deeper than ${MAX_DEPTH}`, walk);
  if (value === null || typeof value === "boolean") return String(value);
  if (typeof value === "string") return printString(value, "lone surrogate", walk);
  if (typeof value === "number") return printNumber(value, walk);
  if (Array.isArray(value)) return printArray(value, walk);
  if (typeof value !== "object") fail(typeof value, walk);
  return `{${printMembers(value as Record<string, unknown>, namesOf(value, walk), walk)}}`;
}

/**
 * Returns the RFC 8785 text of a JSON value. Members that are `undefined` are left out, as JSON.stringify does.
 * @throws TypeError with the path of the offending part: a function, bigint, NaN, infinity, undefined in an array,
 * instance of a class, or lone surrogate (RFC 8785 section 3.2.2.2); nesting deeper than MAX_DEPTH; with `published`,
 * an integer above 2^53 - 1
 */
export const canonicalText = (value: unknown, { published = false }: CanonicalOptions = {}): string =>
  print(value, { path: [], published });

/**
 * The text of an object without one of its members: the members before that member and those after it, without braces.
 */
export interface SplitText {
  before: string;
  after: string;
}

/**
 * Prints an object without the member `name`, as two halves between which the member belongs. {@link joinHalves}
 * inserts the member later. A caller uses this when the member is already printed, or when its value is not yet known.
 * @throws TypeError as {@link canonicalText} does
 */
export function canonicalHalves(object: object, name: string, { published = false }: CanonicalOptions = {}): SplitText {
  const walk: Walk = { path: [], published };
  const names = namesOf(object, walk);
  const printHalf = (memberNames: readonly string[]) =>
    printMembers(object as Record<string, unknown>, memberNames, walk);
  return { before: printHalf(names.filter((one) => one < name)), after: printHalf(names.filter((one) => one > name)) };
}

const joinNonEmpty = (a: string, b: string): string => (a && b ? `${a},${b}` : a || b);

/** Joins a split object. @param member the member between the halves, printed as `"name":value`; none by default */
export const joinHalves = ({ before, after }: SplitText, member = ""): string =>
  `{${joinNonEmpty(joinNonEmpty(before, member), after)}}`;
