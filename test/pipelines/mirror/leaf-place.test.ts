import { describe, expect, it } from "vitest";
import { canonicalText } from "../../../infra/canonical.ts";
import { parsedPlaceOf, placeOf, quickPlaceOf } from "../../../pipelines/mirror/leaf-place.mjs";
import { endpoint } from "../../bench/record-data.ts";
import { fc } from "../../helpers/histories.ts";

const AT = "2026-11-21T12:00:00.000Z";
const textOf = (leaf: object) => canonicalText({ seq: 3, at: AT, ...leaf });
const cards = [0, 1, 7, 9_973].map((i) => endpoint(i)[1]!);
const listings = [0, 1, 7].map((i) => endpoint(i)[0]!);
/** In the middle of other bytes, as it lies in a thread's window. */
function within(text: string): [window: Buffer, start: number, end: number] {
  const entry = Buffer.from(text);
  return [Buffer.concat([Buffer.from('"index":1,"kind":"keys"}\n'), entry, Buffer.from("\n{")]), 25, 25 + entry.length];
}
const quick = (text: string) => quickPlaceOf(...within(text));
const slow = (text: string) => {
  const { kind, index } = parsedPlaceOf(Buffer.from(text));
  return { kind, index };
};

describe("kind and index of a leaf by its form", () => {
  it.each([
    ["cards", cards],
    ["listings", listings],
    ["a delisting", [{ kind: "delisting", capability_id: "cap_1" }]],
  ])("%s as we print them are told without a parser", (_, drafts) => {
    for (const [n, draft] of drafts.entries()) {
      const text = textOf({ ...draft, index: 65_536 + n });
      expect(quick(text)).toEqual({ kind: (draft as { kind: string }).kind, index: 65_536 + n });
      expect(slow(text)).toEqual(quick(text));
    }
  });

  it.each(["keys", "index", "evidence", "archive"])("a leaf of kind %s is always parsed", (kind) => {
    expect(quick(textOf({ kind, index: 7, key: "k", sha256: "s", bytes: 1 }))).toBeNull();
  });

  const card = textOf({ ...cards[0]!, index: 9 });
  const listing = textOf({ ...listings[0]!, index: 9 });
  it.each<[string, string]>([
    ["a second kind, which JSON would take", listing.replace(/\}$/, ',"kind":"keys"}')],
    ["a second kind in escapes", listing.replace(/\}$/, ',"\\u006bind":"keys"}')],
    ["a second index", listing.replace(/\}$/, ',"index":1}')],
    ["a text with a quotation mark", listing.replace('"tool":null', '"tool":"a\\"b"')],
    ["a nested member", listing.replace('"tool":null', '"tool":{"index":9,"kind":"listing"}')],
    ["a byte that JSON refuses", listing.replace('"tool":null', '"tool":"a\u0001b"')],
    ["an index that is no whole number", listing.replace('"index":9', '"index":9.5')],
    ["an index that no number holds", listing.replace('"index":9', '"index":90071992547409931')],
    ["a card with bytes behind it", `${card} `],
    ["a card with another kind behind", card.replace(/\}$/, ',"kind":"keys"}')],
    ["a card with a member more", card.replace('"raw_band"', '"odd":{},"raw_band"')],
    ["a card that another member stands before", card.replace('"card":', '"a":1,"card":')],
  ])("%s is left to the parser", (_, text) => {
    expect(quick(text)).toBeNull();
  });

  it("says what the parser says wherever it says anything, whatever was changed", () => {
    const bases = [...cards, ...listings].map((draft, n) => textOf({ ...draft, index: n }));
    const pieces = [
      '"',
      "\\",
      "{",
      "}",
      "[",
      "]",
      ",",
      ":",
      "9",
      "-",
      "null",
      '"index":2',
      '"kind":"keys"',
      '},"day":"',
      '"card":{',
    ];
    const change = fc.record({
      at: fc.double({ min: 0, max: 1, noNaN: true }),
      cut: fc.integer({ min: 0, max: 12 }),
      put: fc.constantFrom("", ...pieces),
      fromEnd: fc.boolean(),
    });
    const property = fc.property(fc.constantFrom(...bases), fc.array(change, { maxLength: 3 }), (base, changes) => {
      let text = base;
      for (const { at, cut, put, fromEnd } of changes) {
        const where = fromEnd
          ? text.length - Math.floor(at * Math.min(400, text.length))
          : Math.floor(at * text.length);
        text = text.slice(0, where) + put + text.slice(where + cut);
      }
      const told = quick(text);
      if (told) expect(slow(text)).toEqual(told);
      expect(placeOf(...within(text)).index).toEqual((told ?? slow(text)).index);
    });
    fc.assert(property, { numRuns: 3_000 });
  });
});
