import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { WorldInfo } from "../../commands/world.ts";
import { loadKeys } from "../../infra/keys/keys.ts";
import { openLake } from "../../infra/lake/duckdb.ts";
import { openEmbeddedLog } from "../../infra/log/embedded.ts";
import type { LogRecord } from "../../infra/log/log.ts";
import { openDirectoryStore } from "../../infra/store/directory.ts";
import { originOf } from "../../infra/tree/checkpoint.ts";
import { INGEST_TABLES } from "../../pipelines/2-ingest/load.ts";
import { checkpointKeys } from "../../pipelines/4-publish/tree-head.ts";
import type { CardVerdict } from "../../pipelines/audit/recompute.ts";
import type { BodyOf, RecordType } from "../../pipelines/record/bodies.ts";
import { readRecord } from "../../pipelines/record/envelope.ts";
import type { Leaf } from "../../pipelines/record/leaf.ts";
import { TOPICS } from "../../pipelines/record/topics.ts";
import { foldersOf } from "../../pipelines/roles/data-folder.ts";
import { recomputeAll } from "./demo-evidence.ts";
import { proveRecord } from "./prove-record.ts";
import { archivedIds } from "./published.ts";

/** One record of the log with its place. */
export interface Fact<T extends RecordType = RecordType> {
  eventId: string;
  cap: string;
  observedAt: string;
  body: BodyOf<T>;
}

export interface DemoRecord {
  world: WorldInfo;
  /** Every record of the log, copies included. */
  log: LogRecord[];
  facts<T extends RecordType>(type: T): Fact<T>[];
  /**
   * How often each event id stands in the lake. A listing's id is its content, so saying the same on another day is the
   * same id again (records.md: copies are looked for inside one UTC day); such days count as one here.
   */
  lakeEvents: Map<string, number>;
  leaves: Leaf[];
  /** Ids of the probes that the archive's files hold. */
  archived: string[];
  /** Every published card, recomputed from the published evidence: none differs; those of the last days are pending. */
  cards: CardVerdict[];
}

async function readLog(dir: string, partitions: number): Promise<LogRecord[]> {
  const log = await openEmbeddedLog(dir, { topics: TOPICS, partitions });
  const all: LogRecord[] = [];
  for (const topic of TOPICS) {
    for (let partition = 0; partition < log.partitions; partition++) {
      for (let from = 0; ; ) {
        const records = await log.read(topic, partition, from, { maxRecords: 10_000 });
        if (records.length === 0) break;
        all.push(...records);
        from = records.at(-1)!.offset + 1;
      }
    }
  }
  await log.close();
  return all;
}

/** Everything a stopped demo left in its data folder, its public record proven again. @throws RecordBroken */
export async function readDemo(dataDir: string, baseUrl: string, partitions = 2): Promise<DemoRecord> {
  const at = foldersOf(dataDir);
  const log = await readLog(at.log, partitions);
  const byType = new Map<string, Fact[]>();
  const seen = new Set<string>();
  for (const record of log) {
    const read = readRecord(record);
    if (!read.ok) throw new Error(`${record.topic}/${record.partition}/${record.offset}: ${read.reason}`);
    if (seen.has(record.eventId)) continue;
    seen.add(record.eventId);
    const { type, cap = "", event_id: eventId, observed_at: observedAt, body } = read.envelope;
    byType.set(type, [...(byType.get(type) ?? []), { eventId, cap, observedAt, body } as Fact]);
  }
  const lake = await openLake(at.lake, { memoryLimit: "1GB", threads: 1, init: INGEST_TABLES });
  const rows = await lake.all<{ event_id: string; n: bigint }>(
    "SELECT event_id, CASE WHEN any_value(type) = 'listing' THEN max(a_day) ELSE sum(a_day) END::BIGINT AS n FROM (SELECT event_id, type, count(*) AS a_day FROM event GROUP BY event_id, type, observed_at::DATE) GROUP BY event_id",
  );
  await lake.close();
  const store = await openDirectoryStore(at.public);
  const keys = checkpointKeys(originOf(baseUrl), loadKeys(at.keys));
  const { leaves } = await proveRecord(store, { trust: { log: keys.log, witness: keys.witness }, atRest: true });
  const archived = await archivedIds(store, leaves);
  await store.close();
  const cards = await recomputeAll(at.public, dataDir, baseUrl);
  const wrong = cards.filter(({ verdict }) => verdict === "differs");
  if (wrong.length > 0) throw new Error(`cards do not follow from the evidence: ${JSON.stringify(wrong.slice(0, 5))}`);
  return {
    cards,
    world: JSON.parse(readFileSync(join(at.market, "world.json"), "utf8")) as WorldInfo,
    log,
    facts: (type) => (byType.get(type) ?? []) as never,
    lakeEvents: new Map(rows.map(({ event_id, n }) => [event_id, Number(n)])),
    ...{ leaves, archived },
  };
}
