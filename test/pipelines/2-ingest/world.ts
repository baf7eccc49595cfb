import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { FixedClock } from "../../../infra/clock.ts";
import { type Lake, openLake } from "../../../infra/lake/duckdb.ts";
import { openEmbeddedLog } from "../../../infra/log/embedded.ts";
import type { Log, NewRecord } from "../../../infra/log/log.ts";
import { openDirectoryStore } from "../../../infra/store/directory.ts";
import type { Store } from "../../../infra/store/store.ts";
import { createLogger, createMetrics, type Metrics } from "../../../infra/telemetry.ts";
import { createIngest, type Ingest, type IngestOptions } from "../../../pipelines/2-ingest/ingest.ts";
import { INGEST_TABLES } from "../../../pipelines/2-ingest/load.ts";
import { TOPICS } from "../../../pipelines/record/topics.ts";

/** A real log, store and lake in a folder of their own. */
export interface World {
  dir: string;
  log: Log;
  store: Store;
  lake: Lake;
  clock: FixedClock;
  metrics: Metrics;
  ingest: Ingest;
  append(...records: NewRecord[]): Promise<void>;
  /** Another ingester over the same log; own lake unless one is given. */
  rival(options?: Partial<IngestOptions>): Promise<Ingest>;
  close(): Promise<void>;
}

export const PARTITIONS = 2;

/** One thread: a second one, on a machine that other tests keep busy, takes an eighth more processor time. */
export const openTestLake = (path: string): Promise<Lake> =>
  openLake(path, { memoryLimit: "512MB", threads: 1, init: INGEST_TABLES, readers: 1 });

export async function openTestWorld(options: Partial<IngestOptions> = {}): Promise<World> {
  const dir = await mkdtemp(join(tmpdir(), "ingest-"));
  const log = options.log ?? (await openEmbeddedLog(join(dir, "log"), { topics: TOPICS, partitions: PARTITIONS }));
  const store = options.privateStore ?? (await openDirectoryStore(join(dir, "private")));
  const lake = options.lake ?? (await openTestLake(join(dir, "lake.duckdb")));
  const clock = new FixedClock("2026-11-15T12:00:00.000Z");
  const metrics = createMetrics();
  const lakes: Lake[] = [lake];
  const ingestOf = (more: Partial<IngestOptions>): Ingest =>
    createIngest({
      log,
      privateStore: store,
      lake,
      clock,
      logger: createLogger("silent"),
      metrics,
      ...options,
      ...more,
    });
  return {
    dir,
    log,
    store,
    lake,
    clock,
    metrics,
    ingest: ingestOf({}),
    append: async (...records) => {
      await log.append(records);
    },
    rival: async (more = {}) => {
      if (!more.lake) {
        const own = await openTestLake(join(dir, `rival-${lakes.length}.duckdb`));
        lakes.push(own);
        return ingestOf({ ...more, lake: own });
      }
      return ingestOf(more);
    },
    close: async () => {
      for (const one of lakes) await one.close();
      await store.close();
      await log.close();
      await rm(dir, { recursive: true, force: true });
    },
  };
}
