import type { H3 } from "h3";
import type { Clock } from "../../infra/clock.ts";
import type { Egress } from "../../infra/egress/egress.ts";
import type { Log, NewRecord } from "../../infra/log/log.ts";
import { parseUrl } from "../../infra/url.ts";
import { PublishedTree } from "../../pipelines/published/reader.ts";
import { createApp } from "../../serving/app.ts";
import type { ServingDeps } from "../../serving/context.ts";
import { Follower } from "../../serving/tables/follower.ts";
import { NOW, ORIGIN, type PublicRecord } from "./public-record.ts";

/** A clock that a test moves: the record's time and the steady counter. */
export class ManualClock implements Clock {
  readonly simulated: boolean;
  readonly jumps = true;
  #now: number;
  #steady = 0;
  constructor(at = NOW, simulated = false) {
    this.#now = Date.parse(at);
    this.simulated = simulated;
  }
  now = (): Date => new Date(this.#now);
  monotonic = (): number => this.#steady;
  pass(ms: number): void {
    this.#now += ms;
    this.#steady += ms;
  }
  async sleep(ms: number): Promise<void> {
    this.pass(ms);
  }
}

/** A log of which only `append` is asked; `down` makes it refuse. */
export class AppendOnly implements Pick<Log, "append" | "read" | "partitions"> {
  readonly partitions = 4;
  readonly records: NewRecord[] = [];
  down = false;
  async append(records: readonly NewRecord[]) {
    if (this.down) throw new Error("disk full at /secret/path");
    const first = this.records.length;
    this.records.push(...records);
    return records.map(({ topic, partition, eventId }, i) => ({ topic, partition, eventId, offset: first + i }));
  }
  async read(_topic: string, _partition: number, from: number) {
    return this.records.slice(from, from + 1).map((record) => ({ ...record, offset: from, appendedAt: new Date(0) }));
  }
}

/** A small form of the egress rules of production: nothing on this machine, and the usual ports only. */
export const validateUrl: Egress["validate"] = (text) => {
  if (parseUrl(text) === null) return { ok: false, reason: "bad_url", says: "it is no address" };
  const url = new URL(text);
  if (url.port) return { ok: false, reason: "port", says: "its port is not one we use" };
  if (!url.hostname.includes(".") || /^[\d.]+$/.test(url.hostname)) {
    return { ok: false, reason: "host", says: "its host is not a public name" };
  }
  return { ok: true };
};

export interface TestServing {
  app: H3;
  follower: Follower;
  clock: ManualClock;
  log: AppendOnly;
  deps: ServingDeps;
  get(path: string, init?: RequestInit): Promise<Response>;
}

/** The app over a record, with its view loaded. */
export async function servingOver(record: PublicRecord, more: Partial<ServingDeps> = {}): Promise<TestServing> {
  const clock = (more.clock as ManualClock | undefined) ?? new ManualClock();
  const log = new AppendOnly();
  const follower = new Follower({
    tree: new PublishedTree(record.store, record.trust),
    store: record.store,
    origin: ORIGIN,
    clock,
    logger: record.logger,
    metrics: record.metrics,
  });
  await follower.refresh();
  const deps: ServingDeps = {
    store: record.store,
    follower,
    log,
    answers: record.keys.answers,
    validateUrl,
    jwks: () => record.jwks,
    clock,
    logger: record.logger,
    metrics: record.metrics,
    baseUrl: "https://touchstone.test",
    ...more,
  };
  const app = createApp(deps);
  return { app, follower, clock, log, deps, get: async (path, init) => app.request(path, init) };
}

export const checkPath = (query: Record<string, string>): string => `/v1/check?${new URLSearchParams(query)}`;
