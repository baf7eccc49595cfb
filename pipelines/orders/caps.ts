import type { Config } from "../../infra/config.ts";
import { formatMoney, parseMoney } from "../record/money.ts";
import type { Order } from "./order.ts";
import type { OrderTable } from "./order-table.ts";
import { buyersOf, buyersStakes, type Stake, SUM, Sums, sellersOf, sellersStakes, UNLETTERED } from "./stakes.ts";

/**
 * How much of our own money may be at risk for other people's calls, micro-units (orders.md, "Our float is somebody's
 * prize"). Seller and buyer can be one person: a failed answer pays the seller and charges the buyer nothing. A loss counts
 * against the buyer or seller that caused it; the caps over all of them apply to those without a record of their own.
 */
export interface OrderCaps {
  /** Smallest price that is bought: an order below it costs us more in transactions than its fee. */
  leastPrice: bigint;
  /** Most that may be at risk at once for one buyer, and for one client network, including what they left unpaid today. */
  perPayer: bigint;
  perNetwork: bigint;
  /** Most that may be at risk at once for all buyers without credit that pay after delivery. */
  open: bigint;
  /** Most that may be lost in a UTC day at one payTo, at one platform, at one endpoint. */
  lossPerPayeeDay: bigint;
  lossPerPlatformDay: bigint;
  lossPerCapDay: bigint;
  /** Most that may be lost in a UTC day through all buyers without credit, and as much at all sellers without a letter. */
  lossPerDay: bigint;
  /** Transactions in a UTC day that we sent in vain: for one payer, and for one client network. */
  wastedPerPayerDay: bigint;
  wastedPerNetworkDay: bigint;
  /** Bytes kept in a UTC day for calls that were not charged: of one payer, and of one client network. */
  bytesPerPayerDay: bigint;
  bytesPerNetworkDay: bigint;
}

/** At a cent a transaction one wallet costs us less than a dollar a day. */
const WASTED_PER_PAYER_DAY = 60n;
const BYTES_PER_PAYER_DAY = 64n * 1024n * 1024n;
/**
 * A network has as much as so many wallets: several buyers may share it, and an honest buyer's calls fail too when sellers
 * do.
 */
const NETWORK = 4n;

/** The caps of the settings. A seller can change its address, its domain or its endpoint, so all three have one cap. */
export function capsOf(sell: Config["sell"]): OrderCaps {
  const seller = parseMoney(sell.loss_per_seller_day);
  return {
    leastPrice: parseMoney(sell.least_price),
    perPayer: parseMoney(sell.open_per_buyer),
    perNetwork: parseMoney(sell.open_per_network),
    open: parseMoney(sell.open),
    ...{ lossPerPayeeDay: seller, lossPerPlatformDay: seller, lossPerCapDay: seller },
    lossPerDay: parseMoney(sell.loss_per_day),
    wastedPerPayerDay: WASTED_PER_PAYER_DAY,
    wastedPerNetworkDay: NETWORK * WASTED_PER_PAYER_DAY,
    bytesPerPayerDay: BYTES_PER_PAYER_DAY,
    bytesPerNetworkDay: NETWORK * BYTES_PER_PAYER_DAY,
  };
}

/** Who pays for a call, and how. */
export interface BuyerSide {
  /** Lower case. */
  payer: string;
  /** Opaque name of the client network; null where there is none. */
  client: string | null;
  scheme: Order["scheme"];
  /** What we lose if this buyer does not pay, micro-units: the seller's price, or the price of our own work. */
  micro: bigint;
  totalMicro: bigint;
}

/** The seller that is paid for a call. */
export interface SellerSide {
  payTo: string;
  url: string;
  cap: string;
  /** Has the endpoint a letter? */
  lettered: boolean;
  micro: bigint;
}

/** What an order adds to the sums before its record is in the table. */
interface Begun {
  stakes: readonly Stake[];
  isKnown: (table: OrderTable) => boolean;
}

/** Why a call is not bought, in words for the buyer. */
export interface Refusal {
  says: string;
  /** Only `exact` is refused: a payment into escrow would be accepted. */
  exactOnly: boolean;
}

/** Whether a buyer may have a call: a refusal, or yes, with `credit` true when the fees it paid cover the risk. */
export type Standing = Refusal | { credit: boolean };

const UNRECOVERED =
  "This seller's address has, or may have, our money of a call that did not pass; it is bought from again once that is known or made good.";

/**
 * Compares the sums of all orders with the caps: those of the table, and those of orders that this process is writing, each
 * once.
 */
export class Caps {
  readonly #begun = new Set<Begun>();

  constructor(
    private readonly table: OrderTable,
    private readonly caps: OrderCaps,
    /** UTC day, YYYY-MM-DD. */
    private readonly day: () => string,
  ) {}

  /**
   * Counts a buyer's side until the order is in the table. @returns a function that stops counting it, for an order that is
   * never written
   */
  begin(id: string, buyer: BuyerSide, credit: boolean): () => void {
    return this.#begin(buyersStakes({ ...buyer, credit }), (table) => table.get(id) !== undefined);
  }

  /** Counts a seller's side until that leg is in the table. @returns as {@link begin} */
  beginLeg(id: string, leg: number, seller: SellerSide): () => void {
    return this.#begin(sellersStakes(seller, seller.micro), (table) => (table.get(id)?.legs.length ?? 0) > leg);
  }

  #begin(stakes: readonly Stake[], isKnown: Begun["isKnown"]): () => void {
    const begun = { stakes, isKnown };
    this.#begun.add(begun);
    return () => void this.#begun.delete(begun);
  }

  /**
   * Why nothing is bought from this seller now, in words, or null. @param counted true: the sums include this leg already
   */
  ofSeller(seller: SellerSide, counted = false): string | null {
    const { caps } = this;
    const payTo = seller.payTo.toLowerCase();
    if (this.table.owes(payTo)) return UNRECOVERED;
    if (seller.micro < caps.leastPrice && !counted)
      return `Calls below ${formatMoney(caps.leastPrice)} USDC are not bought.`;
    const sums = this.#sums(counted ? [] : sellersStakes(seller, seller.micro));
    const most: Record<string, [bigint, string]> = {
      payTo: [caps.lossPerPayeeDay, "at one seller's address in a day"],
      platform: [caps.lossPerPlatformDay, "at one domain in a day"],
      cap: [caps.lossPerCapDay, "at one endpoint in a day"],
      [UNLETTERED]: [caps.lossPerDay, "at sellers without a letter in a day"],
    };
    for (const where of sellersOf(seller)) {
      const [limit, words] = most[where.split(" ", 1)[0]!]!;
      const says = past(limit, sums(SUM.out(where)) + sums(SUM.lost(this.day(), where)), words);
      if (says) return says;
    }
    return null;
  }

  /**
   * May this buyer have a call? A payment into escrow puts nothing at risk, so its payer is refused only for transactions
   * that we sent in vain and for bytes that we keep.
   * @param counted not null: the sums include this order already, with this credit
   */
  ofBuyer(buyer: BuyerSide, counted: { credit: boolean } | null = null): Standing {
    const { caps } = this;
    const day = this.day();
    const sums = this.#sums(counted ? [] : buyersStakes({ ...buyer, credit: false }));
    const [payer, network] = buyersOf(buyer) as [string, string?];
    const tooMuch = this.#tooMuch(buyer);
    if (tooMuch) return { says: tooMuch, exactOnly: false };
    if (buyer.scheme !== "exact") return { credit: false };
    const of = (who: string) => sums(SUM.open(who)) + sums(SUM.lost(day, who));
    const own =
      past(caps.perPayer, of(payer), "behind one buyer's calls at once") ??
      (network ? past(caps.perNetwork, of(network), "behind the calls of one network at once") : null);
    if (own) return { says: own, exactOnly: true };
    const free = caps.open - sums(SUM.openInAll);
    // The rule of shares (infra/shares.ts): a buyer that holds more than is free waits, so that others get a part.
    const hasMost = !counted && buyersOf(buyer).some((who) => sums(SUM.open(who)) > free + buyer.micro);
    const whole =
      (hasMost || free < 0n ? limited(caps.open, "behind calls at once") : null) ??
      (sums(SUM.lostInAll(day)) >= caps.lossPerDay ? LOST : null);
    const onCredit = counted ? counted.credit : whole !== null;
    if (!onCredit) return whole === null ? { credit: false } : { says: whole, exactOnly: true };
    const mine = counted ? 0n : buyer.micro;
    const credit = sums(SUM.fees(buyer.payer)) - sums(SUM.unpaid(buyer.payer)) - sums(SUM.onCredit(buyer.payer)) - mine;
    return credit >= 0n ? { credit: true } : { says: whole ?? LOST, exactOnly: true };
  }

  /** Why a buyer gets no more orders today by any scheme, in words, or null. */
  #tooMuch(buyer: BuyerSide): string | null {
    if (this.wastes(buyer)) return "Too many payments came to nothing today; ask again tomorrow.";
    const { bytesPerPayerDay, bytesPerNetworkDay } = this.caps;
    const most = [bytesPerPayerDay, bytesPerNetworkDay];
    const isFull = buyersOf(buyer).some((who, n) => this.table.sum(SUM.bytes(this.day(), who)) > most[n]!);
    return isFull ? "Too much is kept of calls that were not charged today; ask again tomorrow." : null;
  }

  /** Did this buyer cause as many transactions in vain today as one buyer, or one network, may? */
  wastes(buyer: Pick<BuyerSide, "payer" | "client">): boolean {
    const most = [this.caps.wastedPerPayerDay, this.caps.wastedPerNetworkDay];
    return buyersOf(buyer).some((who, n) => this.table.sum(SUM.wasted(this.day(), who)) >= most[n]!);
  }

  #sums(more: readonly Stake[]): (name: string) => bigint {
    const beside = new Sums();
    beside.add(more);
    for (const begun of this.#begun) {
      if (begun.isKnown(this.table)) this.#begun.delete(begun);
      else beside.add(begun.stakes);
    }
    return (name) => this.table.sum(name) + beside.of(name);
  }
}

const LOST =
  "As much was lost today through payments that could not be collected as may be lost in a day. Buyers that have paid fees, and payments into escrow, are served; ask again tomorrow.";

const limited = (limit: bigint, words: string): string =>
  `At most ${formatMoney(limit)} USDC of ours may stand ${words}; ask again later.`;

const past = (limit: bigint, sum: bigint, words: string): string | null => (sum > limit ? limited(limit, words) : null);
