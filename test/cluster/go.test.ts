import { execFileSync, spawnSync } from "node:child_process";
import { cp, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ED25519, formatVkey } from "../../infra/tree/note.ts";
import { PublicRecord } from "../helpers/public-record.ts";
import { grow, publishKeys, sourceDir } from "../pipelines/mirror/testbed.ts";

/** Go's own readers of checkpoints, tiles and proofs (golang.org/x/mod) over a store that our publisher wrote. */
let record: PublicRecord;
let dir: string;
let reader: string;

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "go-reader-"));
  reader = join(dir, "reader");
  execFileSync("go", ["build", "-o", reader, "."], { cwd: join(import.meta.dirname, "go"), stdio: "pipe" });
  record = await PublicRecord.open();
  await publishKeys(record);
  await grow(record, "a", 600);
});

afterAll(async () => {
  await record.close();
  await rm(dir, { recursive: true, force: true });
});

const read = (root: string, vkey = formatVkey(record.trust.log, ED25519)) =>
  spawnSync(reader, [root, vkey], { encoding: "utf8" });

test("every leaf and the history of the tree are verified by Go", () => {
  const { status, stdout, stderr } = read(sourceDir(record));
  expect(stderr).toBe("");
  expect(status).toBe(0);
  expect(stdout).toBe(`verified ${record.committer.fold.size} leaves of ${record.trust.log.name}\n`);
});

test("another log's key opens nothing", () => {
  const { status, stderr } = read(sourceDir(record), formatVkey(record.trust.witness!, ED25519));
  expect(status).toBe(1);
  expect(stderr).toMatch(/note|origin/);
});

test.each(["checkpoint", "tile/0/000", "tile/0/001", "tile/entries/001"])(
  "a flipped bit in %s is seen by Go",
  async (name) => {
    const copy = join(dir, name.replaceAll("/", "-"));
    await cp(sourceDir(record), copy, { recursive: true });
    const bytes = await readFile(join(copy, name));
    const at = Math.floor(bytes.length / 3);
    bytes[at] = bytes[at]! ^ 0x04;
    await writeFile(join(copy, name), bytes);
    expect(read(copy).status).toBe(1);
  },
);
