import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { own } from "../../commands/own.ts";
import { publish } from "../../commands/publish.ts";
import { loadConfig } from "../../infra/config.ts";
import { openEmbeddedLog } from "../../infra/log/embedded.ts";
import { TOPICS } from "../../pipelines/record/topics.ts";
import { foldersOf } from "../../pipelines/roles/data-folder.ts";
import { dayOf, PARTITIONS, SELLERS } from "../pipelines/roles/records.ts";

/** The two halves as an operator starts them, over the parts of one machine: what one writes the other publishes. */
let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "own-"));
});
afterEach(async () => {
  vi.restoreAllMocks();
  await rm(dir, { recursive: true, force: true });
});

/** What a command prints for a machine. */
async function printed(work: Promise<void>): Promise<Record<string, unknown>> {
  const write = vi.spyOn(process.stdout, "write").mockReturnValue(true);
  try {
    await work;
    return JSON.parse(String(write.mock.calls.at(-1)![0])) as Record<string, unknown>;
  } finally {
    write.mockRestore();
  }
}

test("an owner without a key writes a run, a publisher without a lake takes it; a second turn says nothing", async () => {
  const config = loadConfig(undefined, {
    TOUCHSTONE_DATA_DIR: dir,
    TOUCHSTONE_LOG_PARTITIONS: String(PARTITIONS),
    TOUCHSTONE_LOG_LEVEL: "silent",
  });
  const once = { once: true, json: true };
  await expect(own(config, once)).rejects.toThrow(/keyring/);
  expect(await printed(publish(config, once))).toMatchObject({ runs: 0, cards: 0, tables: 0, tree_size: 1 });
  const log = await openEmbeddedLog(foldersOf(dir).log, { topics: TOPICS, partitions: PARTITIONS });
  // Three weeks ago: closed days, and cards that count.
  const start = new Date(Date.now() - 21 * 86_400_000).toISOString().replace(/T.*/, "T00:00:00.000Z");
  for (const day of [0, 1, 2]) await log.append(dayOf(start, day));
  await log.close();
  const said = await printed(own(config, once));
  const lag = Object.fromEntries([0, 1, 2, 3].map((partition) => [partition, 0]));
  expect(said).toMatchObject({ held: [0, 1, 2, 3], caps: SELLERS.length, lines: SELLERS.length, run: 0, lag });
  const published = await printed(publish(config, once));
  expect(published).toMatchObject({ runs: 1, tables: PARTITIONS, days: 7 });
  expect(published.cards).toBeGreaterThanOrEqual(SELLERS.length);
  expect(await printed(own(config, once))).toMatchObject({ lines: 0, run: null });
  expect(await printed(publish(config, once))).toMatchObject({ runs: 0, cards: 0 });
});
