import { expect } from "vitest";
import { FixedClock } from "../../../infra/clock.ts";
import type { Log, LogRecord, NewRecord, ReadOptions } from "../../../infra/log/log.ts";
import type { Ownership, OwnershipListener } from "../../../infra/log/ownership.ts";
import { createLogger, createMetrics } from "../../../infra/telemetry.ts";
import { FirstIntents } from "../../../pipelines/1-observe/first-intents.ts";
import { HostShare } from "../../../pipelines/1-observe/hosts.ts";
import { createObserver, type Observer } from "../../../pipelines/1-observe/observer.ts";
import type { Caps } from "../../../pipelines/1-observe/plan/spend.ts";
import type { DayPlan } from "../../../pipelines/record/plan.ts";
import { planDay } from "../../helpers/plan-day.ts";
import { STEADY_LOOP } from "../../helpers/steady-loop.ts";
import { END, START, salt } from "./day.ts";
import { answer, CAPS, CONTROL, DAY, FakeEgress, FakeLog, FakeRail, FakeWallets, honest, LogMemory } from "./world.ts";

/** Hosts that one observer calls at once. */
export const AT_ONCE = 8;

/** A log of several partitions, each with offsets of its own, that every observer of a test shares. */
export class SharedLog extends FakeLog {
  override readonly partitions = 4 as 1;

  override async append(records: readonly NewRecord[]) {
    return records.map((record) => {
      const { topic, partition, eventId } = record;
      const offset = this.#of(topic, partition).length;
      this.records.push({ ...record, offset, appendedAt: new Date(0) });
      return { topic, partition, offset, eventId };
    });
  }
  override async read(topic = "", partition = 0, from = 0, options: ReadOptions = {}): Promise<LogRecord[]> {
    const found = this.#of(topic, partition).slice(from);
    if (found.length === 0 && options.waitMs) await new Promise((resolve) => setTimeout(resolve, 1));
    return found;
  }
  override async bounds(topic = "", partition = 0) {
    return { start: 0, end: this.#of(topic, partition).length };
  }
  #of(topic: string, partition: number): LogRecord[] {
    return this.records.filter((record) => record.topic === topic && record.partition === partition);
  }
}

/** The same over a real log; what was confirmed is kept here too, in the log's order. */
export class RealSharedLog extends SharedLog {
  constructor(private readonly real: Log) {
    super();
  }
  override async append(records: readonly NewRecord[]) {
    const places = await this.real.append(records);
    for (const [i, { offset }] of places.entries()) {
      this.records.push({ ...records[i]!, offset, appendedAt: new Date(0) });
    }
    this.records.sort((a, b) => (rank(a) < rank(b) ? -1 : 1));
    return places;
  }
  override read(topic = "", partition = 0, from = 0, options: ReadOptions = {}) {
    return this.real.read(topic, partition, from, options);
  }
  override bounds(topic = "", partition = 0) {
    return this.real.bounds(topic, partition);
  }
}
const rank = ({ topic, partition, offset }: LogRecord): string =>
  `${topic} ${partition} ${String(offset).padStart(16, "0")}`;

/** A share that a test hands out; listeners are heard as those of the consumer group are. */
export class HandedOut implements Ownership {
  readonly heard = true;
  #held = new Set<number>();
  readonly #listeners = new Set<OwnershipListener>();
  #told: Promise<void> = Promise.resolve();
  generation = 0;

  held = (): readonly number[] => [...this.#held].sort();
  ready = async (): Promise<void> => undefined;
  onChange(listener: OwnershipListener) {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }
  /** Resolves when the listeners have settled. */
  change(taken: readonly number[], lost: readonly number[]): Promise<void> {
    for (const partition of taken) this.#held.add(partition);
    for (const partition of lost) this.#held.delete(partition);
    this.generation++;
    this.#told = this.#told.then(async () => {
      for (const listener of this.#listeners) await listener(taken, lost);
    });
    return this.#told;
  }
  close = (): Promise<void> => this.change([], this.held());
}

/** One observer process: its memory knows what the log held when it last caught up, and nothing later. */
export interface Process<Own = Ownership> {
  ownership: Own;
  hosts: HostShare;
  observer: Observer;
  memory: LogMemory;
  clock: FixedClock;
}

export class SharedWorld {
  readonly rail = new FakeRail();
  readonly egress = new FakeEgress();
  /** What a clock-bound test sees of all of them: no two requests of one host at once. */
  readonly underWay = new Map<string, number>();
  atOnce = 0;

  constructor(
    private readonly caps: Caps,
    readonly log = new SharedLog(),
  ) {
    this.egress.sellers.set(CONTROL, () => answer(200, { ok: true }));
    const fetch = this.egress.fetch.bind(this.egress);
    this.egress.fetch = async (request) => {
      const { host } = new URL(request.url);
      const n = (this.underWay.get(host) ?? 0) + 1;
      this.underWay.set(host, n);
      if (host !== new URL(CONTROL).host) this.atOnce = Math.max(this.atOnce, n);
      // A request takes a moment, so that what others do falls into it.
      for (let i = 0; i < 3; i++) await new Promise((resolve) => setImmediate(resolve));
      try {
        return await fetch(request);
      } finally {
        this.underWay.set(host, this.underWay.get(host)! - 1);
      }
    };
  }

  async process(held: readonly number[] = []): Promise<Process<HandedOut>> {
    const ownership = new HandedOut();
    await ownership.change(held, []);
    return this.processOf(ownership);
  }

  async processOf<Own extends Ownership>(ownership: Own): Promise<Process<Own>> {
    const { log, rail, egress } = this;
    const seen = new FakeLog();
    const memory = new LogMemory(seen);
    const catchUp = async () => {
      const records = [...log.records];
      await new Promise((resolve) => setImmediate(resolve));
      if (records.length > seen.records.length) seen.records.splice(0, seen.records.length, ...records);
    };
    const [logger, clock] = [createLogger("silent"), new FixedClock(`${DAY}T00:00:00.000Z`)];
    const firstIntents = await FirstIntents.open(log);
    const hosts = await HostShare.open({ ownership, partitions: log.partitions, catchUp, logger });
    const observer = createObserver({
      ...{
        log,
        egress,
        rail,
        wallets: new FakeWallets(),
        clock,
        memory,
        logger,
        metrics: createMetrics(),
        loop: STEADY_LOOP,
      },
      shared: { hosts, firstIntents },
      config: {
        ...{ producer: "test", controlUrls: [`${CONTROL}/ok`], caps: this.caps, spentBefore: 0n, hostsAtOnce: AT_ONCE },
        ...{ secret: Buffer.alloc(32, 7), settlePollMs: [] },
      },
    });
    return { ownership, hosts, observer, memory, clock };
  }
}

export const ALL = [0, 1, 2, 3];
/** Sellers in every partition of the hosts. */
export const ORIGINS = Array.from({ length: 12 }, (_, i) => `https://s${i}.example`);

/** A world with twelve sellers that are listed, and the day's plan for them. */
export async function listed(caps = CAPS, handler = (world: SharedWorld) => honest(world.rail), log = new SharedLog()) {
  const world = new SharedWorld(caps, log);
  for (const origin of ORIGINS) world.egress.sellers.set(origin, handler(world));
  const first = await world.process(ALL);
  for (const origin of ORIGINS) await first.observer.intakeSeller(origin);
  await first.hosts.close();
  const plan = planDay({ day: DAY, salt, listed: await new LogMemory(world.log).listed(), caps, now: START });
  expect(plan.lines.filter(({ covered }) => covered)).toHaveLength(ORIGINS.length);
  world.atOnce = 0;
  return { world, plan };
}

export const planned = (plan: DayPlan) =>
  plan.lines.flatMap(({ calls }) => calls.filter(({ kind }) => kind === "paid")).length;
export const until = async (met: () => boolean) => {
  for (let n = 0; n < 500_000 && !met(); n++) await new Promise((resolve) => setTimeout(resolve, 1));
  expect(met()).toBe(true);
};

/** All observe the plan until every paid call of it has a result in the log; `meanwhile` runs beside. */
export async function observeAll(
  world: SharedWorld,
  plan: DayPlan,
  processes: Process[],
  meanwhile: () => Promise<void>,
) {
  let end: () => void = () => undefined;
  const over = new Promise<void>((resolve) => {
    end = resolve;
  });
  const spans = processes.map(({ observer }) => observer.observeShare(plan, START, END, over));
  const moved = meanwhile();
  await until(() => new Set(world.log.bodies("paid.result").map(({ intent }) => intent)).size === planned(plan));
  await moved;
  end();
  return Promise.all(spans);
}

/** Every slot of the plan was paid once on the wire, with what the first intent in the log signed. */
export function prove(world: SharedWorld, plan: DayPlan): void {
  const wire = new Map<string, Set<string>>();
  for (const { url, payment } of world.egress.paid()) {
    const host = new URL(url).host;
    wire.set(host, (wire.get(host) ?? new Set()).add(payment!));
  }
  const intents = world.log.envelopes().filter(({ type }) => type === "paid.intent");
  expect(intents).toHaveLength(planned(plan));
  const signed = new Set(world.log.bodies("paid.intent").map((intent) => intent.signed_bytes));
  for (const line of plan.lines) {
    const calls = line.calls.filter(({ kind }) => kind === "paid").length;
    expect(wire.get(line.host)?.size, line.host).toBe(calls);
    for (const payment of wire.get(line.host)!) expect(signed.has(payment), line.host).toBe(true);
  }
  // What was settled is what was sent, each once, and nothing is booked twice.
  expect(world.rail.settled.size).toBe(planned(plan));
  expect(world.log.bodies("paid.result").every(({ watched, fault }) => watched && fault === null)).toBe(true);
}
