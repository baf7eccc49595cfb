/**
 * A market of so many endpoints through the whole present version: rows made and loaded as ingest leaves them, graded by an
 * owner, published, mirrored over HTTP and proven, served and audited. Each step is a process of its own, so that its CPU
 * and its peak memory are its own. Letters are checked by sampling: what the design's prototype makes of the raw rows is
 * compared with the signed card that the mirror holds and with what /v1/check answers; a difference fails the run.
 * Run: npx tsx test/bench/million.bench.ts [endpoints, default 10,000] [rows of each, default 8; every fortieth has 200] [--dir=DIR]
 * With --dir the folder stays, and a run that was broken off goes on behind the last step that it finished.
 */
import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { mkdir, mkdtemp, opendir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { FixedClock } from "../../infra/clock.ts";
import { verifyObject } from "../../infra/keys/verify.ts";
import { openDirectoryStore, readDirectoryStore } from "../../infra/store/directory.ts";
import { createLogger, createMetrics } from "../../infra/telemetry.ts";
import type { Ingest } from "../../pipelines/2-ingest/ingest.ts";
import { FollowedRecord } from "../../pipelines/4-publish/followed.ts";
import { createPublisher } from "../../pipelines/4-publish/publisher.ts";
import { audit } from "../../pipelines/audit/audit.ts";
import { mirrorOnce } from "../../pipelines/mirror/mirror.ts";
import { fetchShard, IndexList, shardOf, unpackShard } from "../../pipelines/published/index-lines.ts";
import { INDEX_HINT } from "../../pipelines/published/objects.ts";
import { HttpSource, openSource } from "../../pipelines/published/open-source.ts";
import { readCheckpoint } from "../../pipelines/published/reader.ts";
import { DirectorySource } from "../../pipelines/published/source.ts";
import { SignedCard } from "../../pipelines/record/card.ts";
import { TIERS } from "../../pipelines/record/vocabulary.ts";
import { Owner } from "../../pipelines/roles/protocol/owner.ts";
import { Publishing } from "../../pipelines/roles/protocol/publishing.ts";
import { serve } from "../../serving/main.ts";
import { createMirrorApp } from "../../serving/mirror-app.ts";
import { checkPath, ManualClock } from "../helpers/serving.ts";
import { JWKS, LOG_ID, ORIGIN, SIGNERS, TRUST } from "../pipelines/4-publish/world.ts";
import {
  fillFromRaw,
  MANY_ROWS,
  makeRaw,
  NOW,
  openFilled,
  openRaw,
  PARTITIONS,
  recomputed,
  urlOf,
} from "./million-data.ts";
import { ratio } from "./ratio.ts";
import { replicaOver } from "./replica.ts";

const args = process.argv.slice(2);
const option = (name: string) => args.find((arg) => arg.startsWith(`--${name}=`))?.slice(name.length + 3);
const [endpoints = 10_000, rows = 8] = args.filter((arg) => !arg.startsWith("--")).map(Number);
const SAMPLED = Math.min(2_000, Math.ceil(endpoints / 5));
const CHECKS = Math.min(20_000, Math.ceil(endpoints / 5));
const SEARCHES = Math.min(200, Math.ceil(endpoints / 50));
/** When the record is published: after the moment of the grade run. */
const PUBLISHED = new Date(NOW.getTime() + 3_600_000);

/** What a step did, and what it took of this machine. */
interface Cost {
  wall: number;
  cpu: number;
  peakMb: number;
  /** Bytes that lie in the step's folder or file afterwards. */
  bytes: number;
  says: string;
}
/** What a step hands back besides; the sum of its folders is measured by the parent. */
type Step = (dir: string) => Promise<string>;

const began = performance.now();
const progress = (text: string): void =>
  void process.stderr.write(`  ${((performance.now() - began) / 1_000).toFixed(0).padStart(5)} s  ${text}\n`);
let lastProgress = 0;
/** Of texts that come fast, one in half a minute. */
const progressAtTimes = (text: string): void => {
  if (performance.now() - lastProgress < 30_000) return;
  lastProgress = performance.now();
  progress(text);
};
const logger = createLogger("silent");
const storesOf = async (dir: string) => ({
  privateStore: await openDirectoryStore(join(dir, "private")),
  publicStore: await openDirectoryStore(join(dir, "public")),
});

/** An owner and a publisher over the folder, each with a clock that stands at the record's time. */
async function publisherIn(dir: string) {
  const stores = await storesOf(dir);
  const clock = new FixedClock(PUBLISHED);
  const common = { ...stores, clock, logger, metrics: createMetrics() };
  const publisher = createPublisher({ ...common, signers: SIGNERS, origin: ORIGIN, partitions: PARTITIONS });
  const log = { id: LOG_ID, partitions: PARTITIONS };
  return { ...common, log, publisher, publishing: new Publishing({ ...common, log, publisher }) };
}

const STEPS: Readonly<Record<string, Step>> = {
  make: async (dir) => {
    const raw = await openRaw(dir, "3GB");
    await makeRaw(raw, dir, endpoints, rows);
    const [count] = await raw.all<{ n: bigint }>("SELECT count(*) AS n FROM samples");
    await raw.close();
    return `${count!.n.toLocaleString("en")} rows`;
  },
  load: async (dir) => {
    const lake = await openFilled(dir, "3GB");
    await fillFromRaw(lake, dir, progress);
    await lake.close();
    return "event, samples, seen, listing ..";
  },
  "keys leaf": async (dir) => {
    const { publisher } = await publisherIn(dir);
    await publisher.publishKeys(JWKS);
    return "";
  },
  grade: async (dir) => {
    const lake = await openFilled(dir, "2GB");
    const held = Array.from({ length: PARTITIONS }, (_, p) => p);
    // The rows are in the lake already.
    const ingest = { hold: async () => undefined, pass: async () => ({ positions: {}, rows: 0 }), revocations: 0 };
    const { publicStore, ...parts } = await publisherIn(dir);
    const followed = new FollowedRecord(publicStore, () => TRUST);
    const ownership = { held: () => held, heard: true, onChange: () => () => undefined };
    const owner = new Owner({ ...parts, publicStore, lake, ingest: ingest as unknown as Ingest, followed, ownership });
    const { caps, rows: read, lines } = await owner.grade(NOW);
    await lake.close();
    if (caps !== endpoints || lines !== endpoints) throw new Error(`${caps} endpoints graded, ${lines} lines`);
    return `${read.toLocaleString("en")} rows read`;
  },
  publish: async (dir) => {
    const { publishing, publisher } = await publisherIn(dir);
    const watch = setInterval(() => progress(`${publisher.fold.size.toLocaleString("en")} leaves`), 30_000);
    const { runs, cards, tree_size } = await publishing.takeRuns();
    clearInterval(watch);
    return `${cards.toLocaleString("en")} cards signed from ${runs} runs, ${tree_size.toLocaleString("en")} leaves`;
  },
  "a publisher starts, and the index": async (dir) => {
    const { publisher, publishing } = await publisherIn(dir);
    await publisher.start();
    progress("started");
    await publishing.buildIndex();
    await publisher.publishSchedule({ day: "2026-11-16", salt_hash: "00", covered_root: "00", covered: 0 });
    return `${publisher.fold.size.toLocaleString("en")} leaves`;
  },
  mirror: async (dir) => {
    const server = await started("files", dir);
    const source = new HttpSource(`${server.url}/`, { clock: new FixedClock(PUBLISHED), tries: 3 });
    const publicStore = await openDirectoryStore(join(dir, "mirror/public"));
    const stateStore = await openDirectoryStore(join(dir, "mirror/state"));
    const stores = { source, publicStore, stateStore, partsDir: join(dir, "mirror/parts") };
    const summary = await mirrorOnce({
      ...stores,
      clock: new FixedClock(PUBLISHED),
      maxAgeSeconds: 0,
      onProgress: ({ done, of, what }) => progressAtTimes(`${done} of ${of} ${what}`),
    });
    await source.close();
    const files = await server.stop();
    if (summary.missing.length > 0) throw new Error(`missing: ${JSON.stringify(summary.missing).slice(0, 300)}`);
    return `${summary.fetched.toLocaleString("en")} objects, every signature; its server ${files.cpu.toFixed(0)} s CPU`;
  },
  audit: async (dir) => {
    const source = await openSource(join(dir, "mirror/public"), new FixedClock(PUBLISHED));
    const head = (await readCheckpoint(await readDirectoryStore(join(dir, "mirror/public")), TRUST))!;
    const { findings } = await audit({ source, head, onProgress: progressAtTimes });
    await source.close();
    const wrong = findings.filter(({ result }) => result !== "ok");
    for (const { check, checked, open } of findings) progress(`${check}: ${checked} checked, ${open} open`);
    if (wrong.length > 0) throw new Error(JSON.stringify(wrong).slice(0, 2_000));
    return `${findings.length} checks ok; no evidence was published, so no card could be made again`;
  },
};

const cpuSeconds = (): number => {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1e6;
};
/** Most memory that this process had, MB. */
function peakMb(): number {
  const file = "/proc/self/status";
  const found = existsSync(file) ? /VmHWM:\s+(\d+)/.exec(readFileSync(file, "utf8")) : null;
  return found ? Number(found[1]) / 1024 : process.resourceUsage().maxRSS / 1024;
}
const costNow = (says: string): Omit<Cost, "bytes"> => {
  const wall = (performance.now() - began) / 1_000;
  return { wall, cpu: cpuSeconds(), peakMb: peakMb(), says };
};

const REPLICA = "a replica, until it serves";
/** Servers: each listens until it is told to stop, then reports what it took. */
const SERVERS: Readonly<Record<string, (dir: string) => Promise<{ url: string; says: string }>>> = {
  files: async (dir) => {
    const app = createMirrorApp(await readDirectoryStore(join(dir, "public")), createLogger("warn"));
    return { url: (await serve({ app, host: "127.0.0.1", port: 0 })).url, says: "" };
  },
  replica: async (dir) => {
    const store = await openDirectoryStore(join(dir, "mirror/public"));
    const { follower, app } = replicaOver(store, {
      origin: ORIGIN,
      trust: TRUST,
      clock: new ManualClock(PUBLISHED.toISOString()),
    });
    await follower.refresh();
    const says = `${cpuSeconds().toFixed(1)} s CPU until it serves, then ${(process.memoryUsage().rss / 1e6).toFixed(0)} MB`;
    return { url: (await serve({ app, host: "127.0.0.1", port: 0 })).url, says };
  },
};

const child = (name: string, dir: string): ChildProcess =>
  fork(fileURLToPath(import.meta.url), [`--step=${name}`, `--dir=${dir}`, String(endpoints), String(rows)], {
    execArgv: ["--import", "tsx"],
  });
async function told<T>(process: ChildProcess, name: string): Promise<T> {
  const [message, code] = await Promise.race([
    once(process, "message").then(([one]) => [one as T, 0] as const),
    once(process, "exit").then(([one]) => [null, one as number] as const),
  ]);
  if (message === null) throw new Error(`${name} ended with ${code}`);
  return message;
}

type Ran = Omit<Cost, "bytes">;
async function started(name: string, dir: string) {
  const process = child(name, dir);
  const { url, says } = await told<{ url: string; says: string }>(process, name);
  const cost = async (): Promise<Ran> => {
    const coming = told<Ran>(process, name);
    process.send("cost");
    return coming;
  };
  const stop = async (): Promise<Ran> => {
    const last = await cost();
    process.kill();
    return last;
  };
  return { url, says, cost, stop };
}

/** Bytes of files, in all folders below; 0 for what is not there. */
async function sizeOf(path: string): Promise<number> {
  const found = await stat(path).catch(() => null);
  if (!found?.isDirectory()) return found?.size ?? 0;
  let bytes = 0;
  for await (const one of await opendir(path)) bytes += await sizeOf(join(path, one.name));
  return bytes;
}
const LEAVES: Readonly<Record<string, readonly string[]>> = {
  make: ["raw.duckdb"],
  load: ["lake.duckdb"],
  grade: ["private/runs"],
  publish: ["public", "private/generation", "private/staging"],
  "a publisher starts, and the index": ["public/index"],
  mirror: ["mirror"],
};

/** Endpoints spread over all, and the same ones in every run; every second has many rows, as long as there are such. */
const picked = (count: number): number[] => {
  const eps = new Set<number>();
  for (let i = 0; eps.size < count && i < 4 * count; i++) {
    const ep = Number((BigInt(i) * 2_654_435_761n) % BigInt(endpoints));
    eps.add(i % 2 === 0 ? ep : Math.min(endpoints - 1, ep - (ep % 40) + 7));
  }
  return [...eps];
};
const at = (sorted: readonly number[], share: number): string =>
  sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))]!.toFixed(1);

/** The card that the mirror holds in its newest index for an address, its signature verified. */
function cardsOfMirror(dir: string) {
  const source = new DirectorySource(join(dir, "mirror/public"));
  const read = (key: string) => readFile(join(dir, "mirror/public", key), "utf8");
  let list: ReturnType<typeof IndexList.parse> | undefined;
  return async (url: string): Promise<SignedCard> => {
    list ??= IndexList.parse(JSON.parse(await read((JSON.parse(await read(INDEX_HINT)) as { key: string }).key)));
    const shard = list.shards[shardOf(url, Math.log2(list.shards.length))]!;
    const text = (await unpackShard(await fetchShard(source, shard), shard)).toString("utf8");
    const line = text.split("\n").find((one) => one.includes(`"url":"${url}"`));
    const { card } = JSON.parse(line ?? "{}") as { card?: object };
    const verdict = verifyObject(JWKS, card ?? {}, { purpose: "cards", at: PUBLISHED.toISOString() });
    if (!verdict.ok) throw new Error(`${url}: ${JSON.stringify(verdict)}`);
    return SignedCard.parse(card);
  };
}

/** Compares letters three ways for the sampled endpoints. @returns what was compared @throws Error naming each difference */
async function letters(dir: string, url: string): Promise<string> {
  const eps = picked(SAMPLED);
  const cardOf = cardsOfMirror(dir);
  const held = new Map<number, SignedCard>();
  const wrong: string[] = [];
  for (const ep of eps) {
    const card = await cardOf(urlOf(ep));
    held.set(ep, card);
    const answer = (await (await fetch(`${url}${checkPath({ url: urlOf(ep) })}`)).json()) as Record<string, unknown>;
    if (answer.band !== card.band || answer.composite !== card.composite)
      wrong.push(`${urlOf(ep)}: the mirror holds ${card.band} ${card.composite}, the check answers ${answer.band}`);
  }
  const again = await recomputed(dir, eps);
  for (const { ep, tier, letter, composite } of again ?? []) {
    const card = held.get(ep)!;
    const same = letter === card.band && Math.abs(composite - card.composite) < 2e-6 && TIERS[tier] === card.tier;
    if (!same)
      wrong.push(`${urlOf(ep)}: raw rows give ${tier} ${letter} ${composite}, the card ${card.band} ${card.composite}`);
  }
  if (wrong.length > 0) throw new Error(`${wrong.length} letters differ:\n${wrong.slice(0, 20).join("\n")}`);
  const bands = new Map<string, number>();
  for (const { band } of held.values()) bands.set(band, (bands.get(band) ?? 0) + 1);
  const counts = [...bands]
    .sort()
    .map(([band, n]) => `${n} ${band}`)
    .join(", ");
  return again
    ? `${again.length} letters of ${eps.length} sampled endpoints made again from raw rows, all equal to card and check (${counts})`
    : `NO PROTOTYPE: ${eps.length} cards equal to their checks, none made again`;
}

/** Asks the replica over HTTP, one request at a time. */
async function ask(url: string, paths: readonly string[]): Promise<number[]> {
  const took: number[] = [];
  for (const path of paths) {
    const from = performance.now();
    const answer = await fetch(`${url}${path}`);
    await answer.arrayBuffer();
    if (answer.status !== 200) throw new Error(`${path}: ${answer.status}`);
    took.push(performance.now() - from);
  }
  return took.sort((a, b) => a - b);
}

async function served(dir: string, table: Map<string, Cost>): Promise<void> {
  const { url, says, cost, stop } = await started("replica", dir);
  progress(`a replica serves: ${says}`);
  try {
    await askAll(dir, { url, says, cost }, table);
  } finally {
    await stop();
  }
}

async function askAll(
  dir: string,
  { url, says, cost }: { url: string; says: string; cost: () => Promise<Ran> },
  table: Map<string, Cost>,
): Promise<void> {
  const start = await cost();
  table.set(REPLICA, { ...start, bytes: 0, says });
  const checks = await ask(
    url,
    picked(CHECKS).map((ep) => checkPath({ url: urlOf(ep) })),
  );
  const checked = await cost();
  const p = (took: readonly number[]) => `p50 ${at(took, 0.5)} ms, p99 ${at(took, 0.99)} ms`;
  const each = (a: Ran, b: Ran, n: number) => `${(((b.cpu - a.cpu) / n) * 1e6).toFixed(0)} us CPU each`;
  const since = (a: Ran, b: Ran) => ({ wall: b.wall - a.wall, cpu: b.cpu - a.cpu, peakMb: b.peakMb, bytes: 0 });
  table.set(`${CHECKS.toLocaleString("en")} checks over HTTP`, {
    ...since(start, checked),
    says: `${p(checks)}, ${each(start, checked, CHECKS)}`,
  });
  const found = await ask(
    url,
    picked(SEARCHES).map((ep) => `/v1/search?${new URLSearchParams({ q: `resource ${ep}` })}`),
  );
  const searched = await cost();
  const search = `${p(found)}, ${each(checked, searched, SEARCHES)}`;
  table.set(`${SEARCHES} searches over HTTP`, { ...since(checked, searched), says: search });
  const sampled = await letters(dir, url);
  progress(sampled);
  ratio("million: letters made again from raw rows", sampled, "all equal");
}

async function whole(dir: string): Promise<void> {
  const table = new Map<string, Cost>();
  for (const name of Object.keys(STEPS)) {
    const file = join(dir, `${name}.json`);
    if (!existsSync(file)) {
      progress(name);
      const process = child(name, dir);
      const ran = await told<Ran>(process, name);
      if (process.exitCode === null) await once(process, "exit");
      let bytes = 0;
      for (const path of LEAVES[name] ?? []) bytes += await sizeOf(join(dir, path));
      await writeFile(file, JSON.stringify({ ...ran, bytes }));
    }
    const cost = JSON.parse(await readFile(file, "utf8")) as Cost;
    table.set(name, cost);
    const { cpu, peakMb: peak, says } = cost;
    progress(`${name}: ${cpu.toFixed(1)} s CPU, peak ${peak.toFixed(0)} MB, ${says}`);
    if (name === "mirror") await served(dir, table);
  }
  report(table);
}

/**
 * The table, and ten times of it by calculation: CPU, memory and bytes grow with the endpoints, over what a process takes
 * that only starts (the step "keys leaf"). A table of Markdown, as docs/deploy.md has it.
 */
function report(table: ReadonlyMap<string, Cost>): void {
  const idle = table.get("keys leaf")!;
  const row = (cells: readonly string[]) => console.log(`| ${cells.join(" | ")} |`);
  console.log(`\n${endpoints.toLocaleString("en")} endpoints, ${rows} rows each, every fortieth ${MANY_ROWS}\n`);
  row([
    "step",
    "CPU s",
    "us CPU an endpoint",
    "peak MB",
    "MB on disk",
    "B an endpoint",
    "10 x: CPU h",
    "GB",
    "GB on disk",
  ]);
  row(Array(9).fill("---"));
  for (const [name, { cpu, peakMb: peak, bytes }] of table) {
    const grows = name in STEPS || name === REPLICA;
    const own = Math.max(0, cpu - (grows ? idle.cpu : 0));
    const ten = idle.peakMb + 10 * Math.max(0, peak - idle.peakMb);
    const size = bytes > 0 ? [(bytes / 1e6).toFixed(1), (bytes / endpoints).toFixed(0)] : ["", ""];
    const figures = [name, own.toFixed(1), grows ? ((own / endpoints) * 1e6).toFixed(0) : "", peak.toFixed(0), ...size];
    const tenfold = grows ? [(own / 360).toFixed(2), (ten / 1e3).toFixed(1)] : ["", ""];
    row([...figures, ...tenfold, bytes > 0 ? (bytes / 1e8).toFixed(1) : ""]);
  }
  console.log("");
  for (const [name, { says, wall }] of table) console.log(`${name}: ${says} (${wall.toFixed(0)} s wall)`);
}

const name = option("step");
const given = option("dir");
if (name && SERVERS[name]) {
  const { url, says } = await SERVERS[name](given!);
  process.send!({ url, says });
  process.on("message", () => process.send!(costNow(says)));
  // Whatever ended the parent, a server does not stay.
  process.on("disconnect", () => process.exit(0));
} else if (name) {
  const says = await STEPS[name]!(given!);
  process.send!(costNow(says), () => process.exit(0));
} else {
  const dir = given ?? (await mkdtemp(join(tmpdir(), "million-")));
  await mkdir(dir, { recursive: true });
  try {
    await whole(dir);
  } finally {
    await sleep(0);
    if (!given) await rm(dir, { recursive: true, force: true });
  }
}
