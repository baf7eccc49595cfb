import { createHmac } from "node:crypto";
import { sha256hex } from "../../../infra/canonical.ts";
import { runYielding, sortInSteps } from "../../../infra/concurrency.ts";
import { computeRoot, leafHash } from "../../../infra/tree/hash.ts";
import type { ListedCap } from "../../record/memory.ts";
import { parseMoney } from "../../record/money.ts";
import type { DayPlan, PlanLine, PlannedCall, UncoveredReason } from "../../record/plan.ts";
import { blockOf, blockStart, DAY_MS, dayOf, dayStart } from "../../record/time.ts";
import { hostOf } from "../../record/url.ts";
import { type Caps, type EndpointReservation, type Recipient, ReservedSums, recipientOf } from "./spend.ts";
import { BLOCKS_PER_DAY } from "./steps.ts";

/** An endpoint is paid in every block (six hours UTC) until it has this many paid blocks, and once a day after that. */
export const BLOCKS_BEFORE_DAILY = 30;
/**
 * A paid call is blind (paid from a wallet that the seller does not know) if its random byte is below this: one in
 * four.
 */
const BLIND_BELOW_BYTE = 64;
const MINUTES_PER_BLOCK = 360;

export interface PlanInput {
  /** UTC date, YYYY-MM-DD. */
  day: string;
  /** 32 random bytes, secret until the day is over. */
  salt: Uint8Array;
  /** The endpoints that are listed when the plan is made. */
  listed: readonly ListedCap[];
  /** Limits on spending. (Elsewhere in this file `cap` is a capability: one endpoint.) */
  caps: Caps;
  /**
   * When the plan is made. A call counts only if it was scheduled before its block began, so the current block gets no
   * calls. An exception: if the block began within the last ten minutes, it keeps the calls whose minute is still
   * ahead.
   */
  now: Date;
  /** Sum of all payments that were signed before this day, micro-units (millionths of a dollar). */
  spentBefore?: bigint;
  /** Origins of our own endpoints, which are never graded. */
  ownOrigins?: readonly string[];
  /** Number of clients that asked for each capability in the seven days before (sql/queries/asks, demand). */
  demand?: ReadonlyMap<string, number>;
  /**
   * The operator's priorities by capability id or host, whole numbers; 0 if none is set. Money is reserved first for
   * endpoints with a higher priority.
   */
  priority?: Readonly<Record<string, number>>;
  /** Hosts and capability ids of the endpoints that the operator does not pay. They are probed like all others. */
  exclude?: readonly string[];
}

/**
 * Time after the beginning of a block in which a plan may still get calls in that block, ms. Making a plan takes time,
 * and a first start or a simulation makes the plan when the block begins. No call of the block can have been made
 * before its plan exists.
 */
const BLOCK_START_GRACE_MS = 600_000;

const isPlannable = (call: PlannedCall, now: Date): boolean => {
  const sinceBlockStart = now.getTime() - blockStart(call.block).getTime();
  return sinceBlockStart <= 0 || (sinceBlockStart <= BLOCK_START_GRACE_MS && sinceBlockStart < call.minute * 60_000);
};

/**
 * Derives the pseudo-random bytes that determine the times of an endpoint's calls on a day: HMAC-SHA256(salt,
 * capability id).
 */
export const deriveDayBytes = (salt: Uint8Array, cap: string): Buffer =>
  createHmac("sha256", salt).update(cap).digest();

/**
 * Computes the Merkle root (RFC 6962) over the sorted ids of the covered capabilities (those that are paid). It is
 * published before the day, so that we cannot drop an endpoint afterwards unnoticed.
 */
export const computeCoveredRoot = (caps: readonly string[]): string =>
  computeRoot([...caps].sort().map((cap) => leafHash(Buffer.from(cap)))).toString("hex");

interface ExpectedPayment {
  /** Price of one call, micro-units; null when there is nothing to pay, or nothing that our wallets can pay. */
  price: bigint | null;
  /** Address that is expected to be paid; null if it is not known. */
  payTo: string | null;
}

/** Returns the price that one call of the endpoint is expected to cost, and the expected payee. */
function expectPayment(endpoint: ListedCap, caps: Caps): ExpectedPayment {
  if (endpoint.lastPrice !== null) return { price: parseMoney(endpoint.lastPrice), payTo: endpoint.lastPayTo };
  const listedPayments = endpoint.claims.offers.flatMap((offer) =>
    offer.payable && offer.price !== null ? [{ price: parseMoney(offer.price), payTo: offer.pay_to }] : [],
  );
  const cheapest = listedPayments.sort((a, b) => (a.price < b.price ? -1 : 1))[0];
  if (cheapest) return cheapest;
  // An endpoint that was never probed and lists no price: the price is unknown, so the highest allowed price is
  // reserved. An endpoint that was probed and never asked for money: nothing is reserved, since other endpoints need
  // that money.
  const isPriceUnknown = endpoint.claims.offers.length === 0 && endpoint.firstSeen === null;
  return { price: isPriceUnknown ? caps.perCall : null, payTo: null };
}

/**
 * Draws an endpoint's calls of the day, in time order: a probe in every block, and paid calls if the endpoint is
 * covered. Within a minute the probe is before the paid call.
 * @param bytes the endpoint's pseudo-random bytes of the day ({@link deriveDayBytes})
 * @param basePerDay number of paid calls on the day, re-tests not included: 4 or 1
 */
export function drawCalls(
  bytes: Uint8Array,
  firstBlock: number,
  basePerDay: number,
  isCovered: boolean,
): PlannedCall[] {
  const minute = ((bytes[8]! << 8) | bytes[9]!) % MINUTES_PER_BLOCK;
  const calls: PlannedCall[] = [];
  for (let b = 0; b < BLOCKS_PER_DAY; b++) {
    const block = firstBlock + b;
    calls.push({ block, minute, kind: "probe", blind: false });
    if (!isCovered) continue;
    const isEveryBlock = basePerDay >= BLOCKS_PER_DAY;
    if (isEveryBlock) calls.push({ block, minute, kind: "paid", blind: bytes[2 + b]! < BLIND_BELOW_BYTE });
    else if (bytes[0]! % BLOCKS_PER_DAY === b)
      calls.push({ block, minute, kind: "paid", blind: bytes[1]! < BLIND_BELOW_BYTE });
  }
  return calls;
}

/** An endpoint in the queue for the day's money, with the values that determine its place in the queue. */
interface Candidate {
  endpoint: ListedCap;
  recipient: Recipient;
  /** The endpoint's pseudo-random bytes of the day ({@link deriveDayBytes}). */
  bytes: Buffer;
  /** Expected price of one call, as in {@link ExpectedPayment}. */
  price: bigint | null;
  priority: number;
  /** UTC day of the newest attempt at a paid call; empty before the first. */
  lastAttemptDay: string;
  /**
   * floor(log2(1 + n)) for n clients that asked. Only a doubling counts, so that a few clients do not outweigh the
   * price.
   */
  demand: number;
  /** Why the endpoint is not paid at any price; null if it may be paid. */
  whyUnpaid: UncoveredReason | null;
}

/**
 * An endpoint that answered no 402 for this long counts as silent, ms. No money is reserved for a silent endpoint,
 * since other endpoints need that money.
 */
const SILENT_AFTER_MS = 14 * DAY_MS;

/**
 * Returns why an endpoint is not paid even if there is enough money; null if it may be paid. A silent endpoint that
 * answers again may be paid in the next day's plan.
 */
function whyUnpaid(endpoint: ListedCap, { day, exclude = [] }: PlanInput): UncoveredReason | null {
  const { host, hostname } = new URL(endpoint.url);
  if (exclude.some((name) => name === endpoint.cap || name === host || name === hostname)) return "excluded";
  if (endpoint.sellerClaims?.no_paid_calls === true) return "opted_out";
  const silentSince = endpoint.lastAsked === undefined ? null : (endpoint.lastAsked ?? endpoint.firstSeen);
  return silentSince !== null && dayStart(day).getTime() - Date.parse(silentSince) >= SILENT_AFTER_MS ? "silent" : null;
}

function createCandidate(endpoint: ListedCap, input: PlanInput): Candidate {
  const { salt, caps, demand, priority = {} } = input;
  const host = hostOf(endpoint.url);
  const priorityOf = (name: string): number | undefined => (Object.hasOwn(priority, name) ? priority[name] : undefined);
  const { price, payTo } = expectPayment(endpoint, caps);
  return {
    endpoint,
    recipient: recipientOf(host, payTo),
    bytes: deriveDayBytes(salt, endpoint.cap),
    price,
    priority: priorityOf(endpoint.cap) ?? priorityOf(host) ?? priorityOf(new URL(endpoint.url).hostname) ?? 0,
    lastAttemptDay: endpoint.lastTried === null ? "" : dayOf(new Date(endpoint.lastTried)),
    demand: Math.floor(Math.log2(1 + Math.max(0, demand?.get(endpoint.cap) ?? 0))),
    whyUnpaid: whyUnpaid(endpoint, input),
  };
}

/**
 * Compares two endpoints for the order in which money is reserved, separately for those paid before and those never
 * paid: the operator's priority, then the longest time since the last attempt at a paid call, then demand, then the
 * lowest price, then the day's random order, which nobody can predict. An attempt that could not be paid counts as an
 * attempt too. Otherwise endpoints whose reserved money is never spent would be first every day.
 */
function compareCandidates(a: Candidate, b: Candidate): number {
  return (
    b.priority - a.priority ||
    Number(a.lastAttemptDay > b.lastAttemptDay) - Number(a.lastAttemptDay < b.lastAttemptDay) ||
    b.demand - a.demand ||
    Number(a.price === null) - Number(b.price === null) ||
    Number((a.price ?? 0n) > (b.price ?? 0n)) - Number((a.price ?? 0n) < (b.price ?? 0n)) ||
    Buffer.compare(a.bytes, b.bytes)
  );
}

const isNeverPaid = ({ endpoint }: Candidate): boolean => endpoint.paidBlocks === 0;

/**
 * Reserves money for one endpoint after the other: first a fixed share for endpoints that were never paid; then for
 * endpoints paid before, since their published letters need new samples; then the rest for endpoints that were never
 * paid.
 * @returns for each capability the reason why it is not covered, or null if it is covered
 */
function* reserveMoney(
  candidates: readonly Candidate[],
  reservedSums: ReservedSums,
): Generator<undefined, Map<string, UncoveredReason | null>> {
  const whyByCap = new Map<string, UncoveredReason | null>();
  const reserveFor = (candidate: Candidate): void => {
    const { endpoint, recipient, price } = candidate;
    const whyNotPayable = candidate.whyUnpaid ?? (price === null ? "nothing_to_pay" : null);
    const whyUncovered =
      whyNotPayable ?? reservedSums.reserve(recipient, price!, BigInt(BLOCKS_PER_DAY), isNeverPaid(candidate));
    whyByCap.set(endpoint.cap, whyUncovered);
  };
  const neverPaid = candidates.filter(isNeverPaid);
  for (const candidate of neverPaid) {
    if (
      candidate.price !== null &&
      candidate.whyUnpaid === null &&
      reservedSums.fitsShareForNew(candidate.recipient, candidate.price, BigInt(BLOCKS_PER_DAY))
    )
      reserveFor(candidate);
    yield;
  }
  for (const candidate of candidates) {
    if (!isNeverPaid(candidate)) reserveFor(candidate);
    yield;
  }
  for (const candidate of neverPaid) {
    if (whyByCap.get(candidate.endpoint.cap) !== null) reserveFor(candidate);
    yield;
  }
  return whyByCap;
}

/** Number of endpoints after which the drawing yields to other work. That many endpoints take a few milliseconds. */
const ENDPOINTS_PER_YIELD = 64;
/**
 * Number of endpoints that are sorted in one step. A comparison costs little compared with drawing an endpoint's day.
 */
const SORTED_PER_STEP = 16;

/**
 * Draws a day's plan and yields to the event loop in between, so that a process that plans a large market keeps
 * answering and measuring.
 */
export function drawPlanYielding(input: PlanInput): Promise<DayPlan> {
  return runYielding(drawPlan(input), ENDPOINTS_PER_YIELD);
}

/**
 * Draws the plan of a UTC day (verification-method.md section 5), a pure function of the salt and of what was known
 * when the day began. It reserves money for an endpoint's whole day, re-tests included, before it goes on to the next
 * endpoint. An endpoint that does not fit into the caps is not covered, and its line holds the reason. The generator
 * yields after each endpoint, and also while the endpoints are sorted.
 */
export function* drawPlan(input: PlanInput): Generator<undefined, DayPlan> {
  const { day, salt, caps, now } = input;
  const ownOrigins = new Set(input.ownOrigins ?? []);
  const candidatesByCap = new Map<string, Candidate>();
  for (const endpoint of input.listed) {
    // Our own endpoints are never graded.
    if (!ownOrigins.has(new URL(endpoint.url).origin))
      candidatesByCap.set(endpoint.cap, createCandidate(endpoint, input));
    yield;
  }
  const candidates = yield* sortInSteps(candidatesByCap.values(), compareCandidates, SORTED_PER_STEP);
  const whyByCap = yield* reserveMoney(candidates, new ReservedSums(caps, input.spentBefore ?? 0n));
  const firstBlock = blockOf(dayStart(day));
  const lines: PlanLine[] = [];
  for (const { endpoint, recipient, bytes, price } of candidates) {
    const { host, payee } = recipient;
    const basePerDay = endpoint.paidBlocks < BLOCKS_BEFORE_DAILY ? BLOCKS_PER_DAY : 1;
    const whyUncovered = whyByCap.get(endpoint.cap)!;
    const calls = drawCalls(bytes, firstBlock, basePerDay, whyUncovered === null).filter((call) =>
      isPlannable(call, now),
    );
    const price_micro = price === null ? null : price.toString();
    lines.push({
      cap: endpoint.cap,
      host,
      payee,
      calls,
      base_per_day: basePerDay,
      covered: whyUncovered === null,
      price_micro,
      why: whyUncovered,
    });
    yield;
  }
  const sortedLines = yield* sortInSteps(lines, (a, b) => (a.cap < b.cap ? -1 : 1), SORTED_PER_STEP);
  const coveredIds = sortedLines.filter((line) => line.covered).map((line) => line.cap);
  return { v: 1, day, salt_hash: sha256hex(salt), covered_root: computeCoveredRoot(coveredIds), lines: sortedLines };
}

/**
 * Returns the money that a plan reserves for an endpoint, micro-units: for a covered endpoint the price of four calls,
 * even if fewer are made.
 */
export const reservedMicro = (line: PlanLine): bigint =>
  line.covered ? BigInt(line.price_micro ?? 0) * BigInt(BLOCKS_PER_DAY) : 0n;

/** Returns the reservations of a plan, in the form that {@link Ledger.openDay} takes. */
export const reservationsOf = (plan: DayPlan): EndpointReservation[] =>
  plan.lines
    .filter((line) => line.covered)
    .map((line) => ({
      ...{ cap: line.cap, ...recipientOf(line.host, line.payee ?? null), micro: reservedMicro(line) },
      block: line.calls.find((call) => call.kind === "paid")?.block,
    }));
