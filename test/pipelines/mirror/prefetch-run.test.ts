import { beforeAll, describe, expect, it } from "vitest";
import { canonicalBytes } from "../../../infra/canonical.ts";
import { FixedClock } from "../../../infra/clock.ts";
import { SEGMENT_LEAVES } from "../../../infra/tree/path.ts";
import { EMPTY_LIVE, grow } from "../../../pipelines/4-publish/live.ts";
import { writeTree } from "../../../pipelines/4-publish/recover.ts";
import { mirrorOnce } from "../../../pipelines/mirror/mirror.ts";
import { SourceDown } from "../../../pipelines/published/errors.ts";
import { RecordReader, readCheckpoint } from "../../../pipelines/published/reader.ts";
import type { Source } from "../../../pipelines/published/source.ts";
import { NOW, PublicRecord } from "../../helpers/public-record.ts";
import { keysOf, publishAll } from "./bed.ts";
import { MemoryStore } from "./memory-store.ts";

/** A real record of keys, listings, cards and an index, and so many leaves behind it that there is a segment and a tail. */
const SIZE = SEGMENT_LEAVES + 700;
const theirs = new MemoryStore();
let given: { log: string; witness: string };
let list: string;
let shards: string[];

beforeAll(async () => {
  const record = await PublicRecord.open();
  await publishAll(record, "a", 20);
  const { size, root } = (await readCheckpoint(record.store, record.trust))!;
  const reader = await RecordReader.open(record.store, { size, root });
  const real = await reader.entries(0);
  const filler = (index: number) =>
    Buffer.from(`{"at":"${NOW}","capability_id":"c","index":${index},"kind":"delisting","seq":${index}}`);
  const entries = [...real, ...Array.from({ length: SIZE - size }, (_, i) => filler(size + i))];
  const grown = grow(EMPTY_LIVE, entries);
  await writeTree(theirs, grown);
  for (const prefix of ["keys/", "index/", "hint/"])
    for (const { key } of await record.store.list(prefix))
      await theirs.create(key, (await record.store.get(key))!.bytes);
  given = keysOf(record);
  await theirs.create("checkpoint", record.note({ size: SIZE, root: grown.live.tree.root() }));
  list = [...theirs.objects.keys()].find((key) => /^index\/\d+\.json$/.test(key))!;
  shards = [...theirs.objects.keys()].filter((key) => key.startsWith("index/shard/"));
  await record.close();
});

/** What a source far away shows; `says` may change the nth answer for a key. */
function far(says: (key: string, n: number, whole: Uint8Array | null) => Uint8Array | null = (_, __, whole) => whole) {
  const asked: string[] = [];
  const source: Source = {
    name: "far",
    distant: true,
    get: async (key) => {
      const n = asked.filter((one) => one === key).length;
      asked.push(key);
      return says(key, n, (await theirs.get(key))?.bytes ?? null);
    },
    close: async () => undefined,
  };
  return { source, asked };
}

async function mirrored(source: Source) {
  const [publicStore, stateStore] = [new MemoryStore(), new MemoryStore()];
  const done = await mirrorOnce({ source, publicStore, stateStore, clock: new FixedClock(NOW), keys: given });
  return { done, publicStore };
}

const copied = (store: MemoryStore) =>
  [...store.objects].map(([key, { bytes }]) => [key, Buffer.from(bytes).toString("base64")]).sort();

describe("a source far away", () => {
  it("is asked for tail, index and shards while the segment comes, each once, and the copy is the same", async () => {
    const { source, asked } = far();
    const { done, publicStore } = await mirrored(source);
    expect(done).toMatchObject({ result: "synced", size: SIZE, missing: [] });
    expect(copied(publicStore)).toEqual(copied(theirs));
    expect(asked.length).toBe(new Set(asked).size);
    expect(asked.filter((key) => key.startsWith("tile/entries/"))).toHaveLength(3);
    expect(asked).toContain(shards[0]);
    // The index is asked for before the keys document of the first leaf: nothing of the segment was read then.
    expect(asked.indexOf(list)).toBeLessThan(asked.findIndex((key) => key.startsWith("keys/")));
  });

  const hint = (of: object) => canonicalBytes(of);
  it.each<[string, () => Uint8Array | null]>([
    ["is missing", () => null],
    ["is no JSON", () => Buffer.from("{")],
    ["names what is no list", () => hint({ tree_size: 3, key: "checkpoint", leaf: 2 })],
    ["names a folder above", () => hint({ tree_size: 3, key: "../index/3.json", leaf: 2 })],
    ["names a list that is missing", () => hint({ tree_size: 3, key: "index/999.json", leaf: 2 })],
    ["names a shard as the list", () => hint({ tree_size: 3, key: shards[0], leaf: 2 })],
  ])("whose hint %s costs nothing but time", async (_, says) => {
    const { source } = far((key, _, whole) => (key === "hint/index.json" ? says() : whole));
    const { done, publicStore } = await mirrored(source);
    expect(done).toMatchObject({ result: "synced", size: SIZE, missing: [] });
    expect(copied(publicStore)).toEqual(copied(theirs));
  });

  it("whose hint leads to a list of others' shards: none of them is exposed, and all that leaves name is", async () => {
    const strange = "f".repeat(64);
    const lie = canonicalBytes({
      tree_size: 9,
      computed_at: NOW,
      shards: Array.from({ length: 200 }, (_, i) => ({
        sha256: `${String(i).padStart(3, "0")}${strange.slice(3)}`,
        lines: 1,
        bytes: 100,
      })),
    });
    const { source, asked } = far((key, _, whole) => {
      if (key === "hint/index.json") return canonicalBytes({ tree_size: 9, key: "index/9999.json", leaf: 2 });
      if (key === "index/9999.json") return lie;
      return key.startsWith("index/shard/") && !whole ? Buffer.from("strange") : whole;
    });
    const { done, publicStore } = await mirrored(source);
    expect(asked.some((key) => key.endsWith(`${strange.slice(3)}.ndjson.zst`))).toBe(true);
    expect(done).toMatchObject({ result: "synced", missing: [] });
    expect(copied(publicStore)).toEqual(copied(theirs));
  });

  it.each<[string, RegExp]>([
    ["the tail", /^tile\/entries\/257/],
    ["the hint", /^hint/],
    ["the list", /^index\/\d/],
    ["a shard", /^index\/shard/],
  ])("that fails once where it is asked early, for %s, is asked again", async (_, pattern) => {
    const { source } = far((key, n, whole) => {
      if (n === 0 && pattern.test(key)) throw new SourceDown("far", key, "silence");
      return whole;
    });
    const { done, publicStore } = await mirrored(source);
    expect(done).toMatchObject({ result: "synced", size: SIZE, missing: [] });
    expect(copied(publicStore)).toEqual(copied(theirs));
  });

  it("that lies in a shard, early or not: it is missing, and not exposed", async () => {
    const { source } = far((key, _, whole) => (key === shards[0] ? Buffer.from("a lie") : whole));
    const { done, publicStore } = await mirrored(source);
    expect(done.missing.map(({ key }) => key)).toEqual([shards[0]]);
    expect(publicStore.objects.has(shards[0]!)).toBe(false);
  });

  it("that lies in the tail: nothing is served, and the bundle is named", async () => {
    const { source } = far((key, _, whole) => (/^tile\/entries\/257/.test(key) ? Buffer.from("a lie") : whole));
    await expect(mirrored(source)).rejects.toThrow("tile/entries/257");
  });
});
