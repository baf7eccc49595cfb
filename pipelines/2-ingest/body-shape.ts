/** A JSON Schema, of the keywords that quick.ts lets through. */
export interface Schema {
  type?: string | string[];
  properties?: Record<string, Schema>;
  required?: string[];
  additionalProperties?: boolean | Schema;
  propertyNames?: Schema;
  items?: Schema;
  anyOf?: Schema[];
  enum?: unknown[];
  const?: unknown;
  pattern?: string;
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  exclusiveMaximum?: number;
  minLength?: number;
  maxLength?: number;
  minItems?: number;
  maxItems?: number;
  $schema?: string;
}

/** Longer ones are not worth their memory. */
const MAX_SOURCE = 16 * 1024;
/** A character of a string that needs no escape and is one byte. */
const PLAIN = String.raw`[ !#-\[\]-~]`;
const PLAIN_TEXT = new RegExp(`^${PLAIN}*$`);
/** Whole numbers of up to fifteen digits, and decimals of as many as a double tells apart: every reader reads the same. */
const WHOLE = String.raw`(?:0|[1-9]\d{0,14})`;
const SIGNED = String.raw`(?:0|-?[1-9]\d{0,14})`;
const DECIMALS = String.raw`(?:\.\d{1,15})?`;
const ANY_SCALAR = `(?:null|true|false|${SIGNED}${DECIMALS}|"${PLAIN}*")`;
/** A pattern whose every match is of letters, digits and - : . _, so that it cannot reach over the end of its string. */
const SAFE_PATTERN = /^\^(?:(?:[A-Za-z0-9:_-]|\\[.d]|\[[A-Za-z0-9-]+\])(?:\{\d+(?:,\d+)?\})?)+\$$/;

/**
 * A regular expression (sticky) whose every match is the text of a value that the schema takes: a body with the members
 * of this one, in its order and without space, whose texts and numbers may be others. Null where that cannot be said.
 *
 * What a member may be is read from its schema and never from the value, so each of them may change by itself; of the
 * value only its structure counts. Texts are ASCII without an escape, numbers have no exponent.
 */
export function shapeOf(schema: Schema, value: unknown): RegExp | null {
  const source = cover(schema, value);
  return source === null || source.length > MAX_SOURCE ? null : new RegExp(source, "y");
}

const has = (schema: Schema, ...keywords: (keyof Schema)[]): boolean =>
  keywords.some((keyword) => schema[keyword] !== undefined);
const only = (schema: Schema, ...keywords: (keyof Schema)[]): boolean =>
  Object.keys(schema).every((keyword) => keyword === "$schema" || keywords.includes(keyword as keyof Schema));

const escaped = (text: string): string => text.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
const quoted = (text: string): string | null => (PLAIN_TEXT.test(text) ? `"${escaped(text)}"` : null);
const oneOf = (sources: readonly string[]): string | null =>
  sources.length === 0 ? null : `(?:${[...new Set(sources)].join("|")})`;
const isThere = (source: string | null): source is string => source !== null;

/** Schemas of which a value needs one only; null where it is one by itself. */
function branchesOf(schema: Schema): Schema[] | null {
  const { anyOf, type } = schema;
  if (anyOf) return only(schema, "anyOf") ? anyOf : [];
  return Array.isArray(type) ? type.map((one) => ({ ...schema, type: one })) : null;
}

/** Texts of values that the schema takes, with the structure of this one: source of an expression, or null. */
function cover(schema: Schema, value: unknown): string | null {
  const branches = branchesOf(schema);
  if (branches) {
    const sources = branches.map((branch) => cover(branch, value)).filter(isThere);
    return typeof value === "object" && value !== null ? (sources[0] ?? null) : oneOf(sources);
  }
  if (Array.isArray(value)) return ofArray(schema, value);
  if (typeof value === "object" && value !== null) return ofObject(schema, value as Record<string, unknown>);
  return ofScalar(schema);
}

function ofArray(schema: Schema, value: readonly unknown[]): string | null {
  if (!only(schema, "type", "items", "minItems", "maxItems")) return null;
  const { type = "array", items = {}, minItems = 0, maxItems = Number.POSITIVE_INFINITY } = schema;
  if (type !== "array" || value.length < minItems || value.length > maxItems) return null;
  const sources = value.map((one) => cover(items, one));
  return sources.every(isThere) ? `\\[${sources.join(",")}\\]` : null;
}

function ofObject(schema: Schema, value: Record<string, unknown>): string | null {
  if (!only(schema, "type", "properties", "required", "additionalProperties", "propertyNames")) return null;
  const { type = "object", properties = {}, required = [], additionalProperties = {}, propertyNames = {} } = schema;
  if (type !== "object" || required.some((name) => !Object.hasOwn(value, name))) return null;
  // Names of any kind of text.
  if (!only(propertyNames, "type") || (propertyNames.type ?? "string") !== "string") return null;
  const others = additionalProperties === true ? {} : additionalProperties;
  const sources = Object.entries(value).map(([name, member]) => {
    const of = Object.hasOwn(properties, name) ? properties[name]! : others;
    const [text, source] = [quoted(name), of === false ? null : cover(of, member)];
    return text !== null && source !== null ? `${text}:${source}` : null;
  });
  return sources.every(isThere) ? `\\{${sources.join(",")}\\}` : null;
}

/** Texts of all scalars that a schema takes, or of some of them. */
function ofScalar(schema: Schema): string | null {
  const branches = branchesOf(schema);
  if (branches) return oneOf(branches.map(ofScalar).filter(isThere));
  if (has(schema, "enum", "const")) return ofWords(schema);
  if (only(schema)) return ANY_SCALAR;
  switch (schema.type) {
    case "null":
      return only(schema, "type") ? "null" : null;
    case "boolean":
      return only(schema, "type") ? "(?:true|false)" : null;
    case "string":
      return ofText(schema);
    case "integer":
    case "number":
      return ofNumber(schema);
    default:
      return null;
  }
}

/** Strings, as a schema of one or many of them lists them. */
function ofWords(schema: Schema): string | null {
  if (!only(schema, "type", "enum", "const") || (schema.type ?? "string") !== "string") return null;
  const lists = [schema.enum, schema.const === undefined ? undefined : [schema.const]].filter(
    (list) => list !== undefined,
  );
  const words = lists.length === 1 ? lists[0]! : [];
  return oneOf(words.map((word) => (typeof word === "string" ? quoted(word) : null)).filter(isThere));
}

function ofText(schema: Schema): string | null {
  const { pattern, minLength = 0, maxLength } = schema;
  if (pattern !== undefined) {
    const isSafe = only(schema, "type", "pattern") && SAFE_PATTERN.test(pattern);
    return isSafe ? `"${pattern.slice(1, -1)}"` : null;
  }
  if (!only(schema, "type", "minLength", "maxLength")) return null;
  return `"${PLAIN}{${minLength},${maxLength ?? ""}}"`;
}

function ofNumber(schema: Schema): string | null {
  if (!only(schema, "type", "minimum", "maximum", "exclusiveMinimum")) return null;
  // Bounds that only say what a double can count say nothing of fifteen digits.
  const most = Number.MAX_SAFE_INTEGER;
  const { minimum = -most, maximum = most, exclusiveMinimum } = schema;
  const isWhole = schema.type === "integer";
  if (exclusiveMinimum !== undefined)
    return !isWhole && exclusiveMinimum === 0 && minimum <= 0 && maximum === 1
      ? String.raw`(?:0\.\d{0,14}[1-9]|1)`
      : null;
  if (maximum >= most && minimum <= -most) return isWhole ? SIGNED : `${SIGNED}${DECIMALS}`;
  if (maximum >= most && minimum === 0) return isWhole ? WHOLE : `${WHOLE}${DECIMALS}`;
  if (!isWhole) return minimum === 0 && maximum === 1 ? `(?:0${DECIMALS}|1)` : null;
  if ((minimum !== 0 && minimum !== 1) || maximum < 1 || maximum >= 1e15 || !Number.isInteger(maximum)) return null;
  return minimum === 1 ? `(?=[1-9])${upTo(maximum)}` : upTo(maximum);
}

/** Whole numbers from 0 to a positive one: shorter ones, those that are smaller from some digit on, and itself. */
function upTo(most: number): string {
  const digits = String(most);
  const sources = digits.length > 1 ? [digits.length > 2 ? `[1-9]\\d{0,${digits.length - 2}}` : "[1-9]", "0"] : [];
  for (let at = 0; at < digits.length; at++) {
    const least = at === 0 && digits.length > 1 ? 1 : 0;
    const below = Number(digits[at]) - 1;
    if (below >= least) sources.push(`${digits.slice(0, at)}[${least}-${below}]\\d{${digits.length - at - 1}}`);
  }
  return `(?:${[...sources, digits].join("|")})`;
}

/** Shapes of one type of body. */
const MOST_SHAPES = 8;
/** One in so many bodies of no known shape is learnt from: what is common is learnt soon, what is rare costs nothing. */
const LEARN_EVERY = 64;

/** Shapes that were met last; a body of one of them needs no second look. */
export class BodyShapes {
  readonly #shapes: RegExp[] = [];
  #missed = 0;

  constructor(private readonly schema: Schema) {}

  /** Does a body of a known shape stand at [from, end) of the text? */
  fits(text: string, from: number, end: number): boolean {
    for (let i = 0; i < this.#shapes.length; i++) {
      const shape = this.#shapes[i]!;
      shape.lastIndex = from;
      if (!shape.test(text) || shape.lastIndex !== end) continue;
      if (i > 0) {
        this.#shapes.splice(i, 1);
        this.#shapes.unshift(shape);
      }
      return true;
    }
    return false;
  }

  /** A body that the schema takes and that fitted no shape. */
  missed(value: unknown): void {
    if (this.#missed++ % LEARN_EVERY > 0) return;
    const shape = shapeOf(this.schema, value);
    if (shape === null || this.#shapes.some(({ source }) => source === shape.source)) return;
    this.#shapes.unshift(shape);
    this.#shapes.length = Math.min(this.#shapes.length, MOST_SHAPES);
  }
}
