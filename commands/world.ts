import { spawn } from "node:child_process";
import { mkdirSync, openSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import { Failure } from "../infra/errors.ts";
import { isAlive } from "../infra/processes.ts";

/** What the market's process reports once it runs: one JSON line, also written to `world.json` in its folder. */
export interface WorldInfo {
  pid: number;
  rpcUrl: string;
  chainId: number;
  asset: string;
  /** Its other chain, which takes Tempo's transactions; absent in a world that an earlier version started. */
  tempo?: { rpcUrl: string; chainId: number; asset: string };
  catalogue: string;
  /** Catalogues that are first read so many days before the present. */
  newcomers: { url: string; days: number }[];
  control: string;
  lease: string;
  /** Absent in a world that an earlier version started. */
  people?: string;
  sellers: { name: string; origin: string; payTo: string; urls: string[]; ledger: string }[];
}

export interface World extends WorldInfo {
  /** True when the world was already running, because an earlier start was interrupted and this one continues. */
  reused: boolean;
  /** Stops the world and waits until its process has ended. */
  stop(): Promise<void>;
  /** Leaves the world running; it ends by itself when its lease expires. */
  release(): void;
  /** Aborts when the market's process died: then there is no chain to pay on, and no seller to call. */
  lost: AbortSignal;
}

/** Checks that the world's script can run here, before anything is created. @throws Failure `usage` */
export function requireMarket(script: string): void {
  const { resolve } = createRequire(pathToFileURL(script));
  try {
    for (const name of [script, "@foundry-rs/anvil/package.json"]) resolve(name);
  } catch {
    throw new Failure(
      "usage",
      `the demo's market is not here (${script} and its development packages): a checkout with \`npm ci\` has it, an image ` +
        "or `npm ci --omit=dev` has not; start without --market, or a role: observe, own, publish, serve",
    );
  }
}

const BOOT_MS = 60_000;
const LEASE_EVERY_MS = 2_000;
const PEOPLE_MS = 120_000;

async function renew(info: WorldInfo): Promise<boolean> {
  try {
    const response = await fetch(info.lease, { method: "POST", signal: AbortSignal.timeout(2_000) });
    return response.ok;
  } catch {
    return false;
  }
}

/** The world that was started last in this folder, running or not; null where none was. */
export function readWorld(dir: string): WorldInfo | null {
  try {
    return JSON.parse(readFileSync(join(dir, "world.json"), "utf8")) as WorldInfo;
  } catch {
    return null;
  }
}

function boot(dir: string, script: string): Promise<WorldInfo> {
  const log = openSync(join(dir, "world.log"), "a");
  const child = spawn(process.execPath, [script, "--dir", dir], {
    // Its own process group: a kill of ours must not take the chain, which holds other people's money.
    detached: true,
    stdio: ["ignore", "pipe", log],
  });
  return new Promise((resolve, reject) => {
    const fail = (why: string) => {
      clearTimeout(timer);
      child.kill("SIGTERM");
      reject(new Error(`the market did not start: ${why} (see ${join(dir, "world.log")})`));
    };
    const timer = setTimeout(() => fail(`nothing heard for ${BOOT_MS / 1000} s`), BOOT_MS);
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
        fail(`it said ${line.slice(0, 200)}`);
      }
    });
  });
}

/**
 * Lets the people of the market use a service over its API: a watcher, a dispute, a re-test, a published call. What was
 * done before is not repeated. @throws Error with the text of the service's refusal
 */
export async function askPeople({ people }: WorldInfo, service: { url: string; origin: string }): Promise<void> {
  if (people === undefined) return;
  const headers = { "content-type": "application/json" };
  const signal = AbortSignal.timeout(PEOPLE_MS);
  const response = await fetch(people, { method: "POST", headers, body: JSON.stringify(service), signal });
  if (!response.ok) throw new Error(`the people of the market: ${response.status} ${await response.text()}`);
}

/**
 * Opens the demo's world (local chain and sellers), a process of its own that survives a kill of this process. It is
 * found by its `world.json`, or started. Its lease is renewed while this process lives.
 * @throws Error naming the log file when it cannot be started
 */
export async function openWorld(dir: string, script: string): Promise<World> {
  mkdirSync(dir, { recursive: true });
  const before = readWorld(dir);
  const reused = before !== null && (await renew(before));
  const info = reused ? before : await boot(dir, script);
  const lost = new AbortController();
  const timer = setInterval(() => {
    if (isAlive(info.pid)) void renew(info);
    else
      lost.abort(
        new Failure(
          "chain",
          `the market died; a new start goes on where this one was cut off (see ${join(dir, "world.log")})`,
        ),
      );
  }, LEASE_EVERY_MS);
  timer.unref();
  return {
    ...info,
    reused,
    lost: lost.signal,
    release: () => clearInterval(timer),
    async stop() {
      clearInterval(timer);
      if (isAlive(info.pid)) process.kill(info.pid, "SIGTERM");
      for (let i = 0; i < 100 && isAlive(info.pid); i++) await new Promise((done) => setTimeout(done, 50));
      if (isAlive(info.pid)) process.kill(info.pid, "SIGKILL");
    },
  };
}
