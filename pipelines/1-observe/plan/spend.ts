import ipaddr from "ipaddr.js";
import { BoundedMap } from "../../../infra/bounded-map.ts";
import type { Config } from "../../../infra/config.ts";
import { networkKey } from "../../../infra/egress/address.ts";
import type { Memory } from "../../record/memory.ts";
import { formatMoney, parseMoney } from "../../record/money.ts";
import type { Uncovered } from "../../record/plan.ts";
import { PLATFORM_TIMES, platformOf, registrableDomain } from "../../record/url.ts";

/** Most that may be spent, in micro-units. A day is a UTC date. */
export interface Caps {
  perCall: bigint;
  perHostDay: bigint;
  perDomainDay: bigint;
  perPayeeDay: bigint;
  perDay: bigint;
  /** Of all days together. */
  total: bigint;
  /** Millionths of the caps of a day that are kept for endpoints never paid. */
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
 * What money counts as one domain: the registrable one. Where a host has none, its name or address without the port,
 * and an IPv6 address by its first 56 bits: ports and addresses of one's own network cost a stranger nothing. Of this
 * machine's own addresses, which only a development switch lets in, each port is a domain.
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

/** Where money goes. */
export interface Payee {
  /** With port. */
  host: string;
  /** The host's, as `domainOf` has it. */
  domain: string;
  /** Lower-case where it is an EVM address; null where it is not known before the 402 names it. */
  payee: string | null;
}

/** @param payTo as a 402, a listing or the record names it */
export function toWhom<P extends string | null>(host: string, payTo: P): Payee & { payee: P } {
  // An EVM address is the same in any case.
  const payee = payTo !== null && /^0x[0-9a-f]{40}$/i.test(payTo) ? (payTo.toLowerCase() as P) : payTo;
  return { host, domain: domainOf(host), payee };
}

/** Reasons that have nothing to do with a cap. */
type Unpayable = "excluded" | "opted_out" | "silent" | "nothing_to_pay";

/** What one cap is over: payments that count together, such as those of a host on a day. */
interface CapScope {
  why: Exclude<Uncovered, Unpayable | "per_call">;
  /** Names the sum that is held against the cap. */
  key: string;
  most: bigint;
}

/** The platform of a host that has many domains under it, where names cost nothing; null where the domain was bought. */
function platformUnder({ host, domain }: Pick<Payee, "host" | "domain">): string | null {
  const platform = platformOf(`http://${host}`);
  return domain.endsWith(`.${platform}`) ? platform : null;
}

/** The caps that a payment falls under, the narrowest first. @param before spent ever, before this day */
function scopesOf(caps: Caps, { host, domain, payee }: Payee, before: bigint): CapScope[] {
  const platform = platformUnder({ host, domain });
  const ofPlatform = { key: `platform ${platform}`, most: caps.perDomainDay * BigInt(PLATFORM_TIMES) };
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

/** Which cap a payment would pass, in words. */
const passed = (why: keyof typeof SAYS, cap: bigint): { ok: false; says: string } => ({
  ok: false,
  says: `over the cap ${SAYS[why]} of ${formatMoney(cap)}`,
});

const larger = (a: bigint, b: bigint): bigint => (a > b ? a : b);

/** Whole days set aside while a plan is made: what does not fit is not covered, and no cap refuses it later. */
export class Reservation {
  readonly #sums = new Map<string, bigint>();
  /** Of the sums, what is set aside for endpoints never paid. */
  readonly #fresh = new Map<string, bigint>();

  constructor(
    private readonly caps: Caps,
    /** Spent ever, before this day. */
    private readonly before: bigint,
  ) {}

  /** Do `calls` payments of `price` fit into what every cap keeps for endpoints never paid? */
  fitsNewShare(to: Payee, price: bigint, calls: bigint): boolean {
    const fits = ({ key, most }: CapScope): boolean =>
      ((this.#fresh.get(key) ?? 0n) + price * calls) * MILLION <= most * this.caps.newShare;
    return scopesOf(this.caps, to, this.before).every(fits);
  }

  /**
   * Sets `calls` payments of `price` aside for one endpoint; or names the cap they do not fit into, and sets nothing
   * aside.
   * @param fresh the endpoint was never paid
   */
  take(to: Payee, price: bigint, calls: bigint, fresh = false): Exclude<Uncovered, Unpayable> | null {
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

/** What a plan sets aside, for one endpoint. */
export interface Reserved extends Payee {
  cap: string;
  micro: bigint;
  /** Block of its first planned paid call of the day. */
  block?: number | undefined;
}

/** One payment, to whom the 402 names that it answers. */
export interface Payment extends Payee {
  payee: string;
  cap: string;
  micro: bigint;
  block: number;
}

/** What the plan reserves for an endpoint, and what it has spent. The greater of the two is committed to it alone. */
interface Share {
  reserved: bigint;
  spent: bigint;
}

interface Day {
  /** Of each endpoint, and of each endpoint at a payee. */
  shares: Map<string, Share>;
  /** By the key of a cap's scope: what all endpoints in it have spent, and what is committed to them. */
  sums: Map<string, { spent: bigint; committed: bigint }>;
  /** By endpoint: block of its first planned paid call. */
  first: Map<string, number>;
}

const NO_SHARE: Share = { reserved: 0n, spent: 0n };
const NO_SUM = { spent: 0n, committed: 0n };

/** Whose share of a scope a payment comes out of: an endpoint has one at the payee of its plan, none at another. */
const shareIn = (scope: CapScope, { cap, payee }: { cap: string; payee: string | null }): string =>
  scope.why === "per_payee_day" ? `${cap} ${payee}` : cap;

const shareOf = (open: Day, name: string): Share => open.shares.get(name) ?? NO_SHARE;
const sumOf = (open: Day, key: string) => open.sums.get(key) ?? NO_SUM;

/** What becomes committed when a share gets `more` reserved or spent; less than nothing when it is given back. */
const committedBy = (share: Share, more: Share): bigint =>
  larger(share.reserved + more.reserved, share.spent + more.spent) - larger(share.reserved, share.spent);

/** Books a reservation or a payment, or takes it back, in everything that it counts under. */
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
 * Money that left, counted again at every signature: whatever a plan said, nothing is signed past a cap. An amount
 * counts from the moment it is taken, settled or not, since a signed payment may still settle. What the day's plan set
 * aside for an endpoint is kept for it: one that asks for more than it did when the day began, or for another payee,
 * gets it only from what nobody was promised, so no other's call is dropped for it.
 */
export class Ledger {
  readonly #days = new BoundedMap<string, Day>(8);
  #total: bigint;

  /**
   * @param before micro-units of every intent ever, as of now
   * @param callsADay where several observers spend at once: most paid calls that an endpoint can have on a day. None of
   * them may then cost more than its part of what the plan set aside, so that all of them together stay in the plan,
   * and so in every cap, without knowing of each other. Null: this process alone spends
   */
  constructor(
    private readonly caps: Caps,
    before: bigint,
    private readonly callsADay: bigint | null = null,
  ) {
    this.#total = before;
  }

  /** Reads what the record says was spent on a day, and what its plan sets aside. Before the first payment of ours on it. */
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
      // A plan of other caps than ours: what does not fit is set aside for nobody, for all observers with these caps
      // alike.
      if (this.callsADay !== null && scopes.some(full)) continue;
      book(open, scopes, to, more);
      if (block !== undefined) open.first.set(to.cap, block);
    }
    this.#days.set(day, open);
  }

  /** Takes one payment, or says which cap it would pass. Takes all or nothing, without a pause between look and take. */
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
      // What goes beyond the endpoint's own share must fit beside everybody else's.
      const extra = committedBy(shareOf(open, shareIn(scope, payment)), more);
      if (spent + micro <= scope.most && (extra === 0n || committed + extra <= scope.most)) continue;
      return passed(scope.why, scope.why === "total" ? this.caps.total : scope.most);
    }
    book(open, scopes, payment, more);
    this.#total += micro;
    return { ok: true };
  }

  /** Puts back what was taken for a payment that was then not signed. */
  giveBack(day: string, payment: Payment): void {
    const open = this.#days.get(day);
    if (!open) return;
    book(open, this.#scopes(open, payment), payment, { reserved: 0n, spent: -payment.micro });
    this.#total -= payment.micro;
  }

  /** Micro-units of every intent ever. */
  get total(): bigint {
    return this.#total;
  }

  #scopes(open: Day, to: Payee): CapScope[] {
    return scopesOf(this.caps, to, this.#total - sumOf(open, "total").spent);
  }

  /**
   * Where several observers spend: may an endpoint pay somebody else than its plan says, whatever the others pay? Yes
   * when all that the plan sets aside would fit into that payee's day. Else with its first planned call alone: then
   * nobody gives that payee more than a call, and it gets what was set aside for it and a call of everybody else. All
   * of them decide so by the same plan, so that what one allows fits beside whatever another does.
   */
  #fitsBesideOthers(open: Day, { cap, payee, block }: Payment, calls: bigint): boolean {
    if (shareOf(open, `${cap} ${payee}`).reserved > 0n) return true;
    const all = sumOf(open, "day").committed;
    const own = sumOf(open, `payee ${payee}`).committed;
    if (all <= this.caps.perPayeeDay) return true;
    return open.first.get(cap) === block && own * calls + (all - own) <= this.caps.perPayeeDay * calls;
  }
}
