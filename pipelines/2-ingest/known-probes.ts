import type { OpenedBatch } from "../../infra/log/packed.ts";
import { ownText } from "../../infra/own-text.ts";
import { BODY, CAP, EVENT_ID, KEY, OBSERVED_AT, PRODUCER, plainMs, TIME_CHARS } from "./plain.ts";
import { CUT, type FoundBody, type ProbeCuts, type Shape, TOOL, wholeBody } from "./probe-cuts.ts";
import { isQuickBody, isShaped } from "./quick.ts";
import type { Facts, Row } from "./segment.ts";

/** Characters of an id. */
const ID_CHARS = 30;
const ID_PREFIX = Buffer.from("rec_");
/** Which bytes an id may have behind its prefix: 1 for those. */
const IS_OF_ID = Uint8Array.from({ length: 256 }, (_, code) =>
  /[0-9A-HJKMNP-TV-Z]/.test(String.fromCharCode(code)) ? 1 : 0,
);
/** ASCII without control characters, and of producers nothing that needs an escape. */
const ASCII = /^[ -~]*$/;
const PLAIN_PRODUCER = /^[ !#-[\]-~]*$/;
/** Ends of records: few producers write few types. */
const MOST_ENDS = 8;
const MOST_MINUTE = 359;

/** An endpoint whose probes were judged before, and what stands in each of them between what differs. */
interface Endpoint {
  key: string;
  /** Among the keys of the segment. */
  number: number;
  beforeId: string;
  beforeTime: string;
}

/** How a record ends behind its time. */
interface End {
  text: string;
  type: string;
  producer: string;
  v: number;
}

/** A probe that was judged by those before it. */
export interface KnownProbe {
  facts: Facts;
  key: number;
  body: FoundBody;
}

/**
 * Probes that repeat, character by character, a record that was judged before, but for its id, its time and what is cut
 * out of its body (probe-cuts.ts). Those are judged each, and a body of the shape was judged with the least and the most
 * that the cuts may be; what is left was judged with the record before. So such a probe is what `readRow` would say that
 * it is. What is not found here is left to it.
 */
export class KnownProbes {
  /** By a few characters of the key. */
  readonly #endpoints = new Map<number, Endpoint>();
  readonly #ends: End[] = [];

  constructor(private readonly cuts: ProbeCuts) {}

  /** A row whose body was cut, for those that come after it. @param key its number among the keys of the segment */
  learn({ key: said, cap, producer, type, v, extra }: Row, number: number): void {
    if (cap !== said || extra !== null || !PLAIN_PRODUCER.test(producer)) return;
    const place = placeOf(Buffer.from(said), 0);
    if (!this.#endpoints.has(place)) {
      const key = ownText(said);
      const [beforeId, beforeTime] = [`${CAP}${key}"${EVENT_ID}`, `${KEY}${key}${OBSERVED_AT}`];
      this.#endpoints.set(place, { key, number, beforeId, beforeTime });
    }
    const text = `${PRODUCER}${producer}","type":"${type}","v":${v}}`;
    if (this.#ends.some((end) => end.text === text)) return;
    this.#ends.unshift({ text, type, producer, v });
    this.#ends.length = Math.min(this.#ends.length, MOST_ENDS);
  }

  find(batch: OpenedBatch, i: number): KnownProbe | null {
    const keyAt = batch.keyAt(i);
    const ownId = batch.idAt(i);
    if (batch.keyEnd(i) - keyAt !== ID_CHARS || batch.idEnd(i) - ownId !== ID_CHARS) return null;
    const endpoint = this.#endpoints.get(placeOf(batch.bytes, keyAt));
    if (endpoint === undefined) return null;
    // From here on places are those in the text.
    const text = batch.piece(i);
    const { pieceAt } = batch;
    const { key, number, beforeId, beforeTime } = endpoint;
    const at = batch.valueAt(i) - pieceAt;
    const bodyAt = at + BODY.length;
    if (text.slice(keyAt - pieceAt, keyAt - pieceAt + ID_CHARS) !== key || text.slice(at, bodyAt) !== BODY) return null;
    const body = this.cuts.find(number, text, bodyAt);
    if (body === null) return null;
    const idAt = body.end + beforeId.length;
    const timeAt = idAt + ID_CHARS + beforeTime.length;
    const isNamed =
      text.slice(body.end, idAt) === beforeId &&
      isSameId(batch.bytes, ownId, idAt + pieceAt) &&
      text.slice(idAt + ID_CHARS, timeAt) === beforeTime;
    const end = isNamed ? this.#endOf(text.slice(timeAt + TIME_CHARS, batch.valueEnd(i) - pieceAt)) : undefined;
    if (end === undefined || !isTaken(body, end.type)) return null;
    const observedMs = plainMs(text, timeAt);
    if (observedMs === null) return null;
    const { type, producer, v } = end;
    const offset = batch.offset(i);
    const appendedMs = batch.appendedMs(i);
    const facts = { offset, type, key, cap: key, observedMs, producer, v, appendedMs, extra: null };
    return { facts, key: number, body };
  }

  #endOf(text: string): End | undefined {
    for (let i = 0; i < this.#ends.length; i++) if (this.#ends[i]!.text === text) return this.#ends[i];
    return undefined;
  }
}

/** A number made of six characters of a key, each of which says five bits. Two keys of one number are never taken for another. */
function placeOf(bytes: Uint8Array, at: number): number {
  let place = 0;
  for (let i = 8; i < 14; i++) place = 31 * place + bytes[at + i]!;
  return place & 0x3fffffff;
}

/** Is it an event id that stands at both places? */
function isSameId(bytes: Uint8Array, one: number, other: number): boolean {
  for (let i = 0; i < ID_CHARS; i++) {
    const byte = bytes[one + i]!;
    const isOfId = i < ID_PREFIX.length ? byte === ID_PREFIX[i] : IS_OF_ID[byte] === 1;
    if (!isOfId || bytes[other + i] !== byte) return false;
  }
  return true;
}

/** The least and the most that may be cut out of a body, and nothing. The types' schemas bound numbers, and list none. */
const EXTREMES = [
  { measured: "0", block: 0, minute: 0, sha: "0".repeat(64) },
  { measured: "999999999.999999", block: 999_999_999, minute: MOST_MINUTE, sha: "f".repeat(64) },
  { measured: "null", block: 0, minute: 0, sha: "0".repeat(64) },
];

/** Do readers take the body, judged by its shape? A shape has the type that its cuts are of. */
function isTaken({ shape, cut }: FoundBody, type: string): boolean {
  if (TOOL[type] !== shape.isTool || cut.minute > MOST_MINUTE) return false;
  shape.isTaken ??= isShapeTaken(shape, type);
  return shape.isTaken;
}

const isShapeTaken = ({ text, rest, isTool }: Shape, type: string): boolean =>
  ASCII.test(text.replaceAll(CUT, "")) &&
  EXTREMES.every(({ measured, sha, ...slot }) => {
    const times = isTool ? `${measured},"latency_ms":${measured}` : measured;
    const body = wholeBody({ ...slot, shape: text, measured: times, sha: rest === null ? null : sha });
    return isShaped(type, body, 0, body.length) || isQuickBody(type, JSON.parse(body));
  });
