import { execFileSync, spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";

const ROOT = resolve(import.meta.dirname, "../..");

/** `npm start` as a supervisor sees it: it knows npm's process alone, and stops that one. */

/** Processes of this machine: pid -> parent. */
function parents(): Map<number, number> {
  const lines = execFileSync("ps", ["-eo", "pid=,ppid="], { encoding: "utf8" }).trim().split("\n");
  return new Map(lines.map((line) => line.trim().split(/\s+/).map(Number) as [number, number]));
}

/** All that this process started, however deep. */
function descendants(pid: number): number[] {
  const all = parents();
  const found = [pid];
  for (const one of found) for (const [child, parent] of all) if (parent === one) found.push(child);
  return found.slice(1);
}

const alive = (pids: readonly number[]): number[] => {
  const all = parents();
  return pids.filter((pid) => all.has(pid));
};

test.each([
  ["its npm stopped by SIGTERM", "SIGTERM", false],
  ["its npm stopped by SIGINT", "SIGINT", false],
  // The kernel tells the whole foreground group, and nobody reads what is written any more.
  ["its terminal closed", "SIGHUP", true],
] as const)("npm start, %s: nothing is left behind", async (_, signal, group) => {
  const dir = await mkdtemp(join(tmpdir(), "npm-start-"));
  const env = { ...process.env, TOUCHSTONE_DATA_DIR: dir, TOUCHSTONE_PORT: "0", TOUCHSTONE_STATUS_PORT: "0" };
  const npm = spawn("npm", ["start"], { cwd: ROOT, env, stdio: ["ignore", "pipe", "pipe"], detached: group });
  let said = "";
  for (const stream of [npm.stdout, npm.stderr]) stream.on("data", (chunk) => (said += chunk));
  try {
    while (!said.includes("simulating")) {
      expect(npm.exitCode, said).toBeNull();
      await sleep(200);
    }
    const started = descendants(npm.pid!);
    // The shell or node itself, the market, its chain.
    expect(started.length).toBeGreaterThanOrEqual(3);
    if (group) {
      for (const stream of [npm.stdout, npm.stderr]) stream.destroy();
      process.kill(-npm.pid!, signal);
    } else npm.kill(signal);
    const until = performance.now() + 300_000;
    while (alive(started).length > 0 && performance.now() < until) await sleep(200);
    expect(alive(started), said).toEqual([]);
  } finally {
    for (const pid of descendants(npm.pid!)) process.kill(pid, "SIGKILL");
    npm.kill("SIGKILL");
    await rm(dir, { recursive: true, force: true });
  }
});
