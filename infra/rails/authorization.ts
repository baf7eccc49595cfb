import { randomBytes } from "node:crypto";
import { getAddress, type Hex, parseAbi, parseSignature } from "viem";
import { z } from "zod";
import { systemClock } from "../clock.ts";
import { accountOf } from "./account.ts";
import { signingDomain } from "./charge.ts";
import { type AnswerEquality, quorum, TRANSFER_EQUALITY } from "./quorum.ts";
import { type AsOf, mapAsOf, type Settlement, type SettlementQuery, type Wallet } from "./rails.ts";
import { type Outcome, type Sender, transact } from "./sender.ts";
import { asSettlement, fateOf, type NonceFate, type TokenOnChain } from "./settlement.ts";

/** OpenZeppelin's names. USDC says the same in sentences. */
export const TOKEN_ERRORS = [
  "error ERC3009InvalidSignature()",
  "error ERC3009InvalidAuthorizationTime(uint256 validAfter, uint256 validBefore)",
  "error ERC3009UsedAuthorization(address authorizer, bytes32 nonce)",
  "error ERC20InsufficientBalance(address sender, uint256 balance, uint256 needed)",
] as const;
const TOKEN = parseAbi([
  "function transferWithAuthorization(address from, address to, uint256 value, uint256 validAfter, uint256 validBefore, bytes32 nonce, uint8 v, bytes32 r, bytes32 s)",
  "function cancelAuthorization(address authorizer, bytes32 nonce, uint8 v, bytes32 r, bytes32 s)",
  ...TOKEN_ERRORS,
]);

/** EIP-712 types of EIP-3009. */
const FIELDS = [
  { name: "from", type: "address" },
  { name: "to", type: "address" },
  { name: "value", type: "uint256" },
  { name: "validAfter", type: "uint256" },
  { name: "validBefore", type: "uint256" },
  { name: "nonce", type: "bytes32" },
] as const;
export const TRANSFER_TYPES = { TransferWithAuthorization: FIELDS } as const;
export const RECEIVE_TYPES = { ReceiveWithAuthorization: FIELDS } as const;
const CANCEL_TYPES = {
  CancelAuthorization: [
    { name: "authorizer", type: "address" },
    { name: "nonce", type: "bytes32" },
  ],
} as const;

const HexAddress = z.string().regex(/^0x[0-9a-fA-F]{40}$/);
/** Unix seconds that a number can hold: a validity past them is not a moment but a way to say "for ever". */
const Seconds = z.string().refine((text) => /^\d{1,16}$/.test(text) && Number.isSafeInteger(Number(text)));
const Uint256 = z.string().refine((text) => /^\d{1,78}$/.test(text) && BigInt(text) < 1n << 256n);
const Signed = z.looseObject({
  authorization: z.looseObject({
    from: HexAddress,
    to: HexAddress,
    value: Uint256,
    validAfter: Seconds,
    validBefore: Seconds,
    nonce: z.string().regex(/^0x[0-9a-fA-F]{64}$/),
  }),
  // 65 bytes of an ordinary wallet; a contract's may be longer.
  signature: z.string().regex(/^0x([0-9a-fA-F]{2}){1,4096}$/),
});

/** What a signed EIP-3009 transfer says, read. Addresses and nonce are lower-case. */
export interface Authorization {
  from: string;
  to: string;
  valueAtomic: bigint;
  /** Unix seconds. Good while `validAfter < now < validBefore`. */
  validAfter: number;
  validBefore: number;
  nonce: string;
  signature: Hex;
}

/**
 * The EIP-3009 authorization of an x402 payload (`exact` of either version, `auth-capture`), or null when there is none
 * or it cannot be read. Pure; never throws: a stranger wrote it. @param payment the decoded payment header
 */
export function authorizationOf(payment: unknown): Authorization | null {
  const read = Signed.safeParse((payment as { payload?: unknown } | null | undefined)?.payload);
  if (!read.success) return null;
  const { authorization, signature } = read.data;
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

/** A transfer that is ours, signed and complete, as JSON: sent again it is the same transfer, and moves money once. */
export interface SignedTransfer {
  authorization: { from: string; to: string; value: string; validAfter: string; validBefore: string; nonce: string };
  signature: string;
}

/** Our word that an authorization of ours is not to be used, as JSON. */
export interface SignedCancel {
  authorizer: string;
  nonce: string;
  signature: string;
}

export type AuthorizationState =
  /** Nobody used it up to the head of the read. */
  | { state: "unused" }
  | { state: "used"; settlement: Settlement }
  /** Can never be used. `final` as for a settlement. */
  | { state: "cancelled"; tx: string; final: boolean };

/** Our own EIP-3009 transfers and what the chain says of them: refunds, and payments that must never be taken. */
export interface Authorizations {
  /**
   * Sign a transfer out of one of our wallets. Nothing is sent: the caller makes it durable first.
   * @param order `to` an address, `amountAtomic` above zero, `validForSeconds` from now until nobody can use it
   */
  signTransfer(
    wallet: Wallet,
    order: { to: string; amountAtomic: bigint; validForSeconds: number },
  ): Promise<SignedTransfer>;
  /** Send it. Refused when it was used or cancelled, has expired, or the wallet does not hold enough: ask `stateOf`. */
  submitTransfer(transfer: SignedTransfer): Promise<Outcome>;
  /** Sign that an unused nonce of one of our wallets is cancelled (EIP-3009, cancelAuthorization). */
  signCancel(wallet: Wallet, nonce: string): Promise<SignedCancel>;
  /** Send it. Refused when the nonce was used or cancelled before: ask `stateOf`. */
  submitCancel(cancel: SignedCancel): Promise<Outcome>;
  /** What became of a nonce since a block, from the token's own state and logs. @throws ChainDown */
  stateOf(query: SettlementQuery): Promise<AsOf<AuthorizationState>>;
}

/** @param sender pays the gas; who it is plays no part in what is transferred */
export function createAuthorizations(money: TokenOnChain, sender: Sender): Authorizations {
  const { network, asset } = money;
  const known = money.domain ?? signingDomain(network, asset);
  if (!known) throw new TypeError(`the signing domain of ${asset} on ${network} is not known`);
  const chainId = Number(network.slice("eip155:".length));
  const domain = { ...known, chainId, verifyingContract: getAddress(asset) };
  const call = (functionName: string, args: readonly unknown[]) =>
    transact(sender, { address: asset, abi: TOKEN, functionName, args });

  return {
    async signTransfer(wallet, { to, amountAtomic, validForSeconds }) {
      if (amountAtomic <= 0n) throw new RangeError("a transfer is of more than nothing");
      if (!Number.isSafeInteger(validForSeconds) || validForSeconds < 1) throw new RangeError("no validity");
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
      return call("transferWithAuthorization", [from, to, ...numbers, nonce, ...vrs(signature)]);
    },
    async signCancel(wallet, nonce) {
      const account = accountOf(wallet);
      const message = { authorizer: account.address, nonce: nonce as Hex };
      const primaryType = "CancelAuthorization";
      const signature = await account.signTypedData({ domain, types: CANCEL_TYPES, primaryType, message });
      return { authorizer: account.address, nonce, signature };
    },
    submitCancel: ({ authorizer, nonce, signature }) =>
      call("cancelAuthorization", [authorizer, nonce, ...vrs(signature)]),
    stateOf: (query) => stateOf(money, query),
  };
}

function vrs(signature: string): [number, Hex, Hex] {
  const { v, yParity, r, s } = parseSignature(signature as Hex);
  return [Number(v ?? BigInt(27 + yParity)), r, s];
}

const FATE: AnswerEquality<NonceFate> = {
  textOf(fate) {
    if (fate.state === "used") return `used ${TRANSFER_EQUALITY.textOf(fate.moved)}`;
    return fate.state === "cancelled" ? `cancelled ${fate.tx} ${fate.blockNumber}` : "unused";
  },
};

/** See `Authorizations.stateOf`. */
async function stateOf(money: TokenOnChain, query: SettlementQuery): Promise<AsOf<AuthorizationState>> {
  const read = await quorum.read(money, (node, head) => fateOf(node, query, head), FATE);
  return mapAsOf(read, (fate, blocks) => {
    if (fate.state === "unused") return fate;
    if (fate.state === "used") return { state: "used", settlement: asSettlement(fate.moved, blocks) };
    const { tx, blockNumber } = fate;
    return { state: "cancelled", tx, final: blockNumber <= blocks.final.number };
  });
}
