import { FastResponse } from "srvx";
import { sha256hex } from "../../infra/canonical.ts";

import { type Clock, systemClock } from "../../infra/clock.ts";
import type { Till } from "../../infra/rails/till.ts";
import { answerOf, type Buying, NotBought } from "../../pipelines/orders/buying.ts";
import { claimKey } from "../../pipelines/orders/claim.ts";
import type { Order } from "../../pipelines/orders/order.ts";
import { StepNotSeen } from "../../pipelines/orders/order-log.ts";
import { quoteOf, type SellerQuote, type SellerTools } from "../../pipelines/orders/seller.ts";
import { feeOf, formatMoney } from "../../pipelines/record/money.ts";
import type { BoughtRequest } from "../../pipelines/record/order-step.ts";
import { registrableDomain } from "../../pipelines/record/url.ts";
import { Limiter } from "../http/limits.ts";
import { Problem } from "../http/problem.ts";
import { freshJson } from "../http/reply.ts";
import type { View } from "../tables/view.ts";
import { type SalePolicy, type Sold, soldAs, unsold } from "./eligible.ts";
import { asSent, type Payment } from "./payments.ts";
import { orderShown, wordsOf } from "./shown.ts";
import { type Cashier, paymentRequired, requirementsOf, type Sale, settledHeader } from "./terms.ts";

/** What calls are bought with, and what of it is sold. */
export interface Sales {
  buying: Buying;
  seller: SellerTools;
  till: Till;
  cashier: Cashier;
  policy: SalePolicy;
}

export interface PayOnDeliveryDeps {
  view: () => View;
  clock: Clock;
  baseUrl: string;
  /** Prices that all buyers together may have asked of one registrable domain in a minute. */
  quotesPerDomainMinute: number;
}

/** A call that somebody wants to buy, as it came to us. */
export interface Wanted {
  cap: string;
  method: "GET" | "POST";
  query: URLSearchParams;
  body: Uint8Array | null;
  headers: Headers;
  payment: Payment | null;
  publish: boolean;
}

/** Seconds that a payment must still hold after the seller's deadline: settlement, and what stands between. */
const MARGIN_S = 45;
/** How long a buyer is kept waiting for its order before it is told to ask again, real ms. */
const WAIT_MS = 130_000;
const RETRY_S = "5";
const TEXT = /^[\x20-\x7e]{1,200}$/;

const passed = (name: string, value: string | null, otherwise: string): Record<string, string> => ({
  [name]: value !== null && TEXT.test(value) ? value : otherwise,
});

/** The buyer's query and body on the seller's address; nothing else of the buyer's request reaches the seller. */
export function requestTo({ url, method }: Sold, { query, body, headers }: Wanted): BoughtRequest {
  const target = new URL(url);
  for (const name of new Set(query.keys())) {
    target.searchParams.delete(name);
    for (const value of query.getAll(name)) target.searchParams.append(name, value);
  }
  const sent = method === "POST" ? (body ?? new Uint8Array()) : null;
  return {
    ...{ url: target.href, method },
    headers: {
      ...passed("accept", headers.get("accept"), "application/json"),
      ...(sent === null ? {} : passed("content-type", headers.get("content-type"), "application/json")),
    },
    body: sent === null ? null : Buffer.from(sent).toString("base64"),
    sha256: sha256hex(Buffer.concat([Buffer.from(`${method} ${target.href}\n`), sent ?? new Uint8Array()])),
  };
}

/** Calls bought through the service: priced off the seller, paid to it, and charged only when the answer passed. */
export class PayOnDelivery {
  readonly #domains: Limiter;

  constructor(
    readonly sales: Sales,
    private readonly deps: PayOnDeliveryDeps,
  ) {
    const quota = deps.quotesPerDomainMinute;
    this.#domains = new Limiter({ name: "prices of one domain", quota, windowS: 60 }, () => deps.clock.monotonic());
  }

  /**
   * The answer to a call of via: a price, what was bought, or how its order stands.
   * @throws Problem
   */
  async call(wanted: Wanted): Promise<Response> {
    const sold = this.#sold(wanted);
    const request = requestTo(sold, wanted);
    if (request.url.length > 4096) throw new Problem("bad_request", "the seller's address with this query is too long");
    const { payment } = wanted;
    const known = payment ? await this.#ofPayment(payment, request) : null;
    if (known) return this.#toldOf(known, payment!);
    const quote = await this.#quote(sold, request);
    const sale = this.#saleOf(sold, quote);
    const { cashier, policy } = this.sales;
    const refused = unsold(this.deps.view(), sold.cap, quote.priceMicro, policy);
    if (refused) return paymentRequired(cashier, sale, { error: refused, sold: false });
    if (!payment) return paymentRequired(cashier, sale, { error: "Payment required: you are charged if it passes." });
    const wrong = await this.#wrongWith(payment, sale, quote);
    if (wrong) return paymentRequired(cashier, sale, { error: wrong });
    return this.#buy(wanted, payment, sale, quote);
  }

  #sold({ cap, method }: Wanted): Sold {
    const view = this.deps.view();
    if (!view.has(cap)) throw new Problem("unknown_capability", "no endpoint in the record has this id");
    const sold = soldAs(view, cap);
    if ("says" in sold) throw new Problem("not_sold", sold.says);
    if (sold.method === method) return sold;
    const allow = sold.method;
    throw new Problem("method_not_allowed", `this endpoint is called with ${allow}`, { headers: { allow } });
  }

  /** The order that has this payment already. @throws Problem payment_used when it bought something else */
  async #ofPayment(payment: Payment, request: BoughtRequest): Promise<Order | null> {
    const { orders } = this.sales.buying;
    const key = claimKey({ ...payment, asset: this.sales.cashier.asset });
    try {
      await orders.catchUp(key);
    } catch {
      throw unwritten();
    }
    const order = orders.table.ofKey(key);
    if (!order) return null;
    if (order.requestSha256 === request.sha256 && order.paymentSha256 === payment.sha256) return order;
    throw new Problem("payment_used", "this payment belongs to another order: sign a new one");
  }

  /** @throws Problem too_many_requests, seller_failed */
  async #quote(sold: Sold, request: BoughtRequest): Promise<SellerQuote> {
    const taken = this.#domains.take(registrableDomain(request.url));
    if (!taken.ok) {
      const headers = { "retry-after": String(taken.resetS) };
      throw new Problem("too_many_requests", "this seller was asked for many prices within a minute", { headers });
    }
    const quote = await quoteOf(this.sales.seller, sold.cap, request, this.deps.clock);
    if ("says" in quote) throw new Problem("seller_failed", `${quote.says} Nothing was bought.`);
    return quote;
  }

  #saleOf({ cap }: Sold, { priceMicro, want }: SellerQuote): Sale {
    return {
      url: `${this.deps.baseUrl}/v1/via/${cap}`,
      description: "A call bought through Touchstone: you are charged only if the answer passed",
      mime: want.mime ?? "application/json",
      totalMicro: priceMicro + feeOf(priceMicro),
    };
  }

  /** What keeps this payment from paying this sale, in words, or null. @throws Problem unavailable */
  async #wrongWith(payment: Payment, sale: Sale, quote: SellerQuote): Promise<string | null> {
    const { cashier, till } = this.sales;
    const total = formatMoney(sale.totalMicro);
    const now = Math.floor(systemClock.now().getTime() / 1000);
    const needed = Math.min(90, Math.max(30, quote.entry.maxTimeoutSeconds)) + MARGIN_S;
    if (payment.scheme !== "exact") return `the scheme ${payment.scheme} was not offered`;
    if (payment.network !== cashier.network) return `the payment is on ${payment.network}, not on ${cashier.network}`;
    if (payment.to !== cashier.payTo) return "the payment is for another address than the terms named";
    if (payment.amountAtomic !== sale.totalMicro) return `the price is ${total} USDC now`;
    if (payment.validAfter > now) return "the payment does not hold yet";
    if (payment.validBefore < now + needed) return `the payment must hold for at least ${needed} s from now`;
    const requirements = requirementsOf(cashier, sale.totalMicro);
    const said = await till.verify(asSent(payment, requirements), requirements).catch(() => null);
    if (!said) throw new Problem("unavailable", "payments cannot be verified now; nothing was bought", RETRY);
    if (!said.valid) return `the payment is not valid: ${said.reason}`;
    return said.payer.toLowerCase() === payment.from ? null : "the payment is another wallet's";
  }

  async #buy(wanted: Wanted, payment: Payment, sale: Sale, quote: SellerQuote): Promise<Response> {
    const { buying, cashier } = this.sales;
    const requirements = requirementsOf(cashier, sale.totalMicro);
    const claim = {
      ...{ operation: "via" as const, scheme: "exact" as const, network: payment.network, asset: cashier.asset },
      ...{ payer: payment.from, nonce: payment.nonce },
      ...{ valid_after: payment.validAfter, valid_before: payment.validBefore },
      payment: { ...asSent(payment, requirements) },
      payment_sha256: payment.sha256,
      requirements: { ...requirements },
      request_sha256: quote.request.sha256,
      quote: {
        price: formatMoney(quote.priceMicro),
        fee: formatMoney(feeOf(quote.priceMicro)),
        total: formatMoney(sale.totalMicro),
      },
      publish: wanted.publish,
    };
    const key = claimKey({ ...payment, asset: cashier.asset });
    try {
      const order = await buying.buy({ claim, key, quote });
      const same = order.requestSha256 === quote.request.sha256 && order.paymentSha256 === payment.sha256;
      if (!same) throw new Problem("payment_used", "this payment belongs to another order: sign a new one");
      return await this.#toldOf(order, payment);
    } catch (error) {
      if (error instanceof NotBought) return paymentRequired(cashier, sale, { error: error.message, sold: false });
      if (error instanceof StepNotSeen) throw unwritten();
      throw error;
    }
  }

  /** What a buyer is told of its order, now or once it has ended. */
  async #toldOf(known: Order, payment: Payment): Promise<Response> {
    const order = await this.sales.buying.outcome(known, WAIT_MS);
    const headers = { "touchstone-order": order.id };
    if (order.state === "settled") return this.#bought(order, payment);
    if (order.state === "written_off") {
      const { baseUrl } = this.deps;
      const url = `${baseUrl}/v1/via/${order.legs[0]?.cap ?? ""}`;
      const sale = { url, description: "", mime: "application/json", totalMicro: 0n };
      return paymentRequired(this.sales.cashier, sale, { error: wordsOf(order), sold: false, headers });
    }
    if (order.state === "released" || order.state === "rejected" || order.state.startsWith("refund")) {
      throw new Problem("seller_failed", wordsOf(order), { headers });
    }
    const location = `/v1/orders/${order.id}`;
    return freshJson(orderShown(order, null), 202, { ...headers, location, "retry-after": RETRY_S });
  }

  async #bought(order: Order, { version }: Payment): Promise<Response> {
    const bytes = await answerOf(this.sales.buying.orders, order);
    const result = order.legs.at(-1)!.result!;
    const { network, payer } = order;
    return new FastResponse(Buffer.from(bytes), {
      status: result.status ?? 200,
      headers: {
        "content-type": result.content_type ?? "application/octet-stream",
        "cache-control": "no-store",
        // A stranger's bytes under our address: no browser may run them as ours.
        "content-security-policy": "sandbox; default-src 'none'",
        "x-content-type-options": "nosniff",
        "access-control-allow-origin": "*",
        "access-control-expose-headers": "PAYMENT-RESPONSE, X-PAYMENT-RESPONSE, Touchstone-Order",
        "touchstone-order": order.id,
        ...settledHeader(version, { network, payer, tx: order.charged!.tx }),
      },
    });
  }
}

const RETRY = { headers: { "retry-after": RETRY_S } };

const unwritten = (): Problem =>
  new Problem("log_unavailable", "the order cannot be written now; ask again with the same payment", RETRY);
