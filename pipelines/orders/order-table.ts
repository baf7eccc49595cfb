import type { KeptFold } from "../../infra/log/fold-file.ts";
import type { LogRecord } from "../../infra/log/log.ts";
import { readRecord } from "../record/envelope.ts";
import { parseMoney } from "../record/money.ts";
import type { OrderStep } from "../record/order-step.ts";
import { registrableDomain } from "../record/url.ts";
import { advance, begun, faultOf, isClosed, isEnded, type Leg, type Order, type ReadAt, unpaidLegs } from "./order.ts";

/** Orders that nothing can happen to any more and that can still be read; the one closed longest ago goes first. */
const MAX_CLOSED = 100_000;

/** Money that a seller has, or may have, of a call that nobody paid us for. */
export interface Loss {
  order: string;
  leg: number;
  /** UTC day of the order. */
  day: string;
  payTo: string;
  domain: string;
  cap: string;
  /** Buyer of the order, lower case. */
  payer: string;
  /**
   * Whose doing it is: the seller gave nothing good; the buyer's payment could not be collected; we stopped midway. Only
   * the first is ever held against the seller: a buyer that empties its wallet must not shut others out of a shop.
   */
  fault: "seller" | "buyer" | "ours";
  micro: bigint;
}

const lossKey = ({ id }: Pick<Order, "id">, { leg }: Pick<Leg, "leg">): string => `${id} ${leg}`;

type Kept = { order: Order; open: boolean } | { closed: string } | { loss: Omit<Loss, "micro"> & { micro: string } };

/**
 * All orders as the topic `orders` tells them: the same fold on every replica. Of two claims to one key the first in the
 * log stands, whoever wrote it; the other replica's buyer joins it. A record that comes twice changes nothing the second
 * time.
 */
export class OrderTable implements KeptFold {
  readonly form = "orders.4";
  readonly #byId = new Map<string, Order>();
  readonly #byKey = new Map<string, Order>();
  readonly #byPayer = new Map<string, Set<Order>>();
  readonly #open = new Set<Order>();
  readonly #closed = new Set<Order>();
  readonly #losses = new Map<string, Loss>();
  /** Address -> how many losses by its own fault it has not made good. */
  readonly #owing = new Map<string, number>();

  /** @param maxClosed closed orders that are kept; the books keep them all */
  constructor(private readonly maxClosed = MAX_CLOSED) {}

  get(id: string): Order | undefined {
    return this.#byId.get(id);
  }

  /** The order that has this payment. */
  ofKey(key: string): Order | undefined {
    return this.#byKey.get(key);
  }

  /** Orders of a wallet, newest first; alike on every replica, in whatever order it read the partitions. */
  ofPayer(address: string): Order[] {
    const orders = [...(this.#byPayer.get(address.toLowerCase()) ?? [])];
    const later = (a: Order, b: Order) => (a.createdAt === b.createdAt ? a.id > b.id : a.createdAt > b.createdAt);
    return orders.sort((a, b) => (later(a, b) ? -1 : 1));
  }

  /** Orders of which money may still move, in the order of their claims. */
  open(): readonly Order[] {
    return [...this.#open];
  }

  /** Every order that is known, oldest first. */
  all(): IterableIterator<Order> {
    return this.#byId.values();
  }

  /** How many orders are in each state. */
  counts(): Map<Order["state"], number> {
    const counts = new Map<Order["state"], number>();
    for (const { state } of this.#byId.values()) counts.set(state, (counts.get(state) ?? 0) + 1);
    return counts;
  }

  /** Transactions of ours for calls of a payer on a UTC day that came to nothing. @param payer lower case */
  wasted(payer: string, day: string): number {
    let count = 0;
    for (const order of this.#byPayer.get(payer) ?? []) {
      if (order.createdAt.startsWith(day)) count += order.gas.filter(({ kind }) => isWasted(order, kind)).length;
    }
    return count;
  }

  /** What sellers may have of orders under way, micro-units: of all of them, or of one payer. */
  exposure(payer?: string): bigint {
    let sum = 0n;
    for (const order of this.#open) {
      if (!isEnded(order) && (payer === undefined || order.payer === payer)) sum += parseMoney(order.quote.price);
    }
    return sum;
  }

  /** What sellers may have of calls whose end is not known, as it would be lost. */
  *underWay(): Generator<Loss> {
    for (const order of this.#open) {
      if (!isEnded(order)) for (const leg of unpaidLegs(order)) yield lossOf(order, leg);
    }
  }

  /** Losses that nobody has made good. */
  losses(): IterableIterator<Loss> {
    return this.#losses.values();
  }

  /** Has this address, or may it have, money of ours for a call of its that did not pass? @param payTo lower case */
  owes(payTo: string): boolean {
    return this.#owing.has(payTo);
  }

  /** Transactions that made a loss good: each of them makes good one. */
  recoveries(): Set<string> {
    const legs = [...this.#byId.values()].flatMap((order) => order.legs);
    return new Set(legs.flatMap(({ recovered }) => (recovered === null ? [] : [recovered])));
  }

  /** One record of the topic; what is none of an order's is passed over. @returns whether it changed an order */
  apply(record: LogRecord): boolean {
    const read = readRecord(record);
    if (!read.ok || read.envelope.type !== "order.step") return false;
    const step = read.envelope.body as OrderStep;
    // The key decides the partition: a step under another key is none of that order's.
    if (read.envelope.key !== step.key) return false;
    const order = this.#step(step, record);
    if (!order) return false;
    this.#book(order);
    return true;
  }

  *kept(): Generator<Kept> {
    for (const order of this.#byId.values()) {
      yield { order, open: this.#open.has(order) };
    }
    for (const { id } of this.#closed) yield { closed: id };
    for (const loss of this.#losses.values()) yield { loss: { ...loss, micro: String(loss.micro) } };
  }

  restore(value: unknown): void {
    const kept = value as Kept;
    if ("order" in kept) {
      this.#add(kept.order);
      if (kept.open) this.#open.add(kept.order);
    } else if ("closed" in kept) this.#closed.add(this.#byId.get(kept.closed)!);
    else {
      const loss = { ...kept.loss, micro: BigInt(kept.loss.micro) };
      this.#count(lossKey({ id: loss.order }, loss), loss);
    }
  }

  clear(): void {
    const all = [this.#byId, this.#byKey, this.#byPayer, this.#open, this.#closed, this.#losses, this.#owing];
    for (const held of all) held.clear();
  }

  #add(order: Order): Order {
    this.#byId.set(order.id, order);
    this.#byKey.set(order.key, order);
    const ofPayer = this.#byPayer.get(order.payer) ?? new Set();
    this.#byPayer.set(order.payer, ofPayer.add(order));
    return order;
  }

  #step(step: OrderStep, at: ReadAt): Order | null {
    if (step.state === "claimed") {
      if (this.#byKey.has(step.key) || this.#byId.has(step.order)) return null;
      return this.#add(begun(step, at));
    }
    const order = this.#byId.get(step.order);
    return order && order.key === step.key && advance(order, step, at) ? order : null;
  }

  /** What the order's new state means for what is out, lost and kept. */
  #book(order: Order): void {
    for (const leg of order.legs) this.#count(lossKey(order, leg), null);
    if (isEnded(order)) for (const leg of unpaidLegs(order)) this.#count(lossKey(order, leg), lossOf(order, leg));
    if (isClosed(order)) {
      this.#open.delete(order);
      this.#closed.add(order);
    } else this.#open.add(order);
    if (this.#closed.size > this.maxClosed) this.#forget(this.#closed.values().next().value!);
  }

  /** A loss as it stands now, in the place of what was known of it. */
  #count(key: string, loss: Loss | null): void {
    const before = this.#losses.get(key);
    for (const [one, by] of [[before, -1] as const, [loss, 1] as const]) {
      if (one?.fault !== "seller") continue;
      const n = (this.#owing.get(one.payTo) ?? 0) + by;
      if (n === 0) this.#owing.delete(one.payTo);
      else this.#owing.set(one.payTo, n);
    }
    if (loss) this.#losses.set(key, loss);
    else this.#losses.delete(key);
  }

  /** Its payment can be used no more, so nobody can claim it anew. */
  #forget(order: Order): void {
    this.#closed.delete(order);
    this.#byId.delete(order.id);
    this.#byKey.delete(order.key);
    const ofPayer = this.#byPayer.get(order.payer);
    ofPayer?.delete(order);
    if (ofPayer?.size === 0) this.#byPayer.delete(order.payer);
  }
}

/**
 * Of an order that was not settled every transaction came to nothing, a charge or a capture that was undone at once: but a
 * hold may still be captured while the order is under way. What was given back or cancelled did, however the order ended.
 */
function isWasted(order: Order, kind: Order["gas"][number]["kind"]): boolean {
  if (kind === "void" || kind === "cancel") return true;
  return order.state !== "settled" && (kind !== "hold" || isEnded(order));
}

const lossOf = (order: Order, leg: Leg): Loss => ({
  order: order.id,
  leg: leg.leg,
  day: order.createdAt.slice(0, 10),
  payTo: leg.payTo,
  domain: registrableDomain(leg.url),
  cap: leg.cap,
  payer: order.payer,
  fault: faultOf(order, leg) ?? "ours",
  micro: parseMoney(leg.price),
});
