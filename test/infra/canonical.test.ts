import { readdirSync, readFileSync } from "node:fs";
import canonicalize from "canonicalize";
import { describe, expect, it } from "vitest";
import { canonicalBytes, canonicalText, MAX_DEPTH, sha256hex } from "../../infra/canonical.ts";
import { canonicalHalves, joinHalves } from "../../infra/canonical-text.ts";
import { fc } from "../helpers/histories.ts";

const vectors = new URL("../../fixtures/vectors/rfc8785/", import.meta.url);
const names = readdirSync(new URL("input/", vectors)).map((file) => file.replace(/\.json$/, ""));

/** Ours, and the package that it is compared with: whatever both print has to be the same. */
const PRINTERS: ((value: unknown) => string | undefined)[] = [canonicalText, canonicalize];

const nested = (depth: number): unknown => {
  let value: unknown = 1;
  for (let i = 0; i < depth; i++) value = i % 2 ? [value] : { a: value };
  return value;
};

describe("RFC 8785 vectors", () => {
  it("are all six there", () => expect(names).toHaveLength(6));

  it.each(names)("%s: text and bytes are those of the vector", (name) => {
    const value = JSON.parse(readFileSync(new URL(`input/${name}.json`, vectors), "utf8"));
    for (const print of PRINTERS)
      expect(print(value)).toBe(readFileSync(new URL(`output/${name}.json`, vectors), "utf8"));
    const hex = readFileSync(new URL(`outhex/${name}.txt`, vectors), "utf8").replace(/\s+/g, "");
    expect(canonicalBytes(value).toString("hex")).toBe(hex);
  });
});

describe("what is printed", () => {
  it.each<[string, unknown, string]>([
    ["minus zero is zero", { n: -0 }, '{"n":0}'],
    ["2^53 - 1 is the last published integer", [2 ** 53 - 1, 1 - 2 ** 53], "[9007199254740991,-9007199254740991]"],
    ["unpublished, larger ones print too, as the double they are", [2 ** 53], "[9007199254740992]"],
    ["a fraction past 2^53 cannot be, so large doubles print as RFC 8785 says", 1e30, "1e+30"],
    ["undefined members are left out", { b: undefined, a: 1 }, '{"a":1}'],
    ["a member named __proto__ is a member", JSON.parse('{"__proto__":{"a":1}}'), '{"__proto__":{"a":1}}'],
    ["objects without a prototype are plain", Object.assign(Object.create(null), { a: 1 }), '{"a":1}'],
    ["names sort by UTF-16 unit, not by code point", { "\u{10000}": 1, "\uffff": 2 }, '{"\u{10000}":1,"\uffff":2}'],
    ["a paired surrogate is text", "\u{1f600}", '"\u{1f600}"'],
  ])("%s", (_, value, text) => expect(PRINTERS.map((print) => print(value))).toEqual([text, text]));

  it("every ASCII character and what surrounds the others is as ECMAScript prints it", () => {
    for (const unit of [...Array(0x180).keys(), 0x2028, 0x2029, 0xd7ff, 0xe000, 0xfeff, 0xffff]) {
      const value = String.fromCharCode(unit);
      const object = { [`a${value}b`]: `${value}c` };
      for (const print of PRINTERS) expect(print(object)).toBe(JSON.stringify(object));
    }
  });

  it("is the deepest allowed nesting", () => {
    expect(canonicalText(nested(MAX_DEPTH))).toBe(canonicalize(nested(MAX_DEPTH)));
  });
});

describe("what is refused, with its place", () => {
  class Row {
    a = 1;
  }
  const hole = [1, 2, 3];
  delete hole[1];
  const circle: { a?: unknown } = {};
  circle.a = circle;
  it.each<[string, unknown, RegExp]>([
    ["nothing", undefined, /undefined at \//],
    ["undefined in an array", { a: [1, undefined] }, /undefined at \/a\/1/],
    ["a hole in an array", hole, /undefined at \/1/],
    ["NaN", { a: Number.NaN }, /NaN at \/a/],
    ["infinity", [Number.POSITIVE_INFINITY], /Infinity at \/0/],
    ["bigint", { a: 1n }, /bigint at \/a/],
    ["function", { a: () => 1 }, /function at \/a/],
    ["symbol", { a: Symbol("x") }, /symbol at \/a/],
    ["lone high surrogate", { a: "x\ud800" }, /lone surrogate at \/a/],
    ["lone low surrogate", ["\udc00x"], /lone surrogate at \/0/],
    ["surrogates the wrong way round", "\udc00\ud800", /lone surrogate at \//],
    ["lone surrogate in a name", { "\ud800": 1 }, /lone surrogate in a name/],
    ["Date", { at: new Date(0) }, /class at \/at/],
    ["Map", new Map([["a", 1]]), /class/],
    ["bytes", { a: Buffer.from("x") }, /class at \/a/],
    ["an instance of a class", [new Row()], /class at \/0/],
    ["one level too deep", nested(MAX_DEPTH + 1), /deeper than 64/],
    ["a circle", circle, /deeper than 64/],
  ])("%s", (_, value, message) => {
    expect(() => canonicalText(value)).toThrow(TypeError);
    expect(() => canonicalText(value)).toThrow(message);
  });

  it("an integer past 2^53 - 1, where it would be published", () => {
    // The second text is another number that reads as the same double: what was signed for one would hold for both.
    for (const text of ["9007199254740992", "9007199254740993", "9007199254740994", "-9007199254740992", "-1e30"]) {
      const parsed = JSON.parse(`{"n":${text}}`);
      for (const print of [
        canonicalText,
        (value: object, how: object) => joinHalves(canonicalHalves(value, "m", how)),
      ]) {
        expect(() => print(parsed, {})).not.toThrow();
        expect(() => print(parsed, { published: true })).toThrow(/integer past 2\^53 - 1 .* at \/n/);
      }
    }
    const last = { n: 2 ** 53 - 1, m: [1 - 2 ** 53, 0.5] };
    expect(canonicalText(last, { published: true })).toBe('{"m":[-9007199254740991,0.5],"n":9007199254740991}');
  });
});

describe("properties", () => {
  it("text parses back to the value and printing is a fixed point, whatever the order of members", () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 6 }), (value) => {
        const text = canonicalText(value);
        const back = JSON.parse(text);
        expect(canonicalText(back)).toBe(text);
        const shuffled = JSON.parse(JSON.stringify(value), (_, v) =>
          v && typeof v === "object" && !Array.isArray(v) ? Object.fromEntries(Object.entries(v).reverse()) : v,
        );
        expect(canonicalText(shuffled)).toBe(text);
      }),
    );
  });

  it("ours and the package print the same, whatever the value", () => {
    const unit = fc.oneof(fc.string({ unit: "binary" }), fc.string({ unit: "grapheme" }));
    const number = fc.oneof(fc.double({ noNaN: true, noDefaultInfinity: true }), fc.maxSafeInteger());
    const leaf = fc.oneof(unit, number, fc.boolean(), fc.constant(null));
    const { value } = fc.letrec((tie) => ({
      value: fc.oneof({ depthSize: "small" }, leaf, fc.array(tie("value")), fc.dictionary(unit, tie("value"))),
    }));
    fc.assert(
      fc.property(value, (drawn) => {
        expect(canonicalText(drawn)).toBe(canonicalize(drawn));
      }),
    );
  });

  it("halves around any member, joined with it, are the text of the whole", () => {
    const object = fc.dictionary(fc.string(), fc.jsonValue({ maxDepth: 3 }));
    fc.assert(
      fc.property(object, fc.string(), fc.jsonValue({ maxDepth: 3 }), (others, name, value) => {
        const whole = Object.fromEntries([...Object.entries(others), [name, value]]);
        const halves = canonicalHalves(whole, name);
        expect(joinHalves(halves, `${canonicalText(name)}:${canonicalText(value)}`)).toBe(canonicalText(whole));
        const without = Object.fromEntries(Object.entries(others).filter(([key]) => key !== name));
        expect(joinHalves(halves)).toBe(canonicalText(without));
      }),
    );
  });

  it("halves refuse what the whole refuses, with its place", () => {
    expect(() => canonicalHalves({ a: 1, c: [Number.NaN] }, "b")).toThrow(/NaN at \/c\/0/);
    expect(() => canonicalHalves({ a: 2 ** 54 }, "b", { published: true })).toThrow(/integer past 2\^53 .* at \/a/);
    expect(() => canonicalHalves(new Map(), "b")).toThrow(/class at \//);
  });

  it("hashes are those of the published test vector", () => {
    expect(sha256hex("abc")).toBe("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  });
});
