import { type Clock, systemClock } from "../../infra/clock.ts";
import type { Authorizations } from "../../infra/rails/authorization.ts";
import { ChainDown } from "../../infra/rails/rpc.ts";
import type { Logger } from "../../infra/telemetry.ts";
import { atomicToMicro, formatMoney } from "../record/money.ts";
import type { GasOf } from "./gas.ts";
import { describeOutcome } from "./holding.ts";
import { isEnded, type Leg, type Order } from "./order.ts";
import type { OrderLog } from "./order-log.ts";
import type { SellerTools } from "./seller.ts";

export interface CancellingDeps {
  orders: OrderLog;
  seller: SellerTools;
  /** Cancels authorizations on the chain; without it an order never pays a second seller. */
  authorizations?: Pick<Authorizations, "signCancel" | "submitCancel" | "stateOf">;
  /** Reads what our transactions cost; without it the steps do not name it. */
  gas?: GasOf;
  /** Has this payer, or its client network, caused the day's limit of failed transactions? */
  hasWastedTooMuch: (order: Pick<Order, "payer" | "client">) => boolean;
  clock: Clock;
  logger: Pick<Logger, "error" | "warn">;
}

/** Pauses (real ms) between looks at the chain for a cancellation that was sent. */
const CANCEL_POLL_MS = [0, 50, 200, 500, 1_000, 2_000, 4_000, 4_000] as const;
/**
 * A payment that expires sooner than this (chain seconds) is not cancelled: the cancellation would not be worth its
 * gas.
 */
const MIN_VALIDITY_TO_CANCEL_S = 10;
/** Most orders that are remembered as decided, so that none is cancelled twice. */
const MAX_DECIDED = 10_000;

/**
 * Cancels payments to sellers whose answer did not pass and that have not taken the money yet. Such a seller holds a signed
 * authorization: until the token refuses it, we can neither count the amount as spent nor spend it elsewhere (orders.md).
 */
export class Cancelling {
  /** Ended orders whose last payment this process is cancelling. */
  readonly #ordersBeingCancelled = new Set<string>();
  /** Orders for which this process has decided whether to cancel their last payment. */
  readonly #decidedOrders = new Set<string>();

  /**
   * May one more payment be cancelled for this payer? A process that sells calls sets its own limit here; in other
   * processes only the limit of a day applies ({@link CancellingDeps.hasWastedTooMuch}).
   */
  mayCancel: (payer: string) => boolean = () => true;

  constructor(private readonly deps: CancellingDeps) {}

  isActing(order: Order): boolean {
    return this.#ordersBeingCancelled.has(order.id);
  }

  /**
   * Cancels the payment of the newest leg (EIP-3009, cancelAuthorization) and writes the step that follows from the
   * chain. Another seller may be paid only once the token refuses the authorization that this seller holds. A
   * cancellation needs no durable intent of its own: it moves no money, and the token refuses a second cancellation.
   * @returns true when the money is finally ours again
   */
  async cancelPayment(order: Order): Promise<boolean> {
    const { orders, seller, logger } = this.deps;
    const authorizations = this.deps.authorizations!;
    const { leg, wallet: from, nonce, sinceBlock } = order.legs.at(-1)!;
    const wallet = await seller.float();
    if (wallet.address.toLowerCase() !== from.toLowerCase()) return false;
    const result = await authorizations.submitCancel(await authorizations.signCancel(wallet, nonce));
    if (order.by !== orders.replica) return false;
    for (const pause of CANCEL_POLL_MS) {
      if (pause > 0) await systemClock.sleep(pause);
      const stateRead = await authorizations.stateOf({ from, nonce, sinceBlock }).catch((error: unknown) => {
        if (!(error instanceof ChainDown)) throw error;
        return null;
      });
      const authorization = stateRead?.value;
      if (authorization?.state === "used") {
        if (!authorization.settlement.final) return false;
        const amount = formatMoney(atomicToMicro(authorization.settlement.amountAtomic, 6) ?? 0n);
        await orders.step(order, { state: "leg_paid", leg, tx: authorization.settlement.tx, amount });
        return false;
      }
      if (authorization?.state === "cancelled" && authorization.final) {
        await orders.step(order, {
          state: "leg_unpaid",
          leg,
          ...(await this.deps.gas?.(order, "cancel", authorization.tx)),
        });
        return true;
      }
    }
    logger.warn(
      { order: order.id, leg, result: describeOutcome(result) },
      "a payment could not be made unusable in time",
    );
    return false;
  }

  /** Has the order ended without an answer that passed, while its seller may still take the money? */
  #isPaymentOpen(order: Order): boolean {
    const leg = order.legs.at(-1);
    return isEnded(order) && leg?.checked?.pass === false && leg.fate === "unknown";
  }

  /**
   * Cancels the last payment of an order whose answer did not pass: nothing is bought from that seller's address until
   * it can no longer take the money. The buyer does not wait for this; if this process stops, {@link cancelAbandoned}
   * of another one continues.
   * @param mayCancel called once, before the cancellation: may it be sent? (default: {@link mayCancel} for the order's
   * payer)
   */
  cancelAfterEnd(order: Order, mayCancel = () => this.mayCancel(order.payer)): void {
    if (!this.#isPaymentOpen(order) || !this.#markDecided(order)) return;
    if (mayCancel()) void this.#cancelAndLog(order);
  }

  async #cancelAndLog(order: Order): Promise<void> {
    this.#ordersBeingCancelled.add(order.id);
    try {
      await this.cancelPayment(order);
    } catch (error) {
      this.deps.logger.warn({ err: error, order: order.id }, "a payment could not be cancelled");
    } finally {
      this.#ordersBeingCancelled.delete(order.id);
    }
  }

  /**
   * Cancels the last payment of an order whose replica stopped before cancelling it; each process tries this once per
   * order. The order is not taken over, since the payment would have expired by then: its own replica, or the replica
   * that takes it over later, appends the step.
   * @param abandonedAfterMs ms of the log's time without a step after which the order counts as abandoned @throws
   * ChainDown
   */
  async cancelAbandoned(order: Order, abandonedAfterMs: number): Promise<void> {
    const isAbandoned = this.deps.orders.looksAbandoned(order, abandonedAfterMs);
    if (!this.deps.authorizations || !this.#isPaymentOpen(order) || !isAbandoned || this.#decidedOrders.has(order.id))
      return;
    const { time } = await this.deps.seller.rail.head();
    if (order.legs.at(-1)!.validBefore < time + MIN_VALIDITY_TO_CANCEL_S) return;
    if (this.#isPaymentOpen(order) && this.#markDecided(order) && this.mayCancel(order.payer))
      await this.#cancelAndLog(order);
  }

  /**
   * Marks an order as decided. @returns false if it was decided before, or if its buyer has reached the day's limit
   */
  #markDecided(order: Order): boolean {
    const { id } = order;
    if (!this.deps.authorizations || this.#decidedOrders.has(id) || this.deps.hasWastedTooMuch(order)) return false;
    if (this.#decidedOrders.size >= MAX_DECIDED) this.#decidedOrders.clear();
    this.#decidedOrders.add(id);
    return true;
  }

  /** Returns the transaction that cancelled this payment, once it is final; null before. @throws ChainDown */
  async cancellationTx({ wallet: from, nonce, sinceBlock }: Leg): Promise<string | null> {
    const stateRead = await this.deps.authorizations?.stateOf({ from, nonce, sinceBlock });
    const authorization = stateRead?.value;
    return authorization?.state === "cancelled" && authorization.final ? authorization.tx : null;
  }
}
