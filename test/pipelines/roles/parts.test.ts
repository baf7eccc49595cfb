import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { systemClock } from "../../../infra/clock.ts";
import { ConfigError, loadConfig } from "../../../infra/config.ts";
import { whyNotBindable } from "../../../infra/egress/address.ts";
import { makeKeys } from "../../../pipelines/roles/data-folder.ts";
import { openParts } from "../../../pipelines/roles/parts.ts";

let dir: string;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "parts-"));
  makeKeys(dir, new Date());
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
