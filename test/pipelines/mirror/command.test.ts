import { spawnSync } from "node:child_process";
import { cp, mkdtemp, rm, unlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, expect, it } from "vitest";
import { EXIT } from "../../../commands/exit.ts";
import { PublicRecord } from "../../helpers/public-record.ts";
import { keysOf, publishAll, sourceDir } from "./bed.ts";

const ROOT = fileURLToPath(new URL("../../..", import.meta.url));
let record: PublicRecord;
let dir: string;
beforeAll(async () => {
  record = await PublicRecord.open();
  await publishAll(record, "a", 10);
  dir = await mkdtemp(join(tmpdir(), "mirror-command-"));
});
afterAll(async () => {
  await record.close();
  await rm(dir, { recursive: true, force: true });
});

const mirror = (source: string) => {
  const { log, witness } = keysOf(record);
  const keys = ["--log-key", log, "--witness-key", witness, "--max-age", "0", "--json"];
  const argv = ["--import", "tsx", "touchstone.ts", "mirror", source, join(dir, "copy"), ...keys];
  const { status, stdout, stderr } = spawnSync(process.execPath, argv, { cwd: ROOT, encoding: "utf8" });
  return { status, stderr, said: stdout ? (JSON.parse(stdout) as Record<string, unknown>) : null };
};

it("ends with a code of its own while something is missing, and says what; with 0 once it is there", async () => {
  const lacking = join(dir, "lacking");
  await cp(sourceDir(record), lacking, { recursive: true });
  const key = record.committer.fold.index!.key;
  await unlink(join(lacking, key));
  const { size } = record.committer.fold;
  for (const tries of [1, 2]) {
    const { status, stderr, said } = mirror(lacking);
    expect([status, stderr]).toEqual([
      EXIT.missing,
      expect.stringContaining(`1 objects are missing, ${key} first: none`),
    ]);
    expect(said).toMatchObject({ size, missing: [{ key, expected: "an object", got: "none", tries }] });
  }
  expect(mirror(sourceDir(record))).toMatchObject({ status: EXIT.ok, said: { result: "idle", size, missing: [] } });
});
