import { describe, expect, test } from "vitest";
import type { EgressResult } from "../../../../infra/egress/egress.ts";
import { chooseInput, makeRequest } from "../../../../pipelines/1-observe/probe/request.ts";
import { sampleValue } from "../../../../pipelines/1-observe/probe/synthetic.ts";
import { type Expectation, evaluate, isErrorBody } from "../../../../pipelines/1-observe/reading/checks.ts";
import { OutOfTime, runWithCpuLimit, runWithLimit, Schemas } from "../../../../pipelines/1-observe/reading/schema.ts";
import type { KnownAnswer } from "../../../../pipelines/record/classes.ts";
import { fc } from "../../../helpers/histories.ts";
import { answer, OUTPUT_SCHEMA, timeout, transport } from "../world.ts";

const right = 1543;
const question = { class: "arithmetic", variant: "sum", answer: "/sum", truth: right };
const known: KnownAnswer = { ...question, input: { query: { a: "772", b: "771" } } };
const want = (change: Partial<Expectation> = {}): Expectation => ({
  class: "arithmetic",
  known,
  schema: OUTPUT_SCHEMA,
  mime: "application/json",
  ...change,
});
const plain: Expectation = { class: "any", known: null, schema: undefined, mime: null };
const html = { "content-type": "text/html" };
const CAPTCHA_PAGE = '<script src="https://pages.example/recaptcha/api.js"></script><p>A page that somebody paid for.';
const cut = (body: string): EgressResult => ({
  outcome: "cut",
  says: "broke off",
  status: 200,
  body: Buffer.from(body),
  totalMs: 9,
  sent: true,
});
const large: EgressResult = {
  outcome: "too_large",
  says: "past the cap",
  status: 200,
  body: Buffer.alloc(1024 * 1024, 97),
  totalMs: 9,
  sent: true,
};

describe("what came back on a paid connection", () => {
  test.each<[string, EgressResult, Expectation, Record<string, unknown>]>([
    [
      "the right answer",
      answer(200, { sum: right }),
      want(),
      { delivered: true, delivery: 1, outcome: 1, schema_ok: true, latency_ms: 20 },
    ],
    [
      "a wrong answer",
      answer(200, { sum: right + 1 }),
      want(),
      { delivered: true, delivery: 1, outcome: 0, schema_ok: true },
    ],
    [
      "an answer of no class",
      answer(200, { total: right }),
      want(),
      { delivered: true, delivery: 0, outcome: 0, schema_ok: false },
    ],
    [
      "no JSON where JSON is declared",
      answer(200, "sum is 3"),
      want(),
      { delivered: true, delivery: 0, outcome: 0, schema_ok: false },
    ],
    [
      "an error in JSON",
      answer(200, { error: "no" }),
      want({ schema: undefined, known: null, class: "any" }),
      { delivered: true, delivery: 0, outcome: null, schema_ok: null },
    ],
    ["an answer beside an empty error", answer(200, { error: null, sum: right }), want(), { delivery: 1, outcome: 1 }],
    ["html where JSON is declared", answer(200, "<p>hello", html), want(), { delivered: true, delivery: 0 }],
    [
      "html where nothing is declared",
      answer(200, "<p>hello", html),
      plain,
      { delivered: true, delivery: 1, outcome: null, schema_ok: null },
    ],
    ["text where nothing is declared", answer(200, "hello", { "content-type": "text/plain" }), plain, { delivery: 1 }],
    ["broken JSON that calls itself JSON", answer(200, "{"), plain, { delivered: true, delivery: 0 }],
    ["status 500 with a page", answer(500, { error: "oops" }), want(), { delivered: true, delivery: 0, outcome: 0 }],
    [
      "an empty body",
      answer(200, ""),
      want(),
      { delivered: false, delivery: null, outcome: 0, schema_ok: null, response_sha256: null },
    ],
    ["204", answer(204, ""), plain, { delivered: false, delivery: null, outcome: null }],
    [
      "a 402 again",
      answer(402, { error: "settle failed" }),
      want(),
      { delivered: false, delivery: null, outcome: 0, wall: false },
    ],
    ["a wall", answer(403, "blocked"), want(), { delivered: false, wall: true, outcome: 0 }],
    [
      "a page with the script of a captcha",
      answer(200, CAPTCHA_PAGE, html),
      plain,
      { delivered: true, delivery: 0, outcome: null, wall: true },
    ],
    [
      "that page where a known answer was asked",
      answer(200, CAPTCHA_PAGE, html),
      want(),
      { delivered: true, delivery: 0, outcome: 0 },
    ],
    ["that page with a status of bot checks", answer(503, CAPTCHA_PAGE, html), plain, { delivered: false, wall: true }],
    [
      "that page with the header of a bot check",
      answer(200, CAPTCHA_PAGE, { ...html, "cf-mitigated": "challenge" }),
      plain,
      { delivered: false, wall: true },
    ],
    [
      "silence",
      timeout(),
      want(),
      { delivered: false, delivery: null, outcome: 0, latency_ms: null, response_bytes: 0 },
    ],
    ["a closed port", transport("refused"), plain, { delivered: false, outcome: null }],
    ["an answer that broke off", cut('{"sum":'), want(), { delivered: false, response_bytes: 7 }],
    ["a hundred megabytes", large, want(), { delivered: true, delivery: 0, outcome: 0, schema_ok: null }],
  ])("%s", (_name, result, expected, verdict) => {
    expect(evaluate(result, expected, new Schemas())).toMatchObject(verdict);
  });

  test("shown again, a broken-off answer is not nothing; silence still is", () => {
    expect(evaluate(cut("{"), want(), new Schemas(), true)).toMatchObject({ delivered: true, delivery: 0, outcome: 0 });
    expect(evaluate(cut(""), want(), new Schemas(), true)).toMatchObject({ delivered: false });
    expect(evaluate(timeout(), want(), new Schemas(), true)).toMatchObject({ delivered: false });
  });

  test("error bodies", () => {
    for (const body of [
      { error: "x" },
      { error: { code: 1 }, status: 400 },
      { success: false, message: "m", error: "x" },
      { errors: ["x"] },
    ]) {
      expect(isErrorBody(body)).toBe(true);
    }
    for (const body of [
      { error: "x", data: [] },
      { error: false, sum: 1 },
      { errors: [] },
      {},
      [],
      "error",
      null,
      { message: "hi" },
    ]) {
      expect(isErrorBody(body)).toBe(false);
    }
  });
});

describe("strangers' schemas", () => {
  const schemas = new Schemas();
  const nested = (levels: number): unknown => {
    const defs: Record<string, unknown> = { d0: { type: "string" } };
    for (let i = 1; i <= levels; i++)
      defs[`d${i}`] = { anyOf: [{ $ref: `#/$defs/d${i - 1}` }, { $ref: `#/$defs/d${i - 1}` }] };
    return { $defs: defs, $ref: `#/$defs/d${levels}` };
  };

  test.each<[string, unknown, unknown, boolean | null]>([
    [
      "draft 7",
      { $schema: "http://json-schema.org/draft-07/schema#", type: "object", required: ["a"] },
      { a: 1 },
      true,
    ],
    [
      "2020-12",
      { $schema: "https://json-schema.org/draft/2020-12/schema", prefixItems: [{ type: "string" }] },
      [1],
      false,
    ],
    ["a draft nobody knows", { $schema: "urn:x", type: "number" }, 1, true],
    ["formats", { type: "string", format: "date-time" }, "yesterday", false],
    [
      "a reference within",
      { $defs: { n: { type: "number" } }, properties: { a: { $ref: "#/$defs/n" } } },
      { a: "x" },
      false,
    ],
    ["a reference outside", { $ref: "https://evil.example/schema.json" }, 1, null],
    ["a reference to a file", { properties: { a: { $ref: "file:///etc/passwd" } } }, { a: 1 }, null],
    [
      "a member called $ref",
      { properties: { $ref: { type: "number" }, id: { type: "string" } } },
      { $ref: "x" },
      false,
    ],
    ["data called id", { const: { id: "x", $schema: "y" } }, { id: "x", $schema: "y" }, true],
    ["an unknown type", { type: "json" }, 1, null],
    ["an id that another seller took", { $id: "https://a.example/s", type: "number" }, 1, true],
    ["the same id again", { $id: "https://a.example/s", type: "string" }, 1, false],
    ["true", true, 1, null],
    ["too many nodes", { enum: [1], anyOf: Array.from({ length: 6_000 }, () => ({ type: "number" })) }, 1, null],
  ])("%s", (_name, schema, value, ok) => {
    expect(schemas.check(schema, value)?.ok ?? null).toBe(ok);
  });

  test.each<[string, unknown, unknown]>([
    ["a pattern that backtracks for ever", { type: "string", pattern: "^(a+)+$" }, `${"a".repeat(40)}b`],
    ["a schema that doubles at every level", nested(40), 7],
    ["a schema that is itself", { anyOf: [{ $ref: "#" }, { $ref: "#" }] }, 1],
  ])("%s ends in time, and then counts as none", (_name, schema, value) => {
    const began = performance.now();
    expect(schemas.check(schema, value)).toBeNull();
    // Without a limit none of them would end at all.
    expect(performance.now() - began).toBeLessThan(100_000);
    const again = Array.from({ length: 50 }, () => {
      const from = performance.now();
      expect(schemas.check(schema, value)).toBeNull();
      return performance.now() - from;
    });
    // The best of fifty: a shared machine may stall any of them.
    expect(Math.min(...again)).toBeLessThan(50);
  });

  test("work that does not end is cut off, work that throws throws", () => {
    expect(() =>
      runWithLimit(20, () => {
        for (;;);
      }),
    ).toThrow(OutOfTime);
    expect(() =>
      runWithLimit(20_000, () => {
        throw new TypeError("own");
      }),
    ).toThrow(TypeError);
    expect(runWithLimit(20_000, () => 7)).toBe(7);
  });

  test("a machine that stalls is no reason to cut work off, work that uses its time is", () => {
    const still = new Int32Array(new SharedArrayBuffer(4));
    let tries = 0;
    // Waits without using a processor, as where others have it: past the first limits, and then not.
    const stalled = () => Atomics.wait(still, 0, 0, ++tries < 3 ? 4_000 : 0);
    expect(runWithCpuLimit(200, stalled)).toBe("timed-out");
    expect(tries).toBeGreaterThanOrEqual(3);
    let loops = 0;
    expect(() =>
      runWithCpuLimit(50, () => {
        for (loops++; ; );
      }),
    ).toThrow(OutOfTime);
    expect(loops).toBeGreaterThan(1);
    expect(() =>
      runWithCpuLimit(20, () => {
        throw new TypeError("own");
      }),
    ).toThrow(TypeError);
  });
});

describe("an answer to a question of ours", () => {
  const schemas = new Schemas();
  const held = (body: unknown, change: Partial<KnownAnswer>, headers: Record<string, string> = {}) =>
    evaluate(answer(200, body, headers), { ...plain, class: "arithmetic", known: { ...known, ...change } }, schemas);

  test("is looked for where the mapping says, and nowhere else", () => {
    expect(held({ data: [{ n: right }] }, { answer: "/data/0/n" })).toMatchObject({ delivery: 1, outcome: 1 });
    expect(held({ data: [{ n: right }] }, { answer: "/sum" })).toMatchObject({ delivery: 0, outcome: 0 });
    expect(held({ a: right }, { answer: "/__proto__/a" })).toMatchObject({ delivery: 0, outcome: 0 });
    expect(held([right], { answer: "" })).toMatchObject({ delivery: 0, outcome: 0 });
    expect(held(String(right), { answer: "" })).toMatchObject({ delivery: 1, outcome: 1 });
  });

  test("is the whole of it as text, whatever its form, where no place is named", () => {
    const page = { class: "planted-page", variant: "read", answer: null, truth: ["amber bridge", "1234"] };
    const read = (body: unknown, headers = {}) =>
      evaluate(answer(200, body, headers), { ...plain, known: { ...page, input: {} }, class: page.class }, schemas);
    expect(read("# Amber bridge\n\n| pebble | 1234 |", { "content-type": "text/markdown" })).toMatchObject({
      ...{ delivered: true, delivery: 1, outcome: 1 },
    });
    expect(read({ html: "<h1>Amber\u00a0bridge</h1>" })).toMatchObject({ delivery: 1, outcome: 0.5 });
    expect(read("<p>12345 1 234</p>", html)).toMatchObject({ delivery: 1, outcome: 0 });
    expect(read({ error: "amber bridge 1234" })).toMatchObject({ delivery: 0, outcome: 0 });
  });

  test("that names a question nobody knows any more is worth nothing as truth, and is no fault of the delivery", () => {
    expect(held({ sum: right }, { class: "gone", variant: "sum" })).toMatchObject({ delivery: 1, outcome: 0 });
    expect(held({ sum: right }, { variant: "constructor" })).toMatchObject({ delivery: 1, outcome: 0 });
  });
});

describe("inputs", () => {
  const own = (change: object) => ({ sellerOwn: [{ example: null, ...change }], others: [] });

  test("a known answer, then the seller's example, then made ones; a catalogue's example is a made one", () => {
    const example = { query: { a: "1", b: "2" } };
    expect(chooseInput(own({ example }), false, known)).toEqual({ kind: "known_answer", example: known.input, known });
    expect(chooseInput(own({ example }), false, null)).toMatchObject({ kind: "example", example });
    const lent = { sellerOwn: [], others: [{ example }] };
    expect(chooseInput(lent, false, null)).toMatchObject({ kind: "synthetic", example, known: null });
    expect(chooseInput(own({}), false, null)).toMatchObject({ kind: "synthetic", example: { query: {} } });
    const schema = {
      type: "object",
      properties: { q: { type: "string" }, n: { type: "integer", minimum: 5 } },
      required: ["n"],
    };
    expect(chooseInput(own({ input_schema: schema }), true, null).example).toEqual({ body: { n: 5 } });
    expect(chooseInput(own({ input_schema: schema }), false, null).example).toEqual({ query: { n: "5" } });
  });

  test("requests: query, body, templates, and a digest that knows them apart", () => {
    const get = makeRequest("https://s.example/a?z=1", "GET", { query: { q: "x y" } }, null);
    expect(get).toMatchObject({ url: "https://s.example/a?z=1&q=x+y", headers: { accept: "application/json" } });
    const post = makeRequest("https://s.example/a", "POST", { body: { q: 1 } }, "image/png");
    expect(post.headers).toEqual({ accept: "image/png, application/json;q=0.9", "content-type": "application/json" });
    expect(Buffer.from(post.body ?? []).toString()).toBe('{"q":1}');
    const fill = (url: string, path = {}) => makeRequest(url, "GET", { path }, null).url;
    expect(fill("https://s.example/t/:id/x", { id: "a/b" })).toBe("https://s.example/t/a%2Fb/x");
    expect(fill("https://s.example/t/{id}.json")).toBe("https://s.example/t/1.json");
    expect(fill("https://s.example/videos:lookup/*")).toBe("https://s.example/videos:lookup/1");
    expect(fill("https://s.example/t?y={year}&z=2")).toBe("https://s.example/t?y=1&z=2");
    expect(makeRequest("https://s.example/a", "GET", { query: {} }, "text/\r\nx: y").headers.accept).toBe(
      "application/json",
    );
    expect(get.sha256).not.toBe(makeRequest("https://s.example/a?z=1", "GET", {}, null).sha256);
  });

  test("a made value fits the usual schemas, and any schema gives one in bounded time", () => {
    const schema = {
      type: "object",
      properties: {
        a: { type: "string", minLength: 9 },
        b: { type: "array", items: { type: "integer" } },
        c: { enum: ["x"] },
        d: { type: "string", format: "uuid" },
      },
      required: ["a", "b", "c", "d"],
    };
    expect(new Schemas().check(schema, sampleValue(schema))).toEqual({ ok: true });
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        expect(() => JSON.stringify(sampleValue(value))).not.toThrow();
      }),
      { numRuns: 60 },
    );
  });
});
