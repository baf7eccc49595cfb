/**
 * What a class of endpoints is: a kind of question whose answer we know, so that an answer can be held against truth.
 * Every part is pure, but for what a draw is told by `sources`: that is asked for when the question is, and recorded
 * with it.
 */
export interface Checker {
  name: string;
  /** Its questions by name: one seller answers one kind, and its form or a mapping says which. */
  variants: Readonly<Record<string, Variant>>;
  /**
   * May an unnamed endpoint be given it by the schema that it declares? Only where nothing else could look like that.
   */
  bySchema?: true;
  /** Class check of an answer to a question that was not ours (delivery, 0..1). Absent: whatever came will do. */
  unasked?(parsed: unknown): number;
}

/** One kind of question. */
export interface Variant {
  /**
   * Names of what is asked. A seller that names the class itself takes them under these names, in its query or its
   * body.
   */
  asks: readonly string[];
  /**
   * Further names that an example in that form has: a question is for it only where they say what the question says.
   */
  fixed?: readonly string[];
  /** JSON pointer of the answer in that form; null: the whole answer as text, whatever its form. */
  answer: string | null;
  /** A fresh question; null where it cannot be made now, say because its source is not there. Never throws. */
  draw(seed: Uint8Array, sources: Sources): Question | null | Promise<Question | null>;
  /** Is this an answer of the kind that was asked for, 0..1? `value` is what stands at the pointer. Never throws. */
  delivery(value: unknown): number;
  /** Partial credit, 0..1, of an answer to a question whose `truth` is known. Never throws. */
  score(value: unknown, truth: unknown): number;
}

export type Fields = Readonly<Record<string, string | number>>;

export interface Question {
  fields: Fields;
  /** Plain data: the answer is scored in another thread, and an auditor scores it from the record. */
  truth: unknown;
}

/**
 * What cannot be computed, and is asked of our own sources at the moment of the question. Absent: there is no such
 * source.
 */
export interface Sources {
  /** A page of ours that nobody has seen, and the facts on it. */
  page?: (seed: Uint8Array) => { url: string; facts: readonly string[] };
  /** A block below finality of a chain that we read ourselves; null where the chain cannot be asked. */
  block?: (seed: Uint8Array) => Promise<{ network: string; number: number; hash: string; time: number } | null>;
  /** A row of a register that we hold; null where there is none. */
  company?: (seed: Uint8Array) => Promise<{ lei: string; name: string } | null>;
  /** A row that the operator knows for this endpoint; null where its mapping names none. */
  row?: (seed: Uint8Array) => KnownRow | null;
  /** What one unit of `base` costs in `quote`, by a reference of ours; null where it cannot be asked. */
  price?: (base: string, quote: string) => Promise<number | null>;
}

/** What is asked, what the answer is, and how far from it a number may be. */
export interface KnownRow {
  asks: Fields;
  answer: string | number;
  within: number;
}

/** What an endpoint is asked with: query, JSON body, parts of a path template. */
export interface Example {
  query?: Record<string, string> | undefined;
  body?: unknown;
  path?: Record<string, string> | undefined;
}

/** Plain data: the answer is scored in another thread than the one that asked. */
export interface KnownAnswer {
  input: Example;
  /** What the checker that made it scores answers against. */
  truth: unknown;
  class: string;
  variant: string;
  /** Where the answer lies: a JSON pointer, or null for the whole of it as text. */
  answer: string | null;
}

/**
 * Numbers from 32 pseudo-random bytes, in their order; each byte is used once, and a draw takes fewer than there are.
 */
export class RandomDraws {
  #at = 0;
  constructor(private readonly bytes: Uint8Array) {}

  /** Whole number from 0 to `below` - 1, `below` up to 65,536. */
  below(below: number): number {
    const high = this.bytes[this.#at++ % this.bytes.length]!;
    const low = this.bytes[this.#at++ % this.bytes.length]!;
    return ((high << 8) | low) % below;
  }

  pick<T>(from: readonly T[]): T {
    return from[this.below(from.length)]!;
  }

  /** So many characters of an alphabet that nobody misreads. */
  word(length: number): string {
    return Array.from({ length }, () => "abcdefghjkmnpqrstuvwxyz23456789"[this.below(31)]).join("");
  }
}

/** Text without the space around it; undefined for what is no text, or longer than an answer of a few words is. */
export const short = (value: unknown, most = 10_000): string | undefined =>
  typeof value === "string" && value.length <= most ? value.trim() : undefined;

/** Letters and figures alone: registers write the same name with other signs and in other cases. */
export const plain = (text: string): string =>
  text
    .normalize("NFKD")
    .toLowerCase()
    .replace(/[^\p{L}\p{N}]/gu, "");

/** A number, also where it is written as text. */
export function numeric(value: unknown): number | undefined {
  const text = typeof value === "string" ? value.trim() : undefined;
  const number = text !== undefined && /^[+-]?\d{1,18}(?:\.\d{1,18})?$/.test(text) ? Number(text) : value;
  return typeof number === "number" && Number.isFinite(number) ? number : undefined;
}

export const yes = (is: boolean): number => (is ? 1 : 0);
