import { createHash } from "node:crypto";
import { booleanScore, boundedText, type Checker, RandomDraws, type Variant } from "./checker.ts";

/**
 * Characters that the encodings treat differently. Without them the result of a wrong encoding could equal that of
 * the right one.
 */
const AMBIGUOUS_SIGNS = [" & ", " = ", " / ", " + ", " ü ", " ß ", " 東 ", ' "q" '];

/** Draws a text of about twenty characters. */
function drawText(seed: Uint8Array): string {
  const draws = new RandomDraws(seed);
  const parts = [
    draws.word(5),
    draws.pick(AMBIGUOUS_SIGNS),
    draws.word(4),
    draws.pick(AMBIGUOUS_SIGNS),
    String(draws.below(65_536)),
  ];
  return parts.join("");
}

/**
 * Longest text that a buyer's question may have, characters: its encoding must fit into the 10,000 characters of an
 * answer that are read.
 */
const MAX_TEXT_CHARS = 2_000;

/**
 * Encodings by name. `caseless`: upper and lower case of the result mean the same. `unclear` matches texts that have
 * several accepted encodings.
 */
const ENCODINGS: Readonly<Record<string, { encode(text: string): string; caseless?: true; unclear?: RegExp }>> = {
  base64: { encode: (text) => Buffer.from(text).toString("base64") },
  base64url: { encode: (text) => Buffer.from(text).toString("base64url") },
  hex: { encode: (text) => Buffer.from(text).toString("hex"), caseless: true },
  // RFC 3986 escapes more characters than `encodeURIComponent`, and older programs escape `~`, which it does not.
  urlencoded: { encode: encodeURIComponent, unclear: /[!'()*~]/ },
  ...Object.fromEntries(
    ["md5", "sha1", "sha256", "sha512"].map((name) => [
      name,
      { encode: (text: string) => createHash(name).update(text).digest("hex"), caseless: true as const },
    ]),
  ),
};

const encodingVariant = (name: string): Variant => {
  const { encode, caseless, unclear } = ENCODINGS[name]!;
  const toComparable = (text: string): string => (caseless ? text.replace(/^0x/i, "").toLowerCase() : text);
  return {
    asks: ["text"],
    answer: `/${name}`,
    draw(seed) {
      const text = drawText(seed);
      return { fields: { text }, truth: encode(text) };
    },
    solve({ text }) {
      const isEncodable =
        typeof text === "string" && text !== "" && text.length <= MAX_TEXT_CHARS && !/\p{Surrogate}/u.test(text);
      return isEncodable && !unclear?.test(text) ? encode(text) : null;
    },
    delivery: (value) => booleanScore(Boolean(boundedText(value))),
    score: (value, truth) =>
      booleanScore(typeof truth === "string" && toComparable(boundedText(value) ?? "") === toComparable(truth)),
  };
};

/**
 * The class of endpoints that encode or hash the UTF-8 bytes of a text: base64 (RFC 4648), percent-encoding (RFC
 * 3986), MD5, SHA-1, SHA-2.
 */
export const encodings: Checker = {
  name: "encodings",
  variants: Object.fromEntries(Object.keys(ENCODINGS).map((name) => [name, encodingVariant(name)])),
  bySchema: true,
};
