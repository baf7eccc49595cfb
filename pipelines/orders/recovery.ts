import { systemClock } from "../../infra/clock.ts";
import { allAtOnce, repeating } from "../../infra/concurrency.ts";
import type { Authorizations, SignedTransfer } from "../../infra/rails/authorization.ts";
import { isOver, type Rail, type Settlement, type Wallet } from "../../infra/rails/rails.ts";
import type { Logger, Metrics } from "../../infra/telemetry.ts";
import { atomicToMicro, formatMoney, parseMoney } from "../record/money.ts";
import type { Buying } from "./buying.ts";
import { type Holding, isHolding, letGo } from "./holding.ts";
import { callToRecord, isEnded, type Order } from "./order.ts";
import { OrderLost } from "./order-log.ts";
import type { PublishingCalls } from "./publishing-calls.ts";

export interface RecoveryDeps {
  buying: Buying;
  holding: Holding;
  rail: Pick<Rail, "head" | "settlementOf" | "transfers">;
  /** Transfers back to buyers, out of the wallet that they paid. */
  authorizations: Pick<Authorizations, "signTransfer" | "submitTransfer">;
  till(): Promise<Wallet>;
  /** Bought calls into the record. */
  publishing: Pick<PublishingCalls, "record">;
  logger: Pick<Logger, "warn" | "error">;
  metrics: Pick<Metrics, "count">;
  /**
   * How long an order may go without a step before its replica is taken for dead, real ms. Longer than any step takes:
   * a seller's deadline, and a settlement after it.
   */
  staleMs: number;
}

/** A seller may take 90 s, a settlement half a minute; beyond both a replica that still lives has written something. */
export const STALE_MS = 180_000;
/** What a process that lives does to an order that ended is done by then, real ms: its last payment is cancelled or not. */
const LEFT_MS = 20_000;
/** Payments that are cancelled at once: each takes half a minute where the chain is slow. */
const CANCELS_AT_ONCE = 4;
/** Chain seconds after an authorization's end in which a Transfer in an older block may still become visible to us. */
const MARGIN_S = 60;

/** Seconds in which a refund may be taken in by the chain before it is signed anew. */
const REFUND_VALID_S = 600;

/** Ended without a charge of ours, while somebody may still hold the buyer's authorization and use it. */
const AUTHORIZED: ReadonlySet<Order["state"]> = new Set(["rejected", "released", "written_off"]);

const failed = (order: Order): boolean => order.legs.at(-1)?.checked?.pass !== true;

/**
 * Brings every order to its end, whoever began it (orders.md, Recovery): at a start and then again and again. It asks
 * the chain before it acts, never signs a second payment, and never says of a seller what only our own crash did.
 */
export class Recovery {
  #cancelling: Promise<void> | null = null;
  #isOver = false;

  constructor(private readonly deps: RecoveryDeps) {}

  /** One look at every order that is not closed. One that cannot be brought on now keeps its place for the next look. */
  async look(): Promise<void> {
    const { buying, rail, logger } = this.deps;
    await buying.orders.catchUp();
    const open = buying.orders.table.open().filter((order) => !buying.isActing(order));
    if (open.length === 0) return;
    // Not in the loop below: a signed payment is valid for 90 s, and the orders before it in the loop may take as long.
    this.#cancelling ??= this.#cancelLeft(open).finally(() => {
      this.#cancelling = null;
    });
    const { time } = await rail.head();
    for (const order of open) {
      if (buying.isActing(order)) continue;
      try {
        await this.#bring(order, time);
      } catch (error) {
        if (error instanceof OrderLost) continue;
        logger.warn({ err: error, order: order.id }, "an order could not be brought on; it is looked at again");
        this.deps.metrics.count("touchstone_orders_recovery_failures_total");
      }
    }
  }

  /** Begins no cancellation any more; resolves once those under way are over. */
  async stop(): Promise<void> {
    this.#isOver = true;
    await this.#cancelling;
  }

  /** A few at once; what this process may not cancel costs no time. Never rejects. */
  async #cancelLeft(orders: readonly Order[]): Promise<void> {
    const leftMs = Math.min(LEFT_MS, this.deps.staleMs);
    await allAtOnce(orders, CANCELS_AT_ONCE, async (order) => {
      if (this.#isOver) return;
      await this.deps.buying.cancelling.cancelLeft(order, leftMs).catch((error: unknown) => {
        this.deps.logger.warn({ err: error, order: order.id }, "a payment that was left could not be cancelled");
      });
    });
  }

  /** @param chainTime of the newest block: when it is worth to ask, and never what came of it */
  async #bring(order: Order, chainTime: number): Promise<void> {
    if (!(await this.#isOurs(order))) return;
    await this.#fates(order, chainTime);
    if (isHolding(order)) await this.deps.holding.bring(order);
    else await this.#onward(order, chainTime);
    if (callToRecord(order)) await this.deps.publishing.record(order);
  }

  /** Ours from its beginning, or left by a replica that has not moved it for long. */
  async #isOurs(order: Order): Promise<boolean> {
    const { buying, staleMs } = this.deps;
    if (order.by === buying.orders.replica) return true;
    if (systemClock.now().getTime() - order.movedAt < staleMs) return false;
    this.deps.metrics.count("touchstone_orders_adopted_total");
    return buying.orders.adopt(order);
  }

  async #onward(order: Order, chainTime: number): Promise<void> {
    const { orders } = this.deps.buying;
    switch (order.state) {
      case "claimed":
        return orders.step(order, { state: "rejected", says: "We stopped before anything was bought." });
      case "verified":
        return orders.step(order, { state: "released", says: "We stopped before it was begun." });
      case "seller_intent":
        // The answer was lost with the replica that paid: our fault, and nothing is held against the seller.
        return this.#unwatched(order);
      case "worked":
        return orders.step(order, { state: "settle_intent" });
      case "seller_result":
      case "seller_unknown":
      case "checked":
        return this.#checked(order);
      case "settle_intent":
      case "settle_unknown":
        return this.#collect(order);
      case "settled":
        return order.final ? undefined : this.#confirmed(order);
      case "refund_due":
      case "refund_intent":
      case "refund_unknown":
        return this.#refund(order);
      default:
        return this.#watched(order, chainTime);
    }
  }

  async #unwatched(order: Order): Promise<void> {
    const { leg } = order.legs.at(-1)!;
    await this.deps.buying.orders.step(
      order,
      { state: "seller_unknown", leg, says: "We stopped before the answer was seen to its end." },
      { state: "checked", leg, pass: false, last: true, fault: "ours" },
      letGo(order, "We stopped before the answer was seen to its end."),
    );
  }

  async #checked(order: Order): Promise<void> {
    const { orders } = this.deps.buying;
    const leg = order.legs.at(-1)!;
    if (order.state !== "checked") {
      const pass = leg.result?.pass === true;
      const fault = pass ? null : leg.result ? ("seller" as const) : ("ours" as const);
      await orders.step(order, { state: "checked", leg: leg.leg, pass, last: true, fault });
    }
    if (failed(order)) await orders.step(order, letGo(order, "The answer did not pass."));
    else await orders.step(order, { state: "settle_intent" });
  }

  /** The chain first; then the same payment again; once it can be used no more, it is given up. */
  async #collect(order: Order): Promise<void> {
    const { orders } = this.deps.buying;
    const read = await this.deps.buying.charged(order);
    const { value: seen } = read;
    if (seen?.amount === order.quote.total) return orders.step(order, await this.deps.buying.settledAs(order, seen));
    if (isOver(read, order.validBefore, MARGIN_S))
      return orders.step(order, { state: "written_off", says: "The payment could not be collected in time." });
    if (order.state === "settle_unknown") await orders.step(order, { state: "settle_intent" });
    await this.deps.buying.settle(order);
  }

  /** A charge whose block could vanish: it did not, or it is made again, or it can be made no more and is our loss. */
  async #confirmed(order: Order): Promise<void> {
    const { buying } = this.deps;
    const read = await buying.charged(order);
    const { value: seen } = read;
    if (seen?.amount === order.quote.total) {
      if (seen.final) await buying.orders.step(order, await buying.settledAs(order, seen));
      return;
    }
    const vanished = "The block that the payment was settled in vanished.";
    if (isOver(read, order.validBefore, MARGIN_S))
      return buying.orders.step(order, { state: "written_off", says: vanished });
    this.deps.metrics.count("touchstone_orders_settlements_vanished_total");
    await buying.orders.step(order, { state: "settle_intent" });
    await buying.settle(order);
  }

  /** An order that ended: once its authorization can be used no more, has it moved money all the same? */
  async #watched(order: Order, chainTime: number): Promise<void> {
    // Money under an escrow's authorization moves by our own hand only.
    if (order.scheme !== "exact" || order.expired || !AUTHORIZED.has(order.state)) return;
    if (chainTime <= order.validBefore + MARGIN_S) return;
    const { orders } = this.deps.buying;
    const read = await this.deps.buying.charged(order);
    const { value: seen } = read;
    const owed = order.state === "written_off" && seen?.amount === order.quote.total;
    if (seen && !seen.final) return;
    if (seen && owed) return orders.step(order, await this.deps.buying.settledAs(order, seen));
    if (seen) return orders.step(order, { state: "refund_due", tx: seen.tx, amount: seen.amount });
    if (isOver(read, order.validBefore, MARGIN_S)) await orders.step(order, { state: "expired" });
  }

  /**
   * One transfer back, however often it is sent: the signed one is durable before it leaves, and another is signed only
   * once it can arrive no more.
   */
  async #refund(order: Order): Promise<void> {
    const { authorizations, rail, buying } = this.deps;
    const { orders } = buying;
    const { refund: held } = order;
    if (held && order.state !== "refund_due") {
      const read = await rail.settlementOf({ from: held.from, nonce: held.nonce, sinceBlock: held.sinceBlock });
      const { value: arrived } = read;
      if (arrived && !arrived.final) return;
      if (arrived) {
        const { tx } = arrived;
        const gas = await buying.gas(order, "refund", tx);
        return orders.step(order, { state: "refunded", tx, amount: moneyOf(arrived), ...gas });
      }
      if (order.state === "refund_intent" && isOver(read, held.validBefore, MARGIN_S)) {
        return orders.step(order, { state: "refund_unknown", says: "It did not arrive in time; it is signed anew." });
      }
    }
    if (held && order.state === "refund_intent") {
      const intent = await orders.read("refund_intent", { partition: order.partition, offset: held.at });
      await authorizations.submitTransfer(intent.transfer as unknown as SignedTransfer);
      return;
    }
    const { number } = await rail.head();
    const { amount } = order.charged!;
    const wallet = await this.deps.till();
    const amountAtomic = parseMoney(amount);
    const back = { to: order.payer, amountAtomic, validForSeconds: REFUND_VALID_S };
    const transfer = await authorizations.signTransfer(wallet, back);
    const { nonce, validBefore } = transfer.authorization;
    await orders.step(order, {
      state: "refund_intent",
      ...{ amount, from: wallet.address.toLowerCase(), transfer: { ...transfer }, nonce },
      ...{ valid_before: Number(validBefore), since_block: number },
    });
    // What is said of it decides nothing: the next look asks the chain.
    await authorizations.submitTransfer(transfer);
  }

  /** What became of the money that sellers were signed. */
  async #fates(order: Order, chainTime: number): Promise<void> {
    const { rail, buying } = this.deps;
    for (const leg of order.legs.filter(({ fate }) => fate === "unknown")) {
      // A call under way: its seller may take the money at any moment, and nothing follows from that yet.
      if (order.state === "seller_intent" && chainTime <= leg.validBefore) continue;
      const read = await rail.settlementOf({ from: leg.wallet, nonce: leg.nonce, sinceBlock: leg.sinceBlock });
      const { value: seen } = read;
      if (seen && !seen.final) continue;
      if (seen)
        await buying.orders.step(order, { state: "leg_paid", leg: leg.leg, tx: seen.tx, amount: moneyOf(seen) });
      else {
        const tx = isEnded(order) ? await buying.cancelling.cancelledIn(leg) : null;
        if (tx === null && !isOver(read, leg.validBefore, MARGIN_S)) continue;
        await buying.orders.step(order, {
          state: "leg_unpaid",
          leg: leg.leg,
          ...(await buying.gas(order, "cancel", tx)),
        });
      }
    }
  }

  /**
   * Losses that their seller sent back: a Transfer of at least the price from its address to the wallet that paid it,
   * which makes good one loss.
   */
  async recoverLosses(): Promise<void> {
    const { buying, rail } = this.deps;
    const { table } = buying.orders;
    for (const loss of [...table.losses()]) {
      const order = table.get(loss.order);
      const leg = order?.legs[loss.leg];
      if (!order || leg?.fate !== "paid" || buying.isActing(order)) continue;
      const query = { from: leg.payTo, to: leg.wallet, sinceBlock: leg.sinceBlock };
      const { value: back } = await rail.transfers(query);
      const taken = table.recoveries();
      const isFree = (one: Settlement) => one.final && !taken.has(one.tx);
      const found = back.find((one) => isFree(one) && (atomicToMicro(one.amountAtomic, 6) ?? 0n) >= loss.micro);
      // Only who has something to say takes an order over: replicas that look again and again would write for ever.
      if (!found || !(await this.#isOurs(order)) || table.recoveries().has(found.tx)) continue;
      const step = { state: "leg_recovered", leg: leg.leg, tx: found.tx, amount: moneyOf(found) } as const;
      await buying.orders.step(order, step);
    }
  }
}

const moneyOf = ({ amountAtomic }: Settlement): string => formatMoney(atomicToMicro(amountAtomic, 6) ?? 0n);

export interface Recovering {
  /** A look now, after the one under way. */
  look(): Promise<void>;
  stop(): Promise<void>;
}

/** Pauses between two looks, and how many of them one look at losses takes. */
const LOOK_MS = 5_000;
const LOSSES_EVERY = 60;

/** Looks again and again, in real time, until stopped. A look that fails is made again. */
export function startRecovery(recovery: Recovery, logger: Pick<Logger, "warn">, everyMs = LOOK_MS): Recovering {
  let turn: Promise<void> = Promise.resolve();
  const look = (): Promise<void> => {
    turn = turn
      .then(() => recovery.look())
      .catch((error: unknown) => logger.warn({ err: error }, "orders could not be looked at; it is tried again"));
    return turn;
  };
  let looks = 0;
  const lookOver = async () => {
    await look();
    if (looks++ % LOSSES_EVERY === 0) await recovery.recoverLosses().catch(() => {});
  };
  const running = repeating(lookOver, everyMs, systemClock);
  return {
    look,
    async stop() {
      await Promise.all([running.stop(), recovery.stop()]);
    },
  };
}
