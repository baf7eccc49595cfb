import { type CanonicalOptions, isInstance, LONE_SURROGATE, MAX_DEPTH, numberFault } from "./canonical-text.ts";

/**
 * RFC 8785 for those who print by the million: what is refused and what is printed in one walk, and objects of which a
 * member is printed already. A card takes 18 us, and 30 us by `canonicalText`, where a walk refuses and then the library
 * prints. Whoever checks signatures uses that one, so what is published here is proven there by another printer; tests hold
 * the two against each other as well.
 */

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
  const fault = numberFault(value, walk.published);
  if (fault !== null) fail(fault, walk);
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

/** What `canonicalText` says, and the same refusals. @throws TypeError, naming the place */
export const printCanonical = (value: unknown, { published = false }: CanonicalOptions = {}): string =>
  print(value, { at: [], published });

/** An object's text cut in two, where a further member would stand: the members before and after it, without braces. */
export interface Halves {
  before: string;
  after: string;
}

/**
 * RFC 8785 text of an object without the member of this name, cut where that belongs: what is printed already, or is known
 * only later, is put there by {@link joinHalves} and nothing is printed twice.
 * @throws TypeError as {@link printCanonical} does
 */
export function canonicalHalves(object: object, name: string, { published = false }: CanonicalOptions = {}): Halves {
  const walk: Walk = { at: [], published };
  const names = namesOf(object, walk);
  const half = (of: readonly string[]) => printMembers(object as Record<string, unknown>, of, walk);
  return { before: half(names.filter((one) => one < name)), after: half(names.filter((one) => one > name)) };
}

const joined = (a: string, b: string): string => (a && b ? `${a},${b}` : a || b);

/** The whole object. @param member the one between, printed as `"name":value`; none by default */
export const joinHalves = ({ before, after }: Halves, member = ""): string =>
  `{${joined(joined(before, member), after)}}`;
