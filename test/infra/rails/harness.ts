import { randomBytes } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { decodePaymentSignatureHeader } from "@x402/core/http";
import type { PaymentPayload, PaymentRequirements } from "@x402/core/types";
import { LOCAL_NETWORK, LOCAL_USDC, type LocalChain, startLocalChain } from "../../../fixtures/chain/local-chain.ts";
import { createEvmRail } from "../../../infra/rails/evm.ts";
import { createFacilitator, type Facilitator } from "../../../infra/rails/facilitator.ts";
import type { PayableEntry, Rail, SignedPayment, Wallet, Wallets } from "../../../infra/rails/rails.ts";
import { createLocalWallets } from "../../../infra/rails/wallets.ts";

export const PAYEE = "0x00000000000000000000000000000000000000b2";

export interface Rig {
  chain: LocalChain;
  rail: Rail;
  facilitator: Facilitator;
  wallets: Wallets;
  stop(): Promise<void>;
}

/** A real chain with a rail, a facilitator and wallets on it. */
export async function startRig(): Promise<Rig> {
  const chain = await startLocalChain();
  const { rpcUrl, network, asset } = chain;
  const facilitator = createFacilitator({ rpcUrl, network, sender: `0x${randomBytes(32).toString("hex")}` });
  await chain.giveGas(facilitator.address);
  const rail = createEvmRail({ rpcUrl, network, asset, confirmations: 1 });
  const wallets = createLocalWallets({ rpcUrl, asset, seed: randomBytes(32) });
  return { chain, rail, facilitator, wallets, stop: () => chain.stop() };
}

const EXTRA = { name: "USDC", version: "2" };

/** A v2 entry as a seller sends it. */
export function entryV2(amount: bigint, changes: Partial<PayableEntry> = {}): PayableEntry {
  const raw = {
    scheme: "exact",
    network: LOCAL_NETWORK,
    amount: amount.toString(),
    asset: LOCAL_USDC,
    payTo: PAYEE,
    maxTimeoutSeconds: 60,
    extra: EXTRA,
  };
  return { ...common(amount), x402Version: 2, raw, ...changes };
}

/** A v1 entry as a seller sends it: the chain has a name there. */
export function entryV1(amount: bigint, changes: Partial<PayableEntry> = {}): PayableEntry {
  const raw = {
    scheme: "exact",
    network: "base-sepolia",
    maxAmountRequired: amount.toString(),
    asset: LOCAL_USDC,
    payTo: PAYEE,
    resource: "http://127.0.0.1/paid",
    description: "",
    mimeType: "application/json",
    maxTimeoutSeconds: 60,
    extra: EXTRA,
  };
  return { ...common(amount), x402Version: 1, raw, ...changes };
}

const common = (amountAtomic: bigint) => ({
  scheme: "exact",
  network: LOCAL_NETWORK,
  asset: LOCAL_USDC,
  payTo: PAYEE,
  amountAtomic,
  maxTimeoutSeconds: 60,
  extra: EXTRA,
});

/** What a seller reads back from our header. */
export const decoded = (signed: SignedPayment): PaymentPayload => decodePaymentSignatureHeader(signed.headerValue);

/** What a seller hands its facilitator: its own terms and our payload. */
export const offer = (entry: PayableEntry, signed: SignedPayment): [PaymentPayload, PaymentRequirements] => [
  decoded(signed),
  entry.raw as PaymentRequirements,
];

export async function payer(rig: Rig): Promise<Wallet> {
  return rig.wallets.blind(`cap_${randomBytes(4).toString("hex")}`, "2026-11-21", 10_000_000n);
}

/**
 * A node of the same chain that takes a transaction and is never heard of again: what was sent is mined, and whoever
 * sent it through here cannot know.
 */
export async function nodeThatDiesAfterSending(rpcUrl: string): Promise<{ rpcUrl: string; close(): void }> {
  let open = true;
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const body = Buffer.concat(chunks).toString();
    if (!open) return void request.socket.destroy();
    const answer = await fetch(rpcUrl, { method: "POST", body, headers: { "content-type": "application/json" } });
    if (body.includes("eth_sendRawTransaction")) open = false;
    response.end(await answer.text());
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    rpcUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close() {
      server.closeAllConnections();
      server.close();
    },
  };
}
