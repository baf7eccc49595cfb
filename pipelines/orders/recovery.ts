import { systemClock } from "../../infra/clock.ts";
import { forEachSettled, repeatWork } from "../../infra/concurrency.ts";
import { Failure } from "../../infra/errors.ts";
import type { Authorizations, SignedTransfer } from "../../infra/rails/authorization.ts";
import { completeUpTo, isFinallyExpired, type Rail, type Settlement, type Wallet } from "../../infra/rails/rails.ts";
import type { Logger, Metrics } from "../../infra/telemetry.ts";
import { atomicToMicro, formatMoney, parseMoney } from "../record/money.ts";
import type { Buying } from "./buying.ts";
import { createReleaseStep, type Holding, waitsForEscrow } from "./holding.ts";
import { callToRecord, isClosed, isEnded, type Leg, type Order } from "./order.ts";
import { OrderLost } from "./order-log.ts";
import type { Repayment } from "./order-table.ts";
import type { PublishingCalls } from "./publishing-calls.ts";

export interface RecoveryDeps {
  buying: Buying;
  holding: Holding;
  rail: Pick<Rail, "balance" | "head" | "settlementOf" | "transfers">;
  /** Signs and submits refunds to buyers. */
  authorizations: Pick<Authorizations, "signTransfer" | "submitTransfer">;
  /** Returns our wallet that buyers pay, and from which refunds are sent. */
  till(): Promise<Wallet>;
  /** Writes bought calls into the public record. */
  publishing: Pick<PublishingCalls, "record">;
  logger: Pick<Logger, "warn" | "error">;
  metrics: Pick<Metrics, "count" | "gauge">;
}

/**
 * Time without a step, ms, after which another replica (selling process) may cancel the last payment of an ended
 * order. The order's own replica, if it is alive, cancels the payment sooner.
 */
const ABANDONED_AFTER_MS = 20_000;
/** Largest number of cancellations in progress at the same time. On a slow chain each takes half a minute. */
const CANCELS_AT_ONCE = 4;
/**
 * Chain seconds after an authorization's expiry for which we wait, since a node that lags may not yet report a
 * Transfer from before the expiry.
 */
const NODE_DELAY_S = 60;

/** Validity of a signed refund, seconds. A refund that is in no block by its expiry is signed anew. */
const REFUND_VALID_S = 600;

/**
 * States of orders that ended without a charge, while a facilitator may still have the buyer's authorization and
 * submit it.
 */
const AUTHORIZED_STATES: ReadonlySet<Order["state"]> = new Set(["rejected", "released", "written_off"]);

const hasNotPassed = (order: Order): boolean => order.legs.at(-1)?.checked?.pass !== true;

/**
 * A kind of orders that recovery checks equally often. A look is one check of one order; a turn checks the orders
 * that are due.
 */
interface OrderKind {
  includes(order: Order): boolean;
  /**
   * Pause between two looks at one order, ms. It is doubled for each look that failed since the last successful one,
   * up to {@link MAX_PAUSE_MS}.
   */
  everyMs: number;
  /** Largest number of orders that are checked at the same time. */
  atOnce: number;
  /**
   * Largest number of orders that are checked in one turn. If more are due, those that have been due longest come
   * first.
   */
  perTurn: number;
}

/**
 * An order belongs to the first kind that includes it. Orders whose charge may bring us money are checked most often.
 */
const KINDS: readonly OrderKind[] = [
  {
    includes: (order) => order.state === "settle_intent" || order.state === "settle_unknown" || waitsForEscrow(order),
    ...{ everyMs: 5_000, atOnce: 8, perTurn: 200 },
  },
  { includes: ({ state }) => state.startsWith("refund"), everyMs: 10_000, atOnce: 2, perTurn: 50 },
  { includes: (order) => !isEnded(order) || !order.final, everyMs: 5_000, atOnce: 8, perTurn: 200 },
  { includes: () => true, everyMs: 15_000, atOnce: 4, perTurn: 100 },
];
const MAX_PAUSE_MS = 300_000;

/**
 * When an order is checked next (ms of the monotonic clock), and how many checks have failed since the last
 * successful one.
 */
interface NextLook {
  at: number;
  failures: number;
}

/**
 * Was the last charge refused although the payer held enough? Then the refusal may be the facilitator's own trouble,
 * such as a nonce of its wallet that was used twice, and the next attempt may succeed.
 */
const wasRefusedThoughCovered = ({ state, refusedAt, quote }: Order): boolean =>
  state === "settle_unknown" && refusedAt !== null && parseMoney(refusedAt) >= parseMoney(quote.total);

/** Largest number of transactions that are sent to charge one order, since we may pay the gas of each. */
const MAX_CHARGE_TXS = 3;
/**
 * Largest number of losses (payments to sellers whose answer failed) for which one round reads from the chain whether
 * the seller sent the money back.
 */
const LOSSES_PER_ROUND = 20;

/**
 * Brings every order (a call that a buyer buys through us) to its end, whichever replica (selling process) began it
 * (orders.md, Recovery), at the start of a process and then periodically. Recovery reads the chain before it acts,
 * never signs a second payment to a seller, and never blames a seller for our own crash. Each order has its own time
 * for the next look, so an order that fails delays no other order.
 */
export class Recovery {
  readonly #nextLooks = new Map<string, NextLook>();
  /** Kinds of orders that a turn is checking at the moment. */
  readonly #kindsUnderWay = new Set<OrderKind>();
  /** For each order that is being checked, by its id, the promise that resolves when the check has ended. */
  readonly #looking = new Map<string, Promise<void>>();
  /**
   * For each loss, by order id and leg number, the block at which the next search for a repayment begins. The loss
   * that was checked longest ago comes first.
   */
  readonly #nextBlocks = new Map<string, number>();
  #cancelling: Promise<void> | null = null;
  #isStopped = false;
  #hasReportedLeftOut = false;

  constructor(private readonly deps: RecoveryDeps) {}

  /** Checks every order that is not closed, also those whose next look is not due yet. */
  async look(): Promise<void> {
    await this.#catchUp();
    await Promise.all(KINDS.map((kind) => this.#lookAtKind(kind, true)));
  }

  /**
   * Checks the orders that are due. A kind of orders that an earlier turn is still checking is skipped.
   * @param pace factor of the pauses in {@link KINDS}
   */
  async turn(pace = 1): Promise<void> {
    await this.#catchUp();
    const idleKinds = KINDS.filter((kind) => !this.#kindsUnderWay.has(kind));
    await Promise.all(idleKinds.map((kind) => this.#lookAtKind(kind, false, pace)));
  }

  /**
   * Reads new steps, and starts the cancellations of payments to sellers without waiting for other work: such a
   * payment is valid for 90 s only, so its cancellation would soon be too late.
   */
  async #catchUp(): Promise<void> {
    const { orders } = this.deps.buying;
    await orders.catchUp();
    this.#reportLeftOut();
    const openOrders = this.#openOrders();
    if (openOrders.length === 0) return;
    this.#cancelling ??= this.#cancelAbandoned(openOrders).finally(() => {
      this.#cancelling = null;
    });
  }

  /** Reports once how many orders are left alone because they are in other money than calls are sold for. */
  #reportLeftOut(): void {
    if (this.#hasReportedLeftOut) return;
    this.#hasReportedLeftOut = true;
    const { buying, logger, metrics } = this.deps;
    const leftOut = buying.orders.table.countLeftOut();
    metrics.gauge("touchstone_orders_left_out", leftOut);
    if (leftOut > 0)
      logger.warn(
        { orders: leftOut },
        "orders on another network or in another token than sell.network and sell.asset name are left as they are",
      );
  }

  #openOrders(): Order[] {
    const { buying } = this.deps;
    return buying.orders.table.open().filter((order) => !buying.isActing(order));
  }

  async #lookAtKind(kind: OrderKind, includesNotDue: boolean, pace = 1): Promise<void> {
    const now = systemClock.monotonic();
    const dueAt = ({ id }: Order): number => this.#nextLooks.get(id)?.at ?? 0;
    const ordersOfKind = this.#openOrders().filter((order) => KINDS.find(({ includes }) => includes(order)) === kind);
    const isDue = (order: Order): boolean => dueAt(order) <= now && !this.#looking.has(order.id);
    const dueOrders = includesNotDue ? ordersOfKind : ordersOfKind.filter(isDue).sort((a, b) => dueAt(a) - dueAt(b));
    if (!includesNotDue) this.#kindsUnderWay.add(kind);
    await forEachSettled(includesNotDue ? dueOrders : dueOrders.slice(0, kind.perTurn), kind.atOnce, async (order) => {
      while (this.#looking.has(order.id)) await this.#looking.get(order.id);
      const look = this.#lookAt(order, kind.everyMs * pace).finally(() => this.#looking.delete(order.id));
      this.#looking.set(order.id, look);
      await look;
    });
    if (!includesNotDue) this.#kindsUnderWay.delete(kind);
  }

  /** Continues one order and sets the time of its next look. Never rejects. */
  async #lookAt(order: Order, everyMs: number): Promise<void> {
    const { buying, logger, metrics } = this.deps;
    if (this.#isStopped || buying.isActing(order)) return;
    let failures = 0;
    try {
      await this.#continueOrder(order);
    } catch (error) {
      if (!(error instanceof OrderLost)) {
        failures = (this.#nextLooks.get(order.id)?.failures ?? 0) + 1;
        logger.warn({ err: error, order: order.id }, "an order could not be brought on; it is looked at again");
        metrics.count("touchstone_orders_recovery_failures_total");
      }
    }
    const at = systemClock.monotonic() + Math.min(everyMs * 2 ** failures, MAX_PAUSE_MS);
    if (isClosed(order)) this.#nextLooks.delete(order.id);
    else this.#nextLooks.set(order.id, { at, failures });
  }

  /** Starts nothing more; resolves when the running cancellations have ended. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    await this.#cancelling;
  }

  /** Cancels the last payments to sellers of abandoned orders, {@link CANCELS_AT_ONCE} at a time. Never rejects. */
  async #cancelAbandoned(orders: readonly Order[]): Promise<void> {
    const { buying, logger } = this.deps;
    const abandonedAfterMs = Math.min(ABANDONED_AFTER_MS, buying.orders.staleMs);
    await forEachSettled(orders, CANCELS_AT_ONCE, async (order) => {
      if (this.#isStopped) return;
      await buying.cancelling.cancelAbandoned(order, abandonedAfterMs).catch((error: unknown) => {
        logger.warn({ err: error, order: order.id }, "a payment that was left could not be cancelled");
      });
    });
  }

  async #continueOrder(order: Order): Promise<void> {
    if (!(await this.#isOursOrAdopted(order))) return;
    const isInEscrow = waitsForEscrow(order);
    if (isInEscrow) await this.deps.holding.continueOrder(order);
    else await this.#continueExact(order);
    await this.#resolveFates(order);
    if (callToRecord(order)) await this.deps.publishing.record(order);
  }

  /**
   * Returns whether this process may act on the order: true for its own orders, and for an order that another replica
   * has abandoned, once this process has taken it over ({@link OrderLog.adopt}).
   */
  async #isOursOrAdopted(order: Order): Promise<boolean> {
    const { orders } = this.deps.buying;
    if (order.by === orders.replica) return true;
    if (!orders.looksAbandoned(order) || !(await orders.adopt(order))) return false;
    this.deps.metrics.count("touchstone_orders_adopted_total");
    return true;
  }

  async #continueExact(order: Order): Promise<void> {
    const { orders } = this.deps.buying;
    switch (order.state) {
      case "claimed":
        return orders.step(order, { state: "rejected", says: "We stopped before anything was bought." });
      case "verified":
        return orders.step(order, { state: "released", says: "We stopped before it was begun." });
      case "seller_intent":
        // The answer was lost with the replica that paid: our fault, which does not count against the seller.
        return this.#endLostAnswer(order);
      case "worked":
        return orders.step(order, { state: "settle_intent" });
      case "seller_result":
      case "seller_unknown":
      case "checked":
        return this.#finishCheck(order);
      case "settle_intent":
      case "settle_unknown":
        return this.#collectCharge(order);
      case "settled":
        return order.final ? undefined : this.#confirmCharge(order);
      case "refund_due":
      case "refund_intent":
      case "refund_unknown":
        return this.#refund(order);
      default:
        return this.#checkExpired(order);
    }
  }

  async #endLostAnswer(order: Order): Promise<void> {
    const { leg } = order.legs.at(-1)!;
    await this.deps.buying.orders.step(
      order,
      { state: "seller_unknown", leg, says: "We stopped before the answer was seen to its end." },
      { state: "checked", leg, pass: false, last: true, fault: "ours" },
      createReleaseStep(order, "We stopped before the answer was seen to its end."),
    );
  }

  async #finishCheck(order: Order): Promise<void> {
    const { orders } = this.deps.buying;
    const leg = order.legs.at(-1)!;
    if (order.state !== "checked") {
      const pass = leg.result?.pass === true;
      const fault = pass || leg.result?.unmet ? null : leg.result ? ("seller" as const) : ("ours" as const);
      await orders.step(order, { state: "checked", leg: leg.leg, pass, last: true, fault });
    }
    if (hasNotPassed(order)) await orders.step(order, createReleaseStep(order, "The answer did not pass."));
    else await orders.step(order, { state: "settle_intent" });
  }

  /**
   * Reads from the chain whether the buyer was charged. If not, sends the buyer's payment again while it is valid;
   * once it has expired, writes the order off.
   * @throws Failure if a facilitator refused the charge, and not because the payer holds too little
   */
  async #collectCharge(order: Order): Promise<void> {
    const { buying } = this.deps;
    const { orders } = buying;
    const chargeRead = await buying.readCharge(order);
    const { value: charge } = chargeRead;
    if (charge?.amount === order.quote.total) return orders.step(order, await buying.createSettledStep(order, charge));
    if (isFinallyExpired(chargeRead, order.validBefore, NODE_DELAY_S)) return this.#writeOffExpired(order);
    if (!(await this.#mayCharge(order))) return;
    if (order.state === "settle_unknown") await orders.step(order, { state: "settle_intent" });
    await buying.settle(order);
    // The look counts as failed, so the pause before the next attempt is twice as long.
    if (wasRefusedThoughCovered(order)) throw new Failure("failed", `the charge was not sent: ${order.says}`);
  }

  /**
   * Writes off an order whose payment has expired. It is our fault if no attempt to charge was sent, refused or met a
   * wallet that held too little, and the payment was never used or cancelled: then its buyer could have paid.
   */
  async #writeOffExpired(order: Order): Promise<void> {
    const { buying } = this.deps;
    let isOurs = !order.failedByPayer && order.sent.length === 0;
    if (isOurs) {
      const nonceRead = await buying.readNonce(order);
      if (!isFinallyExpired(nonceRead, order.validBefore, NODE_DELAY_S)) return;
      isOurs = nonceRead.value.state === "unused";
    }
    const fault = isOurs ? ({ fault: "ours" } as const) : {};
    const says = "The payment could not be collected in time.";
    await buying.orders.step(order, { state: "written_off", says, ...fault });
  }

  /**
   * May another charge be sent? Not after {@link MAX_CHARGE_TXS} transactions, and not while the payer holds too little
   * and its balance is unchanged since the last refusal.
   * @throws ChainDown
   */
  async #mayCharge(order: Order): Promise<boolean> {
    if (order.sent.length >= MAX_CHARGE_TXS) return false;
    if (order.refusedAt === null || wasRefusedThoughCovered(order)) return true;
    return (await this.deps.buying.payerBalance(order)) !== order.refusedAt;
  }

  /**
   * Handles a charge that was in a block but not final. If it is still on the chain, waits until it is final. If its
   * block vanished, charges again, or writes the order off once the payment has expired.
   */
  async #confirmCharge(order: Order): Promise<void> {
    const { buying } = this.deps;
    const chargeRead = await buying.readCharge(order);
    const { value: charge } = chargeRead;
    if (charge?.amount === order.quote.total) {
      if (charge.final) await buying.orders.step(order, await buying.createSettledStep(order, charge));
      return;
    }
    const vanishedReason = "The block that the payment was settled in vanished.";
    if (isFinallyExpired(chargeRead, order.validBefore, NODE_DELAY_S))
      return buying.orders.step(order, { state: "written_off", says: vanishedReason });
    this.deps.metrics.count("touchstone_orders_settlements_vanished_total");
    await buying.orders.step(order, { state: "settle_intent" });
    await buying.settle(order);
  }

  /**
   * For an order that ended without a charge: once the buyer's authorization has expired, checks whether it moved
   * money anyway.
   */
  async #checkExpired(order: Order): Promise<void> {
    // Only we can move money under an authorization for escrow, so nobody else can have used it.
    if (order.scheme !== "exact" || order.expired || !AUTHORIZED_STATES.has(order.state)) return;
    if (!(await this.#isChainPast(order.validBefore + NODE_DELAY_S))) return;
    const { buying } = this.deps;
    const { orders } = buying;
    const chargeRead = await buying.readCharge(order);
    const { value: charge } = chargeRead;
    const isOwedCharge = order.state === "written_off" && charge?.amount === order.quote.total;
    if (charge && !charge.final) return;
    if (charge && isOwedCharge) return orders.step(order, await buying.createSettledStep(order, charge));
    if (charge) return orders.step(order, { state: "refund_due", tx: charge.tx, amount: charge.amount });
    if (isFinallyExpired(chargeRead, order.validBefore, NODE_DELAY_S)) await orders.step(order, { state: "expired" });
  }

  /**
   * Is the newest block later than this time (unix seconds)? Used only to avoid reading the chain too early.
   * @throws ChainDown
   */
  async #isChainPast(time: number): Promise<boolean> {
    return (await this.deps.rail.head()).time > time;
  }

  /**
   * Sends the buyer's money back exactly once. The signed transfer is durable before it is sent, so it can be sent
   * again without paying twice; a new transfer is signed only after the last one has expired.
   * @throws Failure if our wallet holds too little: then nothing is signed, since each transfer stays in the log for
   * ever
   */
  async #refund(order: Order): Promise<void> {
    const { authorizations, rail, buying } = this.deps;
    const { orders } = buying;
    const { refund } = order;
    if (refund && order.state !== "refund_due") {
      const transferRead = await rail.settlementOf({
        from: refund.from,
        nonce: refund.nonce,
        sinceBlock: refund.sinceBlock,
      });
      const { value: settlement } = transferRead;
      if (settlement && !settlement.final) return;
      if (settlement) {
        const { tx } = settlement;
        const gas = await buying.readGas(order, "refund", tx);
        return orders.step(order, { state: "refunded", tx, amount: moneyOf(settlement), ...gas });
      }
      if (order.state === "refund_intent" && isFinallyExpired(transferRead, refund.validBefore, NODE_DELAY_S)) {
        return orders.step(order, { state: "refund_unknown", says: "It did not arrive in time; it is signed anew." });
      }
    }
    if (refund && order.state === "refund_intent") {
      const intent = await orders.read("refund_intent", { partition: order.partition, offset: refund.at });
      await authorizations.submitTransfer(intent.transfer as unknown as SignedTransfer);
      return;
    }
    const { number: blockNumber } = await rail.head();
    const { amount } = order.charged!;
    const wallet = await this.deps.till();
    const amountAtomic = parseMoney(amount);
    const { network, asset } = order;
    const { value: balanceAtomic } = await rail.balance(wallet.address, { network, asset });
    if (balanceAtomic < amountAtomic) throw new Failure("wallet", "the till holds less than a refund that is due");
    const transferTerms = { to: order.payer, amountAtomic, validForSeconds: REFUND_VALID_S };
    const transfer = await authorizations.signTransfer(wallet, transferTerms);
    const { nonce, validBefore } = transfer.authorization;
    await orders.step(order, {
      state: "refund_intent",
      ...{ amount, from: wallet.address.toLowerCase(), transfer: { ...transfer }, nonce },
      ...{ valid_before: Number(validBefore), since_block: blockNumber },
    });
    // The reply is not trusted: the next look reads from the chain whether the refund was sent.
    await authorizations.submitTransfer(transfer);
  }

  /** Finds out for each payment to a seller whether the seller took it. */
  async #resolveFates(order: Order): Promise<void> {
    const { rail, buying } = this.deps;
    for (const leg of order.legs.filter(({ fate }) => fate === "unknown")) {
      // While the call is in progress the seller may take the money at any moment, so the chain is read only after
      // the payment has expired.
      if (order.state === "seller_intent" && !(await this.#isChainPast(leg.validBefore))) continue;
      const transferRead = await rail.settlementOf({ from: leg.wallet, nonce: leg.nonce, sinceBlock: leg.sinceBlock });
      const { value: settlement } = transferRead;
      if (settlement && !settlement.final) continue;
      if (settlement)
        await buying.orders.step(order, {
          state: "leg_paid",
          leg: leg.leg,
          tx: settlement.tx,
          amount: moneyOf(settlement),
        });
      else {
        const tx = isEnded(order) ? await buying.cancelling.cancellationTx(leg) : null;
        if (tx === null && !isFinallyExpired(transferRead, leg.validBefore, NODE_DELAY_S)) continue;
        await buying.orders.step(order, {
          state: "leg_unpaid",
          leg: leg.leg,
          ...(await buying.readGas(order, "cancel", tx)),
        });
      }
    }
  }

  /**
   * Looks for losses (payments for answers that failed) that sellers paid back. A Transfer of at least the price, from
   * the seller's address to the wallet that paid the seller, pays back one loss; one transaction may have several such
   * Transfers. Each call checks the {@link LOSSES_PER_ROUND} losses that were checked longest ago, from the block after
   * the last one that was read for them. Losses that a buyer or we caused are skipped, since no seller sends those
   * back.
   */
  async recoverLosses(): Promise<void> {
    const { orders } = this.deps.buying;
    await orders.catchUp();
    const owedLegs = [...orders.table.owedBySellers()].flatMap((order) =>
      order.legs.filter(isOwed).map((leg) => ({ order, leg, key: `${order.id} ${leg.leg}` })),
    );
    for (const key of this.#nextBlocks.keys())
      if (!owedLegs.some((one) => one.key === key)) this.#nextBlocks.delete(key);
    const positions = new Map([...this.#nextBlocks.keys()].map((key, n) => [key, n + 1]));
    const positionOf = ({ key }: (typeof owedLegs)[number]): number => positions.get(key) ?? 0;
    const nextLosses = owedLegs.sort((a, b) => positionOf(a) - positionOf(b)).slice(0, LOSSES_PER_ROUND);
    for (const { order, leg, key } of nextLosses) {
      if (this.#isStopped || this.deps.buying.isActing(order)) continue;
      await this.#findRepayment(order, leg, key).catch((error: unknown) => {
        if (error instanceof OrderLost) return;
        this.deps.logger.warn({ err: error, order: order.id }, "it is not known whether a loss was made good");
      });
    }
  }

  async #findRepayment(order: Order, leg: Leg, key: string): Promise<void> {
    const { buying, rail } = this.deps;
    const { table } = buying.orders;
    const sinceBlock = this.#nextBlocks.get(key) ?? leg.sinceBlock;
    // Move this loss to the end, even if the search fails, so that all other losses come before it next time.
    this.#nextBlocks.delete(key);
    this.#nextBlocks.set(key, sinceBlock);
    const transfersRead = await rail.transfers({ from: leg.payTo, to: leg.wallet, sinceBlock });
    const { value: transfersBack } = transfersRead;
    const price = parseMoney(leg.price);
    const findUnclaimedRepayment = () => findSmallest(findUnclaimed(transfersBack, table.repayments(), leg), price);
    if (!findUnclaimedRepayment()) {
      this.#nextBlocks.set(key, Math.max(sinceBlock, completeUpTo(transfersRead) + 1));
      return;
    }
    // The order is taken over only when there is a step to write; otherwise replicas would take it over from each other
    // for ever. The search is repeated after that, since taking the order over reads new steps, of which one may have
    // recorded this transfer as the repayment of another loss.
    const repayment = (await this.#isOursOrAdopted(order)) ? findUnclaimedRepayment() : null;
    if (!repayment) return;
    const step = { state: "leg_recovered", leg: leg.leg, tx: repayment.tx, amount: moneyOf(repayment) } as const;
    await buying.orders.step(order, step);
  }
}

/** Has the seller of this leg (payment to a seller) taken our money for an answer that failed, and not sent it back? */
const isOwed = ({ fate, recovered, checked }: Leg): boolean =>
  fate === "paid" && recovered === null && checked?.pass === false && checked.fault === "seller";

/**
 * Returns the final transfers from a leg's seller to the wallet that paid it, without those that are recorded as
 * repayments of losses. Each recorded repayment takes out one transfer with its transaction and amount.
 */
function findUnclaimed(
  transfers: readonly Settlement[],
  repayments: Iterable<Repayment>,
  { payTo, wallet }: Pick<Leg, "payTo" | "wallet">,
): Settlement[] {
  const unclaimed = transfers.filter((one) => one.final);
  for (const { tx, amount, from, to } of unclaimed.length === 0 ? [] : repayments) {
    if (from !== payTo || to !== wallet) continue;
    const claimed = unclaimed.findIndex((one) => one.tx === tx && moneyOf(one) === amount);
    if (claimed >= 0) unclaimed.splice(claimed, 1);
  }
  return unclaimed;
}

/**
 * Returns the smallest of the transfers whose amount is at least `leastMicro` micro-units; undefined if there is none.
 */
function findSmallest(transfers: readonly Settlement[], leastMicro: bigint): Settlement | undefined {
  const microOf = ({ amountAtomic }: Settlement): bigint => atomicToMicro(amountAtomic, 6) ?? 0n;
  return transfers
    .filter((one) => microOf(one) >= leastMicro)
    .reduce<Settlement | undefined>((best, one) => (best && microOf(best) <= microOf(one) ? best : one), undefined);
}

const moneyOf = ({ amountAtomic }: Settlement): string => formatMoney(atomicToMicro(amountAtomic, 6) ?? 0n);

export interface RunningRecovery {
  /** Checks every open order now. */
  look(): Promise<void>;
  /** Registers a function that is called after each turn, with null or with the error that the turn threw. */
  watch(onTurnEnd: (error: unknown) => void): void;
  stop(): Promise<void>;
}

/** Pauses between two turns, and between two searches for repaid losses. */
const TURN_INTERVAL_MS = 1_000;
const LOSSES_INTERVAL_MS = 300_000;
/**
 * Largest number of turns in progress at the same time: for each kind of orders one turn may be checking it, and one
 * more may begin.
 */
const MAX_TURNS = KINDS.length + 1;

/** Runs turns of recovery, in real time, until stopped; a turn that fails is logged, and the next one tries again. */
export function startRecovery(
  recovery: Recovery,
  logger: Pick<Logger, "warn">,
  turnIntervalMs = TURN_INTERVAL_MS,
): RunningRecovery {
  const logFailures = (work: () => Promise<void>) => () =>
    work().catch((error: unknown) => logger.warn({ err: error }, "orders could not be looked at; it is tried again"));
  // Turns overlap, so that slow checks of one kind of orders do not delay the charges of another kind.
  const turns = new Set<Promise<void>>();
  let onTurnEnd: (error: unknown) => void = () => undefined;
  const runTurn = async () => {
    await recovery.turn(turnIntervalMs / TURN_INTERVAL_MS).catch((error: unknown) => {
      onTurnEnd(error);
      throw error;
    });
    onTurnEnd(null);
  };
  const beginTurn = async () => {
    if (turns.size >= MAX_TURNS) return;
    const turn = logFailures(runTurn)().finally(() => turns.delete(turn));
    turns.add(turn);
  };
  const lookAtLosses = logFailures(() => recovery.recoverLosses());
  const running = [
    repeatWork(beginTurn, turnIntervalMs, systemClock),
    repeatWork(lookAtLosses, LOSSES_INTERVAL_MS, systemClock),
  ];
  return {
    look: logFailures(() => recovery.look()),
    watch: (callback) => {
      onTurnEnd = callback;
    },
    async stop() {
      await Promise.all([...running.map((one) => one.stop()), recovery.stop()]);
      await Promise.all(turns);
    },
  };
}
