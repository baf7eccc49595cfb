import type { StoredFold } from "../../infra/log/fold-file.ts";
import type { LogRecord } from "../../infra/log/log.ts";
import { readRecord } from "../record/envelope.ts";
import { parseMoney } from "../record/money.ts";
import type { OrderStep } from "../record/order-step.ts";
import { platformOf } from "../record/url.ts";
import { advance, begun, faultOf, isClosed, isEnded, type Leg, type Order, type ReadAt, unpaidLegs } from "./order.ts";
import { SUM, Sums, stakesOf } from "./stakes.ts";

/** Closed orders (no step can follow) that are kept in memory; beyond it the one that was closed longest ago is dropped. */
const MAX_CLOSED = 100_000;

/** Money that we paid to a seller, or that the seller may still take, for a call that no buyer paid us for. */
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
   * Who caused it. `seller`: its answer did not pass. `buyer`: the payment could not be collected. `ours`: we stopped
   * midway. Only the first counts against the seller; otherwise a buyer that empties its wallet could keep all other buyers
   * from that seller.
   */
  fault: "seller" | "buyer" | "ours";
  micro: bigint;
}

type Kept = { order: Order; open: boolean } | { closed: string };

/**
 * All orders, folded from the topic `orders`; every replica arrives at the same table. Of two claims to one key the first in
 * the log makes the order, whichever replica wrote it, and the buyer of the second one gets that order. A record that is
 * read twice changes nothing the second time.
 */
export class OrderTable implements StoredFold {
  readonly form = "orders.7";
  readonly #byId = new Map<string, Order>();
  readonly #byKey = new Map<string, Order>();
  /** The newest order of each identifier that a payer gave. */
  readonly #byIdentifier = new Map<string, Order>();
  readonly #byPayer = new Map<string, Set<Order>>();
  readonly #open = new Set<Order>();
  readonly #closed = new Set<Order>();
  /**
   * Orders that ended with our money at a seller whose answer did not pass. They stay here until the seller sends it back.
   */
  readonly #owing = new Set<Order>();
  readonly #sums = new Sums();

  /** @param maxClosed closed orders that are kept in memory; `touchstone ledger` keeps all */
  constructor(private readonly maxClosed = MAX_CLOSED) {}

  get(id: string): Order | undefined {
    return this.#byId.get(id);
  }

  /** The order that has this payment. */
  ofKey(key: string): Order | undefined {
    return this.#byKey.get(key);
  }

  /** The newest order for which this wallet gave this identifier. */
  identified(payer: string, identifier: string): Order | undefined {
    return this.#byIdentifier.get(`${payer.toLowerCase()} ${identifier}`);
  }

  /** Orders of a wallet, newest first. The order does not depend on the order in which a replica read the partitions. */
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

  /** What the payer of this order owes for its orders that were claimed after this one, micro-units. */
  dueAfter(order: Order): bigint {
    let sum = 0n;
    for (const other of this.#byPayer.get(order.payer) ?? []) {
      const isDue = stakesOf(other).find(([name]) => name === SUM.due(order.payer));
      if (isDue && isLater(other, order)) sum += isDue[1];
    }
    return sum;
  }

  /** Losses of all known orders that were not paid back. */
  *losses(): Generator<Loss> {
    for (const order of this.#byId.values()) {
      if (isEnded(order)) for (const leg of unpaidLegs(order)) yield lossOf(order, leg);
    }
  }

  /** Orders that ended with money at a seller that may send it back. */
  owing(): Iterable<Order> {
    return this.#owing;
  }

  /** Has this address money of ours for a call that did not pass, or may it still take it? @param payTo lower case */
  owes(payTo: string): boolean {
    return this.sum(SUM.owes(payTo)) > 0n;
  }

  /** Transactions by which sellers paid losses back. One transaction pays back one loss. */
  recoveries(): Set<string> {
    const legs = [...this.#byId.values()].flatMap((order) => order.legs);
    return new Set(legs.flatMap(({ recovered }) => (recovered === null ? [] : [recovered])));
  }

  /**
   * Fold one record of the topic; a record that is no step of an order is skipped. @returns true when it changed an order
   */
  apply(record: LogRecord): boolean {
    const read = readRecord(record);
    if (!read.ok || read.envelope.type !== "order.step") return false;
    const step = read.envelope.body as OrderStep;
    // The key decides the partition, so a step under another key than its order's does not belong to the order.
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
    const all = [
      this.#byId,
      this.#byKey,
      this.#byIdentifier,
      this.#byPayer,
      this.#open,
      this.#closed,
      this.#owing,
      this.#sums,
    ];
    for (const held of all) held.clear();
  }

  #add(order: Order): Order {
    this.#byId.set(order.id, order);
    this.#byKey.set(order.key, order);
    if (order.identifier !== null) {
      const named = `${order.payer} ${order.identifier}`;
      const before = this.#byIdentifier.get(named);
      if (!before || isLater(order, before)) this.#byIdentifier.set(named, order);
    }
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
    const named = `${order.payer} ${order.identifier}`;
    if (this.#byIdentifier.get(named) === order) this.#byIdentifier.delete(named);
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
