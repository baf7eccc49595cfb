import { createHmac } from "node:crypto";
import { sha256hex } from "../../infra/canonical.ts";
import { leafHash, rootOf } from "../../infra/tree/hash.ts";
import type { ListedCap } from "../record/memory.ts";
import { parseMoney } from "../record/money.ts";
import type { DayPlan, PlanLine, PlannedCall } from "../record/plan.ts";
import { blockOf, blockStart, dayStart } from "../record/time.ts";
import { hostOf } from "./places.ts";
import { BLOCKS_PER_DAY } from "./retest.ts";
import { type Caps, Reservation } from "./spend.ts";

/** Paid blocks until which every block is called; one call a day after that. */
export const FAST_UNTIL = 30;
const BLIND_BELOW = 64;
const MINUTES = 360;

export interface PlanInput {
  /** UTC date, YYYY-MM-DD. */
  day: string;
  /** 32 random bytes, secret until the day is over. */
  salt: Uint8Array;
  listed: readonly ListedCap[];
  caps: Caps;
  /**
   * When the plan is made. What counts was scheduled before its block began, so a block under way is left out; one that
   * began within the last ten minutes keeps the calls whose own minute is still ahead.
   */
  now: Date;
  /** Micro-units of every intent ever, before this day. */
  spentBefore?: bigint;
  /** Origins of our own endpoints, which are never graded. */
  ownOrigins?: readonly string[];
  /** Clients and askers of the seven days before, by capability (sql/47_demand.sql). */
  demand?: ReadonlyMap<string, number>;
  /** The operator's word: capability id or host -> a whole number, 0 where nothing is said. */
  priority?: Readonly<Record<string, number>>;
}

/**
 * A plan that is made on the stroke of a block (a first start, a day that is lived through afterwards) takes moments to
 * make. No call of the block can have been seen by then: they are made from the plan.
 */
const GRACE_MS = 600_000;

const isAhead = (call: PlannedCall, now: Date): boolean => {
  const late = now.getTime() - blockStart(call.block).getTime();
  return late <= 0 || (late <= GRACE_MS && late < call.minute * 60_000);
};

/** Bytes that place an endpoint's calls on a day: HMAC-SHA256(salt, capability id). */
export const dayBytes = (salt: Uint8Array, cap: string): Buffer => createHmac("sha256", salt).update(cap).digest();

/** RFC 6962 root over the sorted covered capability ids: published before the day, so that no call can be dropped. */
export const coveredRoot = (caps: readonly string[]): string =>
  rootOf([...caps].sort().map((cap) => leafHash(Buffer.from(cap)))).toString("hex");

/** Micro-units that one call is expected to cost; null when there is nothing to pay, or not with our rail. */
function expectedPrice(one: ListedCap, caps: Caps): bigint | null {
  if (one.lastPrice !== null) return parseMoney(one.lastPrice);
  const listed = one.claims.offers.flatMap((offer) =>
    offer.payable && offer.price !== null ? [parseMoney(offer.price)] : [],
  );
  const cheapest = listed.sort((a, b) => (a < b ? -1 : 1))[0];
  if (cheapest !== undefined) return cheapest;
  // Never asked and nothing listed: the first leg will tell, so the dearest call is set aside. Asked before and never
  // quoted: there is nothing to pay, and budget kept for it would starve the others.
  return one.claims.offers.length === 0 && one.firstSeen === null ? caps.perCall : null;
}

/** An endpoint's calls of the day, in time order; a knock before the paid call of its minute. */
export function callsOf(bytes: Uint8Array, firstBlock: number, basePerDay: number, covered: boolean): PlannedCall[] {
  const minute = ((bytes[8]! << 8) | bytes[9]!) % MINUTES;
  const calls: PlannedCall[] = [];
  for (let b = 0; b < BLOCKS_PER_DAY; b++) {
    const block = firstBlock + b;
    calls.push({ block, minute, kind: "knock", blind: false });
    if (!covered) continue;
    const every = basePerDay >= BLOCKS_PER_DAY;
    if (every) calls.push({ block, minute, kind: "paid", blind: bytes[2 + b]! < BLIND_BELOW });
    else if (bytes[0]! % BLOCKS_PER_DAY === b)
      calls.push({ block, minute, kind: "paid", blind: bytes[1]! < BLIND_BELOW });
  }
  return calls;
}

/** Everything that decides an endpoint's place in the queue for the day's money. */
interface Lot {
  one: ListedCap;
  host: string;
  bytes: Buffer;
  price: bigint | null;
  priority: number;
  /** floor(log2(1 + n)): twice as many clients are one step, so that a handful of them never outweighs the price. */
  demand: number;
}

function lotOf(one: ListedCap, { salt, caps, demand, priority = {} }: PlanInput): Lot {
  const host = hostOf(one.url);
  const said = (name: string): number | undefined => (Object.hasOwn(priority, name) ? priority[name] : undefined);
  return {
    one,
    host,
    bytes: dayBytes(salt, one.cap),
    price: expectedPrice(one, caps),
    priority: said(one.cap) ?? said(host) ?? said(new URL(one.url).hostname) ?? 0,
    demand: Math.floor(Math.log2(1 + Math.max(0, demand?.get(one.cap) ?? 0))),
  };
}

/**
 * Who is covered before whom: those that were paid before (a letter that stands needs its samples), then the
 * operator's priority, then demand, then the cheapest, then the day's own lot, which nobody knew before.
 */
function firstCovered(a: Lot, b: Lot): number {
  return (
    Number(b.one.paidBlocks > 0) - Number(a.one.paidBlocks > 0) ||
    b.priority - a.priority ||
    b.demand - a.demand ||
    Number(a.price === null) - Number(b.price === null) ||
    Number((a.price ?? 0n) > (b.price ?? 0n)) - Number((a.price ?? 0n) < (b.price ?? 0n)) ||
    Buffer.compare(a.bytes, b.bytes)
  );
}

/**
 * The plan of a UTC day (grading-method.md section 5): a pure function of the salt and of what was known when the day
 * began. A covered endpoint's whole day, re-tests included, is set aside before the next one is looked at; what does
 * not fit is not covered, and its line says why.
 */
export function planDay(input: PlanInput): DayPlan {
  const { day, salt, caps, now } = input;
  const own = new Set(input.ownOrigins ?? []);
  const known = new Map<string, ListedCap>();
  for (const one of input.listed) {
    // Our own endpoints are never graded.
    if (!own.has(new URL(one.url).origin)) known.set(one.cap, one);
  }
  const lots = [...known.values()].map((one) => lotOf(one, input)).sort(firstCovered);
  const reservation = new Reservation(caps, input.spentBefore ?? 0n);
  const firstBlock = blockOf(dayStart(day));
  const lines = lots.map(({ one, host, bytes, price }): PlanLine => {
    const base = one.paidBlocks < FAST_UNTIL ? BLOCKS_PER_DAY : 1;
    const why = price === null ? "nothing_to_pay" : reservation.take(host, price, BigInt(BLOCKS_PER_DAY));
    const calls = callsOf(bytes, firstBlock, base, why === null).filter((call) => isAhead(call, now));
    const price_micro = price === null ? null : price.toString();
    return { cap: one.cap, host, calls, base_per_day: base, covered: why === null, price_micro, why };
  });
  lines.sort((a, b) => (a.cap < b.cap ? -1 : 1));
  const covered = lines.filter((line) => line.covered).map((line) => line.cap);
  return { v: 1, day, salt_hash: sha256hex(salt), covered_root: coveredRoot(covered), lines };
}

/** Micro-units that a plan sets aside for a covered endpoint: four calls, whether they are made or not. */
export const reservedFor = (line: PlanLine): bigint =>
  line.covered ? BigInt(line.price_micro ?? 0) * BigInt(BLOCKS_PER_DAY) : 0n;
