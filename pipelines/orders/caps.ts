import type { Config } from "../../infra/config.ts";
import { formatMoney, parseMoney } from "../record/money.ts";
import { registrableDomain } from "../record/url.ts";
import type { OrderTable } from "./order-table.ts";

/**
 * How much of our own money stands behind other people's calls, micro-units (orders.md, "Our float is somebody's prize").
 * Seller and buyer can be one person: a failed answer pays the one and charges the other nothing.
 */
export interface OrderCaps {
  /** Open exposure of one payer, with what it left unpaid today, and of all. */
  perPayer: bigint;
  open: bigint;
  /** Realised loss in a UTC day: at one payTo, one registrable domain, one endpoint, and of all. */
  lossPerPayeeDay: bigint;
  lossPerDomainDay: bigint;
  lossPerCapDay: bigint;
  lossPerDay: bigint;
  /** Transactions of ours in a UTC day for calls of one payer that came to nothing ({@link OrderTable.wasted}). */
  wastedPerPayerDay: bigint;
}

/** Where a transaction costs a cent, one wallet makes us lose less than a dollar a day. */
const WASTED_PER_PAYER_DAY = 60n;

/** The caps of the settings. One seller may change address, domain or endpoint, so each of the three has the same cap. */
export function capsOf(sell: Config["sell"]): OrderCaps {
  const seller = parseMoney(sell.loss_per_seller_day);
  return {
    perPayer: parseMoney(sell.open_per_buyer),
    open: parseMoney(sell.open),
    ...{ lossPerPayeeDay: seller, lossPerDomainDay: seller, lossPerCapDay: seller },
    lossPerDay: parseMoney(sell.loss_per_day),
    wastedPerPayerDay: WASTED_PER_PAYER_DAY,
  };
}

/** Money that would leave us for one seller. */
export interface Venture {
  /** Lower case. */
  payer: string;
  payTo: string;
  url: string;
  cap: string;
  micro: bigint;
  /** Its order is in the table already, and the quoted amount is counted as exposure there. */
  counted?: boolean;
}

/**
 * Why this call is not bought, in words, or null. Exposure counts before it is a loss: otherwise a seller
 * that takes ten calls at once would have them all before the first loss is known.
 * @param begun ventures of this process that the table does not know yet
 * @param day UTC day, YYYY-MM-DD
 */
export function refusedBy(
  table: OrderTable,
  begun: Iterable<Venture>,
  caps: OrderCaps,
  venture: Venture,
  day: string,
): string | null {
  const to = venture.payTo.toLowerCase();
  const domain = registrableDomain(venture.url);
  const sums = { payee: venture.micro, domain: venture.micro, cap: venture.micro, all: venture.micro };
  const add = (other: { payTo: string; domain: string; cap: string; micro: bigint }) => {
    if (other.payTo === to) sums.payee += other.micro;
    if (other.domain === domain) sums.domain += other.micro;
    if (other.cap === venture.cap) sums.cap += other.micro;
    sums.all += other.micro;
  };
  const more = venture.counted ? 0n : venture.micro;
  if (table.owes(to)) return UNRECOVERED;
  let payers = table.exposure(venture.payer) + more;
  for (const loss of table.losses()) {
    if (loss.day !== day) continue;
    add(loss);
    if (loss.fault === "buyer" && loss.payer === venture.payer) payers += loss.micro;
  }
  for (const out of table.underWay()) add(out);
  let open = table.exposure() + more;
  for (const one of begun) {
    add({ ...one, payTo: one.payTo.toLowerCase(), domain: registrableDomain(one.url) });
    if (one.counted) continue;
    if (one.payer === venture.payer) payers += one.micro;
    open += one.micro;
  }
  const past = (limit: bigint, sum: bigint, words: string): string | null =>
    sum > limit ? `At most ${formatMoney(limit)} USDC of ours may stand ${words}; ask again later.` : null;
  return (
    past(caps.perPayer, payers, "behind one buyer's calls at once") ??
    past(caps.open, open, "behind calls at once") ??
    past(caps.lossPerPayeeDay, sums.payee, "at one seller's address in a day") ??
    past(caps.lossPerDomainDay, sums.domain, "at one domain in a day") ??
    past(caps.lossPerCapDay, sums.cap, "at one endpoint in a day") ??
    past(caps.lossPerDay, sums.all, "at all sellers in a day")
  );
}

/** Of an address that {@link OrderTable.owes}. */
const UNRECOVERED =
  "This seller's address has, or may have, our money of a call that did not pass; it is bought from again once that is known or made good.";
