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

/**
 * The plan of a UTC day (grading-method.md section 5): a pure function of the salt and of what was known when the day
 * began. A covered endpoint's whole day, re-tests included, is set aside before the next one is looked at: those that
 * were paid before come first (a letter that stands needs its samples), the others in the order of the day's own lot.
 */
export function planDay(input: PlanInput): DayPlan {
  const { day, salt, caps, now } = input;
  const own = new Set(input.ownOrigins ?? []);
  const known = new Map<string, ListedCap>();
  for (const one of input.listed) {
    // Tools of an MCP server are not called over plain HTTP, and our own endpoints are never graded.
    if (one.tool === null && !own.has(new URL(one.url).origin)) known.set(one.cap, one);
  }
  const lots = [...known.values()].map((one) => ({ one, bytes: dayBytes(salt, one.cap) }));
  lots.sort((a, b) => Number(b.one.paidBlocks > 0) - Number(a.one.paidBlocks > 0) || Buffer.compare(a.bytes, b.bytes));
  const reservation = new Reservation(caps, input.spentBefore ?? 0n);
  const firstBlock = blockOf(dayStart(day));
  const lines = lots.map(({ one, bytes }): PlanLine => {
    const host = hostOf(one.url);
    const base = one.paidBlocks < FAST_UNTIL ? BLOCKS_PER_DAY : 1;
    const price = expectedPrice(one, caps);
    const covered = price !== null && reservation.take(host, price, BigInt(BLOCKS_PER_DAY));
    const calls = callsOf(bytes, firstBlock, base, covered).filter((call) => isAhead(call, now));
    return { cap: one.cap, host, calls, base_per_day: base, covered };
  });
  lines.sort((a, b) => (a.cap < b.cap ? -1 : 1));
  const covered = lines.filter((line) => line.covered).map((line) => line.cap);
  return { v: 1, day, salt_hash: sha256hex(salt), covered_root: coveredRoot(covered), lines };
}
