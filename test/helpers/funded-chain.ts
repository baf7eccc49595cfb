import { randomBytes } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import {
  decodePaymentSignatureHeader,
  encodePaymentRequiredHeader,
  encodePaymentResponseHeader,
} from "@x402/core/http";
import type { PaymentRequirements } from "@x402/core/types";
import { type Address, createTestClient, encodeAbiParameters, http, keccak256, pad, publicActions, toHex } from "viem";
import { type LocalChain, startLocalChain } from "../../fixtures/chain/local-chain.ts";
import { knownUsdc } from "../../infra/rails/charge.ts";
import { createFacilitator } from "../../infra/rails/facilitator.ts";

/** Where the token keeps its balances: the first variable of the contract. */
const BALANCES = 0n;
/** Paid calls of a first plan begin with a block of six hours UTC (docs/schedule.md). */
const BLOCK_MS = 6 * 3_600_000;

export interface FundedChain extends LocalChain {
  /** Write a balance into the token's storage, as only who runs the node can: nobody mints here. */
  fund(address: string, atomic: bigint): Promise<void>;
  /**
   * Puts the chain's clock to the beginning of the next block of six hours: a plan that is made in a block's first ten
   * minutes has the calls of that block.
   * @returns how far it is ahead of this machine's clock, ms
   */
  toNextBlock(): Promise<number>;
}

/** A local node with the id, the USDC address and the signing domain of a main network, where nobody can mint. */
export async function fundedChain(chainId: number): Promise<FundedChain> {
  const token = { address: knownUsdc(`eip155:${chainId}`)!.address.toLowerCase(), contract: "UsdCoin" as const };
  const chain = await startLocalChain({ chainId, token });
  const node = createTestClient({ mode: "anvil", transport: http(chain.rpcUrl) }).extend(publicActions);
  return {
    ...chain,
    async fund(address, atomic) {
      const place = encodeAbiParameters([{ type: "address" }, { type: "uint256" }], [address as Address, BALANCES]);
      const value = pad(toHex(atomic), { size: 32 });
      await node.setStorageAt({ address: chain.asset as Address, index: keccak256(place), value });
    },
    async toNextBlock() {
      const aheadMs = BLOCK_MS - (Date.now() % BLOCK_MS);
      await node.increaseTime({ seconds: Math.floor(aheadMs / 1_000) });
      return aheadMs;
    },
  };
}

/**
 * A seller over x402 version 2, the same at every path: what it asks for, and who settles. Counts what it was paid, and for which urls.
 * @param at where it listens (default: a free port of the loopback)
 */
export async function sellerOn(
  offer: { network: string; asset: string; amount: string; payTo: string; name?: string },
  settle: { rpcUrl: string; giveGas(address: string): Promise<void> } | null,
  at = { host: "127.0.0.1", port: 0 },
) {
  const { network, asset, amount, payTo, name = "USD Coin" } = offer;
  const terms = {
    ...{ scheme: "exact", network, amount, asset, payTo, maxTimeoutSeconds: 60 },
    extra: { name, version: "2" },
  } as PaymentRequirements;
  const key = `0x${randomBytes(32).toString("hex")}` as const;
  const facilitator = settle && createFacilitator({ rpcUrl: settle.rpcUrl, network, sender: key });
  if (settle && facilitator) await settle.giveGas(facilitator.address);
  const seen = { paid: [] as string[], urls: [] as string[], payers: new Set<string>(), asked: 0 };

  async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const header = request.headers["payment-signature"] as string | undefined;
    if (header === undefined) {
      seen.asked++;
      const required = { x402Version: 2, resource: { url: origin + request.url! }, accepts: [terms] };
      return void response.writeHead(402, { "payment-required": encodePaymentRequiredHeader(required) }).end("{}");
    }
    const settled = await facilitator!.settle(decodePaymentSignatureHeader(header), terms);
    if (!settled.success) return void response.writeHead(402).end(JSON.stringify(settled));
    seen.paid.push(settled.transaction);
    seen.urls.push(origin + request.url!);
    seen.payers.add(settled.payer!.toLowerCase());
    const headers = { "payment-response": encodePaymentResponseHeader(settled), "content-type": "application/json" };
    response.writeHead(200, headers).end('{"sum":42}');
  }

  const server = createServer((request, response) => {
    answer(request, response).catch((error: Error) => response.writeHead(500).end(error.message));
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject).listen(at.port, at.host, resolve);
  });
  const { port } = server.address() as AddressInfo;
  const origin = new URL(`http://${at.host}:${port}`).origin;
  return {
    ...{ seen, origin, url: `${origin}/sum`, terms, facilitator: facilitator?.address.toLowerCase() },
    async close() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}
