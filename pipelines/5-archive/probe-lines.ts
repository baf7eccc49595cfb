import { SHA256_HEX } from "../../infra/sha256-hex.ts";
import { CUT as CUT_TEXT } from "../2-ingest/probe-cuts.ts";
import { isId } from "../record/ids.ts";
import { ArchiveUnproven } from "./errors.ts";
import { ID_BYTES, type LinePiece } from "./line-piece.ts";
import { type Alike, bodyOf, type LineTemplates, WHOLE } from "./line-templates.ts";
import { isHex, measuredEnd, plainEnd } from "./plain-cuts.ts";
import { probeLine } from "./probe-line.ts";
import { CUT, type Group, MEASURED_AT, type ProbeRecords } from "./probe-records.ts";
import { copyWords, sameWords, wordsOf } from "./words.ts";

const SHA_BYTES = 64;
const NOWHERE: DataView = wordsOf(new Uint8Array());

/**
 * Lines of records. They are copies of the template of their shape; a record whose cuts are not plainly what they should be
 * is put together again and gets its line alone.
 */
export class ProbeLines {
  /** Group of the record that was written last, and what is known of it. */
  #group: Group | null = null;
  #alike: Alike = WHOLE;
  /** Where the hash of the record stands that was looked at last. */
  #shaWords: DataView = NOWHERE;
  #shaAt = 0;

  constructor(readonly templates: LineTemplates) {}

  /** Write the line of a record. @throws ArchiveUnproven when it is of another day or not what its shape says */
  write(records: ProbeRecords, n: number, into: LinePiece): void {
    const { bytes, words } = records;
    const group = records.groups[records.group[n]!]!;
    if (group !== this.#group) this.#begin(group);
    const [start, end] = [records.starts[n]!, records.ends[n]!];
    const from = start + MEASURED_AT;
    const { hasSha, template } = this.#alike;
    const upto = template === null ? -1 : this.#plainEnd(records, from, end);
    if (template === null || upto < 0) {
      into.add(bytes.toString("latin1", start, start + ID_BYTES), this.#alone(records, n));
      return;
    }
    const { head, tail } = template;
    const text = into.room(head.length + (upto - from) + tail.length);
    const at = into.used;
    text.set(head, at);
    const tailAt = at + head.length + upto - from;
    for (let i = from; i < upto; i++) text[tailAt - upto + i] = bytes[i]!;
    text.set(tail, tailAt);
    this.templates.day.putTime(records.times[n]!, text, tailAt + template.time);
    const line = into.words;
    copyWords(words, group.capAt, ID_BYTES, line, at + template.cap);
    copyWords(words, start, ID_BYTES, line, tailAt + template.id);
    if (hasSha) copyWords(this.#shaWords, this.#shaAt, SHA_BYTES, line, tailAt + template.sha);
    into.wrote(tailAt + tail.length, words, start);
  }

  #begin(group: Group): void {
    const alike = this.templates.of(group);
    // An id as we make it has one length, and a line tells its characters as they are.
    this.#alike = isId("cap", group.cap) ? alike : { ...alike, template: null };
    this.#group = group;
  }

  /** The end of what was measured when all cuts are plainly what they should be, or -1; the hash is where it says then. */
  #plainEnd(records: ProbeRecords, from: number, end: number): number {
    if (this.#group!.form !== null) return this.#ingestedEnd(records, from, end);
    const { bytes, words } = records;
    const { hasSha } = this.#alike;
    const shaAt = end - (hasSha ? SHA_BYTES : 0);
    if (shaAt <= from || bytes[shaAt - 1] !== CUT) return -1;
    if (hasSha) {
      // It is that of the record before, more often than not.
      const isKnown = this.#shaWords === words && sameWords(words, shaAt, SHA_BYTES, words, this.#shaAt);
      if (!isKnown && !isHex(bytes, shaAt, end)) return -1;
      [this.#shaWords, this.#shaAt] = [words, shaAt];
    }
    return plainEnd(bytes, from, shaAt - 1, this.templates.isTool);
  }

  /** {@link #plainEnd} of a record without a slot, and without a hash where it has the usual one. */
  #ingestedEnd({ bytes, words }: ProbeRecords, from: number, end: number): number {
    const upto = measuredEnd(bytes, from, this.templates.isTool);
    if (upto < 0 || bytes[upto] !== CUT) return -1;
    const own = end - upto - 1;
    if (!this.#alike.hasSha) return own === 0 ? upto : -1;
    if (own === 0) {
      const { shaAt, shaEnd } = this.#group!;
      if (shaEnd - shaAt !== SHA_BYTES) return -1;
      [this.#shaWords, this.#shaAt] = [words, shaAt];
      return upto;
    }
    if (own !== SHA_BYTES || !isHex(bytes, upto + 1, end)) return -1;
    [this.#shaWords, this.#shaAt] = [words, upto + 1];
    return upto;
  }

  #alone(records: ProbeRecords, n: number): string {
    const group = this.#group!;
    const { cap, form, shaAt, shaEnd } = group;
    const { isTool, day } = this.templates;
    const record = records.text(n);
    const [id = "", time = "", ...cuts] = record.split(CUT_TEXT);
    if (!day.has(Number(time))) throw new ArchiveUnproven(`lines of ${cap}`, `rows of ${day.day}`, record);
    if (form !== null) this.#useSha(cuts, records.bytes.toString("latin1", shaAt, shaEnd));
    const body = bodyOf(this.templates.pieces(group), cuts);
    return Buffer.from(`${probeLine({ event_id: id, cap, t: Number(time), body }, isTool)}\n`).toString("latin1");
  }

  /** @param cuts get the usual hash where they have none @throws ArchiveUnproven when they are not those of the shape */
  #useSha(cuts: string[], usual: string): void {
    const { hasSha } = this.#alike;
    if (hasSha && cuts[1] === "") cuts[1] = usual;
    const isOwn = cuts.length === 2 && (hasSha ? SHA256_HEX.test(cuts[1]!) : cuts[1] === "");
    if (!isOwn) throw new ArchiveUnproven(`lines of ${this.#group!.cap}`, "cuts of their shape", cuts.join(", "));
  }
}
