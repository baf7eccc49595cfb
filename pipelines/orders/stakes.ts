import { parseMoney } from "../record/money.ts";
import { platformOf } from "../record/url.ts";
import { faultOf, isEnded, isWasted, type Leg, type Order, unpaidLegs } from "./order.ts";

/**
 * What one order adds to one of the sums that the caps bound: the sum's name, and an amount in micro-units or a count. An
 * order under way adds the money that it risks with its buyer and with its seller. An order that ended with a loss adds the
 * loss to the sums of the buyer or seller that caused it, and to no others.
 */
export type Stake = readonly [sum: string, amount: bigint];

/** Names of the sums. `who` is a payer or a client network, `where` an address, a platform or an endpoint of a seller. */
export const SUM = {
  /** At risk for calls under way that buyers pay afterwards: those of one buyer, and those of all buyers without credit. */
  open: (who: string) => `open ${who}`,
  openInAll: "open",
  /** At risk for a payer's orders that its paid fees cover (its credit). */
  onCredit: (payer: string) => `credit ${payer}`,
  /** What a payer's wallet has to cover: the totals of its orders that are not charged yet. */
  due: (payer: string) => `due ${payer}`,
  /** The part of `due` whose charge is being sent. */
  settling: (payer: string) => `settling ${payer}`,
  /** Paid to a seller whose answer has not passed, or not yet. */
  out: (where: string) => `out ${where}`,
  /** Lost in a UTC day: through one buyer or seller; and in all, through buyers without credit and our own faults. */
  lost: (day: string, who: string) => `lost ${day} ${who}`,
  lostInAll: (day: string) => `lost ${day}`,
  /** Fees that a payer has paid, and amounts that it left unpaid, over all known orders. */
  fees: (payer: string) => `fees ${payer}`,
  unpaid: (payer: string) => `unpaid ${payer}`,
  /** How many losses that this address caused it has not paid back. */
  owes: (payTo: string) => `owes ${payTo}`,
  /** Transactions that we sent in vain on a UTC day, and bytes that we keep for calls that were not charged. */
  wasted: (day: string, who: string) => `wasted ${day} ${who}`,
  bytes: (day: string, who: string) => `bytes ${day} ${who}`,
} as const;

/** Name under which all sellers count that had no letter when they were paid. */
export const UNLETTERED = "unlettered";

/** Names of an order's buyer in the sums: its wallet, then the client network that it asked from, if known. */
export const buyersOf = ({ payer, client }: Pick<Order, "payer" | "client">): string[] => [
  `payer ${payer}`,
  ...(client === null ? [] : [`network ${client}`]),
];

/** Names of a seller in the sums. Host names under a hosting platform are free, so all of them count as the platform. */
export const sellersOf = (to: { payTo: string; url: string; cap: string; lettered: boolean }): string[] => [
  `payTo ${to.payTo.toLowerCase()}`,
  `platform ${platformOf(to.url)}`,
  `cap ${to.cap}`,
  ...(to.lettered ? [] : [UNLETTERED]),
];

/** What an order under way risks with its buyer. An order in escrow risks nothing: its money is held. */
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

/** What an order risks with a seller that is paid, until its answer has passed. */
export const sellersStakes = (to: Parameters<typeof sellersOf>[0], micro: bigint): Stake[] =>
  sellersOf(to).map((where): Stake => [SUM.out(where), micro]);

/** What we lose if the buyer does not pay, micro-units: the seller's price, or the whole price of our own work. */
export const stakeOf = ({ own, quote }: Pick<Order, "own" | "quote">): bigint =>
  parseMoney(own ? quote.total : quote.price);

function underWay(order: Order): Stake[] {
  const { state, payer } = order;
  const totalMicro = parseMoney(order.quote.total);
  const out = unpaidLegs(order).filter(({ checked }) => checked?.pass !== true);
  const isSettling = state === "settle_intent" || state === "settle_unknown";
  return [
    // The buyer of an order that is being refunded owes nothing.
    ...(state.startsWith("refund") ? [] : buyersStakes({ ...order, micro: stakeOf(order), totalMicro })),
    ...(isSettling ? [[SUM.settling(payer), totalMicro] as const] : []),
    ...out.flatMap((leg) => sellersStakes(leg, parseMoney(leg.price))),
  ];
}

/** The loss of a leg that no buyer pays for, added to the sums of the side that caused it. */
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
  // Our own work that the buyer could not pay for: a loss too, though no seller has money of ours.
  const own = order.own && order.state === "written_off" ? byBuyer(order, stakeOf(order), day) : [];
  return [...own, ...unpaidLegs(order).flatMap((leg) => lost(order, leg, day))];
}

/** Bytes of an order's answers, which are objects outside of the log. */
const answersOf = ({ own, legs }: Order): number =>
  (own?.result?.size ?? 0) + legs.reduce((sum, { result }) => sum + (result?.size ?? 0), 0);

/** Everything that an order adds to the sums in its present state. Pure. */
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

/** Sums by name. A sum of 0 is not stored. */
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
