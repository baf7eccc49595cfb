import { join } from "node:path";
import type { Clock } from "../../infra/clock.ts";
import type { Lake } from "../../infra/lake/duckdb.ts";
import { openLake } from "../../infra/lake/duckdb.ts";
import type { Log } from "../../infra/log/log.ts";
import type { Store } from "../../infra/store/store.ts";
import { createLogger, createMetrics } from "../../infra/telemetry.ts";
import { createIngest, type Ingest } from "../../pipelines/2-ingest/ingest.ts";
import { INGEST_TABLES } from "../../pipelines/2-ingest/load.ts";
import { createMemory } from "../../pipelines/2-ingest/memory.ts";
import { createPublisher } from "../../pipelines/4-publish/publisher.ts";
import { Pipeline, type PipelineParts } from "../../pipelines/roles/pipeline.ts";
import { JWKS, ORIGIN, SIGNERS } from "../pipelines/4-publish/world.ts";
import { Lever } from "./lever.ts";
import type { Job, Who } from "./schedule.ts";

/** The engines a schedule runs over: one log, two stores, and what can be done to them from outside. */
export interface Testbed {
  dir: string;
  /** Handles of one process. What it opened is closed with it. */
  openLog(): Promise<Log>;
  openStores(): Promise<{ privateStore: Store; publicStore: Store }>;
  /** Weather between the processes and the engines, at random. */
  weather(draw: number): void;
  clear(): void;
}

/** A real clock as far as the publisher can tell: it refuses to go back. */
export class ProcessClock implements Clock {
  readonly simulated = false;
  readonly jumps = false;
  /** Ahead of true time, ms. */
  off = 0;
  constructor(private readonly truth: () => number) {}
  now(): Date {
    return new Date(this.truth() + this.off);
  }
  monotonic(): number {
    return performance.now();
  }
  async sleep(): Promise<void> {}
}

/** A process that does everything, over its own handles. */
export interface Process {
  lever: Lever;
  clock: ProcessClock;
  lake: Lake;
  ingest: Ingest;
  pipeline: Pipeline;
  close(): Promise<void>;
}

const OPEN_TRIES = 400;
const OPEN_PAUSE_MS = 300;

/** What is opened in bad weather is opened again: some brokers take their time to notice that one of them died. */
export async function stubborn<T>(open: () => Promise<T>): Promise<T> {
  for (let n = 1; ; n++) {
    try {
      return await open();
    } catch (error) {
      if (n === OPEN_TRIES) throw error;
      await new Promise((resolve) => setTimeout(resolve, OPEN_PAUSE_MS));
    }
  }
}

/** Ingest, grade and publish over this bed, with the lake of this place; every call goes through the process's lever. */
export async function openProcess(bed: Testbed, who: Who, clock: ProcessClock): Promise<Process> {
  const lever = new Lever();
  const log = lever.over(await stubborn(() => bed.openLog()));
  const stores = await stubborn(() => bed.openStores());
  const [privateStore, publicStore] = [lever.over(stores.privateStore), lever.over(stores.publicStore)];
  // Small lakes: threads of the engine's own would only wait for each other.
  const settings = { memoryLimit: "256MB", threads: 1, init: INGEST_TABLES, readers: 1 };
  const opened = await openLake(join(bed.dir, `lake-${who}.duckdb`), settings);
  const lake = lever.overLake(opened);
  const { partitions } = log;
  const shared = { privateStore, clock, logger: createLogger("silent"), metrics: createMetrics() };
  const ingest = createIngest({ ...shared, log, lake });
  const publisher = createPublisher({ ...shared, publicStore, signers: SIGNERS, origin: ORIGIN, partitions });
  // Grading, publishing and evidence never ask the observer, the line of asks, the purse or the archive.
  const unused = {} as Pick<PipelineParts, "observer" | "askRunner" | "caps" | "archive">;
  const pipeline = new Pipeline({
    ...{ ...unused, ...shared, log, publicStore, lake, memory: createMemory(lake) },
    ...{ ingest, publisher, ownOrigins: [], priority: {} },
  });
  const grade = pipeline.grade.bind(pipeline);
  pipeline.grade = async (now) => {
    // As every start does, before the first signature.
    await publisher.publishKeys(JWKS);
    return grade(now);
  };
  const close = async () => {
    lever.clear();
    await opened.close();
    await stores.privateStore.close();
    await stores.publicStore.close();
    await log.close();
  };
  return { lever, clock, lake, ingest, pipeline, close };
}

export async function jobOf({ ingest, pipeline, clock }: Process, job: Job): Promise<unknown> {
  if (job === "ingest") return ingest.pass();
  if (job === "tidy") return ingest.tidy(2);
  if (job === "grade") return pipeline.grade(clock.now());
  // Evidence follows a pass, as its hour does in a service.
  await ingest.pass();
  return pipeline.publishEvidence(clock.now());
}
