import type { KeptFold } from "../../infra/log/fold-file.ts";
import type { LogRecord } from "../../infra/log/log.ts";
import { readRecord } from "../record/envelope.ts";
import { parseMoney } from "../record/money.ts";
import type { OrderStep } from "../record/order-step.ts";
import { platformOf } from "../record/url.ts";
import { advance, begun, faultOf, isClosed, isEnded, type Leg, type Order, type ReadAt, unpaidLegs } from "./order.ts";
import { SUM, Sums, stakesOf } from "./stakes.ts";

/** Orders that nothing can happen to any more and that can still be read; the one closed longest ago goes first. */
const MAX_CLOSED = 100_000;

/** Money that a seller has, or may have, of a call that nobody paid us for. */
export interface Loss {
  order: string;
  leg: number;
  /** UTC day of the order. */
  day: string;
  payTo: string;
  platform: string;
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

type Kept = { order: Order; open: boolean } | { closed: string };

/**
 * All orders as the topic `orders` tells them: the same fold on every replica. Of two claims to one key the first in the
 * log stands, whoever wrote it; the other replica's buyer joins it. A record that comes twice changes nothing the second
 * time.
 */
export class OrderTable implements KeptFold {
  readonly form = "orders.5";
  readonly #byId = new Map<string, Order>();
  readonly #byKey = new Map<string, Order>();
  readonly #byPayer = new Map<string, Set<Order>>();
  readonly #open = new Set<Order>();
  readonly #closed = new Set<Order>();
  /** Orders that ended with money at a seller that gave nothing good for it. They are kept until it is made good. */
  readonly #owing = new Set<Order>();
  readonly #sums = new Sums();

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
    return orders.sort((a, b) => (isLater(a, b) ? -1 : 1));
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

  /** A sum over all orders that are known, by its name ({@link SUM}): micro-units, or a count. */
  sum(name: string): bigint {
    return this.#sums.of(name);
  }

  /** Of what an order's payer has to cover, the part of orders that were claimed after it, micro-units. */
  dueAfter(order: Order): bigint {
    let sum = 0n;
    for (const other of this.#byPayer.get(order.payer) ?? []) {
      const isDue = stakesOf(other).find(([name]) => name === SUM.due(order.payer));
      if (isDue && isLater(other, order)) sum += isDue[1];
    }
    return sum;
  }

  /** Losses that nobody has made good, of all orders that are known. */
  *losses(): Generator<Loss> {
    for (const order of this.#byId.values()) {
      if (isEnded(order)) for (const leg of unpaidLegs(order)) yield lossOf(order, leg);
    }
  }

  /** Orders that ended with money at a seller that may send it back. */
  owing(): Iterable<Order> {
    return this.#owing;
  }

  /** Has this address, or may it have, money of ours for a call of its that did not pass? @param payTo lower case */
  owes(payTo: string): boolean {
    return this.sum(SUM.owes(payTo)) > 0n;
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
    const { partition, offset, appendedAt } = record;
    return this.#step(step, { partition, offset, appendedAt, bytes: record.value.byteLength });
  }

  *kept(): Generator<Kept> {
    for (const order of this.#byId.values()) {
      yield { order, open: this.#open.has(order) };
    }
    for (const { id } of this.#closed) yield { closed: id };
  }

  restore(value: unknown): void {
    const kept = value as Kept;
    if ("closed" in kept) {
      this.#closed.add(this.#byId.get(kept.closed)!);
      return;
    }
    this.#add(kept.order);
    this.#sums.add(stakesOf(kept.order));
    if (kept.open) this.#open.add(kept.order);
    if (hasOwing(kept.order)) this.#owing.add(kept.order);
  }

  clear(): void {
    const all = [this.#byId, this.#byKey, this.#byPayer, this.#open, this.#closed, this.#owing, this.#sums];
    for (const held of all) held.clear();
  }

  #add(order: Order): Order {
    this.#byId.set(order.id, order);
    this.#byKey.set(order.key, order);
    const ofPayer = this.#byPayer.get(order.payer) ?? new Set();
    this.#byPayer.set(order.payer, ofPayer.add(order));
    return order;
  }

  #step(step: OrderStep, at: ReadAt): boolean {
    if (step.state === "claimed") {
      if (this.#byKey.has(step.key) || this.#byId.has(step.order)) return false;
      this.#book(this.#add(begun(step, at)));
      return true;
    }
    const order = this.#byId.get(step.order);
    if (!order || order.key !== step.key) return false;
    const before = stakesOf(order);
    if (!advance(order, step, at)) return false;
    this.#sums.add(before, -1n);
    this.#book(order);
    return true;
  }

  /** What the order's new state means for what is out, lost and kept. */
  #book(order: Order): void {
    this.#sums.add(stakesOf(order));
    if (hasOwing(order)) this.#owing.add(order);
    else this.#owing.delete(order);
    const closed = isClosed(order);
    if (closed) this.#open.delete(order);
    else this.#open.add(order);
    if (closed && !this.#owing.has(order)) this.#closed.add(order);
    else this.#closed.delete(order);
    if (this.#closed.size > this.maxClosed) this.#forget(this.#closed.values().next().value!);
  }

  /** Its payment can be used no more, so nobody can claim it anew. */
  #forget(order: Order): void {
    this.#sums.add(stakesOf(order), -1n);
    this.#closed.delete(order);
    this.#byId.delete(order.id);
    this.#byKey.delete(order.key);
    const ofPayer = this.#byPayer.get(order.payer);
    ofPayer?.delete(order);
    if (ofPayer?.size === 0) this.#byPayer.delete(order.payer);
  }
}

/** The same order of orders at every replica, in whatever order it read the partitions. */
const isLater = (a: Order, b: Order): boolean =>
  a.createdAt === b.createdAt ? a.id > b.id : a.createdAt > b.createdAt;

const hasOwing = (order: Order): boolean =>
  isEnded(order) && unpaidLegs(order).some((leg) => faultOf(order, leg) === "seller");

const lossOf = (order: Order, leg: Leg): Loss => ({
  order: order.id,
  leg: leg.leg,
  day: order.createdAt.slice(0, 10),
  payTo: leg.payTo,
  platform: platformOf(leg.url),
  cap: leg.cap,
  payer: order.payer,
  fault: faultOf(order, leg) ?? "ours",
  micro: parseMoney(leg.price),
});
