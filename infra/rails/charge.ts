import { authorizationTypes, DEFAULT_ASSETS } from "@x402/evm";
import { EVM_NETWORK_CHAIN_ID_MAP } from "@x402/evm/v1";
import { type Address, getAddress, type Hex, isAddress, keccak256, stringToBytes, zeroAddress } from "viem";
import { BoundedMap } from "../bounded-map.ts";
import { systemClock } from "../clock.ts";
import { accountOf } from "./account.ts";
import { CannotSign, type PayableEntry, type PaymentChallenge, type SignedPayment, type Wallet } from "./rails.ts";
import { isUsed, type TokenAtNode } from "./settlement.ts";

/** A challenge with less time left than this, in seconds, is not signed: it could expire before the seller settles it. */
const MIN_VALIDITY_S = 10;
/** Number of signed nonces that are remembered; the oldest is forgotten first. */
const MAX_REMEMBERED_NONCES = 10_000;

/** A token's EIP-712 name and version. EIP-3009 signatures cover them. */
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
 * USDC by chain, from the x402 package; its table includes every entry of the table in the package mppx. Needed because an mpp challenge
 * (`WWW-Authenticate: Payment`) does not carry the token's signing domain, as x402 terms do, and a signature under a
 * wrong domain is invalid.
 */
const KNOWN_USDC: readonly KnownToken[] = Object.entries(DEFAULT_ASSETS).flatMap(([network, assets]) =>
  assets.flatMap(({ asset, name, version, symbol, decimals, assetTransferMethod }) =>
    symbol === "USDC" && decimals === 6 && assetTransferMethod === undefined
      ? [{ network, address: asset, name, version }]
      : [],
  ),
);

/** Returns USDC of a chain (CAIP-2), or null when the chain is not in the table. */
export const knownUsdc = (network: string): KnownToken | null =>
  KNOWN_USDC.find((one) => one.network === network) ?? null;

/** Returns the signing domain of a token on a chain (CAIP-2), or null when the token is not in the table. */
export function signingDomain(network: string, asset: string): SigningDomain | null {
  const knownToken = KNOWN_USDC.find(
    (one) => one.network === network && one.address.toLowerCase() === asset.toLowerCase(),
  );
  return knownToken ? { name: knownToken.name, version: knownToken.version } : null;
}

/** Returns the names that x402 v1 has for a chain. @param network the chain's CAIP-2 id, which v2 uses */
export const v1NamesOf = (network: string): string[] =>
  Object.entries(EVM_NETWORK_CHAIN_ID_MAP)
    .filter(([, id]) => network === `eip155:${id}`)
    .map(([name]) => name);

/**
 * Returns a function that throws CannotSign for a nonce that it was called with before, or that was paid on the
 * chain.
 * @param isPaid reads from the chain whether the nonce was used; when it throws, the nonce is forgotten and may be
 * tried again
 */
export function createNonceGuard(isPaid: (from: Address, nonce: Hex) => Promise<boolean>) {
  const signedNonces = new BoundedMap<string, true>(MAX_REMEMBERED_NONCES);
  return async (from: Address, nonce: Hex): Promise<void> => {
    const key = `${from} ${nonce}`;
    if (signedNonces.has(key)) throw new CannotSign("the seller repeats a challenge that was signed before");
    // Set before the chain is asked: otherwise two concurrent calls with one challenge would both find it unused.
    signedNonces.set(key, true);
    try {
      if (!(await isPaid(from, nonce))) return;
    } catch (error) {
      signedNonces.delete(key);
      throw error;
    }
    throw new CannotSign("the seller repeats a challenge that was paid before");
  };
}

/** Decodes `methodDetails` of a challenge's request; an empty object when it is absent or malformed. Never throws. */
export function methodDetails(challenge: PaymentChallenge): Record<string, unknown> {
  try {
    const request = JSON.parse(Buffer.from(challenge.request, "base64url").toString("utf8"));
    const details: unknown = request?.methodDetails;
    return typeof details === "object" && details !== null ? (details as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

const sortMembers = (members: object): object =>
  Object.fromEntries(Object.entries(members).sort(([a], [b]) => (a < b ? -1 : 1)));

/** Returns the challenge with its members in the order in which the stock mpp client writes them. */
export function orderAsStockClient({ opaque, request, ...others }: PaymentChallenge): object {
  return { ...sortMembers(others), ...(opaque === undefined ? {} : { opaque }), request };
}

/** Headers that carry a credential: the protocol's default, and the one for servers that use Authorization otherwise. */
const CREDENTIAL_HEADERS = ["AUTHORIZATION", "PAYMENT-AUTHORIZATION"] as const;
/**
 * Returns the name of the header in which a challenge requires its credential, upper-case; undefined for a header
 * that is not one of these two.
 */
export const credentialHeaderOf = (challenge: PaymentChallenge) =>
  CREDENTIAL_HEADERS.find((name) => name === (challenge.header ?? "Authorization").toUpperCase());

/**
 * Returns why an mpp challenge of this method cannot be paid, or null. Checks what all payment methods of mpp have in
 * common: method, intent, id and realm, network, asset, recipient, amount (below 2^bits), header, expiry and splits.
 * Pure; never throws.
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
  if (!credentialHeaderOf(challenge)) return `header ${challenge.header}`;
  if (challenge.expires !== undefined && Number.isNaN(Date.parse(challenge.expires))) return "expires is no time";
  const { splits } = methodDetails(challenge);
  return Array.isArray(splits) && splits.length > 0 ? "the amount is split" : null;
}

/**
 * Returns why an mpp challenge cannot be paid with a signed EIP-3009 authorization, or null. As in the stock client,
 * the method must be `evm`, the intent `charge`, and the credential type `authorization` must be offered. Pure; never
 * throws.
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
  const isAuthorizationAccepted = Array.isArray(credentialTypes) && credentialTypes.includes("authorization");
  return isAuthorizationAccepted ? null : "no authorization accepted";
}

/**
 * Returns a function that signs mpp challenges as `Authorization: Payment <base64url {challenge, payload, source}>`,
 * where the payload is a signed EIP-3009 authorization. The seller broadcasts the authorization; this process never
 * does.
 *
 * The nonce is the hash of the challenge's id and realm, so the seller chooses it. A nonce that was signed or used
 * before throws CannotSign: two payments under one nonce settle only once. If the seller then did not deliver for the
 * second, the transfer of the first would be taken for the second's, as if the seller had kept money without
 * delivering.
 *
 * The authorization expires with the challenge, as in the stock client, or after the entry's `maxTimeoutSeconds` if
 * that is sooner. `expires` is compared with the system's clock, even while the service runs in simulated time.
 */
export function createChargeSigner({ reader, network, asset, domain: tokenDomain }: TokenAtNode) {
  const refuseUsed = createNonceGuard((from, nonce) => isUsed(reader, asset, from, nonce));

  return async (entry: PayableEntry, challenge: PaymentChallenge, wallet: Wallet): Promise<SignedPayment> => {
    const account = accountOf(wallet);
    const now = Math.floor(systemClock.now().getTime() / 1000);
    const challengeEndS = challenge.expires === undefined ? Infinity : Math.floor(Date.parse(challenge.expires) / 1000);
    const validBefore = Math.min(challengeEndS, now + entry.maxTimeoutSeconds);
    if (validBefore < now + MIN_VALIDITY_S) throw new CannotSign("the challenge has expired, or is about to");
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
    const { name, version } = (tokenDomain ?? signingDomain(network, asset))!;
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
    const credential = { challenge: orderAsStockClient(challenge), payload: sortMembers(payload), source };
    return {
      headerName: credentialHeaderOf(challenge)!,
      headerValue: `Payment ${Buffer.from(JSON.stringify(credential)).toString("base64url")}`,
      from: account.address.toLowerCase(),
      nonce,
      validAfter: 0,
      validBefore,
      amountAtomic: entry.amountAtomic,
    };
  };
}
