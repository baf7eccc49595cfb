import type { EgressResult } from "../../../infra/egress/egress.ts";
import {
  ASSET,
  type Asked,
  answer,
  entry,
  type FakeRail,
  type Handler,
  item,
  NETWORK,
  PAY_TO,
  terms402,
  wellKnown,
} from "./world.ts";

const base64url = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString("base64url");

/** One mpp challenge line; each has an id of its own, as mpp's server makes them. */
export function challenge(change: { params?: Record<string, string>; request?: object } = {}): string {
  const methodDetails = { chainId: Number(NETWORK.slice(7)), credentialTypes: ["authorization"], decimals: 6 };
  const request = { amount: "10000", currency: ASSET, recipient: PAY_TO, methodDetails, ...change.request };
  const params = { id: Math.random().toString(36), realm: "seller", method: "evm", intent: "charge" };
  const all = { ...params, request: base64url(request), ...change.params };
  return `Payment ${Object.entries(all)
    .map(([name, value]) => `${name}="${value}"`)
    .join(", ")}`;
}

export const mpp402 = (...lines: string[]): EgressResult =>
  answer(402, { title: "Payment Required" }, { "www-authenticate": (lines.length ? lines : [challenge()]).join(", ") });

const isList = (asked: Asked): boolean => new URL(asked.url).pathname === "/.well-known/x402";

/** Speaks mpp only; what it does with a payment is up to `paid`. */
export const mppSeller =
  (paid: Handler, unpaid: Handler = () => mpp402()): Handler =>
  (asked, n) => {
    if (isList(asked)) return answer(200, wellKnown(item({ accepts: undefined, x402Version: undefined })));
    return asked.payment === undefined ? unpaid(asked, n) : paid(asked, n);
  };

export const TOOL = "add";

export const toolItem = (change: Record<string, unknown> = {}) =>
  item({
    resource: "/mcp",
    type: "mcp",
    toolName: TOOL,
    method: undefined,
    example: { body: { a: 1, b: 2 } },
    ...change,
  });

type Rpc = { id?: number; method: string; params: { name?: string; arguments?: { a: number; b: number } } };
export const rpcOf = (asked: Asked): Rpc => asked.json as Rpc;
export const reply = (asked: Asked, result: unknown, headers = {}): EgressResult =>
  answer(200, { jsonrpc: "2.0", id: rpcOf(asked).id, result }, headers);

export const toolTerms = (accepts: unknown[] = [entry()]) => ({
  x402Version: 2,
  error: "Payment required",
  resource: { url: `mcp://tool/${TOOL}` },
  accepts,
});
export const unpaidTool = (asked: Asked): EgressResult =>
  reply(asked, { isError: true, structuredContent: toolTerms(), content: [] });
export const sumOfTool = (asked: Asked): EgressResult => {
  const { a, b } = rpcOf(asked).params.arguments!;
  return reply(asked, { structuredContent: { sum: a + b }, content: [] });
};

/** An MCP server with one paid tool; each message may be answered otherwise. */
export function toolSeller(rail: FakeRail, over: Partial<Record<string, Handler>> = {}, listed = toolItem()): Handler {
  const normal: Record<string, Handler> = {
    initialize: (asked) => reply(asked, { protocolVersion: "2025-06-18", capabilities: {}, serverInfo: { name: "x" } }),
    "notifications/initialized": () => answer(202, ""),
    "tools/list": (asked) => reply(asked, { tools: [{ name: TOOL, inputSchema: { type: "object" } }] }),
    unpaid: unpaidTool,
    paid: (asked) => {
      rail.settle(asked.payment!);
      return sumOfTool(asked);
    },
  };
  return (asked, n) => {
    if (isList(asked)) return answer(200, wellKnown(listed));
    if (!asked.json) return answer(405, "");
    const { method } = rpcOf(asked);
    const step = method === "tools/call" ? (asked.payment === undefined ? "unpaid" : "paid") : method;
    return (over[step] ?? normal[step])!(asked, n);
  };
}

/** Both protocols at once; the mpp side asks for less. */
export const both402 = (): EgressResult => {
  const x402 = terms402() as Extract<EgressResult, { outcome: "answered" }>;
  const headers = { ...x402.headers, "www-authenticate": challenge({ request: { amount: "500" } }) };
  return { ...x402, headers };
};
