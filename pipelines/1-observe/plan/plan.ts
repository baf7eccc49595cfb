import { createHmac } from "node:crypto";
import { sha256hex } from "../../../infra/canonical.ts";
import { runYielding, sortInSteps } from "../../../infra/concurrency.ts";
import { computeRoot, leafHash } from "../../../infra/tree/hash.ts";
import type { ListedCap } from "../../record/memory.ts";
import { parseMoney } from "../../record/money.ts";
import type { DayPlan, PlanLine, PlannedCall, UncoveredReason } from "../../record/plan.ts";
import { blockOf, blockStart, DAY_MS, dayOf, dayStart } from "../../record/time.ts";
import { hostOf } from "../../record/url.ts";
import { type Caps, type Payee, Reservation, type Reserved, toWhom } from "./spend.ts";
import { BLOCKS_PER_DAY } from "./steps.ts";

/** An endpoint is called in every block until it has this many paid blocks; after that once a day. */
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
   * When the plan is made. A call counts only if it was scheduled before its block began, so the block under way is
   * left out; if it began within the last ten minutes, it keeps the calls whose minute is still ahead.
   */
  now: Date;
  /** Sum of all intents before this day, micro-units. */
  spentBefore?: bigint;
  /** Origins of our own endpoints, which are never graded. */
  ownOrigins?: readonly string[];
  /** Number of clients and askers in the seven days before, by capability (sql/queries/asks, demand). */
  demand?: ReadonlyMap<string, number>;
  /** The operator's priorities: capability id or host -> a whole number; 0 where none is set. */
  priority?: Readonly<Record<string, number>>;
  /** Hosts that the operator pays nothing to, named as in `priority`; they are probed like all others. */
  exclude?: readonly string[];
}

/**
 * Making a plan takes some moments, also when it is made at the very beginning of a block (a first start, or a day that
 * a simulation lives through). Nobody can have seen a call of that block by then: its calls follow from the plan.
 */
const GRACE_MS = 600_000;

const isAhead = (call: PlannedCall, now: Date): boolean => {
  const late = now.getTime() - blockStart(call.block).getTime();
  return late <= 0 || (late <= GRACE_MS && late < call.minute * 60_000);
};

/** Bytes that decide the times of an endpoint's calls on a day: HMAC-SHA256(salt, capability id). */
export const dayBytes = (salt: Uint8Array, cap: string): Buffer => createHmac("sha256", salt).update(cap).digest();

/**
 * RFC 6962 root over the sorted ids of the covered capabilities. It is published before the day, so that no call can be
 * dropped.
 */
export const coveredRoot = (caps: readonly string[]): string =>
  computeRoot([...caps].sort().map((cap) => leafHash(Buffer.from(cap)))).toString("hex");

interface Expected {
  /** Micro-units of one call; null when there is nothing to pay, or not with our rail. */
  price: bigint | null;
  payTo: string | null;
}

/** The expected price of one call, and its payee. */
function expected(one: ListedCap, caps: Caps): Expected {
  if (one.lastPrice !== null) return { price: parseMoney(one.lastPrice), payTo: one.lastPayTo };
  const listed = one.claims.offers.flatMap((offer) =>
    offer.payable && offer.price !== null ? [{ price: parseMoney(offer.price), payTo: offer.pay_to }] : [],
  );
  const cheapest = listed.sort((a, b) => (a.price < b.price ? -1 : 1))[0];
  if (cheapest) return cheapest;
  // Never probed and without a listed price: the price is unknown, so that of the dearest call is set aside. Probed and
  // never quoted: there is nothing to pay, and money set aside for it would be missing for others.
  const unknown = one.claims.offers.length === 0 && one.firstSeen === null;
  return { price: unknown ? caps.perCall : null, payTo: null };
}

/** An endpoint's calls of the day, in time order; in a minute the probe comes before the paid call. */
export function callsOf(bytes: Uint8Array, firstBlock: number, basePerDay: number, covered: boolean): PlannedCall[] {
  const minute = ((bytes[8]! << 8) | bytes[9]!) % MINUTES;
  const calls: PlannedCall[] = [];
  for (let b = 0; b < BLOCKS_PER_DAY; b++) {
    const block = firstBlock + b;
    calls.push({ block, minute, kind: "probe", blind: false });
    if (!covered) continue;
    const every = basePerDay >= BLOCKS_PER_DAY;
    if (every) calls.push({ block, minute, kind: "paid", blind: bytes[2 + b]! < BLIND_BELOW });
    else if (bytes[0]! % BLOCKS_PER_DAY === b)
      calls.push({ block, minute, kind: "paid", blind: bytes[1]! < BLIND_BELOW });
  }
  return calls;
}

/** What decides an endpoint's place in the queue for the day's money. */
interface Candidate {
  one: ListedCap;
  to: Payee;
  bytes: Buffer;
  price: bigint | null;
  priority: number;
  /** UTC day of its newest turn; empty before the first. */
  turn: string;
  /**
   * floor(log2(1 + n)) of n clients: a doubling is one step, so that a handful of clients never outweighs the price.
   */
  demand: number;
  /** Why it is not paid, however cheap it is; or null. */
  unpaid: UncoveredReason | null;
}

/**
 * An endpoint without a 402 for this long is silent: nobody can be paid, and money set aside would be missing for
 * others.
 */
const SILENT_MS = 14 * DAY_MS;

/**
 * Why an endpoint is not to be paid, however much money there is; or null. One that answers again is paid from the next
 * day's plan on.
 */
function unpaidBecause(one: ListedCap, { day, exclude = [] }: PlanInput): UncoveredReason | null {
  const { host, hostname } = new URL(one.url);
  if (exclude.some((name) => name === host || name === hostname)) return "excluded";
  if (one.sellerClaims?.no_paid_calls === true) return "opted_out";
  const since = one.lastAsked === undefined ? null : (one.lastAsked ?? one.firstSeen);
  return since !== null && dayStart(day).getTime() - Date.parse(since) >= SILENT_MS ? "silent" : null;
}

function candidateOf(one: ListedCap, input: PlanInput): Candidate {
  const { salt, caps, demand, priority = {} } = input;
  const host = hostOf(one.url);
  const priorityOf = (name: string): number | undefined => (Object.hasOwn(priority, name) ? priority[name] : undefined);
  const { price, payTo } = expected(one, caps);
  return {
    one,
    to: toWhom(host, payTo),
    bytes: dayBytes(salt, one.cap),
    price,
    priority: priorityOf(one.cap) ?? priorityOf(host) ?? priorityOf(new URL(one.url).hostname) ?? 0,
    turn: one.lastTried === null ? "" : dayOf(new Date(one.lastTried)),
    demand: Math.floor(Math.log2(1 + Math.max(0, demand?.get(one.cap) ?? 0))),
    unpaid: unpaidBecause(one, input),
  };
}

/**
 * The order in which endpoints are covered, among those paid before and among those never paid: the operator's
 * priority, then the longest time since the last turn, then demand, then the lowest price, then the day's random order,
 * which nobody knew before. A turn is a paid call that was tried. A call that could not be paid is a turn too:
 * otherwise endpoints for which money is set aside and never spent would be first every day.
 */
function firstCovered(a: Candidate, b: Candidate): number {
  return (
    b.priority - a.priority ||
    Number(a.turn > b.turn) - Number(a.turn < b.turn) ||
    b.demand - a.demand ||
    Number(a.price === null) - Number(b.price === null) ||
    Number((a.price ?? 0n) > (b.price ?? 0n)) - Number((a.price ?? 0n) < (b.price ?? 0n)) ||
    Buffer.compare(a.bytes, b.bytes)
  );
}

const isFresh = ({ one }: Candidate): boolean => one.paidBlocks === 0;

/**
 * Sets money aside for one endpoint after the other: first the share of those never paid, then for those paid before (a
 * published letter needs their samples), then what is left for those never paid.
 * @returns by capability the cap that its day does not fit into, or null where it is covered
 */
function* cover(
  candidates: readonly Candidate[],
  reservation: Reservation,
): Generator<undefined, Map<string, UncoveredReason | null>> {
  const decided = new Map<string, UncoveredReason | null>();
  const take = (candidate: Candidate): void => {
    const { one, to, price } = candidate;
    const none = candidate.unpaid ?? (price === null ? "nothing_to_pay" : null);
    const why = none ?? reservation.take(to, price!, BigInt(BLOCKS_PER_DAY), isFresh(candidate));
    decided.set(one.cap, why);
  };
  const fresh = candidates.filter(isFresh);
  for (const candidate of fresh) {
    if (
      candidate.price !== null &&
      candidate.unpaid === null &&
      reservation.fitsNewShare(candidate.to, candidate.price, BigInt(BLOCKS_PER_DAY))
    )
      take(candidate);
    yield;
  }
  for (const candidate of candidates) {
    if (!isFresh(candidate)) take(candidate);
    yield;
  }
  for (const candidate of fresh) {
    if (decided.get(candidate.one.cap) !== null) take(candidate);
    yield;
  }
  return decided;
}

/** Endpoints after which other work has its turn: a few milliseconds. */
const DRAWN_A_TURN = 64;
/** Endpoints that are sorted within one step of that: comparing two costs little beside drawing a day. */

const SORTED_A_STEP = 16;

/** Draws a day's plan step by step, so that a process that plans a large market answers and measures meanwhile. */
export function planInTurns(input: PlanInput): Promise<DayPlan> {
  return runYielding(drawn(input), DRAWN_A_TURN);
}

/**
 * Draws the plan of a UTC day (verification-method.md section 5): a pure function of the salt and of what was known
 * when the day began. Money for an endpoint's whole day, re-tests included, is set aside before the next endpoint is
 * looked at. One that does not fit is not covered, and its line tells why. Yields after each endpoint, and often enough
 * while they are sorted.
 */
export function* drawn(input: PlanInput): Generator<undefined, DayPlan> {
  const { day, salt, caps, now } = input;
  const own = new Set(input.ownOrigins ?? []);
  const byCap = new Map<string, Candidate>();
  for (const one of input.listed) {
    // Our own endpoints are never graded.
    if (!own.has(new URL(one.url).origin)) byCap.set(one.cap, candidateOf(one, input));
    yield;
  }
  const candidates = yield* sortInSteps(byCap.values(), firstCovered, SORTED_A_STEP);
  const decided = yield* cover(candidates, new Reservation(caps, input.spentBefore ?? 0n));
  const firstBlock = blockOf(dayStart(day));
  const lines: PlanLine[] = [];
  for (const { one, to, bytes, price } of candidates) {
    const { host, payee } = to;
    const base = one.paidBlocks < FAST_UNTIL ? BLOCKS_PER_DAY : 1;
    const why = decided.get(one.cap)!;
    const calls = callsOf(bytes, firstBlock, base, why === null).filter((call) => isAhead(call, now));
    const price_micro = price === null ? null : price.toString();
    lines.push({ cap: one.cap, host, payee, calls, base_per_day: base, covered: why === null, price_micro, why });
    yield;
  }
  const byId = yield* sortInSteps(lines, (a, b) => (a.cap < b.cap ? -1 : 1), SORTED_A_STEP);
  const covered = byId.filter((line) => line.covered).map((line) => line.cap);
  return { v: 1, day, salt_hash: sha256hex(salt), covered_root: coveredRoot(covered), lines: byId };
}

/** Micro-units that a plan sets aside for a covered endpoint: four calls, whether they are made or not. */
export const reservedFor = (line: PlanLine): bigint =>
  line.covered ? BigInt(line.price_micro ?? 0) * BigInt(BLOCKS_PER_DAY) : 0n;

/** What a plan sets aside, in the form that the ledger takes. */
export const reservedBy = (plan: DayPlan): Reserved[] =>
  plan.lines
    .filter((line) => line.covered)
    .map((line) => ({
      ...{ cap: line.cap, ...toWhom(line.host, line.payee ?? null), micro: reservedFor(line) },
      block: line.calls.find((call) => call.kind === "paid")?.block,
    }));
