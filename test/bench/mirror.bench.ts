/**
 * Cold sync of a record by the mirror, which proves it, against `rclone copy` of the same objects, which does not, both over
 * HTTP from the same `rclone serve http`; an idle run; and signatures a second on all cores against native ones.
 * Run: npx tsx test/bench/mirror.bench.ts [cards, default 20,000] [--rclone=FILE]
 */
import { spawn, spawnSync } from "node:child_process";
import { generateKeyPairSync, sign, verify } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { systemClock } from "../../infra/clock.ts";
import { VerifyPool } from "../../infra/keys/verify-pool.ts";
import { openDirectoryStore } from "../../infra/store/directory.ts";
import { HttpSource } from "../../pipelines/mirror/http-source.ts";
import { mirrorOnce } from "../../pipelines/mirror/mirror.ts";
import type { Source } from "../../pipelines/mirror/source.ts";
import { type Cost, peakGb, ratio, shown, timed } from "./ratio.ts";
import { type BenchRecord, makeRecord } from "./record-data.ts";

const args = process.argv.slice(2);
const cards = Number(args.find((arg) => !arg.startsWith("--")) ?? 20_000);
const rclone = args.find((arg) => arg.startsWith("--rclone="))?.slice("--rclone=".length) ?? "rclone";
const TRANSFERS = 8;

/** A port that nobody listened on a moment ago. */
async function freePort(): Promise<number> {
  const probe = createServer().listen(0, "127.0.0.1");
  await once(probe, "listening");
  const { port } = probe.address() as AddressInfo;
  probe.close();
  await once(probe, "close");
  return port;
}

/** A static server of a folder, as a process of its own; rclone does not say when it listens. */
async function serving(dir: string): Promise<{ url: string; stop: () => void }> {
  const address = `127.0.0.1:${await freePort()}`;
  const child = spawn(rclone, ["serve", "http", dir, "--addr", address], { stdio: "ignore" });
  for (let tries = 0; tries < 200 && child.exitCode === null; tries++) {
    const answer = await fetch(`http://${address}/checkpoint`).catch(() => null);
    await answer?.arrayBuffer();
    if (answer?.ok) return { url: `http://${address}/`, stop: () => void child.kill() };
    await setTimeout(100);
  }
  child.kill();
  throw new Error("rclone serve http does not answer");
}

async function copied(url: string): Promise<Cost> {
  const dir = await mkdtemp(join(tmpdir(), "rclone-bench-"));
  const how = [
    "copy",
    ":http:",
    dir,
    "--http-url",
    url,
    "--transfers",
    String(TRANSFERS),
    "--checkers",
    String(TRANSFERS),
  ];
  const cost = await timed(async () => {
    const [code] = (await once(spawn(rclone, how, { stdio: "inherit" }), "close")) as [number];
    if (code !== 0) throw new Error(`rclone copy ended with ${code}`);
  });
  await rm(dir, { recursive: true, force: true });
  return cost;
}

async function mirrored(record: BenchRecord, url: string, cardSignatures: boolean) {
  const dir = await mkdtemp(join(tmpdir(), "mirror-bench-"));
  const publicStore = await openDirectoryStore(join(dir, "public"));
  const stateStore = await openDirectoryStore(join(dir, "state"));
  let gets = 0;
  const http = new HttpSource(url, { clock: systemClock });
  const source: Source = {
    name: url,
    get: (key, maxBytes) => {
      gets++;
      return http.get(key, maxBytes);
    },
    into: (key, maxBytes, sink) => {
      gets++;
      return http.into(key, maxBytes, sink);
    },
    close: () => http.close(),
  };
  const how = {
    source,
    publicStore,
    stateStore,
    clock: systemClock,
    maxAgeSeconds: 0,
    cardSignatures,
    width: TRANSFERS,
  };
  const run = () => mirrorOnce({ ...how, keys: record.keys, partsDir: join(dir, "parts") });
  const cold = await timed(run);
  const coldGets = gets;
  gets = 0;
  const idle = await timed(run);
  const idleGets = gets;
  await source.close();
  await publicStore.close();
  await stateStore.close();
  await rm(dir, { recursive: true, force: true });
  return { cold, coldGets, idle, idleGets };
}

/** Signatures a second: one thread of plain Node, and the pool. */
async function signatures(): Promise<void> {
  const { publicKey, privateKey } = generateKeyPairSync("ed25519");
  const raw = Buffer.from(publicKey.export({ format: "jwk" }).x!, "base64url");
  const jobs = Array.from({ length: 20_000 }, (_, i) => {
    const bytes = Buffer.from(`card ${i} `.repeat(110));
    return { publicKey: raw, bytes, signature: sign(null, bytes, privateKey) };
  });
  const few = jobs.slice(0, 5_000);
  const pool = new VerifyPool();
  await pool.verify(few);
  const native = await timed(async () => {
    for (const { bytes, signature } of few) verify(null, bytes, publicKey, signature);
  });
  const pooled = await timed(async () => {
    const size = 512;
    const batches = Array.from({ length: Math.ceil(jobs.length / size) }, (_, i) =>
      jobs.slice(i * size, (i + 1) * size),
    );
    await Promise.all(batches.map((batch) => pool.verify(batch)));
  });
  await pool.close();
  const [one, all] = [few.length / native.wall, jobs.length / pooled.wall];
  console.log(`signatures: ${one.toFixed(0)}/s native on one core, ${all.toFixed(0)}/s on ${pool.width}`);
  ratio("signatures, pool / (native x cores)", (all / (one * pool.width)).toFixed(2), ">= 0.9");
}

await signatures();
if (spawnSync(rclone, ["version"]).status !== 0) {
  console.log(
    `no ${rclone}: install Debian's package rclone, or name one with --rclone=FILE. The mirror was not measured.`,
  );
} else {
  const made = performance.now();
  const record = await makeRecord(cards);
  console.log(
    `${record.leaves} leaves of ${cards} endpoints made in ${((performance.now() - made) / 1_000).toFixed(0)} s`,
  );
  const server = await serving(join(record.dir, "public")).catch(async (error: unknown) => {
    await record.remove();
    throw error;
  });
  try {
    await compare(record, server.url);
  } finally {
    server.stop();
    await record.remove();
  }
}

async function compare(record: BenchRecord, url: string): Promise<void> {
  const copy = await copied(url);
  console.log(`rclone copy              ${shown(copy)} (CPU of another process)`);
  for (const cardSignatures of [false, true]) {
    const { cold, coldGets, idle, idleGets } = await mirrored(record, url, cardSignatures);
    const what = cardSignatures ? "every card's signature too" : "cards under the log's signature";
    console.log(`mirror, ${what} ${shown(cold)}, ${coldGets} GETs; idle ${shown(idle)}, ${idleGets} GETs`);
    ratio(`cold sync of ${cards} cards / rclone copy, ${what}`, (cold.wall / copy.wall).toFixed(2), "<= 1.0");
    ratio(`idle run, GETs, ${what}`, String(idleGets), "1");
  }
  console.log(`peak ${peakGb().toFixed(2)} GB`);
}
