import { isAscii } from "node:buffer";
import { MAX_DEPTH } from "../../infra/canonical.ts";
import type { LogRecord } from "../../infra/log/log.ts";
import { TOPIC_OF } from "../record/bodies.ts";
import { ENVELOPE_VERSION } from "../record/envelope.ts";
import { isId } from "../record/ids.ts";
import { isQuickBody } from "./quick.ts";
import type { Row } from "./segment.ts";

const utf8 = new TextDecoder("utf-8");

/** Nearly every record is ASCII, which needs no decoder. What is no UTF-8 comes back with marks (U+FFFD). */
export function textOf(bytes: Uint8Array): string {
  if (!isAscii(bytes)) return utf8.decode(bytes);
  const buffer = Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return buffer.toString("latin1");
}

const BODY = '{"body":';
const CAP = ',"cap":"';
/** Characters of `,"cap":"cap_..."` and of a time. */
const CAP_CHARS = CAP.length + 31;
const TIME_CHARS = 24;
/** A moment of the first 28 days of a month: needs no calendar. */
export const PLAIN_TIME = /^\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1\d|2[0-8])T(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{3}Z$/;
/** Texts that need no escape in JSON. */
const PLAIN_KEY = /^[^"\\\p{Cc}]{1,512}$/u;
const PLAIN_END = /^","producer":"([^"\\\p{Cc}]{0,120})","type":"([a-z._]{1,40})","v":(\d{1,9})\}$/u;
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
  const { eventId, key, value } = record;
  if (!text.startsWith(BODY) || !isId("rec", eventId) || !(isId("cap", key) || PLAIN_KEY.test(key))) return null;
  const named = `,"event_id":"${eventId}","key":"${key}","observed_at":"`;
  const at = text.lastIndexOf(named);
  if (at < 0) return null;
  const timeAt = at + named.length;
  const time = text.slice(timeAt, timeAt + TIME_CHARS);
  if (!PLAIN_TIME.test(time)) return null;
  const tail = tailOf(text.slice(timeAt + TIME_CHARS));
  if (tail === null || TOPIC_OF[tail.type] !== record.topic) return null;
  const end = bodyEnd(text, at);
  const body = text.slice(BODY.length, end);
  if (end < 0 || !isPlain(body, text) || !isBody(tail.type, body)) return null;
  return {
    offset: record.offset,
    eventId,
    type: tail.type,
    key,
    cap: end === at ? null : capIn(text, end + CAP.length, key),
    observedMs: Date.parse(time),
    producer: tail.producer,
    v: ENVELOPE_VERSION,
    appendedMs: record.appendedAt.getTime(),
    // Each character is one byte only where all of them are ASCII: a mark in the place of bytes was refused.
    body: text.length === value.length ? value.subarray(BODY.length, end) : Buffer.from(body),
    extra: null,
  };
}

/** Where the body ends: before `cap` where the record has one; -1 when that is none. */
function bodyEnd(text: string, at: number): number {
  const capAt = at - CAP_CHARS;
  if (text.charCodeAt(at - 1) !== 34) return at;
  return text.startsWith(CAP, capAt) && isId("cap", text.slice(capAt + CAP.length, at - 1)) ? capAt : -1;
}

/** The cap that stands there. Where it is the key as well it is the same text in memory: whatever asks for both does so once. */
const capIn = (text: string, at: number, key: string): string =>
  key.length === CAP_CHARS - CAP.length - 1 && text.startsWith(key, at)
    ? key
    : text.slice(at, at + CAP_CHARS - CAP.length - 1);

type Type = keyof typeof TOPIC_OF;
interface Tail {
  type: Type;
  producer: string;
}
/** Few producers write few types, so ends repeat; a bound keeps strangers from filling the memory. */
const MAX_ENDS = 256;
const tails = new Map<string, Tail | null>();

/** What a known or a plain end of a record says, or null. */
function tailOf(end: string): Tail | null {
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
 * Half of a character has become a mark in the text, and only the bytes can tell it from a mark that was written.
 * Escapes and odd numbers are read one way here and another way there. Space around the body is not the body's.
 */
const isPlain = (body: string, text: string): boolean =>
  body.startsWith("{") &&
  body.endsWith("}") &&
  !text.includes("\\") &&
  !text.includes("\ufffd") &&
  !body.includes("__proto__") &&
  !ODD_NUMBER.test(body) &&
  hasFewOpeners(body);

function isBody(type: Type, text: string): boolean {
  try {
    return isQuickBody(type, JSON.parse(text));
  } catch {
    return false;
  }
}
