import { setMaxListeners } from "node:events";
import { type Clock, systemClock } from "../../infra/clock.ts";
import type { Claims } from "../record/bodies.ts";
import type { ListedCap, Memory } from "../record/memory.ts";
import type { DayPlan, PlanLine } from "../record/plan.ts";
import { blockStart } from "../record/time.ts";
import { BoundedMap } from "./bounded.ts";
import { type Call, idsOf, requestOf, sleepUntil, type Tools } from "./call.ts";
import { knock } from "./handshake.ts";
import { blocksOf, eachAtOnce, type Step, stateFromRecord, stepsOf } from "./lane.ts";
import { paidCall } from "./paid.ts";
import { reservedFor } from "./plan.ts";
import type { HostQueue } from "./queue.ts";
import { NotRecorded } from "./recorder.ts";
import { afterRow, type RetestState } from "./retest.ts";
import { knockRow } from "./rows.ts";
import { byHost, Span, type SpanReport } from "./span.ts";
import type { Sweep } from "./sweep.ts";

/** Real pause before we look again whether a host is still ours, ms. */
const OURS_MS = 250;

/** Makes the calls of plans: hosts in parallel, each host's calls in time order, re-tests decided on the way. */
export class Spans {
  /** Calls this process has begun, by day: the lake may not have loaded them yet. */
  readonly #begun = new BoundedMap<string, Set<string>>(4);
  /** Where re-tests stand by what this process saw itself; newer than the lake. */
  readonly #retests = new Map<string, RetestState>();

  constructor(
    private readonly tools: Tools,
    private readonly memory: Memory,
    private readonly sweep: Sweep,
    private readonly slots: HostQueue,
    private readonly hostsAtOnce: number,
    private readonly stop: AbortSignal,
  ) {}

  /**
   * See `Observer.observeSpan`.
   * @param tenure ends the span at the next seam, when its hosts are given to another observer
   */
  async run(
    plan: DayPlan,
    from: Date,
    to: Date,
    lane: (start: Date) => Clock,
    tenure?: AbortSignal,
  ): Promise<SpanReport> {
    // Others may have called them since: the record knows.
    if (tenure) for (const { cap } of plan.lines) this.#retests.delete(cap);
    const span = await Span.open(this.memory, plan, from, to, this.#begunOn(plan.day));
    this.tools.intake.know([...span.listed.values()]);
    await this.reserve(plan);
    const hosts = [...byHost(plan.lines)];
    // Lanes that wait for real minutes all wait at once. Lapsed ones never wait, and a queue would only age their clock.
    const atOnce = lane(from).lapsed ? this.hostsAtOnce : Math.max(1, hosts.length);
    const halt = new AbortController();
    const signal = AbortSignal.any([this.stop, halt.signal, ...(tenure ? [tenure] : [])]);
    // Every lane that waits listens to it: hundreds are no leak.
    setMaxListeners(0, signal);
    try {
      await eachAtOnce(hosts, atOnce, async ([host, lines]) => {
        try {
          await this.#lane(span, host, lines, lane(from), signal);
        } catch (error) {
          halt.abort(error);
          throw error;
        }
      });
    } catch (error) {
      const ended = this.stop.aborted || tenure?.aborted;
      if (!ended || error instanceof NotRecorded) throw halt.signal.reason ?? error;
      span.report.stopped = true;
    }
    return span.report;
  }

  /** What a day's plan sets aside, before its first payment: once a day and process, so of the whole plan. */
  async reserve(plan: DayPlan): Promise<void> {
    const covered = plan.lines.filter((line) => line.covered);
    const reserved = covered.map((line) => ({ cap: line.cap, host: line.host, micro: reservedFor(line) }));
    await this.tools.ledger.open(plan.day, this.memory, reserved);
  }

  #begunOn(day: string): Set<string> {
    const known = this.#begun.get(day) ?? new Set<string>();
    this.#begun.set(day, known);
    return known;
  }

  /** All calls of one host in the span, block by block, so that a re-test follows from what was seen before it. */
  async #lane(span: Span, host: string, lines: PlanLine[], clock: Clock, signal: AbortSignal): Promise<void> {
    for (const block of blocksOf(span)) {
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

  /** The group may be out of reach for a moment: until it is heard again, or says that the host is another's. */
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
      // Made now it would fall into a block for which it was not scheduled; an endpoint no longer listed is let be.
      span.report.missed++;
      this.tools.metrics.count("observe_calls_total", { kind: call.kind, result: "missed" });
      return;
    }
    const done = (): void => {
      for (const id of idsOf(line.cap, call)) span.done.add(id);
    };
    try {
      if (call.kind === "knock") {
        await this.#knock(one, call, clock);
        span.report.knocks++;
        done();
      } else {
        // A knock may be tried again under its id. A payment may not: once it was begun, its intent may stand in the
        // log with another nonce, whatever the append said.
        done();
        await this.#pay(span, one, line, call, clock);
      }
      this.tools.metrics.count("observe_calls_total", { kind: call.kind, result: "made" });
    } catch (error) {
      if (error instanceof NotRecorded || signal.aborted) throw error;
      span.report.broken++;
      this.tools.metrics.count("observe_calls_total", { kind: call.kind, result: "broken" });
      this.tools.logger.error({ err: error, cap: line.cap, call }, "a planned call broke off");
    }
  }

  async #knock(listed: ListedCap, call: Call, clock: Clock): Promise<void> {
    const one = this.tools.intake.current(listed);
    const { request } = requestOf(one, null, null);
    const at = clock.now();
    const relist = async () => (await this.tools.intake.reread(one, clock)).sellerClaims;
    const seen = await knock(this.tools, request, one.sellerClaims, clock, relist);
    await this.tools.recorder.append([knockRow(one.cap, call, "free", seen, at)]);
    this.tools.metrics.count("observe_handshakes_total", { state: seen.body.state });
    // What a tool's terms say of it belongs to the tool; a listing by 402 names urls.
    if (!seen.read?.readable || one.tool !== null) return;
    await this.tools.intake.note402(one.cap, one.url, one.method as Claims["method"], seen.read, clock);
  }

  async #pay(span: Span, one: ListedCap, line: PlanLine, call: Call, clock: Clock): Promise<void> {
    const before = this.#stateOf(span, line);
    const end = await paidCall(this.tools, one, call, clock);
    if (end.open) this.sweep.take(end.open);
    if (!end.paid) {
      span.report.unpaid++;
      return;
    }
    span.report.paid++;
    const after = end.counts ? afterRow(before, call.block, end.pass) : { ...before, since: call.block };
    this.#retests.set(one.cap, after);
  }
}
