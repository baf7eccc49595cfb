import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { proveEquivocation, readEquivocation } from "../../../pipelines/published/equivocation.ts";
import { PAYEE, type PublicRecord } from "../../helpers/public-record.ts";
import { sourceDir } from "../mirror/testbed.ts";
import { copyOf, fill, forkedPair, keys, listening, MonitorBed, sellerCard, sellerListing } from "./testbed.ts";

/**
 * SIGKILL of a monitor's process group at every step: a checkpoint that it saw is not lost, and every change is told on
 * stdout and taken by the webhook at least once, also where it was killed between both.
 */
let first: PublicRecord;
let second: PublicRecord;
let before: string;
let dir: string;
let hook: { url: string; close(): Promise<void> };
const posted: string[] = [];

beforeAll(async () => {
  dir = mkdtempSync(join(tmpdir(), "monitor-kill-"));
  [first, second] = await forkedPair(10);
  await first.publish([sellerListing()], sellerCard(first, "B"));
  before = (await copyOf(first)).dir;
  await first.publish(sellerCard(first, "F", ["took_the_money"], 8), sellerCard(first, "B", [], 9));
  await fill(second, "other", 3);
  hook = await listening((_, body) => {
    posted.push(body);
    return { status: 200 };
  });
});
afterAll(async () => {
  await hook.close();
  await first.close();
  await second.close();
  for (const one of [dir, before]) rmSync(one, { recursive: true, force: true });
});

/** Runs a round in a process. @returns its lines, and whether it was killed */
function round(at: string, step: string, n: number, sources: string[]): Promise<{ lines: string[]; killed: boolean }> {
  const words = [at, hook.url, PAYEE, keys(first).log, step, String(n), ...sources];
  const run = ["--import", "tsx", join(import.meta.dirname, "child.ts"), ...words];
  const child = spawn(process.execPath, run, { detached: true, stdio: ["ignore", "pipe", "inherit"] });
  let out = "";
  child.stdout.on("data", (chunk) => {
    out += chunk;
  });
  return new Promise((done) =>
    child.on("close", (code, signal) =>
      done({ lines: out.split("\n").filter(Boolean), killed: signal === "SIGKILL" || code === 137 }),
    ),
  );
}

const STEPS = [
  "seen",
  "kept",
  "proving",
  "proven",
  "evidence",
  "forked",
  "reading",
  "read",
  "printed",
  "posted",
  "told",
];

test.each(STEPS)("killed at the step %s", async (step) => {
  const at = join(dir, step);
  posted.length = 0;
  expect((await round(at, "none", 0, [before])).killed).toBe(false);
  const sources = [sourceDir(first), sourceDir(second)];
  const killed = await round(at, step, step === "told" ? 2 : 1, sources);
  expect(killed.killed).toBe(true);
  const bed = await MonitorBed.open(undefined, at);
  const seen = bed.state.readPage(0, 100).length;
  await bed.close(true);
  const after = await round(at, "none", 0, sources);
  expect([after.killed, JSON.parse(after.lines.at(-1)!)]).toEqual([false, { head: 14, faults: ["fork"] }]);
  const told = [...killed.lines, ...after.lines].map((line) => JSON.parse(line) as { type?: string; leaf?: number });
  const leaves = (all: { leaf?: number }[]) => [
    ...new Set(all.flatMap(({ leaf }) => (leaf === undefined ? [] : [leaf]))),
  ];
  expect(leaves(told)).toEqual([12, 13]);
  expect(leaves(posted.map((body) => JSON.parse(body)))).toEqual([12, 13]);
  expect(told.some(({ type }) => type === "monitor.equivocation")).toBe(true);
  expect(posted.some((body) => body.includes("monitor.equivocation"))).toBe(true);
  const last = await MonitorBed.open(undefined, at);
  expect([last.state.readPage(0, 100).length, last.state.countWaitingNotices()]).toEqual([3, 0]);
  expect(seen).toBeLessThanOrEqual(3);
  if (step !== "seen") expect(seen).toBeGreaterThan(1);
  const files = await last.files.list("");
  expect(files.length).toBe(1);
  const bytes = (await last.files.get(files[0]!.key))!.bytes;
  expect(
    proveEquivocation(readEquivocation(JSON.parse(Buffer.from(bytes).toString())), [first.trust.log]),
  ).toBeTruthy();
  await last.close(true);
});
