import type { Values } from "../../infra/lake/parquet/repeating-column.ts";
import { ownText } from "../../infra/own-text.ts";
import { SHA256_HEX } from "../../infra/sha256-hex.ts";

/** Stands in a shape where something was cut out; no JSON text holds it. */
export const CUT = "\x1f";

/** A body that stands in a text, as its UTF-8 stands in the record. */
export interface BodyText {
  of: string;
  from: number;
  end: number;
}

/** A body in two parts: what it shares with others, and what is its own. See {@link wholeBody}. */
export interface CutBody {
  /** The text with {@link CUT} in three places, or in four where it has a hash. */
  shape: string;
  /** The measured time or times, as they stand there. */
  measured: string;
  block: number;
  minute: number;
  /** Hash of the terms, lower-case hex. */
  sha: string | null;
}

/** A cut body, and the number that its shape has in the segment. */
export interface NumberedCut extends CutBody {
  number: number;
}

/** A body that was found where it begins. */
export interface FoundBody {
  shape: Shape;
  cut: NumberedCut;
  end: number;
}

/** Types whose bodies are cut, and whether they are probes of MCP tools: of the others no two of an endpoint are alike. */
export const TOOL: Readonly<Record<string, boolean>> = { handshake: false, "mcp.probe": true };
const LATENCY = ',"latency_ms":';
const INITIALIZE = ',"initialize_ms":';
const LIVE = ',"live":';
const SLOT = ',"slot":{"block":';
const MINUTE = ',"minute":';
const SHA = ',"sha256":"';
const SHA_CHARS = 64;
/** Whole numbers of more digits are not cut: shorter ones the engine's INTEGER prints again as they stood there. */
const MOST_DIGITS = 9;
const MOST_DECIMALS = 6;
/** Bodies of a segment that were cut before it is asked whether that is of any use. */
const LEARNT_FREELY = 4_096;
/** Shapes of one key that the next body is held against. */
const MOST_SHAPES = 8;
const NONE = -1;

export interface Shape {
  text: string;
  isTool: boolean;
  /** Among the shapes of the segment. */
  number: number;
  /** What stands before the measured time, before the block, behind the minute, and behind the hash where there is one. */
  head: string;
  live: string;
  tail: string;
  rest: string | null;
  /** The hash of the body before: it is the next one's more often than not. */
  sha: string | null;
  /** Is every body of it taken, whatever was cut out? Null until anybody asked. */
  isTaken: boolean | null;
}

/** Where the cuts of a body are; `sha` is -1 where it has no hash. */
interface Places {
  measured: number;
  live: number;
  block: number;
  minute: number;
  tail: number;
  sha: number;
}

/**
 * What nearly always differs from one probe of an endpoint to the next is cut out of its body: the measured times, the
 * slot and the hash of the terms. What is left is the same for hundreds of probes, so it is kept, read and judged once.
 * Shape and cuts together are the text again, byte for byte; a body of any other form is not cut.
 */
export class ProbeCuts {
  /** By number of the key: shapes that its last bodies had, the newest first. */
  readonly #last: (Shape[] | undefined)[] = [];
  /** By text; null for one that is no shape. */
  readonly #known = new Map<string, Shape | null>();
  #cut = 0;

  /** @param shapes where the segment keeps them */
  constructor(private readonly shapes: Values<string>) {}

  /** Null where the body is to be kept whole. @param key number of the record's key */
  cut(type: string, key: number, body: BodyText): NumberedCut | null {
    const isTool = TOOL[type];
    const places = isTool === undefined ? null : placesIn(body, isTool);
    if (places === null) return null;
    const shape = this.#lastOf(key, body, places) ?? this.#learnt(key, body, places, isTool!);
    if (shape === null) return null;
    this.#cut++;
    return cutsOf(shape, body.of, places);
  }

  /**
   * The place of a body that one of the key's last shapes fits, whatever stands behind it, and its cuts: for whoever does not
   * know yet where it ends. @param from where it begins
   */
  find(key: number, text: string, from: number): FoundBody | null {
    const shapes = this.#last[key];
    if (shapes === undefined) return null;
    for (let i = 0; i < shapes.length; i++) {
      const found = bodyOf(shapes[i]!, text, from);
      if (found !== null) return found;
    }
    return null;
  }

  /** What was found is kept as its cuts. */
  took(): void {
    this.#cut++;
  }

  #lastOf(key: number, body: BodyText, places: Places): Shape | null {
    return this.#last[key]?.find((shape) => stands(shape, body, places)) ?? null;
  }

  #learnt(key: number, body: BodyText, places: Places, isTool: boolean): Shape | null {
    // Endpoints that never say the same thing twice: their shapes would only be kept beside their rows.
    if (this.#known.size > LEARNT_FREELY && 2 * this.#known.size > this.#cut) return null;
    const made = shapeOf(body, places, isTool);
    if (made.rest === null) places.sha = NONE;
    let shape = this.#known.get(made.text);
    if (shape === undefined) {
      shape = isSound(made) ? made : null;
      if (shape) shape.number = this.shapes.numberOf(shape.text);
      this.#known.set(made.text, shape);
    }
    if (shape === null) return null;
    shape.sha = made.sha;
    this.#last[key] ??= [];
    const shapes = this.#last[key];
    shapes.unshift(shape);
    shapes.length = Math.min(shapes.length, MOST_SHAPES);
    return shape;
  }
}

/** The text again. */
export function wholeBody({ shape, measured, block, minute, sha }: CutBody): string {
  const cuts = [measured, String(block), String(minute), ...(sha === null ? [] : [sha])];
  return shape.split(CUT).reduce((text, piece, n) => text + cuts[n - 1] + piece);
}

/** Where the cuts are by their names; that they are what they are taken for, and no member of another, `isSound` says. */
function placesIn({ of: text, from, end }: BodyText, isTool: boolean): Places | null {
  const name = isTool ? INITIALIZE : LATENCY;
  const measured = text.indexOf(name, from) + name.length;
  if (measured < name.length) return null;
  const live = timesEnd(text, measured, isTool);
  if (live === NONE || !text.startsWith(LIVE, live)) return null;
  const block = text.indexOf(SLOT, live) + SLOT.length;
  const blockEnd = block < SLOT.length ? NONE : wholeEnd(text, block);
  if (blockEnd === NONE || !text.startsWith(MINUTE, blockEnd)) return null;
  const minute = blockEnd + MINUTE.length;
  const tail = wholeEnd(text, minute);
  if (tail === NONE || tail >= end) return null;
  const sha = text.indexOf(SHA, tail);
  if (sha < 0 || sha + SHA.length + SHA_CHARS >= end) return { measured, live, block, minute, tail, sha: NONE };
  return { measured, live, block, minute, tail, sha: sha + SHA.length };
}

/** Behind the measured time, or both of a tool's. */
function timesEnd(text: string, at: number, isTool: boolean): number {
  const end = timeEnd(text, at);
  if (!isTool || end === NONE) return end;
  return text.startsWith(LATENCY, end) ? timeEnd(text, end + LATENCY.length) : NONE;
}

/** Behind a whole number of few digits, as JSON prints it. */
function wholeEnd(text: string, at: number): number {
  let end = at;
  while (isDigit(text, end)) end++;
  return end === at || end - at > MOST_DIGITS || (end - at > 1 && text.charCodeAt(at) === 48) ? NONE : end;
}

/** Behind a measured time: `null`, or a number without an exponent. */
function timeEnd(text: string, at: number): number {
  if (text.startsWith("null", at)) return at + 4;
  const whole = wholeEnd(text, at);
  if (whole === NONE || text[whole] !== ".") return whole;
  let end = whole + 1;
  while (isDigit(text, end)) end++;
  return end === whole + 1 || end - whole - 1 > MOST_DECIMALS ? NONE : end;
}

function isDigit(text: string, at: number): boolean {
  const code = text.charCodeAt(at);
  return code >= 48 && code <= 57;
}

/** Is the body of this shape? Lengths first: they tell most of those apart that are not. */
function stands(
  shape: Shape,
  { of: text, from, end }: BodyText,
  { measured, live, block, tail, sha }: Places,
): boolean {
  const { head, live: before, tail: behind, rest } = shape;
  if (from + head.length !== measured || live + before.length !== block) return false;
  const behindEnd = tail + behind.length;
  if (rest === null ? sha !== NONE || behindEnd !== end : sha !== behindEnd || sha + SHA_CHARS + rest.length !== end)
    return false;
  // To slice and compare is quicker than startsWith, which looks at one character after the other.
  const isThere =
    text.slice(tail, behindEnd) === behind &&
    text.slice(from, measured) === head &&
    text.slice(live, block) === before &&
    (rest === null || text.slice(sha + SHA_CHARS, end) === rest);
  return isThere && (rest === null || isHashed(shape, text, sha));
}

/** Does a hash stand there? It is the shape's last one then. */
function isHashed(shape: Shape, text: string, sha: number): boolean {
  const own = text.slice(sha, sha + SHA_CHARS);
  if (own === shape.sha) return true;
  if (!SHA256_HEX.test(own)) return false;
  shape.sha = ownText(own);
  return true;
}

/** The same from the left to the right: each piece of the shape behind the cut before it. */
function bodyOf(shape: Shape, text: string, from: number): FoundBody | null {
  const { head, live: before, tail: behind, rest } = shape;
  const measured = from + head.length;
  if (text.slice(from, measured) !== head) return null;
  const live = timesEnd(text, measured, shape.isTool);
  const block = live + before.length;
  if (live === NONE || text.slice(live, block) !== before) return null;
  const blockEnd = wholeEnd(text, block);
  if (blockEnd === NONE || !text.startsWith(MINUTE, blockEnd)) return null;
  const minute = blockEnd + MINUTE.length;
  const tail = wholeEnd(text, minute);
  const behindEnd = tail + behind.length;
  if (tail === NONE || text.slice(tail, behindEnd) !== behind) return null;
  const places = { measured, live, block, minute, tail, sha: rest === null ? NONE : behindEnd };
  if (rest === null) return { shape, cut: cutsOf(shape, text, places), end: behindEnd };
  const end = behindEnd + SHA_CHARS + rest.length;
  const isThere = text.slice(behindEnd + SHA_CHARS, end) === rest && isHashed(shape, text, behindEnd);
  return isThere ? { shape, cut: cutsOf(shape, text, places), end } : null;
}

function shapeOf(
  { of: text, from, end }: BodyText,
  { measured, live, block, tail, sha }: Places,
  isTool: boolean,
): Shape {
  const hash = sha === NONE ? "" : text.slice(sha, sha + SHA_CHARS);
  const isHashed = SHA256_HEX.test(hash);
  const behind = isHashed ? [text.slice(tail, sha), text.slice(sha + SHA_CHARS, end)] : [text.slice(tail, end)];
  // Joined it is a text of its own, and pieces of it are kept instead of pieces of the record's.
  const joined = [text.slice(from, measured), text.slice(live, block), MINUTE, ...behind].join(CUT);
  const [head = "", before = "", , after = "", rest = null] = joined.split(CUT);
  const own = isHashed ? ownText(hash) : null;
  return { text: joined, isTool, number: NONE, head, live: before, tail: after, rest, sha: own, isTaken: null };
}

function cutsOf(shape: Shape, text: string, { measured, live, block, minute, tail }: Places): NumberedCut {
  return {
    shape: shape.text,
    number: shape.number,
    measured: text.slice(measured, live),
    block: Number(text.slice(block, minute - MINUTE.length)),
    minute: Number(text.slice(minute, tail)),
    sha: shape.sha,
  };
}

/** Stand in a shape for what was cut out of it; no body says them by chance. */
const MARK = { measured: 417_283_991, block: 718_281_828, minute: 314_159_265, sha: "5ec0".repeat(16) };

interface Marked {
  initialize_ms?: unknown;
  latency_ms?: unknown;
  slot?: { block?: unknown; minute?: unknown };
  terms?: { sha256?: unknown } | null;
}

/** Is what was cut out what it was taken for, and no member of the same name elsewhere? Whoever reads a shape relies on it. */
function isSound({ text, rest, isTool }: Shape): boolean {
  if (text.split(CUT).length !== (rest === null ? 4 : 5)) return false;
  const measured = isTool ? `${MARK.measured},"latency_ms":${MARK.measured + 1}` : `${MARK.measured}`;
  const sha = rest === null ? null : MARK.sha;
  let read: Marked;
  try {
    read = JSON.parse(wholeBody({ ...MARK, shape: text, measured, sha })) as Marked;
  } catch {
    return false;
  }
  const isMeasured = isTool
    ? read.initialize_ms === MARK.measured && read.latency_ms === MARK.measured + 1
    : read.latency_ms === MARK.measured;
  const isSlot = read.slot?.block === MARK.block && read.slot.minute === MARK.minute;
  return isMeasured && isSlot && (sha === null || read.terms?.sha256 === sha);
}
