import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { openLake } from "../../infra/lake/duckdb.ts";
import { foldersOf } from "../../pipelines/roles/data-folder.ts";
import { runStart } from "../helpers/run-start.ts";

/** A day of the market as its log tells it at `info`: each line JSON, each event once, sums as the record has them. */

interface Line {
  msg: string;
  intent?: string;
  paid_atomic?: string;
  promised_atomic?: string;
  calls?: Record<string, number>;
  leaves?: Record<string, number>;
  endpoints?: number;
  lines?: number;
}

/** Calls of the record by their intent, and what was signed away in each. */
async function signedIn(dataDir: string): Promise<Map<string, bigint>> {
  const lake = await openLake(foldersOf(dataDir).lake, { memoryLimit: "1GB", threads: 1, init: [], readers: 1 });
  try {
    const rows = await lake.all<{ id: string; micro: bigint }>(
      "SELECT event_id AS id, price_micro::BIGINT AS micro FROM paid_intent",
    );
    return new Map(rows.map(({ id, micro }) => [id, BigInt(micro)]));
  } finally {
    await lake.close();
  }
}

test("start tells a day in lines of JSON, with the sums that are in the record", async () => {
  const dir = await mkdtemp(join(tmpdir(), "day-story-"));
  try {
    const env = { TOUCHSTONE_DATA_DIR: dir, TOUCHSTONE_PORT: "0", TOUCHSTONE_LOG_LEVEL: "info" };
    const { code, stdout, stderr } = await runStart(["--market", "--once", "--days", "1", "--json"], env).ended;
    expect(code, stderr).toBe(0);
    for (const line of stdout.trim().split("\n")) expect(() => JSON.parse(line), line).not.toThrow();
    const lines = stderr
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as Line);
    const told = (msg: string): Line[] => lines.filter((line) => line.msg === msg);
    expect(told("the role starts")).toHaveLength(1);
    expect(told("the plan of a day was drawn")).toHaveLength(1);
    expect(lines.indexOf(told("the role starts")[0]!)).toBeLessThan(
      lines.indexOf(told("the plan of a day was drawn")[0]!),
    );
    // Hundreds of probes are a line a minute.
    const passes = told("planned calls were made");
    expect(passes.length).toBeGreaterThan(0);
    expect(passes.length).toBeLessThan(30);
    const paidCalls = passes.reduce((sum, { calls }) => sum + (calls?.paid ?? 0), 0);
    const payments = [...told("a call was paid"), ...told("a call was made; no payment was seen yet")];
    const broken = told("a paid call could not be watched to its end");
    expect(payments.length + broken.length).toBe(paidCalls);
    expect(payments.length).toBeGreaterThan(5);
    const signed = await signedIn(dir);
    const sums = new Map(payments.map((one) => [one.intent!, BigInt(one.paid_atomic ?? one.promised_atomic!)]));
    expect(sums.size).toBe(payments.length);
    for (const [intent, sum] of sums) expect(sum, intent).toBe(signed.get(intent));
    expect(signed.size).toBe(paidCalls);
    expect(told("endpoints were graded").length).toBeGreaterThan(0);
    const published: Record<string, number> = {};
    for (const { leaves } of told("leaves were published"))
      for (const [kind, n] of Object.entries(leaves!)) published[kind] = (published[kind] ?? 0) + n;
    expect(published).toMatchObject({ keys: 1, schedule: 1 });
    expect(published.grade).toBeGreaterThan(100);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}, 600_000);
