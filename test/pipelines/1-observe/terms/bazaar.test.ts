import { declareDiscoveryExtension } from "@x402/extensions/bazaar";
import { describe, expect, test } from "vitest";
import { readClaim } from "../../../../pipelines/1-observe/listings/claims.ts";
import { buildRequest } from "../../../../pipelines/1-observe/probe/request.ts";
import { stockHeaders } from "../../../../pipelines/1-observe/probe/stock.ts";
import { readBazaar } from "../../../../pipelines/1-observe/terms/declared.ts";
import type { ListedCap } from "../../../../pipelines/record/memory.ts";

/** Calls as x402's extension `bazaar` declares them (specs/extensions/bazaar.md), in a seller's own list. */
const ORIGIN = "https://s.example";
const OFFER = {
  ...{ scheme: "exact", network: "eip155:8453", amount: "1000", maxTimeoutSeconds: 60 },
  asset: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913",
  payTo: "0x209693Bc6afc0C5328bA36FaF03C514EF312287C",
  extra: { name: "USD Coin", version: "2" },
};

function endpointOf(bazaar: unknown, path = "/x", isOwn = true): ListedCap {
  const item = { resource: ORIGIN + path, x402Version: 2, accepts: [OFFER], extensions: { bazaar } };
  const source = { name: "list", ...(isOwn ? { ownOrigin: ORIGIN } : {}) };
  const read = readClaim(item, source as Parameters<typeof readClaim>[1], "eip155:8453");
  if ("rejected" in read) throw new Error(JSON.stringify(read.rejected));
  const { cap, body } = read.claim;
  const { claims } = body;
  const at = { cap, url: body.normalised_url, method: claims.method ?? "POST", tool: claims.tool, claims };
  return { ...at, sellerClaims: isOwn ? claims : null } as unknown as ListedCap;
}

const callOf = (bazaar: unknown, path?: string, isOwn?: boolean) => {
  const { input, request } = buildRequest(endpointOf(bazaar, path, isOwn), null, null);
  return { ...request, kind: input.kind, text: Buffer.from(request.body ?? []).toString() };
};
const http = (input: object) => ({ info: { input: { type: "http", ...input } } });

describe("the body", () => {
  test("of type text is sent as it is", () => {
    const call = callOf(http({ method: "POST", bodyType: "text", body: "hello world" }));
    expect(call).toMatchObject({ kind: "example", text: "hello world", headers: { "content-type": "text/plain" } });
  });

  test("of type form-data is sent as a form, the same bytes each time", async () => {
    const form = http({ method: "POST", bodyType: "form-data", body: { name: 'a"b', size: 2 } });
    const call = callOf(form);
    expect(call.kind).toBe("example");
    const read = await new Response(call.text, { headers: call.headers }).formData();
    expect([...read]).toEqual([
      ["name", 'a"b'],
      ["size", "2"],
    ]);
    expect(callOf(form)).toEqual(call);
    expect(stockHeaders(call, undefined)).toEqual({ "Content-Type": call.headers["content-type"] });
  });

  test("that cannot be sent in its form is no example of the seller's", () => {
    for (const body of [{ file: { nested: true } }, "no map"])
      expect(callOf(http({ method: "POST", bodyType: "form-data", body })).kind).toBe("synthetic");
    expect(callOf(http({ method: "POST", bodyType: "text", body: { a: 1 } })).kind).toBe("synthetic");
  });

  test("as the protocol's own library declares it", () => {
    const declared = (bodyType: "json" | "text" | "form-data") =>
      declareDiscoveryExtension({ bodyType, input: { q: "x" }, inputSchema: { properties: { q: {} } } } as never)
        .bazaar;
    const typeOf = (bodyType: "json" | "form-data") => {
      const { info } = declared(bodyType) as { info: { input: object } };
      return callOf({ info: { input: { method: "POST", ...info.input } } }).headers["content-type"];
    };
    expect(typeOf("json")).toBe("application/json");
    expect(typeOf("form-data")).toMatch(/^multipart\/form-data; boundary=/);
  });
});

test("declared headers are sent, but for those that are ours, the connection's, or credentials", () => {
  const refused = [
    ...["Authorization", "Cookie", "Host", "Connection", "Transfer-Encoding", "Content-Length", "User-Agent", "Accept"],
    ...["X-Payment", "PAYMENT-SIGNATURE", "X-Forwarded-For", "X-HTTP-Method-Override", "Proxy-Authorization", "a b"],
  ];
  const headers = {
    "X-Api-Version": "2",
    ...Object.fromEntries(refused.map((name) => [name, "1"])),
    "x-bad": "a\r\nb",
  };
  const bazaar = http({ method: "GET", queryParams: { q: "a" }, headers });
  const call = callOf(bazaar);
  expect(call.headers).toEqual({ accept: "application/json", "x-api-version": "2" });
  expect(stockHeaders(call, undefined)).toEqual({ "x-api-version": "2" });
  const many = Object.fromEntries(Array.from({ length: 60 }, (_, i) => [`x-h-${i}`, "1"]));
  expect(Object.keys(callOf(http({ method: "GET", headers: many })).headers)).toHaveLength(17);
  // A catalogue's headers are not sent to somebody else's server.
  expect(callOf(bazaar, "/x", false)).toMatchObject({ kind: "synthetic", url: `${ORIGIN}/x?q=a` });
  expect(callOf(bazaar, "/x", false).headers).toEqual({ accept: "application/json" });
});

describe("values of the path", () => {
  const path = "/weather/:city";

  test("are used where neither query nor body is declared", () => {
    const call = callOf(http({ method: "GET", pathParams: { city: "berlin" } }), path);
    expect(call).toMatchObject({ kind: "example", url: `${ORIGIN}/weather/berlin` });
  });

  test("that are not named are no example of the seller's, and the rest of its example is sent", () => {
    const call = callOf(http({ method: "GET", queryParams: { d: "1" } }), path);
    expect(call).toMatchObject({ kind: "synthetic", url: `${ORIGIN}/weather/1?d=1` });
    const described = http({ method: "GET", pathParams: { city: { type: "string" } } });
    expect(callOf(described, path)).toMatchObject({ kind: "synthetic", url: `${ORIGIN}/weather/1` });
  });

  test("of a 402 that echo our filler are no example either", () => {
    const endpoint = endpointOf({}, path);
    const kindOf = (city: string) => {
      const declared = readBazaar(http({ method: "GET", pathParams: { city } }));
      const { input, request } = buildRequest(endpoint, declared, null);
      return [input.kind, request.url];
    };
    expect(kindOf("1")).toEqual(["synthetic", `${ORIGIN}/weather/1`]);
    expect(kindOf("oslo")).toEqual(["example", `${ORIGIN}/weather/oslo`]);
  });
});

test("a tool is called with its declared example, else with one made from its schema", () => {
  const inputSchema = { type: "object", properties: { ticker: { type: "string" } }, required: ["ticker"] };
  const input = { type: "mcp", toolName: "quote", inputSchema };
  expect(callOf({ info: { input: { ...input, example: { ticker: "AAPL" } } } })).toMatchObject({
    kind: "example",
    tool: { name: "quote", arguments: { ticker: "AAPL" }, isInputUnknown: false },
  });
  expect(callOf({ info: { input } })).toMatchObject({
    kind: "synthetic",
    tool: { arguments: { ticker: expect.any(String) }, isInputUnknown: false },
  });
});
