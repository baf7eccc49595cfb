import { isAscii } from "node:buffer";
import { Ajv2020 } from "ajv/dist/2020.js";
import { z } from "zod";
import { canonicalText, MAX_DEPTH } from "../../infra/canonical.ts";
import type { LogRecord } from "../../infra/log/log.ts";
import { BODIES, type RecordType, TOPIC_OF } from "../record/bodies.ts";
import { ENVELOPE_VERSION, type Envelope, readEnvelope } from "../record/envelope.ts";
import { isId } from "../record/ids.ts";
import { RFC3339 } from "../record/time.ts";
import type { Row } from "./day-segments.ts";

/** A record that the current readers do not take: kept with its bytes until `redrive` reads it again. */
export interface Rejected {
  topic: string;
  partition: number;
  offset: number;
  reason: string;
  event_id: string;
  key: string;
  appended_at: string;
  /** The value's bytes, base64. */
  raw: string;
  /** Offset of the copy that a redrive appended once readers took it; then the record stands there. */
  moved_to?: number;
}

export type Read = { ok: true; row: Row } | { ok: false; rejected: Rejected };

const KNOWN = new Set(["v", "type", "event_id", "cap", "key", "observed_at", "producer", "body"]);
const utf8 = new TextDecoder("utf-8");

/**
 * One record of the log as a row of a segment, or as a rejected one with the reason. What passes here loads: whatever the
 * engine would choke on is refused before a commit makes it permanent.
 */
export function readRow(record: LogRecord): Read {
  const text = textOf(record.value);
  let envelope = validated(text);
  if (envelope === null) {
    const result = readEnvelope(record.value);
    if (!result.ok) return refuse(record, result.reason);
    envelope = result.envelope;
  }
  const wrong = misplaced(record, envelope);
  if (wrong) return refuse(record, wrong);
  const body = scanMember(text, "body");
  const unreadable = body.text === undefined ? "no body" : unsafe(text, body.depth, body.odd);
  if (unreadable) return refuse(record, unreadable);
  return { ok: true, row: rowOf(record, envelope, body.text as string) };
}

/** Nearly every record is ASCII, which needs no decoder. What is no UTF-8 comes back with marks (U+FFFD). */
function textOf(bytes: Uint8Array): string {
  if (!isAscii(bytes)) return utf8.decode(bytes);
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("latin1");
}

/** The envelope where it is plainly sound; null leaves the verdict, and the words of a refusal, to `readEnvelope`. */
function validated(text: string): Envelope | null {
  // Half of a character has become a mark in the text, and only the bytes can tell it from a mark that was written.
  if (text.includes("\ufffd") || text.includes("__proto__")) return null;
  try {
    const value: unknown = JSON.parse(text);
    return isValid(value) ? value : null;
  } catch {
    return null;
  }
}

const rowOf = (record: LogRecord, envelope: Envelope, body: string): Row => ({
  offset: record.offset,
  eventId: envelope.event_id,
  type: envelope.type,
  key: envelope.key,
  cap: envelope.cap ?? null,
  observedMs: Date.parse(envelope.observed_at),
  producer: envelope.producer,
  v: envelope.v,
  appendedMs: record.appendedAt.getTime(),
  body,
  extra: extraOf(envelope) ?? null,
});

/** Rejected lines back to records, as they came from the log. */
export const recordOf = (rejected: Rejected): LogRecord => ({
  topic: rejected.topic,
  partition: rejected.partition,
  offset: rejected.offset,
  eventId: rejected.event_id,
  key: rejected.key,
  appendedAt: new Date(rejected.appended_at),
  value: Buffer.from(rejected.raw, "base64"),
});

function refuse(record: LogRecord, reason: string): Read {
  return {
    ok: false,
    rejected: {
      topic: record.topic,
      partition: record.partition,
      offset: record.offset,
      reason,
      event_id: record.eventId,
      key: record.key,
      appended_at: record.appendedAt.toISOString(),
      raw: Buffer.from(record.value).toString("base64"),
    },
  };
}

const CONTROL = /\p{Cc}/u;

/** A misplaced record would be looked for elsewhere: under another id, key or topic. */
function misplaced(record: LogRecord, envelope: Envelope): string | null {
  if (envelope.event_id !== record.eventId) return "event_id is not the one it was appended under";
  if (envelope.key !== record.key) return "key is not the one it was appended under";
  if (TOPIC_OF[envelope.type] !== record.topic) return `${envelope.type} belongs to ${TOPIC_OF[envelope.type]}`;
  // They part the fields of a segment's lines (day-segments.ts), and no name has one.
  if (CONTROL.test(envelope.key) || CONTROL.test(envelope.producer)) return "key or producer has a control character";
  return isTime(envelope.observed_at) ? null : "observed_at is no time";
}

/** The form alone lets 31 February and hour 24 through, and so does Date.parse. */
function isTime(text: string): boolean {
  const at = Date.parse(text);
  if (Number.isNaN(at)) return false;
  return (text.slice(8, 10) <= "28" && text.slice(11, 13) < "24") || new Date(at).toISOString() === text;
}

/** JSON that JSON.parse takes and others do not: half a surrogate pair, numbers past a double, deep nesting. */
function unsafe(text: string, depth: number, odd: boolean): string | null {
  if (depth > MAX_DEPTH) return `nested deeper than ${MAX_DEPTH}`;
  if (!odd) return null;
  try {
    canonicalText(JSON.parse(text));
    return null;
  } catch (error) {
    return (error as Error).message.slice(0, 300);
  }
}

/** Members of the envelope that we do not know yet, as JSON text, or undefined when there are none. */
function extraOf(envelope: Envelope): string | undefined {
  if (Object.keys(envelope).length === (envelope.cap === undefined ? KNOWN.size - 1 : KNOWN.size)) return undefined;
  const unknown = Object.entries(envelope).filter(([name]) => !KNOWN.has(name));
  return unknown.length > 0 ? JSON.stringify(Object.fromEntries(unknown)) : undefined;
}

/** Says yes only to what a zod schema takes as it is; no means that zod has to be asked. */
type Validate = (value: unknown) => boolean;

/** What the translation keeps whole (`oneOf` is a union told apart by a constant). Another keyword may mean less in JSON Schema than in zod: then zod does it all. */
const KEYWORDS = new Set(
  "$schema type properties required additionalProperties propertyNames items anyOf oneOf enum pattern minimum maximum exclusiveMinimum exclusiveMaximum minLength maxLength minItems maxItems const".split(
    " ",
  ),
);
/** Checks that a JSON Schema says nothing of: code of ours, and those that change the value. */
const UNSAYABLE = new Set(["custom", "overwrite"]);

/** Lengths in characters and patterns without the u flag, as zod takes them; a test holds both against zod. */
const compiler = new Ajv2020({ unicodeRegExp: false, allowUnionTypes: true, validateSchema: false });

/**
 * A zod schema compiled to a function that is an order of magnitude quicker, or null where the translation would lose
 * something: a refinement, a transform, a default. zod stays what decides and what words the reason.
 */
export function compile(schema: z.ZodType): Validate | null {
  const json = translated(schema);
  return json && (compiler.compile(json) as Validate);
}

/** What a zod schema says as a JSON Schema; null where that cannot say all of it. */
function translated(schema: z.ZodType): object | null {
  let whole = true;
  try {
    const json = z.toJSONSchema(schema, {
      override: ({ zodSchema, jsonSchema }) => {
        const { checks = [] } = zodSchema._zod.def as { checks?: { _zod: { def: { check: string } } }[] };
        if (checks.some(({ _zod }) => UNSAYABLE.has(_zod.def.check))) whole = false;
        if (Object.keys(jsonSchema).some((keyword) => !KEYWORDS.has(keyword))) whole = false;
        // What is no schema keyword above but a member's name must not be one of every object's own.
        if (Object.keys(jsonSchema.properties ?? {}).some((name) => name in Object.prototype)) whole = false;
      },
    });
    return whole ? json : null;
  } catch {
    // A transform, a date, a bigint: nothing that JSON Schema has a word for.
    return null;
  }
}

const validators = new Map<string, Validate | null>();

/** Compiled when the first body of the type comes: all of them together are a quarter of a second of CPU. */
function validatorOf(type: string): Validate | null {
  const known = validators.get(type);
  if (known !== undefined || !Object.hasOwn(BODIES, type)) return known ?? null;
  const validate = compile(BODIES[type as RecordType]);
  validators.set(type, validate);
  return validate;
}

const isText = (value: unknown, max: number): value is string => typeof value === "string" && value.length <= max;

/**
 * Is this parsed value an envelope of today's version that {@link readEnvelope} takes, with nothing changed in it? False
 * decides nothing: it also stands for all that is rare (older versions, types without a compiled schema).
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

/** What a scan of a JSON object's text finds; the text must be one that JSON.parse accepted. */
interface Scanned {
  /** Exact text of the last top-level member with the name, as JSON.parse would take it, or undefined. */
  text: string | undefined;
  /** Deepest nesting, 1 for a flat object. */
  depth: number;
  /** Escapes in a string, or a number with an exponent or hundreds of digits: readers may disagree on those. */
  odd: boolean;
}

const QUOTE = 34;
const COMMA = 44;
const COLON = 58;
const BACKSLASH = 92;
const MAX_DIGITS = 300;

/** Index of the quote that closes the string opened at `at`. An even run of backslashes before it escapes only itself. */
function closingQuote(text: string, at: number): number {
  for (let from = at + 1; ; ) {
    const quote = text.indexOf('"', from);
    let slashes = 0;
    while (text.charCodeAt(quote - 1 - slashes) === BACKSLASH) slashes++;
    if (slashes % 2 === 0) return quote;
    from = quote + 1;
  }
}

/** Index of the number's last character, and whether another reader might not take it for the same double. */
function skipNumber(text: string, at: number): { last: number; odd: boolean } {
  let last = at;
  let exponent = false;
  for (let code = text.charCodeAt(at + 1); isNumberPart(code); code = text.charCodeAt(last + 1)) {
    if (code === 101 || code === 69) exponent = true;
    last++;
  }
  return { last, odd: exponent || last - at > MAX_DIGITS };
}

/** Digits, signs, dot, e and E. */
const isNumberPart = (code: number): boolean =>
  (code >= 48 && code <= 57) || code === 43 || code === 45 || code === 46 || code === 101 || code === 69;

/** Find the top-level member `name` without parsing again: the record keeps the bytes that came, not a reprint of them. */
export function scanMember(text: string, name: string): Scanned {
  const escapes = text.includes("\\");
  let found: string | undefined;
  let odd = escapes;
  let deepest = 0;
  let depth = 0;
  let key = "";
  let start = -1;
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code === QUOTE) {
      const end = escapes ? closingQuote(text, i) : text.indexOf('"', i + 1);
      if (depth === 1 && start < 0) key = text.slice(i, end + 1);
      i = end;
    } else if (code >= 48 && code <= 57) {
      const number = skipNumber(text, i);
      i = number.last;
      if (number.odd) odd = true;
    } else if (code === 123 || code === 91) {
      if (++depth > deepest) deepest = depth;
    } else if (depth > 1) {
      if (code === 125 || code === 93) depth--;
    } else if (code === COLON) {
      start = i + 1;
    } else if (code === COMMA || code === 125) {
      if (start >= 0 && JSON.parse(key) === name) found = text.slice(start, i).trim();
      start = -1;
    }
  }
  return { text: found, depth: deepest, odd };
}
