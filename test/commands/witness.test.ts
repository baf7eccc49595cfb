import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { ED25519, formatVkey } from "../../infra/tree/note.ts";
import { runs } from "../helpers/programs.ts";
import { noteSigner, SmallLog } from "../helpers/witnessed.ts";

/** `touchstone witness` as its operator runs it: what it prints, and what /health and /metrics tell. */
const log = new SmallLog(noteSigner("log.example/one", 11));
let dir: string;
let child: ChildProcess | undefined;
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), "witness-command-"));
});
afterEach(() => {
  child?.kill("SIGKILL");
  rmSync(dir, { recursive: true, force: true });
});

/** Starts a witness. @returns the facts that it prints */
async function start(env: Record<string, string>): Promise<{ serving: string; vkey: string; status: string | null }> {
  const words = [dir, "--name", "witness.example/w1", "--log", formatVkey(log.key, ED25519), "--port", "0", "--json"];
  const started = spawn(process.execPath, [...runs("touchstone.ts"), "witness", ...words], {
    ...{ env: { ...process.env, ...env }, stdio: ["ignore", "pipe", "inherit"] },
  });
  child = started;
  const [line] = await new Promise<string[]>((done) => started.stdout!.once("data", (text) => done([String(text)])));
  return JSON.parse(line!);
}

test("it counts its answers by status and tells when it last cosigned each log", async () => {
  const { serving, status } = await start({ TOUCHSTONE_STATUS_PORT: "0" });
  const began = Math.floor(Date.now() / 1000);
  const post = async (body: Buffer) => (await fetch(`${serving}/add-checkpoint`, { method: "POST", body })).status;
  const metrics = async () => (await fetch(`${status}/metrics`)).text();
  expect(await metrics()).toContain('touchstone_log_cosigned_seconds{log="log.example/one"} 0\n');
  expect(await metrics()).toContain('touchstone_add_checkpoint_requests_total{status="422"} 0\n');
  expect([
    await post(log.request(0, 5)),
    await post(log.request(0, 8)),
    await post(log.request(5, 8, "fork", 2)),
  ]).toEqual([200, 409, 422]);
  const text = await metrics();
  for (const answer of [200, 409, 422])
    expect(text).toContain(`touchstone_add_checkpoint_requests_total{status="${answer}"} 1\n`);
  const cosigned = async () => Number(/^touchstone_log_cosigned_seconds\{.*\} (\d+)$/m.exec(await metrics())?.[1]);
  await expect.poll(cosigned, { interval: 500 }).toBeGreaterThanOrEqual(began);
  const health = await fetch(`${status}/health`);
  expect([health.status, await health.json()]).toEqual([200, expect.objectContaining({ role: "witness", ok: true })]);
});

test("without a port in the settings it has no status listener, and SIGTERM ends it with 0", async () => {
  const { status } = await start({});
  expect(status).toBeNull();
  child!.kill("SIGTERM");
  expect(await new Promise((done) => child!.once("exit", done))).toBe(0);
});
