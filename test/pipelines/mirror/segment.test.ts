import { beforeAll, expect, it } from "vitest";
import { compress, decompress } from "zstd-napi";
import { FixedClock } from "../../../infra/clock.ts";
import { EMPTY_TREE, growTree } from "../../../pipelines/4-publish/live.ts";
import { writeTree } from "../../../pipelines/4-publish/recover.ts";
import { mirrorOnce } from "../../../pipelines/mirror/mirror.ts";
import type { Source } from "../../../pipelines/published/source.ts";
import { drawn, SEED } from "../../helpers/drawn.ts";
import { NOW, PublicRecord } from "../../helpers/public-record.ts";
import { LIES, type Lie, LyingSource } from "./lies.ts";
import { MemoryStore } from "./memory-store.ts";
import { keysOf } from "./testbed.ts";

const SIZE = 65_539;
const entries = Array.from({ length: SIZE }, (_, i) =>
  Buffer.from(`{"at":"${NOW}","capability_id":"c","index":${i},"kind":"delisting","seq":${i}}`),
);
const SEGMENT = "segment/0.ndjson.zst";
const theirs = new MemoryStore();
let given: { log: string; witness: string };

beforeAll(async () => {
  const record = await PublicRecord.open();
  await record.close();
  given = keysOf(record);
  const grown = growTree(EMPTY_TREE, entries);
  await writeTree(theirs, grown);
  await theirs.create("checkpoint", record.note({ size: SIZE, root: grown.live.tree.root() }));
});

const honest: Source = {
  name: "memory",
  get: async (key) => (await theirs.get(key))?.bytes ?? null,
  close: async () => undefined,
};
const mirrored = async (source: Source, publicStore = new MemoryStore()) => {
  const stateStore = new MemoryStore();
  const run = mirrorOnce({ source, publicStore, stateStore, clock: new FixedClock(NOW), keys: given });
  return { run, publicStore };
};

it.each([
  ["copies the segment of 65,536 leaves instead of its bundles, and makes those", true],
  ["makes the segment from the bundles that it proved where the source has none", false],
])("%s", async (_, has) => {
  const asked: string[] = [];
  const get: Source["get"] = async (key, maxBytes) => {
    asked.push(key);
    return key === SEGMENT && !has ? null : honest.get(key, maxBytes);
  };
  const { run, publicStore } = await mirrored({ ...honest, get });
  expect(await run).toMatchObject({ result: "synced", tree_size: SIZE, fetched: has ? 2 : 257, missing: [] });
  expect(asked.filter((key) => key.startsWith("tile/entries/"))).toHaveLength(has ? 1 : 257);
  const segment = decompress((await publicStore.get(SEGMENT))!.bytes);
  const lines = entries.slice(0, 65_536).flatMap((entry) => [entry, Buffer.from("\n")]);
  expect(segment.equals(Buffer.concat(lines))).toBe(true);
  const ours = [...publicStore.objects.keys()].sort();
  expect(ours).toEqual([...theirs.objects.keys()].sort());
  for (const key of ours) {
    const [own, copy] = [theirs.objects.get(key)!, publicStore.objects.get(key)!].map(({ bytes }) => bytes);
    expect([key, Buffer.compare(own!, copy!)]).toEqual([key, 0]);
  }
});

it.each([
  ["fetched again", true],
  ["made again", false],
])("a segment and a tile that power tore before an earlier run committed are %s", async (_, has) => {
  const torn = new MemoryStore();
  for (const key of [SEGMENT, "tile/0/007"]) {
    const { bytes } = (await theirs.get(key))!;
    await torn.create(key, bytes.subarray(0, bytes.length / 2));
  }
  const get: Source["get"] = async (key, maxBytes) => (key === SEGMENT && !has ? null : honest.get(key, maxBytes));
  const { run, publicStore } = await mirrored({ ...honest, get }, torn);
  expect(await run).toMatchObject({ result: "synced", tree_size: SIZE, missing: [] });
  for (const key of theirs.objects.keys())
    expect([key, Buffer.compare((await publicStore.get(key))!.bytes, (await theirs.get(key))!.bytes)]).toEqual([
      key,
      0,
    ]);
});

const draw = drawn(SEED);
const lies = (Object.keys(LIES) as Lie[]).filter((lie) => lie !== "missing");
it.each(lies)(`a segment, %s: nothing of it is exposed, and it is named (seed ${SEED})`, async (lie) => {
  const { run, publicStore } = await mirrored(new LyingSource(honest, SEGMENT, lie, draw()));
  const done = await run.then(
    () => null,
    (error: Error) => error,
  );
  if (done === null) {
    // A flipped bit that changes nothing of the leaves: they are proven all the same.
    expect(lie).toBe("tampered");
    return;
  }
  expect(done.message).toContain(SEGMENT);
  expect([...publicStore.objects.keys()]).toEqual([]);
});

const stack = (count: number, packedWith: (text: string) => Buffer) =>
  packedWith(
    entries
      .slice(0, count)
      .map((entry) => `${entry.toString()}\n`)
      .join(""),
  );
it.each<[string, () => Buffer, RegExp]>([
  ["a line less", () => stack(65_535, (text) => compress(Buffer.from(text))), /65535 lines/],
  ["a line more", () => stack(65_537, (text) => compress(Buffer.from(text))), /more than 65536 lines/],
  ["its last newline gone", () => stack(65_536, (text) => compress(Buffer.from(text.trimEnd()))), /within a line/],
  [
    "one leaf changed",
    () => stack(65_536, (text) => compress(Buffer.from(text.replace('"seq":7}', '"seq":8}')))),
    /got [0-9a-f]{64}/,
  ],
  ["zeros without end", () => compress(Buffer.alloc(300_000_000)), /a line of more than 65535 bytes/],
  [
    "two frames",
    () => stack(65_536, (text) => Buffer.concat([compress(Buffer.from(text)), compress(Buffer.from(""))])),
    /after the end/,
  ],
])("a segment with %s is refused", async (_, bytes, says) => {
  const told = bytes();
  const get: Source["get"] = async (key, maxBytes) => (key === SEGMENT ? told : honest.get(key, maxBytes));
  const { run, publicStore } = await mirrored({ ...honest, get });
  await expect(run).rejects.toThrow(says);
  expect([...publicStore.objects.keys()]).toEqual([]);
});
