/**
 * A class of endpoints: the questions to which we know the right answer, so that an endpoint's answer can be compared
 * with the truth. All functions are pure, except that `draw` and `solve` may read `sources`; the truth that they return
 * is recorded with the question.
 */
export interface Checker {
  name: string;
  /**
   * The kinds of question by name. An endpoint answers one of them; the form of its declared example, or a mapping,
   * determines which.
   */
  variants: Readonly<Record<string, Variant>>;
  /**
   * May we assign this class to an endpoint that names no class, from its declared schema? Set only if no other kind of
   * API has a similar schema.
   */
  bySchema?: true;
  /**
   * Scores the delivery (0 to 1) of an answer to an input that is no question of ours. If absent, every answer scores
   * 1.
   */
  scoreOther?(parsed: unknown): number;
}

/** One kind of question. */
export interface Variant {
  /**
   * Names of the question's fields. An endpoint whose seller names the class itself accepts them under these names, in
   * its query or its body.
   */
  asks: readonly string[];
  /**
   * Further fields that the seller's example must have. The question is used only if the example's values of these
   * fields equal the question's.
   */
  fixed?: readonly string[];
  /**
   * JSON pointer of the value to score, for an endpoint whose seller names the class itself; null: the whole answer as
   * text.
   */
  answer: string | null;
  /**
   * Makes a new question from 32 random bytes; null if none can be made now, for example because a source is missing.
   * Never throws.
   */
  draw(seed: Uint8Array, sources: Sources): Question | null | Promise<Question | null>;
  /**
   * Finds the truth, in the form that {@link score} takes, for a question that somebody else asks with these fields;
   * null if the fields do not determine the truth, or sellers may read them differently.
   * @throws the error of a source that cannot be read now
   */
  solve(asked: Fields, sources: TruthSources): unknown;
  /**
   * Scores from 0 to 1 whether the answer is of the requested kind, right or wrong. `value` is the value at the pointer
   * `answer`. Never throws.
   */
  delivery(value: unknown): number;
  /** Scores from 0 to 1 how right the answer is, given the question's `truth`. Never throws. */
  score(value: unknown, truth: unknown): number;
}

export type Fields = Readonly<Record<string, string | number>>;

export interface Question {
  fields: Fields;
  /** Plain JSON data, since another thread, and later an auditor, scores answers with it. */
  truth: unknown;
}

/**
 * Our sources for truths that cannot be computed. They are read when a question is made. A member is absent if there is
 * no such source.
 */
export interface Sources {
  /** Makes a page on our own site that nobody has seen, with facts on it. */
  page?: (seed: Uint8Array) => { url: string; facts: readonly string[] };
  /** Reads a final block of a chain; null where no node answers. */
  block?: (seed: Uint8Array) => Promise<{ network: string; number: number; hash: string; time: number } | null>;
  /** Draws a row from our copy of a company register; null where there is none. */
  company?: (seed: Uint8Array) => Promise<{ lei: string; name: string } | null>;
  /** Draws one of the rows that the operator supplied for this endpoint; null if its mapping names none. */
  row?: (seed: Uint8Array) => KnownRow | null;
  /**
   * Reads the price of one unit of `base` in `quote` from a reference source; null where the source does not answer.
   */
  price?: (base: string, quote: string) => Promise<number | null>;
}

/** Our sources for the truths of questions that somebody else asks. A member is absent if there is no such source. */
export interface TruthSources {
  /**
   * Returns the facts on our own page at this address; null if the address is no page of ours, or a page of another
   * day.
   */
  page?: (url: string) => readonly string[] | null;
  /** Reads a block of the chain by its number; null if the block is not final yet, or nodes no longer have it. */
  block?: (number: number) => Promise<{ network: string; number: number; hash: string; time: number } | null>;
  /** Returns the legal name of a company from our copy of the register; null if the register does not have it. */
  company?: (lei: string) => Promise<string | null>;
  /**
   * Returns the row that the operator supplied for this endpoint and these fields; null if there is none, or more than
   * one.
   */
  row?: (asked: Fields) => KnownRow | null;
  /** As in {@link Sources}. */
  price?: Sources["price"];
}

/**
 * A question with its answer from an operator's file. `within`: the largest difference of a number that still counts as
 * right.
 */
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

/** A question with its known answer. It is plain JSON data, since another thread scores the endpoint's answer. */
export interface KnownAnswer {
  input: Example;
  /** The truth with which the class's checker compares answers. */
  truth: unknown;
  class: string;
  variant: string;
  /** JSON pointer of the answer, or null for the whole answer as text. */
  answer: string | null;
}

/**
 * Draws numbers from 32 pseudo-random bytes, in order. A question draws fewer bytes than there are, so none is used
 * twice.
 */
export class RandomDraws {
  #position = 0;
  constructor(private readonly bytes: Uint8Array) {}

  /** Draws a whole number from 0 to `limit` - 1. `limit` is at most 65,536. */
  below(below: number): number {
    const high = this.bytes[this.#position++ % this.bytes.length]!;
    const low = this.bytes[this.#position++ % this.bytes.length]!;
    return ((high << 8) | low) % below;
  }

  pick<T>(choices: readonly T[]): T {
    return choices[this.below(choices.length)]!;
  }

  /** Draws a word of `length` letters and digits, without characters that are easily misread. */
  word(length: number): string {
    return Array.from({ length }, () => "abcdefghjkmnpqrstuvwxyz23456789"[this.below(31)]).join("");
  }
}

/**
 * Returns a text without the white space around it; undefined for a value that is no text, or longer than `maxChars`
 * characters.
 */
export const boundedText = (value: unknown, maxChars = 10_000): string | undefined =>
  typeof value === "string" && value.length <= maxChars ? value.trim() : undefined;

/** Keeps only letters and digits, in lower case: registers write one name with different punctuation and case. */
export const lettersAndDigits = (text: string): string =>
  text
    .normalize("NFKD")
    .toLowerCase()
    .replace(/[^\p{L}\p{N}]/gu, "");

/** Parses a JSON number, or a decimal number written as text; undefined for anything else. */
export function toNumber(value: unknown): number | undefined {
  const text = typeof value === "string" ? value.trim() : undefined;
  const number = text !== undefined && /^[+-]?\d{1,18}(?:\.\d{1,18})?$/.test(text) ? Number(text) : value;
  return typeof number === "number" && Number.isFinite(number) ? number : undefined;
}

/** Parses a whole number in plain notation, within the range that JavaScript adds exactly; null for anything else. */
export const toWholeNumber = (value: unknown): number | null =>
  /^(?:0|-?[1-9]\d{0,14})$/.test(String(value)) ? Number(value) : null;

export const booleanScore = (isTrue: boolean): number => (isTrue ? 1 : 0);
