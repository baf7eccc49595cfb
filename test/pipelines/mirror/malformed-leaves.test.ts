import { afterEach, expect, test } from "vitest";
import type { MirrorOptions } from "../../../pipelines/mirror/run.ts";
import { Unproven } from "../../../pipelines/published/errors.ts";
import { ForgedRecord, paidLine } from "../audit/forged.ts";
import { Mirror } from "./testbed.ts";

/** What a log signs and proves, but no reader can use: its own fault, and never one of the mirror. */

const AT = "2026-10-05T00:00:00.000Z";
const opened: Mirror[] = [];
afterEach(async () => {
  for (const one of opened.splice(0)) await one.close();
});

const OPTIONS: Partial<MirrorOptions> = { maxAgeSeconds: 0 };

async function mirrored(record: ForgedRecord) {
  const mirror = await Mirror.open();
  opened.push(mirror);
  mirror.clock.set(new Date().toISOString());
  await mirror.run((await record.open()).source, OPTIONS);
  return mirror;
}

const HASH = "ab".repeat(32);
test.each([
  ["an index without a key", { kind: "index", at: AT, sha256: HASH, bytes: 10, tree_size: 1 }],
  [
    "an index whose size is a text",
    { kind: "index", at: AT, key: "index/1.json", sha256: HASH, bytes: 10, tree_size: "1" },
  ],
  [
    "an index of a table without a key",
    { ...{ kind: "index", at: AT, key: "index/1.json", sha256: HASH, bytes: 10 }, tree_size: 1, table: {} },
  ],
  ["keys without a key", { kind: "keys", at: AT, n: 1, sha256: HASH, bytes: 10 }],
  ["evidence without members", { kind: "evidence", at: AT }],
  ["an archive without a manifest", { kind: "archive", at: AT }],
])("%s: the old snapshot stays, and each later run says which leaf it is", async (_, leaf) => {
  const record = new ForgedRecord();
  const mirror = await mirrored(record);
  const before = Buffer.from((await mirror.publicStore.get("checkpoint"))!.bytes);
  record.add(leaf);
  const { source } = await record.open();
  for (let run = 0; run < 2; run++) {
    await expect(mirror.run(source, OPTIONS)).rejects.toThrow(Unproven);
    await expect(mirror.run(source, OPTIONS)).rejects.toThrow("leaf 1");
  }
  expect(Buffer.from((await mirror.publicStore.get("checkpoint"))!.bytes)).toEqual(before);
});

test("a published call of a negative length is missing, and later runs ask for it again", async () => {
  const record = new ForgedRecord();
  const call = { kind: 2, request_sha256: HASH, request_bytes: -1 } as never;
  await record.close("2026-10-05", "2026-10-06T00:00:00.000Z", [paidLine(0, call)]);
  const mirror = await mirrored(record);
  const { source } = await record.open();
  const again = await mirror.run(source, OPTIONS);
  expect(again.missing).toMatchObject([{ key: `call/${HASH}.zst`, got: "-1", tries: 2 }]);
});
