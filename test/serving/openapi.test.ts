import { readFileSync } from "node:fs";
import { join } from "node:path";
import { createConfig, lintFromString } from "@redocly/openapi-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { openapiOf } from "../../serving/discovery/openapi.ts";
import type { Operation } from "../../serving/operations/operation.ts";
import { isDescribed, maxAgeOf, methodOf, templateOf } from "../../serving/operations/operation.ts";
import { OPERATIONS } from "../../serving/operations.ts";
import { EMPTY_DAY_ID, emptyDayDraft } from "../helpers/archive-draft.ts";
import { answerSchemas, type Document, type Json, undescribed, validators } from "../helpers/openapi.ts";
import { capOf, cardOf, listingDraft, PublicRecord, rowOf } from "../helpers/public-record.ts";
import { checkPath, servingOver, type TestServing } from "../helpers/serving.ts";

const SUM = { url: "https://seller.example/sum", defects: [{ defect: "no_402", says: "free" }] };
let record: PublicRecord;
let serving: TestServing;
let document: Document;
beforeAll(async () => {
  record = await PublicRecord.open();
  await record.publish([listingDraft(SUM)], record.grades([cardOf(SUM)], "B."));
  await record.publish([emptyDayDraft(record.keys.cards), { kind: "receipt", sha256: "00".repeat(32) }]);
  await record.live([rowOf(SUM)]);
  serving = await servingOver(record);
  document = (await (await serving.get("/openapi.json")).json()) as Document;
});
afterAll(() => record.close());

const described = OPERATIONS.filter(isDescribed);

describe("/openapi.json", () => {
  test("an outside linter finds nothing to say, not even a warning", async () => {
    const config = await createConfig({ extends: ["recommended"] });
    const problems = await lintFromString({ source: JSON.stringify(document), config });
    const said = problems.map(({ severity, ruleId, message }) => `${severity} ${ruleId}: ${message}`);
    expect(said).toEqual([]);
    const broken = { ...document, paths: { "/x": { get: { responses: {} } } } };
    const found = await lintFromString({ source: JSON.stringify(broken), config });
    expect(found.map(({ severity }) => severity)).toContain("error");
  });

  test("it names exactly the rows that have an answer, each with what the row says", () => {
    const named = Object.entries(document.paths).flatMap(([path, methods]) =>
      Object.entries(methods).map(([method, { operationId }]) => [operationId, method.toUpperCase(), path]),
    );
    const rows = described.map((row) => [row.id, methodOf(row), templateOf(row)]);
    expect(named.sort()).toEqual(rows.sort());
    const feed = document.paths["/v1/trust/feed"]!.get!;
    expect(feed.parameters).toMatchObject([
      { name: "cursor", in: "query", required: false },
      { $ref: "#/components/parameters/If-None-Match" },
      { $ref: "#/components/parameters/Accept-Encoding" },
    ]);
    // A text to a client, whose lines have a schema of their own.
    expect(feed.responses["200"]!.content).toEqual({
      "application/x-ndjson": {
        schema: {
          type: "string",
          contentMediaType: "application/x-ndjson",
          contentSchema: { $ref: "#/components/schemas/Grade" },
        },
      },
    });
    const check = document.paths["/v1/check"]!.get!;
    const own = check.parameters!.filter((one) => "name" in one);
    expect(own.map(({ name, required }) => [name, required])).toEqual([
      ...[["url", true]],
      ...[["method", false]],
      ...[["pay_to", false]],
    ]);
    expect(check.responses["200"]!.headers).toHaveProperty("RateLimit");
  });

  test("the same bytes from another process of the same address, under one etag; another address is another document", async () => {
    const first = await serving.get("/openapi.json");
    const text = await first.text();
    const other = await servingOver(record);
    expect(await (await other.get("/openapi.json")).text()).toBe(text);
    const again = await serving.get("/openapi.json", { headers: { "if-none-match": first.headers.get("etag")! } });
    expect([again.status, first.headers.get("access-control-allow-origin")]).toEqual([304, "*"]);
    const moved = await servingOver(record, { baseUrl: "https://other.test" });
    expect(((await (await moved.get("/openapi.json")).json()) as Document).servers).toEqual([
      { url: "https://other.test" },
    ]);
  });

  test("a row with a price says what it costs and that it answers 402; one with a token says so", () => {
    const rows: Operation[] = [
      { ...described[0]!, id: "a", path: "/a", price: price("fixed"), bearer: true },
      { ...described[0]!, id: "b", path: "/b", price: price("dynamic") },
    ];
    const made = openapiOf(rows, serviceOf()) as unknown as Document;
    expect(made.paths["/a"]!.get).toMatchObject({
      "x-payment-info": { price: { mode: "fixed", currency: "USD", amount: "0.02" }, protocols: [{ x402: {} }] },
      security: [{ watcherToken: [] }],
      responses: { "402": {} },
    });
    expect(made.paths["/b"]!.get).toMatchObject({ "x-payment-info": { price: { mode: "dynamic" } }, security: [] });
    expect(document.paths["/v1/check"]!.get).not.toHaveProperty("x-payment-info");
  });

  test("no schema has a name that a generator gives to something else", () => {
    const names = Object.keys(document.components.schemas);
    const ids = described.map(({ id }) => id.replace(/^[a-z]/, (first) => first.toUpperCase()));
    const made = ["Response", "Params", "Body", "JSONBody", "JSONRequestBody"];
    const taken = new Set(ids.flatMap((id) => made.map((end) => `${id}${end}`)));
    // Bodies of operations are called after them, and are what the generator would make.
    const own = new Set(
      described.filter(({ body }) => body).map(({ id }) => `${id}Body`.replace(/^[a-z]/, (c) => c.toUpperCase())),
    );
    expect(names.filter((name) => taken.has(name) && !own.has(name))).toEqual([]);
    const values = [...JSON.stringify(document).matchAll(/"enum":(\[[^\]]*\])/g)].flatMap(([, list]) =>
      JSON.parse(list!),
    );
    const constants = new Set(values.map((value: string) => value.toLowerCase().replaceAll(/[^a-z0-9]/g, "")));
    expect(values.length).toBeGreaterThan(50);
    expect(names.filter((name) => constants.has(name.toLowerCase()))).toEqual([]);
  });

  test("no default is an object, no schema says nothing where something is known, and `page` is an integer", () => {
    const text = JSON.stringify(document);
    expect(text).not.toMatch(/"default":[{[]|"(?:additionalProperties|propertyNames)":\{\}|"propertyNames"/);
    expect(document.paths["/v1/archive"]!.get!.parameters).toContainEqual(
      expect.objectContaining({ name: "page", schema: expect.objectContaining({ type: "integer", minimum: 1 }) }),
    );
  });

  test("what a purchase takes and gives is there", () => {
    for (const [path, method] of [
      ["/v1/via/{capability_id}", "get"],
      ["/v1/via/{capability_id}", "post"],
      ["/v1/route/execute", "post"],
    ] as const) {
      const { parameters, responses } = document.paths[path]![method]!;
      const taken = parameters!.flatMap((one) => ("$ref" in one ? [one.$ref.split("/").at(-1)] : []));
      const expects = path.startsWith("/v1/via/") ? ["Touchstone-Expect"] : [];
      expect(taken).toEqual(["PAYMENT-SIGNATURE", "X-PAYMENT", "Touchstone-Publish", ...expects]);
      expect(Object.keys(responses["402"]!.headers!)).toContain("PAYMENT-REQUIRED");
      expect(Object.keys(responses["200"]!.headers!)).toContain("Touchstone-Salt-Request");
      expect(responses["2XX"]).toEqual(responses["200"]);
      for (const status of ["200", "202", "402"]) expect(responses[status]!.headers).toHaveProperty("RateLimit");
      expect(Object.keys(responses["202"]!.headers!)).toEqual(expect.arrayContaining(["Location", "Retry-After"]));
    }
    const { description: _, ...publish } = document.components.parameters["Touchstone-Publish"] as unknown as Json;
    expect(publish).toEqual({
      ...{ name: "Touchstone-Publish", in: "header", required: false },
      schema: { type: "string", enum: ["true", "false"] },
    });
  });

  test("two schemas under one name are refused", () => {
    const rows = [
      { ...described[0]!, id: "same", path: "/a", answer: z.object({ a: z.string() }) },
      { ...described[0]!, id: "same", path: "/b", answer: z.object({ b: z.string() }) },
    ];
    expect(() => openapiOf(rows, serviceOf())).toThrow("two schemas are called SameAnswer");
  });
});

const price = (mode: "fixed" | "dynamic") => ({ mode, amount: "0.02", accepts: () => [], since: "2026-11-23" });
/** Of a service the description asks for its address and limits alone. */
const serviceOf = () => ({ baseUrl: "https://touchstone.test" }) as Parameters<typeof openapiOf>[1];

/** One address of each described GET. */
const ADDRESS: Record<string, string[]> = {
  check: [
    checkPath({ url: SUM.url, pay_to: "0x1111111111111111111111111111111111111111" }),
    checkPath({ url: "https://seen-by-nobody.example/x" }),
    checkPath({ url: "http://localhost/x" }),
  ],
  trust: [`/v1/trust/${capOf(SUM)}`],
  failures: [`/v1/trust/${capOf(SUM)}/failures`],
  cardBundle: [`/v1/trust/${capOf(SUM)}/bundle`],
  cardProof: [`/v1/trust/${capOf(SUM)}/proof`],
  receiptProof: [`/v1/web/evidence/receipts/${"00".repeat(32)}`],
  archiveManifest: [`/v1/archive/${EMPTY_DAY_ID}`],
  viaGet: [`/v1/via/${capOf(SUM)}`],
  order: [`/v1/orders/ord_${"0".repeat(26)}`],
  buyerOrders: [`/v1/buyers/0x${"1".repeat(40)}/orders`],
  watcher: [`/v1/watchers/wat_${"0".repeat(26)}`],
};

describe.each(described.filter((row) => row.method === undefined && !row.bearer).map((row) => [row.id, row] as const))(
  "%s: the description is true of the answer",
  (id, row) => {
    test("status, type, caching and body are as described", async () => {
      const valid = answerSchemas(document);
      for (const path of ADDRESS[id] ?? [row.path]) {
        const response = await serving.get(path);
        const text = await response.text();
        expect([path, undescribed(document, templateOf(row), "get", response)]).toEqual([path, []]);
        // Where nothing is sold, nothing is priced.
        const status = row.tag === "buy" ? 503 : (row.status ?? 200);
        expect([path, response.status]).toEqual([path, status]);
        expect(response.headers.get("cache-control")).toBe(row.cache ?? "no-store");
        const type = response.headers.get("content-type")!;
        expect(valid(templateOf(row), "get", response.status, type, text)).toEqual([]);
      }
    });
  },
);

/** Bodies that are refused because of themselves, by operation. */
const REFUSED: Record<string, unknown[]> = {
  check: [{ url: "example.com/sum" }, { url: "ftp://seller.example/x" }, { url: "cap_0123456789" }],
  archive: [{ page: 0 }, { page: 1.5 }, { page: "one" }, { subject: "cards" }],
  buyerOrders: [{ limit: 101 }, { cursor: "ord_1" }],
  trustFeed: [{ cursor: "1" }],
  evaluate: [{ status: 200, body: "a", base64: "YQ==" }, { status: 99 }, { status: 200, base64: "?" }],
  exposure: [{}, { dependencies: ["seller.example/sum"] }, { dependencies: [{ url: SUM.url, pay_to: "0x1" }] }],
  validateListing: [{ url: "seller.example" }, { url: SUM.url, method: "PUT" }],
  watcherCreate: [
    { url: "mailto:a@b.example", watch: [SUM.url] },
    { url: "https://a.example/x", watch: ["seller.example"] },
  ],
  extract: [{}, { url: SUM.url, bytes: "YQ==" }, { url: "seller.example/a.pdf" }],
  companies: [
    ...[{ country: "DE" }, { name: "a", register_authority: "RA000001" }, { names: ["a"], name: "a" }, { names: [] }],
    ...[{ names: ["a", "a"] }, { names: Array.from({ length: 51 }, (_, i) => `n${i}`) }],
  ],
  brief: [{ question: "who?", urls: [SUM.url, SUM.url] }],
  routeExecute: [
    { max_total: "1.00" },
    { max_total: "1.00", need: "sum", capability_ids: [`cap_${"0".repeat(26)}`] },
    { max_total: "1.00", capability_ids: [`cap_${"0".repeat(26)}`, `cap_${"0".repeat(26)}`] },
  ],
};

/** Of each, one that is not. */
const TAKEN: Record<string, unknown> = {
  check: { url: SUM.url },
  archive: { page: 2 },
  buyerOrders: { limit: 100 },
  trustFeed: { cursor: `${"0".repeat(16)}:7` },
  evaluate: { status: 200, base64: "YQ==" },
  exposure: { dependencies: [SUM.url, { url: capOf(SUM) }] },
  validateListing: { url: SUM.url },
  watcherCreate: { url: "https://a.example/x", watch: [capOf(SUM)] },
  extract: { bytes: "YQ==" },
  companies: { name: "a" },
  brief: { question: "who?", urls: [SUM.url] },
  routeExecute: { max_total: "1.00", need: "sum" },
};

describe("what the server refuses, the schema refuses", () => {
  const rowOfId = (id: string) => described.find((row) => row.id === id || row.path.includes(id))!;
  /** The whole query, or the body, as the document describes it. */
  const describedOf = (row: (typeof described)[number]): Json => {
    const { parameters = [], requestBody } = document.paths[templateOf(row)]![methodOf(row).toLowerCase()]!;
    if (requestBody) return requestBody.content["application/json"]!.schema;
    const query = parameters.flatMap((one) => ("name" in one && one.in === "query" ? [one] : []));
    const required = query.flatMap(({ name, required }) => (required ? [name] : []));
    return {
      type: "object",
      required,
      properties: Object.fromEntries(query.map(({ name, schema }) => [name, schema])),
    };
  };
  const asSent = (row: (typeof described)[number], value: unknown): unknown =>
    row.query ? Object.fromEntries(Object.entries(value as object).map(([name, one]) => [name, String(one)])) : value;

  test.each(Object.keys(REFUSED))("%s", (id) => {
    const row = rowOfId(id);
    const [server, validate] = [(row.query ?? row.body)!, validators(document)(describedOf(row))];
    for (const value of REFUSED[id]!) {
      const both = [server.safeParse(asSent(row, value)).success, validate(value)];
      expect([value, both]).toEqual([value, [false, false]]);
    }
    const good = TAKEN[id]!;
    expect([good, server.safeParse(asSent(row, good)).success, validate(good)]).toEqual([good, true, true]);
  });
});

test("of all bodies only that of a stop may be left out", () => {
  const optional = Object.values(document.paths).flatMap((methods) =>
    Object.values(methods).flatMap(({ operationId, requestBody }) =>
      requestBody?.required === false ? [operationId] : [],
    ),
  );
  expect(optional).toEqual(["watcherStop"]);
});

test("whole numbers of a query have their bounds and what stands in for them", () => {
  const schemaOf = (path: string, parameter: string) =>
    document.paths[path]!.get!.parameters!.flatMap((one) =>
      "name" in one && one.name === parameter ? [one.schema] : [],
    );
  expect(schemaOf("/v1/archive", "page")).toEqual([{ type: "integer", minimum: 1, default: 1 }]);
  const limit = { type: "integer", minimum: 1, maximum: 100 };
  expect(schemaOf("/v1/trust/{id}/failures", "limit")).toEqual([{ ...limit, default: 20 }]);
  expect(schemaOf("/v1/buyers/{address}/orders", "limit")).toEqual([{ ...limit, default: 100 }]);
});

test("a value that the description does not allow is found", () => {
  const valid = answerSchemas(document);
  expect(valid("/v1/check", "get", 200, "application/json", '{"band":"E"}')).not.toEqual([]);
  expect(valid("/v1/check", "get", 418, "application/json", "{}")).toEqual(["418 is not described"]);
  expect(valid("/v1/check", "get", 200, "text/html", "{}")).toEqual(["text/html is not described"]);
});

describe("the API's page", () => {
  const page = readFileSync(join(import.meta.dirname, "../../docs/api.md"), "utf8");
  const table = page.split("\n").filter((line) => /^\| (?:POST )?`\//.test(line));
  /** `METHOD /path` of each row, and how long it is kept. */
  const rows = new Map(
    table.map((line) => {
      const [, first = "", , kept = ""] = line.split("|").map((cell) => cell.trim());
      const [, post, path] = /^(POST )?`([^`]+)`$/.exec(first) ?? [];
      return [`${post ? "POST" : "GET"} ${path ?? first}`, kept] as const;
    }),
  );

  test.each(described.map((row) => [`${methodOf(row)} ${templateOf(row)}`, row] as const))(
    "%s is there",
    (name, row) => {
      expect(rows.has(name)).toBe(true);
      const age = maxAgeOf(row.cache);
      const kept =
        row.cache === undefined || row.cache === "no-store"
          ? "never"
          : age === 0
            ? "revalidate"
            : age === 60
              ? "one minute"
              : age === 300
                ? "five minutes"
                : "a year";
      expect([name, rows.get(name)]).toEqual([name, kept]);
    },
  );

  test("it names no operation of the API that is none", () => {
    const known = new Set(described.map((row) => `${methodOf(row)} ${templateOf(row)}`));
    const unknown = [...rows.keys()].filter((name) => / \/(?:v1|openapi|\.well-known)/.test(name) && !known.has(name));
    expect(unknown).toEqual([]);
  });
});
