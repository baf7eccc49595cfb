import { pathKey } from "./url.ts";

/** Placeholder for one segment that is not empty: `:name`. */
const ONE_SEGMENT = Symbol("any");
/** Placeholder for the rest of the path, at least one segment: `*`, `**`, `:name*`. */
const REMAINING_SEGMENTS = Symbol("rest");

/** One segment of a template's path: literal text, a placeholder, or a `{name}` between a literal head and tail. */
type SegmentPattern = string | typeof ONE_SEGMENT | typeof REMAINING_SEGMENTS | { head: string; tail: string };

const NAMED_PLACEHOLDER = /^:[A-Za-z_]\w*(\*?)$/;

/** A listed url with placeholders, parsed for repeated matching. */
export interface Template {
  /**
   * The url up to its first placeholder, in whole segments: `https://h.example/users` of
   * `https://h.example/users/:id/x`.
   */
  prefix: string;
  /** Do the path segments of a concrete url match the template? Takes time linear in the sum of their lengths. */
  matches(segments: readonly string[]): boolean;
}

/**
 * Finds the first `{name}` of a segment, escaped or not; null if there is none. It uses indexOf, since a regular
 * expression would start again at each `{` of a stranger's text and take quadratic time.
 */
function findBraces(segment: string): { start: number; end: number } | null {
  const candidates = [
    ["{", "}"],
    ["%7B", "%7D"],
  ].flatMap(([open, close]) => {
    const start = segment.indexOf(open!);
    const end = start < 0 ? -1 : segment.indexOf(close!, start + open!.length);
    return end < 0 ? [] : [{ start, end: end + close!.length }];
  });
  return candidates.sort((a, b) => a.start - b.start)[0] ?? null;
}

function parsePart(segment: string): SegmentPattern {
  if (segment === "*" || segment === "**") return REMAINING_SEGMENTS;
  const name = NAMED_PLACEHOLDER.exec(segment);
  if (name) return name[1] ? REMAINING_SEGMENTS : ONE_SEGMENT;
  const braces = findBraces(segment);
  return braces ? { head: segment.slice(0, braces.start), tail: segment.slice(braces.end) } : segment;
}

function partMatches(part: SegmentPattern, value: string): boolean {
  if (typeof part === "string") return part === value;
  if (typeof part === "symbol") return value.length > 0;
  const { head, tail } = part;
  return value.length > head.length + tail.length && value.startsWith(head) && value.endsWith(tail);
}

function segmentsMatch(parts: readonly SegmentPattern[], segments: readonly string[]): boolean {
  for (let i = 0; i < parts.length; i++) {
    const part = parts[i]!;
    if (part === REMAINING_SEGMENTS) return segments.length > i;
    if (i >= segments.length || !partMatches(part, segments[i]!)) return false;
  }
  return parts.length === segments.length;
}

/** Returns the length of `https://host` in a normalised url. */
const originLength = (normalised: string): number => normalised.indexOf("/", "https://".length);

/** Returns the segments of a normalised url's path, without the query and one trailing slash; `/` has none. */
export function segmentsOf(normalised: string): string[] {
  const urlWithoutQuery = pathKey(normalised);
  const pathStart = originLength(normalised) + 1;
  return urlWithoutQuery.length < pathStart ? [] : urlWithoutQuery.slice(pathStart).split("/");
}

/**
 * Parses a normalised url as a template; returns null if the url has no placeholder. Placeholders are `/:name`,
 * `{name}` in path or query, and `*`. A colon inside a segment (`/videos:lookup`) or an escaped colon (`%3A`) begins
 * no placeholder. In a segment the first braces are the placeholder, and the text around them is literal. Matching
 * ignores the query. Takes time linear in the url's length.
 */
export function compileTemplate(normalised: string): Template | null {
  const parts: SegmentPattern[] = [];
  for (const segment of segmentsOf(normalised)) {
    const part = parsePart(segment);
    parts.push(part);
    // Segments after this placeholder are dropped, since it matches all of them and a stranger may write hundreds.
    if (part === REMAINING_SEGMENTS) break;
  }
  const firstPlaceholder = parts.findIndex((part) => typeof part !== "string");
  const query = normalised.indexOf("?");
  if (firstPlaceholder < 0 && (query < 0 || !normalised.slice(query).split("/").some(findBraces))) return null;
  const literalParts = (firstPlaceholder < 0 ? parts : parts.slice(0, firstPlaceholder)) as string[];
  const prefix = [normalised.slice(0, originLength(normalised)), ...literalParts].join("/");
  return { prefix, matches: (segments) => segmentsMatch(parts, segments) };
}

/** Does this normalised url have placeholders ({@link compileTemplate})? */
export const isTemplate = (normalised: string): boolean => compileTemplate(normalised) !== null;

/** Placeholders of one segment of a path: `*` alone, `:name` at its beginning, and every `{name}`, escaped or not. */
const SEGMENT_PLACEHOLDERS = /^\*{1,2}$|^:([A-Za-z_]\w*)\*?|\{([^{}/]*)\}|%7B((?:[^/%]|%(?!7[BD]))*)%7D/gi;
/** Placeholders of one value of a query. */
const QUERY_PLACEHOLDERS = /\{([^{}]*)\}/g;
const DOT_SEGMENT = /^(?:\.|%2e){1,2}$/i;

/** Percent-encodes all but unreserved characters (RFC 6570, level 1). A lone surrogate becomes U+FFFD. */
const percentEncode = (value: string): string =>
  encodeURIComponent(Buffer.from(value).toString("utf8")).replace(
    /[!'()*]/g,
    (char) => `%${char.charCodeAt(0).toString(16).toUpperCase()}`,
  );

/** Decodes percent-escapes; returns the text unchanged if they are invalid. */
function percentDecode(name: string): string {
  try {
    return decodeURIComponent(name);
  } catch {
    return name;
  }
}

/**
 * Fills the placeholders of a normalised url. A url without placeholders is returned unchanged.
 * @param fill returns the value of the variable with this name, not encoded; a placeholder without a name is called
 * `*`
 * @returns null if a value would make a whole segment `.` or `..`, since that changes the path
 */
export function fillTemplate(url: string, fill: (name: string) => string): string | null {
  const parsed = new URL(url);
  const encodedValueOf = (_all: string, ...names: unknown[]): string => {
    const name = names.slice(0, 3).find((one) => typeof one === "string");
    return percentEncode(fill(percentDecode((name as string | undefined) || "*")));
  };
  const segments = parsed.pathname.split("/").map((segment) => segment.replace(SEGMENT_PLACEHOLDERS, encodedValueOf));
  if (segments.some((segment) => DOT_SEGMENT.test(segment))) return null;
  parsed.pathname = segments.join("/");
  if (/\{|%7B/i.test(parsed.search)) {
    const pairs = [...parsed.searchParams].map(([name, text]): [string, string] => [
      name,
      text.replace(QUERY_PLACEHOLDERS, (_all, inside: string) => fill(inside || "*")),
    ]);
    parsed.search = new URLSearchParams(pairs).toString();
  }
  return parsed.href;
}

/**
 * Returns the names of the variables that {@link fillTemplate} fills, each once, in the order in which they are in
 * the url; empty for a url without placeholders.
 */
export function variablesOf(url: string): string[] {
  if (!/[{*]|%7B|\/:/i.test(url)) return [];
  const names = new Set<string>();
  fillTemplate(url, (name) => {
    names.add(name);
    return "1";
  });
  return [...names];
}

/**
 * Reads the values of a template's path variables from a url that matches it; null if they are ambiguous: a segment has
 * several variables, or a `*` matches several segments.
 */
export function pathValues(template: string, url: string): Map<string, string> | null {
  const urlSegments = segmentsOf(url);
  const templateSegments = segmentsOf(template);
  if (templateSegments.length !== urlSegments.length) return null;
  const values = new Map<string, string>();
  for (const [i, segment] of templateSegments.entries()) {
    const [placeholder, ...morePlaceholders] = segment.matchAll(SEGMENT_PLACEHOLDERS);
    if (morePlaceholders.length > 0) return null;
    if (!placeholder) continue;
    const name = percentDecode(placeholder.slice(1).find((one) => one) ?? "*");
    const tail = segment.length - placeholder.index - placeholder[0].length;
    const value = percentDecode(urlSegments[i]!.slice(placeholder.index, urlSegments[i]!.length - tail));
    if ((values.get(name) ?? value) !== value) return null;
    values.set(name, value);
  }
  return values;
}
