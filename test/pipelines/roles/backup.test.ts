import { execFileSync } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { examine } from "../../../commands/doctor.ts";
import { exitCodeOf } from "../../../commands/exit.ts";
import { checkLog, openChain } from "../../../infra/chain/commits.ts";
import { FixedClock } from "../../../infra/clock.ts";
import { type Config, loadConfig } from "../../../infra/config.ts";
import { keysDocument, loadKeys } from "../../../infra/keys/keys.ts";
import { createPublisher } from "../../../pipelines/4-publish/publisher.ts";
import { foldersOf } from "../../../pipelines/roles/data-folder.ts";
import { openOwnerParts } from "../../../pipelines/roles/parts.ts";
import { ensureKeysFor } from "../../../pipelines/roles/record-identity.ts";

/** The copies of docs/operate.md: a small record is copied and put back by the page's own lines, whole and in parts. */
const PAGE = readFileSync(resolve(import.meta.dirname, "../../../docs/operate.md"), "utf8");
const [COPY = [], RESTORE = []] = [
  ...PAGE.slice(PAGE.indexOf("\n## Backup and restore\n"), PAGE.indexOf("\n## Upgrade\n")).matchAll(
    /^```console\n(.*?)\n```$/gms,
  ),
].map(([, block]) => block!.split("\n"));

const clock = new FixedClock("2026-11-01T00:00:00.000Z");
const LISTINGS = { topic: "listings", partition: 0 };
let dir: string;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "backup-"));
});
afterAll(() => rm(dir, { recursive: true, force: true }));

const configOf = (data: string): Config =>
  loadConfig(undefined, { TOUCHSTONE_DATA_DIR: data, TOUCHSTONE_LOG_PARTITIONS: "1", TOUCHSTONE_LOG_LEVEL: "silent" });

/** What `start` checks before it works, and what an owner's first pass checks. @returns positions of log and chain */
async function start(data: string): Promise<{ end: number; next: number }> {
  const parts = await openOwnerParts(configOf(data), clock);
  try {
    const chain = openChain(parts.privateStore, { logId: parts.log.id, ...LISTINGS });
    const { next } = await checkLog(chain, parts.log);
    return { end: (await parts.log.bounds("listings", 0)).end, next };
  } finally {
    await parts.close();
  }
}

let day = 1;
/** A service that runs: two records are committed and two publications made, so that old copies lack more than one. */
async function run(data: string): Promise<void> {
  const config = configOf(data);
  await ensureKeysFor(config, clock.now());
  const signers = loadKeys(foldersOf(config.data_dir).keys);
  const parts = await openOwnerParts(config, clock);
  const { log, privateStore, publicStore, logger, metrics } = parts;
  const made = { privateStore, publicStore, signers, clock, origin: "localhost:8402", partitions: 1, logger, metrics };
  const publisher = createPublisher(made);
  await publisher.publishKeys(keysDocument(signers.ring));
  const chain = openChain(privateStore, { logId: log.id, ...LISTINGS });
  for (let n = 0; n < 2; n++) {
    const name = `2026-12-${String(day++).padStart(2, "0")}`;
    const [{ offset } = { offset: -1 }] = await log.append([
      { ...LISTINGS, eventId: `rec_${name}`, key: "k", value: Buffer.from("{}") },
    ]);
    await chain.gap(offset, offset + 1, clock.now());
    const hash = "0".repeat(64);
    await publisher.publishSchedule({ day: name, salt_hash: hash, covered_root: hash, covered: 0 });
  }
  await parts.close();
}

/** Types lines of the page, over a folder of this test. `systemctl` is the caller's. */
async function type(lines: readonly string[], at: string): Promise<void> {
  for (const line of lines) {
    const [, ...words] = line
      .split(" ")
      .map((word) => word.replace(/^\/var\/lib\/touchstone/, `${at}/data`).replace(/^\/backup/, at));
    if (words.includes("doctor")) {
      const broken = (await examine(configOf(`${at}/data`), "own")).filter(({ standing }) => standing === "broken");
      expect(broken.filter(({ name }) => name === "record" || name === "log")).toEqual([]);
    } else if (words[0] !== "systemctl") execFileSync(words[0]!, words.slice(1));
  }
}

test("the page's copy of a stopped service is accepted when it is put back by the page", async () => {
  expect([COPY.length, RESTORE.length]).toEqual([3, 5]);
  const at = mkdtempSync(join(dir, "page-"));
  await run(`${at}/data`);
  const before = await start(`${at}/data`);
  await type(COPY, at);
  await run(`${at}/data`);
  await type(RESTORE, at);
  expect(await start(`${at}/data`)).toEqual(before);
  await run(`${at}/data`);
  expect(await start(`${at}/data`)).toEqual({ end: 4, next: 4 });
});

describe("parts of two moments", () => {
  const cases = [
    [["log"], /ends at 2, 4 was reached already/],
    [["private"], /private store is older/],
    [["public"], /public store is older/],
    [["log", "private"], /private store is older/],
    [["private", "public"], null],
  ] as const;
  let at: string;
  beforeAll(async () => {
    at = mkdtempSync(join(dir, "parts-"));
    await run(`${at}/data`);
    cpSync(`${at}/data`, `${at}/older`, { recursive: true });
    await run(`${at}/data`);
  });

  test.each(cases)("older: %s", async (parts, why) => {
    const data = mkdtempSync(join(at, "case-"));
    cpSync(`${at}/data`, data, { recursive: true });
    for (const part of parts) {
      await rm(join(data, part), { recursive: true });
      cpSync(join(at, "older", part), join(data, part), { recursive: true });
    }
    const started = await start(data).catch((error: Error) => error);
    if (why === null) expect(started).toEqual({ end: 4, next: 2 });
    else {
      expect((started as Error).message).toMatch(why);
      expect(exitCodeOf(started)).toBe(7);
    }
  });
});
