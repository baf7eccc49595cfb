import { randomUUID } from "node:crypto";
import type { Server } from "node:http";
import type { AddressInfo } from "node:net";
import { createAdaptorServer } from "@hono/node-server";
import { createMcpHandler, McpServer, WebStandardStreamableHTTPServerTransport } from "@modelcontextprotocol/server";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import { createEgress } from "../../../../infra/egress/create.ts";
import type { Egress } from "../../../../infra/egress/egress.ts";
import { sessionlessHeaders } from "../../../../pipelines/1-observe/mcp/rpc.ts";
import { callTool } from "../../../../pipelines/1-observe/mcp/session.ts";
import { toolTerms } from "../other-protocols.ts";

/** The protocol's own server, in each of the ways in which it can be set up. */
const TOOL = "add_two";
const payments: unknown[] = [];
const open = new Map<string, WebStandardStreamableHTTPServerTransport>();
let closed = 0;

function server(): McpServer {
  const made = new McpServer({ name: "real", version: "1.0.0" });
  const inputSchema = z.object({ a: z.number(), b: z.number() });
  made.registerTool(TOOL, { inputSchema }, async ({ a, b }, { mcpReq }) => {
    const payment = mcpReq._meta?.["x402/payment"];
    if (!payment) return { isError: true, structuredContent: toolTerms(), content: [] };
    payments.push(payment);
    return { content: [{ type: "text", text: JSON.stringify({ sum: a + b }) }] };
  });
  return made;
}

/** A server that gives each client a session, and knows nobody without one. */
async function withSession(request: Request, asJson: boolean): Promise<Response> {
  const known = open.get(request.headers.get("mcp-session-id") ?? "");
  if (known) return known.handleRequest(request);
  const transport: WebStandardStreamableHTTPServerTransport = new WebStandardStreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    enableJsonResponse: asJson,
    onsessioninitialized: (id) => void open.set(id, transport),
    onsessionclosed: () => void closed++,
  });
  await server().connect(transport);
  return transport.handleRequest(request);
}

const WAYS: Record<string, (request: Request) => Promise<Response>> = {
  "sessions, answers as JSON": (request) => withSession(request, true),
  "sessions, answers as streams": (request) => withSession(request, false),
  "no sessions, 2025": createMcpHandler(server).fetch,
  "no sessions, 2026 alone": createMcpHandler(server, { legacy: "reject" }).fetch,
  "no sessions, 2026 alone, as streams": createMcpHandler(server, { legacy: "reject", responseMode: "sse" }).fetch,
};

test.each([
  ["add_two", "add_two"],
  ["two words", "two words"],
  ["añadir", `=?base64?${Buffer.from("añadir").toString("base64")}?=`],
  [" led by a space", `=?base64?${Buffer.from(" led by a space").toString("base64")}?=`],
  ["=?base64?YQ==?=", `=?base64?${Buffer.from("=?base64?YQ==?=").toString("base64")}?=`],
  ["a\r\nb: c", `=?base64?${Buffer.from("a\r\nb: c").toString("base64")}?=`],
])("the header of a call names the tool %j as %j", (name, header) => {
  expect(sessionlessHeaders("tools/call", { name })).toEqual({ "mcp-method": "tools/call", "mcp-name": header });
});

let http: Server;
let origin: string;
let egress: Egress;
beforeAll(async () => {
  const fetch = (request: Request) => {
    const way = WAYS[decodeURIComponent(new URL(request.url).pathname.slice(1))]!;
    return way(new Request(request.url, request));
  };
  http = createAdaptorServer({ fetch, overrideGlobalObjects: false }) as Server;
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  origin = `http://127.0.0.1:${(http.address() as AddressInfo).port}`;
  egress = createEgress({ allowLoopback: true, userAgent: "touchstone-test" });
});
afterAll(async () => {
  await egress.close();
  http.closeAllConnections();
  await new Promise((resolve) => http.close(resolve));
});

describe.each(Object.keys(WAYS))("%s", (way) => {
  const ask = (payment?: string, name = TOOL) =>
    callTool(egress, {
      url: `${origin}/${encodeURIComponent(way)}`,
      tool: { name, arguments: { a: 2, b: 3 }, isInputUnknown: false },
      profile: payment ? "paid" : "handshake",
      totalMs: 10_000,
      payment,
    });

  test("an unpaid call is asked to pay, a paid one is answered, and sessions are given back", async () => {
    const before = closed;
    const unpaid = await ask();
    expect(unpaid).toMatchObject({
      isPayable: true,
      result: { status: 402 },
      recordMembers: { tool: TOOL, tool_present: true },
    });
    expect(unpaid.listedTool!.inputSchema).toMatchObject({ required: ["a", "b"] });
    expect(unpaid.recordMembers.initialize_ms).not.toBeNull();
    const payment = { x402Version: 2, payload: { nonce: randomUUID() } };
    const paid = await ask(Buffer.from(JSON.stringify(payment)).toString("base64"));
    expect(Buffer.from(paid.result.body!).toString()).toBe('{"sum":5}');
    expect(payments.at(-1)).toEqual(payment);
    expect(closed - before).toBe(way.startsWith("sessions") ? 2 : 0);
  });

  test("a tool that it does not have is not called", async () => {
    expect(await ask(undefined, "other")).toMatchObject({
      result: { status: 404 },
      recordMembers: { tool_present: false },
    });
  });

  test("input that its schema refuses is an error of the tool, not a price", async () => {
    const blind = { name: TOOL, arguments: { a: "x" }, isInputUnknown: false };
    const url = `${origin}/${encodeURIComponent(way)}`;
    const said = await callTool(egress, { url, tool: blind, profile: "handshake", totalMs: 10_000 });
    expect(said.result).toMatchObject({ outcome: "answered", status: 500 });
    expect(said.says).toMatch(/expected number|invalid/i);
  });
});
