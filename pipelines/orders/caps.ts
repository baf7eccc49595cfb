import type { Config } from "../../infra/config.ts";
import { formatMoney, parseMoney } from "../record/money.ts";
import type { Order } from "./order.ts";
import type { OrderTable } from "./order-table.ts";
import { buyersOf, buyersStakes, type Stake, SUM, Sums, sellersOf, sellersStakes, UNLETTERED } from "./stakes.ts";

/**
 * How much of our own money stands behind other people's calls, micro-units (orders.md, "Our float is somebody's prize").
 * Seller and buyer can be one person: a failed answer pays the one and charges the other nothing. What is lost counts
 * against whoever caused it; the caps of the whole are for those of whom nothing is known.
 */
export interface OrderCaps {
  /** Smallest price of a seller that is paid: below, an order costs us more than it brings. */
  leastPrice: bigint;
  /** Out for one buyer, and for one client network, with what either left unpaid today. */
  perPayer: bigint;
  perNetwork: bigint;
  /** Out at once for all buyers without credit that pay after delivery. */
  open: bigint;
  /** Realised loss in a UTC day by the doing of one payTo, one platform, one endpoint. */
  lossPerPayeeDay: bigint;
  lossPerPlatformDay: bigint;
  lossPerCapDay: bigint;
  /** The same through all buyers without credit; and through all sellers without a letter. */
  lossPerDay: bigint;
  /** Transactions of ours in a UTC day that came to nothing: for one payer, and for one client network. */
  wastedPerPayerDay: bigint;
  wastedPerNetworkDay: bigint;
  /** Bytes kept in a UTC day for calls that were not charged: of one payer, and of one client network. */
  bytesPerPayerDay: bigint;
  bytesPerNetworkDay: bigint;
}

/** Where a transaction costs a cent, one wallet makes us lose less than a dollar a day. */
const WASTED_PER_PAYER_DAY = 60n;
const BYTES_PER_PAYER_DAY = 64n * 1024n * 1024n;
/** Many wallets may ask from one network, and an honest one has calls of sellers that fail. */
const NETWORK = 4n;

/** The caps of the settings. One seller may change address, domain or endpoint, so each of the three has the same cap. */
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
  /** What we would have done in vain, micro-units: the seller's price; of work of our own its price. */
  micro: bigint;
  totalMicro: bigint;
}

/** Who is paid for it. */
export interface SellerSide {
  payTo: string;
  url: string;
  cap: string;
  /** Has it a letter? */
  lettered: boolean;
  micro: bigint;
}

/** What an order that is not in the table yet adds to its sums. */
interface Begun {
  stakes: readonly Stake[];
  isKnown: (table: OrderTable) => boolean;
}

/** Why a call is not bought, in words for the buyer. */
export interface Refusal {
  says: string;
  /** A payment into escrow would be taken. */
  exactOnly: boolean;
}

/** What the caps say of a buyer: refused; or bought, and whether on the credit of its payer. */
export type Standing = Refusal | { credit: boolean };

const UNRECOVERED =
  "This seller's address has, or may have, our money of a call that did not pass; it is bought from again once that is known or made good.";

/** The sums as this process knows them: the table's, and what of its own is on its way there, each once. */
export class Caps {
  readonly #begun = new Set<Begun>();

  constructor(
    private readonly table: OrderTable,
    private readonly caps: OrderCaps,
    /** UTC day, YYYY-MM-DD. */
    private readonly day: () => string,
  ) {}

  /**
   * Counts a buyer's side until the order stands in the table. @returns gives it back, where it never comes to that
   */
  begin(id: string, buyer: BuyerSide, credit: boolean): () => void {
    return this.#begin(buyersStakes({ ...buyer, credit }), (table) => table.get(id) !== undefined);
  }

  /** The same of a seller's side, until that leg stands in the table. */
  beginLeg(id: string, leg: number, seller: SellerSide): () => void {
    return this.#begin(sellersStakes(seller, seller.micro), (table) => (table.get(id)?.legs.length ?? 0) > leg);
  }

  #begin(stakes: readonly Stake[], isKnown: Begun["isKnown"]): () => void {
    const begun = { stakes, isKnown };
    this.#begun.add(begun);
    return () => void this.#begun.delete(begun);
  }

  /** Why nothing of this seller is bought now, in words, or null. @param counted its leg is in the sums already */
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
   * May this buyer have a call? What waits in escrow is nobody's credit, so of its payer only what it wasted counts.
   * @param counted it is in the sums already, as an order with this credit
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
    // Shared out as places are: whoever has more than is left for others waits, so that something is left for the next.
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

  /** What keeps a buyer from any more orders today, however it pays. */
  #tooMuch(buyer: BuyerSide): string | null {
    if (this.wastes(buyer)) return "Too many payments came to nothing today; ask again tomorrow.";
    const { bytesPerPayerDay, bytesPerNetworkDay } = this.caps;
    const most = [bytesPerPayerDay, bytesPerNetworkDay];
    const isFull = buyersOf(buyer).some((who, n) => this.table.sum(SUM.bytes(this.day(), who)) > most[n]!);
    return isFull ? "Too much is kept of calls that were not charged today; ask again tomorrow." : null;
  }

  /** Has this buyer had us send as many transactions for nothing today as it may? */
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
