/**
 * A class of endpoints: questions whose answers we know, so that an endpoint's answer can be compared with the truth.
 * All functions are pure, except that a draw may ask `sources`; that is done when the question is made, and the result
 * is recorded with the question.
 */
export interface Checker {
  name: string;
  /** Its questions by name. A seller answers one of them; the form of its example, or a mapping, tells which. */
  variants: Readonly<Record<string, Variant>>;
  /**
   * May an endpoint that names no class get this one from the schema that it declares? Only set where no other api
   * looks alike.
   */
  bySchema?: true;
  /** Delivery (0..1) of an answer to a question that was not ours. Absent: every answer is worth 1. */
  unasked?(parsed: unknown): number;
}

/** One kind of question. */
export interface Variant {
  /**
   * Names of the question's fields. A seller that names the class itself takes them under these names, in its query or
   * its body.
   */
  asks: readonly string[];
  /**
   * Further fields that an example in that form has. The question is put only where the example's values are the
   * question's.
   */
  fixed?: readonly string[];
  /** JSON pointer of the answer in that form; null: the whole answer as text, whatever its form. */
  answer: string | null;
  /**
   * Makes a fresh question; null where none can be made now, for example because its source is missing. Never throws.
   */
  draw(seed: Uint8Array, sources: Sources): Question | null | Promise<Question | null>;
  /**
   * The truth of a question that somebody else asks in these fields, as {@link score} takes it; null where the fields do
   * not fix it, or are written in a way that sellers may read differently.
   * @throws what a source throws that cannot be asked now
   */
  solve(asked: Fields, sources: TruthSources): unknown;
  /** Is this an answer of the kind that was asked for, 0..1? `value` is the value at the pointer. Never throws. */
  delivery(value: unknown): number;
  /** How right the answer is, 0..1, given the question's `truth`. Never throws. */
  score(value: unknown, truth: unknown): number;
}

export type Fields = Readonly<Record<string, string | number>>;

export interface Question {
  fields: Fields;
  /** Plain data: another thread scores the answer with it, and so does an auditor from the record. */
  truth: unknown;
}

/**
 * Our own sources of truths that cannot be computed, asked when the question is made. Absent: there is no such source.
 */
export interface Sources {
  /** Makes a page of ours that nobody has seen, with facts on it. */
  page?: (seed: Uint8Array) => { url: string; facts: readonly string[] };
  /** A final block of a chain that we read ourselves; null where the chain cannot be asked. */
  block?: (seed: Uint8Array) => Promise<{ network: string; number: number; hash: string; time: number } | null>;
  /** A row of a register that we hold; null where there is none. */
  company?: (seed: Uint8Array) => Promise<{ lei: string; name: string } | null>;
  /** A row that the operator gave for this endpoint; null where its mapping names none. */
  row?: (seed: Uint8Array) => KnownRow | null;
  /** Price of one unit of `base` in `quote` from a reference of ours; null where it cannot be asked. */
  price?: (base: string, quote: string) => Promise<number | null>;
}

/** Our own sources of truths about what somebody else asks. Absent: there is no such source. */
export interface TruthSources {
  /** The facts of a page of ours at this address; null where it is none, or one of another day. */
  page?: (url: string) => readonly string[] | null;
  /** A block of the chain that we read ourselves; null where it is not final, or not kept any more. */
  block?: (number: number) => Promise<{ network: string; number: number; hash: string; time: number } | null>;
  /** Legal name of a company in our copy of the register; null where it is not there. */
  company?: (lei: string) => Promise<string | null>;
  /** The row that the operator gave for this endpoint and these fields; null where there is none, or several. */
  row?: (asked: Fields) => KnownRow | null;
  /** As in {@link Sources}. */
  price?: Sources["price"];
}

/** A question, its answer, and by how much a number may differ from it. */
export interface KnownRow {
  asks: Fields;
  answer: string | number;
  within: number;
}

/** The input of a call: query, JSON body, parts of a path template. */
export interface Example {
  query?: Record<string, string> | undefined;
  body?: unknown;
  path?: Record<string, string> | undefined;
}

/** A question and its known answer. Plain data: another thread than the one that asked scores the answer. */
export interface KnownAnswer {
  input: Example;
  /** The truth that the class's checker scores answers against. */
  truth: unknown;
  class: string;
  variant: string;
  /** JSON pointer of the answer, or null for the whole answer as text. */
  answer: string | null;
}

/**
 * Numbers made from 32 pseudo-random bytes, in their order. Each byte is used once: a question draws fewer than there
 * are.
 */
export class RandomDraws {
  #at = 0;
  constructor(private readonly bytes: Uint8Array) {}

  /** A whole number from 0 to `below` - 1. `below` is at most 65,536. */
  below(below: number): number {
    const high = this.bytes[this.#at++ % this.bytes.length]!;
    const low = this.bytes[this.#at++ % this.bytes.length]!;
    return ((high << 8) | low) % below;
  }

  pick<T>(from: readonly T[]): T {
    return from[this.below(from.length)]!;
  }

  /** A word of `length` characters, without those that are easily misread. */
  word(length: number): string {
    return Array.from({ length }, () => "abcdefghjkmnpqrstuvwxyz23456789"[this.below(31)]).join("");
  }
}

/** A text without the white space around it; undefined for anything else, and for a text longer than `most`. */
export const short = (value: unknown, most = 10_000): string | undefined =>
  typeof value === "string" && value.length <= most ? value.trim() : undefined;

/** Letters and digits alone, in lower case: registers write one name with different signs and cases. */
export const plain = (text: string): string =>
  text
    .normalize("NFKD")
    .toLowerCase()
    .replace(/[^\p{L}\p{N}]/gu, "");

/** A number, or a number written as text; undefined for anything else. */
export function numeric(value: unknown): number | undefined {
  const text = typeof value === "string" ? value.trim() : undefined;
  const number = text !== undefined && /^[+-]?\d{1,18}(?:\.\d{1,18})?$/.test(text) ? Number(text) : value;
  return typeof number === "number" && Number.isFinite(number) ? number : undefined;
}

/** A whole number as it is usually written, in the range that JavaScript adds exactly; null for anything else. */
export const wholeOf = (value: unknown): number | null =>
  /^(?:0|-?[1-9]\d{0,14})$/.test(String(value)) ? Number(value) : null;

export const yes = (is: boolean): number => (is ? 1 : 0);
