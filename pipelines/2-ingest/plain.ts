import { isAscii } from "node:buffer";
import { MAX_DEPTH } from "../../infra/canonical.ts";
import type { LogRecord } from "../../infra/log/log.ts";
import { ownText } from "../../infra/own-text.ts";
import { TOPIC_OF } from "../record/bodies.ts";
import { ENVELOPE_VERSION } from "../record/envelope.ts";
import { isId } from "../record/ids.ts";
import { isQuickBody, isShaped, learnShape } from "./quick.ts";
import type { Row } from "./segment.ts";

const utf8 = new TextDecoder("utf-8");

/**
 * Nearly every record is ASCII, which needs no decoder. What is no UTF-8 comes back with marks (U+FFFD).
 * @param characters the bytes as Latin-1, where they are at hand
 */
export function textOf(bytes: Uint8Array, characters?: string): string {
  if (!isAscii(bytes)) return utf8.decode(bytes);
  if (characters !== undefined) return characters;
  const buffer = Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return buffer.toString("latin1");
}

export const BODY = '{"body":';
export const CAP = ',"cap":"';
export const EVENT_ID = ',"event_id":"';
export const KEY = '","key":"';
export const OBSERVED_AT = '","observed_at":"';
export const PRODUCER = '","producer":"';
const FIXED_CHARS = EVENT_ID.length + KEY.length + OBSERVED_AT.length;
const QUOTE = 34;
const ZERO = 48;
/** Characters of `,"cap":"cap_..."` and of a time. */
const CAP_CHARS = CAP.length + 31;
export const TIME_CHARS = 24;
/**
 * Texts that need no escape in JSON. Half of a character has become a mark in the text, and only the bytes can tell it
 * from a mark that was written: neither is plain.
 */
const PLAIN_KEY = /^[^"\\\p{Cc}\ufffd]{1,512}$/u;
const PLAIN_END = /^","producer":"([^"\\\p{Cc}\ufffd]{0,120})","type":"([a-z._]{1,40})","v":([1-9]\d{0,8})\}$/u;
/** Where other readers may read something else: a number with an exponent or hundreds of digits. */
const ODD_NUMBER = /[\s:,[]-?(?:[\d.]+[eE]|[\d.]{300})/;

/**
 * The row of a record whose text has the very form that we write: members in order, no escape, nothing that needs a
 * second look. Null decides nothing: `readRow` then reads it member by member.
 *
 * The text is taken apart from its end: a tail whose every character is known, and what lies before it. Where that is
 * one JSON object by itself, no member can hide in it, be said twice outside of it, or reach over its end.
 */
export function plainRow(record: LogRecord, text: string): Row | null {
  const { eventId, key } = record;
  const isCapKey = isId("cap", key);
  if (!text.startsWith(BODY) || !isId("rec", eventId) || !(isCapKey || PLAIN_KEY.test(key))) return null;
  // No text of the tail holds a quote, so this is where it begins, or it has another form.
  const tailAt = text.lastIndexOf(PRODUCER);
  const timeAt = tailAt - TIME_CHARS;
  const at = timeAt - FIXED_CHARS - eventId.length - key.length;
  if (at < BODY.length || !isNamed(record, text, at)) return null;
  const observedMs = plainMs(text, timeAt);
  if (observedMs === null) return null;
  const tail = tailOf(text, tailAt);
  if (tail === null || TOPIC_OF[tail.type] !== record.topic) return null;
  const end = bodyEnd(text, at, isCapKey ? key : null);
  if (end < 0) return null;
  if (!isShaped(tail.type, text, BODY.length, end) && !isPlainBody(tail.type, text.slice(BODY.length, end)))
    return null;
  return {
    offset: record.offset,
    eventId,
    type: tail.type,
    key,
    cap: end === at ? null : capIn(text, end + CAP.length, key),
    observedMs,
    producer: tail.producer,
    v: ENVELOPE_VERSION,
    appendedMs: record.appendedAt.getTime(),
    body: { of: text, from: BODY.length, end },
    extra: null,
  };
}

/** Does the text say at this place which record it is, under which key? */
function isNamed({ eventId, key }: LogRecord, text: string, at: number): boolean {
  const idAt = at + EVENT_ID.length;
  const keyAt = idAt + eventId.length + KEY.length;
  return (
    text.startsWith(EVENT_ID, at) &&
    text.startsWith(eventId, idAt) &&
    text.startsWith(KEY, keyAt - KEY.length) &&
    text.startsWith(key, keyAt) &&
    text.startsWith(OBSERVED_AT, keyAt + key.length)
  );
}

/**
 * Where the body ends: before `cap` where the record has one; -1 when that is none.
 * @param known a cap that the record is likely to have
 */
function bodyEnd(text: string, at: number, known: string | null): number {
  const capAt = at - CAP_CHARS;
  if (text.charCodeAt(at - 1) !== QUOTE) return at;
  if (!text.startsWith(CAP, capAt)) return -1;
  if (known !== null && text.startsWith(known, capAt + CAP.length)) return capAt;
  return isId("cap", text.slice(capAt + CAP.length, at - 1)) ? capAt : -1;
}

/** The cap that stands there. Where it is the key as well it is the same text in memory: whatever asks for both does so once. */
const capIn = (text: string, at: number, key: string): string =>
  key.length === CAP_CHARS - CAP.length - 1 && text.startsWith(key, at)
    ? key
    : text.slice(at, at + CAP_CHARS - CAP.length - 1);

/** `YYYY-MM-DDT`. */
const DAY_CHARS = 11;
const DAY = /^\d{4}-\d\d-\d\dT$/;
let lastDay = "";
let lastDayMs = 0;

/**
 * Ms of the plain time that stands there (`YYYY-MM-DDThh:mm:ss.sssZ`), null for any other form and for what is none: no 31
 * February, no hour 24. Records of one day come together, so the calendar is asked once for many.
 */
export function plainMs(text: string, at: number): number | null {
  const day = text.slice(at, at + DAY_CHARS);
  if (day !== lastDay) {
    const ms = DAY.test(day) ? Date.parse(`${day}00:00:00.000Z`) : Number.NaN;
    if (Number.isNaN(ms) || !new Date(ms).toISOString().startsWith(day)) return null;
    lastDay = ownText(day);
    lastDayMs = ms;
  }
  const hour = twoDigits(text, at + 11);
  const minute = twoDigits(text, at + 14);
  const second = twoDigits(text, at + 17);
  const tens = twoDigits(text, at + 20);
  const ones = text.charCodeAt(at + 22) - ZERO;
  const isPlain =
    hour < 24 && minute < 60 && second < 60 && tens < 100 && ones >= 0 && ones < 10 && isPointed(text, at);
  return isPlain ? lastDayMs + 3_600_000 * hour + 60_000 * minute + 1_000 * second + 10 * tens + ones : null;
}

const COLON = 58;
const POINT = 46;
const ZULU = 90;

const isPointed = (text: string, at: number): boolean =>
  text.charCodeAt(at + 13) === COLON &&
  text.charCodeAt(at + 16) === COLON &&
  text.charCodeAt(at + 19) === POINT &&
  text.charCodeAt(at + 23) === ZULU;

/** The number that two digits are; more than any of them where one is none. */
function twoDigits(text: string, at: number): number {
  const tens = text.charCodeAt(at) - ZERO;
  const ones = text.charCodeAt(at + 1) - ZERO;
  return tens >= 0 && tens < 10 && ones >= 0 && ones < 10 ? 10 * tens + ones : 100;
}

type Type = keyof typeof TOPIC_OF;
interface Tail {
  type: Type;
  producer: string;
}
/** Few producers write few types, so ends repeat; a bound keeps strangers from filling the memory. */
const MAX_ENDS = 256;
const tails = new Map<string, Tail | null>();
let lastEnd = "";
let lastTail: Tail | null = null;

/** What a known or a plain end of a record says, or null. Most say what the one before them did. */
function tailOf(text: string, at: number): Tail | null {
  if (text.length - at === lastEnd.length && text.startsWith(lastEnd, at)) return lastTail;
  lastEnd = ownText(text.slice(at));
  lastTail = knownTail(lastEnd);
  return lastTail;
}

function knownTail(end: string): Tail | null {
  const known = tails.get(end);
  if (known !== undefined) return known;
  const [, producer, type, v] = PLAIN_END.exec(end) ?? [];
  const plain = type !== undefined && Number(v) === ENVELOPE_VERSION && Object.hasOwn(TOPIC_OF, type);
  const found = plain && producer !== undefined ? { type: type as Type, producer } : null;
  if (tails.size >= MAX_ENDS) tails.clear();
  tails.set(end, found);
  return found;
}

/** Each level of nesting needs an opener, so as few cannot be nested deeper than what is allowed. */
function hasFewOpeners(text: string): boolean {
  let left = MAX_DEPTH - 1;
  for (const opener of ["{", "["]) {
    for (let at = text.indexOf(opener); at >= 0; at = text.indexOf(opener, at + 1)) if (--left < 0) return false;
  }
  return true;
}

/**
 * Escapes and odd numbers are read one way here and another way there. Space around the body is not the body's. What
 * lies around it is plain by its form.
 */
const isPlain = (body: string): boolean =>
  body.startsWith("{") &&
  body.endsWith("}") &&
  !body.includes("\\") &&
  !body.includes("\ufffd") &&
  !body.includes("__proto__") &&
  !ODD_NUMBER.test(body) &&
  hasFewOpeners(body);

function isPlainBody(type: Type, text: string): boolean {
  if (!isPlain(text)) return false;
  try {
    const body: unknown = JSON.parse(text);
    if (!isQuickBody(type, body)) return false;
    learnShape(type, body);
    return true;
  } catch {
    return false;
  }
}
