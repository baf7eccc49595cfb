import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { daysOfPast, hasSimulatedPast } from "../../commands/simulated-past.ts";
import { loadConfig } from "../../infra/config.ts";
import { openDirectoryStore } from "../../infra/store/directory.ts";
import { folders } from "../../pipelines/roles/parts.ts";

/** Whoever serves the demo's record alone says so too; whoever serves another one does not. */
let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "past-"));
});
afterEach(() => rm(dir, { recursive: true, force: true }));

const config = (more: Record<string, string> = {}) => loadConfig(undefined, { TOUCHSTONE_DATA_DIR: dir, ...more });

test("a record is the demo's where its private store has the span of the past, and that store is on this machine", async () => {
  expect(hasSimulatedPast(config())).toBe(false);
  const store = await openDirectoryStore(folders(dir).private);
  await store.create("simulated/span.json", Buffer.from("{}"));
  await store.close();
  expect(hasSimulatedPast(config())).toBe(true);
  expect(hasSimulatedPast(config({ TOUCHSTONE_STORES_PRIVATE: "s3://elsewhere/private" }))).toBe(false);
});

test("a past ends on its last day; a whole one has two days of long ago before it, a shorter one none", () => {
  expect(daysOfPast("2026-03-01", 3)).toEqual(["2026-02-27", "2026-02-28", "2026-03-01"]);
  const whole = daysOfPast("2026-11-23", 40);
  expect(whole).toHaveLength(42);
  expect([...whole.slice(0, 3), whole.at(-1)]).toEqual(["2026-07-22", "2026-08-05", "2026-10-15", "2026-11-23"]);
  expect(daysOfPast("2026-11-23", 200)[0]).toBe("2026-05-08");
});
