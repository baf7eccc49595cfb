import { execFile } from "node:child_process";
import { resolve } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { runs } from "../helpers/programs.ts";
import { ORIGIN } from "../helpers/public-record.ts";
import { SUM, WatcherTestbed, watch } from "../helpers/watchers.ts";

const ROOT = resolve(import.meta.dirname, "../..");

let bed: WatcherTestbed;
beforeAll(async () => {
  bed = await WatcherTestbed.open();
});
afterAll(() => bed.close());

test("touchstone publish posts what is due, under the keys of its machine, and not twice", async () => {
  const receiver = await bed.receiver();
  await watch(await bed.serving(), receiver.url, [SUM.url]);
  await bed.card(SUM, { band: "F" });
  const env = {
    PATH: process.env.PATH,
    TOUCHSTONE_DATA_DIR: bed.dir,
    TOUCHSTONE_BASE_URL: `https://${ORIGIN}`,
    TOUCHSTONE_LOG_PARTITIONS: "4",
    TOUCHSTONE_ALLOW_LOOPBACK: "true",
  };
  const args = [...runs("touchstone.ts"), "publish", "--once", "--json"];
  for (let i = 0; i < 2; i++) await promisify(execFile)(process.execPath, args, { cwd: ROOT, env });
  expect(receiver.notices.map(({ body, signedBy }) => [body.change, body.to.band, signedBy])).toEqual([
    ["first", "F", ["answers", "cards"]],
  ]);
});
