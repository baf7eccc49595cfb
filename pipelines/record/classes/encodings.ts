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

/** `caseless`: upper and lower case mean the same in this encoding. */
const ENCODINGS: Readonly<Record<string, { encode(text: string): string; caseless?: true }>> = {
  base64: { encode: (text) => Buffer.from(text).toString("base64") },
  base64url: { encode: (text) => Buffer.from(text).toString("base64url") },
  hex: { encode: (text) => Buffer.from(text).toString("hex"), caseless: true },
  urlencoded: { encode: encodeURIComponent },
  ...Object.fromEntries(
    ["md5", "sha1", "sha256", "sha512"].map((name) => [
      name,
      { encode: (text: string) => createHash(name).update(text).digest("hex"), caseless: true as const },
    ]),
  ),
};

const variant = (name: string): Variant => {
  const { encode, caseless } = ENCODINGS[name]!;
  const form = (text: string): string => (caseless ? text.replace(/^0x/i, "").toLowerCase() : text);
  return {
    asks: ["text"],
    answer: `/${name}`,
    draw(seed) {
      const text = drawnText(seed);
      return { fields: { text }, truth: encode(text) };
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
