import type { Memory } from "../record/memory.ts";
import { formatMoney } from "../record/money.ts";
import { BoundedMap } from "./bounded.ts";

/** Most that may be spent, in micro-units. A day is a UTC date. */
export interface Caps {
  perCall: bigint;
  perHostDay: bigint;
  perDay: bigint;
  /** Ever. */
  total: bigint;
}

interface Day {
  byHost: Map<string, bigint>;
  total: bigint;
}

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

  /** Sets `calls` payments of `price` aside for one endpoint; false, and nothing is set aside, when they do not fit. */
  take(host: string, price: bigint, calls: bigint): boolean {
    const { caps } = this;
    const sum = price * calls;
    const ofHost = (this.#byHost.get(host) ?? 0n) + sum;
    const ofDay = this.#day + sum;
    const fits =
      price <= caps.perCall && ofHost <= caps.perHostDay && ofDay <= caps.perDay && this.before + ofDay <= caps.total;
    if (!fits) return false;
    this.#byHost.set(host, ofHost);
    this.#day = ofDay;
    return true;
  }
}

/**
 * Money that left, counted again at every signature: whatever a plan said, nothing is signed past a cap. An amount
 * counts from the moment it is taken, settled or not, since a signed payment may still settle.
 */
export class Ledger {
  readonly #days = new BoundedMap<string, Day>(8);
  #total: bigint;

  /** @param before micro-units of every intent ever, as of now */
  constructor(
    private readonly caps: Caps,
    before: bigint,
  ) {
    this.#total = before;
  }

  /** Reads what the record says was spent on a day. Once a day, before the first payment of ours on it. */
  async open(day: string, memory: Pick<Memory, "spentOn">): Promise<void> {
    if (this.#days.has(day)) return;
    const { byHost, total } = await memory.spentOn(day);
    if (!this.#days.has(day)) this.#days.set(day, { byHost: new Map(byHost), total });
  }

  /** Takes one payment, or says which cap it would pass. Takes all or nothing, without a pause between look and take. */
  take(day: string, host: string, amount: bigint): { ok: true } | { ok: false; says: string } {
    const { caps } = this;
    const spent = this.#days.get(day);
    if (!spent) return { ok: false, says: `what was spent on ${day} is not known` };
    const ofHost = (spent.byHost.get(host) ?? 0n) + amount;
    if (amount > caps.perCall) return { ok: false, says: passed("of a call", caps.perCall) };
    if (ofHost > caps.perHostDay) return { ok: false, says: passed("of a host and day", caps.perHostDay) };
    if (spent.total + amount > caps.perDay) return { ok: false, says: passed("of a day", caps.perDay) };
    if (this.#total + amount > caps.total) return { ok: false, says: passed("of all time", caps.total) };
    spent.byHost.set(host, ofHost);
    spent.total += amount;
    this.#total += amount;
    return { ok: true };
  }

  /** Puts back what was taken for a payment that was then not signed. */
  giveBack(day: string, host: string, amount: bigint): void {
    const spent = this.#days.get(day);
    if (!spent) return;
    spent.byHost.set(host, (spent.byHost.get(host) ?? 0n) - amount);
    spent.total -= amount;
    this.#total -= amount;
  }

  /** Micro-units of every intent ever. */
  get total(): bigint {
    return this.#total;
  }
}
