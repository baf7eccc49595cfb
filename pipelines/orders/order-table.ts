import type { StoredFold } from "../../infra/log/fold-file.ts";
import type { LogRecord } from "../../infra/log/log.ts";
import { readRecord } from "../record/envelope.ts";
import { parseMoney } from "../record/money.ts";
import type { OrderStep } from "../record/order-step.ts";
import { platformOf } from "../record/url.ts";
import {
  type AppendedPlace,
  advance,
  areLegsDecided,
  faultOf,
  isClosed,
  type Leg,
  type Order,
  orderFromClaim,
  unpaidLegs,
} from "./order.ts";
import { debtNamesOf, type SellerIdentity, type Stake, SUM, Sums, stakesOf } from "./stakes.ts";

/**
 * Largest number of closed orders (for which no money can move any more) in memory. If there are more, the one that was
 * closed first is dropped.
 */
const MAX_CLOSED = 100_000;

/** Money that we paid to a seller, or that the seller may still take, for a call for which no buyer paid us. */
export interface Loss {
  order: string;
  leg: number;
  /** UTC day of the order. */
  day: string;
  /** Address of the seller. */
  payTo: string;
  /** Domain of the endpoint; all names under one hosting platform count as one domain. */
  platform: string;
  /** Capability id of the endpoint. */
  cap: string;
  /** Buyer of the order, lower case. */
  payer: string;
  /**
   * Who caused the loss. `seller`: the seller's answer did not pass. `buyer`: the buyer's payment could not be
   * collected. `ours`: our process stopped midway, or could not send the charge. Only a loss with fault `seller` counts
   * against the seller; otherwise a buyer that empties its wallet could block the seller for all other buyers.
   */
  fault: "seller" | "buyer" | "ours";
  /** Price of the call, millionths of a dollar. */
  micro: bigint;
}

/** A token of a chain. */
export interface Money {
  /** CAIP-2. */
  network: string;
  /** Contract address. */
  asset: string;
}

/** A transfer by which a seller paid back a loss. One transaction may have several. */
export interface Repayment {
  tx: string;
  /** Dollars as text. */
  amount: string;
  /** Address of the seller. */
  from: string;
  /** Our wallet that had paid the seller. */
  to: string;
}

/**
 * One entry of the saved table: an order, and whether it is open; or, after all orders, the id of a closed order. The
 * ids are in the sequence in which the orders were closed.
 */
type SavedEntry = { order: Order; open: boolean } | { closed: string };

/**
 * All orders (calls that buyers buy through us), computed by applying the steps in the log topic `orders` one after
 * the other, so that every replica has the same table. Of two claims (first steps) for one payment the first in the
 * log makes the order, and the buyer of the second gets that order. A record that is read twice changes nothing the
 * second time.
 */
export class OrderTable implements StoredFold {
  readonly form = "orders.8";
  readonly #byId = new Map<string, Order>();
  readonly #byKey = new Map<string, Order>();
  /** The newest order for each payer and identifier that the payer's client gave, by `payer identifier`. */
  readonly #byIdentifier = new Map<string, Order>();
  readonly #byPayer = new Map<string, Set<Order>>();
  readonly #open = new Set<Order>();
  readonly #closed = new Set<Order>();
  /**
   * Orders that ended, or whose buyer is being refunded, and whose seller has our money, or may take it, though its
   * answer did not pass. They stay here until the seller sends it back.
   */
  readonly #owedBySellers = new Set<Order>();
  readonly #sums = new Sums();

  /**
   * @param maxClosed most closed orders in memory; `touchstone ledger` needs all
   * @param sold the money that calls are sold for now; orders in other money are in no sum, and neither open nor owed.
   * null: orders in any money
   */
  constructor(
    private readonly maxClosed = MAX_CLOSED,
    private readonly sold: Money | null = null,
  ) {}

  /** Is the order in the money that calls are sold for now? */
  #isSold({ network, asset }: Order): boolean {
    const { sold } = this;
    return sold === null || (network === sold.network && asset.toLowerCase() === sold.asset.toLowerCase());
  }

  #stakesOf(order: Order): Stake[] {
    return this.#isSold(order) ? stakesOf(order) : [];
  }

  get(id: string): Order | undefined {
    return this.#byId.get(id);
  }

  /** Returns the order that has this payment. */
  ofKey(key: string): Order | undefined {
    return this.#byKey.get(key);
  }

  /** Returns the newest order for which this wallet gave this identifier. */
  ofIdentifier(payer: string, identifier: string): Order | undefined {
    return this.#byIdentifier.get(`${payer.toLowerCase()} ${identifier}`);
  }

  /**
   * Returns the orders of a wallet, newest first. All replicas return them in the same sequence, whichever partition
   * they read first.
   */
  ofPayer(address: string): Order[] {
    const orders = [...(this.#byPayer.get(address.toLowerCase()) ?? [])];
    return orders.sort((a, b) => (isLater(a, b) ? -1 : 1));
  }

  /**
   * Returns the orders that are not closed: money may still move for them, or their call is not in the public record
   * yet.
   */
  open(): readonly Order[] {
    return [...this.#open].filter((order) => this.#isSold(order));
  }

  /** Counts the orders in other money than calls are sold for now that are not closed or whose seller owes us. */
  countLeftOut(): number {
    const unfinishedOrders = new Set([...this.#open, ...this.#owedBySellers]);
    return [...unfinishedOrders].filter((order) => !this.#isSold(order)).length;
  }

  /** Returns every known order, in the sequence in which their first steps were read. */
  all(): IterableIterator<Order> {
    return this.#byId.values();
  }

  /** Counts the orders in each state. */
  countByState(): Map<Order["state"], number> {
    const counts = new Map<Order["state"], number>();
    for (const { state } of this.#byId.values()) counts.set(state, (counts.get(state) ?? 0) + 1);
    return counts;
  }

  /**
   * Returns the sum with this name ({@link SUM}) over all known orders in the money that calls are sold for: millionths
   * of a dollar, or a count.
   */
  sum(name: string): bigint {
    return this.#sums.get(name);
  }

  /**
   * Returns what the payer of this order has to pay for its orders that were created after this one and are not
   * charged yet, millionths of a dollar.
   */
  dueAfter(order: Order): bigint {
    let sum = 0n;
    for (const otherOrder of this.#byPayer.get(order.payer) ?? []) {
      const dueStake = this.#stakesOf(otherOrder).find(([name]) => name === SUM.due(order.payer));
      if (dueStake && isLater(otherOrder, order)) sum += dueStake[1];
    }
    return sum;
  }

  /** Yields the losses of all known orders that were not paid back. */
  *losses(): Generator<Loss> {
    for (const order of this.#byId.values()) {
      if (areLegsDecided(order)) for (const leg of unpaidLegs(order)) yield lossOf(order, leg);
    }
  }

  /** Returns the orders whose seller owes us: it has our money, or may take it, for an answer that failed. */
  owedBySellers(): Iterable<Order> {
    return [...this.#owedBySellers].filter((order) => this.#isSold(order));
  }

  /**
   * Has this seller our money for an answer that did not pass, or may the seller still take it? Debts of its endpoint
   * count, and debts of its address if the endpoint has no letter ({@link debtNamesOf}).
   */
  isOwedBy(seller: SellerIdentity): boolean {
    return debtNamesOf(seller).some((where) => this.sum(SUM.owes(where)) > 0n);
  }

  /**
   * Has another order, which is not closed, a payment of ours with the wallet and nonce of this order's newest leg,
   * that its seller took or may take? A seller chooses the nonce of a payment by mpp, and may give two of our processes
   * one challenge. Such payments move money once, and the chain does not tell for which of them. (A nonce that the
   * chain shows as used is not signed.)
   */
  sharesNonce(order: Order): boolean {
    const { wallet, nonce } = order.legs.at(-1)!;
    const isSameNonce = (leg: Leg): boolean => leg.wallet === wallet && leg.nonce === nonce && leg.fate !== "unpaid";
    return [...this.#open].some((other) => other !== order && other.legs.some(isSameNonce));
  }

  /** Yields the transfers by which sellers paid back losses, one for each loss. Amounts are dollars as text. */
  *repayments(): Generator<Repayment> {
    for (const { legs } of this.#byId.values()) {
      for (const { recovered: tx, recoveredAmount: amount, payTo: from, wallet: to } of legs) {
        if (tx !== null && amount !== null) yield { tx, amount, from, to };
      }
    }
  }

  /**
   * Applies one record of the topic; a record that is no step of an order is skipped.
   * @returns true when it changed an order
   */
  apply(record: LogRecord): boolean {
    const read = readRecord(record);
    if (!read.ok || read.envelope.type !== "order.step") return false;
    const step = read.envelope.body as OrderStep;
    // A record's key determines its partition. A step whose own key differs may be in another partition than its
    // order's steps, so it is skipped.
    if (read.envelope.key !== step.key) return false;
    const { partition, offset, appendedAt } = record;
    return this.#applyStep(step, { partition, offset, appendedAt, bytes: record.value.byteLength });
  }

  *kept(): Generator<SavedEntry> {
    for (const order of this.#byId.values()) {
      yield { order, open: this.#open.has(order) };
    }
    for (const { id } of this.#closed) yield { closed: id };
  }

  restore(value: unknown): void {
    const entry = value as SavedEntry;
    if ("closed" in entry) {
      this.#closed.add(this.#byId.get(entry.closed)!);
      return;
    }
    this.#add(entry.order);
    this.#sums.add(this.#stakesOf(entry.order));
    if (entry.open) this.#open.add(entry.order);
    if (sellerOwes(entry.order)) this.#owedBySellers.add(entry.order);
  }

  clear(): void {
    const collections = [
      this.#byId,
      this.#byKey,
      this.#byIdentifier,
      this.#byPayer,
      this.#open,
      this.#closed,
      this.#owedBySellers,
      this.#sums,
    ];
    for (const collection of collections) collection.clear();
  }

  #add(order: Order): Order {
    this.#byId.set(order.id, order);
    this.#byKey.set(order.key, order);
    if (order.identifier !== null) {
      const identifierKey = `${order.payer} ${order.identifier}`;
      const newest = this.#byIdentifier.get(identifierKey);
      if (!newest || isLater(order, newest)) this.#byIdentifier.set(identifierKey, order);
    }
    const payersOrders = this.#byPayer.get(order.payer) ?? new Set();
    this.#byPayer.set(order.payer, payersOrders.add(order));
    return order;
  }

  #applyStep(step: OrderStep, at: AppendedPlace): boolean {
    if (step.state === "claimed") {
      if (this.#byKey.has(step.key) || this.#byId.has(step.order)) return false;
      this.#updateIndexes(this.#add(orderFromClaim(step, at)));
      return true;
    }
    const order = this.#byId.get(step.order);
    if (!order || order.key !== step.key) return false;
    const stakesBefore = this.#stakesOf(order);
    if (!advance(order, step, at)) return false;
    this.#sums.add(stakesBefore, -1n);
    this.#updateIndexes(order);
    return true;
  }

  /** Adds the order to the sums, and to the sets of open, closed and owed orders, by its new state. */
  #updateIndexes(order: Order): void {
    this.#sums.add(this.#stakesOf(order));
    if (sellerOwes(order)) this.#owedBySellers.add(order);
    else this.#owedBySellers.delete(order);
    const isNowClosed = isClosed(order);
    if (isNowClosed) this.#open.delete(order);
    else this.#open.add(order);
    if (isNowClosed && !this.#owedBySellers.has(order)) this.#closed.add(order);
    else this.#closed.delete(order);
    if (this.#closed.size > this.maxClosed) this.#forget(this.#closed.values().next().value!);
  }

  /** Drops a closed order. The buyer's payment was used or has expired, so no new order can be made with it. */
  #forget(order: Order): void {
    this.#sums.add(this.#stakesOf(order), -1n);
    this.#closed.delete(order);
    this.#byId.delete(order.id);
    this.#byKey.delete(order.key);
    const identifierKey = `${order.payer} ${order.identifier}`;
    if (this.#byIdentifier.get(identifierKey) === order) this.#byIdentifier.delete(identifierKey);
    const payersOrders = this.#byPayer.get(order.payer);
    payersOrders?.delete(order);
    if (payersOrders?.size === 0) this.#byPayer.delete(order.payer);
  }
}

/**
 * Compares by creation time, then id, so that every replica has the same sequence, whichever partition it read first.
 */
const isLater = (a: Order, b: Order): boolean =>
  a.createdAt === b.createdAt ? a.id > b.id : a.createdAt > b.createdAt;

const sellerOwes = (order: Order): boolean => unpaidLegs(order).some((leg) => faultOf(order, leg) === "seller");

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
