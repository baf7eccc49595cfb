import type { PaymentRequirements } from "@x402/core/types";
import { systemClock } from "../../infra/clock.ts";
import type { Escrow, HoldState } from "../../infra/rails/escrow.ts";
import { type Hold, holdOf } from "../../infra/rails/escrow-terms.ts";
import { type AsOf, isFinallyExpired, type Rail } from "../../infra/rails/rails.ts";
import type { Outcome } from "../../infra/rails/sender.ts";
import type { Confirmations } from "../../infra/rails/settlement.ts";
import type { Logger, Metrics } from "../../infra/telemetry.ts";
import { atomicToMicro, formatMoney } from "../record/money.ts";
import type { Gas } from "../record/order-step.ts";
import type { GasOf } from "./gas.ts";
import type { Order } from "./order.ts";
import type { NewStep, OrderLog } from "./order-log.ts";

export interface HoldingDeps {
  orders: OrderLog;
  escrow: Pick<Escrow, "authorize" | "capture" | "void" | "state">;
  rail: Pick<Rail, "head">;
  /** How many blocks deep an event on the chain has to be to count as final; 1: as soon as it is in a block. */
  confirmations: Confirmations;
  logger: Pick<Logger, "warn">;
  metrics: Pick<Metrics, "count">;
  /** Reads what our transactions cost; without it the orders' steps do not state the cost. */
  gas?: GasOf;
  /** Pauses (real ms) between reads of the chain until a transaction that was sent is found. */
  pollMs?: readonly number[];
}

/** A capture is not sent in the last 60 s (chain time) before its deadline, since it could enter a block too late. */
const CAPTURE_MARGIN_S = 60;
/**
 * Chain seconds after a deadline for which we wait, since a node that lags may not yet report an event from before
 * it.
 */
const NODE_DELAY_S = 60;
const POLL_MS = [0, 50, 200, 500, 1_000, 2_000, 4_000, 8_000] as const;

/**
 * For each step, the purpose of the transaction that it reports. `refund_due` is absent, since we did not send the
 * charge that it reports.
 */
const GAS_KINDS: Partial<Record<NewStep["state"], Gas["kind"]>> = {
  ...({ held: "hold", hold_failed: "hold", hold_unknown: "hold" } as const),
  ...({ settled: "capture", settle_unknown: "capture", voided: "void", void_unknown: "void" } as const),
};

const HOLDING_STATES: ReadonlySet<Order["state"]> = new Set([
  ...(["hold_intent", "hold_unknown", "held", "void_intent", "void_unknown"] as const),
  ...(["settle_intent", "settle_unknown"] as const),
]);

/** Does this order wait for an event of the escrow contract, or until one is final? */
export const waitsForEscrow = ({ scheme, state, final }: Order): boolean =>
  scheme === "auth-capture" && (HOLDING_STATES.has(state) || !final);

/**
 * Makes the next step of an order whose buyer owes nothing: `void_intent`, which announces the return of money in
 * escrow, or `released`, if no money is in escrow.
 */
export const createReleaseStep = ({ scheme, state }: Order, says: string): NewStep<"released" | "void_intent"> =>
  scheme === "auth-capture" && state !== "verified" ? { state: "void_intent", says } : { state: "released", says };

/** A buyer's payment to us, as read from the chain. `amount`: dollars as decimal text. */
export interface Charge {
  tx: string;
  amount: string;
  /** True when the payment's block is deep enough not to vanish from the chain. */
  final: boolean;
}

/**
 * Makes the `settled` step of a charge that was read from the chain. Since the buyer waits for the answer, a charge
 * counts as soon as it is in a block; recovery reads the chain again until the charge is final.
 */
export const createSettledStep = ({ final, ...charge }: Charge): NewStep<"settled"> => ({
  state: "settled",
  ...charge,
  ...(final ? {} : { final }),
});

const moneyOf = (amountAtomic: bigint): string => formatMoney(atomicToMicro(amountAtomic, 6) ?? 0n);

/** Describes, in words for a step of an order, what happened to a transaction that was not found on the chain. */
export function describeOutcome(result: Outcome): string {
  if (result.outcome === "sent") return `${result.tx} is not on the chain yet`;
  return result.outcome === "refused"
    ? `refused: ${result.reason}`.slice(0, 2000)
    : `unknown: ${result.says}`.slice(0, 2000);
}

/** Is it certain that the hold can no longer be placed, since its deadline is past? */
const isTooLateToHold = (stateRead: AsOf<HoldState>, hold: Hold): boolean =>
  isFinallyExpired(stateRead, hold.validBefore, NODE_DELAY_S);

/** Is it certain that the hold can no longer be captured, since the deadline is past? */
const isTooLateToCapture = (stateRead: AsOf<HoldState>, hold: Hold): boolean =>
  isFinallyExpired(stateRead, hold.captureDeadline, NODE_DELAY_S);

/**
 * Returns the next step of an order whose hold (transfer of the buyer's money into escrow) was sent; null while the
 * outcome is unknown. Only a final hold counts, since the seller is paid because of it.
 */
function stepAfterHold(stateRead: AsOf<HoldState>, hold: Hold): NewStep | null {
  const { value: holdState } = stateRead;
  switch (holdState.state) {
    case "held":
      return holdState.final ? { state: "held", tx: holdState.tx, capture_deadline: hold.captureDeadline } : null;
    case "none":
      return isTooLateToHold(stateRead, hold) ? { state: "hold_failed", says: "It was not placed in time." } : null;
    case "captured":
      return holdState.final
        ? { state: "refund_due", tx: holdState.tx, amount: moneyOf(holdState.amountAtomic) }
        : null;
    default:
      return holdState.final ? { state: "hold_failed", says: "It was held, and is back with its buyer." } : null;
  }
}

/**
 * Returns the next step of an order whose capture (payment from escrow to us) was sent; null while the outcome is
 * unknown.
 */
function stepAfterCapture(stateRead: AsOf<HoldState>, hold: Hold): NewStep | null {
  const { value: holdState } = stateRead;
  switch (holdState.state) {
    case "captured":
      return createSettledStep({ tx: holdState.tx, amount: moneyOf(holdState.amountAtomic), final: holdState.final });
    case "reclaimed":
      return holdState.final
        ? { state: "reclaimable", says: "It was not captured in time, and its buyer took it back." }
        : null;
    case "voided":
      return holdState.final ? { state: "written_off", says: "The hold was given back." } : null;
    case "held":
      return isTooLateToCapture(stateRead, hold)
        ? { state: "reclaimable", says: "It was not captured in time." }
        : null;
    default:
      return isTooLateToHold(stateRead, hold)
        ? { state: "written_off", says: "The hold vanished from the chain." }
        : null;
  }
}

/**
 * Returns the next step of an order whose void (return of the money in escrow to the buyer) was sent; null while the
 * outcome is unknown.
 */
function stepAfterVoid(stateRead: AsOf<HoldState>, hold: Hold, reason: string): NewStep | null {
  const { value: holdState } = stateRead;
  switch (holdState.state) {
    case "voided":
      return { state: "voided", tx: holdState.tx, says: reason, ...(holdState.final ? {} : { final: false }) };
    case "reclaimed":
      return holdState.final ? { state: "reclaimable", says: `${reason} Its buyer took the money back.` } : null;
    case "captured":
      return holdState.final
        ? { state: "refund_due", tx: holdState.tx, amount: moneyOf(holdState.amountAtomic) }
        : null;
    case "held":
      return isTooLateToCapture(stateRead, hold)
        ? { state: "reclaimable", says: `${reason} It could not be given back in time.` }
        : null;
    default:
      return isTooLateToHold(stateRead, hold)
        ? { state: "hold_failed", says: "The hold vanished from the chain." }
        : null;
  }
}

export const ANSWER_LOST = "What the seller answered was lost on our side.";

/** Returns why the buyer of an order gets its money back, in words. */
function refundReasonOf({ legs }: Order): string {
  const lastLeg = legs.at(-1);
  if (!lastLeg) return "The seller was not called.";
  return lastLeg.checked?.fault === "ours" ? ANSWER_LOST : "The answer did not pass.";
}

/**
 * Acts on orders whose buyer pays into escrow (orders.md, States): the buyer's money is held in the escrow contract
 * before the seller is paid, captured (paid to us) once the answer passed, and given back otherwise. Each of these
 * transactions is sent after the step that announces it is durable in the log, and may be repeated. The reply to a
 * transaction is not trusted: the next step follows from the hold's state, as read from the chain.
 */
export class Holding {
  constructor(private readonly deps: HoldingDeps) {}

  /**
   * Transfers the buyer's money of a new order into escrow. If the chain cannot be reached, the order's state becomes
   * `hold_unknown`, and no error is thrown.
   * @returns true when the money is held, so that the seller may be paid
   * @throws OrderLost, StepNotSeen
   */
  async place(order: Order): Promise<boolean> {
    const { orders, escrow } = this.deps;
    const hold = await this.#holdOf(order);
    await orders.step(order, { state: "verified" }, { state: "hold_intent" });
    const result = await escrow.authorize(hold, order.sinceBlock);
    const stateRead = await this.#readState(
      order,
      hold,
      result.outcome === "sent" ? (newestRead) => stepAfterHold(newestRead, hold) !== null : null,
    );
    // Only we can send the hold. If it was not sent, or was reverted in a block that counts as final, it cannot
    // appear later.
    const cannotAppear = result.outcome === "refused" && (result.tx === undefined || this.deps.confirmations === 1);
    const wasNeverHeld = cannotAppear && stateRead?.value.state === "none";
    const nextStep = wasNeverHeld
      ? ({ state: "hold_failed", says: `It was ${describeOutcome(result)}.` } as const)
      : ((stateRead && stepAfterHold(stateRead, hold)) ??
        ({ state: "hold_unknown", says: describeOutcome(result) } as const));
    await this.#step(order, nextStep, result);
    const isHeld = nextStep.state === "held";
    const state = isHeld || nextStep.state === "hold_failed" ? nextStep.state : "hold_unknown";
    this.deps.metrics.count("touchstone_orders_holds_total", { state });
    return isHeld;
  }

  /** Captures the hold of an order in state `settle_intent`. @throws OrderLost, StepNotSeen */
  async collect(order: Order): Promise<void> {
    const { escrow, rail } = this.deps;
    const hold = await this.#holdOf(order);
    const chainTime = await rail.head().then(
      (head) => head.time,
      () => null,
    );
    const isInTime = chainTime !== null && chainTime < hold.captureDeadline - CAPTURE_MARGIN_S;
    const result: Outcome = isInTime
      ? await escrow.capture(hold, order.sinceBlock)
      : { outcome: "unknown", says: chainTime === null ? "the chain cannot be asked" : "it is too late to capture it" };
    const stateRead = await this.#readState(
      order,
      hold,
      result.outcome === "sent" ? ({ value }) => value.state === "captured" : null,
    );
    const nextStep = stateRead && stepAfterCapture(stateRead, hold);
    await this.#step(order, nextStep ?? { state: "settle_unknown", says: describeOutcome(result) }, result);
    this.deps.metrics.count("touchstone_orders_settlements_total", {
      outcome: result.outcome,
      seen: `${nextStep !== null}`,
    });
  }

  /** Gives back the hold of an order in state `void_intent`. @throws OrderLost, StepNotSeen */
  async giveBack(order: Order): Promise<void> {
    const { escrow } = this.deps;
    const hold = await this.#holdOf(order);
    const result = await escrow.void(hold, order.sinceBlock);
    const stateRead = await this.#readState(
      order,
      hold,
      result.outcome === "sent" ? ({ value }) => value.state === "voided" : null,
    );
    const nextStep = stateRead && stepAfterVoid(stateRead, hold, refundReasonOf(order));
    await this.#step(order, nextStep ?? { state: "void_unknown", says: describeOutcome(result) }, result);
    this.deps.metrics.count("touchstone_orders_voids_total", { outcome: result.outcome, seen: `${nextStep !== null}` });
  }

  /**
   * Continues an order that waits for the escrow: reads the hold's state from the chain, then appends the step that
   * follows. It never sends a hold again, and gives a hold that it finds unused back, since recovery does not call
   * the seller.
   * @throws ChainDown, OrderLost, StepNotSeen
   */
  async continueOrder(order: Order): Promise<void> {
    const { orders, escrow } = this.deps;
    const hold = await this.#holdOf(order);
    const stateRead = await escrow.state(hold, order.sinceBlock);
    switch (order.state) {
      case "hold_intent":
      case "hold_unknown": {
        const nextStep = stepAfterHold(stateRead, hold);
        if (nextStep) await this.#step(order, nextStep);
        if (nextStep?.state !== "held") return;
        return this.#giveBackUnused(order);
      }
      case "held":
        return this.#giveBackUnused(order);
      case "settle_intent":
      case "settle_unknown":
      case "settled": {
        const nextStep = stepAfterCapture(stateRead, hold);
        if (nextStep) return this.#stepIfNew(order, nextStep);
        // If it is too late to send another capture, the order stays open, since an earlier capture may still enter a
        // block.
        if (stateRead.value.state !== "held" || stateRead.head.time >= hold.captureDeadline - CAPTURE_MARGIN_S) return;
        if (order.state !== "settle_intent") await orders.step(order, { state: "settle_intent" });
        return this.collect(order);
      }
      default: {
        // The escrow contract lets us void a hold after the deadline too, so that the buyer need not reclaim the money.
        const isTooLate = stateRead.value.state === "held" && isTooLateToCapture(stateRead, hold);
        const result = isTooLate ? await escrow.void(hold, order.sinceBlock) : null;
        const newestRead = isTooLate ? await escrow.state(hold, order.sinceBlock) : stateRead;
        // The node that was read may lag behind the node that accepted the void; recovery reads the chain again later.
        if (result?.outcome === "sent" && newestRead.value.state === "held") return;
        const nextStep = stepAfterVoid(newestRead, hold, refundReasonOf(order));
        if (nextStep) return this.#stepIfNew(order, nextStep);
        if (newestRead.value.state !== "held") return;
        if (order.state !== "void_intent")
          await orders.step(order, { state: "void_intent", says: refundReasonOf(order) });
        return this.giveBack(order);
      }
    }
  }

  /** Appends the step, unless the order is in that state already and the transaction is still not final. */
  async #stepIfNew(order: Order, nextStep: NewStep): Promise<void> {
    const isKnown = nextStep.state === order.state && "final" in nextStep && nextStep.final === false;
    if (!isKnown) await this.#step(order, nextStep);
  }

  /**
   * Appends the step with the gas cost of its transaction.
   * @param result what the sending of the transaction returned; a reverted transaction costs gas too
   */
  async #step(order: Order, nextStep: NewStep, result?: Outcome): Promise<void> {
    const kind = GAS_KINDS[nextStep.state];
    const tx = "tx" in nextStep ? nextStep.tx : result?.outcome === "refused" ? result.tx : null;
    const gas = kind ? await this.deps.gas?.(order, kind, tx) : {};
    await this.deps.orders.step(order, { ...nextStep, ...gas });
  }

  async #giveBackUnused(order: Order): Promise<void> {
    await this.deps.orders.step(order, createReleaseStep(order, refundReasonOf(order)));
    await this.giveBack(order);
  }

  /** Reads the terms of the hold from the order's first step in the log, so that every replica uses the same terms. */
  async #holdOf(order: Order): Promise<Hold> {
    const claim = await this.deps.orders.read("claimed", { partition: order.partition, offset: order.claimedAt });
    const hold = holdOf(claim.payment, claim.requirements as unknown as PaymentRequirements);
    if ("reason" in hold) throw new Error(`the claim of ${order.id} names no hold: ${hold.reason}`);
    return hold;
  }

  /**
   * Reads the state of a hold; null when the chain cannot be reached.
   * @param isExpected if not null, the state is read several times, with pauses, until this returns true
   */
  async #readState(
    order: Order,
    hold: Hold,
    isExpected: ((seen: AsOf<HoldState>) => boolean) | null,
  ): Promise<AsOf<HoldState> | null> {
    let stateRead: AsOf<HoldState> | null = null;
    for (const pause of isExpected ? (this.deps.pollMs ?? POLL_MS) : [0]) {
      if (pause > 0) await systemClock.sleep(pause);
      try {
        stateRead = await this.deps.escrow.state(hold, order.sinceBlock);
      } catch (error) {
        this.deps.logger.warn({ err: error, order: order.id }, "the chain could not be asked for a hold");
      }
      if (!isExpected || (stateRead && isExpected(stateRead))) break;
    }
    return stateRead;
  }
}
