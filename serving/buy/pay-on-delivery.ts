import { canonicalText, sha256hex } from "../../infra/canonical.ts";
import type { Clock } from "../../infra/clock.ts";
import type { Holder } from "../../infra/shares.ts";
import { sellerOf } from "../../pipelines/orders/buying.ts";
import {
  guaranteeOf,
  isAtLeastAsStrong,
  parsePromisedCheck,
  strongestCheckOf,
} from "../../pipelines/orders/judgement.ts";
import { askForQuote, type CallRequest, type SellerQuote } from "../../pipelines/orders/seller.ts";
import type { BuyersExpectation } from "../../pipelines/record/expectation.ts";
import { platformOf } from "../../pipelines/record/url.ts";
import { Limiter, takeOfEach } from "../http/limits.ts";
import { Problem } from "../http/problem.ts";
import { refuseUnusableExpectation } from "../http/usable.ts";
import { headlineOf } from "../tables/entry.ts";
import type { View } from "../tables/view.ts";
import { Checkout, refusalOffer, type Sales } from "./checkout.ts";
import { type SellableEndpoint, saleRefusal, sellableOf } from "./eligible.ts";
import { type CallDescription, describeInput, outlineOf } from "./extensions.ts";
import type { Payment } from "./payments.ts";
import { SalePlaces } from "./places.ts";
import { sellerRequest } from "./seller-request.ts";
import { buyerTotal, paymentRequired, refusalFields, resourceUrl, type Sale } from "./terms.ts";
import type { PaymentFault } from "./wrong.ts";

export interface PayOnDeliveryDeps {
  view: () => View;
  clock: Clock;
  baseUrl: string;
  /** Largest number of price requests to one seller's platform in a minute, for all buyers together. */
  quotesPerDomainMinute: number;
  /**
   * Largest number of payments to sellers that we cancel in an hour: for the orders of one buyer's wallet, and for all
   * buyers together. Each cancellation costs us a transaction.
   */
  cancellationsPerHour: { payer: number; all: number };
}

/** A request to buy a call of one endpoint. */
export interface ViaCall {
  cap: string;
  method: "GET" | "POST";
  query: URLSearchParams;
  body: Uint8Array | null;
  headers: Headers;
  payment: Payment | null;
  publish: boolean;
  /** The buyer's own expectation of the answer; null: none. */
  expect: BuyersExpectation | null;
  /** Key of the client network that sent the request. */
  client: string;
}

/** Seconds that a payment must stay valid after the seller's deadline, for the check and the settlement. */
const SETTLEMENT_MARGIN_S = 45;

/** Returns the seconds for which a buyer's payment must stay valid when a call with this quote begins. */
export const requiredValidityS = ({ entry }: Pick<SellerQuote, "entry">): number =>
  Math.min(90, Math.max(30, entry.maxTimeoutSeconds)) + SETTLEMENT_MARGIN_S;

/**
 * Returns the keys by which places are shared fairly.
 * @param payment a verified payment
 * @param url the seller's url
 */
export const holderOf = (client: string, payment: Pick<Payment, "from">, url: string): Holder => ({
  payer: payment.from.toLowerCase(),
  client,
  domain: platformOf(url),
});

/** Request header with the buyer's own expectation of the answer, as JSON in ASCII. */
export const EXPECT_HEADER = "Touchstone-Expect";

const RETRY_LATER = { headers: { "retry-after": "5" } };
/** The fault of a payment whose buyer was promised a stronger check than the seller's newest 402 allows. */
const WEAKER_CHECK_FAULT: PaymentFault = {
  code: "guarantee_changed",
  says: "the seller changed what it says of its answers, so less of them can be checked than you were promised: nothing was paid; pay again if these terms suit you",
};

/**
 * Returns a fault if the buyer of a payment was promised a stronger check than is possible now; else null. The promise
 * is in the description of the terms, which clients of version 2 send back.
 */
export function weakerThanPromised(
  { termsDescription }: Pick<Payment, "termsDescription">,
  { want }: SellerQuote,
): PaymentFault | null {
  const promised = parsePromisedCheck(termsDescription ?? "");
  return promised === null || isAtLeastAsStrong(strongestCheckOf(want), promised) ? null : WEAKER_CHECK_FAULT;
}

/** The promise in the answer to a repeated payment, for which the seller is not asked for its price again. */
const DEFAULT_GUARANTEE = "You are charged only if the answer passed.";

/** Returns the hash that binds a payment to a call, over the seller's request and the buyer's expectation. */
const requestSha256Of = ({ sha256 }: CallRequest, expect: BuyersExpectation | null): string =>
  expect === null ? sha256 : sha256hex(`${sha256}\n${canonicalText(expect)}`);

/** Longest query or body that is repeated as an example in the 402 for it: characters or bytes. */
const MAX_EXAMPLE_LENGTH = 500;

/** Returns the members of a body that is a small JSON object; none for any other body. */
function smallJsonObject(body: Uint8Array | null): Record<string, unknown> {
  if (body === null || body.length > MAX_EXAMPLE_LENGTH) return {};
  try {
    const value: unknown = JSON.parse(Buffer.from(body).toString("utf8"));
    return typeof value === "object" && value !== null && !Array.isArray(value) ? { ...value } : {};
  } catch {
    return {};
  }
}

/**
 * Sells calls of sellers' endpoints: asks the seller for its price, pays the seller, and charges the buyer only if the
 * answer passed.
 */
export class PayOnDelivery {
  readonly checkout: Checkout;
  readonly places = new SalePlaces();
  /** Counts price requests to one platform. */
  readonly #platforms: Limiter;
  /** Count cancelled payments to sellers: of one buyer's wallet, and of all. */
  readonly #cancellations: { payer: Limiter; all: Limiter };

  constructor(
    readonly sales: Sales,
    readonly deps: PayOnDeliveryDeps,
  ) {
    this.checkout = new Checkout(sales);
    const monotonicNow = () => deps.clock.monotonic();
    const quota = deps.quotesPerDomainMinute;
    this.#platforms = new Limiter({ name: "prices of one platform", quota, windowS: 60 }, monotonicNow);
    const { payer, all } = deps.cancellationsPerHour;
    this.#cancellations = {
      payer: new Limiter({ name: "fallbacks", quota: payer, windowS: 3600 }, monotonicNow),
      all: new Limiter({ name: "all fallbacks", quota: all, windowS: 3600 }, monotonicNow),
    };
    sales.buying.cancelling.mayCancel = (payer) => this.takeCancellation(payer);
  }

  /**
   * Answers a request of `via`: a 402 with the price, the seller's answer, or the state of the order.
   * @throws Problem
   */
  async call(viaCall: ViaCall): Promise<Response> {
    const sellable = this.#requireSellable(viaCall);
    const request = sellerRequest(sellable, viaCall);
    if (request.url.length > 4096) throw new Problem("bad_request", "the seller's address with this query is too long");
    const { payment, expect } = viaCall;
    if (expect) await refuseUnusableExpectation(this.sales.seller.reader, expect, `/headers/${EXPECT_HEADER}`);
    if (!payment) return this.#callNew(viaCall, sellable, request);
    return this.checkout.answer(payment, requestSha256Of(request, expect), this.#saleOf(sellable, viaCall), () =>
      this.#callNew(viaCall, sellable, request),
    );
  }

  /** Answers a request without a payment, or with a payment that belongs to no order yet. */
  async #callNew(viaCall: ViaCall, sellable: SellableEndpoint, request: CallRequest): Promise<Response> {
    const { payment } = viaCall;
    const { receivingAccount, policy } = this.sales;
    const quote = await this.quote(sellable, request, viaCall);
    const sale = this.#saleOf(sellable, viaCall, quote);
    // Only a 402 describes the call. The description waits for a worker thread, so it is not made for a payment that is
    // accepted.
    const refuse = async (terms: Parameters<typeof paymentRequired>[2]) =>
      paymentRequired(
        receivingAccount,
        { ...sale, described: await this.#describeCall(sellable, viaCall, quote) },
        terms,
      );
    const saleRefusalText = saleRefusal(this.deps.view(), quote.cap, quote.priceMicro, policy);
    if (saleRefusalText) return refuse({ error: saleRefusalText, sold: false });
    // The spending caps are checked here, when `Buying.buy` begins, before the order's intent to pay is written to the
    // log, and after it was written. Each check is needed, since other orders begin and end between them.
    const capRefusal = this.sales.buying.findRefusal(sellerOf(quote), null);
    if (capRefusal) return refuse(refusalOffer(capRefusal.says, capRefusal));
    if (!payment) return refuse({ error: "Payment required: you are charged if it passes." });
    const fault = await this.checkout.paymentFault(payment, sale, requiredValidityS(quote));
    if (fault) return refuse(refusalFields(fault));
    const guaranteeFault = weakerThanPromised(payment, quote);
    if (guaranteeFault) return refuse(refusalFields(guaranteeFault));
    return this.#buy(viaCall, payment, sale, quote);
  }

  /** Reports whether one more payment to a seller may be cancelled for this buyer's wallet, and counts it. */
  takeCancellation(payer: string): boolean {
    const { payer: payerLimiter, all } = this.#cancellations;
    return takeOfEach([all, "all"], [payerLimiter, payer.toLowerCase()]) === null;
  }

  #requireSellable({ cap, method }: ViaCall): SellableEndpoint {
    const view = this.deps.view();
    if (!view.has(cap)) throw new Problem("unknown_capability", "no endpoint in the record has this id");
    const sellable = sellableOf(view, cap);
    if ("says" in sellable) throw new Problem("not_sold", sellable.says);
    if (sellable.method === method) return sellable;
    const allow = sellable.method;
    throw new Problem("method_not_allowed", `this endpoint is called with ${allow}`, { headers: { allow } });
  }

  /** Asks the seller for its price of a request. @throws Problem too_many_requests, unavailable, not_sold, no_price */
  async quote(
    sold: SellableEndpoint,
    request: CallRequest,
    { client, payment }: Pick<ViaCall, "client" | "payment">,
  ): Promise<SellerQuote> {
    const domain = platformOf(request.url);
    const decision = this.#platforms.take(domain);
    if (!decision.ok) {
      const headers = { "retry-after": String(decision.resetS) };
      throw new Problem("too_many_requests", "this seller was asked for too many prices within a minute", { headers });
    }
    // The payment is not verified yet, so the place must not count for the wallet that it names.
    const place = await this.places.forPrice({ client, domain, reserved: payment !== null });
    const entry = this.deps.view().entry(sold.cap);
    const headline = entry ? headlineOf(entry) : null;
    const recordedFacts = { listedClass: entry?.listing?.class, scored: headline?.tier === "OUTCOME_VERIFIED" };
    const pendingQuote = askForQuote(this.sales.seller, { ...sold, ...recordedFacts }, request, this.deps.clock);
    const quote = await pendingQuote.finally(() => place.leave());
    if (!("says" in quote)) return quote;
    if (quote.ours) throw new Problem("unavailable", `${quote.says} Nothing was bought.`, RETRY_LATER);
    throw new Problem(quote.unsold ? "not_sold" : "no_price", `${quote.says} Nothing was bought.`);
  }

  #saleOf({ cap }: SellableEndpoint, { query, expect }: ViaCall, quote?: SellerQuote): Sale {
    const priceMicro = quote?.priceMicro ?? 0n;
    return {
      url: resourceUrl(this.deps, `/v1/via/${cap}`, query),
      description: "A call bought through Touchstone.",
      guarantee: quote ? guaranteeOf(quote.want, expect) : DEFAULT_GUARANTEE,
      mime: quote?.want.mime ?? "application/json",
      totalMicro: buyerTotal(priceMicro),
      // A buyer could write an expectation that no answer meets, and we would lose the seller's price. Without escrow
      // the loss is counted against the buyer, like a payment that could not be collected. With escrow it would be
      // counted against nobody, so escrow is not offered for a call with an expectation.
      escrow: expect === null,
    };
  }

  /** Describes the call and its answer for the 402 of this request, from the seller's 402 and the request. */
  async #describeCall(
    { method }: SellableEndpoint,
    { query, body }: ViaCall,
    quote: SellerQuote,
  ): Promise<CallDescription> {
    const sentMembers =
      method === "POST"
        ? smallJsonObject(body)
        : `${query}`.length > MAX_EXAMPLE_LENGTH
          ? {}
          : Object.fromEntries(query);
    const isValid = async (schema: Record<string, unknown>, value: unknown): Promise<boolean> => {
      const question = { expect: { schema }, body: Buffer.from(JSON.stringify(value)) };
      const reply = await this.sales.seller.reader.ask("expected", question);
      return reply.ok && reply.value.every(({ ok }) => ok);
    };
    const { schema } = quote.want;
    const output = schema === undefined ? null : outlineOf(schema);
    return { method, input: await describeInput(sentMembers, quote.inputSchema, isValid), output };
  }

  async #buy(viaCall: ViaCall, payment: Payment, sale: Sale, quote: SellerQuote): Promise<Response> {
    const { checkout } = this;
    const { priceMicro, request } = quote;
    const { publish, client, expect } = viaCall;
    const requestSha256 = requestSha256Of(request, expect);
    const purchaseRequest = { operation: "via" as const, requestSha256, priceMicro, publish, client, expect };
    const place = await this.places.forCall(holderOf(client, payment, request.url));
    try {
      return await checkout.buy({ ...checkout.claimOf(payment, sale, purchaseRequest), quote }, payment, sale);
    } finally {
      place.leave();
    }
  }
}
