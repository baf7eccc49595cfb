import { spawn } from "node:child_process";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { syncWhole } from "../../../infra/store/whole-sync.ts";

let dir: string;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "whole-sync-"));
});
afterAll(() => rm(dir, { recursive: true }));

const read = (pid: string, name: string): string => {
  try {
    return readFileSync(`/proc/${pid}/${name}`, "latin1");
  } catch {
    return "";
  }
};

/** State and parent of a process; none of one that is gone. */
const statOf = (pid: string): string[] => read(pid, "stat").split(") ").at(-1)!.split(" ");

/** Shells that a process began. */
function shellsOf(parent: number): string[] {
  const pids = readdirSync("/proc").filter((name) => /^\d+$/.test(name) && read(name, "cmdline").startsWith("sh\0"));
  return pids.filter((pid) => statOf(pid)[1] === String(parent));
}

/** Not even waiting for somebody to take note of its end. */
const isAlive = (pid: string): boolean => !["Z", "X", ""].includes(statOf(pid)[0]!);

describe.runIf(process.platform === "linux")("syncing a whole file system", () => {
  it("says in order of each folder whether it was", async () => {
    const asked = [dir, join(dir, "no such folder"), dir, `${dir}\n${dir}`];
    expect(await Promise.all(asked.map(syncWhole))).toEqual([true, false, true, false]);
  });

  it("takes a name for a name, whatever stands in it", async () => {
    for (const name of ["-f", "$(exit 1)", "a b", "*", "\\"]) expect(await syncWhole(join(dir, name))).toBe(false);
    expect(await syncWhole(dir)).toBe(true);
  });

  it("lets go of its helper with the process", async () => {
    const from = new URL("../../../infra/store/whole-sync.ts", import.meta.url).href;
    const text = `import { syncWhole } from ${JSON.stringify(from)};
      console.log(await syncWhole(${JSON.stringify(dir)}));
      await new Promise((resolve) => process.stdin.once("data", resolve));
      process.stdin.destroy();`;
    const child = spawn(process.execPath, ["--import", "tsx", "--input-type=module", "-e", text], {
      stdio: ["pipe", "pipe", "inherit"],
    });
    const [said] = (await once(child.stdout, "data")) as [Buffer];
    expect(said.toString()).toBe("true\n");
    const helpers = shellsOf(child.pid!);
    child.stdin.write("go on");
    expect(await once(child, "close")).toEqual([0, null]);
    // A test that waits in vain ends by its own time-out.
    while (helpers.some(isAlive)) await setTimeout(5);
  });

  it("says that nothing is known when the helper is killed, and begins another", async () => {
    expect(await syncWhole(dir)).toBe(true);
    const own = shellsOf(process.pid);
    expect(own).not.toEqual([]);
    for (const pid of own) process.kill(Number(pid), "SIGSTOP");
    const waiting = [syncWhole(dir), syncWhole(dir)];
    for (const pid of own) process.kill(Number(pid), "SIGKILL");
    expect(await Promise.all(waiting)).toEqual([false, false]);
    expect(await syncWhole(dir)).toBe(true);
  });
});
