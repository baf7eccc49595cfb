import { type Clock, systemClock } from "../../infra/clock.ts";
import type { Authorizations, SignedCancel } from "../../infra/rails/authorization.ts";
import { NoWallet } from "../../infra/rails/rails.ts";
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
  /** Cancels signed payments (authorizations) on the chain; without it an order never pays a second seller. */
  authorizations?: Pick<Authorizations, "signCancel" | "submitCancel" | "stateOf">;
  /** Reads what our transactions cost; without it the orders' steps do not state the cost. */
  gas?: GasOf;
  /** Has this payer, or the IP network of its client, caused as many failed transactions today as are allowed? */
  hasWastedTooMuch: (order: Pick<Order, "payer" | "client">) => boolean;
  clock: Clock;
  logger: Pick<Logger, "error" | "warn">;
}

/** Pauses (real ms) between reads of the chain until a cancellation that was sent is found. */
const CANCEL_POLL_MS = [0, 50, 200, 500, 1_000, 2_000, 4_000, 4_000] as const;
/**
 * Least remaining validity of a payment that is cancelled, chain seconds. Cancelling a payment that expires sooner
 * would not be worth the gas.
 */
const MIN_VALIDITY_TO_CANCEL_S = 10;
/**
 * Largest number of orders for which this process remembers that it has decided about a cancellation, so that it
 * cancels no payment twice. Beyond this number all are forgotten; a second cancellation would only cost gas.
 */
const MAX_DECIDED = 10_000;

/**
 * Cancels payments to sellers whose answer did not pass and that have not taken the money yet. Such a seller has a
 * signed authorization: until the token's contract refuses it, we can neither count the amount as spent nor spend it
 * elsewhere (orders.md).
 */
export class Cancelling {
  /** Ended orders whose last payment to a seller this process is cancelling, by id. */
  readonly #ordersBeingCancelled = new Set<string>();
  /** Orders for which this process has decided whether to cancel the last payment, by id. */
  readonly #decidedOrders = new Set<string>();

  /**
   * Returns whether one more payment may be cancelled for this payer. A process that sells calls sets a function with
   * its own limit; in other processes only the daily limit applies ({@link CancellingDeps.hasWastedTooMuch}).
   */
  mayCancel: (payer: string) => boolean = () => true;

  constructor(private readonly deps: CancellingDeps) {}

  isActing(order: Order): boolean {
    return this.#ordersBeingCancelled.has(order.id);
  }

  /**
   * Cancels the payment of the newest leg (payment to a seller) by EIP-3009's cancelAuthorization, and writes the step
   * that follows from what the chain shows. Another seller may be paid only once the token's contract refuses the
   * authorization that this seller has. A cancellation is not announced in the log before it is sent: it moves no
   * money, and the contract refuses a second one.
   * @returns true when the cancellation is final; false otherwise, also when the wallet that paid cannot be used, or
   * its outside signer does not sign
   */
  async cancelPayment(order: Order): Promise<boolean> {
    const { orders, logger } = this.deps;
    const authorizations = this.deps.authorizations!;
    const lastLeg = order.legs.at(-1)!;
    const { leg, wallet: from, nonce, sinceBlock } = lastLeg;
    const cancel = await this.#signCancel(lastLeg).catch((error: unknown) => {
      if (!(error instanceof NoWallet)) throw error;
      logger.warn({ err: error, order: order.id, leg }, "the cancellation of a payment could not be signed");
      return null;
    });
    if (!cancel) return false;
    const result = await authorizations.submitCancel(cancel);
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

  /**
   * Signs the cancellation of a leg's payment; null if we pay from another wallet now.
   * @throws NoWallet
   */
  async #signCancel({ wallet: from, nonce }: Leg): Promise<SignedCancel | null> {
    const wallet = await this.deps.seller.float();
    if (wallet.address.toLowerCase() !== from.toLowerCase()) return null;
    return this.deps.authorizations!.signCancel(wallet, nonce);
  }

  /** Has the order ended without an answer that passed, while the last seller may still take the money? */
  #isPaymentOpen(order: Order): boolean {
    const leg = order.legs.at(-1);
    return isEnded(order) && leg?.checked?.pass === false && leg.fate === "unknown";
  }

  /**
   * Cancels the last payment of an order whose answer did not pass, since nothing is bought from that seller until it
   * can no longer take the money. The buyer does not wait for this. If this process stops,
   * another one does it by {@link cancelAbandoned}.
   * @param mayCancel called once, before the cancellation is sent; returns whether it may be sent (default: {@link
   * mayCancel} for the order's payer)
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
   * Cancels the last payment of an order whose replica (selling process) stopped before cancelling it. Each process
   * tries this once for an order. The order is not taken over first, since the payment would expire before that is
   * allowed. The step that reports the cancellation is appended by the order's own replica or by the one that takes
   * the order over later.
   * @param abandonedAfterMs time without a step after which the order counts as abandoned, ms of the log's clock
   * @throws ChainDown
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
   * Marks an order as decided.
   * @returns false if it was decided before, or if its buyer has reached the daily limit of failed transactions
   */
  #markDecided(order: Order): boolean {
    const { id } = order;
    if (!this.deps.authorizations || this.#decidedOrders.has(id) || this.deps.hasWastedTooMuch(order)) return false;
    if (this.#decidedOrders.size >= MAX_DECIDED) this.#decidedOrders.clear();
    this.#decidedOrders.add(id);
    return true;
  }

  /**
   * Returns the transaction that cancelled this payment, once that transaction is final; null before.
   * @throws ChainDown
   */
  async cancellationTx({ wallet: from, nonce, sinceBlock }: Leg): Promise<string | null> {
    const stateRead = await this.deps.authorizations?.stateOf({ from, nonce, sinceBlock });
    const authorization = stateRead?.value;
    return authorization?.state === "cancelled" && authorization.final ? authorization.tx : null;
  }
}
