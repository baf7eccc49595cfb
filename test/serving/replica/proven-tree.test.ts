import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { SourceDown } from "../../../pipelines/published/errors.ts";
import type { Source } from "../../../pipelines/published/source.ts";
import { ProvenTree } from "../../../serving/replica/proven-tree.ts";
import { ORIGIN, PublicRecord } from "../../helpers/public-record.ts";
import { grow, keysOf, publishAll, sourceDir, WatchedSource } from "../../pipelines/mirror/testbed.ts";

let record: PublicRecord;
let dir: string;
let opened: ProvenTree[];

beforeEach(async () => {
  record = await PublicRecord.open();
  await publishAll(record, "a", 40);
  dir = await mkdtemp(join(tmpdir(), "replica-"));
  opened = [];
});
afterEach(async () => {
  for (const tree of opened) await tree.close();
  await record.close();
  await rm(dir, { recursive: true, force: true });
});

async function replica(source: Source = new WatchedSource(sourceDir(record)), origin = ORIGIN): Promise<ProvenTree> {
  const { clock, logger, metrics } = record;
  const tree = await ProvenTree.open({ source, dir, origin, keys: keysOf(record), clock, logger, metrics });
  opened.push(tree);
  return tree;
}
const down: Source = {
  name: "down",
  get: (key) => Promise.reject(new SourceDown("down", key, "refused")),
  close: async () => undefined,
};
const close = async (tree: ProvenTree) => {
  opened = opened.filter((one) => one !== tree);
  await tree.close();
};

test("follows its source, and serves the keys that the record names", async () => {
  const tree = await replica();
  const first = await tree.newest();
  expect(first!.head.size).toBe(record.committer.fold.size);
  expect(tree.jwks!.keys.map(({ kid }) => kid).sort()).toEqual(record.jwks.keys.map(({ kid }) => kid).sort());
  await grow(record, "b", 10);
  const second = await tree.newest();
  expect(second!.head.size).toBe(record.committer.fold.size);
  expect(await second!.reader.extends(first!.head)).toBe(true);
});

test("of two in one folder one copies; when it is gone the other does", async () => {
  const [kept, waits] = [new WatchedSource(sourceDir(record)), new WatchedSource(sourceDir(record))];
  const one = await replica(kept);
  const two = await replica(waits);
  await one.newest();
  await two.newest();
  expect(waits.asked).toEqual([]);
  await grow(record, "b", 10);
  const before = (await two.newest())!.head.size;
  await one.newest();
  expect((await two.newest())!.head.size).toBe(record.committer.fold.size);
  expect(before).toBeLessThan(record.committer.fold.size);
  await close(one);
  await grow(record, "c", 10);
  expect((await two.newest())!.head.size).toBe(record.committer.fold.size);
  expect(waits.asked.length).toBeGreaterThan(0);
});

test("a source that is down at the start: the copy of before answers; later it fails the look", async () => {
  await expect((await replica(down)).newest()).rejects.toThrow(SourceDown);
  await close(opened[0]!);
  const before = await replica();
  const { head } = (await before.newest())!;
  await close(before);
  const after = await replica(down);
  expect((await after.newest())!.head.size).toBe(head.size);
  await expect(after.newest()).rejects.toThrow(SourceDown);
});

test("a source that goes back, or shows another history, fails the look and changes nothing", async () => {
  const source = new WatchedSource(sourceDir(record));
  const old = (await record.store.get("checkpoint"))!.bytes;
  await grow(record, "b", 10);
  const tree = await replica(source);
  const { head } = (await tree.newest())!;
  source.shown.set("checkpoint", old);
  await expect(tree.newest()).rejects.toMatchObject({ name: "Rollback" });
  const forked = Buffer.from((await record.store.get("checkpoint"))!.bytes);
  forked[forked.length - 5]! ^= 1;
  source.shown.set("checkpoint", forked);
  await expect(tree.newest()).rejects.toMatchObject({ name: "Unproven" });
  source.shown.clear();
  expect((await tree.newest())!.head.root.equals(head.root)).toBe(true);
});

test("a record of another name than base_url says is refused", async () => {
  await expect((await replica(undefined, "other.example")).newest()).rejects.toMatchObject({ code: "usage" });
});
