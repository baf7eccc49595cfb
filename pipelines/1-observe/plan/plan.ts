import { createHmac } from "node:crypto";
import { sha256hex } from "../../../infra/canonical.ts";
import { runYielding, sortInSteps } from "../../../infra/concurrency.ts";
import { computeRoot, leafHash } from "../../../infra/tree/hash.ts";
import type { ListedCap } from "../../record/memory.ts";
import { parseMoney } from "../../record/money.ts";
import type { DayPlan, PlanLine, PlannedCall, UncoveredReason } from "../../record/plan.ts";
import { blockOf, blockStart, DAY_MS, dayOf, dayStart } from "../../record/time.ts";
import { hostOf } from "../../record/url.ts";
import { type Caps, type Payee, payeeOf, Reservation, type Reserved } from "./spend.ts";
import { BLOCKS_PER_DAY } from "./steps.ts";

/** An endpoint is paid in every block (six hours UTC) until it has this many paid blocks, and once a day after that. */
export const BLOCKS_BEFORE_DAILY = 30;
const BLIND_BYTES = 64;
const MINUTES_PER_BLOCK = 360;

export interface PlanInput {
  /** UTC date, YYYY-MM-DD. */
  day: string;
  /** 32 random bytes, secret until the day is over. */
  salt: Uint8Array;
  listed: readonly ListedCap[];
  caps: Caps;
  /**
   * When the plan is made. A call counts only if it was scheduled before its block began, so the current block gets no
   * calls. An exception: if the block began within the last ten minutes, it keeps the calls whose minute is still
   * ahead.
   */
  now: Date;
  /** Sum of all payments that were signed before this day, micro-units. */
  spentBefore?: bigint;
  /** Origins of our own endpoints, which are never graded. */
  ownOrigins?: readonly string[];
  /** Number of clients and askers in the seven days before, by capability (sql/queries/asks, demand). */
  demand?: ReadonlyMap<string, number>;
  /** The operator's priorities: capability id or host -> a whole number; 0 where none is set. */
  priority?: Readonly<Record<string, number>>;
  /** Hosts that the operator does not pay, named as in `priority`. They are probed like all others. */
  exclude?: readonly string[];
}

/**
 * How long after the beginning of a block a plan may still have calls in it, ms. Making a plan takes time, also at a
 * first start or in a simulation, which make it when the block begins. No call of the block can have been made before
 * its plan exists.
 */
const GRACE_MS = 600_000;

const isAhead = (call: PlannedCall, now: Date): boolean => {
  const late = now.getTime() - blockStart(call.block).getTime();
  return late <= 0 || (late <= GRACE_MS && late < call.minute * 60_000);
};

/**
 * The pseudo-random bytes that determine the times of an endpoint's calls on a day: HMAC-SHA256(salt, capability id).
 */
export const dayBytes = (salt: Uint8Array, cap: string): Buffer => createHmac("sha256", salt).update(cap).digest();

/**
 * Merkle root (RFC 6962) over the sorted ids of the covered capabilities (those that are paid). It is published before
 * the day, so that we cannot drop an endpoint afterwards unnoticed.
 */
export const coveredRoot = (caps: readonly string[]): string =>
  computeRoot([...caps].sort().map((cap) => leafHash(Buffer.from(cap)))).toString("hex");

interface ExpectedPayment {
  /** Price of one call, micro-units; null when there is nothing to pay, or nothing that our wallets can pay. */
  price: bigint | null;
  payTo: string | null;
}

/** The expected price of one call, and its payee. */
function expectPayment(one: ListedCap, caps: Caps): ExpectedPayment {
  if (one.lastPrice !== null) return { price: parseMoney(one.lastPrice), payTo: one.lastPayTo };
  const listed = one.claims.offers.flatMap((offer) =>
    offer.payable && offer.price !== null ? [{ price: parseMoney(offer.price), payTo: offer.pay_to }] : [],
  );
  const cheapest = listed.sort((a, b) => (a.price < b.price ? -1 : 1))[0];
  if (cheapest) return cheapest;
  // An endpoint that was never probed and lists no price: the price is unknown, so the highest allowed price is
  // reserved. An endpoint that was probed and never asked for money: nothing is reserved, since other endpoints need
  // that money.
  const unknown = one.claims.offers.length === 0 && one.firstSeen === null;
  return { price: unknown ? caps.perCall : null, payTo: null };
}

/** Draws an endpoint's calls of the day, in time order. In a minute the probe comes before the paid call. */
export function drawCalls(bytes: Uint8Array, firstBlock: number, basePerDay: number, covered: boolean): PlannedCall[] {
  const minute = ((bytes[8]! << 8) | bytes[9]!) % MINUTES_PER_BLOCK;
  const calls: PlannedCall[] = [];
  for (let b = 0; b < BLOCKS_PER_DAY; b++) {
    const block = firstBlock + b;
    calls.push({ block, minute, kind: "probe", blind: false });
    if (!covered) continue;
    const isEveryBlock = basePerDay >= BLOCKS_PER_DAY;
    if (isEveryBlock) calls.push({ block, minute, kind: "paid", blind: bytes[2 + b]! < BLIND_BYTES });
    else if (bytes[0]! % BLOCKS_PER_DAY === b)
      calls.push({ block, minute, kind: "paid", blind: bytes[1]! < BLIND_BYTES });
  }
  return calls;
}

/** An endpoint in the queue for the day's money, with what determines its place there. */
interface Candidate {
  one: ListedCap;
  to: Payee;
  bytes: Buffer;
  price: bigint | null;
  priority: number;
  /** UTC day of the newest attempt at a paid call; empty before the first. */
  lastTurn: string;
  /** floor(log2(1 + n)) of n clients. Only a doubling counts, so that a few clients do not outweigh the price. */
  demand: number;
  /** Why the endpoint is not paid at any price; null where it may be paid. */
  unpaid: UncoveredReason | null;
}

/**
 * An endpoint that answered no 402 for this long is silent. No money is reserved for it, since other endpoints need
 * that money.
 */
const SILENT_MS = 14 * DAY_MS;

/**
 * Why an endpoint is not paid even if there is enough money; null where it may be paid. A silent endpoint that answers
 * again is paid from the next day's plan on.
 */
function whyUnpaid(one: ListedCap, { day, exclude = [] }: PlanInput): UncoveredReason | null {
  const { host, hostname } = new URL(one.url);
  if (exclude.some((name) => name === host || name === hostname)) return "excluded";
  if (one.sellerClaims?.no_paid_calls === true) return "opted_out";
  const since = one.lastAsked === undefined ? null : (one.lastAsked ?? one.firstSeen);
  return since !== null && dayStart(day).getTime() - Date.parse(since) >= SILENT_MS ? "silent" : null;
}

function createCandidate(one: ListedCap, input: PlanInput): Candidate {
  const { salt, caps, demand, priority = {} } = input;
  const host = hostOf(one.url);
  const priorityOf = (name: string): number | undefined => (Object.hasOwn(priority, name) ? priority[name] : undefined);
  const { price, payTo } = expectPayment(one, caps);
  return {
    one,
    to: payeeOf(host, payTo),
    bytes: dayBytes(salt, one.cap),
    price,
    priority: priorityOf(one.cap) ?? priorityOf(host) ?? priorityOf(new URL(one.url).hostname) ?? 0,
    lastTurn: one.lastTried === null ? "" : dayOf(new Date(one.lastTried)),
    demand: Math.floor(Math.log2(1 + Math.max(0, demand?.get(one.cap) ?? 0))),
    unpaid: whyUnpaid(one, input),
  };
}

/**
 * Compares two endpoints for the order in which money is reserved, separately for those paid before and those never
 * paid: the operator's priority, then the longest time since the last attempt at a paid call, then demand, then the
 * lowest price, then the day's random order, which nobody can know before. An attempt that could not be paid counts
 * too. Otherwise endpoints whose reserved money is never spent would be first every day.
 */
function compareCandidates(a: Candidate, b: Candidate): number {
  return (
    b.priority - a.priority ||
    Number(a.lastTurn > b.lastTurn) - Number(a.lastTurn < b.lastTurn) ||
    b.demand - a.demand ||
    Number(a.price === null) - Number(b.price === null) ||
    Number((a.price ?? 0n) > (b.price ?? 0n)) - Number((a.price ?? 0n) < (b.price ?? 0n)) ||
    Buffer.compare(a.bytes, b.bytes)
  );
}

const isNeverPaid = ({ one }: Candidate): boolean => one.paidBlocks === 0;

/**
 * Reserves money for one endpoint after the other: first a fixed share for endpoints that were never paid; then for
 * endpoints paid before, since their published letters need new samples; then the rest for endpoints that were never
 * paid.
 * @returns for each capability the reason why it is not covered, or null where it is covered
 */
function* coverCandidates(
  candidates: readonly Candidate[],
  reservation: Reservation,
): Generator<undefined, Map<string, UncoveredReason | null>> {
  const whyByCap = new Map<string, UncoveredReason | null>();
  const take = (candidate: Candidate): void => {
    const { one, to, price } = candidate;
    const none = candidate.unpaid ?? (price === null ? "nothing_to_pay" : null);
    const why = none ?? reservation.take(to, price!, BigInt(BLOCKS_PER_DAY), isNeverPaid(candidate));
    whyByCap.set(one.cap, why);
  };
  const fresh = candidates.filter(isNeverPaid);
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
    if (!isNeverPaid(candidate)) take(candidate);
    yield;
  }
  for (const candidate of fresh) {
    if (whyByCap.get(candidate.one.cap) !== null) take(candidate);
    yield;
  }
  return whyByCap;
}

/** Endpoints after which the loop yields to other work: a few milliseconds. */
const ENDPOINTS_PER_TURN = 64;
/** Endpoints that are sorted in one step: comparing two costs little compared with drawing a day. */
const SORTED_PER_STEP = 16;

/**
 * Draws a day's plan and yields to the event loop in between, so that a process that plans a large market keeps
 * answering and measuring.
 */
export function drawPlanYielding(input: PlanInput): Promise<DayPlan> {
  return runYielding(drawPlan(input), ENDPOINTS_PER_TURN);
}

/**
 * Draws the plan of a UTC day (verification-method.md section 5), a pure function of the salt and of what was known
 * when the day began. It reserves money for an endpoint's whole day, re-tests included, before it goes on to the next
 * endpoint. An endpoint that does not fit into the caps is not covered, and its line holds the reason. The generator
 * yields after each endpoint, and often enough while they are sorted.
 */
export function* drawPlan(input: PlanInput): Generator<undefined, DayPlan> {
  const { day, salt, caps, now } = input;
  const own = new Set(input.ownOrigins ?? []);
  const byCap = new Map<string, Candidate>();
  for (const one of input.listed) {
    // Our own endpoints are never graded.
    if (!own.has(new URL(one.url).origin)) byCap.set(one.cap, createCandidate(one, input));
    yield;
  }
  const candidates = yield* sortInSteps(byCap.values(), compareCandidates, SORTED_PER_STEP);
  const whyByCap = yield* coverCandidates(candidates, new Reservation(caps, input.spentBefore ?? 0n));
  const firstBlock = blockOf(dayStart(day));
  const lines: PlanLine[] = [];
  for (const { one, to, bytes, price } of candidates) {
    const { host, payee } = to;
    const base = one.paidBlocks < BLOCKS_BEFORE_DAILY ? BLOCKS_PER_DAY : 1;
    const why = whyByCap.get(one.cap)!;
    const calls = drawCalls(bytes, firstBlock, base, why === null).filter((call) => isAhead(call, now));
    const price_micro = price === null ? null : price.toString();
    lines.push({ cap: one.cap, host, payee, calls, base_per_day: base, covered: why === null, price_micro, why });
    yield;
  }
  const byId = yield* sortInSteps(lines, (a, b) => (a.cap < b.cap ? -1 : 1), SORTED_PER_STEP);
  const covered = byId.filter((line) => line.covered).map((line) => line.cap);
  return { v: 1, day, salt_hash: sha256hex(salt), covered_root: coveredRoot(covered), lines: byId };
}

/** Micro-units that a plan reserves for a covered endpoint: the price of four calls, even if fewer are made. */
export const reservedMicro = (line: PlanLine): bigint =>
  line.covered ? BigInt(line.price_micro ?? 0) * BigInt(BLOCKS_PER_DAY) : 0n;

/** What a plan reserves, in the form that {@link Ledger.open} takes. */
export const reservationsOf = (plan: DayPlan): Reserved[] =>
  plan.lines
    .filter((line) => line.covered)
    .map((line) => ({
      ...{ cap: line.cap, ...payeeOf(line.host, line.payee ?? null), micro: reservedMicro(line) },
      block: line.calls.find((call) => call.kind === "paid")?.block,
    }));
