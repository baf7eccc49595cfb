import { setMaxListeners } from "node:events";
import { BoundedMap } from "../../../infra/bounded-map.ts";
import { type Clock, systemClock } from "../../../infra/clock.ts";
import { createYielder, forEachConcurrent } from "../../../infra/concurrency.ts";
import type { Claims } from "../../record/bodies.ts";
import type { ListedCap, Memory } from "../../record/memory.ts";
import type { DayPlan, PlanLine } from "../../record/plan.ts";
import { blockOf, blockStart, dayStart } from "../../record/time.ts";
import { type Call, idsOf } from "../call.ts";
import type { HostShare } from "../hosts.ts";
import { makePaidCall } from "../paid/paid.ts";
import type { Reconciler } from "../paid/reconcile.ts";
import { probeByMethod } from "../probe/methods.ts";
import { recordAsked } from "../probe/unplanned.ts";
import type { HostQueue } from "../queue.ts";
import { NotRecorded } from "../recorder.ts";
import { probeRow } from "../rows.ts";
import type { Tools } from "../tools.ts";
import { reservedBy } from "./plan.ts";
import { afterRow, blocksOf, type RetestState, type Step, stateFromRecord, stepsOf } from "./steps.ts";
import { Tally } from "./tally.ts";

export interface SpanReport {
  probes: number;
  /** Calls that were paid. */
  paid: number;
  /** Paid calls where there was nothing to pay, or that we could not pay. */
  unpaid: number;
  /** Calls whose block was over before their turn came: they are not made, and not made up for. */
  missed: number;
  /** Calls that failed by a fault of our own code; each is in the error log. */
  broken: number;
  /** True when `stop` ended it early. */
  stopped: boolean;
}

const nothingDone = (): SpanReport => ({ probes: 0, paid: 0, unpaid: 0, missed: 0, broken: 0, stopped: false });

/** Lines of a plan by their host. */
function byHost(lines: readonly PlanLine[]): Map<string, PlanLine[]> {
  const hosts = new Map<string, PlanLine[]>();
  for (const line of lines) {
    const group = hosts.get(line.host);
    if (group) group.push(line);
    else hosts.set(line.host, [line]);
  }
  return hosts;
}

/** State of one span that is being observed. */
class Span {
  readonly report = nothingDone();

  private constructor(
    readonly from: Date,
    readonly to: Date,
    readonly firstBlock: number,
    readonly listed: ReadonlyMap<string, ListedCap>,
    /** Event ids of calls that were made: those in the record and those of this process. */
    readonly done: Set<string>,
  ) {}

  static async open(memory: Memory, plan: DayPlan, from: Date, to: Date, begun: Set<string>): Promise<Span> {
    const listed = new Map((await memory.listed()).map((one) => [one.cap, one]));
    for (const id of await memory.doneOn(plan.day)) begun.add(id);
    return new Span(from, to, blockOf(dayStart(plan.day)), listed, begun);
  }
}

/**
 * Lines of plans after which other work has its turn: a few milliseconds, since each of their calls has an id to
 * compute.
 */
const LINES_A_TURN = 64;

/** Pause before it is checked again whether a host is ours, real ms. */
const OURS_MS = 250;

/** Makes the calls of plans: hosts in parallel, each host's calls in time order, re-tests decided on the way. */
export class Spans {
  /** Event ids of calls that this process has begun, by day: the lake may not have loaded them yet. */
  readonly #begun = new BoundedMap<string, Set<string>>(4);
  /** Endpoints of the newest plan that this process has begun. */
  #planned: { day: string; caps: ReadonlySet<string> } | null = null;
  /** Re-test states from rows of this process, which are newer than the lake. */
  readonly #retests = new Map<string, RetestState>();
  readonly #tally: Tally;
  /** All hosts of a plan begin their day, and often their block, at one moment: this lets other work run in between. */
  readonly #giveTurn = createYielder(LINES_A_TURN);

  constructor(
    private readonly tools: Tools,
    private readonly memory: Memory,
    private readonly reconciler: Reconciler,
    private readonly slots: HostQueue,
    private readonly hostsAtOnce: number,
    private readonly stop: AbortSignal,
  ) {
    this.#tally = new Tally(tools.logger);
  }

  /**
   * See `Observer.observeSpan`.
   * @param lease ends the span between two calls, when its hosts are given to another observer
   */
  async run(
    plan: DayPlan,
    from: Date,
    to: Date,
    clockFrom: (start: Date) => Clock,
    lease?: AbortSignal,
  ): Promise<SpanReport> {
    // Another observer may have called these endpoints since, so the record is newer than what this process remembers.
    if (lease) for (const { cap } of plan.lines) this.#retests.delete(cap);
    const span = await Span.open(this.memory, plan, from, to, this.#begunOn(plan.day));
    this.tools.intake.know([...span.listed.values()]);
    await this.#reserve(plan);
    const hosts = [...byHost(plan.lines)];
    // In real time every host waits for its minutes at once. In simulated time no host waits, and one that stood in a
    // queue would have its clock advanced for nothing.
    const atOnce = clockFrom(from).jumps ? this.hostsAtOnce : Math.max(1, hosts.length);
    const halt = new AbortController();
    const signal = AbortSignal.any([this.stop, halt.signal, ...(lease ? [lease] : [])]);
    // Each host with waiting calls adds a listener: hundreds of listeners are no leak here.
    setMaxListeners(0, signal);
    try {
      await forEachConcurrent(hosts, atOnce, async ([host, lines]) => {
        try {
          await this.#callHost(span, host, lines, clockFrom(from), signal);
        } catch (error) {
          halt.abort(error);
          throw error;
        }
      });
    } catch (error) {
      const ended = this.stop.aborted || lease?.aborted;
      if (!ended || error instanceof NotRecorded) throw halt.signal.reason ?? error;
      span.report.stopped = true;
    } finally {
      this.#tally.tell();
    }
    return span.report;
  }

  /**
   * Observes a day's plan on the partitions that this observer holds while `over` is pending. Each partition's part of
   * the plan is a span of its own, begun from the record each time that the partition is assigned. A payment under way,
   * with the showings of its proof, ends before its partition is given up.
   */
  async runShare(
    hosts: HostShare,
    plan: DayPlan,
    { from, to, over }: { from: Date; to: Date; over: Promise<void> },
    clockFrom: (start: Date) => Clock,
  ): Promise<SpanReport> {
    const total = nothingDone();
    await this.#reserve(plan);
    await hosts.during(async (partition, lease) => {
      const lines = plan.lines.filter(({ host }) => hosts.lies(host, partition));
      if (lines.length === 0) return;
      const { stopped, ...counts } = await this.run({ ...plan, lines }, from, to, clockFrom, lease);
      for (const [name, n] of Object.entries(counts)) total[name as keyof typeof counts] += n;
      // A span that ended because its partition was lost does not mean that the observer was stopped.
      total.stopped ||= stopped && !lease.aborted;
    }, over);
    return total;
  }

  /** See `Observer.plans`. */
  plans(day: string, cap: string): boolean | null {
    return this.#planned?.day === day ? this.#planned.caps.has(cap) : null;
  }

  /** Sets aside the money of the day's whole plan, before its first payment, once a day and process. */
  async #reserve(plan: DayPlan): Promise<void> {
    // runShare passes the whole plan here first and then its parts, so only the first call of a day sets #planned.
    if (this.#planned?.day !== plan.day) {
      this.#planned = { day: plan.day, caps: new Set(plan.lines.map(({ cap }) => cap)) };
    }
    await this.tools.ledger.open(plan.day, this.memory, reservedBy(plan));
  }

  #begunOn(day: string): Set<string> {
    const known = this.#begun.get(day) ?? new Set<string>();
    this.#begun.set(day, known);
    return known;
  }

  /**
   * Makes all calls of one host in the span, block by block, since re-tests of a block depend on the calls before it.
   */
  async #callHost(span: Span, host: string, lines: PlanLine[], clock: Clock, signal: AbortSignal): Promise<void> {
    for (const block of blocksOf(span)) {
      await this.#giveTurn(lines.length);
      const stateOf = (line: PlanLine) => this.#stateOf(span, line);
      for (const step of stepsOf(lines, block, span, stateOf, span.done)) {
        await sleepUntil(clock, step.call.plannedAt, signal);
        signal.throwIfAborted();
        await this.slots.run(host, async () => {
          await this.#ours(host, signal);
          await this.#step(span, step, clock, signal);
        });
      }
    }
  }

  /**
   * Waits until the host is ours or `signal` aborts, as it does when the partition is lost: the group may be out of
   * reach for a moment.
   */
  async #ours(host: string, signal: AbortSignal): Promise<void> {
    while (!this.tools.hosts.owns(host)) await systemClock.sleep(OURS_MS, signal);
  }

  #stateOf(span: Span, line: PlanLine): RetestState {
    const one = span.listed.get(line.cap);
    const seen = this.#retests.get(line.cap);
    if (seen || !one) return seen ?? { failing: false, passes: 0, since: null };
    return stateFromRecord(one, line, span.done, span.firstBlock);
  }

  async #step(span: Span, { line, call }: Step, clock: Clock, signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    const one = span.listed.get(line.cap);
    const late = clock.now() >= blockStart(call.block + 1);
    if (!one || late) {
      // Made now, the call would fall into a block for which it was not scheduled. An endpoint that is not listed is
      // not called.
      span.report.missed++;
      this.#tally.count("missed");
      this.tools.metrics.count("touchstone_observe_calls_total", { kind: call.kind, result: "missed" });
      return;
    }
    const done = (): void => {
      for (const id of idsOf(line.cap, call)) span.done.add(id);
    };
    try {
      if (call.kind === "probe") {
        await this.#probe(one, call, clock);
        span.report.probes++;
        done();
      } else {
        // A probe may be tried again under its id. A payment may not: its intent may be in the log with another nonce
        // even when the append failed.
        done();
        await this.#pay(span, one, line, call, clock);
      }
      this.tools.metrics.count("touchstone_observe_calls_total", { kind: call.kind, result: "made" });
    } catch (error) {
      if (error instanceof NotRecorded || signal.aborted) throw error;
      span.report.broken++;
      this.#tally.count("broken");
      this.tools.metrics.count("touchstone_observe_calls_total", { kind: call.kind, result: "broken" });
      this.tools.logger.error({ err: error, cap: line.cap, call }, "a planned call failed by a fault of our own");
    }
  }

  async #probe(listed: ListedCap, call: Call, clock: Clock): Promise<void> {
    const one = this.tools.intake.current(listed);
    const at = clock.now();
    const relist = async () => (await this.tools.intake.reread(one, clock)).sellerClaims;
    const { seen, found } = await probeByMethod(this.tools, one, clock, relist);
    await this.tools.recorder.append([probeRow(one.cap, call, "free", seen, at)]);
    this.tools.metrics.count("touchstone_observe_handshakes_total", { state: seen.body.state });
    this.#tally.count(`probe_${seen.body.state}`);
    if (found !== null) await recordAsked(this.tools, found, clock);
    // A listing made from a 402 names a url, not a tool.
    if (!seen.read?.readable || one.tool !== null) return;
    await this.tools.intake.note402(one.cap, one.url, one.method as Claims["method"], seen.read, clock);
  }

  async #pay(span: Span, one: ListedCap, line: PlanLine, call: Call, clock: Clock): Promise<void> {
    const before = this.#stateOf(span, line);
    const end = await makePaidCall(this.tools, one, call, clock);
    if (end.open) this.reconciler.take(end.open);
    if (!end.paid) {
      span.report.unpaid++;
      this.#tally.count("unpaid");
      return;
    }
    span.report.paid++;
    this.#tally.count("paid");
    const after = end.counts ? afterRow(before, call.block, end.pass) : { ...before, since: call.block };
    this.#retests.set(one.cap, after);
  }
}

/** Waits until `t` on this clock; returns at once when it has passed. */
const sleepUntil = async (clock: Clock, t: Date, signal?: AbortSignal): Promise<void> => {
  // A timer of Node may end up to a millisecond before its time.
  for (let sleeps = 0; sleeps < 2; sleeps++) {
    const wait = t.getTime() - clock.now().getTime();
    if (wait <= 0) return;
    await clock.sleep(wait, signal);
  }
};
