import { describe, expect, test } from "vitest";
import { importFile, importUrl } from "../../../../commands/listings.ts";
import { FixedClock } from "../../../../infra/clock.ts";
import { createMetrics } from "../../../../infra/telemetry.ts";
import {
  type ParsedListing,
  readBytes,
  readText,
  readYaml,
} from "../../../../pipelines/1-observe/listings/documents.ts";
import { Intake, splitMethods } from "../../../../pipelines/1-observe/listings/intake.ts";
import { readSellerDocuments } from "../../../../pipelines/1-observe/listings/sources.ts";
import { MAX_ROWS } from "../../../../pipelines/1-observe/listings/tables.ts";
import { Recorder } from "../../../../pipelines/1-observe/recorder.ts";
import { BODIES } from "../../../../pipelines/record/bodies.ts";
import { fc } from "../../../helpers/histories.ts";
import { leastProcessorMs } from "../../../helpers/processor.ts";
import { claimOf } from "../readings.ts";
import {
  ASSET,
  answer,
  DAY,
  entry,
  FakeEgress,
  FakeLog,
  FakeRail,
  NETWORK,
  PAY_TO,
  SELLER,
  timeout,
} from "../world.ts";

const rail = new FakeRail();
const clock = new FixedClock(`${DAY}T00:00:00.000Z`);

function world() {
  const log = new FakeLog();
  const egress = new FakeEgress();
  const metrics = createMetrics();
  const recorder = new Recorder({ log, producer: "test", metrics });
  return { log, egress, intake: new Intake({ egress, rail, recorder, metrics }) };
}

/** As an operator's own file is read: YAML too. */
function readFile(text: string): ParsedListing {
  const listed = readText(text, Number.POSITIVE_INFINITY);
  return listed.form === "none" ? (readYaml(text) ?? listed) : listed;
}

/** `METHOD url` of every item that can be listed. */
function places(text: string): string[] {
  const read = readFile(text);
  return read.items.flatMap(splitMethods).flatMap((item) => {
    const taken = claimOf(item, { name: "test", ...(read.base ? { base: read.base } : {}) }, rail);
    return "claim" in taken ? [`${taken.claim.body.claims.method ?? "-"} ${taken.claim.body.normalised_url}`] : [];
  });
}

const OPENAPI = `openapi: 3.1.0
info: {title: x, version: "1"}
servers:
  - url: https://{region}.s.example/api/
    variables: {region: {default: eu}}
paths:
  /free:
    get: {responses: {"200": {description: ok}}}
  /sum/{id}:
    parameters:
      - {name: id, in: path, schema: {type: string, example: "7"}}
    post:
      summary: adds
      x-payment-info: {price: {mode: fixed, currency: USD, amount: "0.01"}}
      requestBody:
        content:
          application/json:
            schema: {$ref: "#/components/schemas/Ask"}
            example: {a: 1}
      responses:
        "200":
          content: {application/json: {schema: {$ref: "#/components/schemas/Sum"}}}
        "402": {description: pay}
  /bare:
    get: {responses: {"402": {description: pay}}}
components:
  schemas:
    Ask: {type: object, properties: {a: {type: number}}, required: [a]}
    Sum: {type: object, properties: {of: {$ref: "#/components/schemas/Ask"}}}
`;

describe("forms are recognised by what is in them", () => {
  test.each<[string, string, string, string[]]>([
    ["JSON list", "list", '[{"url":"https://s.example/a"}]', ["- https://s.example/a"]],
    [
      "a catalogue's page",
      "list",
      '{"items":[{"resource":"https://s.example/a"}],"pagination":{}}',
      ["- https://s.example/a"],
    ],
    [
      "NDJSON",
      "ndjson",
      '{"url":"https://s.example/a"}\r\n{"url":"https://s.example/b"}\n\n',
      ["- https://s.example/a", "- https://s.example/b"],
    ],
    [
      "NDJSON of a dump",
      "ndjson",
      '{"source":{},"row":{"url":"https://s.example/a"}}\n{"row":{"resource":"https://s.example/b"}}',
      ["- https://s.example/a", "- https://s.example/b"],
    ],
    ["CSV", "csv", "\ufeffurl,method,price\nhttps://s.example/a,POST,$0.05\n", ["POST https://s.example/a"]],
    [
      "CSV with semicolons and other names",
      "csv",
      'Resource;Verb;Pay To\n"https://s.example/a;b";get;0x1\n',
      ["GET https://s.example/a;b"],
    ],
    [
      "a list of addresses",
      "lines",
      "# mine\nPOST https://s.example/a\n\nhttps://s.example/b\n",
      ["POST https://s.example/a", "- https://s.example/b"],
    ],
    [
      "OpenAPI as YAML",
      "openapi",
      OPENAPI,
      ["POST https://eu.s.example/api/sum/%7Bid%7D", "GET https://eu.s.example/api/bare"],
    ],
    ["a well-known file as YAML", "list", "version: 1\nresources: [https://s.example/a]\n", ["- https://s.example/a"]],
    [
      "a body of terms",
      "list",
      '{"x402Version":1,"accepts":[{"resource":"https://s.example/a"}]}',
      ["- https://s.example/a"],
    ],
    ["HTML", "none", "<!doctype html><p>no", []],
    ["prose", "none", "Nothing to see here: move on.", []],
    ["nothing", "none", "", []],
    ["OpenAPI without a paid operation", "none", '{"openapi":"3.0.0","paths":{"/a":{"get":{}}}}', []],
  ])("%s", (_name, form, text, want) => {
    expect(readFile(text).form).toBe(form);
    expect(places(text)).toEqual(want);
  });

  test("YAML is read of an operator's own file, and never of what came from an address", () => {
    expect(readFile(OPENAPI).form).toBe("openapi");
    for (const seller of [true, false]) {
      expect(readBytes({ bytes: Buffer.from(OPENAPI), seller })).toMatchObject({ form: "none", items: [] });
    }
  });

  test("an operation says how it is called: schemas with their references put in place, examples by place", () => {
    const [item] = readFile(OPENAPI).items;
    const taken = claimOf(item, { name: "test" }, rail);
    expect("claim" in taken && taken.claim.body.claims).toMatchObject({
      ...{ description: "adds", offers: [], fixed_price: false, input_in: "body", output_mime: "application/json" },
      example: { body: { a: 1 }, path: { id: "7" } },
      input_schema: { type: "object", required: ["a"] },
      output_schema: { properties: { of: { type: "object", properties: { a: { type: "number" } } } } },
      prices_said: [{ said: "fixed" }, { said: "USD" }, { as: "payment/price/amount", said: "0.01" }],
    });
  });

  test("a schema that refers to itself, or out of the document, counts as not advertised", () => {
    const doc = (ref: string) =>
      JSON.stringify({
        openapi: "3.0.1",
        servers: [{ url: "https://s.example" }],
        paths: {
          "/a": {
            post: { "x-payment-info": {}, requestBody: { content: { "application/json": { schema: { $ref: ref } } } } },
          },
        },
        components: {
          schemas: { Loop: { type: "object", properties: { next: { $ref: "#/components/schemas/Loop" } } } },
        },
      });
    for (const ref of ["#/components/schemas/Loop", "https://evil.example/schema.json", "#/missing"]) {
      expect(readText(doc(ref)).items[0]).toMatchObject({ method: "POST" });
      expect(readText(doc(ref)).items[0]).not.toHaveProperty("inputSchema");
    }
  });

  test("a flat row with an amount in atomic units is an offer; with dollars it is only said", () => {
    const row = (change: string) =>
      `url,network,asset,payTo,price,price_unit\nhttps://s.example/a,${NETWORK},${ASSET},${PAY_TO},${change}\n`;
    const claims = (text: string) => {
      const taken = claimOf(readText(text).items[0], { name: "test" }, rail);
      return "claim" in taken ? taken.claim.body.claims : null;
    };
    expect(claims(row("10000,atomic"))).toMatchObject({
      offers: [{ price: "0.010000", pay_to: PAY_TO }],
      fixed_price: true,
    });
    expect(claims(row("0.05,usd"))).toMatchObject({
      ...{ offers: [], fixed_price: false },
      prices_said: [
        { as: "price", said: "0.05" },
        { as: "price_unit", said: "usd" },
      ],
    });
  });

  test("lines and records that cannot be read are rejected one by one", () => {
    const read = readText('{"url":"https://s.example/a"}\n{"url":\n7\n');
    expect(read.items).toHaveLength(1);
    expect(read.rejected).toMatchObject([
      { reason: "not_json", row: '{"url":' },
      { reason: "not_an_item", row: 7 },
    ]);
  });
});

describe("a seller that asks for no paid test calls", () => {
  const refused = (text: string) =>
    readFile(text).items.map((one) => {
      const taken = claimOf(one, { name: "own", ownOrigin: "https://seller.example" }, rail);
      if (!("claim" in taken)) throw new Error(taken.rejected.says);
      const { claims, defects } = taken.claim.body;
      const said = defects.some((each) => each.defect === "paid_calls_refused");
      expect(claims.no_paid_calls === true).toBe(said);
      return said;
    });
  const openApi = (root: string, operation: string) => `{"openapi": "3.1.0", ${root} "paths": {
    "/a": {"get": {${operation} "x-payment-info": {"price": "0.01"}}}, "/b": {"get": {"x-payment-info": {"price": "0.01"}}}},
    "servers": [{"url": "https://seller.example"}]}`;

  test.each<[string, string, boolean[]]>([
    ["nothing is said", '{"resources": ["https://seller.example/a", "https://seller.example/b"]}', [false, false]],
    ["of the whole document", '{"paid_test_calls": false, "resources": ["https://seller.example/a"]}', [true]],
    [
      "of one item",
      '{"resources": [{"url": "https://seller.example/a", "paid_test_calls": false}, {"url": "https://seller.example/b"}]}',
      [true, false],
    ],
    ["anything but false", '{"paid_test_calls": "no", "resources": ["https://seller.example/a"]}', [false]],
    ["of a whole OpenAPI document", openApi('"x-paid-test-calls": false,', ""), [true, true]],
    ["of one operation", openApi("", '"x-paid-test-calls": false,'), [true, false]],
  ])("%s", (_, text, want) => expect(refused(text)).toEqual(want));
});

describe("agent cards", () => {
  const card = (change: Record<string, unknown>) =>
    JSON.stringify({
      name: "a",
      protocolVersion: "0.3.0",
      url: "https://s.example/a2a",
      capabilities: {},
      skills: [{ id: "s" }],
      ...change,
    });
  const paid = { capabilities: { extensions: [{ uri: "https://github.com/x402" }] } };
  test.each<[string, string, string[]]>([
    ["one that says nothing of payment lists nothing", card({}), []],
    ["a paid one is listed at its address", card(paid), ["POST https://s.example/a2a"]],
    [
      "skills with endpoints",
      card({ ...paid, skills: [{ id: "s", endpoint: { method: "GET", path: "/sum" } }] }),
      ["GET https://s.example/sum"],
    ],
    [
      "interfaces that speak x402",
      card({ ...paid, supportedInterfaces: [{ url: "https://t.example/x", protocol: "x402" }] }),
      ["- https://t.example/x"],
    ],
    [
      "A2A 1.0: the address stands in an interface, JSON-RPC first",
      card({
        ...{ ...paid, url: undefined },
        supportedInterfaces: [
          { url: "https://s.example:50051", protocolBinding: "GRPC" },
          { url: "https://s.example/rest/", protocolBinding: "HTTP+JSON" },
          { url: "https://s.example/rpc", protocolBinding: "JSONRPC" },
        ],
      }),
      ["POST https://s.example/rpc"],
    ],
    [
      "A2A 1.0 over REST",
      card({
        ...{ ...paid, url: undefined },
        supportedInterfaces: [{ url: "https://s.example/rest/", protocolBinding: "HTTP+JSON" }],
      }),
      ["POST https://s.example/rest/message:send"],
    ],
    [
      "A2A 1.0 over gRPC alone, which is not called",
      card({ ...paid, url: undefined, supportedInterfaces: [{ url: "https://s.example", protocolBinding: "GRPC" }] }),
      [],
    ],
    ["authentication by x402", card({ authentication: { schemes: ["x402"] } }), ["POST https://s.example/a2a"]],
    ["authentication by another scheme", card({ authentication: { schemes: ["bearer"] } }), []],
    [
      "links that are free beside one that is paid",
      card({
        authentication: { schemes: ["x402"] },
        skills: [
          { id: "free", url: "https://s.example/free", free: true },
          { id: "zero", url: "https://s.example/zero", pricing: { amount: "0.00" } },
          { id: "open", url: "https://s.example/open", authentication: { schemes: ["none"] } },
          {
            id: "some",
            endpoints: [{ url: "https://s.example/health", price: "free" }, { url: "https://s.example/sum" }],
          },
        ],
      }),
      ["- https://s.example/sum"],
    ],
    [
      "a card that is called without anything speaks of x402 and links",
      card({ ...paid, authentication: { type: "none" }, skills: [{ id: "s", url: "https://s.example/catalogue" }] }),
      [],
    ],
    [
      "capabilities with endpoints",
      card({
        payments: { protocol: "x402" },
        skills: undefined,
        capabilities: { find: { endpoint: "https://s.example/f", method: "POST" } },
      }),
      ["POST https://s.example/f"],
    ],
  ])("%s", (_name, text, want) => expect(places(text)).toEqual(want));
});

describe("a seller's own document", () => {
  const seller = (files: Record<string, unknown>) => {
    const { egress } = world();
    egress.sellers.set(SELLER, (asked) => {
      const file = files[new URL(asked.url).pathname];
      return file === undefined ? answer(404, {}) : answer(200, file);
    });
    return { egress, read: readSellerDocuments(egress, SELLER) };
  };
  const openapi = { openapi: "3.0.0", paths: { "/a": { get: { responses: { 402: {} } } } } };
  const card = { name: "a", skills: [{ url: "/c" }], payments: { protocol: "x402" } };

  test.each<[string, Record<string, unknown>, string, number]>([
    [
      "well-known first",
      { "/.well-known/x402": { resources: ["/w"] }, "/openapi.json": openapi },
      "/.well-known/x402",
      1,
    ],
    ["OpenAPI next", { "/openapi.json": openapi, "/.well-known/agent-card.json": card }, "/openapi.json", 2],
    ["agent card last", { "/.well-known/agent-card.json": card }, "/.well-known/agent-card.json", 3],
    [
      "an empty list counts when nothing else names an endpoint",
      { "/.well-known/x402": { resources: [] } },
      "/.well-known/x402",
      3,
    ],
  ])("%s", async (_name, files, path, asked) => {
    const { egress, read } = seller(files);
    expect((await read).documents.map((one) => one.url)).toEqual([`${SELLER}${path}`]);
    expect(egress.asked).toHaveLength(asked);
  });

  test("none at all, and a host that does not answer is asked once", async () => {
    expect(await seller({}).read).toEqual({ documents: [], says: "status 404" });
    const { egress } = world();
    egress.sellers.set(SELLER, timeout);
    expect(await readSellerDocuments(egress, SELLER)).toEqual({ documents: [], says: "no answer" });
    expect(egress.asked).toHaveLength(1);
  });

  test("OpenAPI on the seller's own origin is under its control; the same from a file is not", async () => {
    const { egress, intake, log } = world();
    egress.sellers.set(SELLER, (asked) =>
      asked.url.endsWith("/openapi.json") ? answer(200, openapi) : answer(404, {}),
    );
    await intake.readSeller(SELLER, clock);
    const file = { ...openapi, servers: [{ url: SELLER }] };
    await importFile(intake, "x.json", Buffer.from(JSON.stringify(file)), clock);
    expect(log.bodies("listing").map((one) => [one.normalised_url, one.seller_controlled])).toEqual([
      [`${SELLER}/a`, true],
      [`${SELLER}/a`, false],
    ]);
  });
});

describe("what an operator hands in", () => {
  test("more of one domain than discovery may bring", async () => {
    const { intake } = world();
    const text = Array.from({ length: 300 }, (_, i) => `https://s.example/${i}\n`).join("");
    expect(await importFile(intake, "a.txt", Buffer.from(text), clock)).toMatchObject({ appended: 300, refused: 0 });
    const { intake: discovery, egress } = world();
    egress.sellers.set(SELLER, () => answer(200, { resources: Array.from({ length: 300 }, (_, i) => `/${i}`) }));
    const report = await discovery.readSeller(SELLER, clock);
    expect(report).toMatchObject({ appended: 200, refused: 100 });
    expect(new Set(report.rejected.map((one) => one.reason))).toEqual(new Set(["domain_full"]));
    expect(report.rejected.at(-1)?.row).toEqual({ url: "/299" });
  });

  test("an address on some origin is not that origin's own word unless it is a document of the seller", async () => {
    const { intake, egress, log } = world();
    egress.sellers.set(SELLER, () => answer(200, ["/x"]));
    await importUrl(intake, egress, `${SELLER}/uploads/list.json`, clock);
    await importUrl(intake, egress, `${SELLER}/.well-known/x402.json`, clock);
    expect(log.bodies("listing").map((one) => one.seller_controlled)).toEqual([false, true]);
  });

  test("bytes that are no text, and addresses that do not answer", async () => {
    const { intake, egress } = world();
    await expect(importFile(intake, "a", Uint8Array.of(0xff, 0xfe), clock)).rejects.toThrow(/not text in UTF-8/);
    await expect(importUrl(intake, egress, "https://nobody.example/x", clock)).rejects.toThrow(/no route to host/);
    egress.sellers.set(SELLER, () => answer(200, Uint8Array.of(0xff)));
    await expect(importUrl(intake, egress, `${SELLER}/x`, clock)).rejects.toThrow(/not text in UTF-8/);
  });
});

describe("whatever the text is", () => {
  test("it is read or refused, and the record takes what was read", () => {
    const json = fc.jsonValue({ maxDepth: 4 });
    const names = fc.constantFrom(
      "url",
      "resource",
      "items",
      "paths",
      "openapi",
      "skills",
      "name",
      "accepts",
      "endpoints",
      "price",
    );
    const odd = fc.dictionary(names, fc.oneof(json, fc.array(fc.dictionary(names, json))));
    const text = fc.oneof(
      fc.string({ unit: "binary" }),
      json.map((value) => JSON.stringify(value)),
      odd.map((value) => JSON.stringify(value)),
    );
    fc.assert(
      fc.property(text, (given) => {
        const read = readText(given);
        for (const item of read.items.flatMap(splitMethods)) {
          const taken = claimOf(
            item,
            { name: "test", ownOrigin: SELLER, ...(read.base ? { base: read.base } : {}) },
            rail,
          );
          if ("claim" in taken) BODIES.listing.parse(taken.claim.body);
        }
        expect(read.items.length + read.rejected.length > 0 || read.form !== "none").toBe(true);
      }),
      { numRuns: 200 },
    );
  });

  test.each([
    ["nesting without end", `[${"[".repeat(100_000)}${"]".repeat(100_000)}]`],
    [
      "YAML that grows when its aliases are put in place",
      `a: &a [x,x,x,x,x,x,x,x]\n${"bcdefghi"
        .split("")
        .map((name, i, all) => `${name}: &${name} [${`*${i ? all[i - 1] : "a"},`.repeat(8)}]`)
        .join("\n")}\nresources: [*i]`,
    ],
    ["a CSV cell that never ends", `url,method\n"https://s.example/${"x".repeat(2_000_000)}`],
  ])("%s", (_name, text) => {
    const began = performance.now();
    const read = readFile(text);
    expect(read.items.length + read.rejected.length).toBeGreaterThan(0);
    // Without a bound none of them would end at all.
    expect(performance.now() - began).toBeLessThan(100_000);
  });

  test("a catalogue of 5,900 rows costs what its tenth costs, ten times", () => {
    const row = (i: number) => ({
      ...{
        resource: `https://s${i % 800}.example/a/${i}`,
        type: "http",
        method: "POST",
        x402Version: 2,
        lastUpdated: 1,
      },
      ...{ description: "d".repeat(150), accepts: [entry(), entry({ network: "eip155:8453" })] },
      extensions: { bazaar: { info: { input: { type: "http", method: "POST", body: { q: "x" } } } } },
    });
    const costOf = (rows: number, times: number): number => {
      const text = JSON.stringify({ items: Array.from({ length: rows }, (_, i) => row(i)), pagination: {} });
      return leastProcessorMs(times, () => {
        const taken = readFile(text).items.filter((item) => "claim" in claimOf(item, { name: "test" }, rail));
        expect(taken).toHaveLength(rows);
      });
    };
    const [tenth, whole] = [costOf(590, 10), costOf(5_900, 2)];
    console.info(`590 rows read in ${Math.round(tenth)} ms of the processor, 5,900 in ${Math.round(whole)} ms`);
    // A reader that is no longer linear takes a hundred times as long.
    expect(whole).toBeLessThan(30 * tenth);
  });
});

test("of a table with more rows than are read, the others are named", () => {
  const urls = Array.from({ length: MAX_ROWS + 10 }, (_, i) => `https://s.example/${i}`);
  for (const text of [`url\n${urls.join("\n")}\n`, urls.join("\n")]) {
    const read = readText(text);
    expect([read.items.length, read.rejected.length, read.whole]).toEqual([MAX_ROWS, 10, false]);
    expect(new Set(read.rejected.map(({ reason }) => reason))).toEqual(new Set(["too_many"]));
  }
});
