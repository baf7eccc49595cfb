import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { cp, mkdtemp, rename, rm, unlink } from "node:fs/promises";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, it } from "vitest";
import { EXIT } from "../../../commands/exit.ts";
import { runs } from "../../helpers/programs.ts";
import { PublicRecord } from "../../helpers/public-record.ts";
import { grow, keysOf, publishAll, sourceDir } from "./testbed.ts";

const ROOT = fileURLToPath(new URL("../../..", import.meta.url));
let record: PublicRecord;
let dir: string;
beforeAll(async () => {
  record = await PublicRecord.open();
  await publishAll(record, "a", 10);
  dir = await mkdtemp(join(tmpdir(), "mirror-command-"));
});
afterAll(async () => {
  await record.close();
  await rm(dir, { recursive: true, force: true });
});

const mirror = (source: string) => {
  const { log, witness } = keysOf(record);
  const keys = ["--log-key", log, "--witness-key", witness, "--max-age", "0", "--json"];
  const argv = [...runs("touchstone.ts"), "mirror", source, join(dir, "copy"), ...keys];
  const { status, stdout, stderr } = spawnSync(process.execPath, argv, { cwd: ROOT, encoding: "utf8" });
  return { status, stderr, said: stdout ? (JSON.parse(stdout) as Record<string, unknown>) : null };
};

it("ends with a code of its own while something is missing, and says what; with 0 once it is there", async () => {
  const lacking = join(dir, "lacking");
  await cp(sourceDir(record), lacking, { recursive: true });
  const key = record.committer.fold.index!.key;
  await unlink(join(lacking, key));
  const { size } = record.committer.fold;
  for (const tries of [1, 2]) {
    const { status, stderr, said } = mirror(lacking);
    expect([status, stderr]).toEqual([
      EXIT.missing,
      expect.stringContaining(`1 objects are missing, ${key} first: none`),
    ]);
    expect(said).toMatchObject({ tree_size: size, missing: [{ key, expected: "an object", got: "none", tries }] });
  }
  expect(mirror(sourceDir(record))).toMatchObject({
    status: EXIT.ok,
    said: { result: "idle", tree_size: size, missing: [] },
  });
});

/** Words as a person types them. */
function typed(line: string) {
  const argv = [...runs("touchstone.ts"), ...line.split(" ").slice(1)];
  const { status, stdout, stderr } = spawnSync(process.execPath, argv, { cwd: ROOT, encoding: "utf8" });
  return { status, stdout, stderr };
}

it("prints next steps and keys in the form in which they run, and reads a folder by either name", () => {
  const copy = join(dir, "typed");
  const first = typed(`touchstone mirror ${sourceDir(record)} ${copy} --max-age 0`);
  const next = /^next: (touchstone .*)$/m.exec(first.stdout)![1]!;
  const keys = /pinned (--log-key .*) as /.exec(first.stderr)![1]!;
  expect(next).toBe(`touchstone audit ${copy}`);
  // What this record's cards stand on was never published: the audit runs, and says so.
  for (const line of [`${next} ${keys}`, `touchstone audit ${join(copy, "public")} ${keys}`]) {
    expect(typed(line).stdout).toMatch(/^(?:ok|proven|NOT proven|BROKEN).*/m);
  }
  const verified = typed(`touchstone mirror ${sourceDir(record)} ${copy} ${keys} --max-age 0 --verify`);
  expect([verified.status, verified.stdout]).toEqual([0, expect.stringContaining("everything in the copy is intact")]);
});

it("follows until stopped, and its /health and /metrics tell a source that is away and one that is back", async () => {
  const { log } = keysOf(record);
  const words = [sourceDir(record), join(dir, "followed"), "--log-key", log, "--max-age", "0", "--follow", "1"];
  const env = { ...process.env, TOUCHSTONE_STATUS_PORT: "0" };
  const child = spawn(process.execPath, [...runs("touchstone.ts"), "mirror", ...words], { cwd: ROOT, env });
  const ended = new Promise((done) => child.once("close", done));
  let said = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (text) => (said += text));
  const status = () => /^\/health and \/metrics at (\S+)$/m.exec(said)?.[1];
  try {
    await expect.poll(status).toBeDefined();
    const metrics = async () => (await fetch(`${status()}/metrics`)).text();
    const treeSize = async () => Number(/^touchstone_mirror_tree_size (\d+)$/m.exec(await metrics())?.[1]);
    await expect.poll(treeSize).toBe(record.committer.fold.size);
    expect(await metrics()).toContain("touchstone_mirror_missing_objects 0\n");
    expect((await fetch(`${status()}/health`)).status).toBe(200);
    const checkpoint = join(sourceDir(record), "checkpoint");
    await rename(checkpoint, `${checkpoint}.away`);
    await expect.poll(metrics).toMatch(/^touchstone_mirror_faults_total\{code="\w+"\} (?:[3-9]|\d\d+)$/m);
    const health = await fetch(`${status()}/health`);
    expect([health.status, await health.json()]).toEqual([
      503,
      expect.objectContaining({
        role: "mirror",
        problems: [expect.stringMatching(/^mirror failed (?:[3-9]|\d\d+) times/)],
      }),
    ]);
    await rename(`${checkpoint}.away`, checkpoint);
    await grow(record, "followed", 3);
    await expect.poll(treeSize).toBe(record.committer.fold.size);
    expect((await fetch(`${status()}/health`)).status).toBe(200);
    child.kill("SIGTERM");
    expect(await ended, said).toBe(0);
  } finally {
    child.kill("SIGKILL");
  }
});

it("ends in time with 0 when it is stopped while its source accepts connections and answers nothing", async () => {
  const silent = createServer().listen(0, "127.0.0.1");
  await once(silent, "listening");
  const source = `http://127.0.0.1:${(silent.address() as AddressInfo).port}/`;
  const words = [source, join(dir, "silent"), "--log-key", keysOf(record).log, "--follow", "1"];
  const child = spawn(process.execPath, [...runs("touchstone.ts"), "mirror", ...words], { cwd: ROOT });
  try {
    await once(silent, "connection");
    let said = "";
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (text) => (said += text));
    child.kill("SIGTERM");
    expect((await once(child, "close"))[0], said).toBe(EXIT.ok);
    // By the clock that began with the signal: what asks the source would go on for minutes.
    expect(said).toMatch(/"afterMs":20000,.*ended without waiting for it/);
  } finally {
    child.kill("SIGKILL");
    silent.close();
  }
});

it("tells a fault as JSON where JSON is asked for, one cause by one code, and leaves nothing behind", () => {
  const nowhere = join(dir, "nowhere");
  for (const line of [
    `touchstone mirror ${nowhere} ${join(dir, "new")} --json`,
    `touchstone audit ${nowhere} --json`,
    `touchstone export ${nowhere} ${join(dir, "x.parquet")} --json`,
    `touchstone exposure ${nowhere} --json`,
  ]) {
    const { status, stdout } = typed(line);
    expect([line, status]).toEqual([line, EXIT.unreadable]);
    expect(JSON.parse(stdout)).toEqual({ error: "unreadable", code: EXIT.unreadable, says: expect.any(String) });
  }
  expect(existsSync(join(dir, "new"))).toBe(false);
  const { status, stdout } = typed("touchstone serve --mirror somewhere");
  expect([status, stdout]).toEqual([EXIT.usage, ""]);
  expect(typed("touchstone --version").stdout).toMatch(/^\d+\.\d+\.\d+\n$/);
});
