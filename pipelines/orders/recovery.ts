import { systemClock } from "../../infra/clock.ts";
import { forEachSettled, repeatWork } from "../../infra/concurrency.ts";
import type { Authorizations, SignedTransfer } from "../../infra/rails/authorization.ts";
import { completeUpTo, isFinallyExpired, type Rail, type Settlement, type Wallet } from "../../infra/rails/rails.ts";
import type { Logger, Metrics } from "../../infra/telemetry.ts";
import { atomicToMicro, formatMoney, parseMoney } from "../record/money.ts";
import type { Buying } from "./buying.ts";
import { type Holding, isHolding, letGo } from "./holding.ts";
import { callToRecord, isClosed, isEnded, type Leg, type Order } from "./order.ts";
import { OrderLost } from "./order-log.ts";
import type { PublishingCalls } from "./publishing-calls.ts";

export interface RecoveryDeps {
  buying: Buying;
  holding: Holding;
  rail: Pick<Rail, "head" | "settlementOf" | "transfers">;
  /** Transfers back to buyers, out of the wallet that they paid. */
  authorizations: Pick<Authorizations, "signTransfer" | "submitTransfer">;
  till(): Promise<Wallet>;
  /** Writes bought calls into the record. */
  publishing: Pick<PublishingCalls, "record">;
  logger: Pick<Logger, "warn" | "error">;
  metrics: Pick<Metrics, "count">;
}

/**
 * After so long without a step (ms) the replica of an ended order has decided whether to cancel its last payment, unless it
 * died.
 */
const LEFT_MS = 20_000;
/** Payments that are cancelled at once: each takes half a minute where the chain is slow. */
const CANCELS_AT_ONCE = 4;
/** Chain seconds after the end of an authorization in which a node may still show us a Transfer from before it. */
const MARGIN_S = 60;

/** Validity of a signed refund, seconds; a refund that is not in a block by then is signed anew. */
const REFUND_VALID_S = 600;

/**
 * States of orders that ended without a charge of ours, while a facilitator may still hold the buyer's authorization and use
 * it.
 */
const AUTHORIZED: ReadonlySet<Order["state"]> = new Set(["rejected", "released", "written_off"]);

const failed = (order: Order): boolean => order.legs.at(-1)?.checked?.pass !== true;

/** A kind of orders, all of which are looked at equally often. */
interface Kind {
  of(order: Order): boolean;
  /** Pause between two looks at one order, ms; doubled by each failure in succession, up to {@link SLOWEST_MS}. */
  everyMs: number;
  /** Most orders at once, and most in one turn, which takes those that were looked at longest ago. */
  atOnce: number;
  most: number;
}

/**
 * An order is of the first kind that fits. Orders that bring money in are looked at most often; no kind waits for another.
 */
const KINDS: readonly Kind[] = [
  {
    of: (order) => order.state === "settle_intent" || order.state === "settle_unknown" || isHolding(order),
    ...{ everyMs: 5_000, atOnce: 8, most: 200 },
  },
  { of: ({ state }) => state.startsWith("refund"), everyMs: 10_000, atOnce: 2, most: 50 },
  { of: (order) => !isEnded(order) || !order.final, everyMs: 5_000, atOnce: 8, most: 200 },
  { of: () => true, everyMs: 15_000, atOnce: 4, most: 100 },
];
const SLOWEST_MS = 300_000;

/** When an order is looked at next (monotonic ms), and how many looks in succession failed. */
interface Due {
  at: number;
  failures: number;
}

/** Most transactions that are sent to charge one order: we pay the gas of each. */
const MAX_SENT = 3;
/** Losses that one look asks the chain about: did the seller send the money back? */
const LOSSES_AT_ONCE = 20;

/**
 * Brings every order to its end, whichever replica began it (orders.md, Recovery): at the start of a process and then again
 * and again. Recovery reads the chain before it acts, never signs a second payment to a seller, and never blames a seller for
 * our own crash. Each order has its own time for the next look, so an order that fails, or a node that is down, holds up no
 * other order.
 */
export class Recovery {
  readonly #due = new Map<string, Due>();
  /** Kinds whose turn is under way, and orders that are being looked at. */
  readonly #underWay = new Set<Kind>();
  readonly #looking = new Map<string, Promise<void>>();
  /** For each loss (order and leg) the block to look from next, in the order in which losses were looked at. */
  readonly #scanned = new Map<string, number>();
  #cancelling: Promise<void> | null = null;
  #isOver = false;

  constructor(private readonly deps: RecoveryDeps) {}

  /** One look at every order that is not closed, due or not. */
  async look(): Promise<void> {
    await this.#catchUp();
    await Promise.all(KINDS.map((kind) => this.#turnOf(kind, true)));
  }

  /**
   * Look at the orders that are due. A kind whose last turn is still under way is left out.
   * @param pace factor of the pauses in {@link KINDS}
   */
  async turn(pace = 1): Promise<void> {
    await this.#catchUp();
    const idle = KINDS.filter((kind) => !this.#underWay.has(kind));
    await Promise.all(idle.map((kind) => this.#turnOf(kind, false, pace)));
  }

  /**
   * Reads new steps and starts cancellations beside everything else: a signed payment is valid for 90 s only, so they cannot
   * wait.
   */
  async #catchUp(): Promise<void> {
    const { orders } = this.deps.buying;
    await orders.catchUp();
    const open = this.#open();
    if (open.length === 0) return;
    this.#cancelling ??= this.#cancelLeft(open).finally(() => {
      this.#cancelling = null;
    });
  }

  #open(): Order[] {
    const { buying } = this.deps;
    return buying.orders.table.open().filter((order) => !buying.isActing(order));
  }

  async #turnOf(kind: Kind, all: boolean, pace = 1): Promise<void> {
    const now = systemClock.monotonic();
    const dueAt = ({ id }: Order): number => this.#due.get(id)?.at ?? 0;
    const ofKind = this.#open().filter((order) => KINDS.find(({ of }) => of(order)) === kind);
    const isDue = (order: Order): boolean => dueAt(order) <= now && !this.#looking.has(order.id);
    const due = all ? ofKind : ofKind.filter(isDue).sort((a, b) => dueAt(a) - dueAt(b));
    if (!all) this.#underWay.add(kind);
    await forEachSettled(all ? due : due.slice(0, kind.most), kind.atOnce, async (order) => {
      while (this.#looking.has(order.id)) await this.#looking.get(order.id);
      const look = this.#lookAt(order, kind.everyMs * pace).finally(() => this.#looking.delete(order.id));
      this.#looking.set(order.id, look);
      await look;
    });
    if (!all) this.#underWay.delete(kind);
  }

  /** Never rejects. */
  async #lookAt(order: Order, everyMs: number): Promise<void> {
    const { buying, logger, metrics } = this.deps;
    if (this.#isOver || buying.isActing(order)) return;
    let failures = 0;
    try {
      await this.#bring(order);
    } catch (error) {
      if (!(error instanceof OrderLost)) {
        failures = (this.#due.get(order.id)?.failures ?? 0) + 1;
        logger.warn({ err: error, order: order.id }, "an order could not be brought on; it is looked at again");
        metrics.count("touchstone_orders_recovery_failures_total");
      }
    }
    const at = systemClock.monotonic() + Math.min(everyMs * 2 ** failures, SLOWEST_MS);
    if (isClosed(order)) this.#due.delete(order.id);
    else this.#due.set(order.id, { at, failures });
  }

  /** Starts nothing more; resolves when the cancellations under way have ended. */
  async stop(): Promise<void> {
    this.#isOver = true;
    await this.#cancelling;
  }

  /** Cancels a few at once; an order that this process may not cancel is skipped. Never rejects. */
  async #cancelLeft(orders: readonly Order[]): Promise<void> {
    const { buying, logger } = this.deps;
    const leftMs = Math.min(LEFT_MS, buying.orders.staleMs);
    await forEachSettled(orders, CANCELS_AT_ONCE, async (order) => {
      if (this.#isOver) return;
      await buying.cancelling.cancelLeft(order, leftMs).catch((error: unknown) => {
        logger.warn({ err: error, order: order.id }, "a payment that was left could not be cancelled");
      });
    });
  }

  async #bring(order: Order): Promise<void> {
    if (!(await this.#isOurs(order))) return;
    const isHeld = isHolding(order);
    if (isHeld) await this.deps.holding.bring(order);
    else await this.#onward(order);
    await this.#fates(order);
    if (callToRecord(order)) await this.deps.publishing.record(order);
  }

  /**
   * Does this process act on the order? Yes for its own; an order that its replica has left is taken over first ({@link
   * OrderLog.adopt}).
   */
  async #isOurs(order: Order): Promise<boolean> {
    const { orders } = this.deps.buying;
    if (order.by === orders.replica) return true;
    if (!orders.looksLeft(order) || !(await orders.adopt(order))) return false;
    this.deps.metrics.count("touchstone_orders_adopted_total");
    return true;
  }

  async #onward(order: Order): Promise<void> {
    const { orders } = this.deps.buying;
    switch (order.state) {
      case "claimed":
        return orders.step(order, { state: "rejected", says: "We stopped before anything was bought." });
      case "verified":
        return orders.step(order, { state: "released", says: "We stopped before it was begun." });
      case "seller_intent":
        // The answer was lost with the replica that paid: our fault, which does not count against the seller.
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
        return this.#watched(order);
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
      const fault = pass || leg.result?.unmet ? null : leg.result ? ("seller" as const) : ("ours" as const);
      await orders.step(order, { state: "checked", leg: leg.leg, pass, last: true, fault });
    }
    if (failed(order)) await orders.step(order, letGo(order, "The answer did not pass."));
    else await orders.step(order, { state: "settle_intent" });
  }

  /**
   * Reads from the chain whether the buyer was charged. If not, sends the same payment again while it is valid; once it has
   * expired, the order is written off.
   */
  async #collect(order: Order): Promise<void> {
    const { buying } = this.deps;
    const { orders } = buying;
    const read = await buying.charged(order);
    const { value: seen } = read;
    if (seen?.amount === order.quote.total) return orders.step(order, await buying.settledAs(order, seen));
    if (isFinallyExpired(read, order.validBefore, MARGIN_S))
      return orders.step(order, { state: "written_off", says: "The payment could not be collected in time." });
    if (!(await this.#mayCharge(order))) return;
    if (order.state === "settle_unknown") await orders.step(order, { state: "settle_intent" });
    await buying.settle(order);
  }

  /** False while the payer holds as little as when its charge was refused: it would be refused again. @throws ChainDown */
  async #mayCharge(order: Order): Promise<boolean> {
    if (order.sent.length >= MAX_SENT) return false;
    return order.refusedAt === null || (await this.deps.buying.payerHas(order)) !== order.refusedAt;
  }

  /**
   * A charge that is not final: confirmed if it still stands; else made again, or written off once the payment has expired.
   */
  async #confirmed(order: Order): Promise<void> {
    const { buying } = this.deps;
    const read = await buying.charged(order);
    const { value: seen } = read;
    if (seen?.amount === order.quote.total) {
      if (seen.final) await buying.orders.step(order, await buying.settledAs(order, seen));
      return;
    }
    const vanished = "The block that the payment was settled in vanished.";
    if (isFinallyExpired(read, order.validBefore, MARGIN_S))
      return buying.orders.step(order, { state: "written_off", says: vanished });
    this.deps.metrics.count("touchstone_orders_settlements_vanished_total");
    await buying.orders.step(order, { state: "settle_intent" });
    await buying.settle(order);
  }

  /**
   * An order that ended without a charge: after its authorization has expired, looks whether it moved money all the same.
   */
  async #watched(order: Order): Promise<void> {
    // Only we can move money under an escrow's authorization.
    if (order.scheme !== "exact" || order.expired || !AUTHORIZED.has(order.state)) return;
    if (!(await this.#isPast(order.validBefore + MARGIN_S))) return;
    const { buying } = this.deps;
    const { orders } = buying;
    const read = await buying.charged(order);
    const { value: seen } = read;
    const owed = order.state === "written_off" && seen?.amount === order.quote.total;
    if (seen && !seen.final) return;
    if (seen && owed) return orders.step(order, await buying.settledAs(order, seen));
    if (seen) return orders.step(order, { state: "refund_due", tx: seen.tx, amount: seen.amount });
    if (isFinallyExpired(read, order.validBefore, MARGIN_S)) await orders.step(order, { state: "expired" });
  }

  /**
   * Is the newest block later than this time? It only says when to ask; what happened is read separately. @throws ChainDown
   */
  async #isPast(time: number): Promise<boolean> {
    return (await this.deps.rail.head()).time > time;
  }

  /**
   * Sends the money back exactly once. The signed transfer is durable before it is sent, so sending it again is the same
   * transfer; another one is signed only after this one has expired.
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
      if (order.state === "refund_intent" && isFinallyExpired(read, held.validBefore, MARGIN_S)) {
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
    // The answer decides nothing: the next look reads the chain.
    await authorizations.submitTransfer(transfer);
  }

  /** Finds out for each payment to a seller whether the seller took it. */
  async #fates(order: Order): Promise<void> {
    const { rail, buying } = this.deps;
    for (const leg of order.legs.filter(({ fate }) => fate === "unknown")) {
      // A call under way: its seller may take the money at any moment, and nothing follows from that yet.
      if (order.state === "seller_intent" && !(await this.#isPast(leg.validBefore))) continue;
      const read = await rail.settlementOf({ from: leg.wallet, nonce: leg.nonce, sinceBlock: leg.sinceBlock });
      const { value: seen } = read;
      if (seen && !seen.final) continue;
      if (seen)
        await buying.orders.step(order, { state: "leg_paid", leg: leg.leg, tx: seen.tx, amount: moneyOf(seen) });
      else {
        const tx = isEnded(order) ? await buying.cancelling.cancelledIn(leg) : null;
        if (tx === null && !isFinallyExpired(read, leg.validBefore, MARGIN_S)) continue;
        await buying.orders.step(order, {
          state: "leg_unpaid",
          leg: leg.leg,
          ...(await buying.gas(order, "cancel", tx)),
        });
      }
    }
  }

  /**
   * Looks for losses that sellers paid back: a Transfer of at least the price from the seller's address to the wallet that
   * paid it pays back one loss. Each call takes the few losses that were looked at longest ago, each from the block after the
   * last one read. Losses that a buyer or we caused are not looked for: no seller sends those back.
   */
  async recoverLosses(): Promise<void> {
    const { orders } = this.deps.buying;
    await orders.catchUp();
    const owed = [...orders.table.owing()].flatMap((order) =>
      order.legs.filter(isOwed).map((leg) => ({ order, leg, key: `${order.id} ${leg.leg}` })),
    );
    for (const key of this.#scanned.keys()) if (!owed.some((one) => one.key === key)) this.#scanned.delete(key);
    const turn = new Map([...this.#scanned.keys()].map((key, n) => [key, n + 1]));
    const turnOf = ({ key }: (typeof owed)[number]): number => turn.get(key) ?? 0;
    const next = owed.sort((a, b) => turnOf(a) - turnOf(b)).slice(0, LOSSES_AT_ONCE);
    for (const { order, leg, key } of next) {
      if (this.#isOver || this.deps.buying.isActing(order)) continue;
      await this.#sentBack(order, leg, key).catch((error: unknown) => {
        if (error instanceof OrderLost) return;
        this.deps.logger.warn({ err: error, order: order.id }, "it is not known whether a loss was made good");
      });
    }
  }

  async #sentBack(order: Order, leg: Leg, key: string): Promise<void> {
    const { buying, rail } = this.deps;
    const { table } = buying.orders;
    const sinceBlock = this.#scanned.get(key) ?? leg.sinceBlock;
    // Moved to the end, also if this look fails: all other losses come before it next time.
    this.#scanned.delete(key);
    this.#scanned.set(key, sinceBlock);
    const read = await rail.transfers({ from: leg.payTo, to: leg.wallet, sinceBlock });
    const { value: back } = read;
    const taken = back.length === 0 ? new Set<string>() : table.recoveries();
    const isFree = (one: Settlement) => one.final && !taken.has(one.tx);
    const price = parseMoney(leg.price);
    const found = back.find((one) => isFree(one) && (atomicToMicro(one.amountAtomic, 6) ?? 0n) >= price);
    if (!found) this.#scanned.set(key, Math.max(sinceBlock, completeUpTo(read) + 1));
    // The order is taken over only when there is a step to write; otherwise replicas would take it over from each other
    // for ever.
    if (!found || !(await this.#isOurs(order)) || table.recoveries().has(found.tx)) return;
    const step = { state: "leg_recovered", leg: leg.leg, tx: found.tx, amount: moneyOf(found) } as const;
    await buying.orders.step(order, step);
  }
}

/** Does the seller of this leg have money of ours that it should send back? */
const isOwed = ({ fate, recovered, checked }: Leg): boolean =>
  fate === "paid" && recovered === null && checked?.pass === false && checked.fault === "seller";

const moneyOf = ({ amountAtomic }: Settlement): string => formatMoney(atomicToMicro(amountAtomic, 6) ?? 0n);

export interface Recovering {
  /** A look now, after the one under way. */
  look(): Promise<void>;
  /** @param told how each turn ends from now on: null for well, else what it threw */
  watch(told: (failed: unknown) => void): void;
  stop(): Promise<void>;
}

/** Pauses between two turns, and between two looks at losses. */
const TURN_MS = 1_000;
const LOSSES_MS = 300_000;
/** Turns under way at once: one for each kind, and one that begins. */
const MAX_TURNS = KINDS.length + 1;

/** Runs turns of recovery, in real time, until stopped; a turn that fails is logged, and the next one tries again. */
export function startRecovery(recovery: Recovery, logger: Pick<Logger, "warn">, everyMs = TURN_MS): Recovering {
  const tried = (work: () => Promise<void>) => () =>
    work().catch((error: unknown) => logger.warn({ err: error }, "orders could not be looked at; it is tried again"));
  // Turns overlap: one in which a kind takes long would otherwise hold up the charges of the next.
  const turns = new Set<Promise<void>>();
  let told: (failed: unknown) => void = () => undefined;
  const turned = async () => {
    await recovery.turn(everyMs / TURN_MS).catch((error: unknown) => {
      told(error);
      throw error;
    });
    told(null);
  };
  const begin = async () => {
    if (turns.size >= MAX_TURNS) return;
    const turn = tried(turned)().finally(() => turns.delete(turn));
    turns.add(turn);
  };
  const losses = tried(() => recovery.recoverLosses());
  const running = [repeatWork(begin, everyMs, systemClock), repeatWork(losses, LOSSES_MS, systemClock)];
  return {
    look: tried(() => recovery.look()),
    watch: (by) => {
      told = by;
    },
    async stop() {
      await Promise.all([...running.map((one) => one.stop()), recovery.stop()]);
      await Promise.all(turns);
    },
  };
}
