import { setMaxListeners } from "node:events";
import { BoundedMap } from "../../../infra/bounded-map.ts";
import { type Clock, systemClock } from "../../../infra/clock.ts";
import { createYielder, forEachConcurrent } from "../../../infra/concurrency.ts";
import type { Claims } from "../../record/bodies.ts";
import type { ListedCap, Memory } from "../../record/memory.ts";
import type { DayPlan, PlanLine } from "../../record/plan.ts";
import { blockOf, blockStart, dayStart } from "../../record/time.ts";
import { type Call, eventIdsOf } from "../call.ts";
import type { HostShare } from "../hosts.ts";
import { makePaidCall } from "../paid/paid.ts";
import type { Reconciler } from "../paid/reconcile.ts";
import { probeByMethod } from "../probe/methods.ts";
import { recordFoundMethod } from "../probe/unplanned.ts";
import type { HostQueue } from "../queue.ts";
import { NotConfirmed } from "../recorder.ts";
import { createProbeRow } from "../rows.ts";
import type { Tools } from "../tools.ts";
import { reservationsOf } from "./plan.ts";
import {
  nextRetestState,
  orderSteps,
  overlappedBlocks,
  type PlannedStep,
  type RetestState,
  resumedState,
  retestStateFromRecord,
} from "./steps.ts";
import { CallTally } from "./tally.ts";

/** Counts of the calls of one span (a part of a day's plan). */
export interface SpanReport {
  /** Probes that were made. */
  probes: number;
  /** Calls that were paid. */
  paid: number;
  /** Planned paid calls that were not paid: there was nothing to pay, or we could not pay it. */
  unpaid: number;
  /**
   * Calls that were not made because their block (six hours UTC) was over before their turn, or because their
   * endpoint is no longer listed. They are not made later.
   */
  missed: number;
  /** Calls that failed by a fault of our own code; each is in the error log. */
  broken: number;
  /**
   * True when the span ended early because the observer was stopped, or because its hosts were assigned to another
   * observer. The total of {@link Spans.runShare} counts only the first.
   */
  stopped: boolean;
}

const emptyReport = (): SpanReport => ({ probes: 0, paid: 0, unpaid: 0, missed: 0, broken: 0, stopped: false });

/** Groups the lines of a plan by host. */
function groupByHost(lines: readonly PlanLine[]): Map<string, PlanLine[]> {
  const hosts = new Map<string, PlanLine[]>();
  for (const line of lines) {
    const group = hosts.get(line.host);
    if (group) group.push(line);
    else hosts.set(line.host, [line]);
  }
  return hosts;
}

/** State of one span of time whose planned calls are being made. */
class ActiveSpan {
  readonly report = emptyReport();

  private constructor(
    readonly from: Date,
    readonly to: Date,
    /** First block (six hours UTC) of the plan's day. */
    readonly firstBlock: number,
    /** The listed endpoints by capability id, read when the span was opened. */
    readonly listed: ReadonlyMap<string, ListedCap>,
    /** Event ids of calls that were made, from the record and by this process. */
    readonly doneIds: Set<string>,
  ) {}

  static async open(
    memory: Memory,
    plan: DayPlan,
    from: Date,
    to: Date,
    startedCallIds: Set<string>,
  ): Promise<ActiveSpan> {
    const listed = new Map((await memory.listed()).map((one) => [one.cap, one]));
    for (const id of await memory.recordedIdsOn(plan.day)) startedCallIds.add(id);
    return new ActiveSpan(from, to, blockOf(dayStart(plan.day)), listed, startedCallIds);
  }
}

/**
 * Number of lines of a plan after which the loop yields to other work. An id is computed for each call of a line, which
 * takes a few milliseconds for this many lines.
 */
const LINES_PER_YIELD = 64;

/** Pause between two checks whether a host is assigned to this observer, real ms. */
const OWNERSHIP_CHECK_MS = 250;

/**
 * Makes the calls of plans: hosts in parallel, the calls of one host in time order. It decides on re-tests after each
 * call.
 */
export class Spans {
  /**
   * Event ids of calls that this process has begun, by day. The lake (the database of the log's rows) may not have
   * loaded their records yet.
   */
  readonly #startedCallIds = new BoundedMap<string, Set<string>>(4);
  /** Endpoints of the newest plan that this process has begun. */
  #planned: { day: string; caps: ReadonlySet<string> } | null = null;
  /** Re-test states that follow from calls of this process, which the lake may not have loaded yet. */
  readonly #retestStates = new Map<string, RetestState>();
  readonly #tally: CallTally;
  /**
   * Yields to the event loop after LINES_PER_YIELD lines, since all hosts of a plan begin their day, and often their
   * block, at one moment.
   */
  readonly #yieldAfterLine = createYielder(LINES_PER_YIELD);

  constructor(
    private readonly tools: Tools,
    private readonly memory: Memory,
    private readonly reconciler: Reconciler,
    private readonly hostQueue: HostQueue,
    private readonly hostsAtOnce: number,
    private readonly stopSignal: AbortSignal,
  ) {
    this.#tally = new CallTally(tools.logger);
  }

  /**
   * Makes the planned calls of the span from `from` until before `to`. Implements `Observer.observeSpan`.
   * @param leaseSignal when it aborts, the span ends between two calls, because its hosts were assigned to another
   * observer
   */
  async makeCalls(
    plan: DayPlan,
    from: Date,
    to: Date,
    createClock: (start: Date) => Clock,
    leaseSignal?: AbortSignal,
  ): Promise<SpanReport> {
    // Another observer may have called these endpoints meanwhile, so the record is newer than this process's memory.
    if (leaseSignal) for (const { cap } of plan.lines) this.#retestStates.delete(cap);
    const span = await ActiveSpan.open(this.memory, plan, from, to, this.#startedCallIdsOf(plan.day));
    for (const { cap } of plan.lines) {
      const [remembered, endpoint] = [this.#retestStates.get(cap), span.listed.get(cap)];
      if (remembered && endpoint) this.#retestStates.set(cap, resumedState(remembered, endpoint.retest));
    }
    this.tools.intake.rememberListed([...span.listed.values()]);
    await this.#reserve(plan);
    const hosts = [...groupByHost(plan.lines)];
    // In real time all hosts wait for their minutes in parallel. In simulated time no host waits, so the number of
    // hosts at once is limited here: a host that waited in the queue would advance its clock needlessly.
    const hostsInParallel = createClock(from).jumps ? this.hostsAtOnce : Math.max(1, hosts.length);
    const failureController = new AbortController();
    const signal = AbortSignal.any([this.stopSignal, failureController.signal, ...(leaseSignal ? [leaseSignal] : [])]);
    // Each host with waiting calls adds a listener: hundreds of listeners are no leak here.
    setMaxListeners(0, signal);
    try {
      await forEachConcurrent(hosts, hostsInParallel, async ([host, lines]) => {
        try {
          await this.#callHost(span, host, lines, createClock(from), signal);
        } catch (error) {
          failureController.abort(error);
          throw error;
        }
      });
    } catch (error) {
      const wasStopped = this.stopSignal.aborted || leaseSignal?.aborted;
      if (!wasStopped || error instanceof NotConfirmed) throw failureController.signal.reason ?? error;
      span.report.stopped = true;
    } finally {
      this.#tally.logCounts();
    }
    return span.report;
  }

  /**
   * Makes the calls of a day's plan for the partitions that this observer holds, until `ended` resolves. Each
   * partition's part of the plan is a separate span, which starts from the record whenever the partition is assigned. A
   * running payment is finished, including repeated requests with its proof, before its partition is released.
   */
  async runShare(
    hosts: HostShare,
    plan: DayPlan,
    { from, to, ended }: { from: Date; to: Date; ended: Promise<void> },
    createClock: (start: Date) => Clock,
  ): Promise<SpanReport> {
    const totals = emptyReport();
    await this.#reserve(plan);
    await hosts.runDuring(async (partition, leaseSignal) => {
      const lines = plan.lines.filter(({ host }) => hosts.belongsTo(host, partition));
      if (lines.length === 0) return;
      const { stopped, ...counts } = await this.makeCalls({ ...plan, lines }, from, to, createClock, leaseSignal);
      for (const [name, n] of Object.entries(counts)) totals[name as keyof typeof counts] += n;
      // A span that ended because its partition was lost does not count as stopped.
      totals.stopped ||= stopped && !leaseSignal.aborted;
    }, ended);
    return totals;
  }

  /** Is the endpoint in the plan of this UTC day? null while this process has not begun that plan. */
  isPlanned(day: string, cap: string): boolean | null {
    return this.#planned?.day === day ? this.#planned.caps.has(cap) : null;
  }

  /** Reserves the money of the day's whole plan before the first payment, once a day in each process. */
  async #reserve(plan: DayPlan): Promise<void> {
    // runShare passes the whole plan here first and then its parts, so only the first call of a day sets #planned.
    if (this.#planned?.day !== plan.day) {
      this.#planned = { day: plan.day, caps: new Set(plan.lines.map(({ cap }) => cap)) };
    }
    await this.tools.ledger.openDay(plan.day, this.memory, reservationsOf(plan));
  }

  #startedCallIdsOf(day: string): Set<string> {
    const startedIds = this.#startedCallIds.get(day) ?? new Set<string>();
    this.#startedCallIds.set(day, startedIds);
    return startedIds;
  }

  /**
   * Makes all calls of one host in the span, block by block, since the re-tests in a block depend on the calls before
   * it.
   */
  async #callHost(span: ActiveSpan, host: string, lines: PlanLine[], clock: Clock, signal: AbortSignal): Promise<void> {
    for (const block of overlappedBlocks(span)) {
      await this.#yieldAfterLine(lines.length);
      const stateOf = (line: PlanLine) => this.#retestState(span, line);
      for (const step of orderSteps(lines, block, span, stateOf, span.doneIds)) {
        await sleepUntil(clock, step.call.plannedAt, signal);
        signal.throwIfAborted();
        await this.hostQueue.run(host, async () => {
          await this.#waitForHost(host, signal);
          await this.#makeCall(span, step, clock, signal);
        });
      }
    }
  }

  /**
   * Waits until the host is assigned to this observer, or until `signal` aborts because its partition was lost. The
   * log's consumer group may be unreachable for a moment.
   */
  async #waitForHost(host: string, signal: AbortSignal): Promise<void> {
    while (!this.tools.hosts.owns(host)) await systemClock.sleep(OWNERSHIP_CHECK_MS, signal);
  }

  #retestState(span: ActiveSpan, line: PlanLine): RetestState {
    const endpoint = span.listed.get(line.cap);
    const rememberedState = this.#retestStates.get(line.cap);
    if (rememberedState || !endpoint) return rememberedState ?? { failing: false, passes: 0, lastPaidBlock: null };
    return retestStateFromRecord(endpoint, line, span.doneIds, span.firstBlock);
  }

  async #makeCall(span: ActiveSpan, { line, call }: PlannedStep, clock: Clock, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    const endpoint = span.listed.get(line.cap);
    const isLate = clock.now() >= blockStart(call.block + 1);
    if (!endpoint || isLate) {
      // A late call would fall into a block for which it was not scheduled, so it is not made. An endpoint that is no
      // longer listed is not called either.
      span.report.missed++;
      this.#tally.count("missed");
      this.tools.metrics.count("touchstone_observe_calls_total", { kind: call.kind, result: "missed" });
      return;
    }
    const markDone = (): void => {
      for (const id of eventIdsOf(line.cap, call)) span.doneIds.add(id);
    };
    try {
      if (call.kind === "probe") {
        await this.#probe(endpoint, call, clock);
        span.report.probes++;
        markDone();
      } else {
        // The call is marked as done before it is paid. A probe may be tried again under its id, but a payment may
        // not: even when the append of its intent (the record before a payment) failed, that intent may be in the log
        // with another nonce.
        markDone();
        await this.#pay(span, endpoint, line, call, clock);
      }
      this.tools.metrics.count("touchstone_observe_calls_total", { kind: call.kind, result: "made" });
    } catch (error) {
      if (error instanceof NotConfirmed || signal.aborted) throw error;
      span.report.broken++;
      this.#tally.count("broken");
      this.tools.metrics.count("touchstone_observe_calls_total", { kind: call.kind, result: "broken" });
      this.tools.logger.error({ err: error, cap: line.cap, call }, "a planned call failed by a fault of our own");
    }
  }

  async #probe(listedEndpoint: ListedCap, call: Call, clock: Clock): Promise<void> {
    const endpoint = this.tools.intake.withSellerListing(listedEndpoint);
    const at = clock.now();
    const rereadListing = async () => (await this.tools.intake.rereadSeller(endpoint, clock)).sellerClaims;
    const { probe: firstProbe, second: methodProbe } = await probeByMethod(this.tools, endpoint, clock, rereadListing);
    await this.tools.recorder.append([createProbeRow(endpoint.cap, call, "free", firstProbe, at)]);
    this.tools.metrics.count("touchstone_observe_handshakes_total", { state: firstProbe.body.state });
    this.#tally.count(`probe_${firstProbe.body.state}`);
    if (methodProbe !== null) await recordFoundMethod(this.tools, methodProbe, clock);
    // No listing is made from the 402 of a tool, since such a listing names only a url.
    if (!firstProbe.read?.readable || endpoint.tool !== null) return;
    await this.tools.intake.recordFrom402(
      endpoint.cap,
      endpoint.url,
      endpoint.method as Claims["method"],
      firstProbe.read,
      clock,
    );
  }

  async #pay(span: ActiveSpan, endpoint: ListedCap, line: PlanLine, call: Call, clock: Clock): Promise<void> {
    const stateBefore = this.#retestState(span, line);
    const callResult = await makePaidCall(this.tools, endpoint, call, clock);
    if (callResult.openPayment) this.reconciler.takeOver(callResult.openPayment);
    if (!callResult.mayHavePaid) {
      span.report.unpaid++;
      this.#tally.count("unpaid");
      return;
    }
    span.report.paid++;
    this.#tally.count("paid");
    const newState: RetestState = callResult.isSample
      ? nextRetestState(stateBefore, call.block, callResult.isPassing)
      : { ...stateBefore, lastPaidBlock: call.block };
    this.#retestStates.set(endpoint.cap, newState);
  }
}

/** Waits until `t` on this clock; returns at once if `t` has passed. */
const sleepUntil = async (clock: Clock, t: Date, signal?: AbortSignal): Promise<void> => {
  // Two attempts, since a timer of Node may fire up to a millisecond early.
  for (let sleeps = 0; sleeps < 2; sleeps++) {
    const wait = t.getTime() - clock.now().getTime();
    if (wait <= 0) return;
    await clock.sleep(wait, signal);
  }
};
