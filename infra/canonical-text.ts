/**
 * RFC 8785 without Node: what a browser, a client or an auditor needs to rebuild signed bytes. What is refused and what is
 * printed in one walk, since cards are printed by the million; tests hold it against the package `canonicalize`.
 * `canonical.ts` adds hashing; on the server import that one.
 */

/** What RFC 8785 can print. Anything else (undefined, function, bigint, NaN) is refused before it becomes bad bytes. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json | undefined };

/** Nesting that we sign or hash: the walk recurses, and a stranger's object must not overflow the stack. */
export const MAX_DEPTH = 64;

/**
 * Past this, two different integers in a text are the same double, so a signature would hold for both: 2^53 itself is what
 * 2^53 + 1 reads as (RFC 7493 section 2.2).
 */
export const MAX_INTEGER = Number.MAX_SAFE_INTEGER;

export interface CanonicalOptions {
  /** Refuse integers past 2^53 - 1: for everything that is published. Plain RFC 8785 prints them. */
  published?: boolean;
}

const LONE_SURROGATE = /\p{Surrogate}/u;

/** ASCII that stands in a text as it is. */
const PLAIN = /^[ !#-[\]-~]*$/;

/** A walk in progress: names and positions that lead to the value in hand. */
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
  // Of well-formed text RFC 8785 section 3.2.2.2 is what ECMAScript prints.
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
  // By index, so that a hole counts as the undefined it reads as.
  for (let i = 0; i < value.length; i++) {
    walk.at.push(i);
    text += `${i > 0 ? "," : ""}${print(value[i], walk)}`;
    walk.at.pop();
  }
  return `[${text}]`;
}

/** Members with these names, in their order, without braces. */
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

/** A Date, Map, Buffer or database value has its own idea of JSON; what is signed must be what is sent. */
function isInstance(value: object): boolean {
  const proto = Object.getPrototypeOf(value);
  return proto !== null && Object.getPrototypeOf(proto) !== null;
}

/** Names of a plain object by UTF-16 unit, as RFC 8785 section 3.2.3 orders them. */
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
 * RFC 8785 text of a JSON value. Members that are `undefined` are left out, as JSON.stringify does.
 * @throws TypeError, naming where, on functions, bigint, NaN, infinities, undefined in an array, instances of
 * classes, lone surrogates (RFC 8785 section 3.2.2.2), nesting past MAX_DEPTH and, with `published`, integers past 2^53 - 1.
 */
export const canonicalText = (value: unknown, { published = false }: CanonicalOptions = {}): string =>
  print(value, { at: [], published });

/** An object's text cut in two, where a further member would stand: the members before and after it, without braces. */
export interface SplitText {
  before: string;
  after: string;
}

/**
 * RFC 8785 text of an object without the member of this name, cut where that belongs: what is printed already, or is known
 * only later, is put there by {@link joinHalves} and nothing is printed twice.
 * @throws TypeError as {@link canonicalText} does
 */
export function canonicalHalves(object: object, name: string, { published = false }: CanonicalOptions = {}): SplitText {
  const walk: Walk = { at: [], published };
  const names = namesOf(object, walk);
  const half = (of: readonly string[]) => printMembers(object as Record<string, unknown>, of, walk);
  return { before: half(names.filter((one) => one < name)), after: half(names.filter((one) => one > name)) };
}

const joined = (a: string, b: string): string => (a && b ? `${a},${b}` : a || b);

/** The whole object. @param member the one between, printed as `"name":value`; none by default */
export const joinHalves = ({ before, after }: SplitText, member = ""): string =>
  `{${joined(joined(before, member), after)}}`;
