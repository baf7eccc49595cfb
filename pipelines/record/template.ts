import { pathKey } from "./url.ts";

/** A segment that takes any text but none at all: `:name`. */
const ANY = Symbol("any");
/** Takes what is left of the path, at least one segment: `*`, `**`, `:name*`. */
const REST = Symbol("rest");

/** One segment of a template's path: literal text, {@link ANY}, {@link REST}, or braces between a head and a tail. */
type Part = string | typeof ANY | typeof REST | { head: string; tail: string };

const NAME = /^:[A-Za-z_]\w*(\*?)$/;

/** A listed url with placeholders, read once so that each question only compares. */
export interface Template {
  /** The url up to its first placeholder, in whole segments: `https://h.example/users` of `https://h.example/users/:id/x`. */
  prefix: string;
  /** Do the segments of a concrete url fall under it? At most one look at each character of both. */
  takes(segments: readonly string[]): boolean;
}

/**
 * Where the first `{name}` of a segment stands, as it is or escaped, or null. Found by position: an expression that tries
 * each `{` anew takes quadratic time over a thousand of them, and templates are strangers' text.
 */
function bracesOf(segment: string): { start: number; end: number } | null {
  const found = [
    ["{", "}"],
    ["%7B", "%7D"],
  ].flatMap(([open, close]) => {
    const start = segment.indexOf(open!);
    const end = start < 0 ? -1 : segment.indexOf(close!, start + open!.length);
    return end < 0 ? [] : [{ start, end: end + close!.length }];
  });
  return found.sort((a, b) => a.start - b.start)[0] ?? null;
}

function partOf(segment: string): Part {
  if (segment === "*" || segment === "**") return REST;
  const name = NAME.exec(segment);
  if (name) return name[1] ? REST : ANY;
  const braces = bracesOf(segment);
  return braces ? { head: segment.slice(0, braces.start), tail: segment.slice(braces.end) } : segment;
}

function partTakes(part: Part, value: string): boolean {
  if (typeof part === "string") return part === value;
  if (typeof part === "symbol") return value.length > 0;
  const { head, tail } = part;
  return value.length > head.length + tail.length && value.startsWith(head) && value.endsWith(tail);
}

function taken(parts: readonly Part[], segments: readonly string[]): boolean {
  for (let i = 0; i < parts.length; i++) {
    const part = parts[i]!;
    if (part === REST) return segments.length > i;
    if (i >= segments.length || !partTakes(part, segments[i]!)) return false;
  }
  return parts.length === segments.length;
}

/** Length of `https://host` in a normalised url. */
const originLength = (normalised: string): number => normalised.indexOf("/", "https://".length);

/** Segments of a normalised url's path: one trailing slash and the query are left out, and `/` has none. */
export function segmentsOf(normalised: string): string[] {
  const bare = pathKey(normalised);
  const from = originLength(normalised) + 1;
  return bare.length < from ? [] : bare.slice(from).split("/");
}

/**
 * The template that a normalised url is, or null: `/:name`, `{name}` in path or query, `*`. A colon inside a segment
 * (`/videos:lookup`) is none, and an escaped one (`%3A`) stays as it is. The first braces of a segment are its
 * placeholder; what stands around them is literal. Matching leaves the query aside. Time is linear in the url's length.
 */
export function compileTemplate(normalised: string): Template | null {
  const parts: Part[] = [];
  for (const segment of segmentsOf(normalised)) {
    const part = partOf(segment);
    parts.push(part);
    // It takes whatever stands behind it, so that is neither looked at nor kept: a stranger may list it by the hundred.
    if (part === REST) break;
  }
  const first = parts.findIndex((part) => typeof part !== "string");
  const query = normalised.indexOf("?");
  if (first < 0 && (query < 0 || !normalised.slice(query).split("/").some(bracesOf))) return null;
  const literal = (first < 0 ? parts : parts.slice(0, first)) as string[];
  const prefix = [normalised.slice(0, originLength(normalised)), ...literal].join("/");
  return { prefix, takes: (segments) => taken(parts, segments) };
}

/** Has this normalised url placeholders ({@link compileTemplate})? */
export const isTemplate = (normalised: string): boolean => compileTemplate(normalised) !== null;
