/**
 * From a real Kafka broker to Parquet and DuckDB: rows of 514 bytes, produced once, then read by kafkajs alone, by the
 * whole exactly-once ingest, and by peers that only write Parquet. Everybody shares the machine with the broker. Needs
 * Java and Maven; says what is missing, and never fails because of a time.
 * Run: npx tsx test/bench/stream.bench.ts [rows] [partitions] [--endpoints=5000] [--peers=none|polars,spark]
 */
import { mkdir, mkdtemp, rm } from "node:fs/promises";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { startKafka } from "../../fixtures/cluster/kafka.ts";
import { systemClock } from "../../infra/clock.ts";
import { openLake } from "../../infra/lake/duckdb.ts";
import { createKafka } from "../../infra/log/kafka/client.ts";
import { openKafkaLog } from "../../infra/log/kafka/kafka.ts";
import { type Log, MAX_BATCH_RECORDS, type NewRecord } from "../../infra/log/log.ts";
import { openDirectoryStore } from "../../infra/store/directory.ts";
import { createLogger, createMetrics } from "../../infra/telemetry.ts";
import { createIngest } from "../../pipelines/2-ingest/ingest.ts";
import { INGEST_TABLES } from "../../pipelines/2-ingest/load.ts";
import { readRow } from "../../pipelines/2-ingest/row.ts";
import { TOPICS } from "../../pipelines/record/topics.ts";
import { isInstalled, TOOLS } from "../cluster/tools.ts";
import { PEERS, runPeer } from "./peers/peers.ts";
import { type Cost, ratio, timed } from "./ratio.ts";
import { streamRows } from "./stream-rows.ts";

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: { endpoints: { type: "string" }, peers: { type: "string" } },
});
const ROWS = Number(positionals[0] ?? 1_000_000);
const PARTITIONS = Number(positionals[1] ?? 4);
/** Who says the same at every probe but for time and slot. */
const ENDPOINTS = Number(values.endpoints ?? 5_000);
/** Words of the peers' names to be run: all unless some are named, none for a word that none of them has. */
const ASKED = values.peers?.toLowerCase().split(",") ?? [""];
const TOPIC = "observations.free";
const PREFIX = "bench";
const logger = createLogger("warn");

/** Prints the rows a second of one way, and what the process that goes it spends on a row. */
async function measured<T extends Cost>(what: string, work: () => Promise<T>): Promise<T> {
  const cost = await work();
  const speed = Math.round(ROWS / cost.wall).toLocaleString("en");
  const own = ((cost.cpu * 1e6) / ROWS).toFixed(2);
  console.log(`${what}: ${speed} rows/s (${cost.wall.toFixed(2)} s wall, ${own} us CPU a row)`);
  return cost;
}

/** Our speed as a part of theirs: above 1 is quicker. On a busy machine the CPU of a row says more than the wall. */
const speedOf = (ours: Cost, theirs: Cost): string =>
  `${(theirs.wall / ours.wall).toFixed(2)} wall, ${(theirs.cpu / ours.cpu).toFixed(2)} CPU`;

async function produce(log: Log): Promise<void> {
  let batch: NewRecord[] = [];
  for (const record of streamRows(ROWS, PARTITIONS, ENDPOINTS)) {
    batch.push(record);
    if (batch.length < MAX_BATCH_RECORDS) continue;
    await log.append(batch);
    batch = [];
  }
  await log.append(batch);
}

/** kafkajs as it comes: every message counted and dropped. From the moment on when it has joined its group. */
async function bare(broker: string): Promise<Cost> {
  const consumer = createKafka({ brokers: [broker], prefix: PREFIX }, logger).consumer({
    groupId: `bare-${process.pid}`,
    maxBytesPerPartition: 8 * 1024 * 1024,
  });
  await consumer.connect();
  await consumer.subscribe({ topic: `${PREFIX}.${TOPIC}`, fromBeginning: true });
  const joined = new Promise<void>((resolve) => consumer.on(consumer.events.GROUP_JOIN, () => resolve()));
  let seen = 0;
  const ended = new Promise<void>((resolve, reject) => {
    // It starts again by itself where trying again helps: a broker that has just come up still loads its groups.
    consumer.on(consumer.events.CRASH, ({ payload }) => payload.restart || reject(payload.error));
    const eachBatch = async ({ batch }: { batch: { messages: { value: Buffer | null }[] } }) => {
      for (const { value } of batch.messages) if (value) seen++;
      if (seen >= ROWS) resolve();
    };
    consumer.run({ autoCommit: false, eachBatch }).catch(reject);
  });
  await Promise.race([joined, ended]);
  const cost = await timed(() => ended);
  await consumer.disconnect();
  return cost;
}

/** Our log's reads alone, with or without the validation that follows: where the time of the ingest goes. */
async function reads(log: Log, each: (record: Parameters<typeof readRow>[0]) => unknown): Promise<void> {
  for (let partition = 0; partition < PARTITIONS; partition++) {
    const { end } = await log.bounds(TOPIC, partition);
    for (let from = 0; from < end; ) {
      const records = await log.read(TOPIC, partition, from, { maxRecords: 1_000 });
      for (const record of records) each(record);
      from = records.at(-1)!.offset + 1;
    }
  }
}

async function ingested(log: Log, dir: string): Promise<Cost> {
  const privateStore = await openDirectoryStore(join(dir, "private"));
  const lake = await openLake(join(dir, "lake.duckdb"), { memoryLimit: "2GB", threads: 2, init: INGEST_TABLES });
  const metrics = createMetrics();
  const parts = { log, privateStore, lake, clock: systemClock, logger, metrics };
  let rows = 0;
  const cost = await timed(async () => {
    ({ rows } = await createIngest(parts).pass());
  });
  await lake.close();
  await privateStore.close();
  if (rows !== ROWS) throw new Error(`ingest: ${rows} rows instead of ${ROWS}`);
  return cost;
}

async function compare(broker: string, dir: string): Promise<void> {
  const create = { partitions: PARTITIONS, replicas: 1, minInSync: 1 };
  console.log(`${ROWS.toLocaleString("en")} rows, load of the machine ${loadavg()[0]!.toFixed(1)}`);
  const log = await openKafkaLog({ brokers: [broker], prefix: PREFIX }, { topics: TOPICS, logger, create });
  await measured("produced through our log", () => timed(() => produce(log)));
  const kafkajs = await measured("kafkajs, bare eachBatch", () => bare(broker));
  await measured("our log, read", () => timed(() => reads(log, () => 0)));
  await measured("our log, read and validated", () => timed(() => reads(log, readRow)));
  const ours = await measured("our ingest: exactly once, to Parquet, commits and DuckDB", () => ingested(log, dir));
  await log.close();
  ratio("stream: ingest of bare kafkajs", speedOf(ours, kafkajs), "0.60 or more");
  for (const peer of PEERS.filter(({ name }) => ASKED.some((word) => name.toLowerCase().includes(word)))) {
    const what = `stream: ingest of ${peer.name}`;
    const missing = peer.missing();
    if (missing) {
      console.log(`${peer.name} is missing here: ${missing}`);
      ratio(what, "it is missing here", peer.aim);
      continue;
    }
    const out = join(dir, peer.name.replace(/\W+/g, "-"));
    await mkdir(out);
    const place = { broker, topic: `${PREFIX}.${TOPIC}`, rows: ROWS, partitions: PARTITIONS, out };
    try {
      ratio(
        what,
        speedOf(ours, await measured(`${peer.name}, to Parquet alone`, () => runPeer(peer, place))),
        peer.aim,
      );
    } catch (error) {
      // What others' software does here says nothing of ours.
      console.log(`${peer.name} gave no figure: ${(error as Error).message}`);
      ratio(what, "it gave no figure", peer.aim);
    }
  }
}

const lacking = [TOOLS.java, TOOLS.maven].filter((tool) => tool && !isInstalled(tool));
if (lacking.length > 0) {
  console.log(`no broker here; install ${lacking.map((tool) => tool!.install).join(" and ")}`);
} else {
  const dir = await mkdtemp(join(tmpdir(), "stream-bench-"));
  const kafka = await startKafka({ measured: true });
  try {
    await compare(kafka.brokers[0]!, dir);
  } finally {
    await kafka.stop();
    await rm(dir, { recursive: true, force: true });
  }
}
