import { AFTER, windowStart } from "../../pipelines/3-grade/params.ts";
import { addressKey } from "../../pipelines/record/networks.ts";
import { registrableDomain } from "../../pipelines/record/url.ts";
import { readThefts, type VolatileRow } from "../../pipelines/record/volatile.ts";

/** An endpoint that money was paid to for nothing. */
interface Taker {
  cap: string;
  domain: string;
  /** What the row said: the same text says nothing new. */
  text: string;
  /** By the key of the address that had the money (null: not known): its days, unix ms. */
  days: ReadonlyMap<string | null, readonly number[]>;
}

/** Endpoints that took money, as an answer says it. */
export interface TheftSummary {
  /** Ascending. */
  caps: string[];
  /** Unix ms of the newest day on which one of them did. */
  last: number;
}

type Index = Map<string, Taker[]>;

/**
 * Who took money, by endpoint, address and registrable domain: grading's table of related parties (verification-method.md
 * section 7) for answers about urls of which there is no card. Made from the few rows that name thefts; immutable. What
 * counts is decided at the moment of a question: in the window, and 24 hours old, in which it may be paid back.
 */
export class TheftTable {
  static readonly empty = new TheftTable(new Map());
  readonly #byAddress: Index = new Map();
  readonly #byDomain: Index = new Map();

  private constructor(private readonly takers: ReadonlyMap<string, Taker>) {
    for (const taker of takers.values()) {
      for (const address of taker.days.keys()) if (address !== null) push(this.#byAddress, address, taker);
      push(this.#byDomain, taker.domain, taker);
    }
  }

  has(cap: string): boolean {
    return this.takers.has(cap);
  }

  /** The table with these rows instead of what it held of their endpoints; itself where that changes nothing. */
  with(rows: Iterable<VolatileRow>): TheftTable {
    const changed = new Map<string, Taker | null>();
    for (const row of rows) {
      const held = this.takers.get(row.capability_id);
      if (held ? held.text === row.thefts : row.thefts === null) continue;
      changed.set(row.capability_id, takerOf(row));
    }
    if (changed.size === 0) return this;
    const takers = new Map(this.takers);
    for (const [cap, taker] of changed) {
      if (taker) takers.set(cap, taker);
      else takers.delete(cap);
    }
    return new TheftTable(takers);
  }

  /** Did this endpoint take money, and when last? */
  own(cap: string, now: Date): TheftSummary | null {
    const taker = this.takers.get(cap);
    return taker ? counted([taker], allDays, now) : null;
  }

  /** Endpoints but this one where this very address had the money. */
  ofPayee(address: string, except: string | null, now: Date): TheftSummary | null {
    const key = addressKey(address);
    return counted(others(this.#byAddress, key, except), ({ days }) => days.get(key) ?? [], now);
  }

  /** Endpoints but this one under the registrable domain of a url. */
  ofDomain(domain: string, except: string | null, now: Date): TheftSummary | null {
    return counted(others(this.#byDomain, domain, except), allDays, now);
  }
}

function takerOf({ capability_id: cap, url, thefts }: VolatileRow): Taker | null {
  const days = new Map<string | null, readonly number[]>();
  for (const theft of readThefts(thefts)) {
    days.set(theft.pay_to === null ? null : addressKey(theft.pay_to), theft.days);
  }
  if (days.size === 0 || thefts === null) return null;
  return { cap, domain: registrableDomain(url), text: thefts, days };
}

const allDays = ({ days }: Taker): number[] => [...days.values()].flat();

function push(index: Index, key: string, taker: Taker): void {
  const held = index.get(key);
  if (held) held.push(taker);
  else index.set(key, [taker]);
}

const others = (index: Index, key: string, except: string | null): Taker[] =>
  (index.get(key) ?? []).filter(({ cap }) => cap !== except);

function counted(
  takers: readonly Taker[],
  daysOf: (taker: Taker) => readonly number[],
  now: Date,
): TheftSummary | null {
  const [from, until] = [windowStart(now).getTime(), now.getTime() - AFTER.pendingTheft];
  const caps: string[] = [];
  let last = Number.NEGATIVE_INFINITY;
  for (const taker of takers) {
    const days = daysOf(taker).filter((t) => t >= from && t <= until);
    if (days.length === 0) continue;
    caps.push(taker.cap);
    last = Math.max(last, ...days);
  }
  return caps.length > 0 ? { caps: caps.sort(), last } : null;
}
