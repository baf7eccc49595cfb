/**
 * A class of endpoints, with the questions that we can ask them since we know the right answers, and the functions
 * that score an endpoint's answer against the right one (the truth). All functions are pure, except that `draw` and
 * `solve` may read `sources`; the truth that they return is recorded with the question.
 */
export interface Checker {
  name: string;
  /**
   * The kinds of question by name. An endpoint is asked one of them; the form of its declared example determines
   * which, or our mapping of the endpoint to the class (mapping.ts).
   */
  variants: Readonly<Record<string, Variant>>;
  /**
   * May we assign this class to an endpoint that names no class because its declared schema fits? Set only if no
   * other kind of API has a similar schema.
   */
  bySchema?: true;
  /**
   * Scores from 0 to 1 whether an answer to an input that is no question of ours has the form of this class. If
   * absent, every answer scores 1.
   */
  scoreOther?(parsed: unknown): number;
}

/** One kind of question. */
export interface Variant {
  /**
   * Names of the question's input fields. An endpoint whose seller names the class itself accepts them under these
   * names, in its query or its body.
   */
  asks: readonly string[];
  /**
   * Further fields that the seller's declared example must have, such as the chain's id. The question is used only if
   * its values of these fields equal the example's.
   */
  fixed?: readonly string[];
  /**
   * JSON pointer to the value that is scored, for an endpoint whose seller names the class itself; null if the whole
   * answer is scored as text.
   */
  answer: string | null;
  /**
   * Makes a new question from 32 random bytes; null if none can be made now, for example because a source is missing.
   * Never throws.
   */
  draw(seed: Uint8Array, sources: Sources): Question | null | Promise<Question | null>;
  /**
   * Finds the truth, in the form that {@link score} takes, for a question that somebody else asks with these fields;
   * null if the fields do not determine the truth, or different sellers may understand them differently.
   * @throws the error of a source that cannot be read now
   */
  solve(asked: Fields, sources: TruthSources): unknown;
  /**
   * Scores from 0 to 1 whether the answer is of the requested kind, right or wrong. `value`: the value at the pointer
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
 * Our sources of right answers that cannot be computed. They are read when we make a question. A member is absent if
 * we have no such source.
 */
export interface Sources {
  /** Makes a new page on our own site, and returns its address and the facts on it. */
  page?: (seed: Uint8Array) => { url: string; facts: readonly string[] };
  /** Reads a final block of a chain, chosen by the seed; null if there is no block to ask about. */
  block?: (seed: Uint8Array) => Promise<{ network: string; number: number; hash: string; time: number } | null>;
  /** Draws a company from our copy of a company register; null if we have no copy. */
  company?: (seed: Uint8Array) => Promise<{ lei: string; name: string } | null>;
  /**
   * Draws one of the rows (questions with answers) that our operator supplied for this endpoint; null if there are
   * none.
   */
  row?: (seed: Uint8Array) => KnownRow | null;
  /** Reads the price of one unit of `base` in `quote` from a reference source; null if the source has no such price. */
  price?: (base: string, quote: string) => Promise<number | null>;
}

/**
 * Our sources of right answers to questions that somebody else asks, such as a buyer. A member is absent if we have
 * no such source.
 */
export interface TruthSources {
  /**
   * Returns the facts on our own page at this address; null if the address is no page of ours, or a page of an
   * earlier or later day.
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
  /** Reads a price as in {@link Sources}. */
  price?: Sources["price"];
}

/**
 * A question with its answer from our operator's file. `within`: the largest difference from a numeric answer that
 * still counts as right.
 */
export interface KnownRow {
  asks: Fields;
  answer: string | number;
  within: number;
}

/** The input of a call: query parameters, body, headers, and values of the placeholders in the url's path. */
export interface Example {
  query?: Record<string, string> | undefined;
  body?: unknown;
  /** How the body is sent: a text as it is, or a map of plain values as multipart/form-data; absent: as JSON. */
  body_type?: "text" | "form-data" | undefined;
  headers?: Record<string, string> | undefined;
  path?: Record<string, string> | undefined;
}

/** A question with its known answer. It is plain JSON data, since another thread scores the endpoint's answer. */
export interface KnownAnswer {
  input: Example;
  /** The truth with which the class's checker compares answers. */
  truth: unknown;
  class: string;
  variant: string;
  /** JSON pointer to the value that is scored; null if the whole answer is scored as text. */
  answer: string | null;
}

/**
 * Draws numbers from 32 pseudo-random bytes, in order. Each draw uses two bytes; after the last byte the first ones
 * are used again.
 */
export class RandomDraws {
  #position = 0;
  constructor(private readonly bytes: Uint8Array) {}

  /** Draws a whole number from 0 to `limit` - 1. `limit` is at most 65,536. */
  below(limit: number): number {
    const high = this.bytes[this.#position++ % this.bytes.length]!;
    const low = this.bytes[this.#position++ % this.bytes.length]!;
    return ((high << 8) | low) % limit;
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

/**
 * Keeps only the letters and digits of a text, in lower case, since two registers may write one name with different
 * punctuation and case.
 */
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
