import { isAscii } from "node:buffer";
import { canonicalText, MAX_DEPTH } from "../../infra/canonical.ts";
import type { LogRecord } from "../../infra/log/log.ts";
import { TOPIC_OF } from "../record/bodies.ts";
import { type Envelope, readEnvelope } from "../record/envelope.ts";
import type { Row } from "./day-segments.ts";
import { isValid, matched } from "./validate.ts";

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
  /** Offset of the record's copy that `redrive` appended. Set once readers accept this record, which they then read there. */
  moved_to?: number;
}

export type Read = { ok: true; row: Row } | { ok: false; rejected: Rejected };

const KNOWN = new Set(["v", "type", "event_id", "cap", "key", "observed_at", "producer", "body"]);
const utf8 = new TextDecoder("utf-8");

/**
 * Reads one record of the log as a row of a segment, or as a rejected one with the reason. A row loads: what the engine
 * would refuse is refused here, before a commit makes it permanent.
 */
export function readRow(record: LogRecord): Read {
  const text = textOf(record.value);
  const bulk = matched(text);
  if (bulk !== null) return rowOf(record, bulk, bulk.body, null);
  let envelope = validated(text);
  if (envelope === null) {
    const result = readEnvelope(record.value);
    if (!result.ok) return refuse(record, result.reason);
    envelope = result.envelope;
  }
  const body = scanMember(text, "body");
  const unreadable = body.text === undefined ? "no body" : unsafe(text, body.depth, body.odd);
  const row = rowOf(record, envelope, body.text ?? "", extraOf(envelope) ?? null);
  // A control character separates the fields of a segment's lines (day-segments.ts). The pattern of a bulk record takes none.
  if (row.ok && CONTROL.test(envelope.key + envelope.producer))
    return refuse(record, "key or producer has a control character");
  return row.ok && unreadable ? refuse(record, unreadable) : row;
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

/** The row of a sound envelope; rejected where it would be looked for elsewhere: under another id, key or topic. */
function rowOf(record: LogRecord, envelope: Omit<Envelope, "body">, body: string, extra: string | null): Read {
  const { event_id, type, key, cap, observed_at, producer, v } = envelope;
  if (event_id !== record.eventId) return refuse(record, "event_id is not the one it was appended under");
  if (key !== record.key) return refuse(record, "key is not the one it was appended under");
  if (TOPIC_OF[type] !== record.topic) return refuse(record, `${type} belongs to ${TOPIC_OF[type]}`);
  const observedMs = Date.parse(observed_at);
  if (!isTime(observed_at, observedMs)) return refuse(record, "observed_at is no time");
  const [offset, eventId, appendedMs] = [record.offset, event_id, record.appendedAt.getTime()];
  const row = { offset, eventId, type, key, cap: cap ?? null, observedMs, producer, v, appendedMs, body, extra };
  return { ok: true, row };
}

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

/** The form alone lets 31 February and hour 24 through, and so does Date.parse. */
function isTime(text: string, at: number): boolean {
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

/** What a scan of a JSON object's text finds. */
interface Scanned {
  /** Exact text of the last top-level member with the name, which is the one that JSON.parse takes; or undefined. */
  text: string | undefined;
  /** Deepest nesting, 1 for a flat object. */
  depth: number;
  /** Escapes in a string, or a number with an exponent or hundreds of digits: readers may disagree on those. */
  odd: boolean;
}

/** A string, a mark, or a number or word. */
const TOKEN = /"[^"\\]*(?:\\.[^"\\]*)*"|[[\]{},:]|[^\s"[\]{},:]+/g;
const ODD_NUMBER = /^-?\d[^eE]*[eE]|^[^"]{300}/;

/**
 * Finds the top-level member `name` of a text that JSON.parse accepted, without parsing it again: the record keeps the bytes
 * that came, not a reprint of them.
 */
export function scanMember(text: string, name: string): Scanned {
  let found: string | undefined;
  let odd = text.includes("\\");
  let [depth, deepest, start, key] = [0, 0, -1, ""];
  for (const { 0: token, index } of text.matchAll(TOKEN)) {
    odd ||= ODD_NUMBER.test(token);
    if (token === "{" || token === "[") deepest = Math.max(deepest, ++depth);
    else if (depth > 1) depth -= token === "}" || token === "]" ? 1 : 0;
    else if (token === ":") start = index + 1;
    else if (token === "," || token === "}") {
      if (start >= 0 && JSON.parse(key) === name) found = text.slice(start, index).trim();
      start = -1;
    } else if (start < 0) key = token;
  }
  return { text: found, depth: deepest, odd };
}
