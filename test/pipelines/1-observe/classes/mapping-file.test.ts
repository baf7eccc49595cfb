import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { ConfigError } from "../../../../infra/config.ts";
import { matchByMapping } from "../../../../pipelines/1-observe/classes/classing.ts";
import { createClassMaps, readClassMaps } from "../../../../pipelines/1-observe/classes/mapping-file.ts";
import { fillTemplateFields, isPointer, valueAt } from "../../../../pipelines/record/classes/mapping.ts";
import { capId } from "../../../../pipelines/record/ids.ts";

const url = "https://api.example.com/v2/digest";
const row = (change: object = {}) => ({
  match: { url },
  class: "encodings",
  variant: "sha256",
  input: { body: { payload: { data: "{text}" }, rounds: 1 } },
  answer: "/result/hex",
  ...change,
});
const fail = (...says: string[]): never => {
  throw new Error(says.join("\n"));
};
const maps = (...mappings: object[]) => createClassMaps({ version: 1, mappings }, fail);
const one = (change: object = {}) => ({ cap: capId("POST", url), url, method: "POST", tool: null, ...change });

describe("an operator's file", () => {
  test("a mapping by url, host or id; the narrower word goes first", () => {
    const { cap } = one();
    const other = { input: { query: { q: "{text}" } } };
    expect(maps(row()).find(one())).toMatchObject({ class: "encodings", variant: "sha256", answer: "/result/hex" });
    expect(maps(row({ match: { url: "https://API.example.com:443/v2/digest#x" } })).find(one())).not.toBeNull();
    expect(maps(row({ match: { host: "api.example.com" } })).find(one())).not.toBeNull();
    expect(maps(row({ match: { host: "api.example.com" } })).find(one({ url: "https://x.example/" }))).toBeNull();
    const both = maps(row({ match: { host: "api.example.com" } }), row({ ...other, match: { capability: cap } }));
    expect(both.find(one())?.input).toEqual(other.input);
    const byVerb = maps(row(), row({ ...other, method: "GET" }));
    expect(byVerb.find(one({ method: "GET" }))?.input).toEqual(other.input);
    expect(byVerb.find(one())?.input).toEqual(row().input);
    expect(maps(row({ tool: "add" })).find(one())).toBeNull();
    expect(maps(row({ tool: "add" })).find(one({ tool: "add" }))).not.toBeNull();
  });

  test("the question is put where the file says, and the rest of the request stays", () => {
    const mapping = maps(row()).find(one())!;
    expect(matchByMapping(mapping).arrange({ text: "a b" })).toEqual({ body: { payload: { data: "a b" }, rounds: 1 } });
    expect(mapping.id).toMatch(/^[0-9a-f]{64}$/);
    expect(maps(row()).find(one())!.id).toBe(mapping.id);
    expect(maps(row({ answer: "/other" })).find(one())!.id).not.toBe(mapping.id);
  });

  test("an answer that is left out is the class's own, and null is the whole of it", () => {
    const { answer: _, ...without } = row();
    expect(maps(without).find(one())!.answer).toBe("/sha256");
    expect(maps(row({ answer: null })).find(one())!.answer).toBeNull();
  });

  test.each<[string, unknown, RegExp]>([
    ["no version", { mappings: [] }, /^\/version: /],
    ["a member too many", { version: 1, mappings: [row({ weight: 2 })] }, /^\/mappings\/0\/weight: is not a member/],
    ["a class that is none", { version: 1, mappings: [row({ class: "weather" })] }, /^\/mappings\/0\/class: /],
    ["any", { version: 1, mappings: [row({ class: "any" })] }, /^\/mappings\/0\/class: /],
    [
      "no question",
      { version: 1, mappings: [row({ variant: undefined })] },
      /^\/mappings\/0\/variant: is one of base64/,
    ],
    ["another's question", { version: 1, mappings: [row({ variant: "sum" })] }, /^\/mappings\/0\/variant: is one of/],
    ["what every object has", { version: 1, mappings: [row({ variant: "toString" })] }, /^\/mappings\/0\/variant: /],
    ["nothing asked", { version: 1, mappings: [row({ input: {} })] }, /^\/mappings\/0\/input: has no \{text\}/],
    [
      "a name that is none",
      { version: 1, mappings: [row({ input: { query: { q: "{text} {a}" } } })] },
      /^\/mappings\/0\/input: \{a\} is nothing that is asked; there is text/,
    ],
    ["no pointer", { version: 1, mappings: [row({ answer: "result" })] }, /^\/mappings\/0\/answer: is no JSON pointer/],
    [
      "two matches",
      { version: 1, mappings: [row({ match: { url, host: "x.example" } })] },
      /^\/mappings\/0\/match: names/,
    ],
    ["no url", { version: 1, mappings: [row({ match: { url: "ftp://x" } })] }, /^\/mappings\/0\/match\/url: /],
    [
      "no id",
      { version: 1, mappings: [row({ match: { capability: "cap_1" } })] },
      /^\/mappings\/0\/match\/capability: /,
    ],
    ["the same twice", { version: 1, mappings: [row(), row()] }, /^\/mappings\/1\/match: another mapping/],
  ])("%s is said with its place", (_, file, says) => {
    expect(() => createClassMaps(file, fail)).toThrow(says);
  });

  const weather = (n: number) => ({ asks: { day: `2019-03-${10 + n}`, place: "Kew" }, answer: n / 2 });
  const rows = { kew: { within: 0.5, rows: Array.from({ length: 20 }, (_, n) => weather(n)) } };
  const knows = {
    class: "known-rows",
    variant: undefined,
    rows: "kew",
    input: { query: { d: "{day}" } },
    answer: "/t",
  };

  test("rows that the operator knows are asked by the mapping that names them", () => {
    const file = createClassMaps({ version: 1, rows, mappings: [row(knows)] }, fail);
    const mapping = file.find(one())!;
    expect(mapping).toMatchObject({ class: "known-rows", variant: "row", rows: "kew", answer: "/t" });
    expect(file.rows("kew")).toHaveLength(20);
    expect(file.rows("kew")[3]).toEqual({ ...weather(3), within: 0.5 });
    expect(matchByMapping(mapping).arrange(weather(3).asks)).toEqual({ query: { d: "2019-03-13" } });
    expect(file.rows("toString")).toEqual([]);
    // Other rows under the same name are another mapping: it begins with control inputs again.
    const others = { kew: { ...rows.kew, within: 0.6 } };
    const later = createClassMaps({ version: 1, rows: others, mappings: [row(knows)] }, fail).find(one())!;
    expect(later.id).not.toBe(mapping.id);
  });

  test.each<[string, object, object, RegExp]>([
    ["no such rows", rows, { rows: "oxford" }, /^\/mappings\/0\/rows: names no rows of this file/],
    ["no rows named", rows, { rows: undefined }, /^\/mappings\/0\/rows: names the rows/],
    ["what every object has", rows, { rows: "toString" }, /^\/mappings\/0\/rows: names no rows/],
    ["what no row asks", rows, { input: { query: { q: "{text}" } } }, /^\/mappings\/0\/input: \{text\} is not asked/],
    ["nothing of a row", rows, { input: { query: { q: "7" } } }, /^\/mappings\/0\/input: asks nothing/],
    ["too few", { kew: { rows: rows.kew.rows.slice(1) } }, {}, /^\/rows\/kew\/rows: /],
    ["another class", rows, { class: "encodings", variant: "sha256" }, /^\/mappings\/0\/rows: names the rows/],
  ])("%s is said with its place, of rows too", (_, sets, change, says) => {
    expect(() => createClassMaps({ version: 1, rows: sets, mappings: [row({ ...knows, ...change })] }, fail)).toThrow(
      says,
    );
  });

  test("a file that is not there, and one that is no JSON, end the start with its name", () => {
    const path = join(mkdtempSync(join(tmpdir(), "classes-")), "classes.json");
    expect(() => readClassMaps(path)).toThrow(ConfigError);
    writeFileSync(path, "{");
    expect(() => readClassMaps(path)).toThrow(/classes_file \(.*classes\.json\): is no JSON/);
    writeFileSync(path, JSON.stringify({ version: 1, mappings: [row({ answer: "x" })] }));
    expect(() => readClassMaps(path)).toThrow(/classes_file \(.*\): \/mappings\/0\/answer: /);
    writeFileSync(path, JSON.stringify({ version: 1, mappings: [row()] }));
    expect(readClassMaps(path).find(one())).not.toBeNull();
  });
});

describe("templates and pointers", () => {
  test("a name alone is the value, one with :text or inside of a text is text; an unknown one stays", () => {
    const fields = { block: 7, network: "eip155:1" };
    const body = { a: "{block}", b: "{block:text}", c: ["at {block} of {network}", "{other}", 1, null] };
    expect(fillTemplateFields({ body, path: { n: "{block}" }, query: { q: "x{block}" } }, fields)).toEqual({
      body: { a: 7, b: "7", c: ["at 7 of eip155:1", "{other}", 1, null] },
      path: { n: "7" },
      query: { q: "x7" },
    });
  });
  test("a field's own text is never read as a template again", () => {
    expect(fillTemplateFields({ query: { q: "{a}{b}" } }, { a: "{b}", b: "x" })).toEqual({ query: { q: "{b}x" } });
  });
  test("a template that is nested too deep is refused", () => {
    let body: unknown = "{a}";
    for (let n = 0; n < 100; n++) body = [body];
    expect(() => fillTemplateFields({ body }, { a: 1 })).toThrow(RangeError);
  });
  test.each([
    ["", true],
    ["/a", true],
    ["/a~1b/~0/0", true],
    ["a", false],
    ["/a~2", false],
    ["/x".repeat(100), false],
  ])("%s is a pointer: %s", (text, is) => {
    expect(isPointer(text)).toBe(is);
  });
  test("RFC 6901's own examples, and nothing of a prototype", () => {
    const document = { foo: ["bar", "baz"], "": 0, "a/b": 1, "m~n": 8, " ": 7 };
    const at = (pointer: string) => valueAt(document, pointer);
    expect([at(""), at("/foo"), at("/foo/0"), at("/"), at("/a~1b"), at("/m~0n"), at("/ ")]).toEqual([
      ...[document, ["bar", "baz"], "bar", 0, 1, 8, 7],
    ]);
    expect([at("/foo/2"), at("/constructor"), at("/foo/length/x"), at("/none/at/all")]).toEqual([
      ...[undefined, undefined, undefined, undefined],
    ]);
  });
});
