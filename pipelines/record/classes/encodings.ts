import { createHash } from "node:crypto";
import { type Checker, RandomDraws, short, type Variant, yes } from "./checker.ts";

/** Signs that the encodings treat differently: in a text without them a wrong encoding could pass. */
const SIGNS = [" & ", " = ", " / ", " + ", " ü ", " ß ", " 東 ", ' "q" '];

/** A fresh text of some forty characters. */
function drawnText(seed: Uint8Array): string {
  const draws = new RandomDraws(seed);
  const parts = [draws.word(5), draws.pick(SIGNS), draws.word(4), draws.pick(SIGNS), String(draws.below(65_536))];
  return parts.join("");
}

/** Longest text whose encoding is known, characters: an answer is read up to 10,000. */
const MOST = 2_000;

/** `caseless`: upper and lower case mean the same in this encoding. */
const ENCODINGS: Readonly<Record<string, { encode(text: string): string; caseless?: true; unclear?: RegExp }>> = {
  base64: { encode: (text) => Buffer.from(text).toString("base64") },
  base64url: { encode: (text) => Buffer.from(text).toString("base64url") },
  hex: { encode: (text) => Buffer.from(text).toString("hex"), caseless: true },
  // RFC 3986 escapes more signs than this function, and says of `~` what older programs do not.
  urlencoded: { encode: encodeURIComponent, unclear: /[!'()*~]/ },
  ...Object.fromEntries(
    ["md5", "sha1", "sha256", "sha512"].map((name) => [
      name,
      { encode: (text: string) => createHash(name).update(text).digest("hex"), caseless: true as const },
    ]),
  ),
};

const variant = (name: string): Variant => {
  const { encode, caseless, unclear } = ENCODINGS[name]!;
  const form = (text: string): string => (caseless ? text.replace(/^0x/i, "").toLowerCase() : text);
  return {
    asks: ["text"],
    answer: `/${name}`,
    draw(seed) {
      const text = drawnText(seed);
      return { fields: { text }, truth: encode(text) };
    },
    solve({ text }) {
      const isClear = typeof text === "string" && text !== "" && text.length <= MOST && !/\p{Surrogate}/u.test(text);
      return isClear && !unclear?.test(text) ? encode(text) : null;
    },
    delivery: (value) => yes(Boolean(short(value))),
    score: (value, truth) => yes(typeof truth === "string" && form(short(value) ?? "") === form(truth)),
  };
};

/** Encodes or hashes the UTF-8 bytes of a text: base64 (RFC 4648), percent-encoding (RFC 3986), MD5, SHA-1, SHA-2. */
export const encodings: Checker = {
  name: "encodings",
  variants: Object.fromEntries(Object.keys(ENCODINGS).map((name) => [name, variant(name)])),
  bySchema: true,
};
