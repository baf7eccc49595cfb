/** The archive's job in a process of its own, to be killed: `archive-child.ts <folder with lake, private and public> <now>`. */
import { join } from "node:path";
import { FixedClock } from "../../../infra/clock.ts";
import { openLake } from "../../../infra/lake/duckdb.ts";
import { fixedPartitions } from "../../../infra/log/ownership.ts";
import { openDirectoryStore } from "../../../infra/store/directory.ts";
import { createLogger, createMetrics } from "../../../infra/telemetry.ts";
import type { Ingest } from "../../../pipelines/2-ingest/ingest.ts";
import { INGEST_TABLES } from "../../../pipelines/2-ingest/load.ts";
import { createPublisher } from "../../../pipelines/4-publish/publisher.ts";
import { archiveDays, createPrinterOpener } from "../../../pipelines/roles/days.ts";
import { Owner } from "../../../pipelines/roles/protocol/owner.ts";
import { Publishing } from "../../../pipelines/roles/protocol/publishing.ts";
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
const [loaded] = await lake.all<{ file: string }>("SELECT file FROM loaded LIMIT 1");
const logId = loaded!.file.split("/")[1]!;
process.stdout.write("begun\n");
const metrics = createMetrics();
const log = { id: logId, partitions: PARTITIONS };
// The log is not here: what it holds is in the lake.
const ingest = { hold: async () => undefined, pass: async () => ({ positions: {}, rows: 0 }) } as unknown as Ingest;
const ownership = fixedPartitions(Array.from({ length: PARTITIONS }, (_, partition) => partition));
const common = { ...stores, log, clock, logger, metrics };
const owner = new Owner({ ...common, lake, ingest, ownership, followed: publisher });
const publishing = new Publishing({ ...common, publisher });
const place = { publicStore, trust: TRUST, cards: SIGNERS.cards, jwks: async () => JWKS };
const archivingParts = {
  ...place,
  baseUrl: "https://record.example",
  now: () => clock.now(),
  openPrinter: createPrinterOpener(lake),
};
const report = await archiveDays({ owner, publishing, archivingParts }, clock.now());
process.stdout.write(`${JSON.stringify(report)}\n`);
await lake.close();
