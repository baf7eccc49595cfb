/**
 * Handshakes of about 500 bytes from the embedded log into segments, commits and the lake.
 * Run: npx tsx test/bench/ingest.bench.ts [rows] [partitions]
 */
import { mkdtemp, open, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { systemClock } from "../../infra/clock.ts";
import { type Lake, openLake } from "../../infra/lake/duckdb.ts";
import { openEmbeddedLog } from "../../infra/log/embedded.ts";
import { type Log, MAX_BATCH_RECORDS, type NewRecord } from "../../infra/log/log.ts";
import { openDirectoryStore } from "../../infra/store/directory.ts";
import { createLogger, createMetrics } from "../../infra/telemetry.ts";
import { createIngest } from "../../pipelines/2-ingest/ingest.ts";
import { INGEST_TABLES } from "../../pipelines/2-ingest/load.ts";
import { sealEnvelope } from "../../pipelines/record/envelope.ts";
import { capId, plannedSlot, recordId } from "../../pipelines/record/ids.ts";
import { TOPICS } from "../../pipelines/record/topics.ts";
import { against, type Cost, ratio, shown, timed } from "./ratio.ts";

const ROWS = Number(process.argv[2] ?? 2_000_000);
const PARTITIONS = Number(process.argv[3] ?? 4);
const CAPS = 5_000;

function* handshakes(): Generator<NewRecord> {
  const caps = Array.from({ length: CAPS }, (_, i) => capId("GET", `https://seller-${i}.example/paid`));
  for (let i = 0; i < ROWS; i++) {
    const cap = caps[i % CAPS]!;
    const slot = { block: 80_000 + Math.floor(i / CAPS), minute: i % 360 };
    yield sealEnvelope(
      {
        ...{ v: 1, type: "handshake", cap, key: cap, producer: "bench/1" },
        event_id: recordId("handshake", cap, plannedSlot(slot.block, slot.minute)),
        observed_at: new Date(slot.block * 21_600_000 + slot.minute * 60_000).toISOString(),
        body: {
          ...{ slot, planned: "free", state: "asked", live: true, honest: true, wall: false, fault: null, status: 402 },
          ...{
            latency_ms: 80 + (i % 900),
            price: "0.020000",
            pay_to: `0x${"11".repeat(20)}`,
            terms: null,
            differs: [],
          },
        },
      },
      PARTITIONS,
    );
  }
}

const perSecond = (rows: number, ms: number): string => `${Math.round((rows / ms) * 1000).toLocaleString("en")} rows/s`;

async function measured(what: string, rows: number, work: () => Promise<unknown>): Promise<Cost> {
  const cost = await timed(work);
  const each = ((cost.cpu * 1e6) / rows).toFixed(1);
  console.log(`${what}: ${perSecond(rows, cost.wall * 1_000)} (${shown(cost).trim()}, ${each} us CPU a row)`);
  return cost;
}

/** The shortest way that ends in a table and is not durable: values as they are, to NDJSON, to zstd Parquet, to a table. */
async function plainChain(log: Log, work: string, lake: Lake): Promise<void> {
  await lake.run("CREATE TABLE plain (body JSON)");
  for (let partition = 0; partition < PARTITIONS; partition++) {
    const [lines, parquet] = [join(work, `plain-${partition}.ndjson`), join(work, `plain-${partition}.parquet`)];
    const file = await open(lines, "w");
    for (let from = 0; ; ) {
      const records = await log.read("observations.free", partition, from, { maxRecords: 5_000 });
      if (records.length === 0) break;
      await file.write(Buffer.concat(records.flatMap(({ value }) => [value, Buffer.from("\n")])));
      from = records.at(-1)!.offset + 1;
    }
    await file.close();
    await lake.all(
      `COPY (SELECT json AS body FROM read_ndjson_objects('${lines}')) TO '${parquet}' (COMPRESSION zstd)`,
    );
    await lake.run(`INSERT INTO plain FROM read_parquet('${parquet}')`);
  }
  await lake.run("DROP TABLE plain");
}

const dir = await mkdtemp(join(tmpdir(), "ingest-bench-"));
try {
  const log = await openEmbeddedLog(join(dir, "log"), { topics: TOPICS, partitions: PARTITIONS });
  let bytes = 0;
  let batch: NewRecord[] = [];
  const flush = async () => {
    await log.append(batch);
    batch = [];
  };
  for (const record of handshakes()) {
    bytes += record.value.byteLength;
    batch.push(record);
    if (batch.length === MAX_BATCH_RECORDS) await flush();
  }
  await flush();
  console.log(`${ROWS} handshakes of ${Math.round(bytes / ROWS)} bytes in ${PARTITIONS} partitions`);

  const privateStore = await openDirectoryStore(join(dir, "private"));
  const settings = { memoryLimit: "2GB", threads: 2, init: INGEST_TABLES };
  const lake = await openLake(join(dir, "lake.duckdb"), settings);
  const parts = { log, privateStore, lake, clock: systemClock, logger: createLogger("warn"), metrics: createMetrics() };
  const ingest = createIngest(parts);
  const pass = await measured("log -> segments -> chain -> lake", ROWS, () => ingest.pass());
  const rebuilt = await measured("rebuild: chain -> lake", ROWS, () => ingest.rebuild());
  await lake.run("CHECKPOINT");
  const kept = (await stat(join(dir, "lake.duckdb"))).size;
  const committed = await lake.all<{ bytes: number }>(
    `SELECT sum(size)::DOUBLE AS bytes FROM read_blob('${join(dir, "private")}/**/*.parquet')`,
  );
  console.log(
    `a row takes ${(kept / ROWS).toFixed(0)} B in the lake, ${(committed[0]!.bytes / ROWS).toFixed(0)} B in segments`,
  );
  await measured("a pass with nothing new (per pass)", 1, () => ingest.pass());
  const plain = await measured("the plain chain: values -> NDJSON -> Parquet -> table", ROWS, () =>
    plainChain(log, lake.workDir, lake),
  );
  ratio("ingest: rows a second", perSecond(ROWS, pass.wall * 1_000), "100,000 rows/s or more");
  ratio("ingest: exactly-once pass of the plain chain", against(pass, plain), "(the less the better)");
  ratio("ingest: rebuild of a pass", against(rebuilt, pass), "below 1");
  await lake.close();
  await privateStore.close();
  await log.close();
} finally {
  await rm(dir, { recursive: true, force: true });
}
