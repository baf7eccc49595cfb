import { z } from "zod";
import type { Example, Fields } from "./checker.ts";

/**
 * Deepest nesting of a request body with placeholders, since the functions that walk it recurse; also the most steps
 * of a JSON pointer.
 */
const MAX_DEPTH = 24;
const TextMembers = z.record(z.string().max(200), z.string().max(10_000));

/**
 * A request with placeholders for the fields of a question. A text that is only `{name}` becomes the value itself,
 * which may be a number; `{name:text}`, or a placeholder within a longer text, becomes text.
 */
const Template = z.looseObject({
  query: TextMembers.optional(),
  body: z.unknown().optional(),
  path: TextMembers.optional(),
});
type Template = z.infer<typeof Template>;

/**
 * The mapping of an endpoint to a class (a kind of endpoints with questions to which we know the answers): which
 * question the endpoint gets, how its request is filled in, and where the answer is.
 */
export const Mapping = z.looseObject({
  class: z.string().max(60),
  variant: z.string().max(60),
  /**
   * Origin of the mapping. operator: the operator's file of classes. schema: the seller's declared schema fits this
   * class and no other.
   */
  by: z.enum(["operator", "schema"]),
  /**
   * sha256 over the members that distinguish this mapping from others. A mapping with another id starts with new
   * trial calls.
   */
  id: z.string().regex(/^[0-9a-f]{64}$/),
  input: Template,
  /** Only for class known-rows: name of the set of rows (questions with answers) in the operator's file. */
  rows: z.string().max(60).optional(),
  /** JSON pointer (RFC 6901) of the value to score; null to score the whole answer as text. */
  answer: z.string().max(500).nullable(),
});
export type Mapping = z.infer<typeof Mapping>;

const PLACEHOLDER = /\{([a-z_]{1,40})(:text)?\}/g;
const WHOLE_PLACEHOLDER = /^\{([a-z_]{1,40})\}$/;

/** Returns the names of a template's placeholders, each once. */
export function placeholderNames(template: Template): string[] {
  const text = JSON.stringify([template.query, template.body, template.path]);
  return [...new Set([...text.matchAll(PLACEHOLDER)].map(([, name]) => name!))];
}

function fillText(text: string, fields: Fields): string {
  return text.replace(PLACEHOLDER, (whole, name: string) =>
    Object.hasOwn(fields, name) ? String(fields[name]) : whole,
  );
}

function fillValue(value: unknown, fields: Fields, depth: number): unknown {
  if (depth > MAX_DEPTH) throw new RangeError("the template is nested too deep");
  if (typeof value === "string") {
    const name = WHOLE_PLACEHOLDER.exec(value)?.[1];
    return name !== undefined && Object.hasOwn(fields, name) ? fields[name] : fillText(value, fields);
  }
  if (Array.isArray(value)) return value.map((item) => fillValue(item, fields, depth + 1));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, item]) => [name, fillValue(item, fields, depth + 1)]));
}

const fillTexts = (texts: Record<string, string>, fields: Fields): Record<string, string> =>
  Object.fromEntries(Object.entries(texts).map(([name, text]) => [name, fillText(text, fields)]));

/** Fills a template with the fields of a question. @throws RangeError for a template that is nested too deep */
export const fillTemplateFields = ({ query, body, path }: Template, fields: Fields): Example => ({
  ...(query ? { query: fillTexts(query, fields) } : {}),
  ...(body === undefined ? {} : { body: fillValue(body, fields, 0) }),
  ...(path ? { path: fillTexts(path, fields) } : {}),
});

/** Fields that were read from an input, by name. */
type FoundFields = Map<string, string | number>;

/** Stores a field; returns false if the field already has another value. */
function setField(foundFields: FoundFields, name: string, value: string | number): boolean {
  if (foundFields.has(name) && foundFields.get(name) !== value) return false;
  foundFields.set(name, value);
  return true;
}

/**
 * Reads the fields out of a text by its template. It returns false if the text does not fit the template, or fits it in
 * two ways: because a value contains the text that separates two placeholders, or because nothing separates them.
 */
function readText(template: string, text: string, foundFields: FoundFields): boolean {
  const names = [...template.matchAll(PLACEHOLDER)].map(([, name]) => name!);
  const [head, ...tails] = template.split(/\{[a-z_]{1,40}(?::text)?\}/);
  if (names.length === 0) return template === text;
  if (!text.startsWith(head!) || tails.slice(0, -1).includes("")) return false;
  let position = head!.length;
  const values = tails.map((tail, n) => {
    const isLast = n === tails.length - 1;
    const end = isLast ? text.length - tail.length : text.indexOf(tail, position);
    const value = end < position || (isLast && !text.endsWith(tail)) ? null : text.slice(position, end);
    position = end + tail.length;
    return value;
  });
  const isUnambiguous = values.every(
    (value) => value !== null && !tails.slice(0, -1).some((tail) => value.includes(tail)),
  );
  return isUnambiguous && names.every((name, n) => setField(foundFields, name, values[n]!));
}

/** Reads the fields out of a value by its template. Returns false if the value does not fit it, as {@link readText}. */
function readValue(template: unknown, value: unknown, foundFields: FoundFields, depth: number): boolean {
  if (depth > MAX_DEPTH) return false;
  if (typeof template === "string") {
    const name = WHOLE_PLACEHOLDER.exec(template)?.[1];
    if (name !== undefined && typeof value === "number") return setField(foundFields, name, value);
    return typeof value === "string" && readText(template, value, foundFields);
  }
  if (typeof template !== "object" || template === null) return template === value;
  if (typeof value !== "object" || value === null || Array.isArray(template) !== Array.isArray(value)) return false;
  const names = Object.keys(template);
  if (names.length !== Object.keys(value).length) return false;
  return names.every(
    (name) =>
      Object.hasOwn(value, name) &&
      readValue((template as Fields)[name], (value as Fields)[name], foundFields, depth + 1),
  );
}

/**
 * Reads the fields of the question from an input that has the form of a template, the inverse of {@link
 * fillTemplateFields}. Returns null for an input with further or missing members, since such an input may ask
 * something else.
 */
export function readAskedFields(template: Template, input: Example): Fields | null {
  const foundFields: FoundFields = new Map();
  const fitsTemplate = (["query", "body", "path"] as const).every((place) => {
    const [templatePart, inputPart] = [template[place], input[place]];
    return templatePart === undefined ? inputPart === undefined : readValue(templatePart, inputPart, foundFields, 0);
  });
  return fitsTemplate ? Object.fromEntries(foundFields) : null;
}

/** Is this a JSON pointer (RFC 6901) of at most {@link MAX_DEPTH} steps? */
export const isPointer = (text: string): boolean =>
  /^(?:\/(?:[^~/]|~[01])*)*$/.test(text) && text.split("/").length <= MAX_DEPTH;

/**
 * Returns the value at a JSON pointer in a stranger's value; undefined if there is none. Inherited members are never
 * read.
 */
export function valueAt(value: unknown, pointer: string): unknown {
  let current = value;
  for (const step of pointer.split("/").slice(1, MAX_DEPTH)) {
    const name = step.replaceAll("~1", "/").replaceAll("~0", "~");
    if (typeof current !== "object" || current === null || !Object.hasOwn(current, name)) return undefined;
    current = (current as Record<string, unknown>)[name];
  }
  return current;
}
