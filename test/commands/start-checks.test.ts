import { mkdirSync, unlinkSync } from "node:fs";
import fs, { mkdtemp, rm } from "node:fs/promises";
import { syncBuiltinESMExports } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, type MockInstance, test, vi } from "vitest";
import { checkAtStart } from "../../commands/doctor.ts";
import { exitNameOf } from "../../commands/exit.ts";
import { keyFindings, type Role } from "../../commands/findings/machine.ts";
import { type Config, loadConfig } from "../../infra/config.ts";
import { ensureKeys, foldersOf } from "../../pipelines/roles/data-folder.ts";

/** What a role checks before it opens anything: the room on its disk, and the keys that it needs. */
let freeBytes = 0;
let statfs: MockInstance;
const GIB = 2 ** 30;
let dir: string;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "start-checks-"));
  freeBytes = 100 * GIB;
  const answer = async () => ({ bavail: freeBytes / 4_096, bsize: 4_096 });
  statfs = vi.spyOn(fs, "statfs").mockImplementation(answer as unknown as typeof fs.statfs);
  // The named export that the checks import follows the module's object only then.
  syncBuiltinESMExports();
});
afterEach(async () => {
  statfs.mockRestore();
  syncBuiltinESMExports();
  await rm(dir, { recursive: true, force: true });
});

const configOf = (env: NodeJS.ProcessEnv = {}): Config =>
  loadConfig(undefined, {
    ...{ TOUCHSTONE_DATA_DIR: dir, TOUCHSTONE_LOG_LEVEL: "silent", TOUCHSTONE_CHAIN_RPC_URL: "http://127.0.0.1:1" },
    ...{ TOUCHSTONE_CONTROL_URLS: '["https://one.example/","https://two.example/"]', ...env },
  });

/** Name of the exit code of a start, and what it printed on stderr. */
async function startOf(role: Role, config = configOf()): Promise<[exit: string, said: string]> {
  const written = vi.spyOn(process.stderr, "write").mockReturnValue(true);
  try {
    const exit = await checkAtStart(config, role).then(() => "ok", exitNameOf);
    return [exit, written.mock.calls.map(([text]) => String(text)).join("")];
  } finally {
    written.mockRestore();
  }
}

describe.each<Role>(["start", "observe", "own", "publish", "serve"])("%s", (role) => {
  test.each([
    [100 * GIB, "ok", null],
    // A running process goes on with this much, so one that was killed starts again.
    [0.6 * GIB, "ok", /warning: disk: 0\.6 GiB free/],
    [65 * 2 ** 20, "ok", /warning: disk: 0\.1 GiB free/],
    // systemd tries again after this code, and the role starts once there is room.
    [63 * 2 ** 20, "storage", null],
  ])("starts with %d free bytes: %s", async (bytes, exit, says) => {
    freeBytes = bytes;
    const [ended, said] = await startOf(role);
    expect(ended).toBe(exit);
    if (says) expect(said).toMatch(says);
  });
});

test("a wrong setting is a wrong setting, also on a full disk", async () => {
  freeBytes = 0;
  const config = configOf({ TOUCHSTONE_CONTROL_URLS: "[]" });
  expect((await startOf("start", config))[0]).toBe("usage");
});

test("a serving process needs the observer's secret only where it sells", async () => {
  mkdirSync(dir, { recursive: true });
  ensureKeys(dir, new Date("2026-01-01T00:00:00Z"));
  unlinkSync(join(foldersOf(dir).keys, "observer.secret"));
  const selling = configOf({ TOUCHSTONE_SELL_NETWORK: "eip155:84532" });
  expect(await keyFindings(configOf(), "serve")).toMatchObject([{ standing: "ok" }]);
  expect(await keyFindings(selling, "publish")).toMatchObject([{ standing: "ok" }]);
  await expect(keyFindings(selling, "serve")).rejects.toMatchObject({ code: "keys", message: /observer\.secret/ });
});
