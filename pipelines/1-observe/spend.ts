import type { Memory } from "../record/memory.ts";
import { formatMoney } from "../record/money.ts";
import type { Uncovered } from "../record/plan.ts";
import { BoundedMap } from "./bounded.ts";

/** Most that may be spent, in micro-units. A day is a UTC date. */
export interface Caps {
  perCall: bigint;
  perHostDay: bigint;
  perDay: bigint;
  /** Ever. */
  total: bigint;
}

/** What one endpoint has of a day: set aside by the plan, and taken. The greater of the two is spoken for. */
interface Share {
  reserved: bigint;
  spent: bigint;
}

interface Day {
  shares: Map<string, Share>;
  /** Taken, and spoken for: the latter is what others must leave. */
  byHost: Map<string, { spent: bigint; spoken: bigint }>;
  spent: bigint;
  spoken: bigint;
}

/** What a plan sets aside, for one endpoint. */
export interface Reserved {
  cap: string;
  host: string;
  micro: bigint;
}

const larger = (a: bigint, b: bigint): bigint => (a > b ? a : b);

/** Which cap a payment would pass, in words. */
const passed = (what: string, cap: bigint): string => `over the cap ${what} of ${formatMoney(cap)}`;

/** Whole days set aside while a plan is made: what does not fit is not covered, and no cap bites later. */
export class Reservation {
  readonly #byHost = new Map<string, bigint>();
  #day = 0n;

  constructor(
    private readonly caps: Caps,
    /** Spent ever, before this day. */
    private readonly before: bigint,
  ) {}

  /** Sets `calls` payments of `price` aside for one endpoint; or names the cap they do not fit into, and sets nothing aside. */
  take(host: string, price: bigint, calls: bigint): Exclude<Uncovered, "nothing_to_pay"> | null {
    const { caps } = this;
    const sum = price * calls;
    const ofHost = (this.#byHost.get(host) ?? 0n) + sum;
    const ofDay = this.#day + sum;
    if (price > caps.perCall) return "per_call";
    if (ofHost > caps.perHostDay) return "per_host_day";
    if (ofDay > caps.perDay) return "per_day";
    if (this.before + ofDay > caps.total) return "total";
    this.#byHost.set(host, ofHost);
    this.#day = ofDay;
    return null;
  }
}

/**
 * Money that left, counted again at every signature: whatever a plan said, nothing is signed past a cap. An amount
 * counts from the moment it is taken, settled or not, since a signed payment may still settle. What the day's plan set
 * aside for an endpoint is kept for it: one that asks for more than it did when the day began gets more only from what
 * nobody was promised, so no other's call is dropped for it.
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
    const { byCap, byHost, total } = await memory.spentOn(day);
    if (this.#days.has(day)) return;
    const hosts = new Map([...byHost].map(([host, spent]) => [host, { spent, spoken: spent }]));
    const open: Day = { shares: new Map(), byHost: hosts, spent: total, spoken: total };
    for (const [cap, spent] of byCap) open.shares.set(cap, { reserved: 0n, spent });
    for (const { cap, host, micro } of reserved) {
      const share = shareOf(open, cap);
      const more = larger(micro - share.spent, 0n);
      // A plan of other caps than ours: what does not fit any more is nobody's, for all observers with these caps alike.
      if (this.callsADay !== null && this.#isFull(open, host, more)) continue;
      speak(open, host, more);
      share.reserved = micro;
    }
    this.#days.set(day, open);
  }

  #isFull(open: Day, host: string, more: bigint): boolean {
    const { perHostDay, perDay, total } = this.caps;
    const ever = this.#total - open.spent + open.spoken;
    return hostOf(open, host).spoken + more > perHostDay || open.spoken + more > perDay || ever + more > total;
  }

  /** Takes one payment, or says which cap it would pass. Takes all or nothing, without a pause between look and take. */
  take(day: string, host: string, amount: bigint, cap: string): { ok: true } | { ok: false; says: string } {
    const { caps } = this;
    const open = this.#days.get(day);
    if (!open) return { ok: false, says: `what was spent on ${day} is not known` };
    const share = shareOf(open, cap);
    if (this.callsADay !== null && amount * this.callsADay > share.reserved) {
      return { ok: false, says: "more than the day's plan set aside for one call" };
    }
    const ofHost = hostOf(open, host);
    // What goes beyond the endpoint's own share must fit beside everybody else's.
    const extra = larger(share.spent + amount - larger(share.reserved, share.spent), 0n);
    const past = (spent: bigint, spoken: bigint, most: bigint): boolean =>
      spent + amount > most || (extra > 0n && spoken + extra > most);
    if (amount > caps.perCall) return { ok: false, says: passed("of a call", caps.perCall) };
    if (past(ofHost.spent, ofHost.spoken, caps.perHostDay)) {
      return { ok: false, says: passed("of a host and day", caps.perHostDay) };
    }
    if (past(open.spent, open.spoken, caps.perDay)) return { ok: false, says: passed("of a day", caps.perDay) };
    const everSpoken = this.#total + open.spoken - open.spent;
    if (past(this.#total, everSpoken, caps.total)) return { ok: false, says: passed("of all time", caps.total) };
    this.#move(open, host, cap, amount, extra);
    return { ok: true };
  }

  /** Puts back what was taken for a payment that was then not signed. */
  giveBack(day: string, host: string, amount: bigint, cap: string): void {
    const open = this.#days.get(day);
    if (!open) return;
    const share = shareOf(open, cap);
    const extra = larger(share.spent - larger(share.reserved, share.spent - amount), 0n);
    this.#move(open, host, cap, -amount, -extra);
  }

  /** Micro-units of every intent ever. */
  get total(): bigint {
    return this.#total;
  }

  #move(open: Day, host: string, cap: string, amount: bigint, spoken: bigint): void {
    shareOf(open, cap).spent += amount;
    hostOf(open, host).spent += amount;
    open.spent += amount;
    this.#total += amount;
    speak(open, host, spoken);
  }
}

function shareOf(open: Day, cap: string): Share {
  const share = open.shares.get(cap) ?? { reserved: 0n, spent: 0n };
  open.shares.set(cap, share);
  return share;
}

function hostOf(open: Day, host: string): { spent: bigint; spoken: bigint } {
  const known = open.byHost.get(host) ?? { spent: 0n, spoken: 0n };
  open.byHost.set(host, known);
  return known;
}

function speak(open: Day, host: string, micro: bigint): void {
  hostOf(open, host).spoken += micro;
  open.spoken += micro;
}
