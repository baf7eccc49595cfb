import type { PaymentRequirements } from "@x402/core/types";
import { FastResponse } from "srvx";
import { systemClock } from "../../infra/clock.ts";
import type { Till } from "../../infra/rails/till.ts";
import {
  ANSWER_NOT_STORED,
  type Buying,
  NotBought,
  type OwnAnswer,
  type OwnFailure,
  type Purchase,
} from "../../pipelines/orders/buying.ts";
import { claimKey } from "../../pipelines/orders/claim.ts";
import { mayReopen, type Order } from "../../pipelines/orders/order.ts";
import { StepNotSeen } from "../../pipelines/orders/order-log.ts";
import { answerDigestOf, answerOf } from "../../pipelines/orders/order-objects.ts";
import { createSalts, readSalts } from "../../pipelines/orders/publishing-calls.ts";
import type { SellerTools } from "../../pipelines/orders/seller.ts";
import type { BuyersExpectation } from "../../pipelines/record/expectation.ts";
import { formatMoney } from "../../pipelines/record/money.ts";
import type { Quote } from "../../pipelines/record/order-step.ts";
import { OPEN_HEADERS } from "../http/open.ts";
import { PROBLEMS, Problem, type ProblemCode } from "../http/problem.ts";
import { uncachedJson } from "../http/reply.ts";
import type { EvidenceBodies } from "../work/evidence-bodies.ts";
import type { SalePolicy } from "./eligible.ts";
import { orderDocument, orderText } from "./order-document.ts";
import { offerAnsweredBy, type Payment, paymentEnvelope } from "./payments.ts";
import {
  chainNow,
  escrowOfferFor,
  exactOffer,
  paymentRequired,
  paymentResponseHeader,
  type ReceivingAccount,
  refusalFields,
  type Sale,
} from "./terms.ts";
import { faultFromReason, type PaymentFault, settleFailure, validityFault } from "./wrong.ts";

/** The parts that a sale needs: buying from sellers, charging buyers, and the rules for what is sold. */
export interface Sales {
  buying: Buying;
  seller: SellerTools;
  till: Till;
  receivingAccount: ReceivingAccount;
  policy: SalePolicy;
  /** Stores the documents that the operation web/evidence fetched. */
  bodies: EvidenceBodies;
  /** Returns the opaque name under which orders store a client network. */
  clientName: (client: string) => string;
}

/** Longest wait for an order before its buyer gets a 202, real ms; shorter than the timeout of an idle socket. */
const WAIT_MS = 100_000;
/**
 * Longest wait for an earlier request with the same payment, real ms. Added to {@link WAIT_MS}, it is shorter than the
 * timeout of an idle socket.
 */
const TURN_WAIT_MS = 15_000;
/** Pause between two checks of whether the earlier request has created its order, real ms. */
const TURN_INTERVAL_MS = 200;
/** Largest number of payments for which one process creates orders at once. */
const MAX_PAYMENTS_UNDER_WAY = 4_096;
/** Final states of an order that ended without a delivery, except `hold_failed` and `refunded`. */
const UNDELIVERED_STATES: ReadonlySet<Order["state"]> = new Set(["released", "rejected", "voided", "reclaimable"]);
/**
 * States of an order whose payment-identifier may be used again, since the buyer was not charged, or was refunded. An
 * order that is written off keeps its identifier: its answer passed, and the buyer's payment could not be collected.
 */
const FREE_IDENTIFIER_STATES: ReadonlySet<Order["state"]> = new Set([
  ...UNDELIVERED_STATES,
  ...(["hold_failed", "refunded"] as const),
]);
const RETRY_S = "5";
const RETRY_LATER = { headers: { "retry-after": RETRY_S } };

/** What a buyer wants to buy. */
export interface PurchaseRequest {
  operation: Purchase["claim"]["operation"];
  requestSha256: string;
  /** The seller's price, micro-units; 0 for our own work. The rest of the total is our fee. */
  priceMicro: bigint;
  /** Whether the buyer wants the call in the public record. */
  publish: boolean;
  /** Key of the client network that sent the request. */
  client: string;
  /** The buyer's own expectation of the answer; absent: none. */
  expect?: BuyersExpectation | null;
}

/**
 * The key of a buyer's verified payment, and the claim, the first record of an order, which binds that payment to it.
 */
type ClaimedPurchase = Pick<Purchase, "key" | "claim">;

/** Returns the price as an order records it: the seller's price, our fee, and the sum that the buyer pays. */
const quoteOf = (priceMicro: bigint, totalMicro: bigint): Quote => ({
  price: formatMoney(priceMicro),
  fee: formatMoney(totalMicro - priceMicro),
  total: formatMoney(totalMicro),
});

/**
 * Returns the options of a 402 for a refused order: no offers, or only escrow.
 * @param exactOnly whether only payments without escrow are refused
 */
export const refusalOffer = (error: string, { exactOnly }: { exactOnly: boolean }) =>
  ({ error, sold: exactOnly ? "escrow" : false }) as const;

const notWrittenProblem = (): Problem =>
  new Problem("log_unavailable", "the order cannot be written now; ask again with the same payment", RETRY_LATER);

/**
 * Returns the problem for a charged order whose stored answer was deleted. The payment does not buy another answer.
 */
function expiredProblem(order: Order): Problem {
  const { sha256, size } = answerDigestOf(order)!;
  const digestText = `it had ${size} bytes with the sha256 ${sha256}; order ${order.id} was charged`;
  const headers = { "touchstone-order": order.id };
  return new Problem("answer_expired", `the answer is not kept any more: ${digestText}`, { headers });
}

const isProblemCode = (code: string): code is ProblemCode => Object.hasOwn(PROBLEMS, code);
const isOurFault = (code: string): boolean => !isProblemCode(code) || PROBLEMS[code].status >= 500;

/**
 * Reports whether our own work for this order may be done again with its payment: if the work failed, and not by a
 * fault of the buyer's request.
 */
const mayRetryWork = (order: Order): boolean =>
  mayReopen(order) && (order.problem === null || isOurFault(order.problem.code));

/**
 * Reports whether this order of a seller's call was refused before a seller was paid. The buyer then gets a 402 with
 * the reason again.
 */
const isRefused = ({ own, state, says, epoch, legs }: Order): boolean =>
  own === null &&
  (state === "rejected" || (state === "released" && epoch === 0 && says !== ANSWER_NOT_STORED)) &&
  legs.every(({ result, fate }) => result === null && fate === "unpaid");

/** Returns the problem for the buyer of an order without a delivery. */
function undeliveredProblem(order: Order): Problem {
  const headers = { "touchstone-order": order.id };
  if (order.problem === null) return new Problem("seller_failed", orderText(order), { headers });
  const { code, detail, errors } = order.problem;
  const retry = isOurFault(code) ? RETRY_LATER.headers : {};
  const problemCode = isProblemCode(code) ? code : "internal";
  return new Problem(problemCode, detail, { ...(errors ? { errors } : {}), headers: { ...headers, ...retry } });
}

/** Converts a problem to the form in which an order of our own work stores it. @throws any other error unchanged */
export function failureOf(error: unknown): OwnFailure {
  if (!(error instanceof Problem)) throw error;
  const errors = error.extra.errors?.slice(0, 32).map(({ pointer, detail }) => ({
    ...{ pointer: pointer.slice(0, 300), detail: detail.slice(0, 500) },
  }));
  const detail = error.message.slice(0, 2000);
  return { problem: { code: error.code, detail, ...(errors ? { errors } : {}) } };
}

/** Checks a buyer's payment, creates the order that claims it, and answers the buyer with the outcome of the order. */
export class Checkout {
  /** Keys of the payments for which a request of this process creates an order, or does the work of one again. */
  readonly #underWay = new Set<string>();

  constructor(readonly sales: Sales) {}

  #keyOf(payment: Payment): string {
    return claimKey({ ...payment, asset: this.sales.receivingAccount.asset });
  }

  /**
   * Answers a request with a payment. If an order has the payment, the answer is the outcome of that order. If no order
   * has it, or the order's work may be done again, the answer is that of `buy`. Only one request of this process runs
   * `buy` for a payment at a time. Other requests with the payment wait until that request has created its order or was
   * refused. If they were refused at once, the buyer would take the refusal for final, although the first request may
   * still buy and charge.
   * @throws Problem as {@link existingOrder}, {@link responseOf} and `buy`; unavailable if the earlier request takes
   * longer than 15 s to create its order
   */
  async answer(payment: Payment, requestSha256: string, sale: Sale, buy: () => Promise<Response>): Promise<Response> {
    const key = this.#keyOf(payment);
    const deadline = systemClock.monotonic() + TURN_WAIT_MS;
    for (;;) {
      const existing = await this.existingOrder(payment, requestSha256);
      if (existing && !mayRetryWork(existing)) return this.responseOf(existing, payment, sale);
      if (!this.#underWay.has(key)) break;
      if (systemClock.monotonic() >= deadline) {
        const detail = "an earlier request with this payment is under way; ask again with the same payment";
        throw new Problem("unavailable", detail, RETRY_LATER);
      }
      await systemClock.sleep(TURN_INTERVAL_MS);
    }
    if (this.#underWay.size >= MAX_PAYMENTS_UNDER_WAY)
      throw new Problem("unavailable", "too many purchases are under way; nothing was bought", RETRY_LATER);
    this.#underWay.add(key);
    try {
      return await this.#orExistingOrder(payment, requestSha256, sale, buy);
    } finally {
      this.#underWay.delete(key);
    }
  }

  /**
   * Returns the order that already has this payment, or null.
   * @throws Problem payment_used when that order is for another request; log_unavailable
   */
  async existingOrder(payment: Payment, requestSha256: string): Promise<Order | null> {
    const { buying } = this.sales;
    const key = this.#keyOf(payment);
    await this.#catchUp(key);
    const order = buying.orders.table.ofKey(key);
    return order ? this.requireSameRequest(order, payment, requestSha256) : null;
  }

  /**
   * Reads new steps of orders, of one payment's partition or of all. @throws Problem log_unavailable
   */
  async #catchUp(key?: string): Promise<void> {
    await this.sales.buying.orders.catchUp(key).catch(() => {
      throw notWrittenProblem();
    });
  }

  /**
   * Refuses a verified payment whose identifier another order of its wallet has. It is not looked up before the payment
   * is verified: anybody can send a payment that names a wallet and a guessed identifier, and would learn of the order.
   * @throws Problem payment_used, log_unavailable
   */
  async #requireFreeIdentifier(payment: Payment): Promise<void> {
    const { from, identifier } = payment;
    if (identifier === null) return;
    await this.#catchUp();
    const order = this.sales.buying.orders.table.ofIdentifier(from, identifier);
    if (!order || order.key === this.#keyOf(payment) || FREE_IDENTIFIER_STATES.has(order.state)) return;
    const detail = "another order of this wallet has this payment-identifier: send the payment of that order again";
    throw new Problem("payment_used", detail);
  }

  /**
   * Runs `buy`. If `buy` refuses, looks again for an order with this payment, since a concurrent request at another
   * process may have created one. The buyer then gets the outcome of that order: after a refusal its client would pay a
   * second time.
   * @throws Problem of `buy` when no order has the payment, or the order ended without a delivery
   */
  async #orExistingOrder(
    payment: Payment,
    requestSha256: string,
    sale: Sale,
    buy: () => Promise<Response>,
  ): Promise<Response> {
    const outcome = await buy().catch((error: unknown) => {
      if (error instanceof Problem) return error;
      throw error;
    });
    if (!(outcome instanceof Problem) && outcome.status !== 402) return outcome;
    const existing = await this.existingOrder(payment, requestSha256);
    // If the order ended without a delivery, the problem explains more than the order's state.
    if (outcome instanceof Problem && (!existing || UNDELIVERED_STATES.has(existing.state))) throw outcome;
    return existing ? this.responseOf(existing, payment, sale) : (outcome as Response);
  }

  /**
   * Returns the order. A payment that was charged can be read on the chain, signature included, so an order that has an
   * identifier, which stands nowhere else, is given out only for its payment with that identifier.
   * @throws Problem payment_used when the order has another request, or another payment with this nonce
   */
  requireSameRequest(order: Order, payment: Payment, requestSha256: string): Order {
    const isSamePayment =
      order.paymentSha256 === payment.sha256 && (order.identifier === null || order.identifier === payment.identifier);
    if (order.requestSha256 === requestSha256 && isSamePayment) return order;
    throw new Problem("payment_used", "this payment belongs to another order: sign a new one");
  }

  /**
   * Returns why a payment cannot pay for a sale, or null.
   * @param holdsS seconds from now for which an `exact` payment must stay valid
   * @throws Problem unavailable when the payment cannot be verified now
   */
  async paymentFault(payment: Payment, sale: Sale, holdsS: number): Promise<PaymentFault | null> {
    const { receivingAccount, till } = this.sales;
    const now = chainNow();
    const { scheme, network } = payment;
    const escrowOffer = scheme === "auth-capture" ? escrowOfferFor(receivingAccount, sale) : null;
    if (scheme !== "exact" && !escrowOffer)
      return { code: "unsupported_scheme", says: `the scheme ${scheme} was not offered` };
    if (network !== receivingAccount.network)
      return { code: "invalid_network", says: `the payment is on ${network}, not on ${receivingAccount.network}` };
    if (payment.amountAtomic !== sale.totalMicro) {
      const says = `the price is ${formatMoney(sale.totalMicro)} USDC now`;
      return { code: "invalid_exact_evm_payload_authorization_value", says };
    }
    if (escrowOffer) return this.#escrowFault(payment, escrowOffer, now);
    if (payment.to !== receivingAccount.payTo) {
      const says = "the payment is for another address than the terms named";
      return { code: "invalid_exact_evm_payload_recipient_mismatch", says };
    }
    const timeFault = validityFault(payment, now, holdsS);
    if (timeFault) return timeFault;
    const requirements = exactOffer(receivingAccount, sale.totalMicro);
    const verdict = await till.verify(paymentEnvelope(payment, requirements), requirements).catch(() => null);
    if (!verdict) throw new Problem("unavailable", "payments cannot be verified now; nothing was charged", RETRY_LATER);
    if (!verdict.valid) return faultFromReason(verdict.reason);
    if (verdict.payer === payment.from) return null;
    return { code: "invalid_exact_evm_payload_signature", says: "the payment is another wallet's" };
  }

  /**
   * Checks a payment into escrow for {@link paymentFault}. The payment must be valid only until the money is in the
   * escrow (the hold); the deadlines of the hold are those of our offer.
   */
  async #escrowFault(payment: Payment, offer: PaymentRequirements, now: number): Promise<PaymentFault | null> {
    const { buying, receivingAccount } = this.sales;
    const { escrow } = receivingAccount;
    if (buying.hasWastedTooMuch({ payer: payment.from, client: null })) {
      const says = "nothing more is held for this wallet today: too many of its payments came to nothing";
      return { code: "unsupported_scheme", says };
    }
    const verdict = await escrow!
      .check(paymentEnvelope(payment, offerAnsweredBy(payment, offer)), offer, now)
      .catch(() => null);
    if (!verdict) throw new Problem("unavailable", "payments cannot be verified now; nothing was charged", RETRY_LATER);
    return verdict.valid ? null : faultFromReason(verdict.reason);
  }

  /** Builds the claim of a verified payment: the first record of its order. */
  claimOf(payment: Payment, sale: Sale, request: PurchaseRequest): ClaimedPurchase {
    const { receivingAccount, clientName } = this.sales;
    const escrowOffer = payment.scheme === "auth-capture" ? escrowOfferFor(receivingAccount, sale) : null;
    const requirements = offerAnsweredBy(payment, escrowOffer ?? exactOffer(receivingAccount, sale.totalMicro));
    const { operation, requestSha256: request_sha256, priceMicro, publish, expect } = request;
    return {
      key: this.#keyOf(payment),
      claim: {
        ...{
          operation,
          scheme: escrowOffer ? ("auth-capture" as const) : ("exact" as const),
          network: payment.network,
          asset: receivingAccount.asset,
        },
        ...{ payer: payment.from, nonce: payment.nonce, client: clientName(request.client) },
        ...{ valid_after: payment.validAfter, valid_before: payment.validBefore },
        payment: { ...paymentEnvelope(payment, requirements) },
        ...{ payment_sha256: payment.sha256, requirements: { ...requirements } },
        ...(payment.identifier === null ? {} : { identifier: payment.identifier }),
        ...{ request_sha256, quote: quoteOf(priceMicro, sale.totalMicro), publish },
        ...(expect ? { expect } : {}),
        ...(publish || operation === "own" ? {} : { salts: createSalts() }),
      },
    };
  }

  /**
   * Buys a call with a verified payment.
   * @throws Problem as {@link responseOf} and {@link requireSameRequest}; payment_used when another order has the
   * payment's identifier
   */
  buy(purchase: Purchase, payment: Payment, sale: Sale): Promise<Response> {
    return this.#runOrder(purchase, payment, sale, () => this.sales.buying.buy(purchase));
  }

  /**
   * Sells our own work for a verified payment.
   * @param work does the work; if it rejects with a problem, the buyer gets that problem and is not charged
   */
  sell(purchase: ClaimedPurchase, payment: Payment, sale: Sale, work: () => Promise<OwnAnswer>): Promise<Response> {
    return this.#runOrder(purchase, payment, sale, () =>
      this.sales.buying.sell(purchase.key, purchase.claim, () => work().catch(failureOf)),
    );
  }

  /**
   * Creates the order and answers its buyer. If the call is not bought, the answer is a 402 with no offers, or with
   * escrow only.
   */
  async #runOrder(
    { claim }: ClaimedPurchase,
    payment: Payment,
    sale: Sale,
    createOrder: () => Promise<Order>,
  ): Promise<Response> {
    const { receivingAccount } = this.sales;
    await this.#requireFreeIdentifier(payment);
    try {
      return await this.responseOf(
        this.requireSameRequest(await createOrder(), payment, claim.request_sha256),
        payment,
        sale,
      );
    } catch (error) {
      if (error instanceof NotBought)
        return paymentRequired(receivingAccount, sale, refusalOffer(error.message, error));
      if (error instanceof StepNotSeen) throw notWrittenProblem();
      throw error;
    }
  }

  /**
   * Waits at most 100 s until an order has ended or is left to recovery, and returns the response for its buyer: the
   * answer, a 402, or a 202 with the state of the order.
   * @throws Problem seller_failed, answer_expired, log_unavailable; for our own work, the problem that the order stored
   */
  async responseOf(known: Order, payment: Payment, sale: Sale): Promise<Response> {
    const order = await this.sales.buying.waitForOutcome(known, WAIT_MS);
    const headers = { "touchstone-order": order.id };
    if (order.state === "settled") return this.#deliveredResponse(order, payment);
    if (order.state === "written_off" || order.state === "hold_failed") {
      return this.#unsettledResponse(order, payment, sale);
    }
    if (isRefused(order)) {
      const error = order.says ?? orderText(order);
      return paymentRequired(this.sales.receivingAccount, sale, { error, sold: false, headers });
    }
    if (UNDELIVERED_STATES.has(order.state) || order.state.startsWith("refund")) {
      throw undeliveredProblem(order);
    }
    const location = `/v1/orders/${order.id}`;
    return uncachedJson(orderDocument(order), 202, { ...headers, location, "retry-after": RETRY_S });
  }

  /** Returns the response after a charge or a hold that failed finally: a 402 without offers, with the failure. */
  #unsettledResponse(order: Order, { version }: Payment, sale: Sale): Response {
    const { id, network, payer } = order;
    const failure = { code: settleFailure(order), says: orderText(order) };
    const headers = { "touchstone-order": id, ...paymentResponseHeader(version, { network, payer, tx: "" }, failure) };
    return paymentRequired(this.sales.receivingAccount, sale, { ...refusalFields(failure), sold: false, headers });
  }

  async #deliveredResponse(order: Order, { version }: Payment): Promise<Response> {
    const { orders, objects } = this.sales.buying;
    const [bytes, salts] = await Promise.all([answerOf(objects, order), readSalts(orders, order)]).catch((error) => {
      throw error instanceof StepNotSeen ? notWrittenProblem() : error;
    });
    if (bytes === null) throw expiredProblem(order);
    // Of the sellers that were tried one after the other, the last one gave the answer that passed.
    const lastLeg = order.legs.at(-1);
    const result = order.own?.result ?? lastLeg!.result!;
    const { network, payer } = order;
    return new FastResponse(new Uint8Array(bytes), {
      status: "status" in result ? (result.status ?? 200) : 200,
      headers: {
        "content-type": result.content_type ?? "application/octet-stream",
        "cache-control": "no-store",
        // A seller's answer is served from our origin, so browsers must not run scripts in it.
        "content-security-policy": "sandbox; default-src 'none'",
        ...OPEN_HEADERS,
        "touchstone-order": order.id,
        ...(lastLeg?.judgedBy ? { "touchstone-judged-by": lastLeg.judgedBy } : {}),
        ...(salts ? { "touchstone-salt-request": salts.request, "touchstone-salt-response": salts.response } : {}),
        ...paymentResponseHeader(version, { network, payer, tx: order.charged!.tx }),
      },
    });
  }
}
