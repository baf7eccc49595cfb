/** A process that ingests the log of a folder and kills itself at a named moment. Arguments: folder, moment. */
import { systemClock } from "../../../infra/clock.ts";
import type { Lake } from "../../../infra/lake/duckdb.ts";
import { openEmbeddedLog } from "../../../infra/log/embedded.ts";
import { openDirectoryStore } from "../../../infra/store/directory.ts";
import { createLogger, createMetrics } from "../../../infra/telemetry.ts";
import { createIngest } from "../../../pipelines/2-ingest/ingest.ts";
import { TOPICS } from "../../../pipelines/record/topics.ts";
import { openTestLake, PARTITIONS } from "./world.ts";

const [dir, moment] = process.argv.slice(2) as [string, string];
const die = (): never => {
  process.kill(process.pid, "SIGKILL");
  throw new Error("still alive");
};

const log = await openEmbeddedLog(`${dir}/log`, { topics: TOPICS, partitions: PARTITIONS });
const store = await openDirectoryStore(`${dir}/private`);
const lake = await openTestLake(`${dir}/killed.duckdb`);
const create = store.create.bind(store);
store.create = async (key, bytes, meta) => {
  const result = await create(key, bytes, meta);
  if (moment === "after the commit" && key.includes("/commit/")) die();
  return result;
};
const transaction: Lake["transaction"] = lake.transaction.bind(lake);
lake.transaction = (work, stage) =>
  transaction(async (tx) => {
    const result = await work(tx);
    if (moment === "before the lake's commit") die();
    return result;
  }, stage);
const logger = createLogger("silent");
await createIngest({ log, privateStore: store, lake, clock: systemClock, logger, metrics: createMetrics() }).pass();
