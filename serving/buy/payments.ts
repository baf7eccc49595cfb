import type { PaymentRequirements } from "@x402/core/types";
import { EVM_NETWORK_CHAIN_ID_MAP } from "@x402/evm/v1";
import { z } from "zod";
import { canonicalBytes, sha256hex } from "../../infra/canonical.ts";
import { authorizationOf } from "../../infra/rails/authorization.ts";
import { Problem } from "../http/problem.ts";
import { IDENTIFIER } from "./extensions.ts";

/** Longest payment header, characters. Node accepts 16 KiB of headers in all, and answers more with a 431. */
const MAX_HEADER_LENGTH = 16_384;

const Version1 = z.looseObject({
  x402Version: z.literal(1),
  scheme: z.string().max(60),
  network: z.string().max(60),
  payload: z.unknown(),
});

const Version2 = z.looseObject({
  x402Version: z.literal(2),
  accepted: z.looseObject({ scheme: z.string().max(60), network: z.string().max(120) }),
  payload: z.unknown(),
  resource: z
    .looseObject({ description: z.string().max(4_096).optional() })
    .optional()
    .catch(undefined),
  extensions: z.unknown().optional(),
});

const Info = z.object({ id: z.unknown() }).partial();
const Extensions = z.object({ "payment-identifier": z.object({ info: Info }).partial() }).partial();
const Identifier = z.string().min(IDENTIFIER.min).max(IDENTIFIER.max).regex(new RegExp(IDENTIFIER.pattern));

/**
 * Returns the identifier that a client gave its payment (x402's extension `payment-identifier`), or null.
 * @throws Problem bad_payment
 */
function identifierIn(header: string, extensions: unknown): string | null {
  const id = Extensions.safeParse(extensions).data?.["payment-identifier"]?.info?.id;
  if (id === undefined) return null;
  const parsed = Identifier.safeParse(id);
  return parsed.success
    ? parsed.data
    : refuse(header, "its payment-identifier is not 16 to 128 letters, digits, _ and -");
}

/** A buyer's payment, parsed but not verified. */
export interface Payment {
  version: 1 | 2;
  scheme: string;
  /** CAIP-2. */
  network: string;
  /** The network as written in the payment: in version 1 a name, in version 2 a CAIP-2 id. */
  networkName: string;
  from: string;
  to: string;
  amountAtomic: bigint;
  nonce: string;
  validAfter: number;
  validBefore: number;
  /** The signed fields, the signature and, for a payment into escrow, the salt. Other fields are dropped. */
  payload: { signature: string; authorization: Record<string, string>; salt?: string };
  /**
   * Deadlines of the hold (the deposit in the escrow contract) in the offer that the buyer accepted, as the payment
   * repeats them. They differ between offers, and the payment's nonce depends on them. Null for other payments.
   */
  deadlines: { captureDeadline: number; refundDeadline: number } | null;
  /** Description in the 402 that the payment answers. Clients of version 2 may send it back; null: not sent. */
  termsDescription: string | null;
  /** Identifier that the client gave the payment (x402's extension `payment-identifier`). */
  identifier: string | null;
  /** SHA-256 of the payload's RFC 8785 form, which does not depend on the formatting of the header. */
  sha256: string;
}

function refuse(header: string, detail: string): never {
  throw new Problem("bad_payment", `${header}: ${detail}`, { errors: [{ pointer: `/headers/${header}`, detail }] });
}

/** Returns the CAIP-2 id of a version 1 name; other texts unchanged. */
function networkOf(name: string): string {
  const id = (EVM_NETWORK_CHAIN_ID_MAP as Record<string, number>)[name];
  return id === undefined ? name : `eip155:${id}`;
}

function decodeHeader(header: string, text: string): unknown {
  if (text.length > MAX_HEADER_LENGTH) return refuse(header, `is longer than ${MAX_HEADER_LENGTH} characters`);
  if (!/^[A-Za-z0-9+/_-]+={0,2}$/.test(text)) return refuse(header, "is no base64");
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(Buffer.from(text, "base64")));
  } catch {
    return refuse(header, "is no JSON in base64");
  }
}

const SaltedPayload = z.looseObject({ salt: z.string().regex(/^0x[0-9a-fA-F]{64}$/) });
const Deadlines = z.object({ captureDeadline: z.int(), refundDeadline: z.int() });

/** Returns what a payment into escrow has besides its authorization: the salt, and the deadlines. @throws Problem */
function escrowFieldsOf(header: string, accepted: unknown, payload: unknown) {
  const salted = SaltedPayload.safeParse(payload);
  const echoedDeadlines = Deadlines.safeParse((accepted as { extra?: unknown }).extra);
  if (!salted.success) return refuse(header, "payload has no salt of an auth-capture payment");
  if (!echoedDeadlines.success) return refuse(header, "accepted.extra does not echo the deadlines of our offer");
  return { salt: salted.data.salt, deadlines: echoedDeadlines.data };
}

/**
 * Parses the payment of a request: `PAYMENT-SIGNATURE` (x402 version 2) or `X-PAYMENT` (version 1); null without one.
 * Some clients send one payment in both headers; its own `x402Version` then decides which of them is read.
 * @throws Problem bad_payment for a malformed payment, or two payments
 */
export function paymentOf(headers: Headers): Payment | null {
  const v2Header = headers.get("payment-signature");
  const v1Header = headers.get("x-payment");
  if (v2Header === null && v1Header === null) return null;
  const isTwofold = v2Header !== null && v1Header !== null;
  if (isTwofold && v2Header.trim() !== v1Header.trim())
    return refuse("PAYMENT-SIGNATURE", "came beside another X-PAYMENT: send one payment");
  const writtenName = v2Header === null ? "X-PAYMENT" : "PAYMENT-SIGNATURE";
  const raw = decodeHeader(writtenName, (v2Header ?? v1Header)!.trim());
  const isVersion1 = v2Header === null || (isTwofold && Version1.safeParse(raw).success);
  const headerName = isVersion1 ? "X-PAYMENT" : writtenName;
  const shape = isVersion1 ? Version1.safeParse(raw) : Version2.safeParse(raw);
  if (!shape.success) return refuse(headerName, `is no payment of x402 version ${isVersion1 ? 1 : 2}`);
  const { data } = shape;
  const offer = data.x402Version === 1 ? data : data.accepted;
  const signedAuthorization = authorizationOf(data);
  if (!signedAuthorization) return refuse(headerName, "payload is no signed EIP-3009 authorization");
  const { from, to, valueAtomic, validAfter, validBefore, nonce, signature } = signedAuthorization;
  const numberTexts = {
    value: valueAtomic.toString(),
    validAfter: String(validAfter),
    validBefore: String(validBefore),
  };
  const escrowFields = offer.scheme === "auth-capture" ? escrowFieldsOf(headerName, offer, data.payload) : null;
  const salt = escrowFields ? { salt: escrowFields.salt } : {};
  const payload = { signature, authorization: { from, to, ...numberTexts, nonce }, ...salt };
  return {
    ...{ version: data.x402Version, scheme: offer.scheme, network: networkOf(offer.network) },
    networkName: offer.network,
    ...{ from, to, amountAtomic: valueAtomic, nonce, validAfter, validBefore, payload },
    deadlines: escrowFields?.deadlines ?? null,
    termsDescription: (data.x402Version === 2 && data.resource?.description) || null,
    identifier: data.x402Version === 2 ? identifierIn(headerName, data.extensions) : null,
    sha256: sha256hex(canonicalBytes(payload)),
  };
}

/** Returns the offer that this payment answers: our current offer, with the deadlines that the payment repeats. */
export const offerAnsweredBy = ({ deadlines }: Payment, offer: PaymentRequirements): PaymentRequirements =>
  deadlines ? { ...offer, extra: { ...offer.extra, ...deadlines } } : offer;

/** Returns the payment in the form of its x402 version. @param requirements the offer that the payment answers */
export function paymentEnvelope({ version, scheme, networkName, payload }: Payment, requirements: object): object {
  return version === 1
    ? { x402Version: 1, scheme, network: networkName, payload }
    : { x402Version: 2, accepted: requirements, payload };
}
