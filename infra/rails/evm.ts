import { encodePaymentSignatureHeader } from "@x402/core/http";
import type { Network, PaymentPayload, PaymentRequirements } from "@x402/core/types";
import { ExactEvmScheme } from "@x402/evm/exact/client";
import { ExactEvmSchemeV1 } from "@x402/evm/exact/v1/client";
import { isAddress, zeroAddress } from "viem";
import { accountOf } from "./account.ts";
import { createChargeSigner, evmChargeObstacle, type SigningDomain, signingDomain, v1NamesOf } from "./charge.ts";
import { createPayersReader } from "./payers.ts";
import { type AnswerEquality, orNull, quorum, TRANSFER_EQUALITY, TRANSFER_LIST_EQUALITY } from "./quorum.ts";
import {
  type AsOf,
  type Block,
  mapAsOf,
  type PayableEntry,
  type Rail,
  type Settlement,
  type SettlementQuery,
  type SignContext,
  type SignedPayment,
  type Wallet,
} from "./rails.ts";
import {
  asSettlement,
  type BlockTransfer,
  balanceOf,
  type Confirmations,
  findSettlement,
  findTransfers,
  findTransfersIn,
  type TokenAtNode,
  tokenOnChain,
} from "./settlement.ts";

export interface EvmRailOptions {
  /** One node, several in the order in which they are asked, or none: then entries are read, and nothing is asked. */
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
    return entry.challenge ? evmChargeObstacle(entry, network, token, signedAs) : whyNotPayable(entry, network, token);
  };
}

const UNITS: AnswerEquality<bigint> = { textOf: String };

const listed = (read: AsOf<BlockTransfer[]>): AsOf<Settlement[]> =>
  mapAsOf(read, (moved, blocks) => moved.map((one) => asSettlement(one, blocks)));

/** How a rail pays, and how what it signed is found again; everything else is the same for every token. */
export interface PaymentMethod {
  obstacleTo: (entry: PayableEntry) => string | null;
  /** @param any answers from whichever node answers */
  signer: (any: TokenAtNode) => Rail["sign"];
  find: (node: TokenAtNode, query: SettlementQuery, head: Block) => Promise<BlockTransfer | null>;
}

/**
 * A rail over a token on an EVM chain. Every read is tried a bounded number of times and then throws `ChainDown`. What
 * is read of money is believed of single nodes that answer the whole question, and of as many as have to agree;
 * signatures take any node that answers.
 */
export function createTokenRail(options: EvmRailOptions, way: PaymentMethod): Rail {
  const { rpcUrl, network, asset, confirmations, agree = 1, decimals = 6, domain } = options;
  if (!/^eip155:\d+$/.test(network)) throw new TypeError(`not an EVM network: ${network}`);
  if (!isAddress(asset, { strict: false })) throw new TypeError(`not a token address: ${asset}`);
  if (typeof confirmations === "number" && !(Number.isSafeInteger(confirmations) && confirmations >= 1))
    throw new RangeError("confirmations start at 1");
  const place = { rpcUrl, agree, network, asset, confirmations, decimals };
  const money = tokenOnChain({ ...place, ...(domain ? { domain } : {}) });
  const sign = way.signer(money);
  return {
    network,
    asset: money.asset,
    decimalsOf: () => decimals,
    canPay: (entry) => way.obstacleTo(entry) === null,
    async sign(entry, wallet, context) {
      const obstacle = way.obstacleTo(entry);
      if (obstacle) throw new Error(`this rail cannot pay the entry: ${obstacle}`);
      return sign(entry, wallet, context);
    },
    settlementOf: async (query) => {
      const read = await quorum.read(money, (node, head) => way.find(node, query, head), orNull(TRANSFER_EQUALITY));
      return mapAsOf(read, (moved, blocks) => moved && asSettlement(moved, blocks));
    },
    transfers: async (query) =>
      listed(await quorum.read(money, (node, at) => findTransfers(node, query, at), TRANSFER_LIST_EQUALITY)),
    transfersIn: async (tx) =>
      listed(await quorum.read(money, (node, at) => findTransfersIn(node, tx, at), TRANSFER_LIST_EQUALITY)),
    payersOf: createPayersReader(money.nodes, agree),
    head: () => quorum.head(money),
    balance: (address) => quorum.read(money, (node, head) => balanceOf(node, address, head), UNITS),
  };
}

/**
 * Rail for x402 `exact` (v1 and v2) and mpp `evm/charge` with EIP-3009 tokens. Signing x402 asks the chain nothing; mpp's
 * nonce is the seller's, so the chain is asked whether it was used.
 */
export const createEvmRail = (options: EvmRailOptions): Rail =>
  createTokenRail(options, {
    obstacleTo: obstacleOn(options),
    signer(any) {
      const signCharge = createChargeSigner(any);
      return (entry, wallet, context) =>
        entry.challenge ? signCharge(entry, entry.challenge, wallet) : signExact(entry, wallet, context);
    },
    find: findSettlement,
  });

const UINT256_END = 1n << 256n;
/** A validity we would sign for: a seller that wants ours to be open for longer than a day is not paid. */
const MAX_VALIDITY_SECONDS = 86_400;

/** Why this entry cannot be signed as `exact` with EIP-3009, or null when it can. Pure; never throws on odd input. */
function whyNotPayable(entry: PayableEntry, network: string, asset: string): string | null {
  const { extra } = entry;
  const transfer = extra?.assetTransferMethod ?? "eip3009";
  const filled = (value: unknown) => typeof value === "string" && value.length > 0;
  const seconds = entry.maxTimeoutSeconds;
  if (entry.x402Version === null) return "it is no x402 entry";
  if (entry.scheme !== "exact") return `scheme ${entry.scheme}`;
  if (entry.network !== network) return `network ${entry.network}`;
  if (entry.asset?.toLowerCase() !== asset) return `asset ${entry.asset}`;
  if (transfer !== "eip3009") return `asset transfer method ${String(transfer)}`;
  if (!isAddress(entry.payTo ?? "", { strict: false })) return "payTo is not an address";
  if (entry.payTo.toLowerCase() === zeroAddress) return "payTo is the zero address";
  if (entry.amountAtomic <= 0n || entry.amountAtomic >= UINT256_END) return "amount is not a positive uint256";
  if (!Number.isSafeInteger(seconds) || seconds <= 0 || seconds > MAX_VALIDITY_SECONDS) return "maxTimeoutSeconds";
  // The signature covers the token's EIP-712 domain, and no stock client signs without the seller naming it.
  if (!filled(extra?.name) || !filled(extra?.version)) return "extra.name and extra.version are missing";
  return null;
}

/**
 * Sign one entry with the protocol's own client and encode the header (x402 v1: X-PAYMENT; v2: PAYMENT-SIGNATURE).
 * What is signed are the entry's parsed fields; `raw` is only echoed, so it cannot change the payment.
 */
export async function signExact(entry: PayableEntry, wallet: Wallet, context: SignContext): Promise<SignedPayment> {
  const signer = accountOf(wallet);
  const { payload, header } = entry.x402Version === 1 ? await version1(entry, signer) : await version2(entry, signer);
  const { authorization } = payload.payload as unknown as { authorization: Record<string, string> };
  // Members in the order of the protocol's own client.
  const complete = entry.x402Version === 1 ? payload : { ...payload, ...echoed(context), accepted: entry.raw };
  return {
    headerName: header,
    headerValue: encodePaymentSignatureHeader(complete as PaymentPayload),
    from: signer.address.toLowerCase(),
    nonce: authorization.nonce!,
    validAfter: Number(authorization.validAfter),
    validBefore: Number(authorization.validBefore),
    amountAtomic: entry.amountAtomic,
  };
}

type Signer = ReturnType<typeof accountOf>;

async function version2(entry: PayableEntry, signer: Signer) {
  const payload = await new ExactEvmScheme(signer).createPaymentPayload(2, {
    scheme: "exact",
    network: entry.network as Network,
    asset: entry.asset,
    amount: entry.amountAtomic.toString(),
    payTo: entry.payTo,
    maxTimeoutSeconds: entry.maxTimeoutSeconds,
    extra: entry.extra,
  });
  return { payload, header: "PAYMENT-SIGNATURE" as const };
}

/** v1 calls the chain by a name. The seller's own spelling goes back to it; the signature is over the chain's id. */
async function version1(entry: PayableEntry, signer: Signer) {
  const [name] = v1NamesOf(entry.network);
  if (!name) throw new Error(`x402 v1 has no name for ${entry.network}`);
  const requirements = {
    scheme: "exact",
    network: name,
    maxAmountRequired: entry.amountAtomic.toString(),
    asset: entry.asset,
    payTo: entry.payTo,
    maxTimeoutSeconds: entry.maxTimeoutSeconds,
    extra: entry.extra,
  };
  // The package types v1 requirements by their v2 shape, and reads the v1 fields.
  const signed = await new ExactEvmSchemeV1(signer).createPaymentPayload(
    1,
    requirements as unknown as PaymentRequirements,
  );
  const theirs = (entry.raw as { network?: unknown } | null)?.network;
  const payload = { ...signed, network: typeof theirs === "string" ? theirs : name };
  return { payload, header: "X-PAYMENT" as const };
}

/** v2: a client gives back `resource` and `extensions` as it got them. */
function echoed(context: SignContext): { resource?: unknown; extensions?: unknown } {
  const { resource, extensions } = context;
  return { ...(extensions ? { extensions } : {}), ...(resource ? { resource } : {}) };
}
