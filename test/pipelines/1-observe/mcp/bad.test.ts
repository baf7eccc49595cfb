import { createServer, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { FixedClock } from "../../../../infra/clock.ts";
import { createEgress } from "../../../../infra/egress/create.ts";
import type { Egress, EgressRequest } from "../../../../infra/egress/egress.ts";
import type { PaymentForm } from "../../../../pipelines/1-observe/mcp/answers.ts";
import { callTool } from "../../../../pipelines/1-observe/mcp/session.ts";
import { ControlCalls } from "../../../../pipelines/1-observe/probe/exchange.ts";
import { probe } from "../../../../pipelines/1-observe/probe/probe.ts";
import { makeToolRequest } from "../../../../pipelines/1-observe/probe/request.ts";
import { processReader } from "../../../../pipelines/1-observe/reading/reader.ts";
import { BODIES } from "../../../../pipelines/record/bodies.ts";
import { STEADY_LOOP } from "../../../helpers/steady-loop.ts";
import { toolTerms } from "../other-protocols.ts";
import { FakeRail } from "../world.ts";

/** What a server gets and how it may answer: any bytes, over a real socket. */
interface Got {
  id: number;
  method: string;
  params: { name?: string; arguments?: unknown; cursor?: string; _meta?: unknown };
  headers: NodeJS.Dict<string | string[]>;
}
type Say = (got: Got, response: ServerResponse) => void;

const json =
  (result: unknown, headers: Record<string, string> = {}): Say =>
  ({ id }, response) => {
    response.writeHead(200, { "content-type": "application/json", ...headers });
    response.end(JSON.stringify({ jsonrpc: "2.0", id, result }));
  };
const raw =
  (status: number, type: string, body: string | ((got: Got) => string)): Say =>
  (got, response) => {
    response.writeHead(status, { "content-type": type });
    response.end(typeof body === "string" ? body : body(got));
  };
const fails =
  (code: unknown, data?: unknown): Say =>
  ({ id }, response) => {
    response.writeHead(200, { "content-type": "application/json" });
    response.end(JSON.stringify({ jsonrpc: "2.0", id, error: { code, message: "no", data } }));
  };
const hang: Say = () => {};
const drop: Say = (_got, response) => void response.socket?.destroy();
const WELCOME = { protocolVersion: "2025-06-18", capabilities: {}, serverInfo: { name: "bad", version: "0" } };
const unpaid = { isError: true, structuredContent: toolTerms(), content: [] };

const good: Record<string, Say> = {
  initialize: json(WELCOME),
  "notifications/initialized": raw(202, "text/plain", ""),
  "tools/list": json({
    tools: [{ name: "add", inputSchema: { type: "object", required: ["a"], properties: { a: { type: "integer" } } } }],
  }),
  "tools/call": json(unpaid),
};

let server: Server;
let url: string;
let egress: Egress;
let says: Record<string, Say> = good;
const got: Got[] = [];

beforeAll(async () => {
  server = createServer((request, response) => {
    let text = "";
    request.on("data", (chunk) => {
      text += chunk;
    });
    request.on("end", () => {
      const message = text ? JSON.parse(text) : { method: request.method };
      got.push({ ...message, headers: request.headers });
      (says[message.method] ?? raw(405, "text/plain", ""))({ ...message, headers: request.headers }, response);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`;
  const bounds = { bodyBytes: 50_000, windowMs: 2_000 };
  const limits = { handshake: bounds, paid: bounds };
  const inner = createEgress({ allowLoopback: true, userAgent: "touchstone-test", limits });
  // Only where nothing comes are its deadlines waited for: there they are short.
  const isSilent = ({ body }: EgressRequest) => body && says[JSON.parse(Buffer.from(body).toString()).method] === hang;
  egress = {
    validate: inner.validate.bind(inner),
    close: inner.close.bind(inner),
    fetch: (request) => inner.fetch(isSilent(request) ? { ...request, deadlineMs: 500 } : request),
  };
});
afterEach(() => {
  says = good;
  got.length = 0;
});
afterAll(async () => {
  await egress.close();
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
});

const request = (args: Record<string, unknown> = { a: 1, b: 2 }) =>
  makeToolRequest(url, "add", { kind: "example", example: { body: args }, known: null });

async function probeWith(change: Record<string, Say>, asked = request()) {
  says = { ...good, ...change };
  const tools = {
    egress,
    reader: processReader,
    loop: STEADY_LOOP,
    rail: new FakeRail(),
    control: new ControlCalls(egress, []),
  };
  const seen = await probe(tools, asked, null, new FixedClock("2026-11-02T00:00:00Z"));
  const body = { slot: { block: 1, minute: 0 }, planned: "free" as const, ...seen.body, ...seen.mcp };
  expect(() => BODIES["mcp.probe"].parse(body)).not.toThrow();
  return { body, read: seen.read, paymentForm: seen.paymentForm, methods: got.map((one) => one.method) };
}

const sse = (text: (got: Got) => string) => raw(200, "text/event-stream", text);
const answered = (id: unknown, result: unknown): string => JSON.stringify({ jsonrpc: "2.0", id, result });

test("a good one: welcome, list, and a demand for payment that our rail would pay", async () => {
  const { body, methods, read } = await probeWith({});
  expect(methods).toEqual(["initialize", "notifications/initialized", "tools/list", "tools/call"]);
  expect(body).toMatchObject({ state: "asked", live: true, honest: true, fault: null, status: 402, price: "0.010000" });
  expect(body).toMatchObject({ tool: "add", tool_present: true, initialize_ms: expect.any(Number) });
  expect(read?.payable).toMatchObject({ scheme: "exact", amountAtomic: 10_000n });
  expect(got[3]!.params).toEqual({ name: "add", arguments: { a: 1, b: 2 } });
  expect(got[3]!.headers["mcp-protocol-version"]).toBe("2025-06-18");
  expect(got.every((one) => one.headers.accept === "application/json, text/event-stream")).toBe(true);
});

describe("a session is kept to, and given back", () => {
  test("with the id the server gave", async () => {
    const { methods } = await probeWith({ initialize: json(WELCOME, { "mcp-session-id": "s-1" }) });
    expect(methods).toEqual(["initialize", "notifications/initialized", "tools/list", "tools/call", "DELETE"]);
    expect(got.map((one) => one.headers["mcp-session-id"])).toEqual([undefined, "s-1", "s-1", "s-1", "s-1"]);
  });
  test("an id that no header can carry is no welcome", async () => {
    const { body, methods } = await probeWith({ initialize: json(WELCOME, { "mcp-session-id": "a b" }) });
    expect(body).toMatchObject({ state: "status", live: false, status: 502 });
    expect(methods).toEqual(["initialize"]);
  });
});

describe("bad ones: what was seen, and nobody waits for ever", () => {
  const HUGE = "x".repeat(60_000);
  test.each<[string, Record<string, Say>, object]>([
    [
      "no MCP server at all",
      { initialize: raw(404, "text/html", "<h1>no") },
      { state: "status", status: 404, says: "status 404" },
    ],
    ["a page for a welcome", { initialize: raw(200, "text/html", "<h1>hi") }, { state: "status", status: 502 }],
    [
      "a refused welcome",
      { initialize: fails(-32600) },
      { state: "status", status: 502, says: /-32600/, initialize_ms: expect.any(Number) },
    ],
    ["a welcome without a version", { initialize: json({}) }, { state: "status", status: 502 }],
    [
      "a welcome under another id",
      { initialize: raw(200, "application/json", answered(77, WELCOME)) },
      { state: "status", status: 502, initialize_ms: null },
    ],
    [
      "no answer to the welcome",
      { initialize: hang },
      { state: "silent", status: null, says: /timeout/, initialize_ms: null },
    ],
    ["a line that drops at the welcome", { initialize: drop }, { state: "silent" }],
    [
      "a wall before the tools",
      { initialize: raw(403, "text/plain", "no") },
      { state: "wall", wall: true, fault: "blocked" },
    ],
    [
      "a welcome past all bounds",
      { initialize: raw(200, "application/json", HUGE) },
      { state: "silent", says: /too_large/ },
    ],
    [
      "a tool that is not there",
      { "tools/list": json({ tools: [{ name: "sub" }] }) },
      { state: "status", status: 404, tool_present: false, says: /does not name add/ },
    ],
    ["a list that cannot be had", { "tools/list": fails(-32601) }, { state: "asked", live: true, tool_present: null }],
    [
      "a list past all bounds",
      { "tools/list": raw(200, "application/json", HUGE) },
      { state: "asked", tool_present: null },
    ],
    [
      "a list without end",
      { "tools/list": json({ tools: [], nextCursor: "more" }) },
      { state: "asked", tool_present: null },
    ],
    [
      "a list of nonsense",
      { "tools/list": json({ tools: [null, 1, "add", { name: 1 }] }) },
      { state: "status", status: 404, tool_present: false },
    ],
    [
      "no answer to the call",
      { "tools/call": hang },
      { state: "silent", live: false, initialize_ms: expect.any(Number) },
    ],
    ["a call that drops", { "tools/call": drop }, { state: "silent", live: false }],
    [
      "a call answered under another id",
      { "tools/call": raw(200, "application/json", answered(99, unpaid)) },
      { state: "status", status: 502, says: /no answer to our question/ },
    ],
    [
      "our question sent back",
      { "tools/call": (one, response) => response.end(JSON.stringify({ ...one, headers: undefined })) },
      { state: "status", status: 502 },
    ],
    [
      "half an answer",
      { "tools/call": raw(200, "application/json", (one) => answered(one.id, unpaid).slice(0, 60)) },
      { state: "status", status: 502 },
    ],
    [
      "an accepted call that never is answered",
      { "tools/call": raw(202, "text/plain", "") },
      { state: "status", status: 502 },
    ],
    ["a huge answer", { "tools/call": raw(200, "application/json", HUGE) }, { state: "silent", says: /too_large/ }],
    [
      "a tool that fails",
      { "tools/call": json({ isError: true, content: [{ type: "text", text: "no database" }] }) },
      { state: "status", status: 500, says: /no database/ },
    ],
    ["an error of the server", { "tools/call": fails(-32603) }, { state: "status", status: 500, says: /-32603/ }],
    ["a code that asks and terms that do not", { "tools/call": fails(-32042, {}) }, { state: "status", status: 500 }],
    [
      "terms that nobody can pay",
      { "tools/call": json({ isError: true, structuredContent: toolTerms([{}]), content: [] }) },
      { state: "malformed", live: false, status: 402 },
    ],
    [
      "a tool that is free",
      { "tools/call": json({ structuredContent: { sum: 3 }, content: [] }) },
      { state: "free", live: true, status: 200 },
    ],
  ])("%s", async (_name, change, wanted) => {
    const { says: words, ...rest } = wanted as { says?: string | RegExp };
    const { body } = await probeWith(change);
    expect(body).toMatchObject(rest);
    if (words) expect(body.says).toMatch(words);
  });
});

describe("other forms of the same demand", () => {
  test.each<[string, Say]>([
    [
      "terms as the text of the result",
      json({ isError: true, content: [{ type: "text", text: JSON.stringify(toolTerms()) }] }),
    ],
    ["an error 402 with the terms as its data", fails(402, toolTerms())],
    ["an error of another code with the terms as its data", fails(-32000, toolTerms())],
    [
      "Cloudflare's member of the result",
      json({
        isError: true,
        _meta: { "x402/error": toolTerms() },
        content: [{ type: "text", text: "PAYMENT_REQUIRED" }],
      }),
    ],
    [
      "another member of the result",
      json({ isError: true, _meta: { "x402/payment-required": toolTerms() }, content: [] }),
    ],
    [
      "an error in the text of the result",
      json({
        isError: true,
        content: [
          { type: "text", text: "Payment required" },
          { type: "text", text: JSON.stringify({ "x402/error": { code: 402, data: toolTerms() } }) },
        ],
      }),
    ],
    ["x402's extension binding", json({ resultType: "payment_required", paymentRequired: toolTerms() })],
    [
      "the same beside a settlement that failed",
      json({
        resultType: "payment_required",
        paymentRequired: toolTerms(),
        _meta: { "x402/payment-response": { success: false } },
      }),
    ],
    ["terms that are not called an error", json({ structuredContent: toolTerms(), content: [] })],
    ["mpp's code with x402 terms beside it", fails(-32042, { challenges: [], x402: toolTerms() })],
    ["a stream of events", sse((one) => `event: message\ndata: ${answered(one.id, unpaid)}\n\n`)],
    [
      "a stream with other talk before it",
      sse(
        (one) =>
          `: hello\n\ndata: {"jsonrpc":"2.0","method":"notifications/progress","params":{}}\n\ndata: {"jsonrpc":"2.0","id":${one.id},"method":"sampling/createMessage"}\n\nid: 7\r\ndata: ${answered(one.id, unpaid)}\r\n\r\n`,
      ),
    ],
    [
      "an event in several lines",
      sse(
        (one) =>
          `${JSON.stringify({ jsonrpc: "2.0", id: one.id, result: unpaid }, null, 1)
            .split("\n")
            .map((line) => `data: ${line}`)
            .join("\n")}\n\n`,
      ),
    ],
    ["a batch", raw(200, "application/json", (one) => `[{"jsonrpc":"2.0","method":"x"},${answered(one.id, unpaid)}]`)],
    [
      "a stream that stays open after the answer",
      (one, response) => {
        response.writeHead(200, { "content-type": "text/event-stream" });
        response.write(`data: ${answered(one.id, unpaid)}\n\n`);
      },
    ],
  ])("%s", async (_name, say) => {
    const { body, read } = await probeWith({ "tools/call": say });
    expect(body).toMatchObject({ state: "asked", live: true, price: "0.010000" });
    expect(read?.payable).not.toBeNull();
  });

  const challenges = [
    {
      id: "1",
      realm: "shop",
      method: "evm",
      intent: "charge",
      request: {
        amount: "5",
        currency: "0x036cbd53842c5426634e7929541ec2318f3dcf7e",
        recipient: "0x209693bc6afc0c5328ba36faf03c514ef312287c",
        methodDetails: { chainId: 84532, credentialTypes: ["authorization"] },
      },
    },
    { id: "2", realm: 'a "quoted" shop', method: "tempo", intent: "charge", request: "eyJhbW91bnQiOiI1In0" },
  ];
  test.each<[string, Say]>([
    ["mpp's error", fails(-32042, { httpStatus: 402, challenges })],
    ["mpp's error of a payment that did not do", fails(-32043, { challenges })],
    [
      "mpp's result",
      json({ isError: true, content: [], _meta: { "org.paymentauth/payment-required": { challenges } } }),
    ],
  ])("%s is kept as data and never paid", async (_name, say) => {
    const { body, read } = await probeWith({ "tools/call": say });
    expect(body).toMatchObject({ state: "asked", live: true, price: null, terms: { protocols: ["mpp"] } });
    expect(body.terms!.offers.map((one) => [one.scheme, one.amount_atomic, one.payable])).toEqual([
      ["evm/charge", "5", false],
      ["tempo/charge", "5", false],
    ]);
    expect(read?.payable).toBeNull();
  });

  test("a paywall of the HTTP server in front of the tools is read, and not paid in a call", async () => {
    const header = Buffer.from(JSON.stringify(toolTerms())).toString("base64");
    const wall: Say = (_got, response) => response.writeHead(402, { "payment-required": header }).end("{}");
    for (const step of ["initialize", "tools/call"]) {
      const { body, read } = await probeWith({ [step]: wall });
      expect(body).toMatchObject({ state: "asked", status: 402, terms: { protocols: ["x402"] } });
      expect(read?.payable).toBeNull();
    }
  });
});

test("a tool of which nothing is known is asked with what its own list says it takes", async () => {
  const blind = makeToolRequest(url, "add", { kind: "synthetic", example: { body: {} }, known: null });
  const { read } = await probeWith({}, blind);
  expect(got[3]!.params.arguments).toEqual({ a: 1 });
  expect(read?.declared).toMatchObject({ inputIn: "body", inputSchema: { required: ["a"] } });
});

describe("the paid call", () => {
  const payment = Buffer.from(JSON.stringify({ x402Version: 2, payload: { nonce: "0x1" } })).toString("base64");
  const paid = (change: Record<string, Say>, totalMs = 30_000, paymentForm?: PaymentForm, stock?: string) => {
    says = { ...good, ...change };
    return callTool(egress, { url, tool: request().tool!, profile: "paid", totalMs, payment, paymentForm, stock });
  };

  test("carries the payment in its call and nowhere else, and asks for no list", async () => {
    const { result, recordMembers: seen } = await paid({
      "tools/call": json({
        structuredContent: { sum: 3 },
        content: [],
        _meta: { "x402/payment-response": { success: true } },
      }),
    });
    expect(got.map((one) => one.method)).toEqual(["initialize", "notifications/initialized", "tools/call"]);
    expect(got.map((one) => one.params?._meta)).toEqual([
      undefined,
      undefined,
      { "x402/payment": { x402Version: 2, payload: { nonce: "0x1" } } },
    ]);
    expect(result).toMatchObject({ outcome: "answered", status: 200 });
    expect(JSON.parse(Buffer.from(result.body!).toString())).toEqual({ sum: 3 });
    expect(Buffer.from(result.raw!).toString()).toContain('"jsonrpc"');
    expect(result.headers!["payment-response"]).toBe(Buffer.from('{"success":true}').toString("base64"));
    expect(seen).toMatchObject({ tool: "add", tool_present: null });
  });

  /**
   * A seller that takes payments only as a string: `JSON.parse(atob(token))` of cloudflare/agents
   * (packages/agents/src/mcp/x402.ts), `exact.evm.decodePayment(z.string().parse(payment))` of x402-mcp.
   */
  const takesString =
    (demand: object): Say =>
    (call, response) => {
      const token = (call.params._meta as Record<string, unknown> | undefined)?.["x402/payment"];
      const isPaid = typeof token === "string" && JSON.parse(atob(token)).x402Version === 2;
      json(isPaid ? { content: [{ type: "text", text: "sunny" }] } : demand)(call, response);
    };
  const cloudflares = {
    ...{ isError: true, _meta: { "x402/error": toolTerms() } },
    content: [{ type: "text", text: JSON.stringify(toolTerms()) }],
  };
  const sentPayments = () =>
    got
      .filter((one) => one.method === "tools/call")
      .map((one) => (one.params._meta as Record<string, unknown>)["x402/payment"]);

  test("goes as a string to a seller whose demand has cloudflare's form", async () => {
    const says = { "tools/call": takesString(cloudflares) };
    const { paymentForm: form } = await probeWith(says);
    expect(form).toBe("string");
    got.length = 0;
    const { result, recordMembers: members } = await paid(says, 30_000, form);
    expect([result.status, Buffer.from(result.body!).toString()]).toEqual([200, "sunny"]);
    expect(sentPayments()).toEqual([payment]);
    expect(members.payment_forms).toEqual(["string"]);
    expect(() => BODIES["mcp.paid"].parse({ of: "rec_1", ...members })).not.toThrow();
  });

  test("is sent once more as a string, with the same signature, after a demand of the transport's form", async () => {
    const says = { "tools/call": takesString(unpaid) };
    const { paymentForm: form } = await probeWith(says);
    expect(form).toBe("object");
    got.length = 0;
    const { result, recordMembers: members } = await paid(says, 30_000, form);
    expect([result.status, Buffer.from(result.body!).toString()]).toEqual([200, "sunny"]);
    expect(sentPayments()).toEqual([JSON.parse(atob(payment)), payment]);
    expect(members.payment_forms).toEqual(["object", "string"]);
  });

  test("is sent in two forms at the most, and the demand that refused it stays the answer", async () => {
    const { result, recordMembers: members } = await paid({ "tools/call": json(unpaid) });
    expect(result).toMatchObject({ outcome: "answered", status: 402 });
    expect(sentPayments()).toEqual([JSON.parse(atob(payment)), payment]);
    expect(members.payment_forms).toEqual(["object", "string"]);
  });

  test("is sent in one form by a blind call: no other client sends it again, so the seller would know whose it is", async () => {
    for (const form of ["object", "string"] as const) {
      got.length = 0;
      const { result, recordMembers: members } = await paid({ "tools/call": json(unpaid) }, 30_000, form, "blind");
      expect([result.status, members.payment_forms, sentPayments().length]).toEqual([402, [form], 1]);
    }
  });

  test("is sent in one form where the tool fails: it may have taken the payment", async () => {
    const { result, recordMembers: members } = await paid({
      "tools/call": json({ isError: true, content: [{ type: "text", text: "out of order" }] }),
    });
    expect(result).toMatchObject({ outcome: "answered", status: 500 });
    expect(members.payment_forms).toEqual(["object"]);
  });

  test("an answer that was paid for may hold terms, as a tool does that looks up others", async () => {
    const _meta = { "x402/payment-response": { success: true } };
    const { result } = await paid({ "tools/call": json({ structuredContent: toolTerms(), content: [], _meta }) });
    expect(result).toMatchObject({ outcome: "answered", status: 200 });
  });

  test("a server that never says welcome never sees the payment", async () => {
    const { result } = await paid({ initialize: hang });
    expect(result).toMatchObject({ outcome: "timeout" });
    expect(got.map((one) => one.method)).toEqual(["initialize"]);
  });

  test.each<[string, unknown, string]>([
    ["text", { content: [{ type: "text", text: "sunny" }] }, "sunny"],
    [
      "several parts",
      {
        content: [
          { type: "text", text: "a" },
          { type: "text", text: "b" },
        ],
      },
      '[{"type":"text","text":"a"},{"type":"text","text":"b"}]',
    ],
    ["nothing", { content: [] }, ""],
    ["JSON in a text", { content: [{ type: "text", text: '{"sum":3}' }] }, '{"sum":3}'],
  ])("an answer of %s", async (_name, result, body) => {
    const answer = (await paid({ "tools/call": json(result) })).result;
    expect(Buffer.from(answer.body!).toString()).toBe(body);
    expect(answer.headers!["content-type"]).toBe(/^[[{]/.test(body) ? "application/json" : "text/plain");
  });

  test("all of it stays within its time, however slowly each step is answered", async () => {
    const slow =
      (say: Say): Say =>
      (one, response) =>
        void setTimeout(() => say(one, response), 300);
    const slowly = Object.fromEntries(Object.entries(good).map(([name, say]) => [name, slow(say)]));
    // Each step alone has the time that all of them take together.
    const { result } = await paid(slowly, 700);
    expect(result.outcome).toBe("timeout");
  });
});
