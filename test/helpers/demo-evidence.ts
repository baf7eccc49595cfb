import { cp, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SimulatedClock } from "../../infra/clock.ts";
import { loadKeys } from "../../infra/keys/keys.ts";
import { openLake } from "../../infra/lake/duckdb.ts";
import { allPartitions } from "../../infra/log/ownership.ts";
import { openDirectoryStore } from "../../infra/store/directory.ts";
import { createLogger, createMetrics } from "../../infra/telemetry.ts";
import { originOf } from "../../infra/tree/checkpoint.ts";
import type { Ingest } from "../../pipelines/2-ingest/ingest.ts";
import { INGEST_TABLES } from "../../pipelines/2-ingest/load.ts";
import { createPublisher } from "../../pipelines/4-publish/publisher.ts";
import { checkpointKeys } from "../../pipelines/4-publish/tree-head.ts";
import { type CardVerdict, recompute } from "../../pipelines/audit/recompute.ts";
import { readCheckpoint } from "../../pipelines/published/reader.ts";
import { DirectorySource } from "../../pipelines/published/source.ts";
import { foldersOf } from "../../pipelines/roles/data-folder.ts";
import { closeDays } from "../../pipelines/roles/days.ts";
import { Owner } from "../../pipelines/roles/protocol/owner.ts";
import { Publishing } from "../../pipelines/roles/protocol/publishing.ts";
import { proveRecord } from "./prove-record.ts";

/** Every card in a public folder, held against what comes out of its evidence. */
export async function recomputeAll(publicDir: string, dataDir: string, baseUrl: string): Promise<CardVerdict[]> {
  const store = await openDirectoryStore(publicDir);
  const { log, witness } = checkpointKeys(originOf(baseUrl), loadKeys(foldersOf(dataDir).keys));
  const head = await readCheckpoint(store, { log, witness });
  await store.close();
  const cards: CardVerdict[] = [];
  if (head) await recompute(new DirectorySource(publicDir), head, "all", (card) => cards.push(card));
  return cards;
}

/**
 * Every card that a stopped demo published, once its last days are closed too: what the job will publish two days from
 * now, made on copies of its stores. The demo's own folder is left as it is.
 */
export async function recomputeDemo(dataDir: string, baseUrl: string, partitions = 2): Promise<CardVerdict[]> {
  const at = foldersOf(dataDir);
  const dir = await mkdtemp(join(tmpdir(), "demo-evidence-"));
  const lake = await openLake(at.lake, { memoryLimit: "1GB", threads: 1, init: INGEST_TABLES });
  try {
    await cp(at.public, join(dir, "public"), { recursive: true });
    await cp(at.private, join(dir, "private"), { recursive: true });
    const [publicStore, privateStore] = [
      await openDirectoryStore(join(dir, "public")),
      await openDirectoryStore(join(dir, "private")),
    ];
    const signers = loadKeys(at.keys);
    const logger = createLogger("silent");
    const [newest] = await lake.all<{ t: Date }>("SELECT max(observed_at) AS t FROM event");
    const [loaded] = await lake.all<{ file: string }>("SELECT file FROM loaded LIMIT 1");
    const now = new Date(newest!.t.getTime() + 2 * 86_400_000);
    const origin = originOf(baseUrl);
    const parts = { privateStore, publicStore, signers, clock: new SimulatedClock(now), origin, partitions, logger };
    const publisher = createPublisher({ ...parts, metrics: createMetrics() });
    const made = { id: loaded!.file.split("/")[1]!, partitions };
    // The log is closed, and the lake has all of it.
    const ingest = { hold: async () => undefined, pass: async () => ({ positions: {}, rows: 0 }), revocations: 0 };
    const common = { ...parts, publisher, log: made, metrics: createMetrics() };
    const ownership = allPartitions(partitions);
    const owner = new Owner({ ...common, lake, ingest: ingest as unknown as Ingest, ownership, followed: publisher });
    await closeDays(owner, new Publishing(common), now);
    const { log, witness } = checkpointKeys(origin, signers);
    await proveRecord(publicStore, { trust: { log, witness }, atRest: true });
    await publicStore.close();
    await privateStore.close();
    return await recomputeAll(join(dir, "public"), dataDir, baseUrl);
  } finally {
    await lake.close();
    await rm(dir, { recursive: true, force: true });
  }
}
