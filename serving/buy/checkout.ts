import type { PaymentRequirements } from "@x402/core/types";
import { FastResponse } from "srvx";
import type { Till } from "../../infra/rails/till.ts";
import { type Buying, NotBought, type OwnAnswer, type Purchase } from "../../pipelines/orders/buying.ts";
import { claimKey } from "../../pipelines/orders/claim.ts";
import type { Order } from "../../pipelines/orders/order.ts";
import { StepNotSeen } from "../../pipelines/orders/order-log.ts";
import { answerNamed, answerOf } from "../../pipelines/orders/order-objects.ts";
import { newSalts, saltsOf } from "../../pipelines/orders/publishing-calls.ts";
import type { SellerTools } from "../../pipelines/orders/seller.ts";
import { formatMoney } from "../../pipelines/record/money.ts";
import type { Quote } from "../../pipelines/record/order-step.ts";
import { Problem } from "../http/problem.ts";
import { uncachedJson } from "../http/reply.ts";
import type { SalePolicy } from "./eligible.ts";
import { orderDocument, orderText } from "./order-document.ts";
import { offerAnsweredBy, type Payment, paymentEnvelope } from "./payments.ts";
import {
  type Cashier,
  chainNow,
  escrowOfferFor,
  exactOffer,
  paymentRequired,
  paymentResponseHeader,
  type Sale,
} from "./terms.ts";

/** What calls are bought and charged with, and what of it is sold. */
export interface Sales {
  buying: Buying;
  seller: SellerTools;
  till: Till;
  cashier: Cashier;
  policy: SalePolicy;
  /** Opaque name of a client network, as orders keep it. */
  clientName: (client: string) => string;
}

/** How long a buyer waits for its order before it is told to ask again, real ms: shorter than a socket may be silent. */
const WAIT_MS = 100_000;
/** States of an order that delivers nothing any more. */
const GIVEN_UP: ReadonlySet<Order["state"]> = new Set(["released", "rejected", "voided", "reclaimable"]);
/**
 * Longest time for which a buyer's payment may stay valid, seconds. Its order is watched, and a refund waits, until it has
 * run out.
 */
const MAX_HOLDS_S = 3_600;
const RETRY_S = "5";
const RETRY = { headers: { "retry-after": RETRY_S } };

/** What a page of another origin may read of an answer's headers. */
const EXPOSED =
  "PAYMENT-RESPONSE, X-PAYMENT-RESPONSE, Touchstone-Order, Touchstone-Salt-Request, Touchstone-Salt-Response";

/** What a buyer asked for with a payment. */
export interface PurchaseRequest {
  operation: Purchase["claim"]["operation"];
  requestSha256: string;
  /** Seller's price, micro-units; 0 for work of our own. What the sale costs beside it is our fee. */
  priceMicro: bigint;
  publish: boolean;
  /** Key of the client network that asked. */
  client: string;
}

/** A verified payment of a buyer, and what it is for. */
type Claimed = Pick<Purchase, "key" | "claim">;

/** The price as an order records it: the seller's price, our fee, and the sum that the buyer pays. */
const quoteOf = (priceMicro: bigint, totalMicro: bigint): Quote => ({
  price: formatMoney(priceMicro),
  fee: formatMoney(totalMicro - priceMicro),
  total: formatMoney(totalMicro),
});

/** A 402 that offers what would still be taken: nothing, or the escrow alone. */
export const refusalOffer = (error: string, { exactOnly }: { exactOnly: boolean }) =>
  ({ error, sold: exactOnly ? "escrow" : false }) as const;

const unwritten = (): Problem =>
  new Problem("log_unavailable", "the order cannot be written now; ask again with the same payment", RETRY);

/**
 * The answer of an order that was charged, after the time for which answers are kept: the bytes are gone, and this payment
 * does not buy them a second time.
 */
function expired(order: Order): Problem {
  const { sha256, size } = answerNamed(order)!;
  const was = `it had ${size} bytes with the sha256 ${sha256}; order ${order.id} was charged`;
  const headers = { "touchstone-order": order.id };
  return new Problem("answer_expired", `the answer is not kept any more: ${was}`, { headers });
}

/** Checks a buyer's payment, makes the order's claim of it, and answers the buyer with the outcome of the order. */
export class Checkout {
  constructor(readonly sales: Sales) {}

  /**
   * The order that has this payment already, or null.
   * @throws Problem payment_used when it bought something else; log_unavailable
   */
  async existingOrder(payment: Payment, requestSha256: string): Promise<Order | null> {
    const { buying, cashier } = this.sales;
    const key = claimKey({ ...payment, asset: cashier.asset });
    await buying.claimWritten(key);
    try {
      await buying.orders.catchUp(key);
    } catch {
      throw unwritten();
    }
    const order = buying.orders.table.ofKey(key);
    return order ? this.requireSameRequest(order, payment, requestSha256) : null;
  }

  /**
   * Runs `answer`. When it refuses, looks once more for an order that has this payment: another request with the same
   * payment may have made one in the meantime. Then the buyer gets the outcome of that order instead of the refusal,
   * which would tell it to pay a second time.
   * @throws Problem of `answer` where no order has the payment, or the order ended without a delivery
   */
  async orExistingOrder(
    payment: Payment,
    requestSha256: string,
    sale: Sale,
    answer: () => Promise<Response>,
  ): Promise<Response> {
    const came = await answer().catch((error: unknown) => {
      if (error instanceof Problem) return error;
      throw error;
    });
    if (!(came instanceof Problem) && came.status !== 402) return came;
    const known = await this.existingOrder(payment, requestSha256);
    // The order ended without a delivery: the problem is its cause, and tells the buyer more than the order's state.
    if (came instanceof Problem && (!known || GIVEN_UP.has(known.state))) throw came;
    return known ? this.responseOf(known, payment, sale) : (came as Response);
  }

  /** @throws Problem payment_used for an order of another request, or of other bytes under one nonce */
  requireSameRequest(order: Order, payment: Payment, requestSha256: string): Order {
    if (order.requestSha256 === requestSha256 && order.paymentSha256 === payment.sha256) return order;
    throw new Problem("payment_used", "this payment belongs to another order: sign a new one");
  }

  /**
   * What keeps this payment from paying this sale, in words, or null.
   * @param holdsS seconds from now in which it must still hold
   * @throws Problem unavailable when nobody can say
   */
  async paymentFault(payment: Payment, sale: Sale, holdsS: number): Promise<string | null> {
    const { cashier, till } = this.sales;
    const now = chainNow();
    const held = payment.scheme === "auth-capture" ? escrowOfferFor(cashier, sale) : null;
    if (payment.scheme !== "exact" && !held) return `the scheme ${payment.scheme} was not offered`;
    if (payment.network !== cashier.network) return `the payment is on ${payment.network}, not on ${cashier.network}`;
    if (payment.amountAtomic !== sale.totalMicro) return `the price is ${formatMoney(sale.totalMicro)} USDC now`;
    if (held) return this.#wrongHold(payment, held, now);
    if (payment.to !== cashier.payTo) return "the payment is for another address than the terms named";
    if (payment.validAfter > now) return "the payment does not hold yet";
    if (payment.validBefore < now + holdsS) return `the payment must hold for at least ${holdsS} s from now`;
    if (payment.validBefore > now + MAX_HOLDS_S) return `the payment may hold for at most ${MAX_HOLDS_S} s from now`;
    const requirements = exactOffer(cashier, sale.totalMicro);
    const said = await till.verify(paymentEnvelope(payment, requirements), requirements).catch(() => null);
    if (!said) throw new Problem("unavailable", "payments cannot be verified now; nothing was charged", RETRY);
    if (!said.valid) return `the payment is not valid: ${said.reason}`;
    return said.payer === payment.from ? null : "the payment is another wallet's";
  }

  /**
   * What {@link paymentFault} says of a payment into escrow. It has to be valid until the hold is placed; the escrow checks how
   * long the hold itself lasts.
   */
  async #wrongHold(payment: Payment, offer: PaymentRequirements, now: number): Promise<string | null> {
    const { buying, cashier } = this.sales;
    const { escrow } = cashier;
    if (buying.wastes({ payer: payment.from, client: null }))
      return "nothing more is held for this wallet today: too many of its payments came to nothing";
    const said = await escrow!
      .check(paymentEnvelope(payment, offerAnsweredBy(payment, offer)), offer, now)
      .catch(() => null);
    if (!said) throw new Problem("unavailable", "payments cannot be verified now; nothing was charged", RETRY);
    return said.valid ? null : `the payment is not valid: ${said.reason}`;
  }

  /** The claim of a payment that was verified. */
  claimOf(payment: Payment, sale: Sale, asked: PurchaseRequest): Claimed {
    const { cashier, clientName } = this.sales;
    const held = payment.scheme === "auth-capture" ? escrowOfferFor(cashier, sale) : null;
    const requirements = offerAnsweredBy(payment, held ?? exactOffer(cashier, sale.totalMicro));
    const { operation, requestSha256: request_sha256, priceMicro, publish } = asked;
    return {
      key: claimKey({ ...payment, asset: cashier.asset }),
      claim: {
        ...{
          operation,
          scheme: held ? ("auth-capture" as const) : ("exact" as const),
          network: payment.network,
          asset: cashier.asset,
        },
        ...{ payer: payment.from, nonce: payment.nonce, client: clientName(asked.client) },
        ...{ valid_after: payment.validAfter, valid_before: payment.validBefore },
        payment: { ...paymentEnvelope(payment, requirements) },
        ...{ payment_sha256: payment.sha256, requirements: { ...requirements } },
        ...{ request_sha256, quote: quoteOf(priceMicro, sale.totalMicro), publish },
        ...(publish || operation === "own" ? {} : { salts: newSalts() }),
      },
    };
  }

  /** A call, bought with a payment that was verified. @throws Problem as {@link responseOf} and {@link requireSameRequest} do */
  buy(purchase: Purchase, payment: Payment, sale: Sale): Promise<Response> {
    return this.#ended(purchase, payment, sale, () => this.sales.buying.buy(purchase));
  }

  /**
   * Work of our own, bought with a payment that was verified. @param work rejects with the problem for the buyer: then
   * nothing is charged
   */
  sell(purchase: Claimed, payment: Payment, sale: Sale, work: () => Promise<OwnAnswer>): Promise<Response> {
    return this.#ended(purchase, payment, sale, () => this.sales.buying.sell(purchase.key, purchase.claim, work));
  }

  /**
   * Makes the order and answers its buyer. An order that was refused before anything was written or paid is answered with a
   * 402, which offers nothing or the escrow alone.
   */
  async #ended({ claim }: Claimed, payment: Payment, sale: Sale, act: () => Promise<Order>): Promise<Response> {
    const { cashier } = this.sales;
    try {
      return await this.responseOf(this.requireSameRequest(await act(), payment, claim.request_sha256), payment, sale);
    } catch (error) {
      if (error instanceof NotBought) return paymentRequired(cashier, sale, refusalOffer(error.message, error));
      if (error instanceof StepNotSeen) throw unwritten();
      throw error;
    }
  }

  /**
   * What a buyer is told of its order, now or once it has ended.
   * @throws Problem seller_failed, answer_expired, log_unavailable
   */
  async responseOf(known: Order, payment: Payment, sale: Sale): Promise<Response> {
    const order = await this.sales.buying.outcome(known, WAIT_MS);
    const headers = { "touchstone-order": order.id };
    if (order.state === "settled") return this.#bought(order, payment);
    if (order.state === "written_off" || order.state === "hold_failed") {
      return paymentRequired(this.sales.cashier, sale, { error: orderText(order), sold: false, headers });
    }
    if (GIVEN_UP.has(order.state) || order.state.startsWith("refund")) {
      throw new Problem("seller_failed", orderText(order), { headers });
    }
    const location = `/v1/orders/${order.id}`;
    return uncachedJson(orderDocument(order), 202, { ...headers, location, "retry-after": RETRY_S });
  }

  async #bought(order: Order, { version }: Payment): Promise<Response> {
    const { orders, objects } = this.sales.buying;
    const [bytes, salts] = await Promise.all([answerOf(objects, order), saltsOf(orders, order)]).catch((error) => {
      throw error instanceof StepNotSeen ? unwritten() : error;
    });
    if (bytes === null) throw expired(order);
    const result = order.own?.result ?? order.legs.at(-1)!.result!;
    const { network, payer } = order;
    return new FastResponse(new Uint8Array(bytes), {
      status: "status" in result ? (result.status ?? 200) : 200,
      headers: {
        "content-type": result.content_type ?? "application/octet-stream",
        "cache-control": "no-store",
        // A stranger's bytes under our address: no browser may run them as ours.
        "content-security-policy": "sandbox; default-src 'none'",
        "x-content-type-options": "nosniff",
        "access-control-allow-origin": "*",
        "access-control-expose-headers": EXPOSED,
        "touchstone-order": order.id,
        ...(salts ? { "touchstone-salt-request": salts.request, "touchstone-salt-response": salts.response } : {}),
        ...paymentResponseHeader(version, { network, payer, tx: order.charged!.tx }),
      },
    });
  }
}
