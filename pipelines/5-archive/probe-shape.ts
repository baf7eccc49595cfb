import { randomBytes, randomInt } from "node:crypto";
import { probeLine } from "./probe-line.ts";

/** Where something was cut out, and between what was cut; no JSON text holds it (sql/64_archive_shapes). */
const CUT = "\x1f";

/** Id and time of a record have one length each. */
const ID_LENGTH = 30;
const TIME_LENGTH = 24;
const SHA_LENGTH = 64;
const TIME_AT = ID_LENGTH + 1;
const MEASURED_AT = TIME_AT + TIME_LENGTH + 1;

/** A number that RFC 8785 prints as it stands here: of fifteen digits at most each decimal is its own shortest print. */
const NUMBER = String.raw`(?:null|(?:0|[1-9]\d{0,8})(?:\.\d{0,5}[1-9])?)`;
const plainCuts = (measured: string): RegExp =>
  new RegExp(String.raw`${measured}\x1f\{"block":\d+,"minute":\d+\}\x1f(?:[0-9a-f]{64})?$`, "y");
const PLAIN = { probe: plainCuts(NUMBER), tool: plainCuts(`${NUMBER},"latency_ms":${NUMBER}`) };

/** Stand where something was cut out. Drawn by this process: no text that was recorded can hold them. */
const MARK = {
  number: randomInt(2 ** 46, 2 ** 47),
  slot: randomBytes(16).toString("hex"),
  sha: randomBytes(32).toString("hex"),
  id: `rec_${randomBytes(13).toString("hex")}`,
  t: randomInt(2 ** 46, 2 ** 47),
};

/** What a line of the shape is made of, in the order of its members; `terms` stands behind the hash where one was cut. */
interface Template {
  measured: string;
  time: string;
  id: string;
  sha: string | null;
  end: string;
}

/** Text as its UTF-8 bytes, a character each: what lines are made of is joined thousands of times and encoded once. */
const bytesOf = (text: string): string => Buffer.from(text).toString("latin1");

/** Id of a record: they stand in front, so that records are in the order of their ids. */
export const idOf = (record: string): string => record.slice(0, ID_LENGTH);

/** Does a record tell this UTC day? */
export const isOf = (record: string, day: string): boolean => record.startsWith(day, TIME_AT);

/**
 * What records of one endpoint have in common. Their lines are made by {@link probeLine} once for all of them; a record
 * whose cuts are not plainly what they should be is put together again and gets its line alone.
 */
export class ProbeShape {
  readonly #pieces: string[];
  readonly #template: Template | null;
  readonly #plain: RegExp;

  constructor(
    readonly cap: string,
    shape: string,
    readonly isTool: boolean,
  ) {
    this.#pieces = shape.split(CUT);
    this.#plain = isTool ? PLAIN.tool : PLAIN.probe;
    this.#template = this.#pieces.length > 1 ? this.#madeTemplate() : null;
  }

  /**
   * The line of a record with its newline; its UTF-8 bytes, a character each.
   * @param record id, time, and what was cut out, with {@link CUT} between them
   */
  lineOf(record: string): string {
    const made = this.#template;
    if (made === null) return this.#alone(record);
    this.#plain.lastIndex = MEASURED_AT;
    if (!this.#plain.test(record)) return this.#alone(record);
    const time = record.slice(TIME_AT, TIME_AT + TIME_LENGTH);
    const measured = record.slice(MEASURED_AT, record.indexOf(CUT, MEASURED_AT));
    const line = made.measured + measured + made.time + time + made.id + idOf(record);
    if (made.sha === null) return line + made.end;
    const sha = record.slice(-SHA_LENGTH);
    return sha.includes(CUT) ? this.#alone(record) : line + made.sha + sha + made.end;
  }

  #alone(record: string): string {
    const [id = "", time = "", ...cuts] = record.split(CUT);
    const row = { event_id: id, cap: this.cap, t: Date.parse(time), body: this.#bodyWith(cuts) };
    return bytesOf(`${probeLine(row, this.isTool)}\n`);
  }

  #bodyWith(cuts: readonly string[]): string {
    return this.#pieces.reduce((text, piece, n) => text + cuts[n - 1] + piece);
  }

  /** Null when what was cut out is not what it was taken for: a member of the same name elsewhere, or one of two. */
  #madeTemplate(): Template | null {
    const { number, slot, sha, id, t } = MARK;
    const hasSha = this.#pieces.length > 3;
    const measured = this.isTool ? `${number},"latency_ms":${number + 1}` : `${number}`;
    const body = this.#bodyWith([measured, `{"${slot}":0}`, sha]);
    const read = parsed(body);
    const isMeasured = this.isTool
      ? read?.initialize_ms === number && read.latency_ms === number + 1
      : read?.latency_ms === number;
    if (!read?.slot || !isMeasured || !Object.hasOwn(read.slot, slot)) return null;
    if (hasSha && read.terms?.sha256 !== sha) return null;
    const line = bytesOf(`${probeLine({ event_id: id, cap: this.cap, t, body }, this.isTool)}\n`);
    const [first, second, third, ...rest] = splitAt(line, [
      measured,
      new Date(t).toISOString(),
      id,
      ...(hasSha ? [sha] : []),
    ]);
    const end = rest.pop()!;
    return { measured: first!, time: second!, id: third!, sha: rest[0] ?? null, end };
  }
}

interface Marked {
  initialize_ms?: unknown;
  latency_ms?: unknown;
  slot?: object;
  terms?: { sha256?: unknown } | null;
}

/** Null for what is no JSON: then something else was cut out of it. */
function parsed(body: string): Marked | null {
  try {
    return JSON.parse(body) as Marked;
  } catch {
    return null;
  }
}

/** What stands before, between and behind marks that come once each, in this order. */
function splitAt(text: string, marks: readonly string[]): string[] {
  const pieces: string[] = [];
  let from = 0;
  for (const mark of marks) {
    const at = text.indexOf(mark, from);
    pieces.push(text.slice(from, at));
    from = at + mark.length;
  }
  return [...pieces, text.slice(from)];
}
