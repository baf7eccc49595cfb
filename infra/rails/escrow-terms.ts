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
 * Version 1.0 of the commerce-payments contracts, at the same addresses on every chain that has them. An offer names
 * the escrow: a buyer's client that is told nothing signs for another version, and its payment fits nowhere.
 */
export const ESCROW: Address = "0xBdEA0D1bcC5966192B070Fdf62aB4EF5b4420cff";
/** Takes the buyer's EIP-3009 authorization: what the buyer signs is a transfer to this address. */
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
  // Of the token, through the escrow.
  ...TOKEN_ERRORS,
]);

/** Every term of one payment, as the escrow takes it. The buyer's signature covers all of it. */
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

const PAYMENT_INFO = ESCROW_ABI.find((item) => item.type === "function" && item.name === "void")!.inputs[0];
const TYPEHASH = keccak256(
  toBytes(
    "PaymentInfo(address operator,address payer,address receiver,address token,uint120 maxAmount,uint48 preApprovalExpiry,uint48 authorizationExpiry,uint48 refundExpiry,uint16 minFeeBps,uint16 maxFeeBps,address feeReceiver,uint256 salt)",
  ),
);

/** The escrow's name for a payment (its `getHash`), worked out here. */
function hashOf(chainId: number, info: PaymentInfo): Hex {
  const said = keccak256(encodeAbiParameters([{ type: "bytes32" }, PAYMENT_INFO], [TYPEHASH, info]));
  const types = [{ type: "uint256" }, { type: "address" }, { type: "bytes32" }] as const;
  return keccak256(encodeAbiParameters(types, [BigInt(chainId), ESCROW, said]));
}

/** The nonce that the payer signs: the same with the payer left out, who is not known when terms are made. */
const nonceOf = (chainId: number, info: PaymentInfo): Hex => hashOf(chainId, { ...info, payer: zeroAddress });

/** Where and for whom money is held. */
export interface EscrowPlace {
  /** CAIP-2. */
  network: string;
  asset: string;
  /** Gets what is captured. */
  payTo: string;
  /** The only one who may authorize, capture and void: the address of our sender. */
  operator: string;
  /** EIP-712 name and version of a token that is not among those we know. */
  domain?: SigningDomain;
}

/** From the offer until the hold can be captured no more and its buyer may take it back. */
const HOLD_S = 1_800;
/** In which a client may sign, and we may place the hold. */
const SIGN_S = 300;
/** Of a hold there must be left when it is accepted: for the seller's answer, the check and the capture. */
const LEAST_HELD_S = 600;

/**
 * An x402 v2 `auth-capture` offer with deferred capture: the buyer's money waits in the escrow, and we as its operator
 * capture or void it ourselves. No fee is in it, so nobody can take one.
 * @param totalAtomic what is held and captured, whole @param now unix seconds
 */
export function escrowOffer(
  { network, asset, payTo, operator, domain: named }: EscrowPlace,
  totalAtomic: bigint,
  now: number,
): PaymentRequirements {
  const domain = named ?? signingDomain(network, asset);
  if (!domain) throw new TypeError(`the signing domain of ${asset} on ${network} is not known`);
  if (totalAtomic <= 0n || totalAtomic >= 1n << 120n) throw new RangeError("an amount is a positive uint120");
  const receiver = getAddress(payTo);
  return {
    scheme: "auth-capture",
    network: network as Network,
    amount: totalAtomic.toString(),
    asset,
    payTo: receiver,
    maxTimeoutSeconds: SIGN_S,
    extra: {
      ...{ name: domain.name, version: domain.version, assetTransferMethod: "eip3009" },
      ...{ authCaptureEscrow: ESCROW, captureAuthorizer: getAddress(operator), operatorType: "delegated" },
      ...{ paymentFlow: "escrow", captureMode: "deferred" },
      ...{ captureDeadline: now + HOLD_S, refundDeadline: now + HOLD_S },
      ...{ feeRecipient: receiver, minFeeBps: 0, maxFeeBps: 0 },
    },
  };
}

/** A payment that may be held, read from its payload and our offer. The same payload and offer give the same one. */
export interface Hold {
  info: PaymentInfo;
  /** The escrow's name for it. */
  hash: Hex;
  /** EIP-3009 nonce under which the payer's money moves into the escrow, lower-case. */
  nonce: string;
  /** Lower-case. */
  payer: string;
  signature: Hex;
  amountAtomic: bigint;
  /** Unix seconds: until then the hold may be placed. */
  validBefore: number;
  /** Unix seconds: until then it may be captured; from then on its buyer may take it back. */
  captureDeadline: number;
}

/** Reasons are the scheme's own names. */
const because = (what: string): string => `invalid_auth_capture_evm_${what}`;

/** Signatures of wallets that do not exist yet (ERC-6492): the collector would run what they ask for, at our cost. */
const ERC6492 = /6492649264926492649264926492649264926492649264926492649264926492$/;

const wholeSeconds = (value: unknown): value is number => Number.isSafeInteger(value) && Number(value) < 2 ** 48;

/**
 * What a payload would hold, or why it does not answer our offer. Pure, whatever the time; never throws: a stranger
 * wrote it. Deadlines move with every offer, so they are the buyer's echo (`accepted.extra`); everything else is ours,
 * and a payload signed over anything else has another nonce.
 */
export function holdOf(payment: unknown, offer: PaymentRequirements): Hold | { reason: string } {
  const authorization = authorizationOf(payment);
  const { x402Version, accepted, payload } = (payment ?? {}) as Record<string, Record<string, unknown>>;
  const { salt, saltNonce } = payload ?? {};
  // A nonce beside the salt is of offers with another authorizer than ours.
  const isSalt = typeof salt === "string" && /^0x[0-9a-fA-F]{64}$/.test(salt) && saltNonce === undefined;
  if (!authorization || !isSalt) return { reason: because("payload_format") };
  if ((x402Version as unknown) !== 2 || accepted?.scheme !== "auth-capture") return { reason: because("scheme") };
  if (accepted.network !== offer.network) return { reason: because("network_mismatch") };
  const echo = (accepted.extra ?? {}) as Record<string, unknown>;
  const { captureDeadline, refundDeadline } = echo;
  if (!wholeSeconds(captureDeadline) || !wholeSeconds(refundDeadline)) return { reason: because("extra") };
  const { from, to, valueAtomic, validAfter, validBefore, nonce, signature } = authorization;
  if (to !== COLLECTOR.toLowerCase()) return { reason: because("token_collector_mismatch") };
  if (valueAtomic !== BigInt(offer.amount)) return { reason: because("amount_mismatch") };
  // The collector passes zero, whatever was signed.
  if (validAfter !== 0) return { reason: because("authorization_not_yet_valid") };
  if (validBefore > captureDeadline || captureDeadline > refundDeadline)
    return { reason: because("deadline_ordering") };
  if (ERC6492.test(signature)) return { reason: because("erc6492_factory_not_allowed") };
  const extra = offer.extra as { captureAuthorizer: Address; feeRecipient: Address };
  const info: PaymentInfo = {
    ...{ operator: extra.captureAuthorizer, payer: getAddress(from), receiver: offer.payTo as Address },
    ...{ token: getAddress(offer.asset), maxAmount: valueAtomic, preApprovalExpiry: validBefore },
    ...{ authorizationExpiry: captureDeadline, refundExpiry: refundDeadline, minFeeBps: 0, maxFeeBps: 0 },
    ...{ feeReceiver: extra.feeRecipient, salt: BigInt(salt) },
  };
  const chainId = Number(offer.network.slice("eip155:".length));
  if (nonceOf(chainId, info) !== nonce) return { reason: because("nonce_mismatch") };
  const hash = hashOf(chainId, info);
  return { info, hash, nonce, payer: from, signature, amountAtomic: valueAtomic, validBefore, captureDeadline };
}

/** Clocks of an offer and of its answer may be of two machines. */
const SKEW_S = 5;
/** Of a signature there must be left, for the transaction (the scheme's floor). */
const LEAST_SIGNED_S = 6;

/** Why a hold's times do not do, or null. @param now unix seconds */
export function holdTimeObstacle(hold: Hold, now: number): string | null {
  const { captureDeadline, validBefore, info } = hold;
  // We promise buyers that they may take their money back then; and a deadline of their own making is not our offer.
  if (captureDeadline > now + HOLD_S + SKEW_S) return because("extra");
  if (info.refundExpiry !== captureDeadline) return because("extra");
  if (captureDeadline < now + LEAST_HELD_S) return because("capture_deadline_expired");
  return validBefore > now + LEAST_SIGNED_S ? null : because("authorization_expired");
}
