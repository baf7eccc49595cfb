import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import type { WorldInfo } from "../../fixtures/market/world.ts";
import { freePort } from "../../fixtures/ports.ts";
import { openEmbeddedLog } from "../../infra/log/embedded.ts";
import { openDirectoryStore } from "../../infra/store/directory.ts";
import { TOPICS } from "../../pipelines/record/topics.ts";
import { runStart } from "../helpers/run-start.ts";
import { sampleProcess } from "../soak/measures.ts";
import { ATTACKS } from "./attackers.ts";
import { type Bought, HonestBuyer, offered } from "./buyers.ts";
import { type Honest, readHonest } from "./record.ts";

/**
 * `npm run test:abuse [-- --minutes 10]`: the whole service, as `npm start` runs it, while every attack of a stranger goes
 * on at once: hostile sellers that anonymous checks name, hostile clients, and hostile buyers with money. Record time runs at a pace, so that the
 * honest sellers of the market are paid all the while. First the same without any attack, to compare with.
 *
 * Fails when an honest seller's planned payment was lost, an answer was a 5xx that is not a 503, memory grew, or (in the
 * long form, where there is enough to measure) when what the record adds to honest latencies, or the API's, got worse than
 * the bounds below. Sellers, their chain, attackers and the service share this machine's cores, so under attack a seller
 * is slower itself; how much, its own ledger says of each call.
 */
const { values } = parseArgs({ options: { minutes: { type: "string", default: "10" }, json: { type: "boolean" } } });
const ATTACK_S = Math.round(60 * Number(values.minutes));
const CALM_S = Math.max(60, Math.round(ATTACK_S / 3));
/** Record seconds a real one: a block of six hours takes 45 s. */
const PACE = 480;
/** Calls that are begun at the very end of their block are missed at such a pace, whoever attacks. */
const MOST_MISSED = 0.1;
const P99_MS = 250;
/** On a machine that is slower without any attack, too, the bound is so many times what it takes then. */
const P99_RATIO = 2.5;
/** A latency may hold so much more of what is not the seller's than without attack; they are kept in whole milliseconds. */
const SLOWER = 0.1;
const KEPT_MS = 1;
/** Of the last third against the second: in the first, heaps and threads are still coming to their size. */
const GROWTH = 1.15;
const MOST_MB = 1_500;
const HONEST = ["honest-v2", "honest-v1", "both", "mpp", "v2-in-body", "slow"];
const ROOT = resolve(import.meta.dirname, "../..");

const say = (text: string): void => void process.stderr.write(`${new Date().toISOString().slice(11, 19)} ${text}\n`);
const sorted = (values: readonly number[]): number[] => [...values].sort((a, b) => a - b);
const quantile = (values: readonly number[], q: number): number =>
  sorted(values)[Math.min(values.length - 1, Math.floor(q * values.length))] ?? Number.NaN;

/** Attackers have machines of their own: here they get what the service leaves of the two cores. */
function attacker(script: string, args: string[]): ChildProcess {
  const node = [process.execPath, "--import", "tsx", join(import.meta.dirname, script), ...args];
  return spawn("nice", ["-n", "19", ...node], { cwd: ROOT, stdio: ["ignore", "pipe", "inherit"] });
}

const firstLine = async (child: ChildProcess): Promise<string> =>
  (await once(createInterface({ input: child.stdout! }), "line"))[0] as string;

interface Asked {
  ms: number[];
  statuses: Map<string, number>;
}

/** An agent like any other: 20 questions a second from 4 addresses, each a new connection. */
async function ask(port: number, paths: readonly string[], asked: Asked, signal: AbortSignal): Promise<void> {
  const one = (path: string, n: number): Promise<void> =>
    new Promise((done) => {
      const from = performance.now();
      const end = (status: string) => {
        asked.ms.push(performance.now() - from);
        asked.statuses.set(status, (asked.statuses.get(status) ?? 0) + 1);
        done();
      };
      const req = request({ port, path, host: "127.0.0.1", localAddress: `127.2.0.${1 + (n % 4)}`, agent: false });
      req.setTimeout(20_000, () => req.destroy());
      req.on("response", (res) => res.resume().on("close", () => end(res.complete ? String(res.statusCode) : "cut")));
      req.on("error", (error) => end((error as NodeJS.ErrnoException).code ?? "error"));
      req.end();
    });
  const pending = new Set<Promise<void>>();
  for (let n = 0; !signal.aborted; n++) {
    const asking = one(paths[n % paths.length]!, n).finally(() => pending.delete(asking));
    pending.add(asking);
    await sleep(50);
  }
  await Promise.all(pending);
}

interface Phase {
  honest: Honest;
  /** Calls that somebody bought through the service meanwhile. */
  bought: Bought;
  api: Asked;
  /** Leaves of the tree at its end: memory may grow with the record, and with nothing else. */
  leaves: number;
  rss: number[];
}

const dataDir = mkdtempSync(join(tmpdir(), "touchstone-abuse-"));
const port = await freePort();
/** Longest wait until the calls of the seller are sold that the honest buyer buys. */
const MAX_UNSOLD_S = 300;
const hours = Math.ceil(((CALM_S + ATTACK_S + MAX_UNSOLD_S + 120) * PACE) / 3_600);
const days = Math.ceil(hours / 24) + 1;
const children: ChildProcess[] = [];
const service = runStart(["--market", "--days", "2", "--pace", String(PACE), "--pace-hours", String(hours)], {
  TOUCHSTONE_DATA_DIR: dataDir,
  TOUCHSTONE_PORT: String(port),
  TOUCHSTONE_BASE_URL: `http://127.0.0.1:${port}`,
  // Names of hostile sellers, each a domain of its own, lead to this machine.
  TOUCHSTONE_RESOLVE_TO: "127.0.0.1",
  TOUCHSTONE_LOG_LEVEL: "error",
  // As package.json starts it.
  MALLOC_ARENA_MAX: "2",
  MALLOC_TRIM_THRESHOLD_: "131072",
});
const problems: string[] = [];
try {
  say(`starting the service: a past of 2 days, then ${hours} hours of the record at a pace of ${PACE} (${days} plans)`);
  await service.serving();
  const pid = service.child.pid!;
  const world = JSON.parse(readFileSync(join(dataDir, "market", "world.json"), "utf8")) as WorldInfo;
  const sellers = world.sellers.filter(({ name }) => HONEST.includes(name));
  const log = await openEmbeddedLog(join(dataDir, "log"), { topics: TOPICS, partitions: 2 });
  const privateStore = await openDirectoryStore(join(dataDir, "private"));
  const checks = sellers.flatMap(({ urls }) => urls).map((url) => `/v1/check?url=${encodeURIComponent(url)}`);
  const paths = [
    ...checks,
    "/",
    "/v1/archive",
    ...checks,
    "/checkpoint",
    "/v1/check?url=http%3A%2F%2Fnobody-knows.com%2Fx",
  ];

  const serviceUrl = `http://127.0.0.1:${port}`;
  const buyer = await HonestBuyer.open(serviceUrl, world);
  const urlOf = (name: string): string => world.sellers.find((seller) => seller.name === name)!.urls[0]!;
  const leaves = async () => Number((await (await fetch(`http://127.0.0.1:${port}/checkpoint`)).text()).split("\n")[1]);
  const phase = async (name: string, seconds: number): Promise<Phase> => {
    say(`${name}: ${seconds} s`);
    const api: Asked = { ms: [], statuses: new Map() };
    const rss: number[] = [];
    const over = AbortSignal.timeout(seconds * 1_000);
    const recordTime = async () =>
      Date.parse(
        ((await (await fetch(`http://127.0.0.1:${port}${paths[0]}`)).json()) as { answered_at: string }).answered_at,
      );
    const from = await recordTime();
    const began = performance.now();
    const asking = ask(port, paths, api, over);
    const buying = buyer.buy(urlOf("honest-v2"), over);
    while (!over.aborted) {
      rss.push(sampleProcess(pid)!.rssMb);
      await sleep(1_000, undefined, { signal: over }).catch(() => {});
    }
    await asking;
    const bought = await buying;
    // The answer is kept for a minute of the record; what was planned in the last one may still be under way.
    const to = from + (performance.now() - began) * PACE;
    await sleep(15_000);
    return {
      honest: await readHonest(log, privateStore, sellers, { from, to }),
      bought,
      api,
      leaves: await leaves(),
      rss,
    };
  };

  await sleep(10_000);
  // Calls of a seller are sold once five of our own have passed. How many of the second day have is a matter of the hour; the
  // next block of six hours comes within a minute.
  const sold = performance.now() + MAX_UNSOLD_S * 1_000;
  while (performance.now() < sold && (await offered(serviceUrl, urlOf("honest-v2"))) === null) await sleep(2_000);
  const calm = await phase("without any attack", CALM_S);
  const hostile = attacker("attackers.ts", [world.asset, `eip155:${world.chainId}`]);
  children.push(hostile);
  const { port: hostilePort } = JSON.parse(await firstLine(hostile)) as { port: number };
  const names = Object.keys(ATTACKS);
  const clients = attacker("clients.ts", [String(port), String(hostilePort), String(ATTACK_S), ...names]);
  children.push(clients);
  const answers = firstLine(clients);
  const worldPath = join(dataDir, "market", "world.json");
  const buyers = attacker("hostile-buyers.ts", [serviceUrl, worldPath, urlOf("slow"), String(ATTACK_S)]);
  children.push(buyers);
  const hostileBuying = firstLine(buyers);
  const under = await phase(`under ${names.length} attacks of sellers and those of clients`, ATTACK_S);
  const statuses = JSON.parse(await answers) as Record<string, number>;
  Object.assign(statuses, JSON.parse(await hostileBuying));
  await privateStore.close();
  await log.close();
  evaluate(calm, under, statuses);
} catch (error) {
  problems.push(String(error));
} finally {
  for (const child of children) child.kill();
  service.child.kill("SIGINT");
  const ended = await Promise.race([service.ended, sleep(600_000, null, { ref: false })]);
  if (ended === null) problems.push("the service did not end for minutes after it was asked to");
  else if (ended.stderr) say(`the service's error log, its end:\n${ended.stderr.slice(-4_000)}`);
  service.kill();
  rmSync(dataDir, { recursive: true, force: true, maxRetries: 5 });
}
for (const problem of problems) say(`FAILED: ${problem}`);
process.exit(problems.length ? 1 : 0);

function evaluate(calm: Phase, under: Phase, hostileStatuses: Record<string, number>): void {
  const third = Math.floor(under.rss.length / 3);
  const figures = {
    seconds: { calm: CALM_S, under: ATTACK_S },
    payments: Object.fromEntries(
      Object.entries({ calm, under }).map(([name, { honest }]) => [
        name,
        {
          planned: honest.planned,
          delivered: honest.delivered,
          lost: honest.lost.length,
          missed: honest.unpaid.length,
        },
      ]),
    ),
    paid_ms: compared(calm.honest.paidMs, under.honest.paidMs, 0.5),
    probe_ms: compared(calm.honest.probeMs, under.honest.probeMs, 0.5),
    added_ms: compared(calm.honest.addedMs, under.honest.addedMs, 0.5),
    api_p50_ms: compared(calm.api.ms, under.api.ms, 0.5),
    api_p99_ms: compared(calm.api.ms, under.api.ms, 0.99),
    api_statuses: Object.fromEntries(under.api.statuses),
    hostile_statuses: hostileStatuses,
    leaves: { calm: calm.leaves, under: under.leaves },
    via_ms: compared(calm.bought.ms, under.bought.ms, 0.5),
    via_statuses: { calm: calm.bought.statuses, under: under.bought.statuses },
    rss_mb: {
      calm: quantile(calm.rss, 0.5),
      first: quantile(under.rss.slice(0, third), 0.5),
      second: quantile(under.rss.slice(third, -third), 0.5),
      last: quantile(under.rss.slice(-third), 0.5),
    },
  };
  process.stdout.write(`${JSON.stringify(figures, null, values.json ? 0 : 2)}\n`);
  const must = (ok: boolean, says: string): void => void (ok || problems.push(says));
  const { honest } = under;
  for (const { delivered, addedMs } of [calm.honest, honest])
    must(2 * addedMs.length > delivered, "few payments are in the ledgers of those who were paid: no latency is shown");
  must(honest.planned > 0 && calm.honest.planned > 0, "nothing was planned: this run shows nothing");
  must(honest.lost.length === 0, `payments of honest sellers were lost: ${honest.lost.slice(0, 3).join("; ")}`);
  // Where calls are late for want of a processor, they are so without any attack, too.
  const missed = calm.honest.unpaid.length / Math.max(1, calm.honest.planned);
  must(
    honest.unpaid.length <= Math.max(2, (MOST_MISSED + missed) * honest.planned),
    `payments were missed: ${honest.unpaid.slice(0, 5).join("; ")}`,
  );
  for (const [name, { bought }] of Object.entries({ calm, under })) {
    must(bought.lost !== null && bought.ms.length > 0, `${name}: no call was bought: this run shows nothing of that`);
    must((bought.lost ?? 0n) <= 0n, `${name}: an honest buyer was charged ${bought.lost} micro-units for nothing`);
    const failed = Object.keys(bought.statuses).filter((status) => !["200", "429", "503"].includes(status));
    must(failed.length === 0, `${name}: calls of an honest buyer ended with ${failed.join(", ")}`);
  }
  const bad = [...Object.keys(hostileStatuses), ...under.api.statuses.keys()].filter(
    (status) => /^5/.test(status) && status !== "503",
  );
  must(bad.length === 0, `answers with ${bad.join(", ")}`);
  const { second, last } = figures.rss_mb;
  must(last <= MOST_MB, `${last} MB of memory`);
  // Two minutes have too few payments for a median within a tenth; they say what they saw.
  if (ATTACK_S < 480) return;
  const { paid_ms: paid, added_ms: added, probe_ms: probe } = figures;
  const more = (of: { calm: number }): number => Math.max(SLOWER * of.calm, KEPT_MS);
  must(added.under <= added.calm + more(paid), `${added.under} ms of a paid call's latency are not the seller's`);
  const { via_ms: via } = figures;
  must(via.under <= 2 * via.calm, `a bought call takes ${via.under} ms, without attack ${via.calm}`);
  must(probe.under <= probe.calm + more(probe), `a probe of honest sellers takes ${probe.under} ms`);
  must(last <= GROWTH * second, `memory grew from ${second} to ${last} MB`);
  const { api_p99_ms: p99 } = figures;
  must(p99.under <= Math.max(P99_MS, P99_RATIO * p99.calm), `p99 of the API: ${p99.under} ms, calm ${p99.calm}`);
}

function compared(calm: readonly number[], under: readonly number[], q: number) {
  const [before, after] = [quantile(calm, q), quantile(under, q)];
  const round = (x: number) => Math.round(100 * x) / 100;
  return { n: [calm.length, under.length], calm: round(before), under: round(after), ratio: round(after / before) };
}
