import type { AsOf, Blocks } from "../../infra/rails/rails.ts";
import { parseMoney } from "../record/money.ts";
import type { Gas } from "../record/order-step.ts";
import { type GasSums, sumGas } from "./gas.ts";
import { areLegsDecided, faultOf, type Leg, type Order } from "./order.ts";

/**
 * The books of all orders (calls that buyers bought through us) in one asset: each movement of money is booked as two
 * entries that sum to zero (orders.md, invariant 9). They are computed from the orders alone; {@link findDifferences}
 * compares them with the chain.
 */
export interface Books {
  /** Network (CAIP-2 id) and token contract, separated by a space, in lower case. */
  asset: string;
  /** Number of orders in this asset. */
  orders: number;
  /**
   * Balance of each account, millionths of the token. Debits are positive: accounts of what we have are above zero,
   * those of sales and debts below.
   */
  accounts: Map<string, bigint>;
  movements: Movement[];
  owed: Owed[];
  /** Gas of our own transactions, in the chain's coin. The accounts leave it out: they are in the token. */
  gas: GasSums;
}

/** One movement of money that the chain has confirmed, with what is needed to find it there. */
export interface Movement {
  order: string;
  /** A buyer paid us (charge), we paid a seller (call), a seller or we sent the money back (call sent back, refund). */
  what: "charge" | "call" | "call sent back" | "refund";
  tx: string;
  /** Millionths of the token. */
  micro: bigint;
  from: string;
  to: string;
  /** Nonce of the authorization that moved the money; null for a plain transfer or a capture: `tx` finds those. */
  nonce: string | null;
  sinceBlock: number;
  /** When the newest step of the order was appended to the log, unix seconds: the money moved before that. */
  recordedAt: number;
  /** The account of our wallet whose money moved: `till` receives from buyers, `float` pays sellers. */
  cash: "till" | "float";
  /** The account of the opposite entry, such as `sales`. */
  against: string;
}

/** A refund that we owe, money at risk in an open order (exposure), or a loss that was not paid back. */
export interface Owed {
  what: "refund" | "exposure" | "loss";
  /** Address of the buyer, for a refund and for a loss that the buyer caused; otherwise the seller's address. */
  who: string;
  order: string;
  micro: bigint;
  /** Who caused a loss. */
  fault?: "seller" | "buyer" | "ours";
}

const assetOf = ({ network, asset }: Order): string => `${network} ${asset}`.toLowerCase();

const recordedAtOf = ({ movedAt }: Order): number => movedAt / 1_000;

function legMovements(order: Order, leg: Leg): Movement[] {
  const fault = faultOf(order, leg);
  const against = fault ? `losses by ${fault}` : order.state === "settled" ? "calls bought" : "calls under way";
  const { id } = order;
  const recordedAt = recordedAtOf(order);
  const movements: Movement[] = [];
  if (leg.fate === "paid" && leg.tx !== null) {
    movements.push({
      ...{ order: id, what: "call", tx: leg.tx, micro: parseMoney(leg.price), from: leg.wallet, to: leg.payTo },
      ...{ nonce: leg.nonce, sinceBlock: leg.sinceBlock, recordedAt, cash: "float", against },
    });
  }
  if (leg.recovered !== null && leg.recoveredAmount !== null) {
    movements.push({
      ...{ order: id, what: "call sent back", tx: leg.recovered, micro: parseMoney(leg.recoveredAmount) },
      ...{ from: leg.payTo, to: leg.wallet, nonce: null, sinceBlock: leg.sinceBlock, recordedAt },
      ...{ cash: "float", against },
    });
  }
  return movements;
}

/** Returns every confirmed movement of an order's money. */
function movementsOf(order: Order): Movement[] {
  const { id, payer, payTo, nonce, sinceBlock, charged, refund, refunded } = order;
  const movements = order.legs.flatMap((leg) => legMovements(order, leg));
  const recordedAt = recordedAtOf(order);
  if (charged) {
    const against = order.state === "settled" ? "sales" : "refunds due";
    // With escrow the buyer's nonce moved the money into the escrow. The capture, which paid us, has no nonce.
    const isCaptured = order.scheme === "auth-capture";
    movements.push({
      ...{ order: id, what: "charge", tx: charged.tx, micro: parseMoney(charged.amount), from: payer, to: payTo },
      ...{ nonce: isCaptured ? null : nonce, cash: "till", against, sinceBlock, recordedAt },
    });
  }
  if (refunded && refund) {
    movements.push({
      ...{ order: id, what: "refund", tx: refunded.tx, micro: parseMoney(refunded.amount), from: refund.from },
      ...{ to: payer, nonce: refund.nonce, sinceBlock: refund.sinceBlock, recordedAt },
      ...{ cash: "till", against: "refunds due" },
    });
  }
  return movements;
}

function owedOf(order: Order): Owed[] {
  const { id } = order;
  const owed: Owed[] = [];
  if (order.charged && order.state.startsWith("refund") && order.state !== "refunded") {
    owed.push({ what: "refund", who: order.payer, order: id, micro: parseMoney(order.charged.amount) });
  }
  for (const leg of order.legs) {
    const { payTo, price, fate, recovered } = leg;
    const micro = parseMoney(price);
    const fault = faultOf(order, leg);
    const who = fault === "buyer" ? order.payer : payTo;
    const isOpen = fate === "unknown" || (fate === "paid" && !areLegsDecided(order));
    if (isOpen) owed.push({ what: "exposure", who: payTo, order: id, micro });
    else if (fate === "paid" && fault && recovered === null) owed.push({ what: "loss", who, order: id, micro, fault });
  }
  return owed;
}

const isIncoming = ({ what }: Movement): boolean => what === "charge" || what === "call sent back";

/** Makes the books of these orders, one for each asset. */
export function booksOf(orders: Iterable<Order>): Books[] {
  const books = new Map<string, Books>();
  const gasByBook = new Map<Books, Gas[]>();
  for (const order of orders) {
    const asset = assetOf(order);
    const book: Books = books.get(asset) ?? { asset, orders: 0, accounts: new Map(), movements: [], owed: [], gas: {} };
    books.set(asset, book);
    const bookGas = gasByBook.get(book) ?? [];
    bookGas.push(...order.gas);
    gasByBook.set(book, bookGas);
    book.orders++;
    const orderMovements = movementsOf(order);
    for (const movement of orderMovements) {
      const micro = isIncoming(movement) ? movement.micro : -movement.micro;
      const addToAccount = (account: string, amount: bigint) =>
        book.accounts.set(account, (book.accounts.get(account) ?? 0n) + amount);
      addToAccount(movement.cash, micro);
      addToAccount(movement.against, -micro);
    }
    book.movements.push(...orderMovements);
    book.owed.push(...owedOf(order));
  }
  return [...books.values()].map((book) => ({ ...book, gas: sumGas(gasByBook.get(book)!) }));
}

/** Reads the transfer of a movement from the chain. */
export interface ChainReader {
  settlementOf(query: { from: string; nonce: string; sinceBlock: number }): Promise<AsOf<ChainTransfer | null>>;
  transfersIn(tx: string): Promise<AsOf<ChainTransfer[]>>;
}
interface ChainTransfer {
  tx: string;
  from: string;
  to: string;
  amountAtomic: bigint;
}

/** A movement that the chain does not confirm. `says`: how the chain differs. */
export interface Difference {
  order: string;
  what: Movement["what"];
  tx: string;
  says: string;
  /**
   * true: the newest final block of the read is not later than the movement's `recordedAt`. The nodes may be behind, or
   * the movement's block may not be final yet, so a later read may still find the transfer.
   */
  unseen?: true;
}

/** Seconds by which the clock of the log and the times of the chain's blocks may differ. */
const CLOCK_MARGIN_S = 60;

/** Returns the difference of a movement that a read did not find. */
const notFound = ({ recordedAt }: Movement, { head, final }: Blocks): Finding => ({
  says: `the chain has no such transfer up to block ${head.number}`,
  ...(final.time < recordedAt + CLOCK_MARGIN_S && { unseen: true }),
});

type Finding = Pick<Difference, "says" | "unseen">;

/**
 * Compares each movement of the books with the chain's events: transaction, receiver and amount have to match, and no
 * transfer may be booked twice.
 * @throws what `chain` throws
 */
export async function findDifferences(movements: Iterable<Movement>, chain: ChainReader): Promise<Difference[]> {
  const differences: Difference[] = [];
  const timesBooked = new Map<string, number>();
  for (const movement of movements) {
    const { order, what, tx, from, to, micro, nonce } = movement;
    // A capture comes from the escrow, so its sender does not tell orders apart.
    const key = `${what} ${tx} ${what === "charge" ? "" : from} ${to} ${micro}`;
    const timesBefore = timesBooked.get(key) ?? 0;
    timesBooked.set(key, timesBefore + 1);
    const found =
      nonce === null
        ? await findPlainDifference(movement, timesBefore, chain)
        : await findDifference(movement, nonce, chain);
    if (found !== null) differences.push({ order, what, tx, ...found });
  }
  return differences;
}

/**
 * Compares a movement without a nonce with the transfers of its transaction.
 * @param timesBefore how often the books have such a transfer of this transaction before this movement
 */
async function findPlainDifference(
  movement: Movement,
  timesBefore: number,
  chain: ChainReader,
): Promise<Finding | null> {
  const { what, from, to, tx, micro } = movement;
  const { value: transfers, ...blocks } = await chain.transfersIn(tx);
  const isMatch = (one: ChainTransfer) =>
    one.to === to && one.amountAtomic === micro && (what === "charge" || one.from === from);
  const matches = transfers.filter(isMatch).length;
  if (matches === 0) return notFound(movement, blocks);
  // Two replicas may have recorded one transfer from a seller at the same time, each as the repayment of another loss.
  return matches > timesBefore ? null : { says: "it stands in the books twice" };
}

async function findDifference(movement: Movement, nonce: string, chain: ChainReader): Promise<Finding | null> {
  const { from, to, sinceBlock, tx, micro } = movement;
  const { value: transfer, ...blocks } = await chain.settlementOf({ from, nonce, sinceBlock });
  if (!transfer) return notFound(movement, blocks);
  if (transfer.tx !== tx) return { says: `the chain has it in ${transfer.tx}` };
  if (transfer.to !== to) return { says: `on the chain it went to ${transfer.to}` };
  if (transfer.amountAtomic === micro) return null;
  return { says: `on the chain it is of ${transfer.amountAtomic} micro-units` };
}
