import { randomBytes, randomInt } from "node:crypto";
import { SHA256_HEX } from "../../infra/sha256-hex.ts";
import { CUT as CUT_TEXT } from "../2-ingest/probe-cuts.ts";
import { ArchiveUnproven } from "./errors.ts";
import type { LineDay } from "./line-day.ts";
import { ID_BYTES, type LinePiece } from "./line-piece.ts";
import { isHex, measuredEnd, plainEnd } from "./plain-cuts.ts";
import { probeLine } from "./probe-line.ts";
import { CUT, type Group, MEASURED_AT, type ProbeRecords } from "./probe-records.ts";
import { copyWords, sameWords, wordsOf } from "./words.ts";

const SHA_BYTES = 64;

/** Stand where something was cut out. Drawn by this process: no text that was recorded can hold them. */
const MARK = {
  number: randomInt(2 ** 46, 2 ** 47),
  slot: randomBytes(16).toString("hex"),
  sha: randomBytes(32).toString("hex"),
  id: `rec_${randomBytes(13).toString("hex")}`,
  t: randomInt(2 ** 46, 2 ** 47),
};

/**
 * What a line of the shape is made of: its bytes before what was measured and behind it. What else differs has one length,
 * and is written over `tail` at these places; `terms` stands behind the hash where one was cut.
 */
interface Template {
  head: Uint8Array;
  tail: Uint8Array;
  tailWords: DataView;
  time: number;
  id: number;
  sha: number;
  /** Has the tail the hash that most records have? */
  isUsual: boolean;
}

/**
 * What records of one endpoint have in common. Their lines are made by {@link probeLine} once for all of them; a record
 * whose cuts are not plainly what they should be is put together again and gets its line alone.
 */
export class ProbeShape {
  readonly cap: string;
  readonly isIngested: boolean;
  readonly hasSha: boolean;
  readonly #sha: string | null;
  readonly #usual: DataView | null;
  readonly #pieces: string[];
  readonly #template: Template | null;

  /**
   * @throws ArchiveUnproven for a shape of an ingested body that has other cuts than those
   */
  constructor(
    { cap, shape, isIngested, sha }: Omit<Group, "count" | "look" | "records">,
    readonly isTool: boolean,
    readonly day: LineDay,
  ) {
    [this.cap, this.isIngested, this.#sha] = [cap, isIngested, sha];
    this.#usual = sha === null ? null : wordsOf(Buffer.from(sha, "latin1"));
    this.#pieces = isIngested ? withoutSlot(cap, shape.split(CUT_TEXT)) : shape.split(CUT_TEXT);
    this.hasSha = this.#pieces.length > (isIngested ? 2 : 3);
    this.#template = this.#pieces.length > 1 ? this.#madeTemplate() : null;
  }

  /** Write the line of a record of this shape. */
  write(records: ProbeRecords, n: number, into: LinePiece): void {
    const { bytes, words } = records;
    const [start, end] = [records.starts[n]!, records.ends[n]!];
    const from = start + MEASURED_AT;
    const made = this.#template;
    const upto = made === null ? -1 : this.#plainEnd(records, from, end, made);
    if (made === null || upto < 0) {
      into.add(bytes.toString("latin1", start, start + ID_BYTES), this.#alone(records.text(n)));
      return;
    }
    const { head, tail } = made;
    const text = into.room(head.length + (upto - from) + tail.length);
    const at = into.used;
    text.set(head, at);
    const tailAt = at + head.length + upto - from;
    for (let i = from; i < upto; i++) text[tailAt - upto + i] = bytes[i]!;
    text.set(tail, tailAt);
    this.day.putTime(records.times[n]!, text, tailAt + made.time);
    copyWords(words, start, ID_BYTES, into.words, tailAt + made.id);
    into.wrote(tailAt + tail.length, words, start);
  }

  /** The end of what was measured when all cuts are plainly what they should be, or -1; the tail has its hash then. */
  #plainEnd(records: ProbeRecords, from: number, end: number, made: Template): number {
    if (this.isIngested) return this.#ingestedEnd(records, from, end, made);
    const { bytes, words } = records;
    const { sha, tailWords } = made;
    const shaAt = end - (this.hasSha ? SHA_BYTES : 0);
    if (shaAt <= from || bytes[shaAt - 1] !== CUT) return -1;
    // It is that of the record before, more often than not.
    if (this.hasSha && !sameWords(words, shaAt, SHA_BYTES, tailWords, sha)) {
      if (!isHex(bytes, shaAt, end)) return -1;
      copyWords(words, shaAt, SHA_BYTES, tailWords, sha);
    }
    return plainEnd(bytes, from, shaAt - 1, this.isTool);
  }

  /** {@link #plainEnd} of a record without a slot, and without a hash where it has the usual one. */
  #ingestedEnd({ bytes, words }: ProbeRecords, from: number, end: number, made: Template): number {
    const upto = measuredEnd(bytes, from, this.isTool);
    if (upto < 0 || bytes[upto] !== CUT) return -1;
    const own = end - upto - 1;
    if (!this.hasSha) return own === 0 ? upto : -1;
    if (own === 0) {
      if (this.#usual === null) return -1;
      if (!made.isUsual) copyWords(this.#usual, 0, SHA_BYTES, made.tailWords, made.sha);
      made.isUsual = true;
      return upto;
    }
    if (own !== SHA_BYTES || !isHex(bytes, upto + 1, end)) return -1;
    copyWords(words, upto + 1, SHA_BYTES, made.tailWords, made.sha);
    made.isUsual = false;
    return upto;
  }

  #alone(record: string): string {
    const [id = "", time = "", ...cuts] = record.split(CUT_TEXT);
    if (!this.day.has(Number(time)))
      throw new ArchiveUnproven(`lines of ${this.cap}`, `rows of ${this.day.day}`, record);
    if (this.isIngested) this.#useSha(cuts);
    const row = { event_id: id, cap: this.cap, t: Number(time), body: this.#bodyWith(cuts) };
    return bytesOf(`${probeLine(row, this.isTool)}\n`).toString("latin1");
  }

  /** @param cuts get the usual hash where they have none @throws ArchiveUnproven when they are not those of the shape */
  #useSha(cuts: string[]): void {
    if (this.hasSha && cuts[1] === "") cuts[1] = this.#sha ?? "";
    const isOwn = cuts.length === 2 && (this.hasSha ? SHA256_HEX.test(cuts[1]!) : cuts[1] === "");
    if (!isOwn) throw new ArchiveUnproven(`lines of ${this.cap}`, "cuts of their shape", cuts.join(", "));
  }

  #bodyWith(cuts: readonly string[]): string {
    return this.#pieces.reduce((text, piece, n) => text + cuts[n - 1] + piece);
  }

  /** Null when what was cut out is not what it was taken for: a member of the same name elsewhere, or one of two. */
  #madeTemplate(): Template | null {
    const { number, slot, sha, id, t } = MARK;
    const measured = this.isTool ? `${number},"latency_ms":${number + 1}` : `${number}`;
    const body = this.#bodyWith(this.isIngested ? [measured, sha] : [measured, `{"${slot}":0}`, sha]);
    const read = parsed(body);
    const isMeasured = this.isTool
      ? read?.initialize_ms === number && read.latency_ms === number + 1
      : read?.latency_ms === number;
    if (!read?.slot || !isMeasured || !(this.isIngested || Object.hasOwn(read.slot, slot))) return null;
    if (this.hasSha && read.terms?.sha256 !== sha) return null;
    const line = bytesOf(`${probeLine({ event_id: id, cap: this.cap, t, body }, this.isTool)}\n`);
    const [measuredAt, timeAt, idAt] = [measured, new Date(t).toISOString(), id].map((mark) => line.indexOf(mark));
    const tailAt = measuredAt! + measured.length;
    const places = { time: timeAt! - tailAt, id: idAt! - tailAt, sha: this.hasSha ? line.indexOf(sha) - tailAt : 0 };
    const tail = line.subarray(tailAt);
    this.day.putDate(tail, places.time);
    return { head: line.subarray(0, measuredAt), tail, tailWords: wordsOf(tail), ...places, isUsual: false };
  }
}

/** No line tells the slot, so any will do; that nothing but its numbers was cut out there was judged when the record came. */
function withoutSlot(cap: string, pieces: readonly string[]): string[] {
  const [head, block, minute, tail, ...rest] = pieces;
  if (tail === undefined || rest.length > 1)
    throw new ArchiveUnproven(`shape of ${cap}`, "4 or 5 pieces", `${pieces.length}`);
  return [head!, `${block}0${minute}0${tail}`, ...rest];
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

const bytesOf = (text: string): Buffer => Buffer.from(text);
