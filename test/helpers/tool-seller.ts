import { createHash, randomBytes } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import {
  decodePaymentSignatureHeader,
  encodePaymentRequiredHeader,
  encodePaymentResponseHeader,
} from "@x402/core/http";
import type { PaymentPayload, PaymentRequirements } from "@x402/core/types";
import type { WorldInfo } from "../../commands/world.ts";
import { createFacilitator } from "../../infra/rails/facilitator.ts";
import { giveLocalGas } from "../../infra/rails/wallets.ts";

interface Rpc {
  id?: number;
  method: string;
  params?: { name?: string; arguments?: Record<string, unknown>; _meta?: Record<string, unknown> };
}

/** What a tool does with a call that is paid. `takes`: it settles the payment first. */
interface Kind {
  takes: boolean;
  /** The result of the call; null: the connection is broken off. */
  result: (args: Record<string, unknown>) => object | null;
  /**
   * The payment is taken only as base64 of its JSON, as sellers on cloudflare/agents (packages/agents/src/mcp/x402.ts)
   * and on x402-mcp take it. `cloudflare`: the demand is in `_meta` too.
   */
  asString?: "cloudflare" | "x402-mcp";
  /** What `initialize` comes to once its price was asked twice, as for one bought call. */
  welcome?: "refused" | "broken";
}

const sumOf = ({ a, b }: Record<string, unknown>): number => Number(a) + Number(b);
const asText = (text: string) => ({ content: [{ type: "text", text }] });

/** Tools by the last part of their server's path. */
export const TOOLS: Readonly<Record<string, Kind>> = {
  honest: { takes: true, result: (args) => ({ structuredContent: { sum: sumOf(args) }, ...asText("see structured") }) },
  "honest-text": { takes: true, result: (args) => asText(JSON.stringify({ sum: sumOf(args) })) },
  "honest-cloudflare": {
    takes: true,
    result: (args) => asText(JSON.stringify({ sum: sumOf(args) })),
    asString: "cloudflare",
  },
  "honest-x402-mcp": {
    takes: true,
    result: (args) => asText(JSON.stringify({ sum: sumOf(args) })),
    asString: "x402-mcp",
  },
  "fails-for-money": { takes: true, result: () => ({ isError: true, ...asText("out of order") }) },
  fails: { takes: false, result: () => ({ isError: true, ...asText("out of order") }) },
  "asks-again": { takes: false, result: () => ({ isError: true, structuredContent: "TERMS", content: [] }) },
  "another-form": { takes: true, result: () => ({ structuredContent: { total: "42" }, ...asText("{}") }) },
  "an-error-as-result": { takes: true, result: () => asText('{"error":"quota exceeded"}') },
  nothing: { takes: true, result: () => ({ content: [] }) },
  "breaks-off": { takes: true, result: () => null },
  "knows-nobody": { takes: false, result: () => null, welcome: "refused" },
  "hangs-up": { takes: false, result: () => null, welcome: "broken" },
};

const SCHEMA = { type: "object", required: ["sum"], properties: { sum: { type: "number" } } };
const INPUT = { type: "object", required: ["a", "b"], properties: { a: { type: "number" }, b: { type: "number" } } };

/**
 * Sellers of the market's chain that the market does not have: MCP servers with sessions at `/mcp/{kind}`, whose tool
 * `add` does what its kind says (`{kind}.{n}` for more of a kind), and a template at `/weather/{city}/{when}`. Each address pays another one.
 */
export async function toolSeller({ rpcUrl, chainId, asset }: WorldInfo) {
  const network = `eip155:${chainId}` as const;
  const facilitator = createFacilitator({ rpcUrl, network, sender: `0x${randomBytes(32).toString("hex")}` });
  await giveLocalGas(rpcUrl, facilitator.address);
  const payToOf = (name: string) => `0x${createHash("sha256").update(name).digest("hex").slice(0, 40)}`;
  const termsOf = (name: string): PaymentRequirements => ({
    ...{ scheme: "exact", network, amount: "10000", asset, payTo: payToOf(name), maxTimeoutSeconds: 60 },
    extra: { name: "USDC", version: "2" },
  });
  /** Calls that came with a payment, in their order; of a template its path with the query. */
  const called: { name: string; at: string; args: unknown; session: string | undefined }[] = [];
  const sessions = new Map<string, string>();
  const asked = new Map<string, number>();

  async function tool(name: string, request: IncomingMessage, response: ServerResponse, rpc: Rpc): Promise<void> {
    const kind = TOOLS[name.split(".")[0]!]!;
    const given = request.headers["mcp-session-id"] as string | undefined;
    const say = (result: unknown, headers = {}) =>
      response
        .writeHead(200, { "content-type": "text/event-stream", ...headers })
        .end(`event: message\ndata: ${JSON.stringify({ jsonrpc: "2.0", id: rpc.id, result })}\n\n`);
    const isKnown = given !== undefined && sessions.get(given) === name;
    if (rpc.method === "initialize") {
      if (kind.welcome && asked.get(name) === 2)
        return void (kind.welcome === "refused" ? response.writeHead(500).end("{}") : response.destroy());
      const id = randomBytes(8).toString("hex");
      sessions.set(id, name);
      const welcome = {
        protocolVersion: "2025-06-18",
        capabilities: { tools: {} },
        serverInfo: { name, version: "1" },
      };
      return void say(welcome, { "mcp-session-id": id });
    }
    if (!isKnown) return void response.writeHead(404).end();
    if (rpc.method === "notifications/initialized") return void response.writeHead(202).end();
    if (rpc.method === "tools/list")
      return void say({ tools: [{ name: "add", inputSchema: INPUT, outputSchema: SCHEMA }] });
    const { arguments: args = {}, _meta } = rpc.params!;
    const required = { x402Version: 2, error: "pay", resource: { url: "mcp://tool/add" }, accepts: [termsOf(name)] };
    const demand =
      kind.asString === "cloudflare"
        ? { isError: true, _meta: { "x402/error": required }, ...asText(JSON.stringify(required)) }
        : { isError: true, structuredContent: required, content: [] };
    const token = _meta?.["x402/payment"] as PaymentPayload | string | undefined;
    if (token !== undefined && kind.asString && typeof token !== "string") return void say(demand);
    const payment = typeof token === "string" && kind.asString ? (JSON.parse(atob(token)) as PaymentPayload) : token;
    if (typeof payment === "string") return void say(demand);
    if (typeof args.a !== "number") return void say({ isError: true, ...asText("Invalid arguments: a is no number") });
    if (!payment) {
      asked.set(name, (asked.get(name) ?? 0) + 1);
      return void say(demand);
    }
    called.push({ name, at: request.url!, args, session: given });
    const settled = kind.takes ? await facilitator.settle(payment, termsOf(name)) : null;
    if (settled && !settled.success) return void say(demand);
    const result = kind.result(args);
    if (result === null) return void response.destroy();
    say("structuredContent" in result && result.structuredContent === "TERMS" ? demand : result);
  }

  async function weather(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { pathname, search, searchParams } = new URL(request.url!, "http://seller");
    const [, , city, when] = pathname.split("/").map(decodeURIComponent);
    const terms = termsOf("weather");
    const header = request.headers["payment-signature"] as string | undefined;
    if (header === undefined) {
      const required = { x402Version: 2, resource: { url: `${origin}${pathname}` }, accepts: [terms] };
      return void response.writeHead(402, { "payment-required": encodePaymentRequiredHeader(required) }).end("{}");
    }
    called.push({ name: "weather", at: pathname + search, args: null, session: undefined });
    const settled = await facilitator.settle(decodePaymentSignatureHeader(header), terms);
    if (!settled.success) return void response.writeHead(402).end("{}");
    const headers = { "payment-response": encodePaymentResponseHeader(settled), "content-type": "application/json" };
    response
      .writeHead(200, headers)
      .end(JSON.stringify({ city, when, units: searchParams.get("units"), sky: "clear" }));
  }

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const [, first, name] = new URL(request.url!, "http://seller").pathname.split("/");
    if (first !== "mcp") return weather(request, response);
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    if (request.method !== "POST") return void response.writeHead(request.method === "DELETE" ? 200 : 405).end();
    await tool(name!, request, response, JSON.parse(Buffer.concat(chunks).toString("utf8")) as Rpc);
  }

  const server = createServer((request, response) => {
    answer(request, response).catch((error: Error) => response.writeHead(500).end(error.message));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const price = "0.010000";
  return {
    called,
    origin,
    /** What the record knows of a tool. */
    tool: (name: string) => ({
      ...{ url: `${origin}/mcp/${name}`, method: "POST" as const, tool: "add", payTo: payToOf(name), price },
    }),
    /** What it knows of the template. */
    weather: { url: `${origin}/weather/{city}/{when}?units={units}`, payTo: payToOf("weather"), price },
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
