import { z } from "zod";
import { BODIES, type RecordType } from "../record/bodies.ts";
import { ENVELOPE_VERSION, type Envelope } from "../record/envelope.ts";

/**
 * A quick answer to whether a record is sound: `matched` looks at the text of the two types that are nearly all of a log, by
 * expressions made from their zod schemas. It says yes only to what zod takes unchanged. What it does not take is read by
 * zod, which alone refuses a record and words the reason.
 */

/** Types whose records are matched as text: a log holds hundreds of them for each record of another type. */
const BULK: readonly RecordType[] = ["handshake", "mcp.probe"];

/** A character that stands in JSON as it is: printable ASCII without quote and backslash. */
const CHAR = "[ !#-\\[\\]-~]";
/** At most 15 digits, so the number is exact. */
const DIGITS = "(?:0|[1-9]\\d{0,14})";
const FRACTION = "(?:\\.\\d{0,16}[1-9])?";
const CROCKFORD = "[0-9A-HJKMNP-TV-Z]{26}";
const TIME = "\\d{4}-\\d{2}-\\d{2}T\\d{2}:\\d{2}:\\d{2}\\.\\d{3}Z";
/**
 * Patterns of a schema that {@link textPattern} may copy between the quotes of a JSON string as they are: characters and
 * character classes with counts, without alternatives and groups.
 */
const PLAIN_PATTERN = /^\^(?:\\d|\\\.|[\w:-]|\[[A-Za-z0-9-]+\]|\{\d+(?:,\d+)?\})+\$$/;

/** The part of JSON Schema that the schemas of the bulk types use. */
interface Schema {
  type?: string | readonly string[];
  anyOf?: readonly Schema[];
  enum?: readonly string[];
  pattern?: string;
  maxLength?: number;
  minimum?: number;
  maximum?: number;
  items?: Schema;
  maxItems?: number;
  properties?: Record<string, Schema>;
  required?: readonly string[];
}

/** Members of each form that {@link textPattern} understands. It gives up where a schema has another one. */
const UNDERSTOOD: Readonly<Record<string, readonly string[]>> = {
  null: ["type"],
  boolean: ["type"],
  integer: ["type", "minimum", "maximum"],
  number: ["type", "minimum"],
  string: ["type", "enum", "pattern", "maxLength"],
  array: ["type", "items", "maxItems"],
  object: ["$schema", "type", "properties", "required", "additionalProperties"],
};

const oneOf = (patterns: readonly string[]): string => `(?:${patterns.join("|")})`;

function numberPattern({ type, minimum = -Infinity, maximum = Infinity }: Schema): string | null {
  const fraction = type === "integer" ? "" : FRACTION;
  const isFree = maximum >= Number.MAX_SAFE_INTEGER;
  // `-0` is another number to some readers than to others.
  if (isFree && minimum <= -Number.MAX_SAFE_INTEGER) return `(?:-?(?!0(?!\\.))${DIGITS}${fraction}|0)`;
  if (isFree && minimum === 0) return `${DIGITS}${fraction}`;
  if (isFree && minimum === 1) return `[1-9]\\d{0,14}${fraction}`;
  if (type !== "integer" || minimum !== 0 || maximum > 2_000) return null;
  return oneOf(Array.from({ length: maximum + 1 }, (_, n) => String(n)));
}

function stringPattern({ enum: values, pattern, maxLength }: Schema): string | null {
  const isBounded = maxLength !== undefined;
  if (values !== undefined) {
    const plain = values.every((value) => typeof value === "string" && /^[\w-]+$/.test(value));
    return plain && !isBounded && pattern === undefined ? `"${oneOf(values)}"` : null;
  }
  if (pattern === undefined) return `"${CHAR}{0,${maxLength ?? ""}}"`;
  return PLAIN_PATTERN.test(pattern) && !isBounded ? `"${pattern.slice(1, -1)}"` : null;
}

function arrayPattern({ items, maxItems = Infinity }: Schema): string | null {
  const item = items === undefined ? null : textPattern(items);
  if (item === null || maxItems < 1) return null;
  return `\\[(?:${item}(?:,${item}){0,${maxItems === Infinity ? "" : maxItems - 1}})?\\]`;
}

/** Known members in the order of RFC 8785. A text with another member does not match. */
function objectPattern({ properties = {}, required = [] }: Schema): string | null {
  const names = Object.keys(properties).sort();
  const first = names.findIndex((name) => required.includes(name));
  const members = names.map((name, i) => {
    const value = textPattern(properties[name]!);
    if (value === null || !/^\w+$/.test(name)) return null;
    const member = `"${name}":${value}`;
    if (i < first) return `(?:${member},)?`;
    if (i === first) return member;
    return required.includes(name) ? `,${member}` : `(?:,${member})?`;
  });
  return first < 0 || members.includes(null) ? null : `\\{${members.join("")}\\}`;
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
 * A regular expression for RFC 8785 texts of values that the schema takes, without escapes, characters beyond ASCII and
 * unknown members; null where the schema has something that is not translated. It is linear: each part of a text is matched
 * by one part of it.
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
  if (Object.keys(schema).some((name) => !UNDERSTOOD[form]!.includes(name))) return null;
  return PATTERNS[form]!(schema);
}

/** Checks that a JSON Schema does not show: code of ours, and those that change the value. */
const HIDDEN = new Set(["custom", "overwrite"]);

/** {@link textPattern} of a zod schema; null also where a JSON Schema says less than it: a refinement, a transform, a default. */
export function patternOf(schema: z.ZodType): string | null {
  let isWhole = true;
  const json = z.toJSONSchema(schema, {
    unrepresentable: "any",
    override: ({ zodSchema }) => {
      const { checks = [] } = zodSchema._zod.def as { checks?: { _zod: { def: { check: string } } }[] };
      if (checks.some(({ _zod }) => HIDDEN.has(_zod.def.check))) isWhole = false;
    },
  });
  return isWhole ? textPattern(json as Schema) : null;
}

/** For each bulk type: what ends its envelopes, and the expression of a whole one. */
const bulk = BULK.flatMap((type) => {
  const body = patternOf(BODIES[type]);
  if (body === null) return [];
  const end = `"type":"${type}","v":${ENVELOPE_VERSION}}`;
  const expression = new RegExp(
    `^\\{"body":(${body}),(?:"cap":"(cap_${CROCKFORD})",)?"event_id":"(rec_${CROCKFORD})","key":"(${CHAR}{1,512})",` +
      `"observed_at":"(${TIME})","producer":"(${CHAR}{0,120})",${end.replace(/[.{}]/g, "\\$&")}$`,
  );
  return { type, end, expression };
});

/**
 * The envelope of a record of a bulk type, with the text of its body, where its text is the canonical one of a sound record.
 * Null decides nothing.
 */
export function matched(text: string): (Omit<Envelope, "body"> & { body: string }) | null {
  const one = bulk.find(({ end }) => text.endsWith(end));
  const found = one?.expression.exec(text);
  if (!one || !found) return null;
  const [, body, cap, event_id, key, observed_at, producer] = found as unknown as string[];
  const named = cap === undefined ? {} : { cap };
  return {
    v: ENVELOPE_VERSION,
    type: one.type,
    event_id: event_id!,
    ...named,
    key: key!,
    observed_at: observed_at!,
    producer: producer!,
    body: body!,
  };
}
