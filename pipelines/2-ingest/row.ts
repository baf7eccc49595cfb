import { canonicalText, MAX_DEPTH } from "../../infra/canonical.ts";
import { type LogRecord, MAX_VALUE_BYTES } from "../../infra/log/log.ts";
import { TOPIC_OF } from "../record/bodies.ts";
import { type Envelope, readEnvelope } from "../record/envelope.ts";
import type { Row } from "./day-segments.ts";
import { isValid, matchBulkRecord } from "./validate.ts";

/** A record that the current version refuses. It is kept with its bytes, so that `redrive` can read it again. */
export interface Rejected {
  topic: string;
  partition: number;
  offset: number;
  /** Why the record is refused, in words. */
  reason: string;
  event_id: string;
  key: string;
  appended_at: string;
  /** The value's bytes, base64. */
  raw: string;
  /**
   * Offset of the copy that `redrive` appended to the log when a later version accepted this record. Readers use the
   * copy.
   */
  moved_to?: number;
}

export type RowResult = { ok: true; row: Row } | { ok: false; rejected: Rejected };

const KNOWN_MEMBERS = new Set(["v", "type", "event_id", "cap", "key", "observed_at", "producer", "body"]);
const utf8 = new TextDecoder("utf-8");

/**
 * Reads one record of the log as a row of a segment, or returns the reason why it is rejected. A record that DuckDB
 * would refuse is rejected here, before a commit makes it permanent.
 */
export function readRow(record: LogRecord): RowResult {
  // The log refuses such a value in `append`. Another program can append it to Kafka, which limits compressed bytes.
  if (record.value.byteLength > MAX_VALUE_BYTES) return refuse(record, `longer than ${MAX_VALUE_BYTES} bytes`);
  const { value } = record;
  const bytes = Buffer.isBuffer(value) ? value : Buffer.from(value.buffer, value.byteOffset, value.byteLength);
  // The pattern of bulk records matches only ASCII, and Latin-1, which has the same ASCII characters, is decoded
  // faster.
  const bulkRecord = matchBulkRecord(bytes.toString("latin1"));
  if (bulkRecord !== null) return rowOf(record, bulkRecord, bulkRecord.body, null);
  // Bytes that are no UTF-8 become U+FFFD.
  const text = utf8.decode(record.value);
  let envelope = parseIfValid(text);
  if (envelope === null) {
    const result = readEnvelope(record.value);
    if (!result.ok) return refuse(record, result.reason);
    envelope = result.envelope;
  }
  const scannedBody = scanMember(text, "body");
  const unreadable = scannedBody.text === undefined ? "no body" : whyUnsafe(text, scannedBody);
  const extra = extraOf(envelope);
  // A number such as 1e20 gets longer when it is printed again.
  if (extra !== null && extra.length > MAX_VALUE_BYTES) return refuse(record, "unknown members are too long");
  const row = rowOf(record, envelope, scannedBody.text ?? "", extra);
  // A control character separates the fields of a segment's lines (day-segments.ts). The pattern with which
  // matchBulkRecord matched above accepts no control character.
  if (row.ok && CONTROL_CHARACTER.test(envelope.key + envelope.producer))
    return refuse(record, "key or producer has a control character");
  return row.ok && unreadable ? refuse(record, unreadable) : row;
}

/**
 * Returns the envelope if a quick check finds it valid. null does not mean that it is invalid: `readEnvelope` then
 * decides and gives the reason.
 */
function parseIfValid(text: string): Envelope | null {
  // Invalid bytes have become U+FFFD in the text. Only the bytes show whether a U+FFFD was written.
  if (text.includes("\ufffd") || text.includes("__proto__")) return null;
  try {
    const value: unknown = JSON.parse(text);
    return isValid(value) ? value : null;
  } catch {
    return null;
  }
}

/**
 * Makes the row of a valid envelope. A record is rejected if its envelope has another id, key or topic than those under
 * which it is in the log, since readers find a record by the latter.
 */
function rowOf(record: LogRecord, envelope: Omit<Envelope, "body">, body: string, extra: string | null): RowResult {
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

/** Converts a stored rejected record back to the record of the log from which it was made. */
export const recordOf = (rejected: Rejected): LogRecord => ({
  topic: rejected.topic,
  partition: rejected.partition,
  offset: rejected.offset,
  eventId: rejected.event_id,
  key: rejected.key,
  appendedAt: new Date(rejected.appended_at),
  value: Buffer.from(rejected.raw, "base64"),
});

function refuse(record: LogRecord, reason: string): RowResult {
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

const CONTROL_CHARACTER = /\p{Cc}/u;

/** Is this a time that exists? The pattern of times and Date.parse accept 31 February and hour 24. */
function isTime(text: string, timeMs: number): boolean {
  if (Number.isNaN(timeMs)) return false;
  return (text.slice(8, 10) <= "28" && text.slice(11, 13) < "24") || new Date(timeMs).toISOString() === text;
}

/**
 * Returns why readers other than JSON.parse may refuse this JSON or read it differently (half a surrogate pair, a
 * number that no double holds, deep nesting, a name twice in one object); null if none does.
 */
function whyUnsafe(text: string, { depth, odd, repeated }: ScanResult): string | null {
  if (depth > MAX_DEPTH) return `nested deeper than ${MAX_DEPTH}`;
  // JSON.parse returns the last of several members with one name, and DuckDB the first.
  if (repeated !== null) return `${JSON.stringify(repeated.slice(0, 120))} twice in one object`;
  if (!odd) return null;
  try {
    canonicalText(JSON.parse(text));
    return null;
  } catch (error) {
    return (error as Error).message.slice(0, 300);
  }
}

/** Returns the properties of the envelope that this version does not know, as JSON text; null when there are none. */
function extraOf(envelope: Envelope): string | null {
  if (Object.keys(envelope).length === (envelope.cap === undefined ? KNOWN_MEMBERS.size - 1 : KNOWN_MEMBERS.size))
    return null;
  const unknownMembers = Object.entries(envelope).filter(([name]) => !KNOWN_MEMBERS.has(name));
  return unknownMembers.length > 0 ? JSON.stringify(Object.fromEntries(unknownMembers)) : null;
}

/** The result of scanning the text of a JSON object. */
interface ScanResult {
  /**
   * Exact text of the value of the last top-level member with the name that {@link scanMember} was asked for, which is
   * the value that JSON.parse returns; undefined if there is none.
   */
  text: string | undefined;
  /** Deepest nesting, 1 for a flat object. */
  depth: number;
  /**
   * Does the text have escapes, or a number with an exponent or hundreds of digits? Readers may read these differently.
   */
  odd: boolean;
  /**
   * A name that one of the inner objects has twice; null if there is none in the outermost MAX_DEPTH levels. DuckDB
   * does not read the outermost object, and JSON.parse takes the last of several members with one name.
   */
  repeated: string | null;
}

/** Matches a string, one character of punctuation, or a number or word. */
const TOKEN = /"[^"\\]*(?:\\.[^"\\]*)*"|[[\]{},:]|[^\s"[\]{},:]+/g;
const ODD_NUMBER = /^-?\d[^eE]*[eE]|^[^"]{300}/;

/** The entry in `open` that all objects and arrays deeper than MAX_DEPTH share. A record that has one is refused. */
const DEEPER = new Set<string>();

/**
 * Finds the top-level member `name` of a text that JSON.parse accepted. It returns the text of the member's value
 * unchanged, since the record keeps the bytes that were received.
 */
export function scanMember(text: string, name: string): ScanResult {
  let memberText: string | undefined;
  let repeated: string | null = null;
  let isOdd = text.includes("\\");
  /** Names of the members so far of each open object, the outermost first; an open array has an entry too. */
  const open: Set<string>[] = [];
  /** `start`: where the value of the top-level member `topLevelName` begins; -1 outside of one. */
  let [deepest, start, topLevelName, previous] = [0, -1, "", ""];
  for (const { 0: token, index } of text.matchAll(TOKEN)) {
    isOdd ||= ODD_NUMBER.test(token);
    if (open.length === 1 && start >= 0 && (token === "," || token === "}")) {
      if (topLevelName === name) memberText = text.slice(start, index).trim();
      start = -1;
    }
    if (token === "{" || token === "[")
      deepest = Math.max(deepest, open.push(open.length < MAX_DEPTH ? new Set() : DEEPER));
    else if (token === "}" || token === "]") open.pop();
    else if (token === ":" && open.length <= MAX_DEPTH) {
      const names = open.at(-1)!;
      const memberName = previous.includes("\\") ? (JSON.parse(previous) as string) : previous.slice(1, -1);
      if (open.length === 1) [topLevelName, start] = [memberName, index + 1];
      else if (names.has(memberName)) repeated ??= memberName;
      names.add(memberName);
    }
    previous = token;
  }
  return { text: memberText, depth: deepest, odd: isOdd, repeated };
}
