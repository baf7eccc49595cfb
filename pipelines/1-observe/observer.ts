import { setMaxListeners } from "node:events";
import { type Clock, LapsedClock } from "../../infra/clock.ts";
import type { Egress } from "../../infra/egress/egress.ts";
import type { Log } from "../../infra/log/log.ts";
import type { Rail, Wallets } from "../../infra/rails/rails.ts";
import type { Logger, Metrics } from "../../infra/telemetry.ts";
import type { BodyOf, Claims } from "../record/bodies.ts";
import { plannedSlot } from "../record/ids.ts";
import type { ListedCap, Memory } from "../record/memory.ts";
import type { DayPlan, PlanLine } from "../record/plan.ts";
import { blockOf, blockStart, dayOf, dayStart } from "../record/time.ts";
import { type AskReport, lookAtAsked } from "./asked.ts";
import { BoundedMap } from "./bounded.ts";
import { type Call, HANDSHAKE_OF, handshakeId, intentId, requestOf, sleepUntil, type Tools } from "./call.ts";
import { Control } from "./control.ts";
import { knock } from "./handshake.ts";
import { blocksOf, eachAtOnce, type Step, stateFromRecord, stepsOf } from "./lane.ts";
import { Intake, type IntakeReport } from "./listings.ts";
import { paidCall } from "./paid.ts";
import { originOf } from "./places.ts";
import { HostQueue } from "./queue.ts";
import { draft, NotRecorded, Recorder } from "./recorder.ts";
import { afterRow, type RetestState } from "./retest.ts";
import { Schemas } from "./schema.ts";
import { type Caps, Ledger } from "./spend.ts";
import { Sweep, type SweepReport } from "./sweep.ts";

export interface ObserverConfig {
  /** Name of this process in the record. */
  producer: string;
  /** An address known to be up, or null: then no failure is ever excused as ours. */
  controlUrl: string | null;
  caps: Caps;
  /** Micro-units of every intent ever, as of now. */
  spentBefore: bigint;
  hostsAtOnce: number;
  /** Key of the known answers, at least 16 bytes. */
  secret: Uint8Array;
  /** Pauses (real ms) between looks at the chain after a paid call. */
  settlePollMs?: readonly number[];
}

export interface ObserverParts {
  log: Log;
  egress: Egress;
  rail: Rail;
  wallets: Wallets;
  clock: Clock;
  memory: Memory;
  config: ObserverConfig;
  logger: Logger;
  metrics: Metrics;
  /** Told the event ids of every append that the log confirmed. */
  onAck?: (eventIds: readonly string[]) => void;
}

export interface SpanReport {
  knocks: number;
  /** Signed payments that left. */
  paid: number;
  /** Paid calls that met nothing to pay, or that we could not pay. */
  unpaid: number;
  /** Calls whose block was over before their turn came: not made, never made up for. */
  missed: number;
  /** Calls that broke off by a fault of our own code; each is in the error log. */
  broken: number;
  /** True when `stop` ended it early. */
  stopped: boolean;
}

export interface Observer {
  /**
   * Makes every planned call with `from` <= planned time < `to` that the record does not hold, hosts in parallel, the
   * calls of one host in time order, re-tests decided on the way. Resolves when the last call has ended.
   * @param lane clock of one host's calls, from `start` on; default: the observer's clock, or a lapsed one of its own
   * for each host while that clock is lapsed
   * @throws NotRecorded when the log does not take a record: the span ends there, nothing more is paid
   */
  observeSpan(plan: DayPlan, from: Date, to: Date, lane?: (start: Date) => Clock): Promise<SpanReport>;
  /** Once at start, before anything else: intents that an earlier process left open become our own fault. */
  recover(): Promise<{ lost: number }>;
  /** Every minute or so: settlements that come late or become final, proofs to be shown for them, refunds. */
  awaitSettlements(): Promise<SweepReport>;
  /** Looks once at a url that somebody asked for. @throws QueueFull */
  ask(ask: BodyOf<"ask">): Promise<AskReport>;
  /** Reads a seller's own listing (an origin, or its `/.well-known/x402`). */
  intakeSeller(url: string): Promise<IntakeReport>;
  /** Reads a catalogue, then the own listing of every seller in it (once a UTC day for each origin). */
  intakeCatalogue(url: string): Promise<IntakeReport>;
  /** Ends spans that run: no further call begins, payments under way are watched to their end. */
  stop(): void;
}

const SETTLE_POLL_MS = [250, 1_000, 2_000];
const MAX_QUEUED = 100_000;

/** Puts the observer together. See {@link Observer} for what it does. */
export function createObserver(parts: ObserverParts): Observer {
  if (parts.config.secret.length < 16) throw new RangeError("the secret of the known answers has at least 16 bytes");
  return new Watch(parts);
}

class Watch implements Observer {
  readonly #parts: ObserverParts;
  readonly #tools: Tools;
  readonly #sweep: Sweep;
  readonly #slots: HostQueue;
  readonly #stop = new AbortController();
  /** Calls this process has begun, by day: the lake may not have loaded them yet. */
  readonly #begun = new BoundedMap<string, Set<string>>(4);
  /** Where re-tests stand by what this process saw itself; newer than the lake. */
  readonly #retests = new Map<string, RetestState>();
  readonly #readOn = new BoundedMap<string, string>(100_000);

  constructor(parts: ObserverParts) {
    const { log, egress, rail, wallets, memory, config, logger, metrics, onAck } = parts;
    const recorder = new Recorder({ log, producer: config.producer, metrics, onAck });
    this.#parts = parts;
    this.#slots = new HostQueue(config.hostsAtOnce, MAX_QUEUED);
    this.#tools = {
      egress,
      rail,
      wallets,
      recorder,
      control: new Control(egress, config.controlUrl),
      intake: new Intake({ egress, rail, recorder, metrics }),
      ledger: new Ledger(config.caps, config.spentBefore),
      schemas: new Schemas(),
      secret: config.secret,
      settlePollMs: config.settlePollMs ?? SETTLE_POLL_MS,
      inFlight: new Set(),
      passed: new BoundedMap(100_000),
      logger,
      metrics,
      signal: this.#stop.signal,
    };
    this.#sweep = new Sweep(this.#tools, memory);
    setMaxListeners(0, this.#stop.signal);
  }

  async observeSpan(
    plan: DayPlan,
    from: Date,
    to: Date,
    lane: (start: Date) => Clock = (start) => (this.#parts.clock.lapsed ? new LapsedClock(start) : this.#parts.clock),
  ): Promise<SpanReport> {
    const span = await Span.open(this.#parts.memory, plan, from, to, this.#begunOn(plan.day));
    this.#tools.intake.know([...span.listed.values()]);
    await this.#tools.ledger.open(plan.day, this.#parts.memory);
    const hosts = [...byHost(plan.lines)];
    // Lanes that wait for real minutes all wait at once. Lapsed ones never wait, and a queue would only age their clock.
    const atOnce = lane(from).lapsed ? this.#parts.config.hostsAtOnce : Math.max(1, hosts.length);
    const halt = new AbortController();
    const signal = AbortSignal.any([this.#stop.signal, halt.signal]);
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
      if (!this.#stop.signal.aborted || error instanceof NotRecorded) throw halt.signal.reason ?? error;
      span.report.stopped = true;
    }
    return span.report;
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
        await this.#slots.run(host, () => this.#step(span, step, clock, signal));
      }
    }
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
      this.#tools.metrics.count("observe_calls_total", { kind: call.kind, result: "missed" });
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
      this.#tools.metrics.count("observe_calls_total", { kind: call.kind, result: "made" });
    } catch (error) {
      if (error instanceof NotRecorded || signal.aborted) throw error;
      span.report.broken++;
      this.#tools.metrics.count("observe_calls_total", { kind: call.kind, result: "broken" });
      this.#tools.logger.error({ err: error, cap: line.cap, call }, "a planned call broke off");
    }
  }

  async #knock(one: ListedCap, call: Call, clock: Clock): Promise<void> {
    const { request } = requestOf(one, null, null);
    const at = clock.now();
    const seen = await knock(this.#tools, request, one.sellerClaims, clock);
    const slot = { block: call.block, minute: call.minute };
    await this.#tools.recorder.append([
      draft({
        type: "handshake",
        cap: one.cap,
        slot: plannedSlot(call.block, call.minute),
        attempt: HANDSHAKE_OF.free,
        at,
        body: { slot, planned: "free", ...seen.body },
      }),
    ]);
    this.#tools.metrics.count("observe_handshakes_total", { state: seen.body.state });
    if (!seen.read?.readable) return;
    await this.#tools.intake.note402(one.cap, one.url, one.method as Claims["method"], seen.read, clock);
  }

  async #pay(span: Span, one: ListedCap, line: PlanLine, call: Call, clock: Clock): Promise<void> {
    const before = this.#stateOf(span, line);
    const end = await paidCall(this.#tools, one, call, clock);
    if (end.open) this.#sweep.take(end.open);
    if (!end.paid) {
      span.report.unpaid++;
      return;
    }
    span.report.paid++;
    const after = end.counts ? afterRow(before, call.block, end.pass) : { ...before, since: call.block };
    this.#retests.set(one.cap, after);
  }

  recover(): Promise<{ lost: number }> {
    return this.#sweep.recover(this.#parts.clock);
  }

  awaitSettlements(): Promise<SweepReport> {
    return this.#sweep.run(this.#parts.clock);
  }

  ask(ask: BodyOf<"ask">): Promise<AskReport> {
    return this.#slots.run(new URL(ask.normalised_url).host, () => lookAtAsked(this.#tools, ask, this.#parts.clock));
  }

  intakeSeller(url: string): Promise<IntakeReport> {
    const origin = originOf(url);
    const { clock } = this.#parts;
    this.#readOn.set(origin, dayOf(clock.now()));
    return this.#slots.run(new URL(origin).host, () => this.#tools.intake.readSeller(origin, clock));
  }

  async intakeCatalogue(url: string): Promise<IntakeReport> {
    const { clock, config } = this.#parts;
    const report = await this.#tools.intake.readCatalogue(url, clock);
    const today = dayOf(clock.now());
    const origins = new Set(report.claims.map((claim) => originOf(claim.body.normalised_url)));
    const due = [...origins].filter((origin) => this.#readOn.get(origin) !== today);
    await eachAtOnce(due, config.hostsAtOnce, async (origin) => {
      const own = await this.intakeSeller(origin);
      report.items += own.items;
      report.appended += own.appended;
      report.refused += own.refused;
      report.claims.push(...own.claims);
    });
    return report;
  }

  stop(): void {
    this.#stop.abort(new Error("the observer was stopped"));
  }
}

function byHost(lines: readonly PlanLine[]): Map<string, PlanLine[]> {
  const hosts = new Map<string, PlanLine[]>();
  for (const line of lines) {
    const group = hosts.get(line.host);
    if (group) group.push(line);
    else hosts.set(line.host, [line]);
  }
  return hosts;
}

/** Ids that a call may leave, whichever way it ends. */
const idsOf = (cap: string, call: Call): string[] =>
  call.kind === "knock" ? [handshakeId(cap, call, "free")] : [intentId(cap, call), handshakeId(cap, call, "paid")];

/** One span under way. */
class Span {
  readonly report: SpanReport = { knocks: 0, paid: 0, unpaid: 0, missed: 0, broken: 0, stopped: false };

  private constructor(
    readonly from: Date,
    readonly to: Date,
    readonly firstBlock: number,
    readonly listed: ReadonlyMap<string, ListedCap>,
    /** Event ids of calls that were made: the record's and this process's own. */
    readonly done: Set<string>,
  ) {}

  static async open(memory: Memory, plan: DayPlan, from: Date, to: Date, begun: Set<string>): Promise<Span> {
    const listed = new Map((await memory.listed()).map((one) => [one.cap, one]));
    for (const id of await memory.doneOn(plan.day)) begun.add(id);
    return new Span(from, to, blockOf(dayStart(plan.day)), listed, begun);
  }
}
