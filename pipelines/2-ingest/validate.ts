import { Ajv2020 } from "ajv/dist/2020.js";
import { z } from "zod";
import { BODIES, type RecordType } from "../record/bodies.ts";
import { ENVELOPE_VERSION, type Envelope } from "../record/envelope.ts";
import { isId } from "../record/ids.ts";
import { RFC3339 } from "../record/time.ts";

/**
 * Two quick checks whether a record is valid, both made from the zod schemas. `matchBulkRecord` checks the text of
 * records of the two types that make up nearly all of a log; `isValid` checks any parsed record. Both accept only
 * records that zod accepts unchanged. A record that neither accepts is read by zod, and only zod's result can reject
 * a record, with a reason.
 */

/**
 * Returns true only for a value that a zod schema accepts unchanged. False does not mean that the value is invalid:
 * zod then decides.
 */
type Validate = (value: unknown) => boolean;

/**
 * Keywords of JSON Schema that express a zod check completely (`oneOf`: a union whose members differ by a constant).
 * A schema that is translated with any other keyword is checked by zod itself.
 */
const KEYWORDS = new Set(
  "$schema type properties required additionalProperties propertyNames items anyOf oneOf enum pattern minimum maximum exclusiveMinimum exclusiveMaximum minLength maxLength minItems maxItems const".split(
    " ",
  ),
);
/**
 * Names of zod checks that JSON Schema cannot express: `custom` runs our own code, and `overwrite` changes the value.
 */
const UNTRANSLATABLE_CHECKS = new Set(["custom", "overwrite"]);

/**
 * Counts lengths in Unicode code points and compiles patterns without the u flag, as zod does; a test compares both
 * with zod.
 */
const compiler = new Ajv2020({ unicodeRegExp: false, allowUnionTypes: true, validateSchema: false });

/**
 * Compiles a zod schema to a function that is an order of magnitude faster than zod; null if the schema has something
 * that JSON Schema cannot express: a refinement, a transform, a default. If the function does not accept a value, zod
 * decides.
 */
export function compile(schema: z.ZodType): Validate | null {
  const jsonSchema = toJsonSchema(schema);
  return jsonSchema && (compiler.compile(jsonSchema) as Validate);
}

/** Translates a zod schema to a JSON Schema; null if JSON Schema cannot express all of it. */
function toJsonSchema(schema: z.ZodType): object | null {
  let isComplete = true;
  try {
    const json = z.toJSONSchema(schema, {
      override: ({ zodSchema, jsonSchema }) => {
        const { checks = [] } = zodSchema._zod.def as { checks?: { _zod: { def: { check: string } } }[] };
        if (checks.some(({ _zod }) => UNTRANSLATABLE_CHECKS.has(_zod.def.check))) isComplete = false;
        if (Object.keys(jsonSchema).some((keyword) => !KEYWORDS.has(keyword))) isComplete = false;
        // A schema with a member whose name every object inherits, such as `toString`, is left to zod.
        if (Object.keys(jsonSchema.properties ?? {}).some((name) => name in Object.prototype)) isComplete = false;
      },
    });
    return isComplete ? json : null;
  } catch {
    // zod throws for what JSON Schema cannot express: a transform, a date, a bigint.
    return null;
  }
}

const validators = new Map<string, Validate | null>();

/**
 * Returns the compiled schema of a type. It is compiled at its first use, since compiling all of them takes a quarter
 * of a second of processor time.
 */
function validatorOf(type: string): Validate | null {
  const compiled = validators.get(type);
  if (compiled !== undefined || !Object.hasOwn(BODIES, type)) return compiled ?? null;
  const validate = compile(BODIES[type as RecordType]);
  validators.set(type, validate);
  return validate;
}

const isText = (value: unknown, max: number): value is string => typeof value === "string" && value.length <= max;

/**
 * Is this parsed value an envelope of the current version that {@link readEnvelope} accepts unchanged? False does not
 * mean that it is invalid: valid envelopes of older versions, or of types without a compiled schema, give false too.
 */
export function isValid(value: unknown): value is Envelope<RecordType> {
  if (typeof value !== "object" || value === null) return false;
  const { v, type, event_id, cap, key, observed_at, producer, body } = value as Record<string, unknown>;
  return (
    v === ENVELOPE_VERSION &&
    isText(event_id, 64) &&
    isId("rec", event_id) &&
    (cap === undefined || (isText(cap, 64) && isId("cap", cap))) &&
    isText(key, 512) &&
    key !== "" &&
    isText(observed_at, 24) &&
    RFC3339.test(observed_at) &&
    isText(producer, 120) &&
    typeof type === "string" &&
    validatorOf(type)?.(body) === true
  );
}

/** Types whose records are matched as text: a log holds hundreds of them for each record of another type. */
const BULK_TYPES: readonly RecordType[] = ["handshake", "mcp.probe"];

/** Matches a character that JSON holds unescaped: printable ASCII without quote and backslash. */
const CHAR = "[ !#-\\[\\]-~]";
/** Matches a whole number of at most 15 digits, which a double holds exactly. */
const DIGITS = "(?:0|[1-9]\\d{0,14})";
const FRACTION = "(?:\\.\\d{0,16}[1-9])?";
const CROCKFORD = "[0-9A-HJKMNP-TV-Z]{26}";
const TIME = "\\d{4}-\\d{2}-\\d{2}T\\d{2}:\\d{2}:\\d{2}\\.\\d{3}Z";
/**
 * Matches those patterns of a schema that {@link textPattern} may copy unchanged between the quotes of a JSON string:
 * characters and character classes with counts, without alternatives and groups.
 */
const PLAIN_PATTERN = /^\^(?:\\d|\\\.|[\w:-]|\[[A-Za-z0-9-]+\]|\{\d+(?:,\d+)?\})+\$$/;

/** The part of JSON Schema that the schemas of the bulk types use. */
interface Schema {
  type?: string | readonly string[];
  anyOf?: readonly Schema[];
  enum?: readonly string[];
  pattern?: string;
  minLength?: number;
  maxLength?: number;
  minimum?: number;
  maximum?: number;
  items?: Schema;
  minItems?: number;
  maxItems?: number;
  properties?: Record<string, Schema>;
  required?: readonly string[];
}

/** Keywords that {@link textPattern} translates, by type. It returns null for a schema with any other keyword. */
const TRANSLATED_KEYWORDS: Readonly<Record<string, readonly string[]>> = {
  null: ["type"],
  boolean: ["type"],
  integer: ["type", "minimum", "maximum"],
  number: ["type", "minimum"],
  string: ["type", "enum", "pattern", "minLength", "maxLength"],
  array: ["type", "items", "minItems", "maxItems"],
  object: ["$schema", "type", "properties", "required", "additionalProperties"],
};

const oneOf = (patterns: readonly string[]): string => `(?:${patterns.join("|")})`;

/**
 * Makes a pattern of the whole numbers from 0 to `max`. For 359: numbers of up to two digits, 1xx and 2xx, 30x to 34x,
 * 350 to 359.
 */
function wholeNumberPattern(max: number): string {
  const digits = String(max);
  const shorterNumbers = digits.length > 1 ? [`(?:0|[1-9]\\d{0,${digits.length - 2}})`] : [];
  const sameLengthNumbers = [...digits].flatMap((digit, i) => {
    const firstDigit = i === 0 && digits.length > 1 ? 1 : 0;
    return Number(digit) > firstDigit
      ? [`${digits.slice(0, i)}[${firstDigit}-${Number(digit) - 1}]\\d{${digits.length - 1 - i}}`]
      : [];
  });
  return oneOf([...shorterNumbers, ...sameLengthNumbers, digits]);
}

function numberPattern({ type, minimum = -Infinity, maximum = Infinity }: Schema): string | null {
  const fraction = type === "integer" ? "" : FRACTION;
  const isUnbounded = maximum >= Number.MAX_SAFE_INTEGER;
  // The pattern excludes `-0`, which some JSON parsers read as 0 and others as -0.
  if (isUnbounded && minimum <= -Number.MAX_SAFE_INTEGER) return `(?:-?(?!0(?!\\.))${DIGITS}${fraction}|0)`;
  if (isUnbounded && minimum === 0) return `${DIGITS}${fraction}`;
  if (isUnbounded && minimum === 1) return `[1-9]\\d{0,14}${fraction}`;
  return type === "integer" && minimum === 0 && maximum <= 1e6 ? wholeNumberPattern(maximum) : null;
}

function stringPattern({ enum: values, pattern, minLength, maxLength }: Schema): string | null {
  const isBounded = minLength !== undefined || maxLength !== undefined;
  if (values !== undefined) {
    const isPlain = values.every((value) => typeof value === "string" && /^[\w-]+$/.test(value));
    return isPlain && !isBounded && pattern === undefined ? `"${oneOf(values)}"` : null;
  }
  if (pattern === undefined) return `"${CHAR}{${minLength ?? 0},${maxLength ?? ""}}"`;
  return PLAIN_PATTERN.test(pattern) && !isBounded ? `"${pattern.slice(1, -1)}"` : null;
}

function arrayPattern({ items, minItems = 0, maxItems = Infinity }: Schema): string | null {
  const item = items === undefined ? null : textPattern(items);
  if (item === null || minItems > 1 || maxItems < 1) return null;
  const itemsPattern = `${item}(?:,${item}){0,${maxItems === Infinity ? "" : maxItems - 1}}`;
  return minItems === 1 ? `\\[${itemsPattern}\\]` : `\\[(?:${itemsPattern})?\\]`;
}

/**
 * Makes a pattern of objects with known members in the order of RFC 8785. A text with another member does not match.
 */
function objectPattern({ properties = {}, required = [] }: Schema): string | null {
  const names = Object.keys(properties).sort();
  const firstRequired = names.findIndex((name) => required.includes(name));
  const members = names.map((name, i) => {
    const value = textPattern(properties[name]!);
    if (value === null || !/^\w+$/.test(name)) return null;
    const member = `"${name}":${value}`;
    if (i < firstRequired) return `(?:${member},)?`;
    if (i === firstRequired) return member;
    return required.includes(name) ? `,${member}` : `(?:,${member})?`;
  });
  return firstRequired < 0 || members.includes(null) ? null : `\\{${members.join("")}\\}`;
}

const PATTERNS: Readonly<Record<string, (schema: Schema) => string | null>> = {
  null: () => "null",
  boolean: () => "(?:true|false)",
  integer: numberPattern,
  number: numberPattern,
  string: stringPattern,
  array: arrayPattern,
  object: objectPattern,
};

/**
 * Makes a regular expression for RFC 8785 texts of values that the schema accepts; null if the schema has something
 * that is not translated. Texts with escapes, characters beyond ASCII or unknown members do not match. Matching takes
 * linear time: each part of a text is matched by one part of the expression.
 */
export function textPattern(schema: Schema): string | null {
  const { type, anyOf } = schema;
  const choices = anyOf ?? (Array.isArray(type) ? type.map((one: string) => ({ ...schema, type: one })) : null);
  if (choices !== null) {
    if (anyOf !== undefined && Object.keys(schema).length > 1) return null;
    const patterns = choices.map(textPattern);
    return patterns.includes(null) ? null : oneOf(patterns as string[]);
  }
  const form = String(type);
  if (!Object.hasOwn(PATTERNS, form)) return null;
  if (Object.keys(schema).some((name) => !TRANSLATED_KEYWORDS[form]!.includes(name))) return null;
  return PATTERNS[form]!(schema);
}

/**
 * A type of BULK_TYPES: the text with which its envelopes end, and the expression that matches a whole envelope,
 * which is made at its first use.
 */
interface BulkType {
  type: RecordType;
  end: string;
  expression?: RegExp | null;
}

const bulkTypes: BulkType[] = BULK_TYPES.map((type) => ({ type, end: `"type":"${type}","v":${ENVELOPE_VERSION}}` }));

function expressionOf({ type, end }: BulkType): RegExp | null {
  const json = toJsonSchema(BODIES[type]);
  const body = json && textPattern(json);
  return body
    ? new RegExp(
        `^\\{"body":(${body}),(?:"cap":"(cap_${CROCKFORD})",)?"event_id":"(rec_${CROCKFORD})","key":"(${CHAR}{1,512})",` +
          `"observed_at":"(${TIME})","producer":"(${CHAR}{0,120})",${end.replace(/[.{}]/g, "\\$&")}$`,
      )
    : null;
}

/**
 * Returns the envelope of a record of a type in BULK_TYPES, with the text of its body, if the record's text is
 * canonical and valid. null does not mean that the record is invalid.
 */
export function matchBulkRecord(text: string): (Omit<Envelope, "body"> & { body: string }) | null {
  const bulkType = bulkTypes.find(({ end }) => text.endsWith(end));
  if (bulkType === undefined) return null;
  if (bulkType.expression === undefined) bulkType.expression = expressionOf(bulkType);
  const match = bulkType.expression?.exec(text);
  if (!match) return null;
  const [, body, cap, event_id, key, observed_at, producer] = match as unknown as string[];
  const capMember = cap === undefined ? {} : { cap };
  return {
    v: ENVELOPE_VERSION,
    type: bulkType.type,
    event_id: event_id!,
    ...capMember,
    key: key!,
    observed_at: observed_at!,
    producer: producer!,
    body: body!,
  };
}
