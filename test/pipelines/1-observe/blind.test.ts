import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { createMcpHandler, McpServer, WebStandardStreamableHTTPServerTransport } from "@modelcontextprotocol/server";
import { ExactEvmScheme } from "@x402/evm/exact/client";
import { wrapFetchWithPayment, x402Client } from "@x402/fetch";
import { evm, Mppx } from "mppx/client";
import { privateKeyToAccount } from "viem/accounts";
import { afterEach, describe, expect, test } from "vitest";
import { z } from "zod";
import { resolveTo, whyNotBindable } from "../../../infra/egress/address.ts";
import { createEgress } from "../../../infra/egress/create.ts";
import { ownLoop } from "../../../infra/loop-watch.ts";
import { signExact } from "../../../infra/rails/evm.ts";
import { callTool } from "../../../pipelines/1-observe/mcp/session.ts";
import { STOCK_CLIENT, stockHeaders } from "../../../pipelines/1-observe/probe/stock.ts";
import { POOLS } from "../../../pipelines/1-observe/queue.ts";
import { planDay } from "../../helpers/plan-day.ts";
import { END, firstPaidOnly, listAndPlan, START, salt } from "./day.ts";
import { sumOfTool, toolItem, toolSeller, toolTerms, unpaidTool } from "./other-protocols.ts";
import { type Leg, pairs, realSeller } from "./real-seller.ts";
import {
  ASSET,
  answer,
  CAPS,
  DAY,
  entry,
  type FakeRail,
  fakeWorld,
  type Handler,
  item,
  NETWORK,
  PAY_TO,
  terms402,
  wellKnown,
} from "./world.ts";

const OURS = "touchstone (+https://us.example)";
/** Elsewhere than on Linux the loopback network has one address. */
const several = (await whyNotBindable("127.0.0.3")) === null;
const KNOWN = several ? "127.0.0.2" : "127.0.0.1";
const BLIND = several ? ["127.0.0.3", "127.0.0.4"] : ["127.0.0.1"];
const account = privateKeyToAccount(`0x${"11".repeat(32)}`);

const open: { close(): unknown }[] = [];
afterEach(async () => {
  for (const thing of open.splice(0).reverse()) await thing.close();
});
const keep = <T extends { close(): unknown }>(thing: T): T => {
  open.push(thing);
  return thing;
};

const egressHere = () =>
  keep(
    createEgress({
      allowLoopback: true,
      userAgent: OURS,
      pools: POOLS,
      resolve: resolveTo("127.0.0.1"),
      sources: { declared: [KNOWN], stock: BLIND },
    }),
  );

/** One paid call of one seller over real sockets, known or blind: what reached it, from the call's first leg on. */
async function paidCall(blind: boolean, behave: (rail: FakeRail) => Handler) {
  const fake = fakeWorld();
  const egress = egressHere();
  const observer = fake.restart({ controlUrls: [] }, { egress, loop: ownLoop });
  const seller = keep(await realSeller(behave(fake.rail)));
  const origin = `http://seller.test:${seller.port}`;
  await observer.intakeSeller(origin);
  expect(seller.legs.length).toBeGreaterThan(0);
  for (const leg of seller.legs.splice(0)) expect([leg.from, linesOf(leg)["user-agent"]]).toEqual([KNOWN, OURS]);
  const plan = firstPaidOnly(planDay({ day: DAY, salt, listed: await fake.memory.listed(), caps: CAPS, now: START }));
  const lines = plan.lines.map((line) => ({ ...line, calls: line.calls.map((call) => ({ ...call, blind })) }));
  const report = await observer.observeSpan({ ...plan, lines }, START, END);
  expect(report).toMatchObject({ paid: 1, broken: 0 });
  expect(fake.log.bodies("paid.result")).toMatchObject([{ delivered: true, fault: null }]);
  return { ...fake, seller, legs: [...seller.legs] };
}

const linesOf = (leg: Leg): Record<string, string> =>
  Object.fromEntries(leg.headers.map(([name, value]) => [name.toLowerCase(), value]));

/** Everything in a request as text, with what is packed in base64 unpacked. */
const textOf = (leg: Leg): string => {
  const unpacked = leg.headers.map(([, value]) => Buffer.from(value, "base64").toString("latin1"));
  return JSON.stringify([leg, unpacked]);
};

/** What two requests have in common if the same client sent both: all but the payment and where the server listens. */
const shape = ({ method, headers, body }: Leg) => ({
  method,
  headers: headers.map(([name, value]) => [
    name,
    /^payment-signature|^x-payment$|^authorization$|^host$/i.test(name) ? "" : value,
  ]),
  body,
});

/** Sells to anybody who brings something that looks like a payment; the fake rail settles its own. */
const anyPayment =
  (rail: FakeRail, listed: Record<string, unknown>, accepts?: unknown[]): Handler =>
  (asked) => {
    if (new URL(asked.url).pathname === "/.well-known/x402") return answer(200, wellKnown(item(listed)));
    if (asked.payment === undefined) return terms402(accepts);
    const own = JSON.parse(Buffer.from(asked.payment, "base64").toString());
    if (own.nonce) rail.settle(asked.payment);
    const from = (asked.json ?? Object.fromEntries(new URL(asked.url).searchParams)) as { a: string; b: string };
    return answer(200, { sum: Number(from.a) + Number(from.b) });
  };

const body = { method: "POST", example: { body: { a: 1, b: 2 } } };
const SELLERS: [string, (rail: FakeRail) => Handler][] = [
  ["GET", (rail) => anyPayment(rail, {})],
  ["POST", (rail) => anyPayment(rail, body)],
  // Its own listing is read again between the legs.
  ["GET, and another price than it lists", (rail) => anyPayment(rail, {}, [entry({ amount: "20000" })])],
  ["a tool", (rail) => toolSeller(rail)],
];

describe.each(SELLERS)("%s", (_, behave) => {
  test("a blind call names us in no leg, and both legs leave from one of the blind addresses", async () => {
    const { legs } = await paidCall(true, behave);
    expect(legs.length).toBeGreaterThanOrEqual(2);
    for (const leg of legs) {
      expect(textOf(leg)).not.toMatch(/touchstone|us\.example/i);
      expect(linesOf(leg)).toMatchObject({ "user-agent": "node", connection: "keep-alive", "sec-fetch-mode": "cors" });
    }
    expect(new Set(legs.map(({ from }) => from)).size).toBe(1);
    expect(BLIND).toContain(legs[0]!.from);
  });

  test("a known call says whose it is in every leg, from the known address", async () => {
    const { legs } = await paidCall(false, behave);
    for (const leg of legs) expect([leg.from, linesOf(leg)["user-agent"]]).toEqual([KNOWN, OURS]);
  });
});

test.each([
  ["GET", {}],
  ["POST", body],
])("the legs of a blind %s call are those of @x402/fetch", async (_, listed) => {
  const { legs, seller } = await paidCall(true, (rail) => anyPayment(rail, listed));
  seller.legs.length = 0;
  const client = new x402Client().register("eip155:*", new ExactEvmScheme(account));
  const [{ url, method, body: text }] = legs as [Leg];
  const request = text === "" ? {} : { body: text, headers: { "Content-Type": "application/json" } };
  const at = url.replace("seller.test", "127.0.0.1");
  const paid = await wrapFetchWithPayment(fetch, client)(at, { method, ...request });
  expect(paid.status).toBe(200);
  expect(legs.map(shape)).toEqual(seller.legs.map(shape));
});

test("what is signed has the members of the stock client's payment, in their order", async () => {
  const client = new x402Client().register("eip155:*", new ExactEvmScheme(account));
  const resource = { url: "https://seller.example/sum" };
  const extensions = { x: {} };
  const theirs = await client.createPaymentPayload({
    x402Version: 2,
    resource,
    accepts: [entry()],
    extensions,
  } as never);
  const payable = { x402Version: 2, scheme: "exact", network: NETWORK, asset: ASSET, payTo: PAY_TO } as const;
  const terms = { amountAtomic: 10_000n, maxTimeoutSeconds: 60, extra: entry().extra, raw: entry() };
  const wallet = { address: account.address, privateKey: `0x${"11".repeat(32)}` };
  const { headerValue } = await signExact({ ...payable, ...terms }, wallet, { resource, extensions });
  const ours = JSON.parse(Buffer.from(headerValue, "base64").toString());
  const members = (value: unknown): unknown =>
    typeof value === "object" && value !== null ? Object.entries(value).map(([name, one]) => [name, members(one)]) : 0;
  expect(members(ours)).toEqual(members(theirs));
});

test("a blind call's mpp payment is spelt as mppx spells it", async () => {
  const legs: Leg[] = [];
  const details = { chainId: Number(NETWORK.slice(7)), credentialTypes: ["authorization"], decimals: 6 };
  const charge = { amount: "10000", currency: ASSET, recipient: PAY_TO, methodDetails: details };
  const request = Buffer.from(JSON.stringify(charge)).toString("base64url");
  const seller = keep(
    await realSeller((asked) => {
      const challenge = `Payment id="a", realm="r", method="evm", intent="charge", request="${request}"`;
      return asked.payment ? answer(200, {}) : answer(402, {}, { "www-authenticate": challenge });
    }),
  );
  const pay = Mppx.create({
    methods: [evm({ account, authorization: { name: "USDC", version: "2" } })],
    polyfill: false,
  } as never);
  await pay.fetch(`http://127.0.0.1:${seller.port}/x`);
  legs.push(...seller.legs.splice(0));
  const payment = { header: "AUTHORIZATION", value: "Payment x" };
  const egress = egressHere();
  const headers = stockHeaders({ headers: {} }, payment);
  await egress.fetch({ url: `http://127.0.0.1:${seller.port}/x`, method: "GET", headers, profile: "paid", stock: "a" });
  // mppx names on both legs what it can pay; ours knows nothing of the seller on the first and names nothing on either.
  const theirs = legs[1]!.headers.filter(([name]) => name !== "Accept-Payment");
  expect(shape(seller.legs[0]!)).toEqual(shape({ ...legs[1]!, headers: theirs }));
});

/** The protocol's own MCP server, keeping every message that reached it. */
async function mcpServer() {
  const legs: Leg[] = [];
  const make = () => {
    const server = new McpServer({ name: "real", version: "1.0.0" });
    server.registerTool(
      "add",
      { inputSchema: z.object({ a: z.number(), b: z.number() }) },
      async ({ a, b }, { mcpReq }) => {
        if (mcpReq._meta?.["x402/payment"])
          return { content: [{ type: "text", text: JSON.stringify({ sum: a + b }) }] };
        return { isError: true, structuredContent: toolTerms(), content: [] };
      },
    );
    return server;
  };
  const sessions = new Map<string, WebStandardStreamableHTTPServerTransport>();
  const withSessions = async (request: Request): Promise<Response> => {
    const known = sessions.get(request.headers.get("mcp-session-id") ?? "");
    if (known) return known.handleRequest(request);
    const transport: WebStandardStreamableHTTPServerTransport = new WebStandardStreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      onsessioninitialized: (id) => void sessions.set(id, transport),
    });
    await make().connect(transport);
    return transport.handleRequest(request);
  };
  const without = createMcpHandler(make, { legacy: "reject" }).fetch;
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const text = Buffer.concat(chunks).toString();
    const url = `http://${request.headers.host}${request.url}`;
    const from = request.socket.remoteAddress!;
    legs.push({ method: request.method!, url, headers: pairs(request.rawHeaders), body: text, from });
    // The stream on which a server may speak unasked: this one has nothing to say.
    if (request.method === "GET") return response.writeHead(405).end();
    const headers = Object.entries(request.headers).map(([name, value]): [string, string] => [name, String(value)]);
    const asked = new Request(url, { method: request.method!, headers, ...(text ? { body: text } : {}) });
    const said = await (request.url === "/sessions" ? withSessions(asked) : without(asked));
    response.writeHead(said.status, Object.fromEntries(said.headers));
    return response.end(Buffer.from(await said.arrayBuffer()));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  keep({
    async close() {
      server.closeAllConnections();
      server.close();
    },
  });
  return { legs, origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
}

const PAYMENT = { x402Version: 2, payload: { nonce: "0x1" } };

/** Of an MCP leg, what two clients that are the same have in common: not the session's name, the count, the port. */
const rpcShape = (leg: Leg) => {
  const { headers, body: text } = shape(leg);
  const known = headers.map(([name, value]) => [
    name,
    name === "mcp-session-id" || name === "content-length" ? "" : value,
  ]);
  return {
    method: leg.method,
    headers: known,
    body: text && { ...JSON.parse(text), ...(/"id":/.test(text) && { id: 0 }) },
  };
};

describe.each(["/sessions", "/without"])("a tool of the protocol's own server, %s", (path) => {
  test("every message of both legs of a blind call is that of the protocol's own client", async () => {
    const { legs, origin } = await mcpServer();
    const url = `${origin}${path}`;
    const egress = egressHere();
    const ask = {
      url,
      tool: { name: "add", arguments: { a: 1, b: 2 }, isInputUnknown: false },
      totalMs: 20_000,
      stock: "a",
    };
    const unpaid = await callTool(egress, { ...ask, profile: "handshake" });
    expect(unpaid).toMatchObject({ isPayable: true, result: { status: 402 } });
    const payment = Buffer.from(JSON.stringify(PAYMENT)).toString("base64");
    const paid = await callTool(egress, { ...ask, profile: "paid", payment });
    expect(Buffer.from(paid.result.body!).toString()).toBe('{"sum":3}');
    const ours = legs.splice(0);
    for (const leg of ours) {
      expect(textOf(leg)).not.toMatch(/touchstone/i);
      expect(BLIND).toContain(leg.from);
    }

    const versionNegotiation = path === "/without" ? { versionNegotiation: { mode: "auto" as const } } : {};
    const client = new Client(STOCK_CLIENT, versionNegotiation);
    const transport = new StreamableHTTPClientTransport(new URL(url));
    await client.connect(transport);
    await client.listTools();
    const call = { name: "add", arguments: { a: 1, b: 2 } };
    await client.callTool(call);
    await client.callTool({ ...call, _meta: { "x402/payment": PAYMENT } });
    await transport.terminateSession();
    await client.close();
    const theirs = legs.map(rpcShape);
    const first = ours.find((leg) => leg.body.includes('"initialize"'))!;
    for (const leg of ours) {
      // A server that keeps no sessions is first asked for one; the protocol's own client asks it what it speaks.
      if (path === "/without" && leg.body === first.body) continue;
      expect(theirs).toContainEqual(rpcShape(leg));
    }
  });
});

test("a tool's known call names us as the client", async () => {
  const { legs } = await paidCall(false, (rail) => toolSeller(rail, {}, toolItem()));
  const names = legs.flatMap(({ body: text }) =>
    text.includes("clientInfo") ? [JSON.parse(text).params.clientInfo.name] : [],
  );
  expect(names).toEqual(["touchstone", "touchstone"]);
});

test("a blind call that a tool answers with its demand again counts from when a known call showed the tool's form", async () => {
  const fake = fakeWorld();
  const refuses: Handler = (asked) => unpaidTool(asked);
  let paid: Handler = refuses;
  const seller = toolSeller(fake.rail, { paid: (asked, n) => paid(asked, n) });
  const plan = await listAndPlan(fake, seller);
  const calls = plan.lines[0]!.calls.filter(({ kind }) => kind === "paid");
  const call = async (n: number, blind: boolean) => {
    const lines = [{ ...plan.lines[0]!, calls: [{ ...calls[n]!, blind }] }];
    await fake.observer.observeSpan({ ...plan, lines }, START, END);
    const { fault, delivered, status } = fake.log.bodies("paid.result").at(-1)!;
    return { fault, delivered, status };
  };
  // The tool may take payments in the other form only, which the blind call does not try.
  expect(await call(0, true)).toEqual({ fault: "ours", delivered: false, status: 402 });
  paid = (asked) => {
    fake.rail.settle(asked.payment!);
    return sumOfTool(asked);
  };
  expect(await call(1, false)).toEqual({ fault: null, delivered: true, status: 200 });
  paid = refuses;
  expect(await call(2, true)).toEqual({ fault: null, delivered: false, status: 402 });
});
