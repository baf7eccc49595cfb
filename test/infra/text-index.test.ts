import { describe, expect, test } from "vitest";
import { splitWords, TextIndex } from "../../infra/text-index.ts";

const KINDS = { "sums-of": "add calculator", codes: "hash checksum" };
function indexOf(...texts: (string | [text: string, kind: string])[]): TextIndex {
  const index = new TextIndex(KINDS);
  index.put(
    texts.map((one, row) => {
      const [text, kind] = typeof one === "string" ? [one, "any"] : one;
      return [row, { text, kind }] as const;
    }),
  );
  return index;
}
/** Rows that hold every word, the best score first. */
function found(index: TextIndex, q: string, byKind = true): number[] {
  const { words, rows, held, scores } = index.match(splitWords(q, 20), byKind);
  const hits = [...rows].map((row, i) => ({ row, held: held[i]!, score: scores[i]! }));
  return hits
    .filter((one) => one.held === 2 ** words.length - 1)
    .sort((a, b) => b.score - a.score || a.row - b.row)
    .map(({ row }) => row);
}

describe("words", () => {
  test.each<[string, string[], (string | null)[]]>([
    ["SHA-256 of", ["sha", "256", "of"], ["sha256", null, null]],
    ["sha 256", ["sha", "256"], ["sha256", null]],
    ["getPrice/v1?q", ["get", "price", "v1", "q"], ["getprice", null, null, null]],
    ["Ｆｕｌｌ e-mail", ["full", "e", "mail"], [null, "email", null]],
    ["", [], []],
    [`${"x".repeat(41)} y`, ["y"], [null]],
  ])("of %j", (text, words, joined) => {
    const read = splitWords(text, 20);
    expect(read.map(({ word }) => word)).toEqual(words);
    expect(read.map((one) => one.joined)).toEqual(joined);
  });

  test("are as many as were asked for", () => {
    expect(splitWords("a b c d", 2).map(({ word }) => word)).toEqual(["a", "b"]);
  });
});

describe("finds", () => {
  test.each([
    ["another form of a word", "hashes of blocks", ["The hash of a block"]],
    ["a number that is written apart, with a hyphen or together", "sha 256", ["SHA-256", "sha256", "Sha 256"]],
    ["the same the other way round", "sha256", ["SHA-256", "sha256", "Sha 256"]],
    ["whatever the accents", "cafe", ["Café"]],
    ["the beginning of a word that nobody has as it stands", "arith", ["arithmetic"]],
    ["a count beside words that are there", "add 2 numbers", ["Adds numbers"]],
  ])("%s", (_, q, texts) => {
    expect(found(indexOf(...texts, "nothing of it"), q)).toHaveLength(texts.length);
  });

  test("a word of the kind, behind one of the text, and not where kinds do not count", () => {
    const index = indexOf(["of letters", "codes"], ["hash of letters", "any"], "other");
    expect(found(index, "hash")).toEqual([1, 0]);
    expect(found(index, "hash", false)).toEqual([1]);
  });

  test("the shorter text before the longer one, and the rarer word weighs more", () => {
    const index = indexOf(`price ${"of many things ".repeat(20)}`, "price", "rare of", "of", "of");
    expect(found(index, "price")).toEqual([1, 0]);
    const { weights } = index.match(splitWords("rare of", 2), true);
    expect(weights[0]).toBeGreaterThan(weights[1]!);
  });

  test("what was put in the place of another text, and nothing that was taken out", () => {
    const index = indexOf("first", "second");
    index.put([
      [0, { text: "third", kind: "any" }],
      [1, null],
      [2000, { text: "second again", kind: "any" }],
    ]);
    expect([found(index, "first"), found(index, "third"), found(index, "second")]).toEqual([[], [0], [2000]]);
  });
});

test("nothing that somebody writes is read as the engine's language", () => {
  const index = indexOf(`NEAR("x" AND * text : y) "`, "OR kind:codes ^z -w");
  for (const q of [
    '" OR "',
    "text : x",
    "NEAR(x y)",
    "x*",
    "-x",
    "a AND NOT b",
    "'); DROP TABLE texts; --",
    "^x",
    "\u0000\ud800",
  ])
    expect(() => index.match(splitWords(q, 40), true)).not.toThrow();
  expect(found(index, "or")).toEqual([1]);
});

test("a question of many words is looked for by its first ones, and a long text by as many as are kept", () => {
  const many = Array.from({ length: 200 }, (_, i) => `word${String.fromCharCode(97 + (i % 26))}${i}x`);
  const index = indexOf(many.join(" "));
  expect(index.match(splitWords(many.join(" "), 200), true).words).toHaveLength(12);
  expect([found(index, many[0]!), found(index, many[199]!)]).toEqual([[0], []]);
});
