import { copyFileSync, existsSync, mkdirSync, readdirSync, statSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { archive } from "../../commands/archive.ts";
import { budget } from "../../commands/budget.ts";
import { exitNameOf } from "../../commands/exit.ts";
import { withParts, withRecord } from "../../commands/opening.ts";
import { showPlan } from "../../commands/plan.ts";
import { importCommand } from "../../commands/register.ts";
import { withRoles } from "../../commands/roles.ts";
import { type Config, loadConfig } from "../../infra/config.ts";
import { ringPath } from "../../infra/keys/keys.ts";
import { ensureKeys, foldersOf } from "../../pipelines/roles/data-folder.ts";

/** What a command makes in a data folder that has no record, or not the keys that it needs. */
let dir: string;
let data: string;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "opening-"));
  data = join(dir, "data");
});
afterEach(() => rm(dir, { recursive: true, force: true }));

const configOf = (env: NodeJS.ProcessEnv = {}): Config =>
  loadConfig(undefined, { TOUCHSTONE_DATA_DIR: data, TOUCHSTONE_LOG_LEVEL: "silent", ...env });

/** Name of the exit code with which the work ends. */
const exitOf = (work: Promise<unknown>): Promise<string> => work.then(() => "ok", exitNameOf);

describe("a machine of a cluster", () => {
  // What opens the stores is stopped by credentials that are missing here; what needs private keys, by those before.
  test.each<[string, string, (config: Config) => Promise<unknown>]>([
    ["plan show", "storage", (config) => showPlan(config, "2026-11-21", {})],
    ["ingest, redrive, gap accept, listings add", "storage", (config) => withParts(config, async () => undefined)],
    ["correct, reinstate, dispute, listings remove", "storage", (config) => withRecord(config, async () => undefined)],
    ["archive", "keys", (config) => archive(config, { once: true })],
    ["start", "keys", (config) => withRoles(config, async () => undefined)],
  ])("%s with an observer's keys ends with %s, and makes no secret", async (_, exit, run) => {
    const made = join(dir, "made");
    ensureKeys(made, new Date("2026-11-01T00:00:00Z"));
    const { keys } = foldersOf(data);
    mkdirSync(keys, { recursive: true, mode: 0o700 });
    copyFileSync(ringPath(foldersOf(made).keys), ringPath(keys));
    copyFileSync(join(foldersOf(made).keys, "observer.secret"), join(keys, "observer.secret"));
    const env = {
      ...{ TOUCHSTONE_LOG: "kafka://127.0.0.1:1/t", TOUCHSTONE_STORES_PRIVATE: "s3://no-credentials" },
      TOUCHSTONE_CHAIN_RPC_URL: "http://127.0.0.1:1",
    };
    expect(await exitOf(run(configOf(env)))).toBe(exit);
    expect(readdirSync(keys).sort()).toEqual(["keyring.json", "observer.secret"]);
  });
});

describe("one machine", () => {
  test.each<[string, (config: Config) => Promise<unknown>]>([
    ["budget", (config) => budget(config, { all: false })],
    ["plan show", (config) => showPlan(config, "2026-11-21", {})],
  ])("%s makes nothing beside the wallets of a folder without a record", async (_, run) => {
    mkdirSync(foldersOf(data).wallets, { recursive: true, mode: 0o700 });
    expect(await exitOf(run(configOf()))).toBe("keys");
    expect(readdirSync(data)).toEqual(["wallets"]);
  });

  test("register import makes no data folder for a file that is not there", async () => {
    expect(await exitOf(importCommand(configOf(), join(dir, "none.csv"), {}))).toBe("unreadable");
    expect(existsSync(data)).toBe(false);
  });
});

test.each(["ENOSPC", "EDQUOT", "SQLITE_FULL"])("a write that fails with %s ends as a full disk", (code) => {
  expect(exitNameOf(Object.assign(new Error("no space left on device, write"), { code }))).toBe("storage");
});

test("a folder that has its keys is not written in, so a full disk does not matter", () => {
  ensureKeys(data, new Date("2026-11-01T00:00:00Z"));
  const { keys } = foldersOf(data);
  const { mtimeNs } = statSync(keys, { bigint: true });
  expect(ensureKeys(data, new Date("2026-11-02T00:00:00Z"))).toBe(false);
  expect(statSync(keys, { bigint: true }).mtimeNs).toBe(mtimeNs);
});
