import { parseMoney } from "../record/money.ts";
import { platformOf } from "../record/url.ts";
import { faultOf, isEnded, isWasted, type Leg, type Order, unpaidLegs } from "./order.ts";

/**
 * What one order adds to the sums that the caps are held against, as pairs of a sum's name and an amount: micro-units, or a
 * count. An order under way has money at stake with its buyer and with its seller; one that ended has lost it to whoever
 * caused that, and to nobody else.
 */
export type Stake = readonly [sum: string, amount: bigint];

/** Names of the sums. `who` is a payer or a client network, `where` an address, a platform or an endpoint of a seller. */
export const SUM = {
  /** Out for calls under way that their buyers pay afterwards: of one, and of all that stand on no credit. */
  open: (who: string) => `open ${who}`,
  openInAll: "open",
  /** The same of a payer's orders that stand on its credit. */
  onCredit: (payer: string) => `credit ${payer}`,
  /** What a payer's wallet has to cover: the totals of its orders that may still be charged to it. */
  due: (payer: string) => `due ${payer}`,
  /** Of those, the ones whose charge is being sent. */
  settling: (payer: string) => `settling ${payer}`,
  /** Out to a seller whose answer is not known to be good. */
  out: (where: string) => `out ${where}`,
  /** Lost in a UTC day: through a buyer, through a seller, and through all buyers without credit, with our own faults. */
  lost: (day: string, who: string) => `lost ${day} ${who}`,
  lostInAll: (day: string) => `lost ${day}`,
  /** Fees that a payer has paid, and what it left unpaid, of all orders that are known. */
  fees: (payer: string) => `fees ${payer}`,
  unpaid: (payer: string) => `unpaid ${payer}`,
  /** How many losses of its own doing an address has not made good. */
  owes: (payTo: string) => `owes ${payTo}`,
  /** Transactions of a UTC day that came to nothing, and bytes kept for calls that were not charged. */
  wasted: (day: string, who: string) => `wasted ${day} ${who}`,
  bytes: (day: string, who: string) => `bytes ${day} ${who}`,
} as const;

/** All sellers that had no letter when they were paid. */
export const UNLETTERED = "unlettered";

/** The buyer of an order as its sums name it: the wallet first, then the network it asked from where that is known. */
export const buyersOf = ({ payer, client }: Pick<Order, "payer" | "client">): string[] => [
  `payer ${payer}`,
  ...(client === null ? [] : [`network ${client}`]),
];

/** A seller as its sums name it. Names under a hosting platform cost nothing, so they count as the platform. */
export const sellersOf = (to: { payTo: string; url: string; cap: string; lettered: boolean }): string[] => [
  `payTo ${to.payTo.toLowerCase()}`,
  `platform ${platformOf(to.url)}`,
  `cap ${to.cap}`,
  ...(to.lettered ? [] : [UNLETTERED]),
];

/** What stands with the buyer of an order under way. Of an order in escrow nothing does: its money is held. */
export function buyersStakes(
  of: Pick<Order, "payer" | "client" | "credit" | "scheme"> & { micro: bigint; totalMicro: bigint },
): Stake[] {
  if (of.scheme !== "exact") return [];
  const { payer, micro, totalMicro } = of;
  return [
    ...buyersOf(of).map((who): Stake => [SUM.open(who), micro]),
    of.credit ? [SUM.onCredit(payer), micro] : [SUM.openInAll, micro],
    [SUM.due(payer), totalMicro],
  ];
}

/** What stands with a seller that is paid, until its answer is known to be good. */
export const sellersStakes = (to: Parameters<typeof sellersOf>[0], micro: bigint): Stake[] =>
  sellersOf(to).map((where): Stake => [SUM.out(where), micro]);

/** What we would have done in vain: of a bought call the seller's price, of work of our own the whole. */
export const stakeOf = ({ own, quote }: Pick<Order, "own" | "quote">): bigint =>
  parseMoney(own ? quote.total : quote.price);

function underWay(order: Order): Stake[] {
  const { state, payer } = order;
  const totalMicro = parseMoney(order.quote.total);
  const out = unpaidLegs(order).filter(({ checked }) => checked?.pass !== true);
  const isSettling = state === "settle_intent" || state === "settle_unknown";
  return [
    // What is to be sent back its buyer owes no more.
    ...(state.startsWith("refund") ? [] : buyersStakes({ ...order, micro: stakeOf(order), totalMicro })),
    ...(isSettling ? [[SUM.settling(payer), totalMicro] as const] : []),
    ...out.flatMap((leg) => sellersStakes(leg, parseMoney(leg.price))),
  ];
}

/** What a leg that nobody pays for costs, by whose doing that is. */
function lost(order: Order, leg: Leg, day: string): Stake[] {
  const micro = parseMoney(leg.price);
  const fault = faultOf(order, leg);
  if (fault === "seller") {
    const { payTo } = leg;
    return [...sellersOf(leg).map((where): Stake => [SUM.lost(day, where), micro]), [SUM.owes(payTo), 1n]];
  }
  if (order.scheme !== "exact") return [];
  const all: Stake[] = order.credit ? [] : [[SUM.lostInAll(day), micro]];
  return fault === "buyer" ? [...byBuyer(order, micro, day), ...all] : all;
}

const byBuyer = (order: Order, micro: bigint, day: string): Stake[] => [
  ...buyersOf(order).map((who): Stake => [SUM.lost(day, who), micro]),
  [SUM.unpaid(order.payer), micro],
];

function ended(order: Order, day: string): Stake[] {
  if (order.state === "settled") return [[SUM.fees(order.payer), parseMoney(order.quote.fee)]];
  // Work of our own that its buyer could not pay for, though no seller has our money for it.
  const own = order.own && order.state === "written_off" ? byBuyer(order, stakeOf(order), day) : [];
  return [...own, ...unpaidLegs(order).flatMap((leg) => lost(order, leg, day))];
}

/** Bytes of its answers, which are kept beside the log. */
const answersOf = ({ own, legs }: Order): number =>
  (own?.result?.size ?? 0) + legs.reduce((sum, { result }) => sum + (result?.size ?? 0), 0);

/** Everything that an order adds, as it stands. Pure. */
export function stakesOf(order: Order): Stake[] {
  const day = order.createdAt.slice(0, 10);
  const count = BigInt(order.gas.filter((gas) => isWasted(order, gas)).length);
  const kept = order.state === "settled" ? 0n : BigInt(order.bytes + answersOf(order));
  return [
    ...(isEnded(order) ? ended(order, day) : underWay(order)),
    ...buyersOf(order).flatMap((who): Stake[] => [
      [SUM.wasted(day, who), count],
      [SUM.bytes(day, who), kept],
    ]),
  ];
}

/** Sums by name; one that came to nothing takes no room. */
export class Sums {
  readonly #sums = new Map<string, bigint>();

  of(name: string): bigint {
    return this.#sums.get(name) ?? 0n;
  }

  add(stakes: readonly Stake[], times: 1n | -1n = 1n): void {
    for (const [name, amount] of stakes) {
      const sum = this.of(name) + times * amount;
      if (sum === 0n) this.#sums.delete(name);
      else this.#sums.set(name, sum);
    }
  }

  clear(): void {
    this.#sums.clear();
  }
}
