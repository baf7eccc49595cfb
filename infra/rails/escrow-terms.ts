import type { Network, PaymentRequirements } from "@x402/core/types";
import {
  type Address,
  encodeAbiParameters,
  getAddress,
  type Hex,
  keccak256,
  parseAbi,
  toBytes,
  zeroAddress,
} from "viem";
import { authorizationOf, TOKEN_ERRORS } from "./authorization.ts";
import { type SigningDomain, signingDomain } from "./charge.ts";

/**
 * The escrow contract of commerce-payments 1.0; the contracts have the same addresses on every chain. Our offers
 * contain this address, because a buyer's client that is given none signs for another version of the contracts, and
 * its payment is invalid.
 */
export const ESCROW: Address = "0xBdEA0D1bcC5966192B070Fdf62aB4EF5b4420cff";
/** The token collector: the buyer signs an EIP-3009 transfer to this address. */
export const COLLECTOR: Address = "0x0E3dF9510de65469C4518D7843919c0b8C7A7757";

export const ESCROW_ABI = parseAbi([
  "struct PaymentInfo { address operator; address payer; address receiver; address token; uint120 maxAmount; uint48 preApprovalExpiry; uint48 authorizationExpiry; uint48 refundExpiry; uint16 minFeeBps; uint16 maxFeeBps; address feeReceiver; uint256 salt; }",
  "function authorize(PaymentInfo paymentInfo, uint256 amount, address tokenCollector, bytes collectorData)",
  "function capture(PaymentInfo paymentInfo, uint256 amount, uint16 feeBps, address feeReceiver)",
  "function void(PaymentInfo paymentInfo)",
  "function reclaim(PaymentInfo paymentInfo)",
  "function refund(PaymentInfo paymentInfo, uint256 amount, address tokenCollector, bytes collectorData)",
  "function getHash(PaymentInfo paymentInfo) view returns (bytes32)",
  "function paymentState(bytes32 paymentInfoHash) view returns (bool hasCollectedPayment, uint120 capturableAmount, uint120 refundableAmount)",
  "event PaymentAuthorized(bytes32 indexed paymentInfoHash, PaymentInfo paymentInfo, uint256 amount, address tokenCollector)",
  "event PaymentCaptured(bytes32 indexed paymentInfoHash, uint256 amount, uint16 feeBps, address feeReceiver)",
  "event PaymentVoided(bytes32 indexed paymentInfoHash, uint256 amount)",
  "event PaymentReclaimed(bytes32 indexed paymentInfoHash, uint256 amount)",
  "error InvalidSender(address sender, address expected)",
  "error ZeroAmount()",
  "error AmountOverflow(uint256 amount, uint256 limit)",
  "error ExceedsMaxAmount(uint256 amount, uint256 maxAmount)",
  "error AfterPreApprovalExpiry(uint48 timestamp, uint48 expiry)",
  "error InvalidExpiries(uint48 preApproval, uint48 authorization, uint48 refund)",
  "error FeeBpsOutOfRange(uint16 feeBps, uint16 minFeeBps, uint16 maxFeeBps)",
  "error InvalidFeeReceiver(address attempted, address expected)",
  "error TokenCollectionFailed()",
  "error PaymentAlreadyCollected(bytes32 paymentInfoHash)",
  "error AfterAuthorizationExpiry(uint48 timestamp, uint48 expiry)",
  "error InsufficientAuthorization(bytes32 paymentInfoHash, uint256 authorizedAmount, uint256 requestedAmount)",
  "error ZeroAuthorization(bytes32 paymentInfoHash)",
  "error BeforeAuthorizationExpiry(uint48 timestamp, uint48 expiry)",
  "error RefundExceedsCapture(uint256 refund, uint256 captured)",
  // The token's errors pass through the escrow.
  ...TOKEN_ERRORS,
]);

/** The terms of one payment, as the escrow contract takes them. The buyer's signature covers all of them. */
export interface PaymentInfo {
  operator: Address;
  payer: Address;
  receiver: Address;
  token: Address;
  maxAmount: bigint;
  preApprovalExpiry: number;
  authorizationExpiry: number;
  refundExpiry: number;
  minFeeBps: number;
  maxFeeBps: number;
  feeReceiver: Address;
  salt: bigint;
}

const PAYMENT_INFO_PARAMETER = ESCROW_ABI.find((item) => item.type === "function" && item.name === "void")!.inputs[0];
const TYPEHASH = keccak256(
  toBytes(
    "PaymentInfo(address operator,address payer,address receiver,address token,uint120 maxAmount,uint48 preApprovalExpiry,uint48 authorizationExpiry,uint48 refundExpiry,uint16 minFeeBps,uint16 maxFeeBps,address feeReceiver,uint256 salt)",
  ),
);

/** Computes the hash that identifies a payment in the escrow (the contract's `getHash`). */
function hashOf(chainId: number, info: PaymentInfo): Hex {
  const infoHash = keccak256(encodeAbiParameters([{ type: "bytes32" }, PAYMENT_INFO_PARAMETER], [TYPEHASH, info]));
  const types = [{ type: "uint256" }, { type: "address" }, { type: "bytes32" }] as const;
  return keccak256(encodeAbiParameters(types, [BigInt(chainId), ESCROW, infoHash]));
}

/** Computes the nonce that the payer signs: the payment's hash with a zero payer, since offers do not know the payer. */
const nonceOf = (chainId: number, info: PaymentInfo): Hex => hashOf(chainId, { ...info, payer: zeroAddress });

/** The token that is held in escrow, the receiver and the operator of the hold. */
export interface EscrowPlace {
  /** CAIP-2. */
  network: string;
  asset: string;
  /** Receives captured money. */
  payTo: string;
  /** The only address that may authorize, capture and void: that of our sender. */
  operator: string;
  /** EIP-712 name and version; only needed for a token that `signingDomain` does not know. */
  domain?: SigningDomain;
}

/** Seconds from the offer until a hold can no longer be captured and its buyer may reclaim it. */
const HOLD_DURATION_S = 1_800;
/** Seconds from the offer within which a client has to sign and we have to place the hold. */
const SIGNING_WINDOW_S = 300;
/** Seconds that must be left of a hold when it is accepted: for the seller's answer, the check and the capture. */
const MIN_HOLD_LEFT_S = 600;

/**
 * Returns an x402 v2 `auth-capture` offer with deferred capture: the buyer's money is held in the escrow, and we as its
 * operator capture or void it. The escrow's fee is fixed at zero.
 * @param totalAtomic the amount that is held and captured in whole, a positive uint120
 * @param now unix seconds
 * @throws TypeError when the token's signing domain is unknown; RangeError for another amount
 */
export function escrowOffer(
  { network, asset, payTo, operator, domain: configuredDomain }: EscrowPlace,
  totalAtomic: bigint,
  now: number,
): PaymentRequirements {
  const domain = configuredDomain ?? signingDomain(network, asset);
  if (!domain) throw new TypeError(`the signing domain of ${asset} on ${network} is not known`);
  if (totalAtomic <= 0n || totalAtomic >= 1n << 120n) throw new RangeError("the amount must be a positive uint120");
  const receiver = getAddress(payTo);
  return {
    scheme: "auth-capture",
    network: network as Network,
    amount: totalAtomic.toString(),
    asset,
    payTo: receiver,
    maxTimeoutSeconds: SIGNING_WINDOW_S,
    extra: {
      ...{ name: domain.name, version: domain.version, assetTransferMethod: "eip3009" },
      ...{ authCaptureEscrow: ESCROW, captureAuthorizer: getAddress(operator), operatorType: "delegated" },
      ...{ paymentFlow: "escrow", captureMode: "deferred" },
      ...{ captureDeadline: now + HOLD_DURATION_S, refundDeadline: now + HOLD_DURATION_S },
      ...{ feeRecipient: receiver, minFeeBps: 0, maxFeeBps: 0 },
    },
  };
}

/** A payment that can be placed in escrow. All fields are computed from the buyer's payload and our offer. */
export interface Hold {
  info: PaymentInfo;
  /** Identifies the payment in the escrow. */
  hash: Hex;
  /** EIP-3009 nonce under which the payer's money moves into the escrow, lower-case. */
  nonce: string;
  /** Lower-case. */
  payer: string;
  signature: Hex;
  amountAtomic: bigint;
  /** Unix seconds until which the hold may be placed. */
  validBefore: number;
  /** Unix seconds until which the hold may be captured; after that its buyer may reclaim it. */
  captureDeadline: number;
}

/** Returns a reason in the form that the scheme `auth-capture` defines. */
const schemeReason = (what: string): string => `invalid_auth_capture_evm_${what}`;

/** Matches signatures of undeployed wallets (ERC-6492): the collector would execute their deployment at our cost. */
const ERC6492 = /6492649264926492649264926492649264926492649264926492649264926492$/;

const isWholeSeconds = (value: unknown): value is number => Number.isSafeInteger(value) && Number(value) < 2 ** 48;

/**
 * Returns the hold that a payload would place, or why the payload does not match our offer. Deadlines change with
 * every offer, so they are taken from the buyer's echo (`accepted.extra`); all other terms are taken from `offer`,
 * and a payload that was signed over other terms has another nonce. Pure, independent of the time, and never throws
 * on untrusted input.
 */
export function holdOf(payment: unknown, offer: PaymentRequirements): Hold | { reason: string } {
  const authorization = authorizationOf(payment);
  const { x402Version, accepted, payload } = (payment ?? {}) as Record<string, Record<string, unknown>>;
  const { salt, saltNonce } = payload ?? {};
  // `saltNonce` belongs to offers with another authorizer than ours.
  const isSalt = typeof salt === "string" && /^0x[0-9a-fA-F]{64}$/.test(salt) && saltNonce === undefined;
  if (!authorization || !isSalt) return { reason: schemeReason("payload_format") };
  if ((x402Version as unknown) !== 2 || accepted?.scheme !== "auth-capture") return { reason: schemeReason("scheme") };
  if (accepted.network !== offer.network) return { reason: schemeReason("network_mismatch") };
  const echo = (accepted.extra ?? {}) as Record<string, unknown>;
  const { captureDeadline, refundDeadline } = echo;
  if (!isWholeSeconds(captureDeadline) || !isWholeSeconds(refundDeadline)) return { reason: schemeReason("extra") };
  const { from, to, valueAtomic, validAfter, validBefore, nonce, signature } = authorization;
  if (to !== COLLECTOR.toLowerCase()) return { reason: schemeReason("token_collector_mismatch") };
  if (valueAtomic !== BigInt(offer.amount)) return { reason: schemeReason("amount_mismatch") };
  // The collector always passes zero as validAfter, so a signature over another value is invalid.
  if (validAfter !== 0) return { reason: schemeReason("authorization_not_yet_valid") };
  if (validBefore > captureDeadline || captureDeadline > refundDeadline)
    return { reason: schemeReason("deadline_ordering") };
  if (ERC6492.test(signature)) return { reason: schemeReason("erc6492_factory_not_allowed") };
  const extra = offer.extra as { captureAuthorizer: Address; feeRecipient: Address };
  const info: PaymentInfo = {
    ...{ operator: extra.captureAuthorizer, payer: getAddress(from), receiver: offer.payTo as Address },
    ...{ token: getAddress(offer.asset), maxAmount: valueAtomic, preApprovalExpiry: validBefore },
    ...{ authorizationExpiry: captureDeadline, refundExpiry: refundDeadline, minFeeBps: 0, maxFeeBps: 0 },
    ...{ feeReceiver: extra.feeRecipient, salt: BigInt(salt) },
  };
  const chainId = Number(offer.network.slice("eip155:".length));
  if (nonceOf(chainId, info) !== nonce) return { reason: schemeReason("nonce_mismatch") };
  const hash = hashOf(chainId, info);
  return { info, hash, nonce, payer: from, signature, amountAtomic: valueAtomic, validBefore, captureDeadline };
}

/** Allowed difference in seconds between the clocks of the machine that made the offer and the one that checks it. */
const CLOCK_SKEW_S = 5;
/** Seconds that must be left of a signature for its transaction (the scheme's minimum). */
const MIN_SIGNED_S = 6;

/** Returns the reason why a hold's deadlines are not accepted, or null. @param now unix seconds */
export function holdTimeObstacle(hold: Hold, now: number): string | null {
  const { captureDeadline, validBefore, info } = hold;
  // Refuses a deadline later than the one that we offer, since buyers are promised that they can reclaim the money
  // after it.
  if (captureDeadline > now + HOLD_DURATION_S + CLOCK_SKEW_S) return schemeReason("extra");
  if (info.refundExpiry !== captureDeadline) return schemeReason("extra");
  if (captureDeadline < now + MIN_HOLD_LEFT_S) return schemeReason("capture_deadline_expired");
  return validBefore > now + MIN_SIGNED_S ? null : schemeReason("authorization_expired");
}
