import { authorizationTypes, DEFAULT_ASSETS } from "@x402/evm";
import { EVM_NETWORK_CHAIN_ID_MAP } from "@x402/evm/v1";
import { type Address, getAddress, type Hex, isAddress, keccak256, stringToBytes, zeroAddress } from "viem";
import { BoundedMap } from "../bounded-map.ts";
import { systemClock } from "../clock.ts";
import { accountOf } from "./account.ts";
import { CannotSign, type PayableEntry, type PaymentChallenge, type SignedPayment, type Wallet } from "./rails.ts";
import { isUsed, type TokenAtNode } from "./settlement.ts";

/** A challenge that ends sooner could expire on the way: it is not signed at all. */
const LEAST_VALIDITY_S = 10;
/** Nonces remembered so that none is signed twice, newest kept. */
const MAX_SIGNED = 10_000;

/** A token's EIP-712 name and version (EIP-3009 signatures are over them). */
export interface SigningDomain {
  name: string;
  version: string;
}

/** USDC with EIP-3009 on one chain, 6 decimals. */
export interface KnownToken extends SigningDomain {
  network: string;
  address: string;
}

/**
 * USDC by chain, from x402's own package, in which all of mppx's own table stands too. An mpp challenge does not carry
 * the signing domain as x402 terms do, and a signature under a guessed name would be worth nothing.
 */
const KNOWN: readonly KnownToken[] = Object.entries(DEFAULT_ASSETS).flatMap(([network, listed]) =>
  listed.flatMap(({ asset, name, version, symbol, decimals, assetTransferMethod }) =>
    symbol === "USDC" && decimals === 6 && assetTransferMethod === undefined
      ? [{ network, address: asset, name, version }]
      : [],
  ),
);

/** USDC of a chain (CAIP-2), or null where it is not known. */
export const knownUsdc = (network: string): KnownToken | null => KNOWN.find((one) => one.network === network) ?? null;

/** Signing domain of a token on a chain (CAIP-2), or null when it is not known. */
export function signingDomain(network: string, asset: string): SigningDomain | null {
  const known = KNOWN.find((one) => one.network === network && one.address.toLowerCase() === asset.toLowerCase());
  return known ? { name: known.name, version: known.version } : null;
}

/** Names that x402 v1 has for a chain, which v2 names by its CAIP-2 id. */
export const v1NamesOf = (network: string): string[] =>
  Object.entries(EVM_NETWORK_CHAIN_ID_MAP)
    .filter(([, id]) => network === `eip155:${id}`)
    .map(([name]) => name);

/**
 * Refuses a nonce that was signed here before, or that the chain says was paid.
 * @param isPaid asks the chain; where it throws, the nonce may be signed another time
 */
export function createNonceGuard(isPaid: (from: Address, nonce: Hex) => Promise<boolean>) {
  const signed = new BoundedMap<string, true>(MAX_SIGNED);
  return async (from: Address, nonce: Hex): Promise<void> => {
    const key = `${from} ${nonce}`;
    if (signed.has(key)) throw new CannotSign("the seller repeats a challenge that was signed before");
    // Before the chain is asked: two calls at once with one challenge would both find it unused.
    signed.set(key, true);
    try {
      if (!(await isPaid(from, nonce))) return;
    } catch (error) {
      signed.delete(key);
      throw error;
    }
    throw new CannotSign("the seller repeats a challenge that was paid before");
  };
}

/** The challenge's decoded request, as far as a signature needs it. Anything may be missing: a stranger wrote it. */
export function methodDetails(challenge: PaymentChallenge): Record<string, unknown> {
  try {
    const request = JSON.parse(Buffer.from(challenge.request, "base64url").toString("utf8"));
    const details: unknown = request?.methodDetails;
    return typeof details === "object" && details !== null ? (details as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

const sorted = (members: object): object =>
  Object.fromEntries(Object.entries(members).sort(([a], [b]) => (a < b ? -1 : 1)));

/** Members in the order in which the stock client writes them. */
export function inClientOrder({ opaque, request, ...others }: PaymentChallenge): object {
  return { ...sorted(others), ...(opaque === undefined ? {} : { opaque }), request };
}

/** Headers a credential is sent in: the protocol's own, and that of servers which keep Authorization for themselves. */
const HEADERS = ["AUTHORIZATION", "PAYMENT-AUTHORIZATION"] as const;
export const headerOf = (challenge: PaymentChallenge) =>
  HEADERS.find((name) => name === (challenge.header ?? "Authorization").toUpperCase());

/**
 * What rules out an mpp challenge of this method, whichever way it is paid: intent, network, asset, recipient, amount
 * (of so many bits), header, end and splits. Pure; never throws.
 */
export function challengeObstacle(
  entry: PayableEntry,
  { method, network, asset, bits }: { method: string; network: string; asset: string; bits: number },
): string | null {
  const { challenge } = entry;
  if (challenge?.method !== method || challenge.intent !== "charge") return `no ${method}/charge`;
  if (!challenge.id || !challenge.realm) return "id and realm are missing";
  if (entry.network !== network) return `network ${entry.network}`;
  if (entry.asset?.toLowerCase() !== asset) return `asset ${entry.asset}`;
  if (!isAddress(entry.payTo ?? "", { strict: false })) return "recipient is not an address";
  if (entry.payTo.toLowerCase() === zeroAddress) return "recipient is the zero address";
  if (entry.amountAtomic <= 0n || entry.amountAtomic >= 1n << BigInt(bits))
    return `amount is not a positive uint${bits}`;
  if (!headerOf(challenge)) return `header ${challenge.header}`;
  if (challenge.expires !== undefined && Number.isNaN(Date.parse(challenge.expires))) return "expires is no time";
  const { splits } = methodDetails(challenge);
  return Array.isArray(splits) && splits.length > 0 ? "the amount is split" : null;
}

/**
 * Why this mpp challenge cannot be paid with a signed EIP-3009 authorization, or null when it can. Pure; never throws.
 * Only method `evm`, intent `charge` (the stock client's rules): the type `authorization` must be offered, no splits.
 */
export function evmChargeObstacle(
  entry: PayableEntry,
  network: string,
  asset: string,
  domain: SigningDomain | null = signingDomain(network, asset),
): string | null {
  const why = challengeObstacle(entry, { method: "evm", network, asset, bits: 256 });
  if (why !== null) return why;
  if (!domain) return "the token's signing domain is not known";
  const { credentialTypes } = methodDetails(entry.challenge!);
  const isTaken = Array.isArray(credentialTypes) && credentialTypes.includes("authorization");
  return isTaken ? null : "no authorization accepted";
}

/**
 * Signs mpp challenges: `Authorization: Payment <base64url {challenge, payload, source}>`, where the payload is a
 * signed EIP-3009 authorization. Complete before anything leaves: the seller broadcasts it, we never do.
 *
 * The nonce is the hash of the challenge's id and realm, so it is the seller's choice. One that was signed or used
 * before is refused: two payments under one nonce settle once, and the second would look like a theft.
 *
 * The stock client signs until the challenge expires; ours ends after the entry's `maxTimeoutSeconds` when that is
 * sooner. `expires` is chain time: real, whatever the record's clock says.
 */
export function createChargeSigner({ reader, network, asset, domain: own }: TokenAtNode) {
  const refuseUsed = createNonceGuard((from, nonce) => isUsed(reader, asset, from, nonce));

  return async (entry: PayableEntry, challenge: PaymentChallenge, wallet: Wallet): Promise<SignedPayment> => {
    const account = accountOf(wallet);
    const now = Math.floor(systemClock.now().getTime() / 1000);
    const end = challenge.expires === undefined ? Infinity : Math.floor(Date.parse(challenge.expires) / 1000);
    const validBefore = Math.min(end, now + entry.maxTimeoutSeconds);
    if (validBefore < now + LEAST_VALIDITY_S) throw new CannotSign("the challenge has expired, or is about to");
    const nonce = keccak256(stringToBytes(`${challenge.id}${challenge.realm}`));
    await refuseUsed(account.address, nonce);
    const chainId = Number(network.slice("eip155:".length));
    const authorization = {
      from: account.address,
      to: getAddress(entry.payTo),
      value: entry.amountAtomic,
      validAfter: 0n,
      validBefore: BigInt(validBefore),
      nonce,
    };
    const { name, version } = (own ?? signingDomain(network, asset))!;
    const signature = await account.signTypedData({
      domain: { name, version, chainId, verifyingContract: getAddress(asset) },
      message: authorization,
      primaryType: "TransferWithAuthorization",
      types: authorizationTypes,
    });
    const payload = {
      ...authorization,
      value: entry.amountAtomic.toString(),
      validAfter: "0",
      validBefore: String(validBefore),
      type: "authorization",
      signature,
    };
    const source = `did:pkh:eip155:${chainId}:${account.address}`;
    const credential = { challenge: inClientOrder(challenge), payload: sorted(payload), source };
    return {
      headerName: headerOf(challenge)!,
      headerValue: `Payment ${Buffer.from(JSON.stringify(credential)).toString("base64url")}`,
      from: account.address.toLowerCase(),
      nonce,
      validAfter: 0,
      validBefore,
      amountAtomic: entry.amountAtomic,
    };
  };
}
