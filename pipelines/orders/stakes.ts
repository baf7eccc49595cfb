import { parseMoney } from "../record/money.ts";
import { platformOf } from "../record/url.ts";
import { areLegsDecided, faultOf, isWasted, type Leg, type Order, unpaidLegs } from "./order.ts";

/**
 * What one order (a call that a buyer buys through us) adds to one of the sums that the caps (caps.ts) limit: the sum's
 * name, and an amount in millionths of a dollar, or a count. An order in progress adds the money at risk to the sums of
 * its buyer and its seller. An order that ended with a loss, or whose buyer is being refunded, adds the loss to the
 * sums of the buyer or seller that caused it. A loss that a seller caused is also in the sums `failed` of the buyer.
 */
export type Stake = readonly [sum: string, amount: bigint];

/**
 * Names of the sums. `who`: a payer or the IP network of its client; `where`: an address, a platform (domain) or an
 * endpoint of a seller.
 */
export const SUM = {
  /**
   * Money at risk for orders in progress that are paid after delivery: of one buyer or IP network, and of all orders
   * without credit.
   */
  open: (who: string) => `open ${who}`,
  openInAll: "open",
  /** Money at risk for orders on credit, that is, covered by the fees that their payer has paid before. */
  onCredit: (payer: string) => `credit ${payer}`,
  /** What a payer's wallet has to cover: the total prices of the payer's orders that are not charged yet. */
  due: (payer: string) => `due ${payer}`,
  /** The part of `due` that belongs to orders whose charge is being sent. */
  settling: (payer: string) => `settling ${payer}`,
  /** Payments in orders in progress to a seller whose answer has not passed, or not yet. */
  out: (where: string) => `out ${where}`,
  /**
   * Money lost in a UTC day: through one buyer or seller (`who` is here the name of either); and in all orders without
   * credit, through their buyers and our own faults.
   */
  lost: (day: string, who: string) => `lost ${day} ${who}`,
  lostInAll: (day: string) => `lost ${day}`,
  /**
   * Money lost in a UTC day through sellers, in orders of one buyer or network. The buyer need not have caused it, but
   * its input may have.
   */
  failed: (day: string, who: string) => `failed ${day} ${who}`,
  /** Money lost through sellers in a payer's orders on credit, over all known orders. */
  failedOnCredit: (payer: string) => `failed on credit ${payer}`,
  /** Fees that a payer has paid, and amounts that it left unpaid, over all known orders. */
  fees: (payer: string) => `fees ${payer}`,
  unpaid: (payer: string) => `unpaid ${payer}`,
  /** Number of losses that were caused at this address or endpoint and are not paid back. */
  owes: (where: string) => `owes ${where}`,
  /**
   * For the orders of a UTC day: failed transactions that we sent, and bytes that we store for orders that are not
   * charged.
   */
  wasted: (day: string, who: string) => `wasted ${day} ${who}`,
  bytes: (day: string, who: string) => `bytes ${day} ${who}`,
} as const;

/** The values of `where` for the sums over all sellers whose endpoint, when paid, had no letter (grade), or had one. */
const UNLETTERED = "unlettered";
export const LETTERED = "lettered";

/**
 * Returns the names under which an order's buyer is counted in the sums: that of the wallet, then that of the client's
 * IP network, if known.
 */
export const buyerNamesOf = ({ payer, client }: Pick<Order, "payer" | "client">): string[] => [
  `payer ${payer}`,
  ...(client === null ? [] : [`network ${client}`]),
];

/** What identifies a seller in the sums. `url`: of the endpoint, or of one request to it. */
export interface SellerIdentity {
  payTo: string;
  url: string;
  /** Capability id of the endpoint. */
  cap: string;
  /** Has the endpoint a letter (a grade)? */
  lettered: boolean;
}

/**
 * Returns the names under which a seller is counted in the sums. Host names under a hosting platform cost nothing, so
 * all of them are counted together, as the platform.
 */
export const sellerNamesOf = (
  seller: SellerIdentity,
): [payTo: string, platform: string, cap: string, letter: string] => [
  `payTo ${seller.payTo.toLowerCase()}`,
  `platform ${platformOf(seller.url)}`,
  `cap ${seller.cap}`,
  seller.lettered ? LETTERED : UNLETTERED,
];

/**
 * Returns the names under which a seller's debts are looked up; with a debt under one of them nothing is bought from
 * the seller. They are its endpoint, and its address if the endpoint has no letter. A seller chooses the address in its
 * 402: a thief may name a fresh one for each call, or that of an honest seller with a letter, which this must not shut
 * out. The domain is no such name, since all sellers of a market share one.
 */
export const debtNamesOf = ({ payTo, cap, lettered }: Omit<SellerIdentity, "url">): string[] => [
  `cap ${cap}`,
  ...(lettered ? [] : [`payTo ${payTo.toLowerCase()}`]),
];

/**
 * Returns what an order in progress risks with its buyer. An order with escrow risks nothing, since the buyer's money
 * is held; on credit it uses up the credit for what its seller may cost us.
 */
export function buyerStakesOf(
  buyer: Pick<Order, "payer" | "client" | "credit" | "scheme"> & { micro: bigint; totalMicro: bigint },
): Stake[] {
  const { payer, micro, totalMicro } = buyer;
  if (buyer.scheme !== "exact") return buyer.credit ? [[SUM.onCredit(payer), micro]] : [];
  return [
    ...buyerNamesOf(buyer).map((who): Stake => [SUM.open(who), micro]),
    buyer.credit ? [SUM.onCredit(payer), micro] : [SUM.openInAll, micro],
    [SUM.due(payer), totalMicro],
  ];
}

/** Returns what an order risks with a seller that is paid, until the seller's answer has passed. */
export const sellerStakesOf = (seller: SellerIdentity, micro: bigint): Stake[] =>
  sellerNamesOf(seller).map((where): Stake => [SUM.out(where), micro]);

/**
 * Returns what we lose if the buyer does not pay, millionths of a dollar: the seller's price, or the whole price of
 * our own operation.
 */
export const stakeOf = ({ own, quote }: Pick<Order, "own" | "quote">): bigint =>
  parseMoney(own ? quote.total : quote.price);

function stakesUnderWay(order: Order): Stake[] {
  const { state, payer } = order;
  const totalMicro = parseMoney(order.quote.total);
  const legsAtRisk = unpaidLegs(order).filter(({ checked }) => checked?.pass !== true);
  const isSettling = state === "settle_intent" || state === "settle_unknown";
  return [
    ...buyerStakesOf({ ...order, micro: stakeOf(order), totalMicro }),
    ...(isSettling ? [[SUM.settling(payer), totalMicro] as const] : []),
    ...legsAtRisk.flatMap((leg) => sellerStakesOf(leg, parseMoney(leg.price))),
  ];
}

/**
 * Returns the loss of a leg (payment to a seller) for which no buyer pays, as additions to the sums in which it counts.
 * They depend on who caused the loss.
 */
function stakesOfLoss(order: Order, leg: Leg, day: string): Stake[] {
  const micro = parseMoney(leg.price);
  const fault = faultOf(order, leg);
  if (fault === "seller") {
    return [
      ...sellerNamesOf(leg).map((where): Stake => [SUM.lost(day, where), micro]),
      ...debtNamesOf({ ...leg, lettered: false }).map((where): Stake => [SUM.owes(where), 1n]),
      ...buyerNamesOf(order).map((who): Stake => [SUM.failed(day, who), micro]),
      ...(order.credit ? [[SUM.failedOnCredit(order.payer), micro] as const] : []),
    ];
  }
  if (order.scheme !== "exact") return [];
  const stakesInAll: Stake[] = order.credit ? [] : [[SUM.lostInAll(day), micro]];
  return fault === "buyer" ? [...stakesOfBuyerLoss(order, micro, day), ...stakesInAll] : stakesInAll;
}

const stakesOfBuyerLoss = (order: Order, micro: bigint, day: string): Stake[] => [
  ...buyerNamesOf(order).map((who): Stake => [SUM.lost(day, who), micro]),
  [SUM.unpaid(order.payer), micro],
];

function stakesOfDecided(order: Order, day: string): Stake[] {
  if (order.state === "settled") return [[SUM.fees(order.payer), parseMoney(order.quote.fee)]];
  // An operation of our own for which the buyer could not pay is a loss too, though no seller has our money.
  const isBuyersFault = order.own !== null && order.state === "written_off" && order.unchargedFault === null;
  const ownWorkStakes = isBuyersFault ? stakesOfBuyerLoss(order, stakeOf(order), day) : [];
  return [...ownWorkStakes, ...unpaidLegs(order).flatMap((leg) => stakesOfLoss(order, leg, day))];
}

/** Returns the bytes of an order's answers, which are stored outside of the log. */
const answerBytesOf = ({ own, legs }: Order): number =>
  (own?.result?.size ?? 0) + legs.reduce((sum, { result }) => sum + (result?.size ?? 0), 0);

/** Returns everything that an order adds to the sums in its present state. */
export function stakesOf(order: Order): Stake[] {
  const day = order.createdAt.slice(0, 10);
  const wastedCount = BigInt(order.gas.filter((gas) => isWasted(order, gas)).length);
  const keptBytes = order.state === "settled" ? 0n : BigInt(order.bytes + answerBytesOf(order));
  return [
    ...(areLegsDecided(order) ? stakesOfDecided(order, day) : stakesUnderWay(order)),
    ...buyerNamesOf(order).flatMap((who): Stake[] => [
      [SUM.wasted(day, who), wastedCount],
      [SUM.bytes(day, who), keptBytes],
    ]),
  ];
}

/** Sums by name. A sum of 0 is not stored. */
export class Sums {
  readonly #sums = new Map<string, bigint>();

  get(name: string): bigint {
    return this.#sums.get(name) ?? 0n;
  }

  add(stakes: readonly Stake[], sign: 1n | -1n = 1n): void {
    for (const [name, amount] of stakes) {
      const sum = this.get(name) + sign * amount;
      if (sum === 0n) this.#sums.delete(name);
      else this.#sums.set(name, sum);
    }
  }

  clear(): void {
    this.#sums.clear();
  }
}
