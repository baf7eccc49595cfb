import { SHA256_HEX } from "../../infra/sha256-hex.ts";
import { CUT as CUT_TEXT } from "../2-ingest/probe-cuts.ts";
import { isId } from "../record/ids.ts";
import { ArchiveUnproven } from "./errors.ts";
import { ID_BYTES, type LinePiece } from "./line-piece.ts";
import { type Alike, bodyOf, type LineTemplates, piecesOf } from "./line-templates.ts";
import { isHex, measuredEnd, plainEnd } from "./plain-cuts.ts";
import { probeLine } from "./probe-line.ts";
import { CUT, type Group, MEASURED_AT, type ProbeRecords } from "./probe-records.ts";
import { copyWords, sameWords, wordsOf } from "./words.ts";

const SHA_BYTES = 64;
const NOWHERE: DataView = new DataView(new ArrayBuffer(0));

/**
 * What records of one endpoint have in common. Their lines are copies of a template; a record whose cuts are not plainly what
 * they should be is put together again and gets its line alone.
 */
export class ProbeShape {
  readonly #alike: Alike;
  readonly #capWords: DataView;
  readonly #usual: DataView | null;
  /** Where the hash of the record stands that was looked at last. */
  #shaWords: DataView = NOWHERE;
  #shaAt = 0;

  /** @throws ArchiveUnproven for a shape of an ingested body that has other cuts than those */
  constructor(
    readonly of: Pick<Group, "cap" | "form" | "shape" | "sha">,
    readonly templates: LineTemplates,
  ) {
    const { cap, sha } = of;
    const alike = templates.of(of);
    // An id as we make it has one length, and a line tells its characters as they are.
    this.#alike = isId("cap", cap) ? alike : { ...alike, template: null };
    this.#capWords = wordsOf(Buffer.from(cap, "latin1"));
    this.#usual = sha === null ? null : wordsOf(Buffer.from(sha, "latin1"));
  }

  /** Write the line of a record of this shape. */
  write(records: ProbeRecords, n: number, into: LinePiece): void {
    const { bytes, words } = records;
    const [start, end] = [records.starts[n]!, records.ends[n]!];
    const from = start + MEASURED_AT;
    const { hasSha, template } = this.#alike;
    const upto = template === null ? -1 : this.#plainEnd(records, from, end);
    if (template === null || upto < 0) {
      into.add(bytes.toString("latin1", start, start + ID_BYTES), this.#alone(records.text(n)));
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
    copyWords(this.#capWords, 0, ID_BYTES, line, at + template.cap);
    copyWords(words, start, ID_BYTES, line, tailAt + template.id);
    if (hasSha) copyWords(this.#shaWords, this.#shaAt, SHA_BYTES, line, tailAt + template.sha);
    into.wrote(tailAt + tail.length, words, start);
  }

  /** The end of what was measured when all cuts are plainly what they should be, or -1; the hash is where it says then. */
  #plainEnd(records: ProbeRecords, from: number, end: number): number {
    if (this.of.form !== null) return this.#ingestedEnd(records, from, end);
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
      if (this.#usual === null) return -1;
      [this.#shaWords, this.#shaAt] = [this.#usual, 0];
      return upto;
    }
    if (own !== SHA_BYTES || !isHex(bytes, upto + 1, end)) return -1;
    [this.#shaWords, this.#shaAt] = [words, upto + 1];
    return upto;
  }

  #alone(record: string): string {
    const { cap, form, shape } = this.of;
    const isIngested = form !== null;
    const { isTool, day } = this.templates;
    const [id = "", time = "", ...cuts] = record.split(CUT_TEXT);
    if (!day.has(Number(time))) throw new ArchiveUnproven(`lines of ${cap}`, `rows of ${day.day}`, record);
    if (isIngested) this.#useSha(cuts);
    const body = bodyOf(piecesOf(cap, shape, isIngested), cuts);
    return Buffer.from(`${probeLine({ event_id: id, cap, t: Number(time), body }, isTool)}\n`).toString("latin1");
  }

  /** @param cuts get the usual hash where they have none @throws ArchiveUnproven when they are not those of the shape */
  #useSha(cuts: string[]): void {
    const { cap, sha } = this.of;
    const { hasSha } = this.#alike;
    if (hasSha && cuts[1] === "") cuts[1] = sha ?? "";
    const isOwn = cuts.length === 2 && (hasSha ? SHA256_HEX.test(cuts[1]!) : cuts[1] === "");
    if (!isOwn) throw new ArchiveUnproven(`lines of ${cap}`, "cuts of their shape", cuts.join(", "));
  }
}
