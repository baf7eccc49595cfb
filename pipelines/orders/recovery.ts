import { systemClock } from "../../infra/clock.ts";
import { allAtOnce, repeating } from "../../infra/concurrency.ts";
import type { Authorizations, SignedTransfer } from "../../infra/rails/authorization.ts";
import { isOver, type Rail, type Settlement, type Wallet, wholeUpTo } from "../../infra/rails/rails.ts";
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
  /** Bought calls into the record. */
  publishing: Pick<PublishingCalls, "record">;
  logger: Pick<Logger, "warn" | "error">;
  metrics: Pick<Metrics, "count">;
}

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

/** Orders that are looked at at one pace. */
interface Kind {
  of(order: Order): boolean;
  /** Between two looks at one order, ms; twice as much after each failure in succession, up to {@link SLOWEST_MS}. */
  everyMs: number;
  /** Orders at once, and in one turn: those that were looked at longest ago. */
  atOnce: number;
  most: number;
}

/** The first that fits is an order's kind. What brings money in is looked at most, and waits for no other kind. */
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

/** Transactions that may be sent to charge one buyer: of each, we paid the gas. */
const MAX_SENT = 3;
/** Addresses that are asked in one look whether they sent something back. */
const LOSSES_AT_ONCE = 20;

/**
 * Brings every order to its end, whoever began it (orders.md, Recovery): at a start and then again and again. It asks
 * the chain before it acts, never signs a second payment, and never says of a seller what only our own crash did. Each
 * order has its own time to be looked at again, so one that fails, or a node that is down, holds up no other.
 */
export class Recovery {
  readonly #due = new Map<string, Due>();
  /** Kinds whose turn is under way, and orders that are being looked at. */
  readonly #underWay = new Set<Kind>();
  readonly #looking = new Map<string, Promise<void>>();
  /** From which block on a loss is looked for next, by its order and leg; the one looked for longest ago comes first. */
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
   * A look at those that are due. Of a kind whose last turn is still under way none is begun.
   * @param pace times the pauses of {@link KINDS}
   */
  async turn(pace = 1): Promise<void> {
    await this.#catchUp();
    const idle = KINDS.filter((kind) => !this.#underWay.has(kind));
    await Promise.all(idle.map((kind) => this.#turnOf(kind, false, pace)));
  }

  /** Reads what is new, and begins cancellations: a signed payment is valid for 90 s, and no other order waits for them. */
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
    await allAtOnce(all ? due : due.slice(0, kind.most), kind.atOnce, async (order) => {
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

  /** Begins nothing any more; resolves once the cancellations under way are over. */
  async stop(): Promise<void> {
    this.#isOver = true;
    await this.#cancelling;
  }

  /** A few at once; what this process may not cancel costs no time. Never rejects. */
  async #cancelLeft(orders: readonly Order[]): Promise<void> {
    const { buying, logger } = this.deps;
    const leftMs = Math.min(LEFT_MS, buying.orders.staleMs);
    await allAtOnce(orders, CANCELS_AT_ONCE, async (order) => {
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

  /** Ours from its beginning, or left by a replica that has not moved it for long: the log's stamps decide. */
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
      const fault = pass ? null : leg.result ? ("seller" as const) : ("ours" as const);
      await orders.step(order, { state: "checked", leg: leg.leg, pass, last: true, fault });
    }
    if (failed(order)) await orders.step(order, letGo(order, "The answer did not pass."));
    else await orders.step(order, { state: "settle_intent" });
  }

  /**
   * The chain first; then the same payment again, as long as that may bring the money; once it can be used no more, it is
   * given up.
   */
  async #collect(order: Order): Promise<void> {
    const { buying } = this.deps;
    const { orders } = buying;
    const read = await buying.charged(order);
    const { value: seen } = read;
    if (seen?.amount === order.quote.total) return orders.step(order, await buying.settledAs(order, seen));
    if (isOver(read, order.validBefore, MARGIN_S))
      return orders.step(order, { state: "written_off", says: "The payment could not be collected in time." });
    if (!(await this.#mayCharge(order))) return;
    if (order.state === "settle_unknown") await orders.step(order, { state: "settle_intent" });
    await buying.settle(order);
  }

  /** A payer that held too little holds as much as then: the same again would be refused again. @throws ChainDown */
  async #mayCharge(order: Order): Promise<boolean> {
    if (order.sent.length >= MAX_SENT) return false;
    return order.refusedAt === null || (await this.deps.buying.payerHas(order)) !== order.refusedAt;
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
  async #watched(order: Order): Promise<void> {
    // Money under an escrow's authorization moves by our own hand only.
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
    if (isOver(read, order.validBefore, MARGIN_S)) await orders.step(order, { state: "expired" });
  }

  /** Is it worth to ask yet what became of something? The newest block says when, and never what. @throws ChainDown */
  async #isPast(time: number): Promise<boolean> {
    return (await this.deps.rail.head()).time > time;
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
   * which makes good one loss. A few in each look, those next that were not looked at for longest, each from the block on
   * that was read last; what a buyer left unpaid, or we lost ourselves, no seller sends back.
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
    // Whatever comes of it, all others are looked for before it is again.
    this.#scanned.delete(key);
    this.#scanned.set(key, sinceBlock);
    const read = await rail.transfers({ from: leg.payTo, to: leg.wallet, sinceBlock });
    const { value: back } = read;
    const taken = back.length === 0 ? new Set<string>() : table.recoveries();
    const isFree = (one: Settlement) => one.final && !taken.has(one.tx);
    const price = parseMoney(leg.price);
    const found = back.find((one) => isFree(one) && (atomicToMicro(one.amountAtomic, 6) ?? 0n) >= price);
    if (!found) this.#scanned.set(key, Math.max(sinceBlock, wholeUpTo(read) + 1));
    // Only who has something to say takes an order over: replicas that look again and again would write for ever.
    if (!found || !(await this.#isOurs(order)) || table.recoveries().has(found.tx)) return;
    const step = { state: "leg_recovered", leg: leg.leg, tx: found.tx, amount: moneyOf(found) } as const;
    await buying.orders.step(order, step);
  }
}

/** Does its seller have money for it that it may send back? */
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

/** Looks again and again, in real time, until stopped. What fails is made again. */
export function startRecovery(recovery: Recovery, logger: Pick<Logger, "warn">, everyMs = TURN_MS): Recovering {
  const tried = (work: () => Promise<void>) => () =>
    work().catch((error: unknown) => logger.warn({ err: error }, "orders could not be looked at; it is tried again"));
  // Not one after the other: a turn in which one kind takes long would hold up the charges of the next.
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
  const running = [repeating(begin, everyMs, systemClock), repeating(losses, LOSSES_MS, systemClock)];
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
