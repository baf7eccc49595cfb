import { randomBytes } from "node:crypto";
import { expect, test } from "vitest";
import { fillTemplateFields, readAskedFields } from "../../../pipelines/record/classes/mapping.ts";
import { checkerOf } from "../../../pipelines/record/classes.ts";

const PURE = ["arithmetic", "encodings", "calendar-facts", "geo-facts", "llm-echo"];

test("a question of ours that somebody else asks has the same truth, also as text and read back out of a mapping", async () => {
  for (const name of PURE)
    for (const variant of Object.values(checkerOf(name).variants))
      for (let n = 0; n < 50; n++) {
        const { fields, truth } = (await variant.draw(randomBytes(32), {}))!;
        expect([name, await variant.solve(fields, {})]).toEqual([name, truth]);
        const body = Object.fromEntries(Object.keys(fields).map((one) => [one, [{ in: `<{${one}}>` }, `{${one}}`]]));
        const template = { body: { ...body, fixed: true } };
        const texts = Object.fromEntries(Object.entries(fields).map(([one, value]) => [one, String(value)]));
        expect(await variant.solve(readAskedFields(template, fillTemplateFields(template, texts))!, {})).toEqual(truth);
        expect(readAskedFields(template, { body: { ...body, fixed: false } })).toBeNull();
      }
});

test("what is written in a way that may be read differently has no truth", async () => {
  const CASES: [string, string, Record<string, string | number>][] = [
    ["arithmetic", "sum", { a: "0103", b: 9 }],
    ["arithmetic", "sum", { a: 0.1, b: 0.2 }],
    ["arithmetic", "sum", { a: "1e3", b: 9 }],
    ["encodings", "urlencoded", { text: "it's" }],
    ["encodings", "sha256", { text: "" }],
    ["calendar-facts", "weekday", { date: "2019-02-30" }],
    ["calendar-facts", "utc_offset", { zone: "Europe/Berlin", at: "2031-01-01T00:00:00Z" }],
    ["geo-facts", "capital", { country: "Atlantis" }],
    ["geo-facts", "currency", { country: "Bulgaria" }],
    ["llm-echo", "chat", { prompt: "say hello" }],
  ];
  for (const [name, variant, fields] of CASES)
    expect([name, fields, await checkerOf(name).variants[variant]!.solve(fields, {})]).toEqual([name, fields, null]);
});

test("a text that could be read in two ways is not read", () => {
  const body = "{a}-{b}";
  expect(readAskedFields({ body }, { body: "1-2" })).toEqual({ a: "1", b: "2" });
  expect(readAskedFields({ body }, { body: "1-2-3" })).toBeNull();
  expect(readAskedFields({ body: "{a}{b}" }, { body: "12" })).toBeNull();
  expect(readAskedFields({ body: "{a} {a}" }, { body: "1 2" })).toBeNull();
});
