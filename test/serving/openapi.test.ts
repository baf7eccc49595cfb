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
import { answerSchemas, type Document } from "../helpers/openapi.ts";
import { capOf, cardOf, listingDraft, PublicRecord, rowOf } from "../helpers/public-record.ts";
import { checkPath, servingOver, type TestServing } from "../helpers/serving.ts";

const SUM = { url: "https://seller.example/sum", defects: [{ defect: "no_402", says: "free" }] };
let record: PublicRecord;
let serving: TestServing;
let document: Document;
beforeAll(async () => {
  record = await PublicRecord.open();
  await record.publish([listingDraft(SUM)], record.grades([cardOf(SUM)], "B."));
  await record.publish([emptyDayDraft(record.keys.cards)]);
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
    expect(feed.parameters).toMatchObject([{ name: "cursor", in: "query", required: false }]);
    expect(Object.keys(feed.responses["200"]!.content!)).toEqual(["application/x-ndjson"]);
    const check = document.paths["/v1/check"]!.get!;
    expect(check.parameters!.map(({ name, required }) => [name, required])).toEqual([
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
        // Where nothing is sold, nothing is priced.
        const status = row.tag === "buy" ? 503 : (row.status ?? 200);
        expect([path, response.status]).toEqual([path, status]);
        expect(response.headers.get("cache-control")).toBe(row.cache ?? "no-store");
        const values = row.type.includes("ndjson") ? text.trim().split("\n") : [text];
        const type = response.headers.get("content-type")!;
        for (const value of values) expect(valid(templateOf(row), "get", response.status, type, value)).toEqual([]);
      }
    });
  },
);

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
