import { cp, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { LapsedClock } from "../../infra/clock.ts";
import { loadKeys } from "../../infra/keys/keys.ts";
import { openLake } from "../../infra/lake/duckdb.ts";
import { openDirectoryStore } from "../../infra/store/directory.ts";
import { createLogger, createMetrics } from "../../infra/telemetry.ts";
import { INGEST_TABLES } from "../../pipelines/2-ingest/load.ts";
import { checkpointKeys, createPublisher } from "../../pipelines/4-publish/publisher.ts";
import { readCheckpoint } from "../../pipelines/4-publish/read.ts";
import { makeEvidence } from "../../pipelines/5-archive/evidence.ts";
import { originOf } from "../../pipelines/assemble.ts";
import { type CardVerdict, recompute } from "../../pipelines/audit/recompute.ts";
import { DirectorySource } from "../../pipelines/mirror/source.ts";
import { folders } from "../../pipelines/parts.ts";
import { proveRecord } from "./prove-record.ts";

/** Every card in a public folder, held against what comes out of its evidence. */
export async function recomputeAll(publicDir: string, dataDir: string, baseUrl: string): Promise<CardVerdict[]> {
  const store = await openDirectoryStore(publicDir);
  const { log, witness } = checkpointKeys(originOf(baseUrl), loadKeys(folders(dataDir).keys));
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
  const at = folders(dataDir);
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
    const now = new Date(newest!.t.getTime() + 2 * 86_400_000);
    const origin = originOf(baseUrl);
    const parts = { privateStore, publicStore, signers, clock: new LapsedClock(now), origin, partitions, logger };
    const publisher = createPublisher({ ...parts, metrics: createMetrics() });
    await makeEvidence({ lake, privateStore, publisher, partitions, logger }, now);
    const { log, witness } = checkpointKeys(origin, signers);
    await proveRecord(publicStore, { trust: { log, witness }, settled: true });
    await publicStore.close();
    await privateStore.close();
    return await recomputeAll(join(dir, "public"), dataDir, baseUrl);
  } finally {
    await lake.close();
    await rm(dir, { recursive: true, force: true });
  }
}
