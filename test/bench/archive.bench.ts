/**
 * One day of free handshakes out of the segments and into the archive: printed, packed, put, read back, unpacked, counted,
 * signed, published and deleted; against `zstd -3` and `sha256sum` of the same bytes, one after the other.
 * Run: npx tsx test/bench/archive.bench.ts [rows, default a million: one file] [--endpoints=5000]
 */
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { decompress } from "zstd-napi";
import { openChain } from "../../infra/chain/commits.ts";
import { openLake } from "../../infra/lake/duckdb.ts";
import type { Ingest } from "../../pipelines/2-ingest/ingest.ts";
import { INGEST_TABLES, SegmentLoader } from "../../pipelines/2-ingest/load.ts";
import { handshake } from "../pipelines/2-ingest/records.ts";
import { PARTITIONS } from "../pipelines/2-ingest/world.ts";
import { ArchiveWorld, fileKeyOf } from "../pipelines/5-archive/world.ts";
import { against, type Cost, ratio, shown, timed } from "./ratio.ts";

const ROWS = Number(process.argv.slice(2).find((word) => !word.startsWith("--")) ?? 1_000_000);
/** One real row of every bucket: their evidence is published, and the made ones, below them, are no part of it. */
const REAL = 400;
const MADE = ROWS - REAL;
const ENDPOINTS = Number(process.argv.find((word) => word.startsWith("--endpoints="))?.slice(12) ?? 5_000);
const DAY = "2026-11-10";
const DUE = "2027-03-01T00:00:00.000Z";

/** Every endpoint has a payee of its own. Bodies in RFC 8785, as every record of ours. */
const PAY_TO = "'0x' || substr(sha256('p' || i % $endpoints), 1, 40)";
const BODY = `'{"differs":[],"fault":null,"honest":true,"latency_ms":' || (80 + i % 900) || '.25,"live":true,' ||
  '"pay_to":"' || ${PAY_TO} || '","planned":"free","price":"0.020000",' ||
  '"slot":{"block":80000,"minute":' || (i % 360) || '},"state":"asked","status":402,"terms":{"defects":[],' ||
  '"offers":[{"amount_atomic":"20000","asset":"0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913","decimals":6,"max_timeout_s":60,' ||
  '"network":"eip155:8453","network_raw":"base","pay_to":"' || ${PAY_TO} || '","payable":true,' ||
  '"price":"0.020000","scheme":"exact"}],"protocols":["x402"],"schema_sha256":null,"sha256":"' || sha256(cap) || '","x402_version":1},"wall":false}'`;
/**
 * A segment of one partition, made in the engine: what is measured begins where it is. All of its rows stand at offset 0,
 * below what the evidence has read.
 */
const SEGMENT_SQL = `
COPY (SELECT 'observations.free' AS topic, $part::USMALLINT AS part, 0::BIGINT AS "offset",
    'rec_' || substr(upper(sha256('r' || i)), 1, 26) AS event_id, 'handshake' AS type, cap AS key, NULL::VARCHAR AS cap,
    t AS observed_at, 'bench/1' AS producer, 1::USMALLINT AS v, t AS appended_at, ${BODY} AS body, NULL::VARCHAR AS extra
  FROM (SELECT i, 'cap_' || substr(upper(sha256(((i % $endpoints)::VARCHAR))), 1, 26) AS cap,
      TIMESTAMP '${DAY} 00:00:00' + to_milliseconds((i * 86400000 // ${MADE})::BIGINT) AS t FROM range($from, $to) r(i))
  WHERE ((('0x' || sha256(cap)[1:2])::INTEGER >> 2) >> 5) = $part ORDER BY i)
TO $path (FORMAT parquet, COMPRESSION zstd)`;
const SEGMENTS = 4;

/** Everything is in the lake: of the made rows the log knows nothing. */
const INGESTED = { hold: async () => undefined, pass: async () => ({ positions: {}, rows: 0 }) } as unknown as Ingest;

/** The made rows into the chain and the lake. */
async function load(world: ArchiveWorld): Promise<void> {
  const { store: privateStore, lake, log } = world.ingest;
  const topic = "observations.free";
  for (let partition = 0; partition < PARTITIONS; partition++) {
    const chain = openChain(privateStore, { logId: log.id, topic, partition });
    for (let n = 0; n < SEGMENTS; n++) {
      const path = join(lake.workDir, `bench-${partition}-${n}.parquet`);
      const [from, to] = [Math.floor((MADE * n) / SEGMENTS), Math.floor((MADE * (n + 1)) / SEGMENTS)];
      const text = Object.entries({ part: partition, endpoints: ENDPOINTS, from, to, path: `'${path}'` }).reduce(
        (sql, [name, value]) => sql.replaceAll(`$${name}`, String(value)),
        SEGMENT_SQL,
      );
      await lake.run(text);
      const [counted] = await lake.all<{ n: bigint }>("SELECT count(*) AS n FROM read_parquet($path)", { path });
      const rows = Number(counted!.n);
      const first = (await chain.head()).next;
      const ref = await chain.putSegment(await readFile(path), first, first, {
        rows,
        rejected: { records: 0, bytes: Buffer.alloc(0) },
      });
      await chain.commit({ first, next: first + 1, lastEventId: "bench", add: [ref], remove: [], at: new Date(DUE) });
      const loading = new SegmentLoader({ lake, privateStore, log, ownHosts: new Set() });
      await loading.add({ ...ref, topic, partition, first: 0, last: 0, path, next: first + 1 });
      await loading.load();
    }
  }
}

/** What the tools take of these bytes, children's CPU by the shell's own clock. */
async function byTools(path: string): Promise<Cost> {
  const script = `TIMEFORMAT='%R %U %S'; time { zstd -q -3 -c '${path}' > '${path}.zst'; sha256sum '${path}' > /dev/null; }`;
  const { stderr } = await promisify(execFile)("bash", ["-c", script]);
  const [wall = 0, user = 0, system = 0] = stderr.trim().split("\n").at(-1)!.split(" ").map(Number);
  return { wall, cpu: user + system };
}

const dir = await mkdtemp(join(tmpdir(), "archive-bench-"));
// As a service opens its lake when nothing is said (infra/config.ts).
const lake = await openLake(join(dir, "lake.duckdb"), { memoryLimit: "2GB", threads: 2, init: INGEST_TABLES });
const world = await ArchiveWorld.open(lake);
try {
  await world.ingest.append(...Array.from({ length: REAL }, (_, n) => handshake(`s${n}`, `${DAY}T00:00:00.000Z`)));
  await world.closeDays(DUE);
  await load(world);
  await world.ingest.lake.run("CHECKPOINT");
  let last = performance.now();
  const steps = new Map<string, number>();
  const cpus = new Map<string, number>();
  let lastCpu = process.cpuUsage();
  const onStep = (step: string) => {
    const now = performance.now();
    steps.set(step, (steps.get(step) ?? 0) + now - last);
    last = now;
    const { user, system } = process.cpuUsage(lastCpu);
    lastCpu = process.cpuUsage();
    cpus.set(step, (cpus.get(step) ?? 0) + (user + system) / 1e6);
  };
  const whole = await timed(() => world.archive(DUE, { onStep, ingest: INGESTED }));
  for (const [step, ms] of steps)
    console.log(
      `until ${step.padEnd(14)} ${(ms / 1000).toFixed(2).padStart(7)} s wall ${cpus.get(step)!.toFixed(2).padStart(7)} s CPU`,
    );
  const leaves = (await world.filed()).filter(({ manifest }) => manifest.rows > 0);
  const texts = await Promise.all(
    leaves.map(async (leaf) => decompress((await world.publicStore.get(fileKeyOf(leaf)))!.bytes)),
  );
  const path = join(world.ingest.dir, "day.ndjson");
  await writeFile(path, Buffer.concat(texts));
  const bytes = texts.reduce((sum, text) => sum + text.length, 0);
  const packed = leaves.reduce((sum, { manifest }) => sum + manifest.bytes, 0);
  const tools = await byTools(path);
  const rows = leaves.reduce((sum, { manifest }) => sum + manifest.rows, 0);
  console.log(`${rows} rows, ${(bytes / 1e6).toFixed(1)} MB of lines, ${(packed / 1e6).toFixed(1)} MB packed`);
  for (const { manifest, sha256 } of leaves)
    console.log(`${manifest.content_hash} in ${sha256}, ${manifest.rows} rows from ${manifest.from}`);
  console.log(`archive, the whole way     ${shown(whole)}`);
  console.log(`zstd -3, then sha256sum    ${shown(tools)}`);
  ratio("archive a day: zstd -3 and sha256sum of it", against(whole, tools), "<= 3");
  const part = (...names: string[]): Cost => ({
    wall: names.reduce((sum, name) => sum + (steps.get(name) ?? 0) / 1000, 0),
    cpu: Number.NaN,
  });
  const filing = part("packed", "put", "read back", "counted");
  ratio("of it packing, putting, reading back", `${(filing.wall / tools.wall).toFixed(2)} wall`, "");
} finally {
  await world.close();
  await rm(dir, { recursive: true, force: true });
}
