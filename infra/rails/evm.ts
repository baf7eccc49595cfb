import { randomUUID } from "node:crypto";
import { encodePaymentSignatureHeader } from "@x402/core/http";
import type { Network, PaymentPayload, PaymentRequirements } from "@x402/core/types";
import { ExactEvmScheme } from "@x402/evm/exact/client";
import { ExactEvmSchemeV1 } from "@x402/evm/exact/v1/client";
import { isAddress, zeroAddress } from "viem";
import { accountOf } from "./account.ts";
import { createChargeSigner, evmChargeObstacle, type SigningDomain, signingDomain, v1NamesOf } from "./charge.ts";
import { createPayersReader } from "./payers.ts";
import { type AnswerEquality, nullableEquality, quorum, TRANSFER_EQUALITY, TRANSFER_LIST_EQUALITY } from "./quorum.ts";
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
  /** Addresses of the nodes, in the order in which they are asked. With none, `canPay` works and every read fails. */
  rpcUrl: string | readonly string[];
  /** Number of nodes that have to agree on a settlement; default 1. */
  agree?: number;
  /** CAIP-2, `eip155:<chain id>`. */
  network: string;
  /** Token contract with EIP-3009. */
  asset: string;
  /** Decimals of the token; default 6. */
  decimals?: number;
  /** EIP-712 name and version; only needed for a token that `signingDomain` does not know. */
  domain?: SigningDomain | null;
  /** When a settlement is final; 1 = as soon as it is in a block. */
  confirmations: Confirmations;
}

type Token = Pick<EvmRailOptions, "network" | "asset" | "decimals" | "domain">;

/**
 * Returns a function that returns why a rail of this token cannot pay an entry (one way to pay that a seller offers),
 * or null. The function does not read the chain.
 */
function createObstacleCheck({ network, asset, decimals = 6, domain = null }: Token) {
  const token = asset.toLowerCase();
  const tokenDomain = domain ?? signingDomain(network, token);
  return (entry: PayableEntry): string | null => {
    // This service records amounts in micro-units (1e-6), so an amount with a finer fraction cannot be recorded
    // exactly.
    const unit = 10n ** BigInt(Math.max(0, decimals - 6));
    if (entry.amountAtomic % unit !== 0n) return "the amount is no whole number of micro-units";
    return entry.challenge
      ? evmChargeObstacle(entry, network, token, tokenDomain)
      : whyNotPayable(entry, network, token);
  };
}

const AMOUNT_EQUALITY: AnswerEquality<bigint> = { textOf: String };

const toSettlements = (read: AsOf<BlockTransfer[]>): AsOf<Settlement[]> =>
  mapAsOf(read, (moved, blocks) => moved.map((one) => asSettlement(one, blocks)));

/** The parts of a rail that differ between payment methods: what can be paid, how it is signed and how it is found. */
export interface PaymentMethod {
  /** Returns why an entry cannot be paid, or null. */
  obstacleTo: (entry: PayableEntry) => string | null;
  /**
   * Returns the function that signs payments in a token.
   * @param token reads from the first node that answers
   */
  signIn: (token: TokenAtNode) => Rail["sign"];
  /** Finds the transfer that used a nonce, in the blocks up to `head` of one node; null when there is none. */
  find: (node: TokenAtNode, query: SettlementQuery, head: Block) => Promise<BlockTransfer | null>;
}

/**
 * Creates a rail for one token on an EVM chain. Every read is tried a bounded number of times and then throws
 * `ChainDown`. Reads of money go through `quorum`: each node answers the whole question, and `agree` nodes have to
 * give the same answer. Signing uses the first node that answers.
 * @throws TypeError for a network or asset that is not EVM's; RangeError for confirmations below 1
 */
export function createTokenRail(options: EvmRailOptions, method: PaymentMethod): Rail {
  const { rpcUrl, network, asset, confirmations, agree = 1, decimals = 6, domain } = options;
  if (!/^eip155:\d+$/.test(network)) throw new TypeError(`not an EVM network: ${network}`);
  if (!isAddress(asset, { strict: false })) throw new TypeError(`not a token address: ${asset}`);
  if (typeof confirmations === "number" && !(Number.isSafeInteger(confirmations) && confirmations >= 1))
    throw new RangeError("confirmations start at 1");
  const railOptions = { rpcUrl, agree, network, asset, confirmations, decimals };
  const money = tokenOnChain({ ...railOptions, ...(domain ? { domain } : {}) });
  const sign = method.signIn(money);
  return {
    network,
    asset: money.asset,
    decimalsOf: () => decimals,
    canPay: (entry) => method.obstacleTo(entry) === null,
    async sign(entry, wallet, context) {
      const obstacle = method.obstacleTo(entry);
      if (obstacle) throw new Error(`this rail cannot pay the entry: ${obstacle}`);
      return sign(entry, wallet, context);
    },
    settlementOf: async (query) => {
      const agreedTransfer = await quorum.read(
        money,
        (node, head) => method.find(node, query, head),
        nullableEquality(TRANSFER_EQUALITY),
      );
      return mapAsOf(agreedTransfer, (moved, blocks) => moved && asSettlement(moved, blocks));
    },
    transfers: async (query) =>
      toSettlements(await quorum.read(money, (node, at) => findTransfers(node, query, at), TRANSFER_LIST_EQUALITY)),
    transfersIn: async (tx) =>
      toSettlements(await quorum.read(money, (node, at) => findTransfersIn(node, tx, at), TRANSFER_LIST_EQUALITY)),
    payersOf: createPayersReader(money.nodes, agree),
    head: () => quorum.head(money),
    balance: (address) => quorum.read(money, (node, head) => balanceOf(node, address, head), AMOUNT_EQUALITY),
  };
}

/**
 * Creates a rail for x402 `exact` (v1 and v2) and mpp `evm/charge` with EIP-3009 tokens. Signing x402 does not ask the
 * chain. The seller chooses mpp's nonce, so signing mpp asks the chain whether that nonce was used.
 */
export const createEvmRail = (options: EvmRailOptions): Rail =>
  createTokenRail(options, {
    obstacleTo: createObstacleCheck(options),
    signIn(token) {
      const signCharge = createChargeSigner(token);
      return (entry, wallet, context) =>
        entry.challenge ? signCharge(entry, entry.challenge, wallet) : signExact(entry, wallet, context);
    },
    find: findSettlement,
  });

const UINT256_END = 1n << 256n;
/** Longest validity that is signed, in seconds; an entry that asks for more is not paid. */
const MAX_VALIDITY_SECONDS = 86_400;

/** Returns why an entry cannot be signed as x402 `exact` with EIP-3009, or null. Pure; never throws on untrusted input. */
function whyNotPayable(entry: PayableEntry, network: string, asset: string): string | null {
  const { extra } = entry;
  const transferMethod = extra?.assetTransferMethod ?? "eip3009";
  const isNonEmptyText = (value: unknown) => typeof value === "string" && value.length > 0;
  const seconds = entry.maxTimeoutSeconds;
  if (entry.x402Version === null) return "it is no x402 entry";
  if (entry.scheme !== "exact") return `scheme ${entry.scheme}`;
  if (entry.network !== network) return `network ${entry.network}`;
  if (entry.asset?.toLowerCase() !== asset) return `asset ${entry.asset}`;
  if (transferMethod !== "eip3009") return `asset transfer method ${String(transferMethod)}`;
  if (!isAddress(entry.payTo ?? "", { strict: false })) return "payTo is not an address";
  if (entry.payTo.toLowerCase() === zeroAddress) return "payTo is the zero address";
  if (entry.amountAtomic <= 0n || entry.amountAtomic >= UINT256_END) return "amount is not a positive uint256";
  if (!Number.isSafeInteger(seconds) || seconds <= 0 || seconds > MAX_VALIDITY_SECONDS) return "maxTimeoutSeconds";
  // The signature covers the token's EIP-712 domain, which stock clients take from the seller's terms alone.
  if (!isNonEmptyText(extra?.name) || !isNonEmptyText(extra?.version))
    return "extra.name and extra.version are missing";
  return null;
}

/**
 * Signs one x402 entry with the protocol's own client and encodes the header (v1: X-PAYMENT; v2: PAYMENT-SIGNATURE).
 * The signature covers the entry's parsed fields. `raw` is only repeated in the header, so it cannot change the
 * payment.
 */
export async function signExact(entry: PayableEntry, wallet: Wallet, context: SignContext): Promise<SignedPayment> {
  const signer = accountOf(wallet);
  const { payload, header } =
    entry.x402Version === 1 ? await signVersion1(entry, signer) : await signVersion2(entry, signer);
  const { authorization } = payload.payload as unknown as { authorization: Record<string, string> };
  // The members are in the order in which the protocol's own client writes them.
  const complete = entry.x402Version === 1 ? payload : { ...payload, ...echoedFields(context), accepted: entry.raw };
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

async function signVersion2(entry: PayableEntry, signer: Signer) {
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

/**
 * Signs for x402 v1, which identifies a chain by a name. The payload repeats the name as the seller spelled it; the
 * signature covers the chain's id.
 */
async function signVersion1(entry: PayableEntry, signer: Signer) {
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
  // The package's type of v1 requirements has v2's fields, but its code reads v1's.
  const signedPayload = await new ExactEvmSchemeV1(signer).createPaymentPayload(
    1,
    requirements as unknown as PaymentRequirements,
  );
  const sellerNetworkName = (entry.raw as { network?: unknown } | null)?.network;
  const payload = { ...signedPayload, network: typeof sellerNetworkName === "string" ? sellerNetworkName : name };
  return { payload, header: "X-PAYMENT" as const };
}

/**
 * Returns `resource` and `extensions` of the 402, which a v2 client sends back unchanged but for a required payment
 * identifier.
 */
function echoedFields({ resource, extensions }: SignContext): { resource?: unknown; extensions?: unknown } {
  return {
    ...(extensions ? { extensions: addPaymentIdentifier(extensions) } : {}),
    ...(resource ? { resource } : {}),
  };
}

/** Extension with which a client names its payment, so that a repeated request is served once. */
const IDENTIFIER_EXTENSION = "payment-identifier";

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === "object" && value !== null;

/**
 * Adds an identifier to the payment if the 402 requires one (x402's extension `payment-identifier`; a seller refuses a
 * payment without it). It is random, in the form that the protocol's own client gives it: one that could be computed
 * from the nonce would tell the seller whose client this is, and would be known to everybody who reads the chain. A
 * payment that is sent again is sent as it was signed, with the same identifier.
 */
function addPaymentIdentifier(extensions: unknown): unknown {
  const extension = isObject(extensions) ? extensions[IDENTIFIER_EXTENSION] : undefined;
  if (!isObject(extension) || !isObject(extension.info) || extension.info.required !== true) return extensions;
  const id = `pay_${randomUUID().replaceAll("-", "")}`;
  return {
    ...(extensions as object),
    [IDENTIFIER_EXTENSION]: { ...extension, info: { ...extension.info, id } },
  };
}
