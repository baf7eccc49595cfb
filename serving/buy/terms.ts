import { encodePaymentRequiredHeader, encodePaymentResponseHeader } from "@x402/core/http";
import type { Network, PaymentRequired, PaymentRequirements } from "@x402/core/types";
import { FastResponse } from "srvx";
import { systemClock } from "../../infra/clock.ts";
import { type SigningDomain, v1NamesOf } from "../../infra/rails/charge.ts";
import type { Escrow } from "../../infra/rails/escrow.ts";
import { toVersion1 } from "../../infra/rails/till.ts";
import { feeOf } from "../../pipelines/record/money.ts";
import { OPEN_HEADERS } from "../http/open.ts";
import { type CallDescription, extensionsOf, outputSchemaOf } from "./extensions.ts";
import type { Payment } from "./payments.ts";
import { OFFERED_VALIDITY_S, type PaymentFault } from "./wrong.ts";

/** The account that receives buyers' payments: token, address, and the escrow if there is one. */
export interface ReceivingAccount {
  /** CAIP-2. */
  network: string;
  /** Token contract with EIP-3009 and six decimals, lower case. */
  asset: string;
  /** The token's EIP-712 name and version. */
  domain: SigningDomain;
  /** Address to which buyers pay. */
  payTo: string;
  /** Escrow for that token and address; null if the chain has no usable one. */
  escrow: Pick<Escrow, "offer" | "check"> | null;
}

/** A resource that is sold at one price. */
export interface Sale {
  url: string;
  description: string;
  /** Media type of a successful answer. */
  mime: string;
  /** What the buyer pays, micro-units. */
  totalMicro: bigint;
  /** Method, input and output for the extensions of the 402; absent: none are sent. */
  described?: CallDescription;
  /** When the buyer is charged, in one sentence; absent: as in the operation's documentation. */
  guarantee?: string;
  /** Whether payment into escrow is offered. Such an order pays no seller before the buyer's money is in the escrow. */
  escrow?: boolean;
}

/** Returns the url of the resource that is sold, with the query of the request. */
export const resourceUrl = ({ baseUrl }: { baseUrl: string }, path: string, query: URLSearchParams): string =>
  `${baseUrl}${path}${query.size > 0 ? `?${query}` : ""}`;

/** Returns what a buyer is charged for a call at this seller's price, micro-units: the price plus our fee. */
export const buyerTotal = (priceMicro: bigint): bigint => priceMicro + feeOf(priceMicro);

/** Lowest total for which escrow is offered, micro-units; below it gas costs too much. */
const MIN_ESCROW_TOTAL = 50_000n;
/** Highest total for which escrow is offered, micro-units; above it the risk is too large. */
const MAX_ESCROW_TOTAL = 1_000_000n;

/** Returns the time of the machine's clock, with which the times in payments are compared, unix seconds. */
export const chainNow = (): number => Math.floor(systemClock.now().getTime() / 1000);

/** Returns an `exact` offer of x402 version 2. @param totalMicro micro-units */
export const exactOffer = (
  { network, asset, payTo, domain }: Omit<ReceivingAccount, "escrow">,
  totalMicro: bigint,
): PaymentRequirements => ({
  scheme: "exact",
  network: network as Network,
  amount: totalMicro.toString(),
  asset,
  payTo,
  maxTimeoutSeconds: OFFERED_VALIDITY_S,
  extra: { name: domain.name, version: domain.version },
});

/** Returns an offer of payment into escrow, with deadlines counted from now; null if escrow is not offered. */
export function escrowOfferFor({ escrow }: ReceivingAccount, sale: Sale): PaymentRequirements | null {
  const { totalMicro } = sale;
  const isInRange = sale.escrow && totalMicro >= MIN_ESCROW_TOTAL && totalMicro <= MAX_ESCROW_TOTAL;
  return isInRange && escrow ? escrow.offer(totalMicro, chainNow()) : null;
}

/** Which offers a 402 makes: all, none, or only payment into escrow, which is collected before the seller is paid. */
type OfferedSchemes = boolean | "escrow";

/** Returns all offers of version 2, `exact` first. */
function offersOf(receivingAccount: ReceivingAccount, sale: Sale, sold: OfferedSchemes): PaymentRequirements[] {
  const escrow = sold ? escrowOfferFor(receivingAccount, sale) : null;
  return [...(sold === true ? [exactOffer(receivingAccount, sale.totalMicro)] : []), ...(escrow ? [escrow] : [])];
}

/** Returns the `exact` offer of version 1; null when version 1 has no name for the network. */
function offerV1(
  receivingAccount: ReceivingAccount,
  { url, description, mime, totalMicro, described }: Sale,
): object | null {
  if (v1NamesOf(receivingAccount.network).length === 0) return null;
  return {
    ...toVersion1(exactOffer(receivingAccount, totalMicro)),
    ...{ resource: url, description, mimeType: mime },
    ...(described ? { outputSchema: outputSchemaOf(described) } : {}),
  };
}

interface RefusalFields {
  error: string;
  detail?: string;
}

/** Returns the error and the detail of a 402 for a refused payment. */
export const refusalFields = ({ code, says }: PaymentFault): RefusalFields => ({ error: code, detail: says });

/**
 * Returns a 402 with our terms for both versions of x402: version 2 in the header `PAYMENT-REQUIRED`, version 1 in
 * the body.
 * @param error why a payment is required, why the buyer's payment was refused, or why none is accepted
 * @param sold true: everything is offered; false: nothing; `escrow`: only payment into escrow
 */
export function paymentRequired(
  receivingAccount: ReceivingAccount,
  sale: Sale,
  {
    error,
    detail,
    sold = true,
    headers = {},
  }: RefusalFields & { sold?: OfferedSchemes; headers?: Record<string, string> },
): Response {
  const { url, mime, guarantee } = sale;
  const description = guarantee ? `${sale.description} ${guarantee}` : sale.description;
  const required: PaymentRequired = {
    x402Version: 2,
    error,
    resource: { url, description, mimeType: mime },
    accepts: offersOf(receivingAccount, sale, sold),
    extensions: extensionsOf(sale.described),
  };
  const version1 = sold === true ? offerV1(receivingAccount, sale) : null;
  const body = {
    x402Version: 1,
    error,
    ...(detail ? { detail } : {}),
    ...(guarantee ? { guarantee } : {}),
    accepts: version1 ? [version1] : [],
  };
  return new FastResponse(JSON.stringify(body), {
    status: 402,
    headers: {
      "content-type": "application/json",
      "cache-control": "no-store",
      ...OPEN_HEADERS,
      "payment-required": encodePaymentRequiredHeader(required),
      ...headers,
    },
  });
}

/** Returns the header with a buyer's settlement, in the version of its payment. */
export function paymentResponseHeader(
  version: Payment["version"],
  { network, payer, tx }: { network: string; payer: string; tx: string },
  failure?: PaymentFault,
): Record<string, string> {
  const networkName = version === 2 ? network : (v1NamesOf(network)[0] ?? network);
  const failureFields = failure ? { errorReason: failure.code, errorMessage: failure.says } : {};
  const settlement = { success: !failure, ...failureFields, payer, transaction: tx, network: networkName as Network };
  return { [version === 2 ? "PAYMENT-RESPONSE" : "X-PAYMENT-RESPONSE"]: encodePaymentResponseHeader(settlement) };
}
