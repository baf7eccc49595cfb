import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { compress } from "zstd-napi";
import { canonicalBytes, sha256hex } from "../../../infra/canonical.ts";
import { recompute } from "../../../pipelines/audit/recompute.ts";
import { exportIndex, openHintedIndex } from "../../../pipelines/mirror/export-index.ts";
import { gradeRows, readLeaves } from "../../../pipelines/mirror/export-record.ts";
import { Unproven } from "../../../pipelines/published/errors.ts";
import { shardKey } from "../../../pipelines/published/objects.ts";
import { ForgedRecord } from "../audit/forged.ts";

/** Leaves and lists that a log has signed and no reader can use are faults of the record, and not of the reader. */

const AT = "2026-10-05T00:00:00.000Z";
let dir: string;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "malformed-"));
});
afterAll(() => rm(dir, { recursive: true, force: true }));

const recordOf = async (record: ForgedRecord) => {
  const { source, head } = await record.open();
  return { source, head, origin: head.origin, asOf: null };
};
const recomputeAll = async (record: ForgedRecord) => {
  const { source, head } = await record.open();
  return recompute(source, head, "all", () => undefined);
};
const drain = async (rows: AsyncIterable<unknown>) => {
  for await (const _ of rows);
};

describe("a proven leaf that is malformed ends a reader as a fault of the record:", () => {
  test("no JSON with its index", async () => {
    for (const written of ["null", "5", '"text"', "{", '{"kind":"grade"}']) {
      const record = new ForgedRecord();
      const entries = [canonicalBytes(record.leaves[0]!), Buffer.from(written)];
      const { source, head } = await record.open(entries);
      const own = { source, head, origin: head.origin, asOf: null };
      await expect(recompute(source, head, "all", () => undefined)).rejects.toThrow(Unproven);
      await expect(readLeaves(own)).rejects.toThrow("leaf 1 does not hold: expected JSON with its index");
    }
  });

  test.each([
    ["grade", {}],
    ["grade", { card: {} }],
    ["listing", {}],
    ["correction", {}],
    ["evidence", {}],
  ])("a %s leaf of %j, for recompute", async (kind, members) => {
    const record = new ForgedRecord();
    record.add({ kind, at: AT, ...members });
    await expect(recomputeAll(record)).rejects.toThrow(Unproven);
    await expect(recomputeAll(record)).rejects.toThrow("leaf 1");
  });

  test.each([
    ["grade", { card: null }],
    ["listing", { url: 5 }],
  ])("a %s leaf of %j, for export", async (kind, members) => {
    const record = new ForgedRecord();
    record.add({ kind, at: AT, ...members });
    const own = await recordOf(record);
    await expect(drain(gradeRows(own))).rejects.toThrow(Unproven);
  });

  test("an index without members, for export", async () => {
    const record = new ForgedRecord();
    record.add({ kind: "index", at: AT });
    record.objects.set("hint/index.json", canonicalBytes({ leaf: 1 }));
    await expect(recordOf(record).then(openHintedIndex)).rejects.toThrow(Unproven);
  });
});

test.each([
  ["is no list of shards", "no list", '{"shards":5}'],
  ["names a shard whose line is no JSON", "{", null],
  ["names a shard whose line has no members", '{"url":5}', null],
])("a proven list that %s ends an export as a fault of the record", async (_, line, otherList) => {
  const record = new ForgedRecord();
  const text = Buffer.from(`${line}\n`);
  const shard = { sha256: sha256hex(text), lines: 1, bytes: text.length };
  record.objects.set(shardKey(shard.sha256), compress(text));
  const list = otherList ? Buffer.from(otherList) : canonicalBytes({ tree_size: 1, computed_at: AT, shards: [shard] });
  record.objects.set("index/1.json", list);
  record.objects.set("hint/index.json", canonicalBytes({ leaf: 1 }));
  const named = { key: "index/1.json", sha256: sha256hex(list), bytes: list.length, tree_size: 1 };
  record.add({ kind: "index", at: AT, ...named });
  const own = await recordOf(record);
  const exported = async () => exportIndex(await openHintedIndex(own), join(dir, "out.parquet"));
  await expect(exported()).rejects.toThrow(Unproven);
});
