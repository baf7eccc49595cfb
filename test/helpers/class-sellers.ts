import { createHash, randomBytes } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import {
  decodePaymentSignatureHeader,
  encodePaymentRequiredHeader,
  encodePaymentResponseHeader,
} from "@x402/core/http";
import type { PaymentRequirements } from "@x402/core/types";
import type { WorldInfo } from "../../commands/world.ts";
import { createFacilitator } from "../../infra/rails/facilitator.ts";
import { giveLocalGas } from "../../infra/rails/wallets.ts";

/** What was asked: the query, and the body as JSON. */
export interface Asked {
  query: Record<string, string>;
  body: unknown;
}

/** A seller of one path, which takes the money and answers what a test says. */
export interface ClassSeller {
  /** Class that its 402 names; absent: none. */
  class?: string;
  /** An example query, as its 402 shows it; absent: it shows none. */
  example?: Record<string, string>;
  /** Member of its answers, as the schema in its 402 has it; absent: there is no schema. */
  member?: string;
  method: "GET" | "POST";
  answer(asked: Asked): unknown;
}

const schemaOf = (member: string) => ({ type: "object", properties: { [member]: {} }, required: [member] });

async function jsonBody(request: IncomingMessage): Promise<unknown> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  const text = Buffer.concat(chunks).toString("utf8");
  return text === "" ? null : (JSON.parse(text) as unknown);
}

/**
 * Sellers of the market's chain that answer questions of classes which the market's own sellers do not know, rightly and
 * wrongly. Each path pays another address: a seller that failed is not bought from again.
 */
export async function classSellers(
  { rpcUrl, chainId, asset }: WorldInfo,
  sellers: Readonly<Record<string, ClassSeller>>,
) {
  const network = `eip155:${chainId}` as const;
  const facilitator = createFacilitator({ rpcUrl, network, sender: `0x${randomBytes(32).toString("hex")}` });
  await giveLocalGas(rpcUrl, facilitator.address);
  const payToOf = (name: string) => `0x${createHash("sha256").update(name).digest("hex").slice(0, 40)}`;

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { pathname, searchParams } = new URL(request.url!, "http://seller");
    const name = pathname.slice(1);
    const seller = sellers[name]!;
    const body = await jsonBody(request);
    const terms: PaymentRequirements = {
      ...{ scheme: "exact", network, amount: "10000", asset, payTo: payToOf(name), maxTimeoutSeconds: 60 },
      extra: { name: "USDC", version: "2" },
    };
    const header = request.headers["payment-signature"] as string | undefined;
    if (header === undefined) {
      const { class: named, example, member, method } = seller;
      const input = { type: "http", method, ...(example ? { queryParams: example } : {}) };
      const info = { ...(named ? { class: named } : {}), input, output: { type: "json" } };
      const schema = member ? { properties: { output: { properties: { example: schemaOf(member) } } } } : {};
      const required = {
        ...{ x402Version: 2, resource: { url: `${origin}${pathname}` }, accepts: [terms] },
        extensions: { bazaar: { info, schema } },
      };
      return void response.writeHead(402, { "payment-required": encodePaymentRequiredHeader(required) }).end("{}");
    }
    const settled = await facilitator.settle(decodePaymentSignatureHeader(header), terms);
    if (!settled.success) return void response.writeHead(402).end("{}");
    const said = seller.answer({ query: Object.fromEntries(searchParams), body });
    const headers = { "payment-response": encodePaymentResponseHeader(settled), "content-type": "application/json" };
    response.writeHead(200, headers).end(JSON.stringify(said));
  }

  const server = createServer((request, response) => {
    answer(request, response).catch((error: Error) => response.writeHead(500).end(error.message));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    origin,
    /** What the record knows of one of them. */
    spec: (name: string) => ({
      ...{ url: `${origin}/${name}`, method: sellers[name]!.method },
      ...{ payTo: payToOf(name), price: "0.010000", band: "A" as const },
    }),
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
