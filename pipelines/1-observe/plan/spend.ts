import ipaddr from "ipaddr.js";
import { BoundedMap } from "../../../infra/bounded-map.ts";
import type { Config } from "../../../infra/config.ts";
import { networkKey } from "../../../infra/egress/address.ts";
import { isLoopbackHost } from "../../../infra/url.ts";
import type { Memory } from "../../record/memory.ts";
import { formatMoney, parseMoney } from "../../record/money.ts";
import type { UncoveredReason } from "../../record/plan.ts";
import { PLATFORM_CAP_FACTOR, platformOf, registrableDomain } from "../../record/url.ts";

/** The caps: the most that may be spent, in micro-units (millionths of a dollar). A day is a UTC date. */
export interface Caps {
  perCall: bigint;
  perHostDay: bigint;
  perDomainDay: bigint;
  perPayeeDay: bigint;
  perDay: bigint;
  /** The most that may be spent on all days together. */
  total: bigint;
  /** Share of a day's caps that is kept for endpoints that were never paid, in millionths. */
  newShare: bigint;
}

/** Parses the caps from the settings. */
export const parseCaps = (spend: Config["spend"]): Caps => ({
  perCall: parseMoney(spend.per_call),
  perHostDay: parseMoney(spend.per_host_day),
  perDomainDay: parseMoney(spend.per_domain_day),
  perPayeeDay: parseMoney(spend.per_payee_day),
  perDay: parseMoney(spend.per_day),
  total: parseMoney(spend.total),
  // The share is written with six decimals, as money is.
  newShare: parseMoney(spend.new_share),
});

const MILLION = 1_000_000n;

/**
 * Returns the domain against whose cap the money paid to a host counts: the registrable domain. A host without one
 * counts by its name or address without the port, an IPv6 address by its first 56 bits, since a stranger gets further
 * ports, and further IPv6 addresses with these bits, for free. For loopback addresses, which only a development
 * setting allows, each port counts as a domain.
 * @param host host with its port, unless that is the default port
 */
export function capDomain(host: string): string {
  const url = new URL(`http://${host}`);
  const domain = registrableDomain(url.href);
  const { hostname } = url;
  if (domain !== url.host || isLoopbackHost(hostname)) return domain;
  const address = hostname.replace(/\.$/, "");
  if (!address.startsWith("[")) return address;
  return networkKey(ipaddr.process(address.slice(1, -1)));
}

/** The recipient of a payment. */
export interface Recipient {
  /** Host with its port. */
  host: string;
  /** The host's domain, from {@link capDomain}. */
  domain: string;
  /** The payee's address, in lower case for EVM; null until a 402 names it. */
  payee: string | null;
}

/**
 * Makes the recipient of a payment.
 * @param payTo address as written in a 402, a listing or the record
 */
export function recipientOf<P extends string | null>(host: string, payTo: P): Recipient & { payee: P } {
  // The hex digits of an EVM address may be in either case.
  const payee = payTo !== null && /^0x[0-9a-f]{40}$/i.test(payTo) ? (payTo.toLowerCase() as P) : payTo;
  return { host, domain: capDomain(host), payee };
}

/** Reasons for not paying that are no cap. */
type NonCapReason = "excluded" | "opted_out" | "silent" | "nothing_to_pay";

/** One cap with the payments that count against it, such as those to a host on a day. */
interface CapScope {
  reason: Exclude<UncoveredReason, NonCapReason | "per_call">;
  /** Key of the sum that is compared with the cap. */
  key: string;
  /** The cap: the greatest sum that is allowed, micro-units. */
  limit: bigint;
}

/**
 * Returns the domain of the hosting platform that gave the host its free name (`vercel.app` for `shop.vercel.app`);
 * null for a host without such a name.
 */
function sharedPlatformOf({ host, domain }: Pick<Recipient, "host" | "domain">): string | null {
  const platform = platformOf(`http://${host}`);
  return domain.endsWith(`.${platform}`) ? platform : null;
}

/**
 * Returns the caps that a payment counts against, the narrowest first.
 * @param spentBefore spent in all days before this one
 */
function capScopesOf(caps: Caps, { host, domain, payee }: Recipient, spentBefore: bigint): CapScope[] {
  const platform = sharedPlatformOf({ host, domain });
  const platformScope = { key: `platform ${platform}`, limit: caps.perDomainDay * BigInt(PLATFORM_CAP_FACTOR) };
  return [
    { reason: "per_host_day", key: `host ${host}`, limit: caps.perHostDay },
    { reason: "per_domain_day", key: `domain ${domain}`, limit: caps.perDomainDay },
    ...(platform === null ? [] : [{ reason: "per_domain_day" as const, ...platformScope }]),
    ...(payee === null ? [] : [{ reason: "per_payee_day" as const, key: `payee ${payee}`, limit: caps.perPayeeDay }]),
    { reason: "per_day", key: "day", limit: caps.perDay },
    { reason: "total", key: "total", limit: caps.total - spentBefore },
  ];
}

const CAP_NAMES: Record<CapScope["reason"] | "per_call", string> = {
  per_call: "of a call",
  per_host_day: "of a host and day",
  per_domain_day: "of a domain and day",
  per_payee_day: "of a payee and day",
  per_day: "of a day",
  total: "of all time",
};

/** Makes the refusal of a payment, which names the cap that the payment would exceed. */
const refuseOverCap = (reason: keyof typeof CAP_NAMES, cap: bigint): { ok: false; says: string } => ({
  ok: false,
  says: `over the cap ${CAP_NAMES[reason]} of ${formatMoney(cap)}`,
});

const maxBigint = (a: bigint, b: bigint): bigint => (a > b ? a : b);

/**
 * Sums up the money that is reserved while a plan is made. An endpoint whose whole day does not fit into the caps is
 * not covered, so no cap refuses a planned call later.
 */
export class ReservedSums {
  /** Reserved money by the key of the {@link CapScope}, micro-units. */
  readonly #sums = new Map<string, bigint>();
  /** The part of `#sums` that is reserved for endpoints that were never paid. */
  readonly #newSums = new Map<string, bigint>();

  constructor(
    private readonly caps: Caps,
    /** Spent on all days before this one, micro-units. */
    private readonly spentBefore: bigint,
  ) {}

  /** Do `calls` payments of `price` fit into the share of every cap that is kept for endpoints that were never paid? */
  fitsShareForNew(payee: Recipient, price: bigint, calls: bigint): boolean {
    const fits = ({ key, limit }: CapScope): boolean =>
      ((this.#newSums.get(key) ?? 0n) + price * calls) * MILLION <= limit * this.caps.newShare;
    return capScopesOf(this.caps, payee, this.spentBefore).every(fits);
  }

  /**
   * Reserves `calls` payments of `price` for one endpoint. If they do not fit, it reserves nothing and returns the cap
   * that they exceed.
   * @param isNeverPaid true if the endpoint was never paid
   */
  reserve(
    payee: Recipient,
    price: bigint,
    calls: bigint,
    isNeverPaid = false,
  ): Exclude<UncoveredReason, NonCapReason> | null {
    if (price > this.caps.perCall) return "per_call";
    const sum = price * calls;
    const scopes = capScopesOf(this.caps, payee, this.spentBefore);
    const exceededScope = scopes.find(({ key, limit }) => (this.#sums.get(key) ?? 0n) + sum > limit);
    if (exceededScope) return exceededScope.reason;
    for (const { key } of scopes) {
      for (const sums of isNeverPaid ? [this.#sums, this.#newSums] : [this.#sums])
        sums.set(key, (sums.get(key) ?? 0n) + sum);
    }
    return null;
  }
}

/** The money that a plan reserves for one endpoint. */
export interface EndpointReservation extends Recipient {
  cap: string;
  /** Money that is reserved for the endpoint's calls of the day, micro-units. */
  micro: bigint;
  /** Block (six hours UTC) of the endpoint's first planned paid call of the day. */
  block?: number | undefined;
}

/** One payment, to the payee that the endpoint's 402 names. */
export interface Payment extends Recipient {
  payee: string;
  cap: string;
  /** Amount of the payment, micro-units. */
  micro: bigint;
  /** Block (six hours UTC) in which the call is planned. */
  block: number;
}

/**
 * The money that the plan reserves for an endpoint, and the money spent on it, micro-units. The greater of the two is
 * committed: no other endpoint may use it.
 */
interface EndpointShare {
  reserved: bigint;
  spent: bigint;
}

interface DaySums {
  /**
   * The share of each endpoint, under two kinds of keys: `<capability id> <payee>` for the cap of a payee, and
   * `<capability id>` for all other caps.
   */
  shares: Map<string, EndpointShare>;
  /** Money that was spent in each scope, and money that is committed, by the key of the {@link CapScope}. */
  sums: Map<string, { spent: bigint; committed: bigint }>;
  /** Block of the first planned paid call, by endpoint. */
  firstPaidBlocks: Map<string, number>;
}

const NO_SHARE: EndpointShare = { reserved: 0n, spent: 0n };
const NO_SUM = { spent: 0n, committed: 0n };

/**
 * Returns the key of the share from which a payment is taken. In the scope of a payee, an endpoint has a share only for
 * the payee that the plan expects.
 */
const shareKeyOf = (scope: CapScope, { cap, payee }: { cap: string; payee: string | null }): string =>
  scope.reason === "per_payee_day" ? `${cap} ${payee}` : cap;

const getShare = (daySums: DaySums, name: string): EndpointShare => daySums.shares.get(name) ?? NO_SHARE;
const getSum = (daySums: DaySums, key: string) => daySums.sums.get(key) ?? NO_SUM;

/**
 * Returns by how much the committed sum grows when `addition` is reserved or spent in a share. The result is negative
 * when money is given back.
 */
const commitmentIncrease = (share: EndpointShare, addition: EndpointShare): bigint =>
  maxBigint(share.reserved + addition.reserved, share.spent + addition.spent) - maxBigint(share.reserved, share.spent);

/** Adds a reservation or a payment to all sums and shares in which it counts. A negative amount is subtracted. */
function addToSums(
  daySums: DaySums,
  scopes: readonly CapScope[],
  recipient: Recipient & { cap: string },
  amount: EndpointShare,
): void {
  for (const scope of scopes) {
    const { spent, committed } = getSum(daySums, scope.key);
    const increase = commitmentIncrease(getShare(daySums, shareKeyOf(scope, recipient)), amount);
    daySums.sums.set(scope.key, { spent: spent + amount.spent, committed: committed + increase });
  }
  for (const name of new Set(scopes.map((scope) => shareKeyOf(scope, recipient)))) {
    const { reserved, spent } = getShare(daySums, name);
    daySums.shares.set(name, { reserved: reserved + amount.reserved, spent: spent + amount.spent });
  }
}

/**
 * Sums up the money of signed payments and refuses a payment that would exceed a cap. A payment counts from the moment
 * that {@link spend} accepts it, settled or not, since a signed payment may still settle. Money that the day's plan
 * reserved for an endpoint is kept for that endpoint. An endpoint that asks for a higher price than when the day began,
 * or for another payee, is paid only from money that is not committed to others, so that no other endpoint loses a
 * call.
 */
export class Ledger {
  /** Sums of the newest days, by UTC date. */
  readonly #days = new BoundedMap<string, DaySums>(8);
  /** Sum of all payments ever counted, micro-units. */
  #total: bigint;

  /**
   * @param spentBefore sum of all payments signed until now, micro-units
   * @param callsPerDay most paid calls of an endpoint on a day, if several observers spend at the same time; null if
   * only this process spends. Each call may then cost at most its part of the endpoint's reservation, so that all
   * observers together stay within the plan, and so within every cap, without communicating
   */
  constructor(
    private readonly caps: Caps,
    spentBefore: bigint,
    private readonly callsPerDay: bigint | null = null,
  ) {
    this.#total = spentBefore;
  }

  /**
   * Reads from the record what was spent on a day, and adds what the day's plan reserves. Call it before the day's
   * first payment.
   */
  async openDay(
    day: string,
    memory: Pick<Memory, "spentOn">,
    reserved: readonly EndpointReservation[] = [],
  ): Promise<void> {
    if (this.#days.has(day)) return;
    const spentSums = await memory.spentOn(day);
    if (this.#days.has(day)) return;
    const daySums: DaySums = { shares: new Map(), sums: new Map(), firstPaidBlocks: new Map() };
    for (const { cap, host, payTo, micro } of spentSums) {
      const recipient = { cap, ...recipientOf(host, payTo) };
      addToSums(daySums, this.#scopes(daySums, recipient), recipient, { reserved: 0n, spent: micro });
    }
    for (const { micro, block, ...recipient } of reserved) {
      const scopes = this.#scopes(daySums, recipient);
      const addition = { reserved: micro, spent: 0n };
      const exceedsLimit = (scope: CapScope): boolean =>
        getSum(daySums, scope.key).committed +
          commitmentIncrease(getShare(daySums, shareKeyOf(scope, recipient)), addition) >
        scope.limit;
      // The plan may have been made under other caps. A reservation that does not fit into ours is skipped. All
      // observers with these caps skip the same reservations.
      if (this.callsPerDay !== null && scopes.some(exceedsLimit)) continue;
      addToSums(daySums, scopes, recipient, addition);
      if (block !== undefined) daySums.firstPaidBlocks.set(recipient.cap, block);
    }
    this.#days.set(day, daySums);
  }

  /**
   * Counts one payment. If it would exceed a cap, it counts nothing and returns the reason. There is no await between
   * check and counting, so no other payment is counted in between.
   */
  spend(day: string, payment: Payment): { ok: true } | { ok: false; says: string } {
    const { cap, micro } = payment;
    const daySums = this.#days.get(day);
    if (!daySums) return { ok: false, says: `what was spent on ${day} is not known` };
    if (this.callsPerDay !== null) {
      if (micro * this.callsPerDay > getShare(daySums, cap).reserved) {
        return { ok: false, says: "more than the day's plan set aside for one call" };
      }
      if (!this.#fitsWithOtherObservers(daySums, payment, this.callsPerDay)) {
        return {
          ok: false,
          says: "the day's plan set nothing aside for this payee, and what others may pay it fills its cap",
        };
      }
    }
    if (micro > this.caps.perCall) return refuseOverCap("per_call", this.caps.perCall);
    const addition = { reserved: 0n, spent: micro };
    const scopes = this.#scopes(daySums, payment);
    for (const scope of scopes) {
      const { spent, committed } = getSum(daySums, scope.key);
      // The part of the payment beyond the endpoint's own share must fit beside what is committed to others.
      const increase = commitmentIncrease(getShare(daySums, shareKeyOf(scope, payment)), addition);
      if (spent + micro <= scope.limit && (increase === 0n || committed + increase <= scope.limit)) continue;
      return refuseOverCap(scope.reason, scope.reason === "total" ? this.caps.total : scope.limit);
    }
    addToSums(daySums, scopes, payment, addition);
    this.#total += micro;
    return { ok: true };
  }

  /** Subtracts a payment that {@link spend} counted and that was then not signed, or not sent. */
  cancel(day: string, payment: Payment): void {
    const daySums = this.#days.get(day);
    if (!daySums) return;
    addToSums(daySums, this.#scopes(daySums, payment), payment, { reserved: 0n, spent: -payment.micro });
    this.#total -= payment.micro;
  }

  /** Sum of all payments ever counted, including those of earlier processes, micro-units. */
  get total(): bigint {
    return this.#total;
  }

  #scopes(daySums: DaySums, payee: Recipient): CapScope[] {
    return capScopesOf(this.caps, payee, this.#total - getSum(daySums, "total").spent);
  }

  /**
   * May this observer pay an endpoint at a payee that the plan does not name, without knowing what the other observers
   * pay? Yes if the money of the whole plan would fit into that payee's cap. Otherwise only in the endpoint's first
   * planned call: then each endpoint pays that payee at most once, and the payee receives at most its own reservation
   * plus one call of every other endpoint. All observers use one plan, so their payments together stay within the cap.
   */
  #fitsWithOtherObservers(daySums: DaySums, { cap, payee, block }: Payment, callsPerDay: bigint): boolean {
    if (getShare(daySums, `${cap} ${payee}`).reserved > 0n) return true;
    const committedInAll = getSum(daySums, "day").committed;
    const committedToPayee = getSum(daySums, `payee ${payee}`).committed;
    if (committedInAll <= this.caps.perPayeeDay) return true;
    return (
      daySums.firstPaidBlocks.get(cap) === block &&
      committedToPayee * callsPerDay + (committedInAll - committedToPayee) <= this.caps.perPayeeDay * callsPerDay
    );
  }
}
