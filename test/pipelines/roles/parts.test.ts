import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { FixedClock, systemClock } from "../../../infra/clock.ts";
import { ConfigError, loadConfig } from "../../../infra/config.ts";
import { whyNotBindable } from "../../../infra/egress/address.ts";
import { loadKeys, rotateKey } from "../../../infra/keys/keys.ts";
import { openDirectoryStore } from "../../../infra/store/directory.ts";
import { originOf } from "../../../infra/tree/checkpoint.ts";
import { EMPTY_ROOT } from "../../../infra/tree/hash.ts";
import { FollowedRecord } from "../../../pipelines/4-publish/followed.ts";
import { checkpointKeys, publishCheckpoint } from "../../../pipelines/4-publish/tree-head.ts";
import { ensureKeys, foldersOf } from "../../../pipelines/roles/data-folder.ts";
import { createTrustReader, openParts } from "../../../pipelines/roles/parts.ts";

let dir: string;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "parts-"));
  ensureKeys(dir, new Date());
});
afterAll(() => rm(dir, { recursive: true, force: true }));

const open = (known: string[], blind: string[]) => {
  const env = {
    TOUCHSTONE_DATA_DIR: dir,
    TOUCHSTONE_OBSERVE_KNOWN_ADDRESSES: JSON.stringify(known),
    TOUCHSTONE_OBSERVE_BLIND_ADDRESSES: JSON.stringify(blind),
  };
  return openParts(loadConfig(undefined, env), systemClock);
};

describe("the addresses that calls leave from", () => {
  test.each<[string, string[], string[], RegExp]>([
    [
      "not of this machine",
      ["127.0.0.1"],
      ["192.0.2.77"],
      /observe\.blind_addresses: 192\.0\.2\.77 is no address of this/,
    ],
    ["known ones too", ["192.0.2.78"], [], /observe\.known_addresses: 192\.0\.2\.78 is no address of this machine/],
    ["known and blind at once", ["127.0.0.1"], ["127.0.0.1"], /observe\.blind_addresses: 127\.0\.0\.1 would tell/],
    ["blind ones alone", [], ["127.0.0.1"], /observe\.known_addresses: to be named too/],
  ])("%s: refused at the start, by name", async (_, known, blind, says) => {
    await expect(open(known, blind)).rejects.toThrow(ConfigError);
    await expect(open(known, blind)).rejects.toThrow(says);
  });

  test("no address at all is a setting that is wrong", () => {
    expect(() => open(["eth0"], [])).toThrow(/OBSERVE_KNOWN_ADDRESSES.*expected an IP address/);
  });

  test("those of this machine, and none, are fine", async () => {
    const several = (await whyNotBindable("127.0.0.3")) === null;
    for (const [known, blind] of [[[], []], several ? [["127.0.0.2"], ["127.0.0.3"]] : [["127.0.0.1"], []]]) {
      const parts = await open(known!, blind!);
      await parts.close();
    }
  });
});

test("who follows the record trusts a log's key of a rotation since its start, also once the old one has retired", async () => {
  const config = loadConfig(undefined, { TOUCHSTONE_DATA_DIR: join(dir, "rotated") });
  const clock = new FixedClock("2026-01-01T00:00:00.000Z");
  ensureKeys(config.data_dir, clock.now());
  const store = await openDirectoryStore(join(dir, "rotated", "public"));
  const followed = new FollowedRecord(store, createTrustReader(config, clock));
  const { keys } = foldersOf(config.data_dir);
  rotateKey(keys, "log", new Date("2026-01-02T00:00:00.000Z"), new Date("2026-02-01T00:00:00.000Z"));
  clock.set("2026-02-02T00:00:00.000Z");
  const origin = originOf(config.base_url);
  const signers = checkpointKeys(origin, loadKeys(keys));
  await publishCheckpoint(store, { origin, size: 0, root: EMPTY_ROOT }, signers, clock.now(), { refresh: true });
  expect((await followed.current()).size).toBe(0);
  await store.close();
});
