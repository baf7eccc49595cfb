import { encodePaymentRequiredHeader, encodePaymentResponseHeader } from "@x402/core/http";
import type { Network, PaymentRequired, PaymentRequirements } from "@x402/core/types";
import { FastResponse } from "srvx";
import { systemClock } from "../../infra/clock.ts";
import { type SigningDomain, v1NamesOf } from "../../infra/rails/charge.ts";
import type { Escrow } from "../../infra/rails/escrow.ts";
import { asVersion1 } from "../../infra/rails/till.ts";
import { feeOf } from "../../pipelines/record/money.ts";
import type { Payment } from "./payments.ts";

/** What buyers pay us in, and where. */
export interface Cashier {
  /** CAIP-2. */
  network: string;
  /** Token contract with EIP-3009 and six decimals, lower case. */
  asset: string;
  /** The token's EIP-712 name and version. */
  domain: SigningDomain;
  /** Address that buyers pay. */
  payTo: string;
  /** Holds buyers' money, of the same token for the same address; null: this chain has none that would do. */
  escrow: Pick<Escrow, "offer" | "check"> | null;
}

/** Something that is sold at one price. */
export interface Sale {
  url: string;
  description: string;
  /** Media type of a good answer. */
  mime: string;
  totalMicro: bigint;
  /** May its price wait in escrow? Only where whoever sells it waits for the hold before any seller is paid. */
  escrow?: boolean;
}

/** What a buyer is charged for a call at this seller's price, micro-units: our fee is on top of it. */
export const buyerTotal = (priceMicro: bigint): bigint => priceMicro + feeOf(priceMicro);

/** Totals that may wait in escrow, micro-units: below, gas is too much of it; above, too much waits in one place. */
const ESCROW_FROM = 50_000n;
const ESCROW_TO = 1_000_000n;

/** The chain's time, which is real: unix seconds. */
export const chainNow = (): number => Math.floor(systemClock.now().getTime() / 1000);

/**
 * Seconds that a buyer's authorization is to hold: it must outlast our call of the seller and the settlement after it
 * (payments.md).
 */
const VALID_S = 240;

/** The offer in the words of x402 version 2. */
export const exactOffer = (
  { network, asset, payTo, domain }: Omit<Cashier, "escrow">,
  totalMicro: bigint,
): PaymentRequirements => ({
  scheme: "exact",
  network: network as Network,
  amount: totalMicro.toString(),
  asset,
  payTo,
  maxTimeoutSeconds: VALID_S,
  extra: { name: domain.name, version: domain.version },
});

/** The offer of an escrow, with deadlines of this moment; null where this sale has none. */
export function escrowOfferFor({ escrow }: Cashier, sale: Sale): PaymentRequirements | null {
  const { totalMicro } = sale;
  const may = sale.escrow && totalMicro >= ESCROW_FROM && totalMicro <= ESCROW_TO;
  return may && escrow ? escrow.offer(totalMicro, chainNow()) : null;
}

/** What of a sale is offered: every way to pay, none, or the one in which nothing can be lost through its buyer. */
type Sold = boolean | "escrow";

/** All offers in the words of version 2, the one that holds nothing first. */
function offersOf(cashier: Cashier, sale: Sale, sold: Sold): PaymentRequirements[] {
  const escrow = sold ? escrowOfferFor(cashier, sale) : null;
  return [...(sold === true ? [exactOffer(cashier, sale.totalMicro)] : []), ...(escrow ? [escrow] : [])];
}

/** The same offer in the words of version 1; null where that version has no name for the network. */
function offerV1(cashier: Cashier, { url, description, mime, totalMicro }: Sale): object | null {
  if (v1NamesOf(cashier.network).length === 0) return null;
  return {
    ...asVersion1(exactOffer(cashier, totalMicro)),
    ...{ resource: url, description, mimeType: mime },
  };
}

/**
 * A 402 with our terms, for buyers of both versions: version 2 in the header `PAYMENT-REQUIRED`, version 1 in the body.
 * @param error what is wrong with the payment that came, or why none would be taken
 * @param sold false: nothing is offered; `escrow`: that alone; `error` says why
 */
export function paymentRequired(
  cashier: Cashier,
  sale: Sale,
  { error, sold = true, headers = {} }: { error: string; sold?: Sold; headers?: Record<string, string> },
): Response {
  const { url, description, mime } = sale;
  const required: PaymentRequired = {
    x402Version: 2,
    error,
    resource: { url, description, mimeType: mime },
    accepts: offersOf(cashier, sale, sold),
  };
  const version1 = sold === true ? offerV1(cashier, sale) : null;
  const body = { x402Version: 1, error, accepts: version1 ? [version1] : [] };
  return new FastResponse(JSON.stringify(body), {
    status: 402,
    headers: {
      "content-type": "application/json",
      "cache-control": "no-store",
      "x-content-type-options": "nosniff",
      "access-control-allow-origin": "*",
      "access-control-expose-headers": "PAYMENT-REQUIRED, PAYMENT-RESPONSE, X-PAYMENT-RESPONSE, Touchstone-Order",
      "payment-required": encodePaymentRequiredHeader(required),
      ...headers,
    },
  });
}

/** The header that tells a buyer of its settlement, in the version it paid in. */
export function paymentResponseHeader(
  version: Payment["version"],
  { network, payer, tx }: { network: string; payer: string; tx: string },
): Record<string, string> {
  const named = version === 2 ? network : (v1NamesOf(network)[0] ?? network);
  const said = { success: true, payer, transaction: tx, network: named as Network };
  return { [version === 2 ? "PAYMENT-RESPONSE" : "X-PAYMENT-RESPONSE"]: encodePaymentResponseHeader(said) };
}
