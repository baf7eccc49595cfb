import ipaddr from "ipaddr.js";
import { BoundedMap } from "../../../infra/bounded-map.ts";
import type { Config } from "../../../infra/config.ts";
import { networkKey } from "../../../infra/egress/address.ts";
import type { Memory } from "../../record/memory.ts";
import { formatMoney, parseMoney } from "../../record/money.ts";
import type { UncoveredReason } from "../../record/plan.ts";
import { PLATFORM_CAP_FACTOR, platformOf, registrableDomain } from "../../record/url.ts";

/** Most that may be spent, in micro-units. A day is a UTC date. */
export interface Caps {
  perCall: bigint;
  perHostDay: bigint;
  perDomainDay: bigint;
  perPayeeDay: bigint;
  perDay: bigint;
  /** For all days together. */
  total: bigint;
  /** Part of the caps of a day that is kept for endpoints never paid, in millionths. */
  newShare: bigint;
}

/** The caps of the settings. */
export const capsOf = (spend: Config["spend"]): Caps => ({
  perCall: parseMoney(spend.per_call),
  perHostDay: parseMoney(spend.per_host_day),
  perDomainDay: parseMoney(spend.per_domain_day),
  perPayeeDay: parseMoney(spend.per_payee_day),
  perDay: parseMoney(spend.per_day),
  total: parseMoney(spend.total),
  // A share with six decimals is written like money.
  newShare: parseMoney(spend.new_share),
});

const MILLION = 1_000_000n;
const LOOPBACK = /^(?:localhost|127\.\d+\.\d+\.\d+|\[::1\])$/;

/**
 * The name under which money paid to a host counts as one domain: the registrable domain. A host without one counts by
 * its name or address without the port, an IPv6 address by its first 56 bits, since a stranger gets ports and addresses
 * of its own network for nothing. For this machine's own addresses, which only a development switch allows, each port
 * is a domain.
 * @param host with its port where that is not the default
 */
export function domainOf(host: string): string {
  const url = new URL(`http://${host}`);
  const domain = registrableDomain(url.href);
  const { hostname } = url;
  if (domain !== url.host || LOOPBACK.test(hostname)) return domain;
  const bare = hostname.replace(/\.$/, "");
  if (!bare.startsWith("[")) return bare;
  return networkKey(ipaddr.process(bare.slice(1, -1)));
}

/** Where a payment goes. */
export interface Payee {
  /** With port. */
  host: string;
  /** The host's domain, from `domainOf`. */
  domain: string;
  /** Lower-case where it is an EVM address; null where it is not known before the 402 names it. */
  payee: string | null;
}

/** @param payTo as a 402, a listing or the record names it */
export function toWhom<P extends string | null>(host: string, payTo: P): Payee & { payee: P } {
  // The hex digits of an EVM address may be in either case.
  const payee = payTo !== null && /^0x[0-9a-f]{40}$/i.test(payTo) ? (payTo.toLowerCase() as P) : payTo;
  return { host, domain: domainOf(host), payee };
}

/** Reasons for not paying that have nothing to do with a cap. */
type Unpayable = "excluded" | "opted_out" | "silent" | "nothing_to_pay";

/** The payments that one cap sums up, such as those to a host on a day. */
interface CapScope {
  why: Exclude<UncoveredReason, Unpayable | "per_call">;
  /** Key of the sum that is compared with the cap. */
  key: string;
  most: bigint;
}

/** The hosting platform of a host whose domain is one of many under it, which cost nothing; null for other hosts. */
function platformUnder({ host, domain }: Pick<Payee, "host" | "domain">): string | null {
  const platform = platformOf(`http://${host}`);
  return domain.endsWith(`.${platform}`) ? platform : null;
}

/** The caps that a payment counts against, the narrowest first. @param before spent in all days before this one */
function scopesOf(caps: Caps, { host, domain, payee }: Payee, before: bigint): CapScope[] {
  const platform = platformUnder({ host, domain });
  const ofPlatform = { key: `platform ${platform}`, most: caps.perDomainDay * BigInt(PLATFORM_CAP_FACTOR) };
  return [
    { why: "per_host_day", key: `host ${host}`, most: caps.perHostDay },
    { why: "per_domain_day", key: `domain ${domain}`, most: caps.perDomainDay },
    ...(platform === null ? [] : [{ why: "per_domain_day" as const, ...ofPlatform }]),
    ...(payee === null ? [] : [{ why: "per_payee_day" as const, key: `payee ${payee}`, most: caps.perPayeeDay }]),
    { why: "per_day", key: "day", most: caps.perDay },
    { why: "total", key: "total", most: caps.total - before },
  ];
}

const SAYS: Record<CapScope["why"] | "per_call", string> = {
  per_call: "of a call",
  per_host_day: "of a host and day",
  per_domain_day: "of a domain and day",
  per_payee_day: "of a payee and day",
  per_day: "of a day",
  total: "of all time",
};

/** A refusal that names the cap which a payment would exceed. */
const passed = (why: keyof typeof SAYS, cap: bigint): { ok: false; says: string } => ({
  ok: false,
  says: `over the cap ${SAYS[why]} of ${formatMoney(cap)}`,
});

const larger = (a: bigint, b: bigint): bigint => (a > b ? a : b);

/**
 * Sums up what a plan sets aside while it is made. An endpoint whose day does not fit is not covered, so no cap refuses
 * it later.
 */
export class Reservation {
  readonly #sums = new Map<string, bigint>();
  /** The part of the sums that is set aside for endpoints never paid. */
  readonly #fresh = new Map<string, bigint>();

  constructor(
    private readonly caps: Caps,
    /** Spent in all days before this one, micro-units. */
    private readonly before: bigint,
  ) {}

  /** Do `calls` payments of `price` fit into the part of every cap that is kept for endpoints never paid? */
  fitsNewShare(to: Payee, price: bigint, calls: bigint): boolean {
    const fits = ({ key, most }: CapScope): boolean =>
      ((this.#fresh.get(key) ?? 0n) + price * calls) * MILLION <= most * this.caps.newShare;
    return scopesOf(this.caps, to, this.before).every(fits);
  }

  /**
   * Sets `calls` payments of `price` aside for one endpoint. If they do not fit, sets nothing aside and returns the
   * cap.
   * @param fresh true: the endpoint was never paid
   */
  take(to: Payee, price: bigint, calls: bigint, fresh = false): Exclude<UncoveredReason, Unpayable> | null {
    if (price > this.caps.perCall) return "per_call";
    const sum = price * calls;
    const scopes = scopesOf(this.caps, to, this.before);
    const full = scopes.find(({ key, most }) => (this.#sums.get(key) ?? 0n) + sum > most);
    if (full) return full.why;
    for (const { key } of scopes) {
      for (const sums of fresh ? [this.#sums, this.#fresh] : [this.#sums]) sums.set(key, (sums.get(key) ?? 0n) + sum);
    }
    return null;
  }
}

/** What a plan sets aside for one endpoint. */
export interface Reserved extends Payee {
  cap: string;
  micro: bigint;
  /** Block of its first planned paid call of the day. */
  block?: number | undefined;
}

/** One payment, to the payee that its 402 names. */
export interface Payment extends Payee {
  payee: string;
  cap: string;
  micro: bigint;
  block: number;
}

/** What the plan sets aside for an endpoint, and what was spent on it. The greater of the two is committed to it. */
interface Share {
  reserved: bigint;
  spent: bigint;
}

interface Day {
  /** Shares of endpoints by `cap`, and of endpoints at a payee by `cap payee`. */
  shares: Map<string, Share>;
  /** By the key of a {@link CapScope}: what was spent on its endpoints, and what is committed to them. */
  sums: Map<string, { spent: bigint; committed: bigint }>;
  /** Endpoint -> block of its first planned paid call. */
  first: Map<string, number>;
}

const NO_SHARE: Share = { reserved: 0n, spent: 0n };
const NO_SUM = { spent: 0n, committed: 0n };

/**
 * Name of the share that a payment is taken from in this scope: an endpoint has a share only at the payee of its plan.
 */
const shareIn = (scope: CapScope, { cap, payee }: { cap: string; payee: string | null }): string =>
  scope.why === "per_payee_day" ? `${cap} ${payee}` : cap;

const shareOf = (open: Day, name: string): Share => open.shares.get(name) ?? NO_SHARE;
const sumOf = (open: Day, key: string) => open.sums.get(key) ?? NO_SUM;

/** By how much the committed sum grows when a share gets `more` reserved or spent; negative when it is given back. */
const committedBy = (share: Share, more: Share): bigint =>
  larger(share.reserved + more.reserved, share.spent + more.spent) - larger(share.reserved, share.spent);

/** Adds a reservation or a payment to all sums and shares that it counts in; a negative one is taken out. */
function book(open: Day, scopes: readonly CapScope[], of: Payee & { cap: string }, more: Share): void {
  for (const scope of scopes) {
    const { spent, committed } = sumOf(open, scope.key);
    const added = committedBy(shareOf(open, shareIn(scope, of)), more);
    open.sums.set(scope.key, { spent: spent + more.spent, committed: committed + added });
  }
  for (const name of new Set(scopes.map((scope) => shareIn(scope, of)))) {
    const { reserved, spent } = shareOf(open, name);
    open.shares.set(name, { reserved: reserved + more.reserved, spent: spent + more.spent });
  }
}

/**
 * Sums up the money that was signed away and refuses what would exceed a cap, whatever the plan set aside. A payment
 * counts from the moment that it is taken, settled or not, since a signed payment may still settle. What the day's plan
 * set aside for an endpoint is kept for it. An endpoint that asks for more than when the day began, or for another
 * payee, gets it only from money that is committed to no other, so that no other's call is dropped for it.
 */
export class Ledger {
  readonly #days = new BoundedMap<string, Day>(8);
  #total: bigint;

  /**
   * @param before sum of all intents until now, micro-units
   * @param callsADay most paid calls of an endpoint on a day, where several observers spend at once; null where this
   * process alone spends. Each call may then cost at most its part of what the plan set aside, so that all observers
   * together stay within the plan, and so within every cap, without knowing of each other
   */
  constructor(
    private readonly caps: Caps,
    before: bigint,
    private readonly callsADay: bigint | null = null,
  ) {
    this.#total = before;
  }

  /**
   * Reads from the record what was spent on a day, and books what its plan sets aside. Call this before the day's first
   * payment.
   */
  async open(day: string, memory: Pick<Memory, "spentOn">, reserved: readonly Reserved[] = []): Promise<void> {
    if (this.#days.has(day)) return;
    const spent = await memory.spentOn(day);
    if (this.#days.has(day)) return;
    const open: Day = { shares: new Map(), sums: new Map(), first: new Map() };
    for (const { cap, host, payTo, micro } of spent) {
      const to = { cap, ...toWhom(host, payTo) };
      book(open, this.#scopes(open, to), to, { reserved: 0n, spent: micro });
    }
    for (const { micro, block, ...to } of reserved) {
      const scopes = this.#scopes(open, to);
      const more = { reserved: micro, spent: 0n };
      const full = (scope: CapScope): boolean =>
        sumOf(open, scope.key).committed + committedBy(shareOf(open, shareIn(scope, to)), more) > scope.most;
      // The plan may have been made under other caps. What does not fit under ours is set aside for nobody; all
      // observers with these caps decide alike.
      if (this.callsADay !== null && scopes.some(full)) continue;
      book(open, scopes, to, more);
      if (block !== undefined) open.first.set(to.cap, block);
    }
    this.#days.set(day, open);
  }

  /**
   * Books one payment, or returns the cap that it would exceed and books nothing. There is no await between check and
   * booking.
   */
  take(day: string, payment: Payment): { ok: true } | { ok: false; says: string } {
    const { cap, micro } = payment;
    const open = this.#days.get(day);
    if (!open) return { ok: false, says: `what was spent on ${day} is not known` };
    if (this.callsADay !== null) {
      if (micro * this.callsADay > shareOf(open, cap).reserved) {
        return { ok: false, says: "more than the day's plan set aside for one call" };
      }
      if (!this.#fitsBesideOthers(open, payment, this.callsADay)) {
        return {
          ok: false,
          says: "the day's plan set nothing aside for this payee, and what others may pay it fills its cap",
        };
      }
    }
    if (micro > this.caps.perCall) return passed("per_call", this.caps.perCall);
    const more = { reserved: 0n, spent: micro };
    const scopes = this.#scopes(open, payment);
    for (const scope of scopes) {
      const { spent, committed } = sumOf(open, scope.key);
      // What exceeds the endpoint's own share must fit beside what is committed to others.
      const extra = committedBy(shareOf(open, shareIn(scope, payment)), more);
      if (spent + micro <= scope.most && (extra === 0n || committed + extra <= scope.most)) continue;
      return passed(scope.why, scope.why === "total" ? this.caps.total : scope.most);
    }
    book(open, scopes, payment, more);
    this.#total += micro;
    return { ok: true };
  }

  /** Takes a payment out of the books that was not signed after all. */
  giveBack(day: string, payment: Payment): void {
    const open = this.#days.get(day);
    if (!open) return;
    book(open, this.#scopes(open, payment), payment, { reserved: 0n, spent: -payment.micro });
    this.#total -= payment.micro;
  }

  /** Sum of all intents, micro-units. */
  get total(): bigint {
    return this.#total;
  }

  #scopes(open: Day, to: Payee): CapScope[] {
    return scopesOf(this.caps, to, this.#total - sumOf(open, "total").spent);
  }

  /**
   * Where several observers spend: may an endpoint pay another payee than its plan names, whatever the others pay? Yes
   * if the whole plan would fit into that payee's day. Otherwise only with the endpoint's first planned call: then each
   * endpoint gives that payee at most one call, and the payee's sum is at most what was set aside for it plus one call
   * of every other endpoint. All observers decide by the same plan, so what one allows fits beside what the others
   * allow.
   */
  #fitsBesideOthers(open: Day, { cap, payee, block }: Payment, calls: bigint): boolean {
    if (shareOf(open, `${cap} ${payee}`).reserved > 0n) return true;
    const all = sumOf(open, "day").committed;
    const own = sumOf(open, `payee ${payee}`).committed;
    if (all <= this.caps.perPayeeDay) return true;
    return open.first.get(cap) === block && own * calls + (all - own) <= this.caps.perPayeeDay * calls;
  }
}
