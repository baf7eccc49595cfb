import { Client, type JSONRPCMessage } from "@modelcontextprotocol/client";
import { x402Client, x402HTTPClient } from "@x402/core/client";
import { isPaymentRequired } from "@x402/core/schemas";
import { registerExactEvmScheme } from "@x402/evm/exact/client";
import { wrapFetchWithPayment } from "@x402/fetch";
import { evm, Mppx } from "mppx/client";
import { McpClient } from "mppx/mcp/client";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import type { Guard } from "../../serving/client/index.ts";
import { guardClient, guardedFetch, guardTools, mppxChallenge } from "../../serving/client/index.ts";

/** The real wallets, with the library's guard between them and a demand, and what they signed. */

/** What one signature lets the seller take. */
export interface Signed {
  network: string;
  asset: string;
  amount: bigint;
  payTo: string;
  /** Unix seconds until which it is good. */
  until: number;
}

interface TypedData {
  domain: { chainId?: unknown; verifyingContract?: unknown };
  primaryType: string;
  message: Record<string, unknown>;
}

function readTyped({ domain, primaryType, message }: TypedData): Signed {
  const network = `eip155:${BigInt(domain.chainId as string)}`;
  const lower = (value: unknown): string => String(value).toLowerCase();
  if (primaryType === "PermitWitnessTransferFrom") {
    const { permitted, witness, deadline } = message as Record<string, Record<string, unknown>>;
    const [asset, amount] = [lower(permitted!.token), BigInt(permitted!.amount as bigint)];
    return { network, asset, amount, payTo: lower(witness!.to), until: Number(deadline) };
  }
  return {
    ...{ network, asset: lower(domain.verifyingContract), amount: BigInt(message.value as bigint) },
    ...{ payTo: lower(message.to), until: Number(message.validBefore) },
  };
}

const key = privateKeyToAccount(generatePrivateKey());

/** An account that writes down what it signed. */
function accountInto(signed: Signed[]) {
  const signTypedData: typeof key.signTypedData = async (data) => {
    const signature = await key.signTypedData(data);
    signed.push(readTyped(data as never));
    return signature;
  };
  return { ...key, signTypedData };
}

const official = (signed: Signed[]): x402Client =>
  registerExactEvmScheme(new x402Client(), { signer: accountInto(signed) }).setSpendControls(false);

const methodsOf = (signed: Signed[]) => [
  evm.charge({ account: accountInto(signed), authorization: { name: "USD Coin", version: "2" } }),
];

/** An answer with status 402. */
export interface Demand402 {
  headers: Record<string, string>;
  body: string | Uint8Array<ArrayBuffer>;
}

export const URL_ASKED = "https://seller.example/sum";
const paidFor = (): Response => new Response("{}", { headers: { "content-type": "application/json" } });
const PAYS = ["payment-signature", "x-payment", "authorization"];

/** A seller: 402 until something like a payment comes. */
const seller =
  ({ headers, body }: Demand402): typeof fetch =>
  async (input, init) => {
    const sent = new Headers(init?.headers ?? (input instanceof Request ? input.headers : undefined));
    return PAYS.some((name) => sent.has(name)) ? paidFor() : new Response(body, { status: 402, headers });
  };

type Run<D> = (demand: D, guard: Guard, signed: Signed[]) => Promise<unknown>;

/** Wallets over HTTP. */
export const OVER_HTTP: Record<string, Run<Demand402>> = {
  "official client over guardedFetch": (demand, guard, signed) =>
    wrapFetchWithPayment(guardedFetch(guard, {}, seller(demand)), official(signed))(URL_ASKED),
  "official client with guardClient": (demand, guard, signed) =>
    wrapFetchWithPayment(seller(demand), guardClient(new x402HTTPClient(official(signed)), guard))(URL_ASKED),
  "mppx over guardedFetch": (demand, guard, signed) =>
    Mppx.create({
      fetch: guardedFetch(guard, {}, seller(demand)),
      ...{ methods: methodsOf(signed), polyfill: false },
    }).fetch(URL_ASKED),
  "mppx with mppxChallenge": (demand, guard, signed) =>
    Mppx.create({
      fetch: seller(demand),
      ...{ methods: methodsOf(signed), polyfill: false, onChallenge: mppxChallenge(guard, URL_ASKED) },
    }).fetch(URL_ASKED),
};

/** What came back to a `tools/call`. */
export type ToolReply = { result: unknown } | { error: { code: number; message: string; data?: unknown } };

const isPaid = (params: unknown): boolean =>
  /"(?:x402\/payment|org\.paymentauth\/credential)":/.test(JSON.stringify(params ?? {}));
const DONE = { content: [{ type: "text", text: "42" }] };

/** The protocol's own client, connected to a server that answers each call of a tool with this reply until it is paid. */
async function connected(reply: ToolReply): Promise<Client> {
  const client = new Client({ name: "test", version: "1.0.0" });
  const transport = {
    onmessage: undefined as ((message: JSONRPCMessage) => void) | undefined,
    start: async () => {},
    close: async () => {},
    send: async (message: JSONRPCMessage) => {
      if (!("id" in message) || !("method" in message)) return;
      const { id, method, params } = message;
      const welcome = {
        protocolVersion: "2025-11-25",
        capabilities: { tools: {} },
        serverInfo: { name: "s", version: "1" },
      };
      const said = method === "initialize" ? { result: welcome } : isPaid(params) ? { result: DONE } : reply;
      queueMicrotask(() => transport.onmessage?.({ jsonrpc: "2.0", id, ...said } as never));
    },
  };
  await client.connect(transport as never);
  return client;
}

type Caller = { callTool(call: { name: string; _meta?: object }): Promise<unknown> };

async function guarded(reply: ToolReply, guard: Guard): Promise<Caller> {
  return guardTools(await connected(reply), guard, URL_ASKED) as Caller;
}

/** Terms that a reading found are paid as the official client pays. */
const payFor = (terms: unknown, signed: Signed[]) => official(signed).createPaymentPayload(terms as never);

/**
 * x402's MCP transport, read as `@x402/mcp` publishes it (the package is not installed): of a result that is an error the
 * structured content, else the JSON of its first text; the data of an error 402.
 */
const x402Mcp: Run<ToolReply> = async (reply, guard, signed) => {
  const caller = await guarded(reply, guard);
  let found: unknown;
  try {
    const result = (await caller.callTool({ name: "add" })) as Record<string, unknown>;
    if (result.isError !== true) return;
    const [first] = result.content as { text?: string }[];
    found = isPaymentRequired(result.structuredContent) ? result.structuredContent : JSON.parse(first?.text ?? "");
  } catch (error) {
    const { code, data } = error as { code?: unknown; data?: unknown };
    if (code === 402) found = data;
  }
  if (isPaymentRequired(found)) await payFor(found, signed);
};

/** Cloudflare's agents as they publish it (`withX402Client`; not installed): `_meta["x402/error"]` of an error. */
const cloudflare: Run<ToolReply> = async (reply, guard, signed) => {
  const result = (await (await guarded(reply, guard)).callTool({ name: "add" })) as Record<string, unknown>;
  const found = (result._meta as Record<string, unknown> | undefined)?.["x402/error"] as Record<string, unknown>;
  if (result.isError !== true || !Array.isArray(found?.accepts) || found.accepts.length === 0) return;
  const { accepts, resource = { url: "" }, extensions } = found;
  await payFor({ x402Version: found.x402Version ?? 2, resource, accepts, extensions }, signed);
};

/** Clients that ask not whether it is an error: terms in the structured content, else in the first text. */
const lenient: Run<ToolReply> = async (reply, guard, signed) => {
  const result = (await (await guarded(reply, guard)).callTool({ name: "add" })) as Record<string, unknown>;
  const [first] = (result.content ?? []) as { text?: string }[];
  const terms = result.structuredContent ?? JSON.parse(first?.text ?? "");
  if (Array.isArray((terms as { accepts?: unknown }).accepts)) await payFor(terms, signed);
};

const RPC = { method: "POST", headers: { accept: "application/json, text/event-stream" } };
const CALL = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "add" } });

/** mppx's fetch under an MCP client: the demand comes with status 200. */
const mppxOver =
  (type: string, frame: (json: string) => string): Run<ToolReply> =>
  (reply, guard, signed) => {
    const serve: typeof fetch = async (_input, init) => {
      const said = isPaid(JSON.parse(String(init?.body))) ? { result: DONE } : reply;
      const text = frame(JSON.stringify({ jsonrpc: "2.0", id: 1, ...said }));
      return new Response(text, { headers: { "content-type": type } });
    };
    const fetching = Mppx.create({
      fetch: guardedFetch(guard, {}, serve),
      ...{ methods: methodsOf(signed), polyfill: false },
    });
    return fetching.fetch(URL_ASKED, { ...RPC, body: CALL });
  };

/** Wallets over MCP. */
export const OVER_MCP: Record<string, Run<ToolReply>> = {
  "mppx around guardTools": async (reply, guard, signed) => {
    const client = McpClient.wrap((await guarded(reply, guard)) as never, { methods: methodsOf(signed) });
    return (client as Caller).callTool({ name: "add" });
  },
  "mppx's fetch, JSON": mppxOver("application/json", (json) => json),
  "mppx's fetch, events": mppxOver(
    "text/event-stream",
    (json) => `: hello\r\n\r\ndata:\n\nevent: message\ndata: ${json}\n\n`,
  ),
  "x402's MCP transport around guardTools": x402Mcp,
  "Cloudflare's reading around guardTools": cloudflare,
  "a lenient reading around guardTools": lenient,
};
