import { describe, expect, test } from "vitest";
import { differenceOf, isSameStatement, rank as rankTexts } from "../../../serving/work/brief/rank.ts";
import { sentencesOf, wholeSentences } from "../../../serving/work/brief/sentences.ts";
import { statedSentences, verifyDraft, verifyQuote } from "../../../serving/work/brief/summariser.ts";
import { soughtWordsOf, termsOf } from "../../../serving/work/brief/terms.ts";

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

describe("a German question", () => {
  const termsFor = (question: string) => soughtWordsOf(question).map(({ word, terms }) => [word, terms.slice(1)]);
  test.each<[string, [string, string[]][]]>([
    ["Wie lange ist die Rückgabefrist?", [["rückgabefrist", ["return", "period", "deadline"]]]],
    [
      "Welche Gebühren muss der Käufer zahlen?",
      [
        ["gebühren", ["fee", "charge"]],
        ["käufer", ["buyer"]],
        ["zahlen", ["pay", "number"]],
      ],
    ],
    [
      "Wo ist das Produkt mit Elektrizität?",
      [
        ["produkt", ["product"]],
        ["elektrizität", ["electricity"]],
      ],
    ],
    [
      "Wann wurde Grace Hopper geboren?",
      [
        ["grace", []],
        ["hopper", []],
        ["geboren", ["born"]],
      ],
    ],
  ])("%s is looked for in English", (question, wanted) => {
    const found = termsFor(question);
    for (const [word, terms] of wanted) {
      const [, has] = found.find(([one]) => one === word)!;
      expect(has).toEqual(expect.arrayContaining(terms.filter((term) => term !== word)));
    }
  });
  test("an English one is not looked for in German ways", () => {
    expect(termsFor("When will the bank land a tag?")).toEqual([
      ["bank", []],
      ["land", []],
      ["tag", []],
    ]);
  });
});

describe("sentences", () => {
  test("stand at their offsets, do not cross lines, and are neither scraps nor rows of tables", () => {
    const text = `Short.\nOne whole sentence stands here.  And “another” one 😀 stands here!\na\tb\tc d e f g h i j k l\n${"x".repeat(700)}`;
    const found = [...sentencesOf({ text, isWrapped: false })];
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
  const found = [...sentencesOf({ text, isWrapped: true })];
  expect(found.map(({ text: one }) => one)).toEqual([
    "The buyer may ask for it\nwithin 30 days.",
    "After that\nnobody may do so.",
    "Another paragraph without an end",
    "The last paragraph of them all.",
  ]);
  for (const { offset, text: one } of found) expect(text.startsWith(one, offset)).toBe(true);
});

test("headings and code are no sentences, in Markdown and in a page", () => {
  const text = [
    "# How a refund is asked for",
    "A buyer asks for it in writing.\nNobody else may do so.",
    "A heading with a line\n---------\nThe text below it is one sentence.",
    "```\nconst refund = the buyer asks for it in writing\n\nThis is code too, within the block of code.\n```",
    "    curl https://seller.example/refund and so on",
    "curl -s https://seller.example/refund -d '{\"order\": 1}'",
    'The answer is {"refund": true, "buyer": {"id": 7}} or {"refund": false}.',
    "After the code a sentence stands again.",
  ].join("\n\n");
  expect([...sentencesOf({ text, isWrapped: true })].map((one) => one.text)).toEqual([
    "A buyer asks for it in writing.",
    "Nobody else may do so.",
    "The text below it is one sentence.",
    "After the code a sentence stands again.",
  ]);
  const page = "What a refund of the buyer is\nA refund gives the buyer all of the money back.";
  const headings = [{ offset: 0, length: 29 }];
  expect([...sentencesOf({ text: page, isWrapped: false, headings })].map(({ offset }) => offset)).toEqual([30]);
});

test("a long paragraph is cut into the sentences that it has, wherever its parts end", () => {
  const sentences = Array.from({ length: 3_000 }, (_, i) => `Sentence number ${i} of a long paragraph.`);
  const text = sentences.join(" ");
  const found = [...sentencesOf({ text, isWrapped: false })];
  expect(found.map((one) => one.text)).toEqual(sentences);
  for (const { offset, text: one } of found) expect(text.startsWith(one, offset)).toBe(true);
});

test("a quotation is widened to its whole sentences, and to no other", () => {
  const text = "You may not get a refund within 30 days. Another one stands here.\n\nA new paragraph begins here.";
  const whole = (part: string, wraps = true) =>
    wholeSentences({ text, isWrapped: wraps }, text.indexOf(part), part.length)?.text;
  expect(whole("get a refund")).toBe("You may not get a refund within 30 days.");
  expect(whole("30 days. Another")).toBe("You may not get a refund within 30 days. Another one stands here.");
  expect(whole("A new paragraph")).toBe("A new paragraph begins here.");
  const long = `It begins ${"and goes on ".repeat(400)}until it ends.`;
  expect(wholeSentences({ text: long, isWrapped: true }, long.indexOf("until"), 5)).toBeNull();
  const title = "# Title of it\nThe text begins under its title.";
  expect(wholeSentences({ text: title, isWrapped: true }, title.indexOf("begins"), 6)?.text).toBe(
    "The text begins under its title.",
  );
});

const rank = (question: string, texts: readonly string[], most: number) =>
  rankTexts(
    question,
    texts.map((text) => ({ text, isWrapped: false })),
    most,
  );
const best = (question: string, texts: readonly string[], most: number) =>
  rank(question, texts, most).claims.map(([first]) => first!);

describe("ranking", () => {
  test("what says most of the question comes first, and what says nothing of it not at all", () => {
    const found = best("When may a buyer have a refund of the purchase?", [TERMS], 8);
    expect(found.map(({ text }) => text)).toEqual(["A buyer may ask for a refund within 30 days of the purchase."]);
    expect(TERMS.startsWith(found[0]!.text, found[0]!.offset)).toBe(true);
    expect(best("refund", [TERMS], 8)).toHaveLength(2);
    expect(best("What is the boiling point of helium?", [TERMS], 8)).toEqual([]);
  });

  test("what several sources say is one claim with a quotation of each; the same question gives the same answer", () => {
    const other = TERMS.replace("A buyer may ask", "Any buyer may ask");
    const { claims, differences } = rank("buyer refund purchase", [TERMS, TERMS.toUpperCase(), other, TERMS], 8);
    expect(claims.map((claim) => claim.map(({ source }) => source))).toEqual([[0, 1, 2, 3]]);
    expect(differences).toEqual([]);
    expect(rank("buyer refund purchase", [TERMS, TERMS, other], 8)).toEqual(
      rank("buyer refund purchase", [TERMS, TERMS, other], 8),
    );
  });

  test("with another figure, or with a negation in one, it is two claims that differ", () => {
    const later = TERMS.replace("30 days", "31 days");
    const never = TERMS.replace("may ask", "may not ask");
    const { claims, differences } = rank("buyer refund purchase", [TERMS, later, never], 8);
    expect(claims).toHaveLength(3);
    const between = differences.map(({ differsIn: about, sentences: between }) => [
      about,
      ...between.map(({ source }) => source),
    ]);
    expect(between).toContainEqual(["30 or 31 days", 0, 1]);
    expect(between).toContainEqual(["one of them says not", 0, 2]);
  });

  test("where a figure is asked for, a sentence that has one comes first", () => {
    const texts = [
      "The delivery of the parcel takes long, says the shop.",
      "The delivery of the parcel takes 3 days, says the shop.",
    ];
    expect(best("How long does delivery of the parcel take?", texts, 8)[0]!.source).toBe(1);
  });

  test("at most so many, different ones before likes of the first", () => {
    const many = Array.from(
      { length: 30 },
      (_, i) => `Refund number ${i} was paid to customer ${i * 7} on day ${i * 3}.`,
    );
    const found = best(
      "refund paid customer",
      [many.join("\n"), "Nobody is paid a refund who was no customer before."],
      5,
    );
    expect(found).toHaveLength(5);
    const first = found.slice(0, 2).map(({ source }) => source);
    expect(first.sort()).toEqual([0, 1]);
  });

  test("nothing to rank is nothing found", () => {
    expect(best("refund", [], 8)).toEqual([]);
    expect(best("refund", ["", "\n\n"], 8)).toEqual([]);
  });
});

describe("two sentences", () => {
  test.each<[string, string, string | null]>([
    ["A buyer has a refund within 30 days.", "A buyer has a refund within 14 days.", "30 or 14 days"],
    ["The fee for a transfer is $5.", "The bank asks a fee of $7.50 for each transfer.", "5 or 7.5 USD"],
    ["A buyer has a refund within 30 days.", "The buyer gets no refund.", "one of them says not"],
    ["A buyer has a refund within 30 days.", "The shop sells no pepper on Sundays.", null],
    ["A buyer has a refund within 30 days.", "A repair is done within 14 days.", null],
    ["Sellers answer within 2 s.", "Sellers answer within 2 minutes.", null],
    ["The fee is 1,000 dollars a year of rent.", "The fee of the rent is $1000.", null],
    ["The shop ships to Norway.", "The shop doesn't ship to Norway.", "one of them says not"],
  ])("%s / %s", (a, b, about) => expect(differenceOf(a, b)).toBe(about));

  test("say the same only with the same figures, and both or neither negated", () => {
    expect(isSameStatement("A buyer may ask for a refund.", "Any buyer may ask for a refund.")).toBe(true);
    expect(isSameStatement("A buyer pays 30 USD for the refund.", "A buyer pays 31 USD for the refund.")).toBe(false);
    expect(isSameStatement("A buyer may ask for a refund.", "No buyer may ask for a refund.")).toBe(false);
  });
});

const evidence = [
  { url: "https://a.example/", text: TERMS, isWrapped: true },
  {
    url: "https://b.example/",
    text: "Sellers rarely pay the buyer. The buyer pays $5, unless the seller objects.",
    isWrapped: true,
  },
];

describe("quotations", () => {
  test.each<[string, object, string | null]>([
    ["word for word", { source: 0, text: "The shop is closed on Sundays" }, "The shop is closed on Sundays, as"],
    [
      "at a wrong place: the right one",
      { source: 0, text: "The shop is closed on Sundays", offset: 3 },
      "The shop is closed",
    ],
    ["with one letter changed", { source: 0, text: "The shop is closed on Mondays" }, null],
    ["put together of two", { source: 0, text: "Our shop sells salt and pepper. The shop is closed" }, null],
    ["of a source that is not there", { source: 2, text: "The shop is closed on Sundays" }, null],
    ["of a source by a strange number", { source: -1, text: "The shop is closed on Sundays" }, null],
    ["of a source by half a number", { source: 0.5, text: "The shop is closed on Sundays" }, null],
    ["too short to be one", { source: 0, text: "The shop" }, null],
    ["too long to be one", { source: 0, text: TERMS.repeat(9) }, null],
  ])("%s", (_, quote, begins) => {
    const found = verifyQuote(quote as { source: number; text: string }, evidence);
    if (begins === null) expect(found).toBeNull();
    else expect(found).toMatchObject({ text: expect.stringContaining(begins), offset: TERMS.indexOf("The shop is") });
  });
});

describe("a claim", () => {
  const B = evidence[1]!.text;
  test.each<[string, string | null]>([
    ["The buyer pays $5, unless the seller objects.", "The buyer pays $5, unless the seller objects."],
    ["sellers rarely pay the buyer", "Sellers rarely pay the buyer."],
    ["Therefore, the buyer also pays $5 unless the seller objects", "The buyer pays $5, unless the seller objects."],
    ["Sellers pay the buyer.", null],
    ["The buyer pays sellers.", null],
    ["The seller pays $5, unless the buyer objects.", null],
    ["The buyer pays $5.", null],
    ["The buyer pays €5, unless the seller objects.", null],
    ["The buyer pays $50, unless the seller objects.", null],
    ["The buyer never pays $5, unless the seller objects.", null],
    ["The seller objects.", null],
    ["", null],
    ["…", null],
  ])("%s", (claim, stated) => expect(statedSentences(claim, B)).toBe(stated));

  test("is left out, and counted, if it does not stand in its own quotation; support that says something else is dropped", () => {
    const shop = { source: 0, text: "The shop is closed on Sundays, as it has always been." };
    const buyer = { source: 1, text: "Sellers rarely pay the buyer." };
    const { claims, leftOutCount } = verifyDraft(
      {
        claims: [
          { text: buyer.text, quotations: [shop] },
          { text: shop.text, quotations: [buyer, shop] },
          { text: shop.text, quotations: [shop] },
          { text: shop.text, quotations: [] },
        ],
        differences: [{ differsIn: "a lie", sentences: [shop, buyer] }],
      },
      evidence,
      8,
    );
    expect(claims).toMatchObject([{ text: shop.text, quotations: [{ source: 0 }] }]);
    expect(leftOutCount).toBe(3);
  });
});
