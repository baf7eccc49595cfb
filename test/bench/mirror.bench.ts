/**
 * Cold sync of a record by the mirror, which proves it, against `rclone copy` of the same objects, which does not, both over
 * HTTP from the same `rclone serve http`; an idle run; and signatures a second on all cores against native ones. CPU is
 * of client and server together: on a machine that others use it says more than the wall clock.
 * Run: npx tsx test/bench/mirror.bench.ts [cards, default 20,000] [--rtt=MS] [--mbit=N] [--signatures=no]
 *      [--rclone=FILE] [--record=DIR]
 * Without --rtt it is loopback, where a network costs nothing. With it both sides go by way of a relay (far.mjs) that makes
 * the server so far away, and rclone runs twice: as it comes (4 transfers), and with 16 and without asking for sizes.
 * With --record the record lies in that folder: it is made there once, and stays.
 */
import { spawn, spawnSync } from "node:child_process";
import { generateKeyPairSync, sign, verify } from "node:crypto";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { availableParallelism, tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { freePort } from "../../fixtures/ports.ts";
import { systemClock } from "../../infra/clock.ts";
import { verifySoon } from "../../infra/keys/verify.ts";
import { openDirectoryStore } from "../../infra/store/directory.ts";
import { mirrorOnce } from "../../pipelines/mirror/mirror.ts";
import { HttpSource } from "../../pipelines/published/open-source.ts";
import type { Source } from "../../pipelines/published/source.ts";
import { farFrom } from "./far.ts";
import { against, type Cost, peakGb, ratio, shown, timed } from "./ratio.ts";
import { type BenchRecord, makeRecord, openRecord } from "./record-data.ts";

const args = process.argv.slice(2);
const option = (name: string) => args.find((arg) => arg.startsWith(`--${name}=`))?.slice(name.length + 3);
const asked = Number(args.find((arg) => !arg.startsWith("--")) ?? 20_000);
const rclone = option("rclone") ?? "rclone";
const [rtt, mbit] = [Number(option("rtt") ?? 0), Number(option("mbit") ?? 0)];
const place = rtt > 0 ? `${rtt} ms away${mbit > 0 ? `, ${mbit} Mbit/s` : ""}` : "loopback";
/** How rclone is asked: as it comes, and as whoever knows it would ask for many small objects. */
const COPIES = [
  { name: "rclone copy", how: [] },
  { name: "rclone copy, 16 transfers, no HEAD", how: ["--transfers", "16", "--checkers", "16", "--http-no-head"] },
];

interface Server {
  url: string;
  /** CPU seconds that it has had so far. */
  cpu: () => number;
  stop: () => void;
}

/** CPU seconds of a process on Linux, in ticks of 10 ms. */
function cpuOf(pid: number | string): number {
  const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]!.split(" ");
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

/** A static server of a folder, as a process of its own; rclone does not say when it listens. */
async function serving(dir: string): Promise<Server> {
  const address = `127.0.0.1:${await freePort()}`;
  const child = spawn(rclone, ["serve", "http", dir, "--addr", address], { stdio: "ignore" });
  const stop = () => void child.kill();
  for (let tries = 0; tries < 200 && child.exitCode === null; tries++) {
    const answer = await fetch(`http://${address}/checkpoint`).catch(() => null);
    await answer?.arrayBuffer();
    if (answer?.ok) return { url: `http://${address}/`, cpu: () => cpuOf(child.pid!), stop };
    await setTimeout(100);
  }
  stop();
  throw new Error("rclone serve http does not answer");
}

/** `times` of a shell tells what its children had: the third and fourth figure, as 0m1.23s. */
function childrenOf(times: string): number {
  const [, , user, system] = [...times.matchAll(/(\d+)m([\d.]+)s/g)].map(([, m, s]) => 60 * Number(m) + Number(s));
  return user! + system!;
}

/** CPU seconds of this process's main thread on Linux: what no further core takes over. */
const mainCpu = (): number => cpuOf(`self/task/${process.pid}`);

/**
 * A folder that is removed when all is measured: where a file system has no journal, whoever makes files is held up by those
 * that were removed a minute ago (ext4 looks at the inode of each of them, for every new file).
 */
const folders: string[] = [];
async function folder(name: string): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), name));
  folders.push(dir);
  return dir;
}

async function copied(server: Server, url: string, more: readonly string[]): Promise<Cost> {
  const dir = await folder("rclone-bench-");
  const how = ["copy", ":http:", dir, "--http-url", url, ...more];
  const before = server.cpu();
  let told = "";
  const { wall } = await timed(async () => {
    const shell = spawn("bash", ["-c", '"$@" 2>&1; code=$?; times; exit $code', "bash", rclone, ...how]);
    shell.stdout.on("data", (chunk: Buffer) => {
      told += chunk.toString();
    });
    const [code] = (await once(shell, "close")) as [number];
    if (code !== 0) throw new Error(`rclone copy ended with ${code}: ${told}`);
  });
  return { wall, cpu: childrenOf(told) + server.cpu() - before };
}

async function mirrored(record: BenchRecord, server: Server, url: string, cardSignatures: boolean) {
  const dir = await folder("mirror-bench-");
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
  };
  const run = () => mirrorOnce({ ...how, keys: record.keys, partsDir: join(dir, "parts") });
  const before = { server: server.cpu(), main: mainCpu() };
  const cold = await timed(run);
  cold.cpu += server.cpu() - before.server;
  const main = mainCpu() - before.main;
  const coldGets = gets;
  gets = 0;
  const idle = await timed(run);
  const idleGets = gets;
  await source.close();
  await publicStore.close();
  await stateStore.close();
  return { cold, coldGets, idle, idleGets, main };
}

/** Signatures a second: one thread of plain Node, and the pool. @returns what a native one costs on one core */
async function signatures(): Promise<Cost> {
  const { publicKey, privateKey } = generateKeyPairSync("ed25519");
  const raw = Buffer.from(publicKey.export({ format: "jwk" }).x!, "base64url");
  const jobs = Array.from({ length: 20_000 }, (_, i) => {
    const bytes = Buffer.from(`card ${i} `.repeat(110));
    return { publicKey: raw, bytes, signature: sign(null, bytes, privateKey) };
  });
  const few = jobs.slice(0, 5_000);
  const native = await timed(async () => {
    for (const { bytes, signature } of few) verify(null, bytes, publicKey, signature);
  });
  const pooled = await timed(async () => {
    await Promise.all(jobs.map((job) => verifySoon(job.publicKey, job.bytes, job.signature)));
  });
  const [one, all] = [few.length / native.wall, jobs.length / pooled.wall];
  console.log(`signatures: ${one.toFixed(0)}/s native on one core, ${all.toFixed(0)}/s on all`);
  ratio("signatures, pool / (native x cores)", (all / (one * availableParallelism())).toFixed(2), ">= 0.9");
  return { wall: native.wall / few.length, cpu: native.cpu / few.length };
}

const native = await signatures();
if (spawnSync(rclone, ["version"]).status !== 0) {
  console.log(
    `no ${rclone}: install Debian's package rclone, or name one with --rclone=FILE. The mirror was not measured.`,
  );
} else {
  const kept = option("record");
  const made = performance.now();
  const record = (kept && (await openRecord(kept))) || (await makeRecord(asked, kept));
  const took = ((performance.now() - made) / 1_000).toFixed(0);
  console.log(`${record.leaves} leaves of ${record.cards} endpoints, made or found in ${took} s`);
  const server = await serving(join(record.dir, "public")).catch(async (error: unknown) => {
    await record.remove();
    throw error;
  });
  const far = rtt > 0 ? await farFrom(server.url, rtt, mbit) : null;
  try {
    await compare(record, server, far?.url ?? server.url);
  } finally {
    far?.stop();
    server.stop();
    await record.remove();
    for (const dir of folders) await rm(dir, { recursive: true, force: true });
  }
}

async function compare(record: BenchRecord, server: Server, url: string): Promise<void> {
  const { cards } = record;
  console.log(`the server is ${rtt > 0 ? place : "on this machine: loopback, a network costs nothing"}`);
  const copies: { name: string; cost: Cost }[] = [];
  for (const { name, how } of COPIES) {
    const cost = await copied(server, url, how);
    console.log(`${name} ${shown(cost)}`);
    copies.push({ name, cost });
  }
  for (const cardSignatures of option("signatures") === "no" ? [false] : [false, true]) {
    const { cold, coldGets, idle, idleGets, main } = await mirrored(record, server, url, cardSignatures);
    const what = cardSignatures ? "every card's signature too" : "cards under the log's signature";
    console.log(`mirror, ${what} ${shown(cold)}, ${coldGets} GETs; idle ${shown(idle)}, ${idleGets} GETs`);
    console.log(`of it the main thread ${main.toFixed(2)} s CPU: no number of cores is faster`);
    for (const { name, cost } of copies) {
      ratio(`cold sync of ${cards} cards, ${place} / ${name}, ${what}`, against(cold, cost), "<= 1.0");
      if (!cardSignatures) continue;
      const floor = {
        wall: cost.wall + (native.wall * cards) / availableParallelism(),
        cpu: cost.cpu + native.cpu * cards,
      };
      ratio(`the same / ${name} + native verification on all cores`, against(cold, floor), "<= 1.0");
    }
    ratio(`idle run, GETs, ${what}`, String(idleGets), "1");
  }
  console.log(`peak ${peakGb().toFixed(2)} GB`);
}
