import type { PaymentRequirements } from "@x402/core/types";
import { sha256hex } from "../../infra/canonical.ts";
import { systemClock } from "../../infra/clock.ts";
import { Failure } from "../../infra/errors.ts";
import type { Authorizations } from "../../infra/rails/authorization.ts";
import { type AsOf, mapAsOf, type Settlement } from "../../infra/rails/rails.ts";
import { ChainDown } from "../../infra/rails/rpc.ts";
import type { Till } from "../../infra/rails/till.ts";
import type { Metrics } from "../../infra/telemetry.ts";
import { atomicToMicro, formatMoney, parseMoney } from "../record/money.ts";
import type { WorkProblem } from "../record/order-step.ts";
import { dayOf } from "../record/time.ts";
import { Cancelling, type CancellingDeps } from "./cancelling.ts";
import { type BuyerSide, Caps, type OrderCaps, type Refusal, type SellerSide, type Standing } from "./caps.ts";
import { createOrderId } from "./claim.ts";
import type { GasOf } from "./gas.ts";
import {
  ANSWER_LOST,
  type Charge,
  createReleaseStep,
  createSettledStep,
  describeOutcome,
  type Holding,
} from "./holding.ts";
import { isEnded, mayReopen, type Order } from "./order.ts";
import { type NewStep, type OrderLog, OrderLost, type StepBody, StepNotSeen } from "./order-log.ts";
import type { OrderObjects } from "./order-objects.ts";
import { findFloatRefusal, type SellerAnswer, type SellerQuote, sendLeg, signIntent } from "./seller.ts";
import { SUM } from "./stakes.ts";

export interface BuyingDeps extends Omit<CancellingDeps, "hasWastedTooMuch"> {
  caps: OrderCaps;
  /**
   * Sends the transactions that charge buyers. Its replies are not trusted: {@link Buying} reads from the chain
   * whether money moved.
   */
  till: Till;
  /** Reads from the chain whether the authorization in a buyer's payment is unused, used or cancelled. */
  readNonce: Authorizations["stateOf"];
  /** Acts on orders whose buyer pays into escrow. */
  holding: Holding;
  /** Store of request bodies and answers. */
  objects: OrderObjects;
  /**
   * Returns why nothing is sold to anybody now (for example, since an earlier buyer could not be charged), in words for
   * a buyer; null when calls are sold.
   */
  closed?: () => string | null;
  metrics: Pick<Metrics, "count" | "time">;
  /** Pauses (real ms) between reads of the chain, after a charge was sent, until its Transfer is found. */
  settlePollMs?: readonly number[];
  /**
   * Pauses (real ms) between reads of a payer's balance, while it is too low for all of the payer's orders that are
   * not charged yet.
   */
  coverPollMs?: readonly number[];
}

/**
 * The further sellers that may be tried for an order. The next seller is paid when the previous seller's answer
 * failed its checks and that seller can no longer take our payment.
 */
export interface Fallback {
  /** Returns whether there is another seller and enough time to call it. */
  left(): boolean;
  /** Requests the price from the next seller; null when none is left. Must not reject. */
  quote(): Promise<SellerQuote | null>;
  /**
   * Returns whether the payment to the last seller may be cancelled after the order has ended, which costs us a
   * transaction (default: {@link Cancelling.mayCancel}).
   */
  mayCancel?(): boolean;
}

/**
 * A verified payment of a buyer and what it buys. `claim`: the order's first step, without the two members that
 * {@link Buying} determines itself.
 */
export interface Purchase {
  claim: Omit<StepBody<"claimed">, "since_block" | "credit">;
  /** Key of the payment in the log (claim.ts). */
  key: string;
  /** Price and terms of the first seller. */
  quote: SellerQuote;
  fallback?: Fallback;
}

/** The answer of an operation that we do ourselves, without a seller. */
export interface OwnAnswer {
  bytes: Uint8Array;
  contentType: string;
}

/** Why one of our own operations gave no answer. The problem is returned to the buyer. */
export interface OwnFailure {
  problem: WorkProblem;
}

/**
 * The error for a call that is not bought. Its message is the reason, which is returned to the buyer. Nobody is
 * charged.
 */
export class NotBought extends Failure {
  /** @param exactOnly true: a payment into escrow would have been accepted */
  constructor(
    says: string,
    readonly exactOnly = false,
  ) {
    super("failed", says);
  }
}

/**
 * States in which recovery still has to find out from the chain what happened. Meanwhile the buyer gets status 202
 * and has to ask again.
 */
const UNKNOWN_STATES: ReadonlySet<Order["state"]> = new Set(["settle_unknown", "hold_unknown", "void_unknown"]);

const SETTLE_POLL_MS = [0, 50, 200, 500, 1_000] as const;
/** Pause between two checks of an order for whose end a buyer waits, real ms. */
const LOOK_INTERVAL_MS = 200;

function toSellerResult(leg: number, answer: SellerAnswer): NewStep<"seller_result"> {
  const { evaluation, bytes, contentType, pass, unmet, paymentForms, says } = answer;
  return {
    state: "seller_result",
    ...{ leg, status: evaluation.status, content_type: contentType, sha256: evaluation.response_sha256 },
    ...{ size: bytes.length, delivered: evaluation.delivered },
    ...{ delivery: evaluation.delivery, schema_ok: evaluation.schema_ok },
    ...{ latency_ms: evaluation.latency_ms, checks: evaluation.checks, pass },
    ...(unmet ? { unmet } : {}),
    ...(paymentForms ? { payment_forms: paymentForms } : {}),
    ...(says === null ? {} : { says }),
  };
}

const COVER_POLL_MS = [0, 100, 200, 400, 800, 1_500] as const;
const NONCE_SHARED =
  "The seller gave one challenge for two payments of ours, and only one of them can be made; ask again.";
export const ANSWER_NOT_STORED = "The answer came and could not be kept; nobody is charged for it.";

/**
 * Acts on orders (calls that buyers buy through us, orders.md): pays the seller, checks the answer, and charges the
 * buyer if the answer passed. A leg is one payment to one seller for an order. Before each payment and charge the
 * step that announces it is durable in the log and was read back. If the process stops between two steps, {@link
 * Recovery} ends the order.
 */
export class Buying {
  readonly #caps: Caps;
  /** Ids of the orders that a call of {@link buy} or {@link sell} in this process is working on. */
  readonly #activeOrders = new Set<string>();
  /** Quote (price and terms) of the newest leg of each active order, by the order's id. */
  readonly #quotes = new Map<string, SellerQuote>();
  readonly cancelling: Cancelling;

  constructor(private readonly deps: BuyingDeps) {
    const { orders, caps, clock } = deps;
    this.#caps = new Caps(orders.table, caps, () => dayOf(clock.now()));
    this.cancelling = new Cancelling({ ...deps, hasWastedTooMuch: (order) => this.#caps.hasWastedTooMuch(order) });
  }

  get orders(): OrderLog {
    return this.deps.orders;
  }

  get objects(): OrderObjects {
    return this.deps.objects;
  }

  isActing(order: Order): boolean {
    return this.#activeOrders.has(order.id) || this.cancelling.isActing(order);
  }

  /**
   * Appends the order's first step, which claims the buyer's payment for the order, and reads it back. Returns the
   * order that has the payment, which is an earlier one if its claim is before ours in the log.
   */
  async #appendClaim(id: string, key: string, claim: Purchase["claim"], credit: boolean): Promise<Order> {
    const { number: since_block } = await this.deps.seller.rail.head();
    return this.deps.orders.claim(id, key, { ...claim, since_block, ...(credit ? { credit } : {}) });
  }

  /**
   * Returns why a call would not be bought now, or null. This reserves nothing: the caps are checked again once the
   * order is in the log, and the order may be refused then.
   * @param buyer null if it is not known yet who pays
   */
  findRefusal(seller: SellerSide, buyer: BuyerSide | null): Refusal | null {
    const standing = this.#findStanding(seller, buyer);
    return "says" in standing ? standing : null;
  }

  /** Why nothing is bought from anybody now, as a sentence; null if something is. */
  get whyClosed(): string | null {
    return this.deps.closed?.() ?? null;
  }

  #findStanding(seller: SellerSide | null, buyer: BuyerSide | null): Standing {
    const says = this.whyClosed ?? (seller && this.#caps.refusalOfSeller(seller)) ?? null;
    if (says !== null) return { says, exactOnly: false };
    return buyer ? this.#caps.standingOfBuyer({ ...buyer, payer: buyer.payer.toLowerCase() }) : { credit: false };
  }

  /**
   * Has this payer, or the IP network of its client, caused as many failed transactions today as are allowed? Then its
   * payments into escrow are refused too.
   */
  hasWastedTooMuch(buyer: Pick<BuyerSide, "payer" | "client">): boolean {
    return this.#caps.hasWastedTooMuch({ ...buyer, payer: buyer.payer.toLowerCase() });
  }

  /**
   * Buys with a verified payment. Resolves when the order has ended, or when its outcome is unknown; recovery then
   * finds it out. If an order has this payment already, that order is returned as it is.
   * @throws NotBought; StepNotSeen when the log cannot be written (the order may exist nevertheless: repeat the
   * request with the same payment)
   */
  async buy({ claim, key, quote, fallback }: Purchase): Promise<Order> {
    const buyer = buyerOf(claim, quote.priceMicro);
    const standing = this.#findStanding(sellerOf(quote), buyer);
    if ("says" in standing) throw new NotBought(standing.says, standing.exactOnly);
    const id = createOrderId();
    const reservationEnds = [
      this.#caps.reserveForBuyer(id, buyer, standing.credit),
      this.#caps.reserveForSeller(id, 0, sellerOf(quote)),
    ] as const;
    this.#activeOrders.add(id);
    try {
      const order = await this.#appendClaim(id, key, claim, standing.credit);
      if (order.id !== id) return order;
      if (order.scheme === "auth-capture") {
        // Holding and giving back cost gas, so the money for the seller is asked for first.
        const whyNoMoney = await findFloatRefusal(this.deps.seller, quote);
        if (whyNoMoney !== null) {
          await this.deps.orders.step(order, { state: "rejected", says: whyNoMoney });
          return order;
        }
        if (!(await this.deps.holding.place(order))) return order;
      }
      reservationEnds[1]();
      const whyFirstNotPaid = await this.#writeIntent(order, quote);
      const whyNotPaid = whyFirstNotPaid && (await this.#writeNextIntent(order, whyFirstNotPaid, fallback));
      if (whyNotPaid) {
        const rejectedStep = { state: "rejected", says: whyNotPaid } as const;
        await this.deps.orders.step(
          order,
          order.state === "claimed" ? rejectedStep : createReleaseStep(order, whyNotPaid),
        );
      } else await this.#runLegs(order, fallback);
      if (order.state === "settle_intent") await this.settle(order);
      else if (order.state === "void_intent") await this.deps.holding.giveBack(order);
      this.cancelling.cancelAfterEnd(order, fallback?.mayCancel?.bind(fallback));
      return order;
    } catch (error) {
      if (error instanceof ChainDown) throw new NotBought("The chain cannot be asked now; nothing was bought.");
      if (!(error instanceof OrderLost)) throw error;
      this.deps.logger.warn({ err: error }, "another replica went on with an order of ours");
      return error.order;
    } finally {
      for (const endReservation of reservationEnds) endReservation();
      this.#activeOrders.delete(id);
      this.#quotes.delete(id);
    }
  }

  /**
   * Sells one of our own operations: claims the payment, does the work, charges the buyer. If an order has this
   * payment already, that order is returned, so that one payment never buys two answers; but if that order ended
   * without an answer, the work is done again for it.
   * @param work resolves with the answer or a failure; after a failure or a rejection nothing is charged
   * @throws NotBought; StepNotSeen; what `work` rejects with
   */
  async sell(key: string, claim: Purchase["claim"], work: () => Promise<OwnAnswer | OwnFailure>): Promise<Order> {
    const { orders } = this.deps;
    const earlierOrder = orders.table.ofKey(key);
    const buyer = buyerOf(claim, parseMoney(claim.quote.total));
    const standing = this.#findStanding(null, buyer);
    if ("says" in standing) throw new NotBought(standing.says, standing.exactOnly);
    if (earlierOrder && (this.#activeOrders.has(earlierOrder.id) || !isRetryOf(earlierOrder, claim)))
      return earlierOrder;
    const id = earlierOrder?.id ?? createOrderId();
    const endReservation = this.#caps.reserveForBuyer(id, buyer, standing.credit);
    this.#activeOrders.add(id);
    try {
      const order = earlierOrder ?? (await this.#appendClaim(id, key, claim, standing.credit));
      if (order.id !== id || (earlierOrder && !(await orders.reopen(order)))) return order;
      const refusal = await this.#findRefusalNow(order);
      if (refusal) {
        await orders.step(order, { state: earlierOrder ? "released" : "rejected", says: refusal });
        throw new NotBought(refusal);
      }
      if (!earlierOrder) await orders.step(order, { state: "verified" });
      const answer = await work().catch(async (error: unknown) => {
        const says = error instanceof Error ? error.message : String(error);
        await orders.step(order, { state: "released", says: says.slice(0, 2000) });
        throw error;
      });
      if ("problem" in answer) {
        const { problem } = answer;
        await orders.step(order, { state: "released", says: problem.detail, problem });
        return order;
      }
      const { bytes, contentType: content_type } = answer;
      if (!(await this.deps.objects.putAnswer(order, 0, bytes))) {
        await orders.step(order, { state: "released", says: ANSWER_NOT_STORED });
        throw new StepNotSeen(`the answer of ${order.id} could not be kept`);
      }
      const workResult = { content_type, sha256: sha256hex(bytes), size: bytes.length };
      await orders.step(order, { state: "worked", ...workResult }, { state: "settle_intent" });
      await this.settle(order);
      return order;
    } catch (error) {
      if (error instanceof ChainDown) throw new NotBought("The chain cannot be asked now; nothing was charged.");
      if (!(error instanceof OrderLost)) throw error;
      return error.order;
    } finally {
      endReservation();
      this.#activeOrders.delete(id);
    }
  }

  /**
   * Checks the caps again once this order is durable, after reading the orders of all partitions. While orders are
   * not durable, replicas do not see each other's, and each could use up a whole cap. Of two replicas that check
   * afterwards, at least the one that checks last sees both orders.
   * @returns why the order does not go on, in words, or null
   */
  async #findRefusalNow(order: Order): Promise<string | null> {
    await this.deps.orders.catchUp().catch((cause: unknown) => {
      throw new StepNotSeen("the orders of others could not be read", { cause });
    });
    const closedReason = this.deps.closed?.() ?? null;
    if (closedReason !== null) return closedReason;
    const leg = order.legs.at(-1);
    const sellerRefusal = leg && this.#caps.refusalOfSeller({ ...leg, micro: parseMoney(leg.price) }, true);
    if (sellerRefusal) return sellerRefusal;
    if (leg && this.deps.orders.table.sharesNonce(order)) return NONCE_SHARED;
    const buyer = { ...order, micro: 0n, totalMicro: 0n, own: order.own !== null };
    const standing = this.#caps.standingOfBuyer(buyer, order);
    return "says" in standing ? standing.says : this.#findBalanceRefusal(order);
  }

  /**
   * Checks that the payer's wallet holds enough for this order and for all its other orders that are not charged yet.
   * Each payment was verified alone, so one balance could back any number of them. When the balance does not cover
   * all, the later orders are refused, and an earlier order waits until that has happened. An order also waits while
   * another order's charge may have lowered the balance and is not in the log yet. Checks too that the payment itself
   * was not used or cancelled: the facilitator that called it valid is not trusted.
   * @returns why the order is refused, in words, or null
   */
  async #findBalanceRefusal(order: Order): Promise<string | null> {
    const { scheme, payer } = order;
    if (scheme !== "exact") return null;
    const { orders } = this.deps;
    const { table } = orders;
    for (const pause of this.deps.coverPollMs ?? COVER_POLL_MS) {
      if (pause > 0) {
        await systemClock.sleep(pause);
        await orders.catchUp();
      }
      const reads = Promise.all([this.#payerBalance(order), this.#canBeCharged(order)]);
      const chainRead = await reads.catch((error: unknown) => {
        if (error instanceof ChainDown) return null;
        throw error;
      });
      if (chainRead === null) return "The chain cannot be asked now; nothing was bought.";
      const [balanceMicro, canBeCharged] = chainRead;
      if (!canBeCharged) return "This payment was used or cancelled before: sign a new one.";
      const dueMicro = table.sum(SUM.due(payer));
      if (balanceMicro >= dueMicro) return null;
      if (balanceMicro + table.sum(SUM.settling(payer)) < dueMicro - table.dueAfter(order)) break;
    }
    return "The wallet holds less than this payment and its other ones that are not charged yet.";
  }

  /**
   * Checks the caps before the payment of the newest leg (payment to a seller) is sent.
   * @returns false if a cap forbids the payment and the buyer's money in escrow must be given back
   * @throws NotBought if a cap forbids the payment and no money is in escrow; the order has been ended
   */
  async #isWithinCaps(order: Order): Promise<boolean> {
    const refusal = await this.#findRefusalNow(order);
    if (!refusal) return true;
    const { leg } = order.legs.at(-1)!;
    await this.#endByOurFault(order, leg, refusal, { state: "leg_unpaid", leg });
    if (order.state === "void_intent") return false;
    throw new NotBought(refusal);
  }

  /**
   * Ends an order that failed through our fault: the buyer is not charged, and the failure does not count against the
   * seller.
   */
  async #endByOurFault(order: Order, leg: number, says: string, ...moreSteps: NewStep[]): Promise<void> {
    const checkedStep = { state: "checked", leg, pass: false, last: true, fault: "ours" } as const;
    await this.deps.orders.step(
      order,
      { state: "seller_unknown", leg, says },
      checkedStep,
      ...moreSteps,
      createReleaseStep(order, says),
    );
  }

  /**
   * Signs the payment to this seller and writes the step that announces it.
   * @returns null, or in words why this seller is not paid
   */
  async #writeIntent(order: Order, quote: SellerQuote): Promise<string | null> {
    const { orders, seller } = this.deps;
    if (quote.priceMicro > parseMoney(order.quote.price)) return "It costs more than what was quoted.";
    const refusal = this.findRefusal(sellerOf(quote), null);
    if (refusal) return refusal.says;
    const endReservation = this.#caps.reserveForSeller(order.id, order.legs.length, sellerOf(quote));
    try {
      const intent = await signIntent(seller, quote, order.legs.length);
      if (!("state" in intent)) return intent.says;
      // The payment is signed but not sent yet: if the body cannot be stored, nothing was bought.
      await this.deps.objects.put(order, intent.leg, "request", quote.request.body ?? new Uint8Array());
      if (order.state === "claimed") await orders.step(order, { state: "verified" }, intent);
      else await orders.step(order, intent);
      this.#quotes.set(order.id, quote);
      return null;
    } finally {
      endReservation();
    }
  }

  /**
   * Signs the payment to the first further seller that can be paid, and writes the step that announces it.
   * @returns null, or in words why the last seller that was tried is not paid (`whyPreviousNotPaid` when none was
   * left)
   */
  async #writeNextIntent(order: Order, whyPreviousNotPaid: string, fallback?: Fallback): Promise<string | null> {
    let says = whyPreviousNotPaid;
    while (fallback?.left()) {
      const quote = await fallback.quote();
      if (!quote) break;
      const refusal = await this.#writeIntent(order, quote);
      if (refusal === null) return null;
      says = refusal;
    }
    return says;
  }

  /**
   * Pays the seller of the newest leg, whose payment is signed and in the log. After an answer that failed, cancels
   * that payment and pays the next seller, or ends the order if the cancellation is not final on the chain in time.
   */
  async #runLegs(order: Order, fallback?: Fallback): Promise<void> {
    while (await this.#runLeg(order, fallback)) {
      const says = (await this.cancelling.cancelPayment(order))
        ? await this.#writeNextIntent(order, "No answer passed.", fallback)
        : "The answer did not pass, and its seller may have the money for it: nobody else is paid.";
      if (says === null) continue;
      await this.deps.orders.step(order, createReleaseStep(order, says));
      return;
    }
  }

  /**
   * Sends the payment of the newest leg, stores the answer, and appends the steps for the answer, for the result of
   * its checks, and, if no further seller is tried, for what follows.
   * @returns whether another seller may be tried
   */
  async #runLeg(order: Order, fallback?: Fallback): Promise<boolean> {
    const { orders, seller, authorizations } = this.deps;
    if (!(await this.#isWithinCaps(order))) return false;
    const intent = await orders.read("seller_intent", { partition: order.partition, offset: order.intentAt! });
    const { leg } = intent;
    const sentAt = systemClock.monotonic();
    const answer = await sendLeg(seller, intent, this.#quotes.get(order.id)!, order.expect);
    this.deps.metrics.time("touchstone_orders_paid_call_seconds", (systemClock.monotonic() - sentAt) / 1000);
    // A buyer is charged only for an answer that is stored, so that the buyer can read it again. A failed write is
    // our fault.
    if (!(await this.deps.objects.putAnswer(order, leg, answer.bytes))) {
      await this.#endByOurFault(order, leg, ANSWER_NOT_STORED);
      return false;
    }
    if (answer.ours)
      this.deps.logger.warn({ order: order.id, leg, says: answer.says }, "a seller's answer was lost on our side");
    const isLast = answer.pass || !authorizations || !fallback?.left();
    const nextStep = answer.pass
      ? ({ state: "settle_intent" } as const)
      : createReleaseStep(order, answer.ours ? ANSWER_LOST : "The answer did not pass.");
    const fault = answer.pass || answer.unmet ? null : answer.ours ? "ours" : "seller";
    await orders.step(
      order,
      toSellerResult(leg, answer),
      { state: "checked", leg, pass: answer.pass, last: isLast, fault },
      ...(isLast ? [nextStep] : []),
    );
    this.deps.metrics.count("touchstone_orders_legs_total", { pass: `${answer.pass}` });
    return !isLast;
  }

  /**
   * Charges the buyer of an order whose answer passed. The reply of the facilitator (who sends the transaction) is
   * not trusted: only a Transfer event on the chain counts as a charge.
   * @throws OrderLost, StepNotSeen
   */
  async settle(order: Order): Promise<void> {
    const { orders, till } = this.deps;
    if (order.scheme === "auth-capture") return this.deps.holding.collect(order);
    const claim = await orders.read("claimed", { partition: order.partition, offset: order.claimedAt });
    const result = await till.settle(claim.payment, claim.requirements as unknown as PaymentRequirements);
    const chargeRead = await this.readCharge(order, result.outcome === "sent").catch((error: unknown) => {
      this.deps.logger.warn({ err: error, order: order.id }, "the chain could not be asked for a buyer's settlement");
      return null;
    });
    const charge = chargeRead?.value ?? null;
    if (charge?.amount === order.quote.total) await orders.step(order, await this.createSettledStep(order, charge));
    else {
      // A reverted transfer costs gas too.
      const gas = await this.readGas(order, "charge", result.outcome === "refused" ? result.tx : null);
      const txMember = result.tx === undefined ? {} : { tx: result.tx };
      const isRefused = result.outcome === "refused";
      // The balance is read after every attempt: a facilitator may not report that the wallet held too little, and the
      // wallet may be filled again before recovery looks at it.
      const balance = await this.payerBalance(order).catch(() => null);
      const balanceMember = balance === null || !isRefused ? {} : { payer_has: balance };
      const isShort = balance !== null && parseMoney(balance) < parseMoney(order.quote.total);
      await orders.step(order, {
        state: "settle_unknown",
        says: describeOutcome(result),
        ...txMember,
        ...balanceMember,
        ...(isRefused || isShort ? { by_payer: true } : {}),
        ...gas,
      });
    }
    this.deps.metrics.count("touchstone_orders_settlements_total", {
      outcome: result.outcome,
      seen: `${charge !== null}`,
    });
  }

  /** Reads the balance of an order's payer in the order's token, as money. @throws ChainDown */
  async payerBalance(order: Order): Promise<string> {
    return formatMoney(await this.#payerBalance(order));
  }

  /** Reads the balance of an order's payer, micro-units. @throws ChainDown */
  async #payerBalance({ payer, network, asset }: Order): Promise<bigint> {
    const { value } = await this.deps.seller.rail.balance(payer, { network, asset });
    return atomicToMicro(value, 6) ?? 0n;
  }

  /**
   * Can the buyer's payment still charge it, or has it charged it already, sent to the chain by somebody else?
   * @throws ChainDown
   */
  async #canBeCharged(order: Order): Promise<boolean> {
    const { value } = await this.readNonce(order);
    if (value.state === "used") return chargeOf(order, value.settlement)?.amount === order.quote.total;
    return value.state === "unused";
  }

  /** Reads what became of the authorization with which an order's buyer pays. @throws ChainDown */
  readNonce({ payer: from, nonce, sinceBlock }: Order): ReturnType<BuyingDeps["readNonce"]> {
    return this.deps.readNonce({ from, nonce, sinceBlock });
  }

  readGas: GasOf = async (order, kind, tx) => this.deps.gas?.(order, kind, tx) ?? {};

  /** Makes the `settled` step of a charge that was read from the chain, with the gas that it cost us. */
  async createSettledStep(order: Order, charge: Charge): Promise<NewStep<"settled">> {
    return { ...createSettledStep(charge), ...(await this.readGas(order, "charge", charge.tx)) };
  }

  /**
   * Reads from the chain the transfer to us under the nonce of the buyer's payment; null if the blocks that were read
   * have none. Receiver and amount are read too, since a wallet can sign two transfers under one nonce and itself
   * send the one that we do not have.
   * @param isExpected true if the facilitator has reported the transfer as sent; then the chain is read several times
   * @throws ChainDown when the chain cannot be asked: then nothing is known
   */
  async readCharge(order: Order, isExpected = false): Promise<AsOf<Charge | null>> {
    const { payer, nonce, sinceBlock } = order;
    const readSettlement = () => this.deps.seller.rail.settlementOf({ from: payer, nonce, sinceBlock });
    // Just after the transfer a node may know that the nonce is used and not have the event yet, so the chain is read
    // again.
    const pauses = isExpected ? (this.deps.settlePollMs ?? SETTLE_POLL_MS) : [];
    let chargeRead: Awaited<ReturnType<typeof readSettlement>> | null = null;
    for (const pause of pauses) {
      if (pause > 0) await systemClock.sleep(pause);
      chargeRead = await readSettlement().catch(() => null);
      if (chargeRead?.value) break;
    }
    return mapAsOf(chargeRead ?? (await readSettlement()), (seen) => seen && chargeOf(order, seen));
  }

  /** Waits until an order has ended, is being refunded or has an unknown outcome, `waitMs` at most (real ms). */
  async waitForOutcome(order: Order, waitMs: number): Promise<Order> {
    const isDecided = () => isEnded(order) || UNKNOWN_STATES.has(order.state) || order.state.startsWith("refund");
    const deadline = systemClock.monotonic() + waitMs;
    while (!isDecided() && systemClock.monotonic() < deadline) {
      await systemClock.sleep(LOOK_INTERVAL_MS);
      // Reads the log, since another replica may be the one that acts on the order.
      if (!isDecided()) await this.deps.orders.catchUp(order.key);
    }
    return order;
  }
}

/** Returns the charge that a transfer under the nonce of the buyer's payment made; null if it did not pay us. */
function chargeOf({ payTo }: Order, { to, tx, amountAtomic, final }: Settlement): Charge | null {
  const micro = to === payTo ? (atomicToMicro(amountAtomic, 6) ?? 0n) : 0n;
  return micro > 0n ? { tx, amount: formatMoney(micro), final } : null;
}

/** Does this claim repeat the request and payment of an order of our own operation that ended without an answer? */
const isRetryOf = (order: Order, claim: Purchase["claim"]): boolean =>
  mayReopen(order) && order.requestSha256 === claim.request_sha256 && order.paymentSha256 === claim.payment_sha256;

const buyerOf = ({ payer, client, scheme, quote, operation }: Purchase["claim"], micro: bigint): BuyerSide => ({
  ...{ payer: payer.toLowerCase(), client: client ?? null, scheme },
  ...{ micro, totalMicro: parseMoney(quote.total), own: operation === "own" },
});

/** Returns the seller of a quote, in the form in which the caps compare it. */
export const sellerOf = ({ payTo, request, cap, lettered, priceMicro: micro }: SellerQuote): SellerSide => ({
  ...{ payTo, url: request.url, cap, lettered, micro },
});
