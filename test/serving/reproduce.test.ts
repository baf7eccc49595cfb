import { execFile } from "node:child_process";
import { randomUUID } from "node:crypto";
import type { Server } from "node:http";
import type { AddressInfo } from "node:net";
import { promisify } from "node:util";
import { createAdaptorServer } from "@hono/node-server";
import { createMcpHandler, McpServer, WebStandardStreamableHTTPServerTransport } from "@modelcontextprotocol/server";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { createEgress } from "../../infra/egress/create.ts";
import type { Egress } from "../../infra/egress/egress.ts";
import { exchange } from "../../pipelines/1-observe/probe/exchange.ts";
import { buildRequest } from "../../pipelines/1-observe/probe/request.ts";
import { type CurrentListing, toListedCap } from "../../pipelines/1-observe/probe/unplanned.ts";
import { processReader } from "../../pipelines/1-observe/reading/reader.ts";
import { describeRequest, shortenSchema } from "../../pipelines/2-ingest/volatile.ts";
import { capId } from "../../pipelines/record/ids.ts";
import { MAX_HANDSHAKE_REQUEST_CHARS, type VolatileRow } from "../../pipelines/record/volatile.ts";
import { encodeVolatile, readVolatileRows } from "../../pipelines/record/volatile-arrow.ts";
import { inputOf, reproduceOf } from "../../serving/answers/reproduce.ts";
import { listingDraft, PublicRecord, rowOf } from "../helpers/public-record.ts";
import { checkPath, servingOver } from "../helpers/serving.ts";
import { STEADY_LOOP } from "../helpers/steady-loop.ts";

/** The command of an answer in a real shell, and our own probe, both against a real server that notes what came. */
interface Came {
  method: string;
  url: string;
  type: string | null;
  accept: string | null;
  version: string | null;
  body: string;
}

const open = new Map<string, WebStandardStreamableHTTPServerTransport>();
function tools(): McpServer {
  const made = new McpServer({ name: "real", version: "1.0.0" });
  made.registerTool(
    "add_two",
    { inputSchema: z.object({ a: z.number(), says: z.string().optional() }) },
    async ({ a }) => ({
      content: [{ type: "text", text: `paid for ${a}?` }],
    }),
  );
  return made;
}
async function withSession(request: Request, enableJsonResponse: boolean): Promise<Response> {
  const known = open.get(request.headers.get("mcp-session-id") ?? "");
  if (known) return known.handleRequest(request);
  const transport: WebStandardStreamableHTTPServerTransport = new WebStandardStreamableHTTPServerTransport({
    ...{ sessionIdGenerator: randomUUID, enableJsonResponse },
    onsessioninitialized: (id) => void open.set(id, transport),
  });
  await tools().connect(transport);
  return transport.handleRequest(request);
}
const WAYS: Record<string, (request: Request) => Promise<Response>> = {
  "/sessions": (request) => withSession(request, true),
  "/streams": (request) => withSession(request, false),
  "/2025": createMcpHandler(tools).fetch,
  "/2026": createMcpHandler(tools, { legacy: "reject" }).fetch,
};

let came: Came[] = [];
let http: Server;
let origin: string;
let egress: Egress;
beforeAll(async () => {
  const fetch = async (request: Request) => {
    const body = await request.text();
    const header = (name: string) => request.headers.get(name);
    came.push({
      ...{ method: request.method, url: request.url.slice(origin.length), body },
      ...{ type: header("content-type"), accept: header("accept"), version: header("mcp-protocol-version") },
    });
    const way = WAYS[new URL(request.url).pathname];
    const { method, headers } = request;
    if (way) return way(new Request(request.url, { method, headers, ...(body === "" ? {} : { body }) }));
    return new Response("{}", { status: 402 });
  };
  http = createAdaptorServer({ fetch, overrideGlobalObjects: false }) as Server;
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  origin = `http://127.0.0.1:${(http.address() as AddressInfo).port}`;
  egress = createEgress({ allowLoopback: true, userAgent: "touchstone-test" });
});
afterEach(() => {
  came = [];
});
afterAll(async () => {
  await egress.close();
  http.closeAllConnections();
  await new Promise((resolve) => http.close(resolve));
});

const shell = async (command: string): Promise<string> =>
  (await promisify(execFile)("sh", ["-c", command], { timeout: 150_000 })).stdout;

type Claimed = Partial<CurrentListing["claims"]> & { tool?: string | null };
function listingOf(method: string, path: string, claims: Claimed = {}, own = true): CurrentListing {
  const url = `${origin}${path}`;
  const tool = claims.tool ?? null;
  const blank = { description: null, class: "any", offers: [], fixed_price: false, example: null, output_mime: null };
  const whole = { ...blank, url, method: method as CurrentListing["claims"]["method"], tool, ...claims };
  return { cap: capId(method, url, tool ?? ""), url, method, tool, claims: whole, own };
}

/** The command as an answer gives it: by way of the volatile table's bytes. */
async function commandOf(one: CurrentListing): Promise<string> {
  const row = { ...rowOf({ url: one.url }), request: describeRequest(one) };
  const [read] = [...readVolatileRows(await encodeVolatile([row]))] as [VolatileRow];
  return reproduceOf(one.method, one.url, read.request)!;
}

/** What our probe sends, and then what the command sends. */
async function both(one: CurrentListing): Promise<{ ours: Came[]; theirs: Came[]; printed: string }> {
  const { request } = buildRequest(toListedCap(one), null, null);
  await exchange({ egress, reader: processReader, loop: STEADY_LOOP }, request, { profile: "handshake" });
  const ours = came;
  came = [];
  const printed = await shell(await commandOf(one));
  return { ours, theirs: came, printed };
}

const quoted = { query: { "it's": "a b&c=d", $HOME: "`id`" } };
test.each<[string, string, string, Claimed, string]>([
  ["GET", "GET", "/plain", {}, "/plain"],
  ["GET with the example's query", "GET", "/q?a=1", { example: quoted }, "/q?a=1&it%27s=a+b%26c%3Dd&%24HOME=%60id%60"],
  [
    "GET with a query made from the schema",
    "GET",
    "/made",
    { input_schema: { properties: { n: { type: "integer" } } } },
    "/made?n=1",
  ],
  [
    "a template, its placeholders filled",
    "GET",
    "/users/{id}/:part",
    { example: { path: { id: "7" } } as never },
    "/users/7/1",
  ],
  ["POST without an example", "POST", "/post", {}, "/post"],
  [
    "POST with the example's body",
    "POST",
    "/post",
    { example: { body: { text: 'it\'s $HOME `x` \\ "ü"\n' } } },
    "/post",
  ],
  ["POST with a body that is a text", "POST", "/post", { example: { body: "@/etc/passwd" } }, "/post"],
  [
    "POST with a body made from the schema",
    "POST",
    "/post",
    { input_schema: { properties: { q: { type: "string" } } } },
    "/post",
  ],
  ["PUT", "PUT", "/put", { example: { body: [1, null] } }, "/put"],
  ["PATCH", "PATCH", "/patch", {}, "/patch"],
  ["DELETE", "DELETE", "/gone", { example: { query: { id: "3" } } }, "/gone?id=3"],
])("%s: the command sends what our probe sends", async (_, method, path, claims, sent) => {
  const { ours, theirs, printed } = await both(listingOf(method, path, claims));
  expect(theirs).toEqual(ours);
  expect(theirs).toHaveLength(1);
  expect(theirs[0]).toMatchObject({ method, url: sent });
  expect(printed).toMatch(/^HTTP\/1\.1 402 /);
});

describe("a tool", () => {
  test.each(Object.keys(WAYS))("of a server at %s: the same questions, but for the list", async (path) => {
    const one = listingOf("POST", path, { tool: "add_two", example: { body: { a: 2, says: "it's $HOME `x`" } } });
    const { ours, theirs, printed } = await both(one);
    const asked = ours.filter(({ method, body }) => method === "POST" && !body.includes('"tools/list"'));
    expect(theirs).toEqual(asked);
    expect(theirs.at(-1)!.body).toContain('"tools/call"');
    expect(printed).toContain("paid for 2?");
  });

  test("of which only the server's list says what it takes has no command", () => {
    expect(describeRequest(listingOf("POST", "/2025", { tool: "add_two" }))).toBe("");
    expect(reproduceOf("POST", `${origin}/2025`, "")).toBeNull();
  });
});

test("what is not more than method and url takes no room, and what is too long or from another version says nothing", () => {
  expect(describeRequest(listingOf("GET", "/x"))).toBeNull();
  expect(describeRequest(listingOf("POST", "/x"))).toBeNull();
  expect(describeRequest(listingOf("POST", "/x", { example: { body: "y".repeat(MAX_HANDSHAKE_REQUEST_CHARS) } }))).toBe(
    "",
  );
  for (const text of ["{", "[]", '{"url":1}', '{"new":"member"}']) expect(reproduceOf("GET", origin, text)).toBeNull();
  expect(reproduceOf("GET", `${origin}/{id}`, null)).toBeNull();
  expect(reproduceOf("GET", `${origin}/x`, undefined)).toContain(`'${origin}/x'`);
});

test("what a listing declares of its input goes with it, shortened, and changes no command", () => {
  const long = "d".repeat(500);
  const declared = {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    type: "object",
    description: long,
    properties: {
      city: { type: "string", description: "Name of a city", pattern: "^x" },
      unit: { enum: ["C", "F"] },
      at: { type: "object", properties: { lat: { type: "number" }, deep: { type: "object", properties: { x: {} } } } },
      days: { type: "array", items: { type: "integer", minimum: 1 } },
    },
    required: ["city", "other"],
    additionalProperties: false,
  };
  const one = listingOf("POST", "/x", { example: { body: { city: "Oslo" } }, input_schema: declared });
  const request = describeRequest(one)!;
  expect(inputOf("POST", one.url, request)).toEqual({
    ...{ in: "body", declared: true, example: { city: "Oslo" }, url: one.url },
    schema: {
      ...{ type: "object", description: "d".repeat(80) },
      properties: {
        city: { type: "string", description: "Name of a city" },
        unit: { enum: ["C", "F"] },
        at: {
          type: "object",
          properties: { lat: { type: "number" }, deep: { type: "object", properties: { x: {} } } },
        },
        days: { type: "array", items: { type: "integer" } },
      },
      required: ["city"],
    },
  });
  const without = listingOf("POST", "/x", { example: { body: { city: "Oslo" } } });
  expect(reproduceOf("POST", one.url, request)).toBe(reproduceOf("POST", one.url, describeRequest(without)));
  // Too long with its descriptions, too long without them, and no schema at all.
  const of = (names: number, size: number) => ({
    properties: Object.fromEntries(
      Array.from({ length: names }, (_, i) => [`member${i}${"m".repeat(size)}`, { type: "string", description: long }]),
    ),
  });
  expect(JSON.stringify(shortenSchema(of(20, 1)))).not.toContain("ddd");
  expect([shortenSchema(of(20, 100)), shortenSchema(true), shortenSchema({}), shortenSchema(undefined)]).toEqual(
    Array(4).fill(null),
  );
});

test("a check gives it", async () => {
  const record = await PublicRecord.open();
  const spec = { url: "https://seller.example/search", method: "POST" as const };
  await record.publish([listingDraft(spec)]);
  await record.live([rowOf(spec, { request: JSON.stringify({ body: '{"q":"it\'s"}' }) })]);
  const answer = await (await (await servingOver(record)).get(checkPath({ url: spec.url }))).json();
  expect((answer as { reproduce: string }).reproduce).toBe(
    `curl -gsSi -m 20 -H 'Accept: application/json' -X POST -H 'Content-Type: application/json' -d '{"q":"it'\\''s"}' 'https://seller.example/search'`,
  );
  await record.close();
});
