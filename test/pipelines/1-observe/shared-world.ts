import { FixedClock } from "../../../infra/clock.ts";
import type { LogRecord, NewRecord, ReadOptions } from "../../../infra/log/log.ts";
import type { Ownership, OwnershipListener } from "../../../infra/log/ownership.ts";
import { createLogger, createMetrics } from "../../../infra/telemetry.ts";
import { FirstIntents } from "../../../pipelines/1-observe/first-intents.ts";
import { HostShare } from "../../../pipelines/1-observe/hosts.ts";
import { createObserver, type Observer } from "../../../pipelines/1-observe/observer.ts";
import type { Caps } from "../../../pipelines/1-observe/spend.ts";
import { answer, CONTROL, DAY, FakeEgress, FakeLog, FakeRail, FakeWallets, LogMemory } from "./world.ts";

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

/** A share that a test hands out; listeners are heard as those of the consumer group are. */
export class HandedOut implements Ownership {
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
export interface Process {
  ownership: HandedOut;
  hosts: HostShare;
  observer: Observer;
  memory: LogMemory;
  clock: FixedClock;
}

export class SharedWorld {
  readonly log = new SharedLog();
  readonly rail = new FakeRail();
  readonly egress = new FakeEgress();
  /** What a clock-bound test sees of all of them: no two requests of one host at once. */
  readonly underWay = new Map<string, number>();
  atOnce = 0;

  constructor(private readonly caps: Caps) {
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

  async process(held: readonly number[] = []): Promise<Process> {
    const { log, rail, egress } = this;
    const seen = new FakeLog();
    const memory = new LogMemory(seen);
    const catchUp = async () => {
      const records = [...log.records];
      await new Promise((resolve) => setImmediate(resolve));
      if (records.length > seen.records.length) seen.records.splice(0, seen.records.length, ...records);
    };
    const [logger, clock] = [createLogger("silent"), new FixedClock(`${DAY}T00:00:00.000Z`)];
    const ownership = new HandedOut();
    await ownership.change(held, []);
    const firsts = await FirstIntents.open(log);
    const hosts = await HostShare.open({ ownership, partitions: log.partitions, catchUp, logger });
    const observer = createObserver({
      ...{ log, egress, rail, wallets: new FakeWallets(), clock, memory, logger, metrics: createMetrics() },
      shared: { hosts, firsts },
      config: {
        ...{ producer: "test", controlUrl: `${CONTROL}/ok`, caps: this.caps, spentBefore: 0n, hostsAtOnce: AT_ONCE },
        ...{ secret: Buffer.alloc(32, 7), settlePollMs: [] },
      },
    });
    return { ownership, hosts, observer, memory, clock };
  }
}
