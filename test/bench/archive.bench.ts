/**
 * One day of free handshakes out of the lake and into the archive: exported, packed, put, read back, unpacked, counted,
 * signed, published and deleted; against `zstd -3` and `sha256sum` of the same bytes, one after the other.
 * Run: npx tsx test/bench/archive.bench.ts [rows, default a million: one file] [--endpoints=5000] [--whole]
 * With --whole no body is cut, as in a lake from before bodies were.
 */
import { execFile } from "node:child_process";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { decompress } from "zstd-napi";
import { openLake } from "../../infra/lake/duckdb.ts";
import { INGEST_TABLES } from "../../pipelines/2-ingest/load.ts";
import { CUT } from "../../pipelines/2-ingest/probe-cuts.ts";
import { makeArchive } from "../../pipelines/5-archive/archive.ts";
import { handshake } from "../pipelines/2-ingest/records.ts";
import { ArchiveWorld, fileKeyOf } from "../pipelines/5-archive/world.ts";
import { against, type Cost, ratio, shown, timed } from "./ratio.ts";

const isWhole = process.argv.includes("--whole");
const ROWS = Number(process.argv.slice(2).find((word) => !word.startsWith("--")) ?? 1_000_000);
/** One real row of every bucket: their evidence is frozen, so that the made ones, below them, are none of its business. */
const REAL = 400;
const MADE = ROWS - REAL;
const ENDPOINTS = Number(process.argv.find((word) => word.startsWith("--endpoints="))?.slice(12) ?? 5_000);
const DAY = "2026-11-10";
const DUE = "2027-03-01T00:00:00.000Z";

/** What differs from one body to the next is cut out of it (pipelines/2-ingest/probe-cuts.ts); every endpoint has a payee of its own. */
const PAY_TO = "'0x' || substr(sha256('p' || n), 1, 40)";
const SHAPE_SQL = `'{"differs":[],"fault":null,"honest":true,"latency_ms":${CUT},"live":true,' ||
  '"pay_to":"' || ${PAY_TO} || '","planned":"free","price":"0.020000",' ||
  '"slot":{"block":${CUT},"minute":${CUT}},"state":"asked","status":402,"terms":{"defects":[],' ||
  '"offers":[{"amount_atomic":"20000","asset":"0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913","decimals":6,"max_timeout_s":60,' ||
  '"network":"eip155:8453","network_raw":"base","pay_to":"' || ${PAY_TO} || '","payable":true,' ||
  '"price":"0.020000","scheme":"exact"}],"protocols":["x402"],"schema_sha256":null,"sha256":"${CUT}","x402_version":1},"wall":false}'`;
/** The texts that bodies share, one of each endpoint, behind those that the lake has. */
const SHAPES_SQL = `
CREATE TEMP TABLE bench_shape AS
SELECT n, (SELECT coalesce(max(id), 0) FROM shape) + n + 1 AS id, ${SHAPE_SQL} AS text FROM range(${ENDPOINTS}) r(n)`;
/**
 * Rows of as many endpoints as the lake has them, bodies in RFC 8785 as every record of ours, made in the engine: what is
 * measured begins where they are.
 */
const ROWS_SQL = `
INSERT INTO event BY NAME
WITH made AS (SELECT i, 'cap_' || substr(upper(sha256(((i % ${ENDPOINTS})::VARCHAR))), 1, 26) AS cap,
  'rec_' || substr(upper(sha256('r' || i)), 1, 26) AS id, TIMESTAMP '${DAY} 00:00:00' + to_milliseconds((i * 86400000 // ${MADE})::BIGINT) AS t,
  (80 + i % 900) || '.25' AS measured, 80000 AS block, (i % 360)::INTEGER AS minute
  FROM range(${MADE}) r(i)),
 judged AS (SELECT made.*, s.id AS shape, s.text, sha256(cap) AS sha FROM made JOIN bench_shape s ON s.n = i % ${ENDPOINTS})
SELECT id AS event_id, 'handshake' AS type, cap AS key, cap, 'observations.free' AS topic,
  ((('0x' || sha256(cap)[1:2])::INTEGER >> 2) >> 5)::USMALLINT AS part, 0 AS log_offset, DATE '1970-01-01' AS scope,
  t AS observed_at, t AS appended_at, 'bench/1' AS producer, 1 AS v, NULL AS extra,
  ${isWhole ? "whole_body(NULL, pieces_of(text), measured, block, minute, sha) AS body" : "shape, measured, block, minute, unhex(sha) AS sha"}
FROM judged ORDER BY i`;
const SAMPLES_SQL = `
INSERT INTO samples BY NAME SELECT cap, event_id AS obs_id, observed_at AS t, 0 AS kind, 1.0 AS w, TRUE AS live
FROM event WHERE producer = 'bench/1'`;

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
  await world.freeze(DUE);
  await world.ingest.lake.run(SHAPES_SQL);
  await world.ingest.lake.run(ROWS_SQL);
  if (!isWhole)
    await world.ingest.lake.run(
      "INSERT INTO shape BY NAME SELECT id, unhex(sha256(text)) AS name, text, TRUE AS live FROM bench_shape",
    );
  if (isWhole) await world.ingest.lake.run(SAMPLES_SQL);
  await world.ingest.lake.run("CHECKPOINT");
  // What the job asks of the evidence first: is there a record that no file of it holds?
  const look = await timed(() => world.freeze(DUE));
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
  const whole = await timed(() => makeArchive(world.archiveParts({ onStep }), new Date(DUE)));
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
  console.log(`of it the evidence's look  ${shown(look)}`);
  console.log(`zstd -3, then sha256sum    ${shown(tools)}`);
  ratio("archive a day: zstd -3 and sha256sum of it", against(whole, tools), "<= 1");
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
