import { type Address, erc20Abi, isAddress } from "viem";
import { agreed } from "./agreed.ts";
import { createChargeSigner, type SigningDomain, signingDomain, whyNotChargeable } from "./charge.ts";
import { signExact, whyNotPayable } from "./exact.ts";
import type { PayableEntry, Rail, Settlement, SettlementQuery } from "./rails.ts";
import { createReader, reading } from "./rpc.ts";
import {
  type Confirmations,
  findSettlement,
  findTransfers,
  findTransfersIn,
  type Money,
  newestFinal,
} from "./settlement.ts";

export interface EvmRailOptions {
  /** One node, or several in the order in which they are asked. */
  rpcUrl: string | readonly string[];
  /** So many nodes have to say the same of a settlement; default 1. */
  agree?: number;
  /** CAIP-2, `eip155:<chain id>`. */
  network: string;
  /** Token contract with EIP-3009. */
  asset: string;
  /** Default 6. */
  decimals?: number;
  /** EIP-712 name and version of a token that is not known to us. */
  domain?: SigningDomain | null;
  /** When a settlement is called final; 1 = as soon as it is in a block. */
  confirmations: Confirmations;
}

type Token = Pick<EvmRailOptions, "network" | "asset" | "decimals" | "domain">;

/** Why a rail of this token cannot pay an entry, or null when it can. Asks no chain. */
function obstacleOn({ network, asset, decimals = 6, domain = null }: Token) {
  const token = asset.toLowerCase();
  const signedAs = domain ?? signingDomain(network, token);
  return (entry: PayableEntry): string | null => {
    // What the record could not say exactly is not paid.
    const unit = 10n ** BigInt(Math.max(0, decimals - 6));
    if (entry.amountAtomic % unit !== 0n) return "the amount is no whole number of micro-units";
    return entry.challenge ? whyNotChargeable(entry, network, token, signedAs) : whyNotPayable(entry, network, token);
  };
}

/** What a rail would pay, for who pays nothing: no chain, no wallet. */
export const payableOn = (token: Token): Pick<Rail, "network" | "canPay" | "decimalsOf"> => {
  const obstacleTo = obstacleOn(token);
  return {
    network: token.network,
    decimalsOf: () => token.decimals ?? 6,
    canPay: (entry) => obstacleTo(entry) === null,
  };
};

/** Units of the token that an address holds. @throws ChainDown */
export const balanceOf = ({ reader, asset }: Money, address: string): Promise<bigint> =>
  reading("a balance", () =>
    reader.readContract({ address: asset, abi: erc20Abi, functionName: "balanceOf", args: [address as Address] }),
  );

/** How a rail pays, and how what it signed is found again; everything else is the same for every token. */
export interface Way {
  obstacleTo: (entry: PayableEntry) => string | null;
  /** @param any answers from whichever node answers */
  signer: (any: Money) => Rail["sign"];
  find: (node: Money, query: SettlementQuery) => Promise<Settlement | null>;
}

/**
 * A rail over a token on an EVM chain. Every read is tried a bounded number of times and then throws `ChainDown`. What
 * moved is believed of single nodes that answer the whole question, and of as many as have to agree; signatures and
 * balances take any node that answers.
 */
export function railOver(options: EvmRailOptions, way: Way): Rail {
  const { rpcUrl, network, asset, confirmations, agree = 1, decimals = 6, domain } = options;
  if (!/^eip155:\d+$/.test(network)) throw new TypeError(`not an EVM network: ${network}`);
  if (!isAddress(asset, { strict: false })) throw new TypeError(`not a token address: ${asset}`);
  if (typeof confirmations === "number" && !(Number.isSafeInteger(confirmations) && confirmations >= 1))
    throw new RangeError("confirmations start at 1");
  const urls = [rpcUrl].flat();
  if (agree < 1 || agree > urls.length) throw new RangeError(`${agree} of ${urls.length} nodes cannot agree`);
  const token = asset.toLowerCase() as Address;
  const moneyOf = (url: string | readonly string[]): Money => ({
    ...{ reader: createReader(url), network, asset: token, confirmations, decimals },
    ...(domain ? { domain } : {}),
  });
  const any = moneyOf(urls);
  const nodes = urls.map(moneyOf);
  const sign = way.signer(any);
  return {
    network,
    asset: token,
    decimalsOf: () => decimals,
    canPay: (entry) => way.obstacleTo(entry) === null,
    async sign(entry, wallet, context) {
      const obstacle = way.obstacleTo(entry);
      if (obstacle) throw new Error(`this rail cannot pay the entry: ${obstacle}`);
      return sign(entry, wallet, context);
    },
    settlementOf: (query) => agreed.settlement(nodes, agree, (money) => way.find(money, query)),
    transfers: (query) => agreed.transfers(nodes, agree, (money) => findTransfers(money, query)),
    transfersIn: (tx) => agreed.transfers(nodes, agree, (money) => findTransfersIn(money, tx)),
    head: () =>
      agreed.head(nodes, agree, async ({ reader }) => {
        const block = await reading("its head", () => reader.getBlock());
        return { number: Number(block.number), time: Number(block.timestamp) };
      }),
    finalHead: () =>
      agreed.head(nodes, agree, async (money) => {
        const head = await reading("its head", () => money.reader.getBlockNumber({ cacheTime: 0 }));
        const deep = await newestFinal(money, head);
        const blockNumber = deep > 0n ? deep : 0n;
        const block = await reading("a block", () => money.reader.getBlock({ blockNumber }));
        return { number: Number(block.number), time: Number(block.timestamp) };
      }),
    balance: (address) => balanceOf(any, address),
    // Reads share the process's HTTP connections: there is nothing of our own to let go.
    close: async () => {},
  };
}

/**
 * Rail for x402 `exact` (v1 and v2) and mpp `evm/charge` with EIP-3009 tokens. Signing x402 asks the chain nothing; mpp's
 * nonce is the seller's, so the chain is asked whether it was used.
 */
export const createEvmRail = (options: EvmRailOptions): Rail =>
  railOver(options, {
    obstacleTo: obstacleOn(options),
    signer(any) {
      const signCharge = createChargeSigner(any);
      return (entry, wallet, context) =>
        entry.challenge ? signCharge(entry, entry.challenge, wallet) : signExact(entry, wallet, context);
    },
    find: findSettlement,
  });
