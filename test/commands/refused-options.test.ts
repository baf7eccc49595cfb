import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { openCommand } from "../../commands/audit.ts";
import { exitNameOf } from "../../commands/exit.ts";
import { exportCommand } from "../../commands/export.ts";
import { rotateKeys } from "../../commands/keys.ts";
import { observe } from "../../commands/observe.ts";
import { start } from "../../commands/start.ts";
import { loadConfig } from "../../infra/config.ts";
import { readRing } from "../../infra/keys/keys.ts";
import { ensureKeys, foldersOf } from "../../pipelines/roles/data-folder.ts";

/** Options that would do nothing, or harm, are refused by name, and nothing is begun. */
let dir: string;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "options-"));
  await writeFile(join(dir, "file"), "{}");
  await writeFile(join(dir, "trusted.json"), "{}");
});
afterAll(() => rm(dir, { recursive: true, force: true }));

const config = () => loadConfig(undefined, { TOUCHSTONE_DATA_DIR: dir, TOUCHSTONE_LOG_LEVEL: "silent" });
const plain = { days: 32, paceHours: 240, worldScript: "none" };
const opened = { open: "file", salt: "0".repeat(64), packing: "any" } as never as Parameters<typeof openCommand>[1];

const CASES: [option: string, run: () => Promise<unknown>][] = [
  ["--acks", () => start(config(), { ...plain, acks: 3 })],
  ["--pace", () => start(config(), { ...plain, pace: 60 })],
  ["--pace-hours", () => start(config(), { ...plain, paceHours: 10 })],
  ["--days", () => start(config(), { ...plain, days: 3 })],
  ["--rejected", () => observe(config(), { rejected: "file" })],
  ["--since", () => openCommand(dir, { ...opened, since: "file" })],
  ["--witness-key", () => exportCommand(dir, join(dir, "out"), { what: "index", witnessKey: "w" })],
];
test.each(CASES)("%s", async (option, run) => {
  const error = await run().then(
    () => null,
    (one: Error) => one,
  );
  expect([exitNameOf(error), error?.message]).toEqual(["usage", expect.stringContaining(option)]);
});

test("--overlap-days of a date in the place of days: the keyring is as it was", () => {
  ensureKeys(dir, new Date("2026-01-01T00:00:00Z"));
  const { keys } = foldersOf(dir);
  const before = readRing(keys);
  for (const overlapDays of [3_651, 20_261_231, 99_999_999_999])
    expect(() => rotateKeys(config(), "cards", { overlapDays })).toThrow("--overlap-days: at most 3650");
  expect(readRing(keys)).toEqual(before);
});
