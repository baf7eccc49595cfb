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

/**
 * A seller of the market's chain whose price, honesty and purse stand in its path,
 * `/{amount}/{honest|thief|broken}/{name}`: the market's own sellers are too cheap for an escrow. Each path pays
 * another address. A thief settles and answers 500, what is broken answers 500 and leaves the money.
 */
export async function dearSeller({ rpcUrl, chainId, asset }: WorldInfo) {
  const network = `eip155:${chainId}` as const;
  const facilitator = createFacilitator({ rpcUrl, network, sender: `0x${randomBytes(32).toString("hex")}` });
  await giveLocalGas(rpcUrl, facilitator.address);
  const payToOf = (path: string) => `0x${createHash("sha256").update(path).digest("hex").slice(0, 40)}`;
  /** Paths of payments that were settled, in their order. */
  const paid: string[] = [];

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = request.url!.split("?")[0]!;
    const [, amount, kind] = path.split("/");
    const terms: PaymentRequirements = {
      ...{ scheme: "exact", network, amount: amount!, asset, payTo: payToOf(path), maxTimeoutSeconds: 60 },
      extra: { name: "USDC", version: "2" },
    };
    const header = request.headers["payment-signature"] as string | undefined;
    if (header === undefined) {
      const required = { x402Version: 2, resource: { url: `${origin}${path}` }, accepts: [terms] };
      return void response.writeHead(402, { "payment-required": encodePaymentRequiredHeader(required) }).end("{}");
    }
    if (kind === "broken") return void response.writeHead(500).end('{"error":"sorry"}');
    const settled = await facilitator.settle(decodePaymentSignatureHeader(header), terms);
    if (!settled.success) return void response.writeHead(402).end("{}");
    paid.push(path);
    const headers = { "payment-response": encodePaymentResponseHeader(settled), "content-type": "application/json" };
    if (kind === "thief") return void response.writeHead(500, headers).end('{"error":"sorry"}');
    response.writeHead(200, headers).end('{"sum":42}');
  }

  const server = createServer((request, response) => {
    answer(request, response).catch((error: Error) => response.writeHead(500).end(error.message));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    paid,
    /** What the record knows of one of its paths. @param amount atomic units */
    spec(amount: number, kind: "honest" | "thief" | "broken", name: string) {
      const path = `/${amount}/${kind}/${name}`;
      return { url: `${origin}${path}`, payTo: payToOf(path), price: (amount / 1e6).toFixed(6) };
    },
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
