import { randomBytes } from "node:crypto";
import { getAddress, type Hex, parseAbi, parseSignature } from "viem";
import { z } from "zod";
import { systemClock } from "../clock.ts";
import { accountOf } from "./account.ts";
import { signingDomain } from "./charge.ts";
import { type AnswerEquality, quorum, TRANSFER_EQUALITY } from "./quorum.ts";
import { type AsOf, mapAsOf, type Settlement, type SettlementQuery, type Wallet } from "./rails.ts";
import { type Outcome, type Sender, transact } from "./sender.ts";
import { asSettlement, type NonceState, nonceStateOf, type TokenOnChain } from "./settlement.ts";

/** Errors of EIP-3009 tokens, as OpenZeppelin names them. USDC reverts with sentences instead. */
export const TOKEN_ERRORS = [
  "error ERC3009InvalidSignature()",
  "error ERC3009InvalidAuthorizationTime(uint256 validAfter, uint256 validBefore)",
  "error ERC3009UsedAuthorization(address authorizer, bytes32 nonce)",
  "error ERC20InsufficientBalance(address sender, uint256 balance, uint256 needed)",
] as const;
const TOKEN_ABI = parseAbi([
  "function transferWithAuthorization(address from, address to, uint256 value, uint256 validAfter, uint256 validBefore, bytes32 nonce, uint8 v, bytes32 r, bytes32 s)",
  "function cancelAuthorization(address authorizer, bytes32 nonce, uint8 v, bytes32 r, bytes32 s)",
  ...TOKEN_ERRORS,
]);

/** EIP-712 types of EIP-3009. */
const AUTHORIZATION_FIELDS = [
  { name: "from", type: "address" },
  { name: "to", type: "address" },
  { name: "value", type: "uint256" },
  { name: "validAfter", type: "uint256" },
  { name: "validBefore", type: "uint256" },
  { name: "nonce", type: "bytes32" },
] as const;
export const TRANSFER_TYPES = { TransferWithAuthorization: AUTHORIZATION_FIELDS } as const;
export const RECEIVE_TYPES = { ReceiveWithAuthorization: AUTHORIZATION_FIELDS } as const;
const CANCEL_TYPES = {
  CancelAuthorization: [
    { name: "authorizer", type: "address" },
    { name: "nonce", type: "bytes32" },
  ],
} as const;

const HexAddress = z.string().regex(/^0x[0-9a-fA-F]{40}$/);
/** Unix seconds up to 2^53 - 1. Larger values, used for "no end", are refused. */
const Seconds = z.string().refine((text) => /^\d{1,16}$/.test(text) && Number.isSafeInteger(Number(text)));
const Uint256 = z.string().refine((text) => /^\d{1,78}$/.test(text) && BigInt(text) < 1n << 256n);
const SignedPayload = z.looseObject({
  authorization: z.looseObject({
    from: HexAddress,
    to: HexAddress,
    value: Uint256,
    validAfter: Seconds,
    validBefore: Seconds,
    nonce: z.string().regex(/^0x[0-9a-fA-F]{64}$/),
  }),
  // An ordinary wallet's signature has 65 bytes; a contract wallet's may be longer.
  signature: z.string().regex(/^0x([0-9a-fA-F]{2}){1,4096}$/),
});

/** The fields of a signed EIP-3009 transfer. Addresses and nonce are lower-case. */
export interface Authorization {
  from: string;
  to: string;
  valueAtomic: bigint;
  /** Unix seconds. The authorization is valid while `validAfter < now < validBefore`. */
  validAfter: number;
  validBefore: number;
  nonce: string;
  signature: Hex;
}

/**
 * Parses the EIP-3009 authorization of an x402 payload (`exact` of either version, `auth-capture`). Returns null when
 * there is none or it is malformed. Pure, and never throws on untrusted input.
 * @param payment the decoded payment header
 */
export function authorizationOf(payment: unknown): Authorization | null {
  const parsed = SignedPayload.safeParse((payment as { payload?: unknown } | null | undefined)?.payload);
  if (!parsed.success) return null;
  const { authorization, signature } = parsed.data;
  const { from, to, value, validAfter, validBefore, nonce } = authorization;
  return {
    from: from.toLowerCase(),
    to: to.toLowerCase(),
    valueAtomic: BigInt(value),
    validAfter: Number(validAfter),
    validBefore: Number(validBefore),
    nonce: nonce.toLowerCase(),
    signature: signature as Hex,
  };
}

/** A signed transfer of ours, as JSON. Its nonce makes it idempotent: submitted twice, it moves money once. */
export interface SignedTransfer {
  authorization: { from: string; to: string; value: string; validAfter: string; validBefore: string; nonce: string };
  signature: string;
}

/** A signed cancellation of an unused authorization of ours, as JSON. */
export interface SignedCancel {
  authorizer: string;
  nonce: string;
  signature: string;
}

export type AuthorizationState =
  /** The nonce is neither used nor cancelled, as of the block at which the chain was read. */
  | { state: "unused" }
  | { state: "used"; settlement: Settlement }
  /** The nonce was used or cancelled before the first searched block, which is some minutes before `sinceBlock`. */
  | { state: "used_before" }
  /** The nonce can never be used. `final`: the block of the cancellation is not expected to be replaced. */
  | { state: "cancelled"; tx: string; final: boolean };

/**
 * Signs and submits EIP-3009 transfers and cancellations of our own wallets, and reads their state from the chain.
 * Used for refunds, and to make a payment to a seller unusable.
 */
export interface Authorizations {
  /**
   * Signs a transfer out of one of our wallets without sending it, so that the caller can make it durable first.
   * @param order `to` an address, `amountAtomic` above zero, `validForSeconds` from now until it expires
   */
  signTransfer(
    wallet: Wallet,
    order: { to: string; amountAtomic: bigint; validForSeconds: number },
  ): Promise<SignedTransfer>;
  /**
   * Submits a transfer. `refused` when its nonce was used or cancelled, it has expired, or the wallet holds too
   * little; `stateOf` shows whether the nonce was used or cancelled.
   */
  submitTransfer(transfer: SignedTransfer): Promise<Outcome>;
  /** Signs the cancellation of an unused nonce of one of our wallets (EIP-3009 `cancelAuthorization`). */
  signCancel(wallet: Wallet, nonce: string): Promise<SignedCancel>;
  /** Submits a cancellation. `refused` when the nonce was used or cancelled before; `stateOf` shows which. */
  submitCancel(cancel: SignedCancel): Promise<Outcome>;
  /** Reads the state of a nonce from the token's state and its logs since a block. @throws ChainDown */
  stateOf(query: SettlementQuery): Promise<AsOf<AuthorizationState>>;
}

/**
 * Creates the {@link Authorizations} of one token.
 * @param sender submits the transactions and pays their gas; may be any account
 * @throws TypeError when the token's signing domain is unknown
 */
export function createAuthorizations(money: TokenOnChain, sender: Sender): Authorizations {
  const { network, asset } = money;
  const tokenDomain = money.domain ?? signingDomain(network, asset);
  if (!tokenDomain) throw new TypeError(`the signing domain of ${asset} on ${network} is not known`);
  const chainId = Number(network.slice("eip155:".length));
  const domain = { ...tokenDomain, chainId, verifyingContract: getAddress(asset) };
  const submitCall = (functionName: string, args: readonly unknown[]) =>
    transact(sender, { address: asset, abi: TOKEN_ABI, functionName, args });

  return {
    async signTransfer(wallet, { to, amountAtomic, validForSeconds }) {
      if (amountAtomic <= 0n) throw new RangeError("the amount of a transfer must be above zero");
      if (!Number.isSafeInteger(validForSeconds) || validForSeconds < 1)
        throw new RangeError("validForSeconds must be a whole number above zero");
      const validBefore = Math.floor(systemClock.now().getTime() / 1000) + validForSeconds;
      const account = accountOf(wallet);
      const nonce: Hex = `0x${randomBytes(32).toString("hex")}`;
      const message = {
        ...{ from: account.address, to: getAddress(to), value: amountAtomic },
        ...{ validAfter: 0n, validBefore: BigInt(validBefore), nonce },
      };
      const primaryType = "TransferWithAuthorization";
      const signature = await account.signTypedData({ domain, types: TRANSFER_TYPES, primaryType, message });
      const { value } = message;
      const text = { value: value.toString(), validAfter: "0", validBefore: String(validBefore), nonce };
      return { authorization: { from: message.from, to: message.to, ...text }, signature };
    },
    submitTransfer({ authorization: { from, to, value, validAfter, validBefore, nonce }, signature }) {
      const numbers = [value, validAfter, validBefore].map(BigInt);
      return submitCall("transferWithAuthorization", [from, to, ...numbers, nonce, ...splitSignature(signature)]);
    },
    async signCancel(wallet, nonce) {
      const account = accountOf(wallet);
      const message = { authorizer: account.address, nonce: nonce as Hex };
      const primaryType = "CancelAuthorization";
      const signature = await account.signTypedData({ domain, types: CANCEL_TYPES, primaryType, message });
      return { authorizer: account.address, nonce, signature };
    },
    submitCancel: ({ authorizer, nonce, signature }) =>
      submitCall("cancelAuthorization", [authorizer, nonce, ...splitSignature(signature)]),
    stateOf: (query) => stateOf(money, query),
  };
}

/** Splits a 65-byte signature into the v, r and s that the token's functions take. */
function splitSignature(signature: string): [number, Hex, Hex] {
  const { v, yParity, r, s } = parseSignature(signature as Hex);
  return [Number(v ?? BigInt(27 + yParity)), r, s];
}

const NONCE_STATE_EQUALITY: AnswerEquality<NonceState> = {
  textOf(nonceState) {
    if (nonceState.state === "used") return `used ${TRANSFER_EQUALITY.textOf(nonceState.moved)}`;
    return nonceState.state === "cancelled" ? `cancelled ${nonceState.tx} ${nonceState.blockNumber}` : nonceState.state;
  },
};

/** Reads the state of a nonce, on which a quorum of nodes agrees (`Authorizations.stateOf`). */
async function stateOf(money: TokenOnChain, query: SettlementQuery): Promise<AsOf<AuthorizationState>> {
  const agreedState = await quorum.read(money, (node, head) => nonceStateOf(node, query, head), NONCE_STATE_EQUALITY);
  return mapAsOf(agreedState, (nonceState, blocks) => {
    if (nonceState.state === "unused" || nonceState.state === "used_before") return nonceState;
    if (nonceState.state === "used") return { state: "used", settlement: asSettlement(nonceState.moved, blocks) };
    const { tx, blockNumber } = nonceState;
    return { state: "cancelled", tx, final: blockNumber <= blocks.final.number };
  });
}
