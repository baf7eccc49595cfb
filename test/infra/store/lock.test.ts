import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterAll, expect, test } from "vitest";
import { openProcessLock } from "../../../infra/store/lock.ts";

const dir = mkdtempSync(join(tmpdir(), "keeper-"));
afterAll(() => rmSync(dir, { recursive: true, force: true }));

test("one of two is the keeper until it lets go, and asking again changes nothing", () => {
  const path = join(dir, "made/on/the/way/keeper.sqlite");
  const [one, two] = [openProcessLock(path), openProcessLock(path)];
  expect([one.tryAcquire(), two.tryAcquire(), one.tryAcquire(), two.tryAcquire()]).toEqual([true, false, true, false]);
  one.close();
  expect(two.tryAcquire()).toBe(true);
  two.close();
});

test("a keeper that is killed with SIGKILL is one no more", async () => {
  const path = join(dir, "killed.sqlite");
  const keeper = resolve(import.meta.dirname, "../../../infra/store/lock.ts");
  const script = `import { openProcessLock } from ${JSON.stringify(keeper)};
    console.log(openProcessLock(${JSON.stringify(path)}).tryAcquire()); setInterval(() => {}, 1000);`;
  const child = spawn(process.execPath, ["--import", "tsx", "--input-type=module", "-e", script], {
    stdio: ["ignore", "pipe", "inherit"],
    cwd: resolve(import.meta.dirname, "../../.."),
  });
  const ended = new Promise((done) => child.once("exit", done));
  try {
    const said = await new Promise<string>((done) => child.stdout.once("data", (bytes) => done(String(bytes))));
    expect(said.trim()).toBe("true");
    const mine = openProcessLock(path);
    expect(mine.tryAcquire()).toBe(false);
    child.kill("SIGKILL");
    await ended;
    expect(mine.tryAcquire()).toBe(true);
    mine.close();
  } finally {
    child.kill("SIGKILL");
  }
});
