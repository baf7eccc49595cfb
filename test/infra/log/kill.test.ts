import { spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { openEmbeddedLog } from "../../../infra/log/embedded.ts";
import type { Log } from "../../../infra/log/log.ts";
import { TOPICS } from "../../../pipelines/record/topics.ts";

const CHILD = join(import.meta.dirname, "append-child.ts");

/** Start a writer, let it acknowledge for `ms` after its tenth line, kill its whole process group; its lines. */
async function killedAfter(dir: string, name: string, ms: number): Promise<string[]> {
  const child = spawn(process.execPath, ["--import", "tsx", CHILD, dir, name], {
    detached: true,
    stdio: ["ignore", "pipe", "inherit"],
  });
  let out = "";
  let armed = false;
  child.stdout.on("data", (chunk: Buffer) => {
    out += chunk.toString();
    if (armed || out.split("\n").length <= 10) return;
    armed = true;
    setTimeout(() => process.kill(-child.pid!, "SIGKILL"), ms);
  });
  const signal = await new Promise((resolve) => child.on("close", (_code, by) => resolve(by)));
  expect(signal).toBe("SIGKILL");
  // What follows the last line break was cut by the kill.
  return out.split("\n").slice(0, -1);
}

async function everything(log: Log): Promise<Map<string, string[]>> {
  const found = new Map<string, string[]>();
  for (const partition of [0, 1]) {
    const { end } = await log.bounds("asks", partition);
    for (let from = 0; from < end; ) {
      const records = await log.read("asks", partition, from, { maxRecords: 10_000 });
      for (const { offset, eventId } of records) {
        expect(offset).toBe(from++);
        found.set(eventId, [...(found.get(eventId) ?? []), `asks ${partition} ${offset} ${eventId}`]);
      }
    }
  }
  return found;
}

it("keeps every acknowledged record, once and at its offset, through a dozen kill -9 of two writers", async () => {
  const dir = await mkdtemp(join(tmpdir(), "log-"));
  const acknowledged: string[] = [];
  for (let round = 0; round < 6; round++) {
    // Both open the log at once: in the first round they race to create it.
    const writers = ["a", "b"].map((w, i) => killedAfter(dir, `${w}${round}`, 20 + 35 * ((round * 2 + i) % 5)));
    const lines = await Promise.all(writers);
    for (const own of lines) expect(own.length).toBeGreaterThan(0);
    acknowledged.push(...lines.flat());
    const log = await openEmbeddedLog(dir, { topics: TOPICS, partitions: 2 });
    const found = await everything(log);
    for (const line of acknowledged) expect(found.get(line.split(" ")[3]!)).toEqual([line]);
    await log.close();
  }
  expect(acknowledged.length).toBeGreaterThan(100);
  await rm(dir, { recursive: true });
});
