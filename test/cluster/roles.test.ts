import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, mkdirSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { prepareBuckets } from "../../commands/buckets.ts";
import { EXIT } from "../../commands/exit.ts";
import { declareTopics, type KafkaCluster, startKafka } from "../../fixtures/cluster/kafka.ts";
import { startGateway } from "../../fixtures/cluster/versitygw.ts";
import { type FaultProxy, startFaultProxy } from "../../fixtures/faults/http-proxy.ts";
import { createKeyring, createSecret, ringPath } from "../../infra/keys/keys.ts";
import { openS3Store } from "../../infra/store/s3/s3.ts";
import { foldersOf, OBSERVER_SECRET_NAME } from "../../pipelines/roles/data-folder.ts";
import type { Health } from "../../serving/status/pulse.ts";
import { runs } from "../helpers/programs.ts";
import { promtool } from "./promtool.ts";

/**
 * Every role of the pipeline as its own process with the least that it may have: keys, secrets and credentials of a real
 * store with users. What it says of its health, and what it asked the store for.
 */
const ROOT = new URL("../..", import.meta.url).pathname;
const PARTITIONS = 2;
const USERS = { publisher: "publisher-secret", owner: "owner-secret", pipeline: "pipeline-secret" };
const OPERATOR = { keyId: "root", key: "root-secret" };

type Name = "observe" | "own" | "publish" | "waits";
interface Running {
  process: ChildProcess;
  /** What it prints to both ends. */
  said: string;
  proxy: FaultProxy;
}

let dir: string;
let kafka: KafkaCluster;
let s3: Awaited<ReturnType<typeof startGateway>>;
const running = new Map<Name, Running>();

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "roles-"));
  kafka = await startKafka();
  // As docs/deploy.md has it: an operator declares the topics, and the first role begins the log.
  await declareTopics(kafka.brokers, "roles", PARTITIONS);
  s3 = await startGateway(OPERATOR, USERS);
  mkdirSync(join(dir, "keys"), { mode: 0o700 });
  const names = { public: "ts-public", private: "ts-private" };
  const writers = { publisher: "publisher", owner: "owner", pipeline: "pipeline" };
  await prepareBuckets({ endpoint: s3.url, region: "us-east-1", ...OPERATOR }, { ...names, ...writers });
  createSecret(join(dir, "keys"), OBSERVER_SECRET_NAME);
  createKeyring(join(dir, "keys"), new Date(Date.now() - 86_400_000));
});

afterAll(async () => {
  for (const name of [...running.keys()]) await end(name, "SIGKILL");
  await kafka?.stop();
  await s3?.stop();
  await rm(dir, { recursive: true, force: true });
});

/** What a role has of the keys: nothing, where it is not named here. */
const FILES: Record<Name, readonly string[]> = {
  observe: [`${OBSERVER_SECRET_NAME}.secret`],
  own: [],
  ...{ publish: ["cards", "log", "witness", "answers"], waits: ["cards", "log", "witness", "answers"] },
};

/** By whose credentials it writes the public bucket. */
const WRITERS: Record<Name, "publisher" | "owner" | null> = {
  ...{ observe: null, own: "owner", publish: "publisher", waits: "publisher" },
};

async function begin(name: Name, command: string, prefix = "roles"): Promise<void> {
  const data = join(dir, name);
  const keys = foldersOf(data).keys;
  mkdirSync(keys, { recursive: true, mode: 0o700 });
  copyFileSync(ringPath(join(dir, "keys")), ringPath(keys));
  const listing = spawnSync("ls", [join(dir, "keys")], { encoding: "utf8" }).stdout.split("\n");
  for (const file of listing.filter((one) => FILES[name].some((start) => one.startsWith(start)))) {
    copyFileSync(join(dir, "keys", file), join(keys, file));
  }
  const proxy = await startFaultProxy(s3.url);
  const writer = WRITERS[name];
  const env = {
    ...process.env,
    TOUCHSTONE_DATA_DIR: data,
    TOUCHSTONE_BASE_URL: "http://touchstone.test",
    TOUCHSTONE_LOG: `kafka://${kafka.brokers.join(",")}/${prefix}`,
    TOUCHSTONE_STORES_ENDPOINT: proxy.url,
    TOUCHSTONE_STORES_PRIVATE: "s3://ts-private",
    TOUCHSTONE_STORES_PRIVATE_KEY_ID: "pipeline",
    TOUCHSTONE_STORES_PRIVATE_KEY: USERS.pipeline,
    TOUCHSTONE_STORES_PUBLIC: "s3://ts-public",
    ...(writer ? { TOUCHSTONE_STORES_PUBLIC_KEY_ID: writer, TOUCHSTONE_STORES_PUBLIC_KEY: USERS[writer] } : {}),
    // A chain that nobody is at: nothing is paid here.
    ...(name === "observe"
      ? { TOUCHSTONE_CHAIN_RPC_URL: "http://127.0.0.1:1", TOUCHSTONE_CONTROL_URLS: '["https://control.example/"]' }
      : {}),
    TOUCHSTONE_STATUS_PORT: "0",
  };
  const child = spawn(process.execPath, [...runs("touchstone.ts"), command], { cwd: ROOT, env });
  const one: Running = { process: child, said: "", proxy };
  for (const stream of [child.stdout, child.stderr]) {
    stream.on("data", (bytes: Buffer) => {
      one.said += bytes.toString();
    });
  }
  running.set(name, one);
}

async function end(name: Name, signal: "SIGTERM" | "SIGKILL"): Promise<number | null> {
  const { process: child, proxy } = running.get(name)!;
  running.delete(name);
  const code = await new Promise<number | null>((resolve) => {
    if (child.exitCode !== null || child.signalCode !== null) return resolve(child.exitCode);
    child.once("exit", resolve);
    child.kill(signal);
  });
  await proxy.close();
  return code;
}

/** What a role answers where it said that it listens; null before that. */
async function ask(name: Name, path: string): Promise<{ status: number; text: string } | null> {
  const { said } = running.get(name)!;
  const [, url] = /Status at (http:\S+)\/health/.exec(said) ?? [];
  if (!url) return null;
  const answered = await fetch(url + path).catch(() => null);
  return answered && { status: answered.status, text: await answered.text() };
}

/** Waits, with a bound that only a hang reaches. */
async function untilWell(name: Name, state: string, holds: (health: Health) => boolean = () => true): Promise<Health> {
  let last = "";
  for (let n = 0; n < 6_000; n++) {
    const { process: child, said } = running.get(name)!;
    if (child.exitCode !== null) throw new Error(`${name} ended with ${child.exitCode}: ${said}`);
    const answered = await ask(name, "/health");
    last = answered?.text ?? "";
    if (answered) {
      const health = JSON.parse(last) as Health;
      expect(answered.status).toBe(health.ok ? 200 : 503);
      if (health.ok && health.state === state && holds(health)) return health;
    }
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  throw new Error(`${name} was never ${state}: ${last}\n${running.get(name)!.said}`);
}

/** Has it read all that others wrote meanwhile? */
const isRead = (lag: unknown): boolean => Object.values(lag ?? { 0: null }).every((records) => records === 0);

/** Verb, bucket and first folder of what a role asked the store for. */
const asked = (name: Name): string[] => {
  const kinds = running.get(name)!.proxy.seen.map(({ method, path }) => {
    const url = new URL(path, "http://s3");
    const [, bucket, first] = url.pathname.split("/");
    const folder = first || (url.searchParams.get("prefix") ?? "").split("/")[0];
    return `${first ? method : "LIST"} ${bucket}/${folder}`;
  });
  return [...new Set(kinds)].sort();
};
const publicWrites = (kinds: readonly string[]): string[] =>
  kinds.filter((kind) => /^(?:PUT|POST|DELETE) ts-public\//.test(kind));

test("each role starts with the least that it may have, does its work, and says so", async () => {
  await begin("publish", "publish");
  const first = await untilWell("publish", "publishing", ({ works }) => works.checkpoint?.last_done !== null);
  expect(first).toMatchObject({ role: "publish", tree_size: 1 });
  await begin("waits", "publish");
  await begin("own", "own");
  await begin("observe", "observe");

  const owning = await untilWell(
    "own",
    "working",
    ({ works, lag }) => works.volatile?.last_done !== null && isRead(lag),
  );
  expect(owning).toMatchObject({ role: "own", partitions: [0, 1], lag: { 0: 0, 1: 0 } });
  expect(await untilWell("waits", "waiting")).toMatchObject({ role: "publish" });
  // The plan was drawn by the observer, committed to by the publisher, and found again in public.
  const observing = await untilWell("observe", "working", ({ lag }) => isRead(lag));
  expect(observing).toMatchObject({ role: "observe", partitions: [0, 1], lag: { 0: 0, 1: 0 } });
  const published = await untilWell("publish", "publishing", ({ last_publication: at }) => typeof at === "string");
  expect(published.tree_size).toBeGreaterThan(1);

  const metrics = Object.fromEntries(
    await Promise.all(
      (["own", "publish", "waits", "observe"] as const).map(async (name) => [
        name,
        (await ask(name, "/metrics"))!.text,
      ]),
    ),
  ) as Record<Name, string>;
  expect(metrics.own).toContain('touchstone_ingest_lag_records{topic="observations.paid",partition="1"} 0');
  expect(metrics.own).toMatch(/touchstone_work_last_done_seconds\{work="own"\} \d+/);
  expect(metrics.observe).toContain('touchstone_ingest_lag_records{topic="listings",partition="0"} 0');
  expect(metrics.publish).toContain("touchstone_publisher_active 1");
  expect(metrics.publish).toMatch(/touchstone_publisher_last_publication_seconds \d+/);
  expect(metrics.waits).toContain("touchstone_publisher_active 0");
  for (const text of Object.values(metrics)) expect(promtool(["check", "metrics"], text)).toBe("");
  for (const text of Object.values(metrics)) expect(text).toMatch(/touchstone_role_ok\{role="\w+"\} 1/);

  // Least: an observer writes nothing in public and lists nothing there; a waiting publisher no more than its probe.
  const observed = asked("observe");
  expect(observed.filter((kind) => !/^(?:GET|HEAD) /.test(kind) && kind.includes("ts-public"))).toEqual([]);
  expect(observed).toContain("PUT ts-private/plans");
  expect(publicWrites(asked("waits"))).toEqual(["DELETE ts-public/probe", "PUT ts-public/probe"]);
  expect(publicWrites(asked("own")).filter((kind) => !/\/(?:probe|live)$/.test(kind))).toEqual([]);
  const written = publicWrites(asked("publish"));
  for (const folder of ["checkpoint", "keys", "tile"]) expect(written).toContain(`PUT ts-public/${folder}`);
  for (const name of ["observe", "own", "publish", "waits"] as const) {
    process.stdout.write(`${name}: ${asked(name).join(", ")}\n`);
  }
});

test("a role whose log has gone says so, and is well again when it is back", async () => {
  // Patience is minutes; here it is not waited for: what fails is named at once.
  await kafka.kill(0);
  const failing = async (): Promise<string | null> => {
    const answered = await ask("own", "/health");
    return answered && (JSON.parse(answered.text) as Health).works.own!.error;
  };
  for (let n = 0; n < 6_000 && (await failing()) === null; n++) {
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  expect(await failing()).not.toBeNull();
  await kafka.start(0);
  await untilWell("own", "working", ({ works }) => works.own!.error === null);
});

test("SIGTERM ends each in order", async () => {
  for (const name of ["observe", "own", "waits", "publish"] as const) {
    const { said } = running.get(name)!;
    expect(await end(name, "SIGTERM"), said).toBe(0);
  }
});

test("beside a store of another log none begins a log that nobody has begun", async () => {
  await declareTopics(kafka.brokers, "other", PARTITIONS);
  const pipeline = { region: "us-east-1", endpoint: s3.url, accessKeyId: "pipeline", secretAccessKey: USERS.pipeline };
  const store = await openS3Store({ ...pipeline, bucket: "ts-private", prefix: "" }, { probe: false });
  const commit = `lake/${"ab".repeat(8)}/asks/0/commit/${"0".repeat(19)}1.json`;
  await store.create(commit, Buffer.from("{}"));
  await store.close();
  for (const name of ["own", "publish", "observe"] as const) {
    await begin(name, name, "other");
    const { process: child } = running.get(name)!;
    if (child.exitCode === null) await once(child, "exit", { signal: AbortSignal.timeout(900_000) });
    const { said } = running.get(name)!;
    expect(await end(name, "SIGKILL"), said).toBe(EXIT.record);
    expect(said).toContain("/other: there is none, and what was made from one is here (its id is ");
  }
});
