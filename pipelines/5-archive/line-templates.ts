import { randomBytes, randomInt } from "node:crypto";
import { CUT } from "../2-ingest/probe-cuts.ts";
import { ArchiveUnproven } from "./errors.ts";
import type { LineDay } from "./line-day.ts";
import { probeLine } from "./probe-line.ts";
import type { Group } from "./probe-records.ts";

/** Stand where something was cut out. Drawn by this process: no text that was recorded can hold them. */
const MARK = {
  number: randomInt(2 ** 46, 2 ** 47),
  slot: randomBytes(16).toString("hex"),
  sha: randomBytes(32).toString("hex"),
  id: `rec_${randomBytes(13).toString("hex")}`,
  cap: `cap_${randomBytes(13).toString("hex").toUpperCase()}`,
  t: randomInt(2 ** 46, 2 ** 47),
};

/**
 * Nothing of a line is made from a payee, and that is what bodies of different endpoints differ in most of all: they share a
 * template whoever is paid. In valid JSON this finds values of members alone (a quote within a string value has a backslash in
 * front, also the one behind the name), of `pay_to` or of one whose name ends so, which no line tells either; and letters and
 * digits between two quotes may be any without changing how the text around them is read.
 */
export const PAYEE = /"pay_to":"[0-9A-Za-z]*"/g;
export const NOBODY = '"pay_to":""';

/** Shapes that are known by their template; then all are forgotten. Each takes a few kilobytes. */
const MOST_KNOWN = 8_192;

/**
 * What a line is made of: its bytes before what was measured and behind it. All else that differs has one length, and is
 * written over them at these places: the capability over `head`, the others over `tail`.
 */
export interface Template {
  head: Uint8Array;
  tail: Uint8Array;
  cap: number;
  time: number;
  id: number;
  sha: number;
}

/** Whose shape it is, and which. */
type Shaped = Pick<Group, "cap" | "form" | "shape">;

/** What shapes have in common that differ in who is paid. */
export interface Alike {
  /** Was a hash cut out of them? */
  hasSha: boolean;
  /** Null when each record has to be put together again. */
  template: Template | null;
}

/** Nothing was cut out of a body that is whole. */
export const WHOLE: Alike = { hasSha: false, template: null };

/** Templates of the lines of one file, by the shape of their records. */
export class LineTemplates {
  /** Of shapes that were cut when they came, by the number of their form; of the others by their text. */
  readonly #known = new Map<number | string, Alike>();

  /** @param texts of shapes that were cut when they came, by the number of their form */
  constructor(
    readonly isTool: boolean,
    readonly day: LineDay,
    readonly texts: ReadonlyMap<number, string>,
  ) {}

  /** @throws ArchiveUnproven for a shape of an ingested body that has other cuts than those */
  of(group: Shaped): Alike {
    const { form, shape } = group;
    if (shape !== null && !shape.includes(CUT)) return WHOLE;
    const key = form ?? shape!.replace(PAYEE, NOBODY);
    let alike = this.#known.get(key);
    if (alike) return alike;
    const isIngested = form !== null;
    const pieces = this.pieces(group);
    const hasSha = pieces.length > (isIngested ? 2 : 3);
    alike = { hasSha, template: this.#made(pieces, { isIngested, hasSha }) };
    if (this.#known.size === MOST_KNOWN) this.#known.clear();
    this.#known.set(key, alike);
    return alike;
  }

  /**
   * What stands before, between and behind the cuts.
   * @throws ArchiveUnproven for a shape that nobody knows, or of an ingested body that has other cuts than those
   */
  pieces({ cap, form, shape }: Shaped): string[] {
    if (form === null) return shape!.split(CUT);
    const text = this.texts.get(form);
    if (text === undefined) throw new ArchiveUnproven(`lines of ${cap}`, `shape ${form}`, "no such shape");
    return withoutSlot(cap, text.split(CUT));
  }

  /** Null when what was cut out is not what it was taken for: a member of the same name elsewhere, or one of two. */
  #made(pieces: readonly string[], { isIngested, hasSha }: { isIngested: boolean; hasSha: boolean }): Template | null {
    const { number, slot, sha, id, cap, t } = MARK;
    const { isTool } = this;
    const measured = isTool ? `${number},"latency_ms":${number + 1}` : `${number}`;
    const body = bodyOf(pieces, isIngested ? [measured, sha] : [measured, `{"${slot}":0}`, sha]);
    const read = parsed(body);
    const isMeasured = isTool
      ? read?.initialize_ms === number && read.latency_ms === number + 1
      : read?.latency_ms === number;
    if (!read?.slot || !isMeasured || !(isIngested || Object.hasOwn(read.slot, slot))) return null;
    if (hasSha && read.terms?.sha256 !== sha) return null;
    const line = Buffer.from(`${probeLine({ event_id: id, cap, t, body }, isTool)}\n`);
    const [measuredAt = 0, capAt = 0, timeAt = 0, idAt = 0] = [measured, cap, new Date(t).toISOString(), id].map(
      (mark) => line.indexOf(mark),
    );
    const tailAt = measuredAt + measured.length;
    const places = {
      cap: capAt,
      time: timeAt - tailAt,
      id: idAt - tailAt,
      sha: hasSha ? line.indexOf(sha) - tailAt : 0,
    };
    const tail = line.subarray(tailAt);
    this.day.putDate(tail, places.time);
    return { head: line.subarray(0, measuredAt), tail, ...places };
  }
}

/** The body that these were cut out of. */
export const bodyOf = (pieces: readonly string[], cuts: readonly string[]): string =>
  pieces.reduce((text, piece, n) => text + cuts[n - 1] + piece);

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
