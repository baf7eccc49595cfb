import { sha256hex } from "../../infra/canonical.ts";
import { systemClock } from "../../infra/clock.ts";
import type { Place } from "../../infra/shares.ts";
import { type Fallback, sellerOf } from "../../pipelines/orders/buying.ts";
import { guaranteeOf, isAtLeastAsStrong, strongestCheckOf } from "../../pipelines/orders/judgement.ts";
import type { SellerQuote } from "../../pipelines/orders/seller.ts";
import { parseMoney } from "../../pipelines/record/money.ts";
import type { JudgedBy } from "../../pipelines/record/order-step.ts";
import { Problem } from "../http/problem.ts";
import { refuseUnusableExpectation } from "../http/usable.ts";
import { ExecuteRequest, MAX_CANDIDATES } from "../schemas/route.ts";
import { saleRefusal, sellableOf } from "./eligible.ts";
import { type CallDescription, outlinesOf } from "./extensions.ts";
import { holderOf, type PayOnDelivery, requiredValidityS, weakerThanPromised } from "./pay-on-delivery.ts";
import type { Payment } from "./payments.ts";
import { rankEndpointsFor } from "./plan.ts";
import { sellerRequest } from "./seller-request.ts";
import { buyerTotal, paymentRequired, refusalFields, type Sale } from "./terms.ts";

export const EXECUTE_PATH = "/v1/route/execute";

/** A request to buy a call from any suitable endpoint. */
export interface Execution {
  request: ExecuteRequest;
  /** Bytes of the request's body, whose hash binds a payment to this request. */
  bytes: Uint8Array;
  payment: Payment | null;
  publish: boolean;
  /** Key of the client's network. */
  client: string;
}

/**
 * Requests the prices of candidates (endpoints that may serve the call), one after another, the best first. A candidate
 * that has no price, costs too much or is refused is skipped, and the reason is stored for the buyer.
 */
class Candidates implements Fallback {
  /** The reason for each skipped candidate, in words for the buyer. */
  readonly skipped: string[] = [];
  readonly #remainingCaps: string[];
  readonly #deadlineMs: number;
  /**
   * Highest price of a fallback (the next candidate after a failed answer), micro-units; null until the first
   * candidate was chosen.
   */
  #maxPriceMicro: bigint | null = null;
  /** The check that the buyer was promised; null until the first candidate was chosen. */
  #promisedCheck: JudgedBy | null = null;
  /**
   * Whether the limit on cancellations (of payments to sellers whose answers failed) allowed one that is not used
   * yet.
   */
  #cancellationGranted = false;
  /** The place of this order among all bought calls that run at once; null: no candidate was chosen yet. */
  #place: Place | null = null;

  constructor(
    private readonly selling: PayOnDelivery,
    private readonly execution: Execution,
    caps: readonly string[],
  ) {
    this.#remainingCaps = caps.slice(0, MAX_CANDIDATES);
    this.#deadlineMs = systemClock.monotonic() + execution.request.deadline_s * 1000;
  }

  /** Time until the buyer's deadline for trying candidates, real ms. */
  get leftMs(): number {
    return this.#deadlineMs - systemClock.monotonic();
  }

  /** Reports whether there is another candidate, time to try it and, for a fallback, permission to cancel a payment. */
  left(): boolean {
    if (this.#remainingCaps.length === 0 || this.leftMs <= 0) return false;
    return this.#maxPriceMicro === null || this.mayCancel();
  }

  /** Reports whether the payment to the last seller may be cancelled. A permission counts once, until it is used. */
  mayCancel(): boolean {
    this.#cancellationGranted ||= this.selling.takeCancellation(this.execution.payment!.from);
    return this.#cancellationGranted;
  }

  /**
   * Turns the remaining candidates into fallbacks. A fallback may cost at most the quoted price, its answer is
   * checked at least as strictly as promised, and it uses the order's place.
   */
  toFallbacks({ priceMicro, want }: SellerQuote, place: Place): this {
    this.#maxPriceMicro = priceMicro;
    this.#promisedCheck = strongestCheckOf(want);
    this.#place = place;
    return this;
  }

  /** Returns the quote of the next candidate that can be bought from; null if there is none. */
  async quote(): Promise<SellerQuote | null> {
    while (this.left()) {
      const cap = this.#remainingCaps.shift()!;
      const quoteOrReason = await this.#askPrice(cap).catch((error: unknown) => {
        if (error instanceof Problem) return `${error.message}.`.replace(/\.\.$/, ".");
        // During an order an error must not reach the client: the order tries the next candidate, or ends.
        if (this.#maxPriceMicro !== null) return "it could not be asked for its price.";
        throw error;
      });
      if (typeof quoteOrReason !== "string") {
        this.#cancellationGranted = false;
        return quoteOrReason;
      }
      this.skipped.push(`${cap}: ${quoteOrReason}`);
    }
    return null;
  }

  /** Returns the quote of a candidate, or the reason why it is skipped. @throws Problem */
  async #askPrice(cap: string): Promise<SellerQuote | string> {
    const { selling, execution } = this;
    const { request, payment } = execution;
    const { buying, policy } = selling.sales;
    const view = selling.deps.view();
    if (!view.has(cap)) return "it is not in the record.";
    const sellable = sellableOf(view, cap);
    if ("says" in sellable) return sellable.says;
    const { path, query, body } = request.input ?? {};
    if (body !== undefined && sellable.method === "GET") return "it takes no body.";
    if (request.method !== undefined && sellable.method !== request.method)
      return `it is called with ${sellable.method}.`;
    const bodyBytes = body === undefined ? null : Buffer.from(JSON.stringify(body));
    const sellerCall = sellerRequest(sellable, {
      path,
      query: new URLSearchParams(query ?? {}),
      body: bodyBytes,
      headers: new Headers(),
    });
    if (sellerCall.url.length > 4096) return "its address with this query is too long.";
    const quote = await selling.quote(sellable, sellerCall, execution);
    const { priceMicro } = quote;
    if (request.max_price !== undefined && priceMicro > parseMoney(request.max_price))
      return "its price is above max_price now.";
    if (buyerTotal(priceMicro) > parseMoney(request.max_total)) return "with our fee it costs more than max_total.";
    if (this.#maxPriceMicro !== null && priceMicro > this.#maxPriceMicro) return "its price is above the quoted one.";
    const check = strongestCheckOf(quote.want);
    if (this.#promisedCheck !== null && !isAtLeastAsStrong(check, this.#promisedCheck))
      return `its answer would be judged by its ${check}, and ${this.#promisedCheck} was promised.`;
    const refusal = saleRefusal(view, cap, priceMicro, policy);
    if (refusal) return refusal;
    const now = Math.floor(systemClock.now().getTime() / 1000);
    // The expiry of a payment's signature does not matter once the money is in escrow.
    const validUntil = payment?.scheme === "exact" ? payment.validBefore : null;
    if (this.#maxPriceMicro !== null && validUntil !== null && validUntil < now + requiredValidityS(quote))
      return "your payment ends too soon.";
    if (this.#maxPriceMicro === null) return buying.findRefusal(sellerOf(quote), null)?.says ?? quote;
    if (!this.#place?.move(holderOf(execution.client, payment!, sellerCall.url)))
      return "too many calls of it are under way.";
    return quote;
  }
}

/** Returns the ids of the candidates: those that the buyer named, or the best ones for the buyer's need. */
async function capsOf(selling: PayOnDelivery, { request }: Execution): Promise<readonly string[]> {
  const { need, capability_ids, input, class: kind, max_price, min_band, max_latency_ms } = request;
  if (capability_ids) return capability_ids;
  const { view, clock, baseUrl } = selling.deps;
  // Default method: POST with a body, GET without one.
  const method = request.method ?? (input?.body === undefined ? "GET" : "POST");
  const query = { need: need!, class: kind, max_price, min_band, max_latency_ms, method, limit: MAX_CANDIDATES };
  const { candidates } = await rankEndpointsFor(view(), query, {
    baseUrl,
    seller: selling.sales,
    now: clock.now(),
    strict: true,
  });
  return candidates.map(({ capability_id }) => capability_id);
}

const NO_CANDIDATE = "No endpoint in the record fits the request; POST /v1/route/plan shows what was passed over.";

/**
 * Buys one call from several candidates in one order. The first suitable candidate sets the price of the order. If its
 * answer does not pass, its payment is cancelled and the next candidate is paid. The buyer is charged the quoted price
 * once, and only if an answer passed.
 * @throws Problem
 */
export async function execute(selling: PayOnDelivery, execution: Execution): Promise<Response> {
  const { checkout, sales } = selling;
  const { payment, bytes, request } = execution;
  if (request.expect) await refuseUnusableExpectation(sales.seller.reader, request.expect, "/expect");
  const requestSha256 = sha256hex(Buffer.concat([Buffer.from(`POST ${EXECUTE_PATH}\n`), bytes]));
  if (!payment) return executeNew(selling, execution, requestSha256);
  return checkout.answer(payment, requestSha256, saleOf(selling, 0n), () =>
    executeNew(selling, execution, requestSha256),
  );
}

/** Answers a request without a payment, or with a payment that belongs to no order yet. */
async function executeNew(selling: PayOnDelivery, execution: Execution, requestSha256: string): Promise<Response> {
  const { checkout, sales } = selling;
  const { payment, publish, client } = execution;
  const candidates = new Candidates(selling, execution, await capsOf(selling, execution));
  const quote = await candidates.quote();
  if (!quote) {
    const error =
      candidates.skipped.length === 0 ? NO_CANDIDATE : `No candidate can be paid: ${candidates.skipped.join(" ")}`;
    return paymentRequired(sales.receivingAccount, saleOf(selling, 0n), { error: error.slice(0, 2000), sold: false });
  }
  const { priceMicro } = quote;
  const expect = execution.request.expect ?? null;
  const sale: Sale = {
    ...saleOf(selling, buyerTotal(priceMicro), quote.want.mime),
    guarantee: guaranteeOf(quote.want, expect),
    // A buyer could write an expectation that no answer meets. Escrow is not offered then, as in `via`.
    escrow: expect === null,
  };
  const error = `Payment required: ${quote.cap} is asked first, and you are charged this if an answer passes.`;
  if (!payment) return paymentRequired(sales.receivingAccount, sale, { error });
  const fault = await checkout.paymentFault(payment, sale, requiredValidityS(quote));
  if (fault) return paymentRequired(sales.receivingAccount, sale, refusalFields(fault));
  const guaranteeFault = weakerThanPromised(payment, quote);
  if (guaranteeFault) return paymentRequired(sales.receivingAccount, sale, refusalFields(guaranteeFault));
  const purchaseRequest = { operation: "execute" as const, requestSha256, priceMicro, publish, client, expect };
  const claimedPurchase = checkout.claimOf(payment, sale, purchaseRequest);
  const place = await selling.places.forCall(holderOf(client, payment, quote.request.url), candidates.leftMs);
  try {
    return await checkout.buy(
      { ...claimedPurchase, quote, fallback: candidates.toFallbacks(quote, place) },
      payment,
      sale,
    );
  } finally {
    place.leave();
  }
}

const CALL_DESCRIPTION: CallDescription = {
  method: "POST",
  input: {
    example: { need: "sum of two numbers", input: { query: { a: "20", b: "22" } }, max_total: "0.05" },
    schema: outlinesOf(ExecuteRequest, ExecuteRequest).input,
  },
  output: null,
};

const saleOf = (selling: PayOnDelivery, totalMicro: bigint, mime?: string | null): Sale => ({
  described: CALL_DESCRIPTION,
  url: selling.deps.baseUrl + EXECUTE_PATH,
  description: "A call bought through Touchstone from the first of several endpoints whose answer passes.",
  guarantee: "You are charged only if an answer passed.",
  mime: mime ?? "application/json",
  totalMicro,
  escrow: true,
});
