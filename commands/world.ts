import { spawn } from "node:child_process";
import { mkdirSync, openSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import { type Clock, systemClock } from "../infra/clock.ts";
import { Failure } from "../infra/errors.ts";

/** What the market's process prints once it runs: one JSON line, which it also writes to `world.json` in its folder. */
export interface WorldInfo {
  /** Id of the market's process. */
  pid: number;
  /** JSON-RPC address of the node of the local chain. */
  rpcUrl: string;
  /** Id of the local chain. */
  chainId: number;
  /** Address of the token on the local chain. */
  asset: string;
  /** The market's second chain, Tempo; absent in a market that an earlier version started. */
  tempo?: { rpcUrl: string; chainId: number; asset: string };
  /** Base url of the catalogue of all sellers that were listed from the beginning. */
  catalogue: string;
  /** Further catalogues, each first read `days` days before the present. */
  newcomers: { url: string; days: number }[];
  /** Url that answers while the market runs, for control calls. */
  control: string;
  /** Url to which a POST renews the lease, without which the market ends. */
  lease: string;
  /** Url to which a POST makes the market's users act; absent in a market that an earlier version started. */
  people?: string;
  /** `ledger`: path of the NDJSON file in which the seller records its requests and refunds. */
  sellers: { name: string; origin: string; payTo: string; urls: string[]; ledger: string }[];
}

export interface World extends WorldInfo {
  /** true if the market was already running: an earlier start was interrupted, and this one continues. */
  reused: boolean;
  /** Stops the market and waits until its process has ended. */
  stop(): Promise<void>;
  /** Leaves the market running; it ends by itself when its lease expires. */
  release(): void;
  /** Aborted when the market's process has died, and with it the chain and the sellers. */
  lost: AbortSignal;
}

/** Checks that the market's script can run here, before anything is created. @throws Failure `usage` */
export function requireMarket(script: string): void {
  const { resolve } = createRequire(pathToFileURL(script));
  try {
    for (const name of [script, "@foundry-rs/anvil/package.json"]) resolve(name);
  } catch {
    throw new Failure(
      "usage",
      `the demo's market is not installed (${script} and its development packages): a checkout with \`npm ci\` has it, an ` +
        "image or `npm ci --omit=dev` has not; start without --market, or a role: observe, own, publish, serve",
    );
  }
}

const BOOT_TIMEOUT_MS = 60_000;
const LEASE_RENEWAL_MS = 2_000;
const PEOPLE_TIMEOUT_MS = 120_000;
/** Pauses between the attempts of {@link askPeople}, ms. */
const PEOPLE_PAUSES_MS = [2_000, 10_000, 30_000];

async function renewLease(info: WorldInfo): Promise<boolean> {
  try {
    const response = await fetch(info.lease, { method: "POST", signal: AbortSignal.timeout(2_000) });
    return response.ok;
  } catch {
    return false;
  }
}

/** Reads the description of the market that was last started in this folder, running or not; null if there is none. */
export function readWorld(dir: string): WorldInfo | null {
  try {
    return JSON.parse(readFileSync(join(dir, "world.json"), "utf8")) as WorldInfo;
  } catch {
    return null;
  }
}

/** Reports whether a process with this id exists. */
export const isAlive = (pid: number): boolean => {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
};

function startWorld(dir: string, script: string): Promise<WorldInfo> {
  const log = openSync(join(dir, "world.log"), "a");
  const child = spawn(process.execPath, [script, "--dir", dir], {
    // The market gets its own process group, so that a signal to the group of this process does not also end the
    // chain, which would lose its state.
    detached: true,
    stdio: ["ignore", "pipe", log],
  });
  return new Promise((resolve, reject) => {
    const fail = (why: string) => {
      clearTimeout(timer);
      child.kill("SIGTERM");
      reject(new Error(`the market did not start: ${why} (see ${join(dir, "world.log")})`));
    };
    const timer = setTimeout(() => fail(`no output for ${BOOT_TIMEOUT_MS / 1000} s`), BOOT_TIMEOUT_MS);
    child.once("error", (error) => fail(error.message));
    child.once("exit", (code) => fail(`it ended with ${code}`));
    createInterface({ input: child.stdout! }).once("line", (line) => {
      clearTimeout(timer);
      child.removeAllListeners("exit");
      child.stdout!.destroy();
      child.unref();
      try {
        resolve(JSON.parse(line) as WorldInfo);
      } catch {
        fail(`it printed ${line.slice(0, 200)}`);
      }
    });
  });
}

/**
 * Lets the market's users call the API of a service: they add a watcher, send a dispute, request a re-test, and
 * publish a bought call. What they did at an earlier start, or at an earlier attempt of this call, is not repeated. A
 * lost connection or a refusal is tried again after a pause, three times at most.
 * @param signal aborted at a stop: no further attempt
 * @throws Error of the last attempt, with the text of the service's refusal
 */
export async function askPeople(
  { people }: Pick<WorldInfo, "people">,
  service: { url: string; origin: string },
  signal: AbortSignal,
  clock: Pick<Clock, "sleep"> = systemClock,
): Promise<void> {
  if (people === undefined) return;
  const headers = { "content-type": "application/json" };
  for (const pauseMs of [...PEOPLE_PAUSES_MS, null]) {
    try {
      const either = AbortSignal.any([signal, AbortSignal.timeout(PEOPLE_TIMEOUT_MS)]);
      const response = await fetch(people, { method: "POST", headers, body: JSON.stringify(service), signal: either });
      if (response.ok) return;
      throw new Error(`the market's users failed: ${response.status} ${await response.text()}`);
    } catch (error) {
      if (pauseMs === null || signal.aborted) throw error;
      await clock.sleep(pauseMs, signal);
    }
  }
}

/**
 * Opens the demo's market (local chains and sellers), a separate process that survives a kill of this process: finds
 * it by its `world.json`, or starts it. Renews its lease while this process lives.
 * @throws Error naming the log file when it cannot be started
 */
export async function openWorld(dir: string, script: string): Promise<World> {
  mkdirSync(dir, { recursive: true });
  const earlierWorld = readWorld(dir);
  const reused = earlierWorld !== null && (await renewLease(earlierWorld));
  const info = reused ? earlierWorld : await startWorld(dir, script);
  const lostController = new AbortController();
  const timer = setInterval(() => {
    if (isAlive(info.pid)) void renewLease(info);
    else
      lostController.abort(
        new Failure(
          "chain",
          `the market died; the next start continues where this one stopped (see ${join(dir, "world.log")})`,
        ),
      );
  }, LEASE_RENEWAL_MS);
  timer.unref();
  return {
    ...info,
    reused,
    lost: lostController.signal,
    release: () => clearInterval(timer),
    async stop() {
      clearInterval(timer);
      if (isAlive(info.pid)) process.kill(info.pid, "SIGTERM");
      for (let i = 0; i < 100 && isAlive(info.pid); i++) await new Promise((done) => setTimeout(done, 50));
      if (isAlive(info.pid)) process.kill(info.pid, "SIGKILL");
    },
  };
}
