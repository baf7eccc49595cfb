import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { offsetMinutes } from "../../../pipelines/record/classes/calendar.ts";
import type { Question, Sources, Variant } from "../../../pipelines/record/classes/checker.ts";
import { numberInWords } from "../../../pipelines/record/classes/llm-echo.ts";
import { anyClass, CHECKERS, checkerOf, classOf, variantOf } from "../../../pipelines/record/classes.ts";
import { fc } from "../../helpers/histories.ts";

const seedOf = (text: string): Uint8Array => createHash("sha256").update(text).digest();
const SOURCES: Sources = {
  page: () => ({ url: "https://t.example/p/1", facts: ["amber bridge", "1234", "x7k2m9qa"] }),
  block: async () => ({ network: "eip155:1", number: 7, hash: `0x${"aB".repeat(32)}`, time: 1_700_000_000 }),
  company: async () => ({ lei: "529900T8BM49AURSDO55", name: "Müller & Söhne GmbH" }),
  price: async () => 2_000,
  row: () => ({ asks: { day: "2019-03-08", place: "Kew" }, answer: 7.4, within: 0.5 }),
};
const variantNamed = (name: string, variant: string): Variant => variantOf({ class: name, variant })!;
const ask = async (variant: Variant, seed = "1", sources = SOURCES): Promise<Question> =>
  (await variant.draw(seedOf(seed), sources))!;
const EVERY = CHECKERS.flatMap(({ name, variants }) =>
  Object.entries(variants).map(([kind, variant]): [string, Variant] => [`${name}/${kind}`, variant]),
);

describe("every question of every class", () => {
  test("the set", () => {
    expect(CHECKERS.map(({ name }) => name)).toEqual([
      ...["arithmetic", "encodings", "calendar-facts", "geo-facts", "llm-echo", "planted-page", "chain-data"],
      ...["token-price", "company-name", "known-rows", "any"],
    ]);
    expect(EVERY.length).toBeGreaterThan(20);
  });

  test.each(EVERY)("%s: what it asks is what it says, and the truth is right", async (_, variant) => {
    const { fields, truth } = await ask(variant);
    expect(Object.keys(fields)).toEqual(expect.arrayContaining([...variant.asks, ...(variant.fixed ?? [])]));
    const right = Array.isArray(truth) && variant.answer !== null ? truth[0] : truth;
    const said =
      variant.answer === null
        ? (truth as string[]).join(" ")
        : typeof right === "object"
          ? JSON.stringify(right)
          : right;
    expect([variant.delivery(said), variant.score(said, truth)]).toEqual([1, 1]);
  });

  test.each(EVERY)("%s: an answer to another question, nothing, and anything at all are worth little", async (_, v) => {
    const { truth } = await ask(v);
    for (const wrong of [undefined, null, "", {}, [], true, -1, "zzz", Number.NaN])
      expect(v.score(wrong, truth)).toBe(0);
    fc.assert(
      fc.property(fc.anything(), fc.anything(), (value, other) => {
        for (const score of [v.delivery(value), v.score(value, truth), v.score(value, other)]) {
          expect(score).toBeGreaterThanOrEqual(0);
          expect(score).toBeLessThanOrEqual(1);
        }
        expect(v.score(value, truth)).toBeLessThan(1);
      }),
      { numRuns: 50 },
    );
  });

  test.each(EVERY)("%s: the same seed, the same question", async (_, variant) => {
    expect(await ask(variant)).toEqual(await ask(variant));
  });

  test("questions are many: a list of the answers would not help", async () => {
    for (const [name, variant] of EVERY) {
      const asked = new Set<string>();
      for (let n = 0; n < 60; n++) asked.add(JSON.stringify((await ask(variant, String(n))).fields));
      const sourced = /planted|chain|token|company|rows/.test(name);
      expect([name, asked.size >= (sourced ? 1 : 30)]).toEqual([name, true]);
    }
  });

  test("without its source a question is not asked", async () => {
    for (const [name, variant] of EVERY) {
      const asked = await variant.draw(seedOf("1"), {});
      expect([name, asked === null]).toEqual([name, /planted|chain|token|company|rows/.test(name)]);
    }
  });
});

describe("arithmetic", () => {
  test("asks the questions that it always asked", async () => {
    const { sum } = checkerOf("arithmetic").variants;
    expect(await sum!.draw(Buffer.alloc(32, 3), {})).toEqual({ fields: { a: 772, b: 772 }, truth: 1544 });
    expect([sum!.score(1544, 1544), sum!.score("1544", 1544), sum!.score(1545, 1544)]).toEqual([1, 0, 0]);
  });
});

describe("encodings", () => {
  const of = (name: string) => variantNamed("encodings", name);
  test("against the vectors of RFC 4648 and of FIPS 180", async () => {
    // What a text becomes is the variant's own doing: its truth of a drawn text is held against another reading of it.
    for (let n = 0; n < 20; n++) {
      const b64 = await ask(of("base64"), String(n));
      expect(Buffer.from(String(b64.truth), "base64").toString()).toBe(b64.fields.text);
      const url = await ask(of("urlencoded"), String(n));
      expect(decodeURIComponent(String(url.truth))).toBe(url.fields.text);
      const hex = await ask(of("hex"), String(n));
      expect(new TextDecoder().decode(Buffer.from(String(hex.truth), "hex"))).toBe(hex.fields.text);
    }
    expect(["md5", "sha1", "sha256", "sha512"].map((name) => of(name).answer)).toEqual([
      ...["/md5", "/sha1", "/sha256", "/sha512"],
    ]);
  });
  test("hexadecimal in any case, base64 in one", async () => {
    const { truth } = await ask(of("sha256"));
    expect(of("sha256").score(`0x${String(truth).toUpperCase()}`, truth)).toBe(1);
    const b64 = await ask(of("base64"));
    expect(of("base64").score(String(b64.truth).toLowerCase(), b64.truth)).toBe(0);
    expect(of("base64").score(String(b64.truth).replaceAll("=", ""), b64.truth)).toBeLessThanOrEqual(1);
  });
});

describe("calendar-facts", () => {
  const [weekday, offset] = [variantNamed("calendar-facts", "weekday"), variantNamed("calendar-facts", "utc_offset")];
  test("weekdays of dates that everybody knows", () => {
    expect(weekday.score("Mon", "monday")).toBe(1);
    expect(weekday.score("MONDAY ", "monday")).toBe(1);
    expect(weekday.score("mo", "monday")).toBe(0);
    expect(weekday.score("monster", "monday")).toBe(0);
  });
  test("offsets as they were, in either half of the year", () => {
    const at = (text: string) => new Date(text);
    expect(offsetMinutes("Asia/Kathmandu", at("2020-01-01T12:00:00Z"))).toBe(345);
    expect(offsetMinutes("America/New_York", at("2020-07-01T12:00:00Z"))).toBe(-240);
    expect(offsetMinutes("America/New_York", at("2020-01-01T12:00:00Z"))).toBe(-300);
    expect(offsetMinutes("Europe/London", at("2020-01-01T12:00:00Z"))).toBe(0);
    expect(offsetMinutes("America/St_Johns", at("2020-01-01T12:00:00Z"))).toBe(-210);
  });
  test.each([[-210], ["-210"], ["-03:30"], ["UTC-3:30"], ["-0330"]])("%s is 210 minutes behind", (said) => {
    expect(offset.score(said, -210)).toBe(1);
    expect(offset.score(said, 210)).toBe(0);
  });
});

describe("geo-facts", () => {
  test("marks, case and signs do not matter; another country's answer does", () => {
    const capital = variantNamed("geo-facts", "capital");
    expect(capital.score("Brasília", ["Brasilia"])).toBe(1);
    expect(capital.score("Lima", ["Brasilia"])).toBe(0);
    const country = variantNamed("geo-facts", "country_of_capital");
    for (const said of ["Peru", "PE", "PER", "peru."]) expect(country.score(said, ["Peru", "PE", "PER"])).toBe(1);
  });
  test("nobody is asked for what is about to change", async () => {
    const currency = variantNamed("geo-facts", "currency");
    for (let n = 0; n < 200; n++) expect((await ask(currency, String(n))).truth).not.toEqual([""]);
  });
});

describe("llm-echo", () => {
  const chat = variantNamed("llm-echo", "chat");
  const truth = { code: "x7k2m9qa", sum: 91 };
  test.each([
    ['{"code":"x7k2m9qa","sum":91}', 1],
    [' {"sum": 91, "code": "x7k2m9qa"}\n', 1],
    ['```json\n{"code":"x7k2m9qa","sum":91}\n```', 2 / 3],
    ['Sure! {"code":"x7k2m9qa","sum":90}', 1 / 3],
    ['{"code":"x7k2m9qa","sum":90}', 0.5],
    ['{"code":"x7k2m9qa","sum":91,"note":"done"}', 2 / 3],
    ["I cannot do that.", 0],
    [`{"a":${"[".repeat(3_000)}`, 0],
    [JSON.stringify({ code: "x7k2m9qa", sum: 91, more: "x".repeat(5_000) }), 0],
  ])("%s", (said, score) => {
    expect(chat.score(said, truth)).toBeCloseTo(score, 9);
  });
  test("numbers in words, and a prompt with the word in it", async () => {
    expect([0, 11, 20, 21, 90, 99].map(numberInWords)).toEqual([
      ...["zero", "eleven", "twenty", "twenty-one", "ninety", "ninety-nine"],
    ]);
    const { fields, truth: drawn } = await ask(chat);
    const { code, sum } = drawn as typeof truth;
    expect(String(fields.prompt)).toContain(`"${code}"`);
    const [, a, b] = /number that ([a-z-]+) and ([a-z-]+) make/.exec(String(fields.prompt))!;
    const number = (word: string) => Array.from({ length: 100 }, (_, n) => n).find((n) => numberInWords(n) === word)!;
    expect(number(a!) + number(b!)).toBe(sum);
  });
});

describe("what depends on a source", () => {
  test("a page: the share of its facts, in any form", async () => {
    const read = variantNamed("planted-page", "read");
    const { truth } = await ask(read);
    const said = "<h1>Amber  Bridge</h1><td>pebble</td><td>1234</td>";
    expect(read.score(said, truth)).toBeCloseTo(2 / 3, 9);
    expect(read.score(`${"x ".repeat(400_000)} amber bridge`, truth)).toBe(0);
  });
  test("a block: hash in any case, time as a node says it", async () => {
    const hash = await ask(variantNamed("chain-data", "block_hash"));
    expect(variantNamed("chain-data", "block_hash").score(String(hash.truth).toUpperCase(), hash.truth)).toBe(1);
    const time = variantNamed("chain-data", "block_time");
    expect([1_700_000_000, "1700000000", "0x6553f100"].map((said) => time.score(said, 1_700_000_000))).toEqual([
      1, 1, 1,
    ]);
    expect(time.score(1_700_000_001, 1_700_000_000)).toBe(0);
  });
  test("a price: right within two of a hundred, half right within five", () => {
    const { score } = variantNamed("token-price", "token");
    expect([2_000, "2039.9", 1_961, 2_060, 2_101, 0, -2_000].map((said) => score(said, 2_000))).toEqual([
      ...[1, 1, 1, 0.5, 0, 0, 0],
    ]);
  });
  test("a company: letters and figures of its name", () => {
    const { score } = variantNamed("company-name", "by_lei");
    expect(score("MULLER & SOHNE GMBH.", "Müller & Söhne GmbH")).toBe(1);
    expect(score("Muller GmbH", "Müller & Söhne GmbH")).toBe(0);
  });
});

test("a known row: a number within what its rows allow, a text by its letters and figures", async () => {
  const row = variantNamed("known-rows", "row");
  expect([7.4, "7.9", 6.9, 8, "warm", -7.4].map((said) => row.score(said, [7.4, 0.5]))).toEqual([1, 1, 1, 0, 0, 0]);
  // As floating point has it, 1.1 is further from 1 than 0.1.
  expect(row.score(1.1, [1, 0.1])).toBe(1);
  expect([2019, "2019", 2018, -2019].map((said) => row.score(said, ["2019", 0]))).toEqual([1, 1, 0, 0]);
  const truth = (await ask(row, "1", { row: () => ({ asks: { no: 7 }, answer: "Grün & Co.", within: 0 }) })).truth;
  expect(["GRÜN CO", "Grün & Co. KG", 7, "", "&"].map((said) => row.score(said, truth))).toEqual([1, 0, 0, 0, 0]);
});

test("an unknown name is `any`, and what every object has is no class and no question", () => {
  expect(classOf({ named: "constructor" })).toBe("any");
  expect(classOf({})).toBe("any");
  expect(checkerOf("nothing")).toBe(anyClass);
  expect(variantOf({ class: "any", variant: "sum" })).toBeNull();
  expect(variantOf({ class: "arithmetic", variant: "constructor" })).toBeNull();
});

test("every class has its section in the documentation", () => {
  const text = readFileSync("docs/classes.md", "utf8");
  for (const { name } of CHECKERS.filter((one) => one !== anyClass))
    expect(text).toMatch(new RegExp(`^## ${name}$`, "m"));
});
