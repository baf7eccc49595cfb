import { describe, expect, test } from "vitest";
import { readClaim } from "../../../../pipelines/1-observe/listings/claims.ts";
import { parseListing } from "../../../../pipelines/1-observe/listings/documents.ts";
import { buildRequest } from "../../../../pipelines/1-observe/probe/request.ts";
import { createListedCap } from "../../../../pipelines/1-observe/probe/unplanned.ts";
import { NETWORK } from "../world.ts";

const BASE = "https://s.example";
const pay = { "x-payment-info": { price: { mode: "fixed", currency: "USD", amount: "0.005" } } };
const path = (more: object) => ({ name: "id", in: "path", required: true, ...more });
const query = (more: object) => ({ name: "q", in: "query", required: true, ...more });
const text = { type: "string" };

/** Parts that real sellers' documents share by reference (x402scan#1194, #1195, #836). */
const components = {
  parameters: {
    Id: path({ schema: text, example: "gb-123" }),
    Q: query({ schema: text, example: "tea" }),
    Chain: { $ref: "#/components/parameters/Q" },
  },
  examples: { One: { value: "gb-123" } },
  requestBodies: {
    Sum: {
      content: {
        "application/json": { schema: { type: "object", properties: { a: { type: "integer" } } }, example: { a: 7 } },
      },
    },
  },
  responses: {
    Ok: {
      content: {
        "application/json": { schema: { type: "object", required: ["n"], properties: { n: { type: "integer" } } } },
      },
    },
  },
  pathItems: { Deep: { get: pay } },
};

/** The request that a free probe of the document's only listing would send. */
function requestFor(pathName: string, pathItem: object): string {
  const document = { openapi: "3.1.0", servers: [{ url: BASE }], components, paths: { [pathName]: pathItem } };
  const { items } = parseListing(document);
  expect(items).toHaveLength(1);
  const read = readClaim(items[0], { name: `${BASE}/openapi.json`, ownOrigin: BASE }, NETWORK);
  if ("rejected" in read) throw new Error(read.rejected.says);
  const { cap, body } = read.claim;
  const one = createListedCap(cap, body.normalised_url, body.claims.method!, body.claims, true);
  const { request } = buildRequest(one, null, null);
  return `${request.method} ${request.url.replace(BASE, "")} ${Buffer.from(request.body ?? []).toString()}`.trim();
}

describe("the request that an OpenAPI document describes", () => {
  test.each<[string, string, object, string]>([
    [
      "an example in the schema",
      "/a/{id}",
      { get: { ...pay, parameters: [path({ schema: { ...text, example: "gb-123" } })] } },
      "GET /a/gb-123",
    ],
    [
      "named examples",
      "/a/{id}",
      { get: { ...pay, parameters: [path({ schema: text, examples: { one: { value: "gb-123" } } })] } },
      "GET /a/gb-123",
    ],
    [
      "a named example by reference",
      "/a/{id}",
      {
        get: { ...pay, parameters: [path({ schema: text, examples: { one: { $ref: "#/components/examples/One" } } })] },
      },
      "GET /a/gb-123",
    ],
    [
      "a list of examples in the schema",
      "/a/{id}",
      { get: { ...pay, parameters: [path({ schema: { ...text, examples: ["gb-123"] } })] } },
      "GET /a/gb-123",
    ],
    [
      "a parameter by reference",
      "/a/{id}",
      { get: { ...pay, parameters: [{ $ref: "#/components/parameters/Id" }] } },
      "GET /a/gb-123",
    ],
    [
      "a query by a chain of references",
      "/a",
      { get: { ...pay, parameters: [{ $ref: "#/components/parameters/Chain" }] } },
      "GET /a?q=tea",
    ],
    [
      "a body by reference",
      "/a",
      { post: { ...pay, requestBody: { $ref: "#/components/requestBodies/Sum" } } },
      'POST /a {"a":7}',
    ],
    ["a path item by reference", "/a", { $ref: "#/components/pathItems/Deep" }, "GET /a"],
    [
      "the only value of an enum",
      "/a/{id}",
      { get: { ...pay, parameters: [path({ schema: { ...text, enum: ["gb-123"] } })] } },
      "GET /a/gb-123",
    ],
    [
      "a default",
      "/a",
      { get: { ...pay, parameters: [query({ schema: { ...text, default: "tea" } })] } },
      "GET /a?q=tea",
    ],
    ["a constant", "/a", { get: { ...pay, parameters: [query({ schema: { const: "tea" } })] } }, "GET /a?q=tea"],
    [
      "a required query that has no value",
      "/a",
      { get: { ...pay, parameters: [query({ schema: text })] } },
      "GET /a?q=example",
    ],
    [
      "such a query beside a path that has one",
      "/a/{id}",
      { get: { ...pay, parameters: [{ $ref: "#/components/parameters/Id" }, query({ schema: text })] } },
      "GET /a/gb-123?q=example",
    ],
    [
      "an optional query without an example",
      "/a",
      { get: { ...pay, parameters: [query({ required: false, schema: { ...text, default: "tea" } })] } },
      "GET /a?q=tea",
    ],
    [
      "a parameter of the operation before one of the path item",
      "/a",
      {
        parameters: [query({ schema: text, example: "no" })],
        get: { ...pay, parameters: [query({ schema: text, example: "tea" })] },
      },
      "GET /a?q=tea",
    ],
    ["a server of the operation", "/a", { get: { ...pay, servers: [{ url: `${BASE}/v2` }] } }, "GET /v2/a"],
    ["a server of the path item", "/a", { servers: [{ url: `${BASE}/v2/` }], get: pay }, "GET /v2/a"],
  ])("%s", (_name, name, pathItem, request) => {
    expect(requestFor(name, pathItem)).toBe(request);
  });

  test("the schema of an answer by reference is the listing's", () => {
    const get = { ...pay, responses: { 200: { $ref: "#/components/responses/Ok" } } };
    const [item] = parseListing({ openapi: "3.1.0", components, paths: { "/a": { get } } }).items;
    expect(item).toMatchObject({ outputSchema: { required: ["n"] }, mimeType: "application/json" });
  });

  test("a reference to itself, to nothing or out of the document leaves out what it stands for", () => {
    const own = { components: { parameters: { A: { $ref: "#/components/parameters/A" } } } };
    for (const $ref of ["#/components/parameters/A", "#/nowhere", "https://other.example/p.json", "#"]) {
      const get = { ...pay, parameters: [{ $ref }], requestBody: { $ref }, responses: { 200: { $ref } } };
      const { items } = parseListing({ openapi: "3.1.0", ...own, paths: { "/a": { get }, "/b": { $ref } } });
      expect(items).toHaveLength(1);
      expect(items[0]).not.toHaveProperty("example");
    }
  });
});
