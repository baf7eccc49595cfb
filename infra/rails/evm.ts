import { type Address, erc20Abi, isAddress } from "viem";
import { createChargeSigner, whyNotChargeable } from "./charge.ts";
import { signExact, whyNotPayable } from "./exact.ts";
import type { PayableEntry, Rail } from "./rails.ts";
import { createReader, reading } from "./rpc.ts";
import { findSettlement, findTransfers, findTransfersIn, type Money } from "./settlement.ts";

export interface EvmRailOptions {
  rpcUrl: string;
  /** CAIP-2, `eip155:<chain id>`. */
  network: string;
  /** Token contract with EIP-3009. */
  asset: string;
  /** Blocks until a settlement is called final; 1 = as soon as it is in a block. */
  confirmations: number;
}

/** Why a rail of this network and token (lower-case) cannot pay an entry, or null when it can. Asks no chain. */
const obstacleOn =
  (network: string, token: string) =>
  (entry: PayableEntry): string | null =>
    entry.challenge ? whyNotChargeable(entry, network, token) : whyNotPayable(entry, network, token);

/** What a rail would pay, for who pays nothing: no chain, no wallet. */
export const payableOn = (network: string, asset: string): Pick<Rail, "network" | "canPay"> => {
  const obstacleTo = obstacleOn(network, asset.toLowerCase());
  return { network, canPay: (entry) => obstacleTo(entry) === null };
};

/**
 * Rail for x402 `exact` (v1 and v2) and mpp `evm/charge` with EIP-3009 tokens on an EVM chain. Signing x402 asks the
 * chain nothing; mpp's nonce is the seller's, so the chain is asked whether it was used. Every read is tried a bounded
 * number of times and then throws `ChainDown`.
 */
export function createEvmRail({ rpcUrl, network, asset, confirmations }: EvmRailOptions): Rail {
  if (!/^eip155:\d+$/.test(network)) throw new TypeError(`not an EVM network: ${network}`);
  if (!isAddress(asset, { strict: false })) throw new TypeError(`not a token address: ${asset}`);
  if (!Number.isSafeInteger(confirmations) || confirmations < 1) throw new RangeError("confirmations start at 1");
  const reader = createReader(rpcUrl);
  const token = asset.toLowerCase() as Address;
  const money: Money = { reader, network, asset: token, confirmations };
  const signCharge = createChargeSigner(money);
  const obstacleTo = obstacleOn(network, token);
  return {
    network,
    asset: token,
    canPay: (entry) => obstacleTo(entry) === null,
    async sign(entry, wallet, context) {
      const obstacle = obstacleTo(entry);
      if (obstacle) throw new Error(`this rail cannot pay the entry: ${obstacle}`);
      return entry.challenge ? signCharge(entry, entry.challenge, wallet) : signExact(entry, wallet, context);
    },
    settlementOf: (query) => findSettlement(money, query),
    transfers: (query) => findTransfers(money, query),
    transfersIn: (tx) => findTransfersIn(money, tx),
    async head() {
      const block = await reading("its head", () => reader.getBlock());
      return { number: Number(block.number), time: Number(block.timestamp) };
    },
    async finalHead() {
      const head = await reading("its head", () => reader.getBlockNumber({ cacheTime: 0 }));
      const deep = head - BigInt(confirmations - 1);
      const block = await reading("a block", () => reader.getBlock({ blockNumber: deep > 0n ? deep : 0n }));
      return { number: Number(block.number), time: Number(block.timestamp) };
    },
    balance: (address) =>
      reading("a balance", () =>
        reader.readContract({
          address: token,
          abi: erc20Abi,
          functionName: "balanceOf",
          args: [address as Address],
        }),
      ),
    // Reads share the process's HTTP connections: there is nothing of our own to let go.
    close: async () => {},
  };
}
