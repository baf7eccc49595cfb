import { spawn, spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { EXIT } from "../../../commands/exit.ts";
import { freePort } from "../../../fixtures/ports.ts";
import { refuseUnnamedExit } from "../../helpers/exit-codes.ts";
import { runs } from "../../helpers/programs.ts";
import { PAYEE, type PublicRecord } from "../../helpers/public-record.ts";
import { keysOf, sourceDir } from "../mirror/testbed.ts";
import { FILES, RECORDED, recorded } from "./equivocation-lies.ts";
import { fill, forkedPair, sellerCard, sellerListing } from "./testbed.ts";

/** The command as a person and cron type it, and `verify` of what it found. */
let first: PublicRecord;
let second: PublicRecord;
let dir: string;
beforeAll(async () => {
  [first, second] = await forkedPair(10);
  await first.publish([sellerListing()], sellerCard(first, "B"));
  await fill(second, "other", 30);
  dir = mkdtempSync(join(tmpdir(), "monitor-command-"));
});
afterAll(async () => {
  await first.close();
  await second.close();
  rmSync(dir, { recursive: true, force: true });
});

function run(...words: string[]) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [...runs("touchstone.ts"), ...words], {
    ...{ cwd: dir, encoding: "utf8" as const },
  });
  refuseUnnamedExit(words, status);
  return { status, stdout, stderr, lines: stdout.split("\n").filter(Boolean) };
}
const once = (...words: string[]) =>
  run("monitor", join(dir, "m"), ...words, "--once", "--max-age", "0", "--log-key", keysOf(first).log);

test("a seller's alarm: what the name stands for, nothing, a change, and a fork that verify proves", async () => {
  const seller = [sourceDir(first), "--pay-to", PAYEE];
  const start = once(...seller);
  expect([start.status, start.stdout]).toEqual([
    EXIT.ok,
    expect.stringMatching(/^watching cap_.* B \(OUTCOME_VERIFIED\)/),
  ]);
  expect(once(...seller).status).toBe(EXIT.ok);
  await first.publish(sellerCard(first, "F", ["took_the_money"], 8));
  const changed = once(...seller, "--json");
  expect([changed.status, JSON.parse(changed.lines[0]!)]).toEqual([
    EXIT.changed,
    expect.objectContaining({ type: "monitor.changed", change: "band" }),
  ]);
  expect(JSON.parse(changed.lines[1]!)).toMatchObject({ type: "monitor.round", head: { size: 13 }, faults: [] });
  const forked = once(sourceDir(first), sourceDir(second));
  expect([forked.status, forked.stdout]).toEqual([
    EXIT.fork,
    expect.stringMatching(/^FORK of touchstone\.test: .*40 leaves/),
  ]);
  const file = /proven by (\S+) /.exec(forked.stdout)![1]!;
  const proven = run("verify", file, "--log-key", keysOf(first).log);
  expect([proven.status, proven.stdout]).toEqual([
    EXIT.fork,
    expect.stringContaining("proven: touchstone.test signed two histories"),
  ]);
  expect(once(sourceDir(first)).status).toBe(EXIT.fork);
});

test("two processes that each see one side tell each other, and both end with the code of a fork", async () => {
  const sides = await forkedPair(10);
  await fill(sides[0], "one", 7);
  await fill(sides[1], "other", 7);
  const ports = [await freePort(), await freePort()] as const;
  const processes = [0, 1].map((i) => {
    const words = [join(dir, `side${i}`), sourceDir(sides[i]!), "--listen", `${ports[i]}`, "--every", "1"];
    const trust = ["--log-key", keysOf(sides[0]).log, "--max-age", "0", "--peer", `http://127.0.0.1:${ports[1 - i]}`];
    const argv = [...runs("touchstone.ts"), "monitor", ...words, ...trust];
    const env = { ...process.env, TOUCHSTONE_STATUS_PORT: "0" };
    const child = spawn(process.execPath, argv, { cwd: dir, env, stdio: ["ignore", "pipe", "inherit"] });
    let out = "";
    const found = new Promise<string>((done) =>
      child.stdout.on("data", (chunk) => {
        out += chunk;
        if (out.includes("FORK of")) done(out);
      }),
    );
    return { child, found, end: new Promise<number | null>((done) => child.on("close", done)) };
  });
  for (const { found } of processes) expect(await found).toContain("two roots for 17 leaves");
  for (const { found } of processes) {
    const at = /^\/health and \/metrics at (http:\S+)$/m.exec(await found)![1]!;
    const metrics = async () => (await fetch(`${at}/metrics`)).text();
    await expect.poll(metrics).toMatch(/^touchstone_monitor_faults_total\{code="fork"\} (?:[3-9]|\d\d)/m);
    expect(await metrics()).toMatch(/^touchstone_monitor_checkpoints\{verdict="forked"\} 1$/m);
    const health = await fetch(`${at}/health`);
    expect([health.status, await health.json()]).toEqual([
      503,
      expect.objectContaining({ role: "monitor", ok: false, faults: ["fork"], head: expect.any(Object) }),
    ]);
  }
  for (const { child } of processes) child.kill("SIGTERM");
  for (const { end } of processes) expect(await end).toBe(EXIT.fork);
  for (const side of sides) await side.close();
});

test.each(FILES)("verify proves the recorded %s, and no change of it", (name) => {
  const file = recorded(name);
  const proven = run("verify", join(RECORDED, `${name}.json`), "--json");
  expect([proven.status, JSON.parse(proven.lines[0]!)]).toEqual([
    EXIT.fork,
    expect.objectContaining({ origin: "touchstone.test", smaller: expect.any(Number) }),
  ]);
  const lie = join(dir, "lie.json");
  writeFileSync(lie, JSON.stringify({ ...file, larger: file.smaller, proof: [] }));
  expect(run("verify", lie).status).toBe(EXIT.tampered);
  writeFileSync(lie, JSON.stringify({ ...file, proof: ["x"] }));
  expect(run("verify", lie)).toMatchObject({ status: EXIT.unreadable, stderr: expect.stringContaining("/proof/0") });
});

test.each([
  ["no source", [join("nowhere", "x"), "--once"], "unreadable"],
  ["--once with --listen", ["SOURCE", "--once", "--listen", "0"], "usage"],
  ["a name that is none", ["SOURCE", "--once", "--cap", "cap_1"], "usage"],
  ["a webhook on a private network", ["SOURCE", "--once", "--webhook", "http://169.254.169.254/x"], "usage"],
  ["a peer without http", ["SOURCE", "--once", "--peer", "monitor.example"], "usage"],
  ["an address where nobody answers", ["http://127.0.0.1:9/", "--once"], "failed"],
] as const)("%s ends with a code of its own", (_, words, code) => {
  const given = words.map((word) => (word === "SOURCE" ? sourceDir(first) : word));
  expect(run("monitor", join(dir, "bad"), ...given).status).toBe(EXIT[code]);
});
