import { CHANGE_DELAYS_MS, windowStart } from "../../pipelines/3-grade/params.ts";
import { addressKey } from "../../pipelines/record/networks.ts";
import { registrableDomain } from "../../pipelines/record/url.ts";
import { readThefts, type VolatileRow } from "../../pipelines/record/volatile.ts";

/** An endpoint that took money without a delivery (a theft). */
interface EndpointThefts {
  cap: string;
  domain: string;
  /** Text of the volatile row's column `thefts`, compared to detect changes. */
  columnText: string;
  /**
   * Times of the thefts (unix ms, one for each day) by the key of the address that received the money; null: address
   * unknown.
   */
  timesByAddress: ReadonlyMap<string | null, readonly number[]>;
}

/** Endpoints that took money, and when they last did. */
export interface TheftSummary {
  /** Capability ids, ascending. */
  caps: string[];
  /** Time of the newest theft, unix ms. */
  lastTheftMs: number;
}

type TheftIndex = Map<string, EndpointThefts[]>;

/**
 * Endpoints that took money without a delivery, by endpoint, address and registrable domain. Answers about urls
 * without a card use it, as grading uses its table of related parties (verification-method.md section 7). Immutable;
 * built from the few rows that name thefts. A query counts thefts within the grading window that are at least 24
 * hours old, since the money may be paid back until then.
 */
export class TheftTable {
  static readonly empty = new TheftTable(new Map());
  readonly #byAddress: TheftIndex = new Map();
  readonly #byDomain: TheftIndex = new Map();

  private constructor(private readonly takers: ReadonlyMap<string, EndpointThefts>) {
    for (const taker of takers.values()) {
      for (const address of taker.timesByAddress.keys()) if (address !== null) addTo(this.#byAddress, address, taker);
      addTo(this.#byDomain, taker.domain, taker);
    }
  }

  has(cap: string): boolean {
    return this.takers.has(cap);
  }

  /** Returns a table in which these rows replace those of their endpoints; the same table when nothing changes. */
  with(rows: Iterable<VolatileRow>): TheftTable {
    const changed = new Map<string, EndpointThefts | null>();
    for (const row of rows) {
      const existing = this.takers.get(row.capability_id);
      if (existing ? existing.columnText === row.thefts : row.thefts === null) continue;
      changed.set(row.capability_id, theftsOfRow(row));
    }
    if (changed.size === 0) return this;
    const takers = new Map(this.takers);
    for (const [cap, taker] of changed) {
      if (taker) takers.set(cap, taker);
      else takers.delete(cap);
    }
    return new TheftTable(takers);
  }

  /** Returns the thefts of one endpoint, or null. */
  ofEndpoint(cap: string, now: Date): TheftSummary | null {
    const taker = this.takers.get(cap);
    return taker ? summarize([taker], allTimes, now) : null;
  }

  /** Returns the thefts in which an address received the money, without those of the endpoint `except`; or null. */
  ofPayee(address: string, except: string | null, now: Date): TheftSummary | null {
    const key = addressKey(address);
    return summarize(
      withoutEndpoint(this.#byAddress, key, except),
      ({ timesByAddress }) => timesByAddress.get(key) ?? [],
      now,
    );
  }

  /** Returns the thefts under a registrable domain, without those of the endpoint `except`; or null. */
  ofDomain(domain: string, except: string | null, now: Date): TheftSummary | null {
    return summarize(withoutEndpoint(this.#byDomain, domain, except), allTimes, now);
  }
}

function theftsOfRow({ capability_id: cap, url, thefts }: VolatileRow): EndpointThefts | null {
  const timesByAddress = new Map<string | null, readonly number[]>();
  for (const theft of readThefts(thefts)) {
    timesByAddress.set(theft.pay_to === null ? null : addressKey(theft.pay_to), theft.days);
  }
  if (timesByAddress.size === 0 || thefts === null) return null;
  return { cap, domain: registrableDomain(url), columnText: thefts, timesByAddress };
}

const allTimes = ({ timesByAddress }: EndpointThefts): number[] => [...timesByAddress.values()].flat();

function addTo(index: TheftIndex, key: string, taker: EndpointThefts): void {
  const existing = index.get(key);
  if (existing) existing.push(taker);
  else index.set(key, [taker]);
}

const withoutEndpoint = (index: TheftIndex, key: string, except: string | null): EndpointThefts[] =>
  (index.get(key) ?? []).filter(({ cap }) => cap !== except);

function summarize(
  takers: readonly EndpointThefts[],
  timesOf: (taker: EndpointThefts) => readonly number[],
  now: Date,
): TheftSummary | null {
  const [from, until] = [windowStart(now).getTime(), now.getTime() - CHANGE_DELAYS_MS.pendingTheft];
  const caps: string[] = [];
  let lastTheftMs = Number.NEGATIVE_INFINITY;
  for (const taker of takers) {
    const times = timesOf(taker).filter((t) => t >= from && t <= until);
    if (times.length === 0) continue;
    caps.push(taker.cap);
    lastTheftMs = Math.max(lastTheftMs, ...times);
  }
  return caps.length > 0 ? { caps: caps.sort(), lastTheftMs } : null;
}
