import { describe, expect, test } from "vitest";
import { rank as rankTexts, sentencesOf, termsOf } from "../../../serving/work/brief/rank.ts";
import { verifiedQuotes } from "../../../serving/work/brief/summariser.ts";

const TERMS = [
  "Our shop sells salt and pepper. A buyer may ask for a refund within 30 days of the purchase.",
  "Refunds are paid to the card that paid. The shop is closed on Sundays, as it has always been.",
].join("\n\n");

describe("words of a question", () => {
  test.each<[string, string[]]>([
    ["What are the refunds of the buyers?", ["refund", "buyer"]],
    ["Policies, classes and the bus", ["policy", "classe", "bus"]],
    ["ＡＰＩ v2 für Straßen", ["api", "v2", "für", "straßen"]],
    ["退款", ["退", "款"]],
    ["what is the of?", []],
    ["!?… —", []],
  ])("%s", (text, words) => expect(termsOf(text)).toEqual(words));
});

describe("sentences", () => {
  test("stand at their offsets, do not cross lines, and are neither scraps nor rows of tables", () => {
    const text = `Short.\nOne whole sentence stands here.  And “another” one 😀 stands here!\na\tb\tc d e f g h i j k l\n${"x".repeat(700)}`;
    const found = [...sentencesOf({ text, wraps: false })];
    expect(found.map(({ text: one }) => one)).toEqual([
      "One whole sentence stands here.",
      "And “another” one 😀 stands here!",
    ]);
    for (const { offset, text: one } of found) expect(text.slice(offset, offset + one.length)).toBe(one);
  });
});

test("of a text that wraps, a sentence goes on in the next line and ends with its paragraph", () => {
  const text =
    "Chapter of refunds\n\nThe buyer may ask for it\nwithin 30 days. After that\nnobody may do so.\n\nAnother paragraph without an end\n\n\nThe last paragraph of them all.";
  const found = [...sentencesOf({ text, wraps: true })];
  expect(found.map(({ text: one }) => one)).toEqual([
    "The buyer may ask for it\nwithin 30 days.",
    "After that\nnobody may do so.",
    "Another paragraph without an end",
    "The last paragraph of them all.",
  ]);
  for (const { offset, text: one } of found) expect(text.startsWith(one, offset)).toBe(true);
});

const rank = (question: string, texts: readonly string[], most: number) =>
  rankTexts(
    question,
    texts.map((text) => ({ text, wraps: false })),
    most,
  );

describe("ranking", () => {
  test("what says most of the question comes first, and what says nothing of it not at all", () => {
    const found = rank("When may a buyer have a refund of the purchase?", [TERMS], 8);
    expect(found.map(({ text }) => text)).toEqual(["A buyer may ask for a refund within 30 days of the purchase."]);
    expect(TERMS.startsWith(found[0]!.text, found[0]!.offset)).toBe(true);
    expect(rank("refund", [TERMS], 8)).toHaveLength(2);
    expect(rank("What is the boiling point of helium?", [TERMS], 8)).toEqual([]);
  });

  test("the same sentence is given once, and the same question always the same answer", () => {
    const twice = [TERMS, TERMS.toUpperCase(), `${TERMS} A buyer may ask for a refund within 31 days of the purchase.`];
    const found = rank("buyer refund purchase", twice, 8);
    expect(found.map(({ source }) => source)).toEqual([0]);
    expect(rank("buyer refund purchase", twice, 8)).toEqual(found);
  });

  test("at most so many, different ones before likes of the first", () => {
    const many = Array.from(
      { length: 30 },
      (_, i) => `Refund number ${i} was paid to customer ${i * 7} on day ${i * 3}.`,
    );
    const found = rank(
      "refund paid customer",
      [many.join("\n"), "Nobody is paid a refund who was no customer before."],
      5,
    );
    expect(found).toHaveLength(5);
    expect(
      found
        .slice(0, 2)
        .map(({ source }) => source)
        .sort(),
    ).toEqual([0, 1]);
  });

  test("nothing to rank is nothing found", () => {
    expect(rank("refund", [], 8)).toEqual([]);
    expect(rank("refund", ["", "\n\n"], 8)).toEqual([]);
  });
});

describe("quotes", () => {
  const evidence = [{ url: "https://a.example/", text: TERMS, wraps: false }];
  test.each<[string, object, number | null]>([
    ["word for word", { source: 0, text: "The shop is closed on Sundays" }, TERMS.indexOf("The shop is")],
    [
      "at a wrong place: the right one",
      { source: 0, text: "The shop is closed on Sundays", offset: 3 },
      TERMS.indexOf("The shop is"),
    ],
    ["with one letter changed", { source: 0, text: "The shop is closed on Mondays" }, null],
    ["put together of two", { source: 0, text: "Our shop sells salt and pepper. The shop is closed" }, null],
    ["of a source that is not there", { source: 1, text: "The shop is closed on Sundays" }, null],
    ["of a source by a strange number", { source: -1, text: "The shop is closed on Sundays" }, null],
    ["too short to be one", { source: 0, text: "The shop" }, null],
  ])("%s", (_, quote, offset) => {
    const found = verifiedQuotes([quote as { source: number; text: string }], evidence);
    expect(found.map((one) => one.offset)).toEqual(offset === null ? [] : [offset]);
  });
});
