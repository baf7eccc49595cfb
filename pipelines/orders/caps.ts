import type { Config } from "../../infra/config.ts";
import { formatMoney, parseMoney } from "../record/money.ts";
import type { Order } from "./order.ts";
import type { OrderTable } from "./order-table.ts";
import {
  buyerNamesOf,
  buyerStakesOf,
  LETTERED,
  type SellerIdentity,
  type Stake,
  SUM,
  Sums,
  sellerNamesOf,
  sellerStakesOf,
} from "./stakes.ts";

/**
 * How much of our own money may be at risk for calls that others buy through us, millionths of a dollar (orders.md,
 * "Bounding our losses"). Buyer and seller can be one attacker: after a failed answer the seller has our money and
 * the buyer pays nothing. A loss counts against the buyer or seller that caused it. The limits over all buyers and
 * all sellers count only orders without credit (the fees that the payer has paid before do not cover the risk) and
 * sellers without a letter (a grade).
 */
export interface OrderCaps {
  /** Smallest price of a call that is bought. Below it our transactions cost more than our fee. */
  leastPrice: bigint;
  /**
   * Largest amount that may be at risk at once for one buyer, and for one client network (an IPv4 address, or the IPv6
   * addresses with equal first 56 bits), including what they left unpaid today. Also the most that may be lost in a UTC
   * day through sellers in their orders.
   */
  perPayer: bigint;
  perNetwork: bigint;
  /** Largest amount that may be at risk at once for all orders without credit whose buyer pays after delivery. */
  open: bigint;
  /**
   * Largest amount that may be lost in a UTC day at one payTo (address to pay), at one platform (domain, with all names
   * under it), at one endpoint. The limit of an address counts all its losses, and refuses only endpoints without a
   * letter.
   */
  lossPerPayeeDay: bigint;
  lossPerPlatformDay: bigint;
  lossPerCapDay: bigint;
  /**
   * Largest amount that may be lost in a UTC day through all orders without credit, and also the most through all
   * sellers without a letter.
   */
  lossPerDay: bigint;
  /**
   * Number of failed transactions that we send in a UTC day for one payer, and for one client network. Once it is
   * reached, further orders are refused on that day.
   */
  wastedPerPayerDay: bigint;
  wastedPerNetworkDay: bigint;
  /**
   * Largest number of bytes that we store for uncharged orders of a UTC day: of one payer, and of one client network.
   */
  bytesPerPayerDay: bigint;
  bytesPerNetworkDay: bigint;
}

/**
 * Largest number of failed transactions for one wallet in a UTC day. If each costs a cent of gas, they cost us less
 * than a dollar.
 */
const WASTED_PER_PAYER_DAY = 60n;
/**
 * Largest amount that may be lost in a UTC day through all sellers with a letter before only orders on credit are
 * bought, as a multiple of `lossPerDay`. It is above 1, since one buyer's input can make many honest sellers answer
 * with an error for which they were paid.
 */
const LETTERED_LOSS_FACTOR = 4n;
/** Largest number of bytes that we store for one payer's uncharged orders of a UTC day. */
const BYTES_PER_PAYER_DAY = 64n * 1024n * 1024n;
/** The daily limits of a client network, as a multiple of one payer's, since several buyers may share a network. */
const NETWORK_FACTOR = 4n;

/**
 * Reads the caps from the settings. A seller's address, domain and endpoint get equal limits, since a seller can
 * change each of them.
 */
export function capsOf(sell: Config["sell"]): OrderCaps {
  const perSeller = parseMoney(sell.loss_per_seller_day);
  return {
    leastPrice: parseMoney(sell.least_price),
    perPayer: parseMoney(sell.open_per_buyer),
    perNetwork: parseMoney(sell.open_per_network),
    open: parseMoney(sell.open),
    ...{ lossPerPayeeDay: perSeller, lossPerPlatformDay: perSeller, lossPerCapDay: perSeller },
    lossPerDay: parseMoney(sell.loss_per_day),
    wastedPerPayerDay: WASTED_PER_PAYER_DAY,
    wastedPerNetworkDay: NETWORK_FACTOR * WASTED_PER_PAYER_DAY,
    bytesPerPayerDay: BYTES_PER_PAYER_DAY,
    bytesPerNetworkDay: NETWORK_FACTOR * BYTES_PER_PAYER_DAY,
  };
}

/** Who pays for a call, and how. */
export interface BuyerSide {
  /** Lower case. */
  payer: string;
  /** Opaque name of the client network; null if it is not known. */
  client: string | null;
  scheme: Order["scheme"];
  /**
   * What we lose if this buyer does not pay, millionths of a dollar: the seller's price, or the whole price of our
   * own operation. `totalMicro`: what the buyer pays.
   */
  micro: bigint;
  totalMicro: bigint;
  /** True: it buys our own operation, and no seller is paid. */
  own?: boolean;
}

/** The seller that is paid for a call, and its price. */
export interface SellerSide extends SellerIdentity {
  /** Millionths of a dollar. */
  micro: bigint;
}

/**
 * The stakes of an order that is being appended to the log. They are added to the sums until the table has the order.
 */
interface Reservation {
  stakes: readonly Stake[];
  isInTable: (table: OrderTable) => boolean;
}

/** Why a call is not bought, in words for the buyer. */
export interface Refusal {
  says: string;
  /** True: only a payment with the scheme `exact` is refused; a payment into escrow would be accepted. */
  exactOnly: boolean;
}

/**
 * Whether a buyer may have a call: a refusal, or else `credit`. `credit` is false if the call fits into all limits. It
 * is true if a limit over all buyers is reached, and the call is allowed only because the fees that this buyer has paid
 * cover the risk.
 */
export type Standing = Refusal | { credit: boolean };

const SELLER_OWES_US =
  "This seller's endpoint or address has, or may have, our money of a call that did not pass; it is bought from again once that is known or made good.";

/**
 * Compares sums over all orders with the caps. The sums count the orders of the table, and the orders that this
 * process is still appending to the log (reservations); no order is counted twice.
 */
export class Caps {
  readonly #reservations = new Set<Reservation>();

  constructor(
    private readonly table: OrderTable,
    private readonly caps: OrderCaps,
    /** UTC day, YYYY-MM-DD. */
    private readonly day: () => string,
  ) {}

  /**
   * Counts what a new order risks with its buyer until the order is in the table.
   * @returns a function that stops counting it, for an order that is never written
   */
  reserveForBuyer(id: string, buyer: BuyerSide, credit: boolean): () => void {
    return this.#reserve(buyerStakesOf({ ...buyer, credit }), (table) => table.get(id) !== undefined);
  }

  /**
   * Counts what a payment to a seller (the order's leg with this number) risks until it is in the table.
   * @returns a function that stops counting it, as {@link reserveForBuyer} does
   */
  reserveForSeller(id: string, leg: number, seller: SellerSide): () => void {
    return this.#reserve(sellerStakesOf(seller, seller.micro), (table) => (table.get(id)?.legs.length ?? 0) > leg);
  }

  #reserve(stakes: readonly Stake[], isInTable: Reservation["isInTable"]): () => void {
    const reservation = { stakes, isInTable };
    this.#reservations.add(reservation);
    return () => void this.#reservations.delete(reservation);
  }

  /**
   * Returns why nothing is bought from this seller now, in words; null if nothing prevents it.
   * @param isCounted true if the sums include this payment already
   */
  refusalOfSeller(seller: SellerSide, isCounted = false): string | null {
    const { caps } = this;
    if (this.table.isOwedBy(seller)) return SELLER_OWES_US;
    if (seller.micro < caps.leastPrice && !isCounted)
      return `Calls below ${formatMoney(caps.leastPrice)} USDC are not bought.`;
    const sumOf = this.#sumsWith(isCounted ? [] : sellerStakesOf(seller, seller.micro));
    const [payTo, platform, cap, letter] = sellerNamesOf(seller);
    const limits: [where: string, limit: bigint, words: string][] = [
      [platform, caps.lossPerPlatformDay, "at one domain in a day"],
      [cap, caps.lossPerCapDay, "at one endpoint in a day"],
    ];
    // A seller chooses the address in its 402. A thief names a fresh one for each call, so a limit on the address does
    // not stop it; but with the address of an honest seller it would use up that seller's limit (as in debtNamesOf).
    if (!seller.lettered)
      limits.unshift(
        [payTo, caps.lossPerPayeeDay, "at one seller's address in a day"],
        [letter, caps.lossPerDay, "at sellers without a letter in a day"],
      );
    for (const [where, limit, words] of limits) {
      const says = sentenceIfAbove(limit, sumOf(SUM.out(where)) + sumOf(SUM.lost(this.day(), where)), words);
      if (says) return says;
    }
    return null;
  }

  /**
   * May this buyer have a call? A payment into escrow puts none of our money at risk with its buyer, so its payer is
   * refused only for too many failed transactions, too many stored bytes, and what was lost through sellers.
   * @param counted null for an order that the sums do not include yet; otherwise whether the order, which they include,
   * is on credit
   */
  standingOfBuyer(buyer: BuyerSide, counted: { credit: boolean } | null = null): Standing {
    const dayRefusal = this.#dayLimitRefusal(buyer, counted ? 0n : buyer.micro);
    if (dayRefusal) return { says: dayRefusal, exactOnly: false };
    const isExact = buyer.scheme === "exact";
    const sumOf = this.#sumsWith(counted ? [] : buyerStakesOf({ ...buyer, credit: false }));
    const ownRefusal = isExact ? this.#exposureRefusal(buyer, sumOf) : null;
    if (ownRefusal) return { says: ownRefusal, exactOnly: true };
    const sellersRefusal = buyer.own ? null : this.#sellersLossRefusal();
    const overallRefusal = sellersRefusal ?? (isExact ? this.#overallRefusal(buyer, sumOf, counted !== null) : null);
    const exactOnly = isExact && sellersRefusal === null;
    const needsCredit = counted ? counted.credit : overallRefusal !== null;
    if (!needsCredit) return overallRefusal === null ? { credit: false } : { says: overallRefusal, exactOnly };
    const { payer } = buyer;
    const usedMicro = sumOf(SUM.unpaid(payer)) + sumOf(SUM.failedOnCredit(payer)) + sumOf(SUM.onCredit(payer));
    const creditLeft = sumOf(SUM.fees(payer)) - usedMicro - (counted ? 0n : buyer.micro);
    return creditLeft >= 0n ? { credit: true } : { says: overallRefusal ?? DAY_LOSS_REACHED, exactOnly };
  }

  /** Returns, in words, that too much of our money is at risk for this buyer or its network now; null if it is not. */
  #exposureRefusal(buyer: BuyerSide, sumOf: (name: string) => bigint): string | null {
    const { caps } = this;
    const day = this.day();
    const [payer, network] = buyerNamesOf(buyer) as [string, string?];
    const failed = (who: string) => (buyer.own ? 0n : sumOf(SUM.failed(day, who)));
    const atRisk = (who: string) => sumOf(SUM.open(who)) + sumOf(SUM.lost(day, who)) + failed(who);
    return (
      sentenceIfAbove(caps.perPayer, atRisk(payer), "behind one buyer's calls at once") ??
      (network ? sentenceIfAbove(caps.perNetwork, atRisk(network), "behind the calls of one network at once") : null)
    );
  }

  /** Returns why a buyer without credit may not pay after delivery now, in words, or null. */
  #overallRefusal(buyer: BuyerSide, sumOf: (name: string) => bigint, isCounted: boolean): string | null {
    const { caps } = this;
    const available = caps.open - sumOf(SUM.openInAll);
    // A buyer whose open orders exceed what is still available to all has to wait, so that other buyers get a share
    // (infra/shares.ts).
    const exceedsAvailable =
      !isCounted && buyerNamesOf(buyer).some((who) => sumOf(SUM.open(who)) > available + buyer.micro);
    if (exceedsAvailable || available < 0n) return limitSentence(caps.open, "behind calls at once");
    return sumOf(SUM.lostInAll(this.day())) >= caps.lossPerDay ? DAY_LOSS_REACHED : null;
  }

  /** Returns why a buyer without credit may not buy from sellers today with any payment scheme, in words, or null. */
  #sellersLossRefusal(): string | null {
    const limit = LETTERED_LOSS_FACTOR * this.caps.lossPerDay;
    return this.table.sum(SUM.lost(this.day(), LETTERED)) >= limit ? SELLERS_LOSS_REACHED : null;
  }

  /**
   * Returns why this buyer may not order any more today with any payment scheme, in words; null if the buyer may.
   * @param addedMicro what would be lost if the seller's answer to this order failed too; 0 if the sums include that
   */
  #dayLimitRefusal(buyer: BuyerSide, addedMicro: bigint): string | null {
    if (this.hasWastedTooMuch(buyer)) return "Too many payments came to nothing today; ask again tomorrow.";
    const { bytesPerPayerDay, bytesPerNetworkDay, perPayer, perNetwork } = this.caps;
    const isAbove = (sumOf: (who: string) => bigint, limits: readonly bigint[]): boolean =>
      buyerNamesOf(buyer).some((who, n) => sumOf(who) > limits[n]!);
    const bytesOf = (who: string) => this.table.sum(SUM.bytes(this.day(), who));
    if (isAbove(bytesOf, [bytesPerPayerDay, bytesPerNetworkDay]))
      return "Too much is kept of calls that were not charged today; ask again tomorrow.";
    const failedOf = (who: string) => {
      const failedMicro = this.table.sum(SUM.failed(this.day(), who));
      return failedMicro === 0n ? 0n : failedMicro + addedMicro;
    };
    return !buyer.own && isAbove(failedOf, [perPayer, perNetwork]) ? CALLS_FAILED : null;
  }

  /** Has this payer, or its client network, caused as many failed transactions today as are allowed? */
  hasWastedTooMuch(buyer: Pick<BuyerSide, "payer" | "client">): boolean {
    const limits = [this.caps.wastedPerPayerDay, this.caps.wastedPerNetworkDay];
    return buyerNamesOf(buyer).some((who, n) => this.table.sum(SUM.wasted(this.day(), who)) >= limits[n]!);
  }

  #sumsWith(moreStakes: readonly Stake[]): (name: string) => bigint {
    const reserved = new Sums();
    reserved.add(moreStakes);
    for (const reservation of this.#reservations) {
      if (reservation.isInTable(this.table)) this.#reservations.delete(reservation);
      else reserved.add(reservation.stakes);
    }
    return (name) => this.table.sum(name) + reserved.get(name);
  }
}

const DAY_LOSS_REACHED =
  "As much was lost today through payments that could not be collected as may be lost in a day. Buyers that have paid fees, and payments into escrow, are served; ask again tomorrow.";

const SELLERS_LOSS_REACHED =
  "As much was paid today to sellers whose answers failed as may be lost in a day. Buyers whose fees cover the call are served; ask again tomorrow.";
const CALLS_FAILED =
  "Sellers' answers to this buyer, or to its network, failed today, and with this call as much could be lost as may be in a day. Nothing is owed for them; ask again tomorrow.";

const limitSentence = (limit: bigint, words: string): string =>
  `At most ${formatMoney(limit)} USDC of ours may stand ${words}; ask again later.`;

const sentenceIfAbove = (limit: bigint, sum: bigint, words: string): string | null =>
  sum > limit ? limitSentence(limit, words) : null;
