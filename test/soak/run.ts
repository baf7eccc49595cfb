import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface, type Interface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { openWorld, type World } from "../../commands/world.ts";
import { freePort } from "../../fixtures/ports.ts";
import { Receiver } from "../../fixtures/receiver.ts";
import { type Bought, HonestBuyer, offered } from "../abuse/buyers.ts";
import { builtDist, runs } from "../helpers/programs.ts";
import { runStart, type StartRun } from "../helpers/run-start.ts";
import { FAULTS, type FaultWorld, mountDisk } from "./faults.ts";
import { addLatencies, type Latencies, medianOf, readMetrics, sampleProcess, sizeMb, totalOf } from "./measures.ts";
import { startLaggingNode } from "./node-proxy.ts";
import { proveSoak } from "./proof.ts";
import { type Growth, type Happened, type Sample, type SoakReport, textOf, verdictOf, type Window } from "./report.ts";

/**
 * `npm run test:soak -- --hours H`: the whole service on one machine as `touchstone start --market` runs it, with a market of
 * 2,000 endpoints (`crowd.ts`), whose days pass at a pace, and agents (`agents.ts`) that send a third of the requests that
 * the service can answer. A replica follows it, a mirror copies it, a watcher's receiver gets notices, a buyer buys. In each
 * hour every fault of `faults.ts` happens once. At the end the record is proven (`proof.ts`), and a table says how memory,
 * open files, disk, latencies and lags went.
 */
const { values } = parseArgs({
  options: {
    hours: { type: "string", default: "2" },
    endpoints: { type: "string", default: "2000" },
    /** Record seconds of a real one: at 24 a day takes an hour. */
    pace: { type: "string", default: "24" },
    /** Requests a second, instead of a third of what is measured. */
    rate: { type: "string" },
    json: { type: "boolean" },
  },
});
const RUN_MS = Number(values.hours) * 3_600_000;
const HOUR_MS = Math.min(3_600_000, RUN_MS);
const PACE = Number(values.pace);
const ENDPOINTS = Number(values.endpoints);
/** A row of the table: six in an hour, and at least six in all. */
const WINDOWS = Math.max(6, Math.round(6 * Number(values.hours)));
const SAMPLE_MS = 5_000;
const DISK_MB = 8_192;
/** After a fault, this long is still counted to it, ms: starts, reconnects, a facilitator that tries again. */
const SETTLE_MS = 15_000;
/** Longest wait for a stop, ms: it ends what hangs. */
const STOP_MS = 600_000;
/** The record's time is days behind the machine's, by which a mirror would call its checkpoints old. */
const AGE = ["--max-age", "100000000"];
const ROOT = resolve(import.meta.dirname, "../..");

const say = (text: string): void => void process.stderr.write(`${new Date().toISOString().slice(11, 19)} ${text}\n`);
const child = (command: string[], env: Record<string, string> = {}): ChildProcess =>
  spawn(command[0]!, command.slice(1), {
    cwd: ROOT,
    stdio: ["pipe", "pipe", "inherit"],
    env: { ...process.env, ...env },
    detached: true,
  });
/** Lines of a process, and the first of them. @throws Error when the process ends before it */
async function linesOf(from: ChildProcess): Promise<{ first: string; lines: Interface }> {
  const lines = createInterface({ input: from.stdout! });
  const ended = once(from, "exit").then(([code]) => {
    throw new Error(`${from.spawnargs.at(-1)} ended with ${code} before it said anything`);
  });
  const first = (await Promise.race([once(lines, "line"), ended])) as [string];
  ended.catch(() => {});
  return { first: first[0], lines };
}
const killGroup = (of: ChildProcess | null, signal: NodeJS.Signals = "SIGKILL"): void => {
  if (of?.pid !== undefined && of.exitCode === null && of.signalCode === null) process.kill(-of.pid, signal);
};

class Soak implements FaultWorld {
  readonly pace = PACE;
  readonly lastsMs = Math.min(120_000, HOUR_MS / 12);
  readonly acked: string[] = [];
  readonly problems: string[] = [];
  readonly happened: Happened[] = [];
  readonly windows: Window[] = [];
  readonly growth: Growth = { from: [0, 0, 0, 0], to: [0, 0, 0, 0], days: 0 };
  node!: Awaited<ReturnType<typeof startLaggingNode>>;
  disk!: ReturnType<typeof mountDisk>;
  service: StartRun | null = null;
  replica: ChildProcess | null = null;
  #mirror: ChildProcess | null = null;
  #stopping = false;
  #standIn: ChildProcess | null = null;
  #startHours = 0;
  #samples: Sample[] = [];
  #latencies = new Map<string, Latencies>();
  #faultyUntil = 0;
  /** Statuses of agents' answers outside of faults. */
  readonly calm: Record<string, number> = {};

  private constructor(
    readonly dir: string,
    readonly dataDir: string,
    readonly ports: { service: number; status: number; replica: number; replicaStatus: number },
    readonly world: World,
  ) {}

  static async open(): Promise<Soak> {
    const dir = mkdtempSync(join(tmpdir(), "touchstone-soak-"));
    const [dataDir, market] = [join(dir, "data"), join(dir, "market")];
    for (const made of [dataDir, market]) mkdirSync(made);
    const world = await openWorld(market, join(builtDist(), "fixtures/market/main.mjs"));
    const [service, status, replica, replicaStatus] = [
      await freePort(),
      await freePort(),
      await freePort(),
      await freePort(),
    ];
    const soak = new Soak(dir, dataDir, { service, status, replica, replicaStatus }, world);
    soak.disk = mountDisk(join(dir, "disk.img"), dataDir, DISK_MB);
    if (!soak.disk) say("a full disk is NOT tried: a file system of its own needs root");
    symlinkSync(market, join(dataDir, "market"));
    soak.node = await startLaggingNode(world.rpcUrl);
    return soak;
  }

  get url(): string {
    return `http://127.0.0.1:${this.ports.service}`;
  }

  #environment(): Record<string, string> {
    const limits = ["CHECKS", "EXPOSURES", "DEPENDENCIES"].map((of) => [
      `TOUCHSTONE_LIMITS_${of}_PER_MINUTE`,
      "100000000",
    ]);
    return {
      ...Object.fromEntries(limits),
      TOUCHSTONE_DATA_DIR: this.dataDir,
      TOUCHSTONE_PORT: String(this.ports.service),
      TOUCHSTONE_STATUS_PORT: String(this.ports.status),
      TOUCHSTONE_BASE_URL: this.url,
      TOUCHSTONE_LOG_LEVEL: "error",
      TOUCHSTONE_LIMITS_STREAM_MB_PER_HOUR: "1000000",
      // As package.json starts it.
      MALLOC_ARENA_MAX: "2",
      MALLOC_TRIM_THRESHOLD_: "131072",
    };
  }

  /**
   * Describes the world to the next start: our node stands before the chain's, and the crowd's catalogue beside the market's.
   * An orderly stop ends the process of the world, so a process that stands in for it is named.
   */
  #describeWorld(crowdCatalogue: string): void {
    killGroup(this.#standIn);
    this.#standIn = child(["sleep", "infinity"]);
    const newcomers = [{ url: crowdCatalogue, days: 1 }];
    const info = { ...this.world, pid: this.#standIn.pid, rpcUrl: this.node.url, newcomers };
    writeFileSync(join(this.dir, "market/world.json"), JSON.stringify(info));
  }

  #crowdCatalogue = "";

  /**
   * First start: a past of a day, in which the market's own sellers earn that their calls are sold, and of the first hour of the
   * next, in which the crowd is listed; then the clock runs at its pace.
   */
  async start(crowdCatalogue: string): Promise<void> {
    this.#crowdCatalogue = crowdCatalogue;
    const hours = Math.ceil((RUN_MS * PACE * 1.5) / 3_600_000) + 24;
    this.#startHours = hours + ((new Date().getUTCHours() + 48 - 1 - (hours % 24)) % 24);
    await this.#startService();
  }

  async #startService(): Promise<void> {
    this.#describeWorld(this.#crowdCatalogue);
    const args = ["--market", "--days", "2", "--pace", String(PACE), "--pace-hours", String(this.#startHours)];
    const service = runStart(args, this.#environment());
    this.service = service;
    void service.ended.then(({ code, signal, stderr }) => {
      this.acked.push(...service.acked);
      const errors = stderr.split("\n").filter((line) => line.startsWith("{"));
      if (errors.length > 0)
        say(`${errors.length} lines of the service's error log, the last: ${errors.at(-1)!.slice(0, 600)}`);
      if (this.#stopping || service !== this.service) return;
      this.problems.push(`the service ended by itself: ${signal ?? code}`);
      void this.#startService();
    });
    await service.serving();
  }

  async killService(): Promise<void> {
    const was = this.service!;
    this.service = null;
    was.kill();
    await was.ended;
    await this.#startService();
  }

  async restartService(between: () => void): Promise<void> {
    const was = this.service!;
    this.service = null;
    was.child.kill("SIGINT");
    const ended = await Promise.race([was.ended, sleep(STOP_MS, null, { ref: false })]);
    if (ended?.code !== 0) this.problems.push(`an orderly stop ended with ${ended?.code ?? "nothing for minutes"}`);
    was.kill();
    between();
    await this.#startService();
  }

  async startReplica(): Promise<void> {
    const { replica, replicaStatus } = this.ports;
    // A replica has the keys of answers, and of the others the public halves.
    const [from, to] = [join(this.dataDir, "keys"), join(this.dir, "replica/keys")];
    mkdirSync(to, { recursive: true });
    for (const name of readdirSync(from))
      if (/^(keyring\.json|answers-.*\.pem|pages\.secret)$/.test(name)) cpSync(join(from, name), join(to, name));
    const env = {
      ...this.#environment(),
      TOUCHSTONE_DATA_DIR: join(this.dir, "replica"),
      TOUCHSTONE_PORT: String(replica),
      TOUCHSTONE_STATUS_PORT: String(replicaStatus),
      TOUCHSTONE_ALLOW_LOOPBACK: "true",
    };
    const started = child([process.execPath, ...runs("touchstone.ts"), "serve", "--from", this.url], env);
    this.replica = started;
    started.stdout!.resume();
    started.once("exit", (code) => {
      if (this.#stopping || this.replica !== started) return;
      this.problems.push(`the replica ended by itself: ${code}`);
    });
  }

  async killReplica(): Promise<void> {
    const was = this.replica;
    this.replica = null;
    killGroup(was);
    await this.startReplica();
  }

  /** Copies the record, and says how that ended. */
  async mirror(): Promise<void> {
    const run = child([
      process.execPath,
      ...runs("touchstone.ts"),
      "mirror",
      this.url,
      join(this.dir, "mirror"),
      ...AGE,
    ]);
    this.#mirror = run;
    let told = "";
    run.stdout!.on("data", (chunk: Buffer) => {
      told = (told + chunk.toString()).slice(-2_000);
    });
    const [code, signal] = (await once(run, "exit")) as [number | null, string | null];
    // While the service is down it is unreachable; during a fault that is expected.
    if (code !== 0 && signal === null && performance.now() > this.#faultyUntil)
      this.problems.push(`a mirror ended with ${code}: ${told}`);
  }

  async killMirror(): Promise<void> {
    const running = this.mirror();
    await sleep(300);
    killGroup(this.#mirror);
    await running;
  }

  async metrics(port: number): Promise<ReadonlyMap<string, number> | null> {
    const signal = AbortSignal.timeout(30_000);
    const answer = await fetch(`http://127.0.0.1:${port}/metrics`, { signal }).catch(() => null);
    return answer ? readMetrics(await answer.text()) : null;
  }

  /** The record's time, ms. */
  recordNow(): number {
    const kept = JSON.parse(readFileSync(join(this.dataDir, "private/simulated/pace.json"), "utf8")) as {
      record: string;
      real: string;
    };
    return Date.parse(kept.record) + (Date.now() - Date.parse(kept.real)) * PACE;
  }

  command(...words: string[]): void {
    const preload = pathToFileURL(join(ROOT, "test/helpers/shifted-date.mjs")).href;
    const env = {
      ...this.#environment(),
      NODE_OPTIONS: `--import ${preload}`,
      SHIFTED_DATE_MS: String(Math.round(this.recordNow() - Date.now())),
    };
    execFileSync(process.execPath, [...runs("touchstone.ts"), ...words], {
      cwd: ROOT,
      env: { ...process.env, ...env },
    });
  }

  hear(operations: Record<string, Latencies>): void {
    addLatencies(this.#latencies, operations);
    if (performance.now() < this.#faultyUntil) return;
    for (const { statuses } of Object.values(operations))
      for (const [status, n] of Object.entries(statuses)) this.calm[status] = (this.calm[status] ?? 0) + n;
  }

  async sample(): Promise<void> {
    const [of, ofReplica] = await Promise.all([
      this.metrics(this.ports.status),
      this.metrics(this.ports.replicaStatus),
    ]);
    const process = this.service?.child.pid === undefined ? null : sampleProcess(this.service.child.pid);
    const replica = this.replica?.pid === undefined ? null : sampleProcess(this.replica.pid);
    if (!of || !process) return;
    const lastDone = [...of].filter(([name]) => name.startsWith("touchstone_work_last_done_seconds"));
    const now = Date.now() / 1_000;
    this.#samples.push({
      ...process,
      heapMb: totalOf(of, "nodejs_heap_size_used_bytes") / 1_048_576,
      lagRecords: totalOf(of, "touchstone_ingest_lag_records"),
      oldestWorkS: Math.max(0, ...lastDone.map(([, at]) => (at > 0 ? now - at : 0))),
      missed: of.get('touchstone_observe_calls_total{kind="paid",result="missed"}') ?? 0,
      replicaRssMb: replica?.rssMb ?? Number.NaN,
      replicaHeapMb: ofReplica ? totalOf(ofReplica, "nodejs_heap_size_used_bytes") / 1_048_576 : Number.NaN,
      replicaFiles: replica?.openFiles ?? Number.NaN,
      replicaAgeS: replica?.ageS ?? 0,
    });
  }

  sizes(): [log: number, lake: number, privately: number, publicly: number] {
    const size = (name: string): number => sizeMb(join(this.dataDir, name));
    return [size("log"), size("lake"), size("private"), size("public")];
  }

  get hasSamples(): boolean {
    return this.#samples.length > 0;
  }

  endWindow(): void {
    this.windows.push({ samples: this.#samples, latencies: this.#latencies, sizes: this.sizes() });
    const { samples } = this.windows.at(-1)!;
    const mb = (of: (one: Sample) => number): string => medianOf(samples.map(of)).toFixed(0);
    say(
      `window ${this.windows.length} of ${WINDOWS}: RSS ${mb((s) => s.rssMb)} MB, heap ${mb((s) => s.heapMb)} MB, lag ${mb((s) => s.lagRecords)}`,
    );
    this.#samples = [];
    this.#latencies = new Map();
  }

  async fault(n: number): Promise<void> {
    const fault = FAULTS[n % FAULTS.length]!;
    say(`fault: ${fault.name}`);
    const from = performance.now();
    this.#faultyUntil = Number.POSITIVE_INFINITY;
    await fault.act(this, Math.floor(n / FAULTS.length)).catch((error: unknown) => {
      this.problems.push(`${fault.name}: ${error}`);
    });
    const seconds = (performance.now() - from) / 1_000;
    this.happened.push({ fault: fault.name, window: this.windows.length + 1, seconds });
    this.#faultyUntil = performance.now() + SETTLE_MS;
  }

  async stop(): Promise<void> {
    this.#stopping = true;
    const service = this.service!;
    service.child.kill("SIGINT");
    const ended = await Promise.race([service.ended, sleep(STOP_MS, null, { ref: false })]);
    if (ended?.code !== 0)
      this.problems.push(`the service's last stop ended with ${ended?.code ?? "nothing for minutes"}`);
    killGroup(this.replica);
    killGroup(this.#mirror);
  }

  /** Ends whatever still runs and removes everything. */
  async close(): Promise<void> {
    this.#stopping = true;
    this.service?.kill();
    for (const running of [this.replica, this.#mirror, this.#standIn]) killGroup(running);
    this.node?.close();
    this.disk?.close();
    // The chains write their state into the folder until the market has ended.
    await this.world.stop();
    rmSync(this.dir, { recursive: true, force: true, maxRetries: 5 });
  }
}

/** Puts a watcher on some endpoints. @returns its receiver */
async function watch(soak: Soak, urls: readonly string[]): Promise<Receiver> {
  const keys = (await (await fetch(`${soak.url}/.well-known/svc-keys.json`)).json()) as { keys: object[] };
  const receiver = await Receiver.open(keys.keys);
  const headers = { "content-type": "application/json" };
  const body = JSON.stringify({ url: receiver.url, watch: urls });
  const answer = await fetch(`${soak.url}/v1/watchers`, { method: "POST", headers, body });
  if (!answer.ok) soak.problems.push(`no watcher: ${answer.status} ${await answer.text()}`);
  return receiver;
}

/** Buys a seller's calls until the run is over, from when they are sold: after five of our own have passed. */
async function buyOnceSold(service: string, seller: string, buyer: HonestBuyer, over: AbortSignal): Promise<Bought> {
  while (!over.aborted && (await offered(service, seller).catch(() => null)) === null) await sleep(2_000);
  return buyer.buy(seller, over);
}

async function main(): Promise<number> {
  const soak = await Soak.open();
  const others: ChildProcess[] = [];
  let receiver: Receiver | null = null;
  for (const signal of ["SIGINT", "SIGTERM"] as const)
    process.once(signal, () => {
      for (const other of others) killGroup(other);
      void soak.close().finally(() => process.exit(1));
    });
  try {
    const tsx = [process.execPath, "--import", "tsx"];
    const chain = [
      "--rpc",
      soak.world.rpcUrl,
      "--network",
      `eip155:${soak.world.chainId}`,
      "--asset",
      soak.world.asset,
    ];
    const crowdPort = await freePort();
    const crowd = child([
      ...tsx,
      join(import.meta.dirname, "crowd.ts"),
      ...chain,
      ...["--endpoints", String(ENDPOINTS), "--port", String(crowdPort)],
    ]);
    others.push(crowd);
    const told = JSON.parse((await linesOf(crowd)).first) as {
      catalogue: string;
      sellers: { url: string; honest: boolean }[];
    };
    say(`a market of ${told.sellers.length} endpoints; the service starts and lives through its first hours`);
    await soak.start(told.catalogue);
    await soak.startReplica();
    const urls = [...told.sellers.map(({ url }) => url), ...soak.world.sellers.flatMap((seller) => seller.urls)];
    const urlsFile = join(soak.dir, "urls.txt");
    writeFileSync(urlsFile, urls.join("\n"));
    receiver = await watch(soak, urls.slice(0, 50));
    const asked = [soak.url, urlsFile, String(SAMPLE_MS), ...(values.rate ? [values.rate] : [])];
    const agents = child([...tsx, join(import.meta.dirname, "agents.ts"), ...asked]);
    others.push(agents);
    const { first, lines } = await linesOf(agents);
    agents.once("exit", (code) => code === null || code === 0 || soak.problems.push(`the agents ended with ${code}`));
    const traffic = JSON.parse(first) as { limit: number; rate: number };
    say(`the service answers ${traffic.limit} requests a second; agents send ${traffic.rate}`);
    lines.on("line", (line) => soak.hear((JSON.parse(line) as { operations: Record<string, Latencies> }).operations));
    soak.growth.from = soak.sizes();
    const recordBegan = soak.recordNow();
    const over = AbortSignal.timeout(RUN_MS);
    const buyer = await HonestBuyer.open(soak.url, soak.world);
    const honest = soak.world.sellers.find(({ name }) => name === "honest-v2")!.urls[0]!;
    const buying = buyOnceSold(soak.url, honest, buyer, over);
    await live(soak, over);
    await soak.sample();
    soak.endWindow();
    const bought = await buying;
    soak.growth.to = soak.sizes();
    soak.growth.days = (soak.recordNow() - recordBegan) / 86_400_000;
    agents.stdin!.end();
    await soak.mirror();
    await soak.stop();
    // What was appended right before the stop is in the log, and not in the lake yet.
    soak.command("ingest", "--once");
    say("proving the record");
    const honestUrls = new Set(told.sellers.filter((one) => one.honest).map(({ url }) => url));
    const proof = await proveSoak({ ...soak, baseUrl: soak.url, honestUrls });
    const { windows, happened, growth, calm, problems } = soak;
    const of = { hours: Number(values.hours), endpoints: ENDPOINTS, pace: PACE, ...traffic };
    const notices = receiver.ids.length;
    const cut = receiver.unreadable.filter((one) => one.includes('"webhook-id"'));
    if (cut.length > 0) soak.problems.push(`${cut.length} notices could not be read, the first: ${cut[0]}`);
    for (const one of receiver.unreadable) say(`the receiver got a request that is no notice: ${one}`);
    const report: SoakReport = { of, windows, happened, growth, calm, bought, notices, proof };
    problems.push(...verdictOf(report), ...proof.problems);
    process.stdout.write(values.json ? `${JSON.stringify({ ...report, problems })}\n` : `${textOf(report)}\n`);
  } catch (error) {
    soak.problems.push(error instanceof Error ? (error.stack ?? error.message) : String(error));
  } finally {
    for (const other of others) killGroup(other);
    await receiver?.close();
    await soak.close();
  }
  for (const problem of soak.problems) say(`FAILED: ${problem}`);
  return soak.problems.length > 0 ? 1 : 0;
}

/** The run itself: samples, windows, faults and a mirror's runs, until it is over. */
async function live(soak: Soak, over: AbortSignal): Promise<void> {
  const began = performance.now();
  const passed = (): number => performance.now() - began;
  const perHour = FAULTS.length + 1;
  let [faults, windows, mirrors] = [0, 0, 0];
  let faulting: Promise<void> = Promise.resolve();
  let isFaulting = false;
  let mirroring: Promise<void> = Promise.resolve();
  while (!over.aborted) {
    await sleep(SAMPLE_MS, undefined, { signal: over }).catch(() => {});
    await soak.sample();
    // The places of an hour's faults, of which the last is left free.
    const due = Math.floor(passed() / HOUR_MS) * FAULTS.length;
    const inHour = Math.floor(((passed() % HOUR_MS) * perHour) / HOUR_MS);
    if (!isFaulting && faults < due + Math.min(FAULTS.length, inHour)) {
      isFaulting = true;
      faulting = soak.fault(faults++).finally(() => {
        isFaulting = false;
      });
    }
    if (mirrors < Math.floor(passed() / (HOUR_MS / 5))) {
      mirrors++;
      mirroring = mirroring.then(() => soak.mirror());
    }
    // A start may take a whole window where others use the machine: then the next one ends later.
    if (soak.hasSamples && windows < Math.min(WINDOWS - 1, Math.floor((passed() * WINDOWS) / RUN_MS))) {
      windows++;
      soak.endWindow();
    }
  }
  await Promise.all([faulting, mirroring]);
}

process.exit(await main());
