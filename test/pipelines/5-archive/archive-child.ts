/** The archive's job in a process of its own, to be killed: `archive-child.ts <folder with lake, private and public> <now>`. */
import { join } from "node:path";
import { FixedClock } from "../../../infra/clock.ts";
import { openLake } from "../../../infra/lake/duckdb.ts";
import { openDirectoryStore } from "../../../infra/store/directory.ts";
import { createLogger, createMetrics } from "../../../infra/telemetry.ts";
import { INGEST_TABLES } from "../../../pipelines/2-ingest/load.ts";
import { createPublisher } from "../../../pipelines/4-publish/publisher.ts";
import { makeArchive } from "../../../pipelines/5-archive/archive.ts";
import { PARTITIONS } from "../2-ingest/world.ts";
import { JWKS, ORIGIN, SIGNERS, TRUST } from "../4-publish/world.ts";

const [dir = "", now = ""] = process.argv.slice(2);
const clock = new FixedClock(now);
const logger = createLogger("silent");
const lake = await openLake(join(dir, "lake.duckdb"), { memoryLimit: "512MB", threads: 2, init: INGEST_TABLES });
const privateStore = await openDirectoryStore(join(dir, "private"));
const publicStore = await openDirectoryStore(join(dir, "public"));
const stores = { privateStore, publicStore };
const publisher = createPublisher({
  ...{ ...stores, signers: SIGNERS, clock, origin: ORIGIN, partitions: PARTITIONS, logger, metrics: createMetrics() },
});
const parts = { ...stores, lake, publisher, partitions: PARTITIONS, logger, trust: TRUST, cards: SIGNERS.cards };
process.stdout.write("begun\n");
const place = { jwks: async () => JWKS, baseUrl: "https://record.example", now: () => clock.now() };
const report = await makeArchive({ ...parts, ...place }, clock.now());
process.stdout.write(`${JSON.stringify(report)}\n`);
await lake.close();
