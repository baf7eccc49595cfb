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
  /** How many blocks deep an event has to be to count as final; 1: as soon as it is in a block. */
  confirmations: Confirmations;
  logger: Pick<Logger, "warn">;
  metrics: Pick<Metrics, "count">;
  /** Reads what our transactions cost; without it the steps do not name it. */
  gas?: GasOf;
  /** Pauses (real ms) between looks at the chain for a transaction that was sent. */
  pollMs?: readonly number[];
}

/** A hold is not captured in its last 60 s (chain time): the transaction could enter a block after the deadline. */
const CAPTURE_MARGIN_S = 60;
/** Chain seconds after a deadline during which a lagging node may still report an event from before the deadline. */
const NODE_DELAY_S = 60;
const POLL_MS = [0, 50, 200, 500, 1_000, 2_000, 4_000, 8_000] as const;

/** For each step, what its transaction was for. `refund_due` is absent: we did not send the charge that it refunds. */
const GAS_KINDS: Partial<Record<NewStep["state"], Gas["kind"]>> = {
  ...({ held: "hold", hold_failed: "hold", hold_unknown: "hold" } as const),
  ...({ settled: "capture", settle_unknown: "capture", voided: "void", void_unknown: "void" } as const),
};

const HOLDING_STATES: ReadonlySet<Order["state"]> = new Set([
  ...(["hold_intent", "hold_unknown", "held", "void_intent", "void_unknown"] as const),
  ...(["settle_intent", "settle_unknown"] as const),
]);

/** Does this order wait for an event of the escrow contract? */
export const isHolding = ({ scheme, state, final }: Order): boolean =>
  scheme === "auth-capture" && (HOLDING_STATES.has(state) || !final);

/**
 * Makes the next step of an order whose buyer owes nothing: `void_intent`, which gives money in escrow back, or
 * `released`.
 */
export const releaseStep = ({ scheme, state }: Order, says: string): NewStep<"released" | "void_intent"> =>
  scheme === "auth-capture" && state !== "verified" ? { state: "void_intent", says } : { state: "released", says };

/** A buyer's payment to us, as read from the chain. */
export interface Charge {
  tx: string;
  amount: string;
  /** True when its block is deep enough not to vanish. */
  final: boolean;
}

/**
 * Makes the `settled` step of a charge that was read from the chain. The buyer waits for its answer, so a charge counts
 * as soon as it is in a block; recovery reads the chain again until the charge is final.
 */
export const settledStep = ({ final, ...seen }: Charge): NewStep<"settled"> => ({
  state: "settled",
  ...seen,
  ...(final ? {} : { final }),
});

const moneyOf = (amountAtomic: bigint): string => formatMoney(atomicToMicro(amountAtomic, 6) ?? 0n);

/** Describes, in words for a step, how the sending of a transaction ended that is not on the chain. */
export function outcomeInWords(result: Outcome): string {
  if (result.outcome === "sent") return `${result.tx} is not on the chain yet`;
  return result.outcome === "refused"
    ? `refused: ${result.reason}`.slice(0, 2000)
    : `unknown: ${result.says}`.slice(0, 2000);
}

/** Is the deadline for placing the hold finally past? */
const isTooLateToHold = (read: AsOf<HoldState>, hold: Hold): boolean =>
  isFinallyExpired(read, hold.validBefore, NODE_DELAY_S);

/** Is the deadline for capturing the hold finally past? */
const isTooLateToCapture = (read: AsOf<HoldState>, hold: Hold): boolean =>
  isFinallyExpired(read, hold.captureDeadline, NODE_DELAY_S);

/**
 * Returns the next step of an order whose hold was sent; null while the hold's outcome is unknown. Only a final hold
 * counts, since the seller is paid because of it.
 */
function stepAfterHold(read: AsOf<HoldState>, hold: Hold): NewStep | null {
  const { value: seen } = read;
  switch (seen.state) {
    case "held":
      return seen.final ? { state: "held", tx: seen.tx, capture_deadline: hold.captureDeadline } : null;
    case "none":
      return isTooLateToHold(read, hold) ? { state: "hold_failed", says: "It was not placed in time." } : null;
    case "captured":
      return seen.final ? { state: "refund_due", tx: seen.tx, amount: moneyOf(seen.amountAtomic) } : null;
    default:
      return seen.final ? { state: "hold_failed", says: "It was held, and is back with its buyer." } : null;
  }
}

/** Returns the next step of an order whose capture was sent; null while the capture's outcome is unknown. */
function stepAfterCapture(read: AsOf<HoldState>, hold: Hold): NewStep | null {
  const { value: seen } = read;
  switch (seen.state) {
    case "captured":
      return settledStep({ tx: seen.tx, amount: moneyOf(seen.amountAtomic), final: seen.final });
    case "reclaimed":
      return seen.final
        ? { state: "reclaimable", says: "It was not captured in time, and its buyer took it back." }
        : null;
    case "voided":
      return seen.final ? { state: "written_off", says: "The hold was given back." } : null;
    case "held":
      return isTooLateToCapture(read, hold) ? { state: "reclaimable", says: "It was not captured in time." } : null;
    default:
      return isTooLateToHold(read, hold) ? { state: "written_off", says: "The hold vanished from the chain." } : null;
  }
}

/**
 * Returns the next step of an order whose void (return of the hold to the buyer) was sent; null while the void's
 * outcome is unknown.
 */
function stepAfterVoid(read: AsOf<HoldState>, hold: Hold, why: string): NewStep | null {
  const { value: seen } = read;
  switch (seen.state) {
    case "voided":
      return { state: "voided", tx: seen.tx, says: why, ...(seen.final ? {} : { final: false }) };
    case "reclaimed":
      return seen.final ? { state: "reclaimable", says: `${why} Its buyer took the money back.` } : null;
    case "captured":
      return seen.final ? { state: "refund_due", tx: seen.tx, amount: moneyOf(seen.amountAtomic) } : null;
    case "held":
      return isTooLateToCapture(read, hold)
        ? { state: "reclaimable", says: `${why} It could not be given back in time.` }
        : null;
    default:
      return isTooLateToHold(read, hold) ? { state: "hold_failed", says: "The hold vanished from the chain." } : null;
  }
}

/** Returns why the buyer of an order gets its money back, in words. */
function refundReasonOf({ legs }: Order): string {
  const last = legs.at(-1);
  if (!last) return "The seller was not called.";
  return last.checked?.fault === "ours" ? "What the seller answered was lost on our side." : "The answer did not pass.";
}

/**
 * The escrow's part in an order (orders.md, States): the buyer's money is held before the seller is paid, captured once
 * the answer passed, and given back otherwise. Each of these transactions is sent after its intent is durable and may
 * be repeated. The reply to a transaction is not trusted: the next step follows from the state that is read from the
 * chain.
 */
export class Holding {
  constructor(private readonly deps: HoldingDeps) {}

  /**
   * Holds the buyer's money of a newly claimed order. If the chain cannot be reached, the order becomes `hold_unknown`, and
   * no error is thrown.
   * @returns true when the money is held and the seller may be paid @throws OrderLost, StepNotSeen
   */
  async place(order: Order): Promise<boolean> {
    const { orders, escrow } = this.deps;
    const hold = await this.#holdOf(order);
    await orders.step(order, { state: "verified" }, { state: "hold_intent" });
    const result = await escrow.authorize(hold, order.sinceBlock);
    const seen = await this.#readState(
      order,
      hold,
      result.outcome === "sent" ? (at) => stepAfterHold(at, hold) !== null : null,
    );
    // Only we can send the hold. It was not sent, or it was finally reverted, so it cannot appear later.
    const undone = result.outcome === "refused" && (result.tx === undefined || this.deps.confirmations === 1);
    const never = undone && seen?.value.state === "none";
    const next = never
      ? ({ state: "hold_failed", says: `It was ${outcomeInWords(result)}.` } as const)
      : ((seen && stepAfterHold(seen, hold)) ?? ({ state: "hold_unknown", says: outcomeInWords(result) } as const));
    await this.#step(order, next, result);
    const isHeld = next.state === "held";
    const state = isHeld || next.state === "hold_failed" ? next.state : "hold_unknown";
    this.deps.metrics.count("touchstone_orders_holds_total", { state });
    return isHeld;
  }

  /** Captures the hold of an order in `settle_intent`. @throws OrderLost, StepNotSeen */
  async collect(order: Order): Promise<void> {
    const { escrow, rail } = this.deps;
    const hold = await this.#holdOf(order);
    const time = await rail.head().then(
      (head) => head.time,
      () => null,
    );
    const inTime = time !== null && time < hold.captureDeadline - CAPTURE_MARGIN_S;
    const result: Outcome = inTime
      ? await escrow.capture(hold, order.sinceBlock)
      : { outcome: "unknown", says: time === null ? "the chain cannot be asked" : "it is too late to capture it" };
    const seen = await this.#readState(
      order,
      hold,
      result.outcome === "sent" ? ({ value }) => value.state === "captured" : null,
    );
    const next = seen && stepAfterCapture(seen, hold);
    await this.#step(order, next ?? { state: "settle_unknown", says: outcomeInWords(result) }, result);
    this.deps.metrics.count("touchstone_orders_settlements_total", {
      outcome: result.outcome,
      seen: `${next !== null}`,
    });
  }

  /** Gives back the hold of an order in `void_intent`. @throws OrderLost, StepNotSeen */
  async giveBack(order: Order): Promise<void> {
    const { escrow } = this.deps;
    const hold = await this.#holdOf(order);
    const result = await escrow.void(hold, order.sinceBlock);
    const seen = await this.#readState(
      order,
      hold,
      result.outcome === "sent" ? ({ value }) => value.state === "voided" : null,
    );
    const next = seen && stepAfterVoid(seen, hold, refundReasonOf(order));
    await this.#step(order, next ?? { state: "void_unknown", says: outcomeInWords(result) }, result);
    this.deps.metrics.count("touchstone_orders_voids_total", { outcome: result.outcome, seen: `${next !== null}` });
  }

  /**
   * Continues an order that waits for the escrow: reads the hold's state from the chain, then appends the step that
   * follows. This never places a hold, since the seller would not be called afterwards.
   * @throws ChainDown, OrderLost, StepNotSeen
   */
  async continueOrder(order: Order): Promise<void> {
    const { orders, escrow } = this.deps;
    const hold = await this.#holdOf(order);
    const seen = await escrow.state(hold, order.sinceBlock);
    switch (order.state) {
      case "hold_intent":
      case "hold_unknown": {
        const next = stepAfterHold(seen, hold);
        if (next) await this.#step(order, next);
        if (next?.state !== "held") return;
        return this.#abandon(order);
      }
      case "held":
        return this.#abandon(order);
      case "settle_intent":
      case "settle_unknown":
      case "settled": {
        const next = stepAfterCapture(seen, hold);
        if (next) return this.#stepIfNew(order, next);
        // Too late to send another capture; an earlier capture may still enter a block, so the order stays open.
        if (seen.value.state !== "held" || seen.head.time >= hold.captureDeadline - CAPTURE_MARGIN_S) return;
        if (order.state !== "settle_intent") await orders.step(order, { state: "settle_intent" });
        return this.collect(order);
      }
      default: {
        // The contract lets the operator void a hold after the deadline too, which saves the buyer from reclaiming it.
        const isLate = seen.value.state === "held" && isTooLateToCapture(seen, hold);
        const result = isLate ? await escrow.void(hold, order.sinceBlock) : null;
        const now = isLate ? await escrow.state(hold, order.sinceBlock) : seen;
        // The node that we read lags behind the node that accepted the void: the next look reads again.
        if (result?.outcome === "sent" && now.value.state === "held") return;
        const next = stepAfterVoid(now, hold, refundReasonOf(order));
        if (next) return this.#stepIfNew(order, next);
        if (now.value.state !== "held") return;
        if (order.state !== "void_intent")
          await orders.step(order, { state: "void_intent", says: refundReasonOf(order) });
        return this.giveBack(order);
      }
    }
  }

  /** Appends the step, unless the order is in that state already and the step is not final. */
  async #stepIfNew(order: Order, next: NewStep): Promise<void> {
    const isKnown = next.state === order.state && "final" in next && next.final === false;
    if (!isKnown) await this.#step(order, next);
  }

  /**
   * Appends the step with the gas of its transaction. @param result outcome of the sending: a reverted transaction cost
   * gas too
   */
  async #step(order: Order, next: NewStep, result?: Outcome): Promise<void> {
    const kind = GAS_KINDS[next.state];
    const tx = "tx" in next ? next.tx : result?.outcome === "refused" ? result.tx : null;
    const gas = kind ? await this.deps.gas?.(order, kind, tx) : {};
    await this.deps.orders.step(order, { ...next, ...gas });
  }

  async #abandon(order: Order): Promise<void> {
    await this.deps.orders.step(order, releaseStep(order, refundReasonOf(order)));
    await this.giveBack(order);
  }

  /** Reads the hold from the order's claim in the log, so that every replica has the same hold. */
  async #holdOf(order: Order): Promise<Hold> {
    const claim = await this.deps.orders.read("claimed", { partition: order.partition, offset: order.claimedAt });
    const hold = holdOf(claim.payment, claim.requirements as unknown as PaymentRequirements);
    if ("reason" in hold) throw new Error(`the claim of ${order.id} names no hold: ${hold.reason}`);
    return hold;
  }

  /**
   * Reads the state of a hold; null when the chain cannot be reached.
   * @param isExpected if not null, the state is read again, with pauses, until this returns true
   */
  async #readState(
    order: Order,
    hold: Hold,
    until: ((seen: AsOf<HoldState>) => boolean) | null,
  ): Promise<AsOf<HoldState> | null> {
    let seen: AsOf<HoldState> | null = null;
    for (const pause of until ? (this.deps.pollMs ?? POLL_MS) : [0]) {
      if (pause > 0) await systemClock.sleep(pause);
      try {
        seen = await this.deps.escrow.state(hold, order.sinceBlock);
      } catch (error) {
        this.deps.logger.warn({ err: error, order: order.id }, "the chain could not be asked for a hold");
      }
      if (!until || (seen && until(seen))) break;
    }
    return seen;
  }
}
