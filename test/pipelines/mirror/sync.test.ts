import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { collectPartials } from "../../../pipelines/4-publish/writes.ts";
import { MirrorBusy, Unproven } from "../../../pipelines/published/errors.ts";
import { NOW, ORIGIN, PublicRecord } from "../../helpers/public-record.ts";
import { Faults } from "../4-publish/faults.ts";
import {
  grow,
  keysOf,
  Mirror,
  publishAll,
  publishIndex,
  publishKeys,
  publishMore,
  sourceDir,
  WatchedSource,
} from "./testbed.ts";

/** 307 leaves, 614 after `more`: each step changes bundles, tiles of two levels, keys and the index. */
let record: PublicRecord;
let first: number;
/** A mirror of the first state; the record has grown since. */
let before: Mirror;
let size: number;
const opened: Mirror[] = [];
const mirror = async (like?: Mirror): Promise<Mirror> => {
  const made = await Mirror.open(like);
  opened.push(made);
  return made;
};
const source = () => new WatchedSource(sourceDir(record));

beforeAll(async () => {
  record = await PublicRecord.open();
  await publishAll(record, "a", 300);
  first = record.committer.fold.size;
  before = await Mirror.open();
  await before.run(source(), { keys: keysOf(record) });
  await publishMore(record, "b", 300);
  size = record.committer.fold.size;
});
afterEach(async () => {
  for (const one of opened.splice(0)) await one.close();
});
afterAll(async () => {
  await before.close();
  await record.close();
});

describe("a mirror", () => {
  it("copies a whole record from nothing", async () => {
    const own = await mirror();
    const done = await own.run(source(), { keys: keysOf(record) });
    expect(done).toMatchObject({ result: "synced", from: 0, tree_size: size, origin: ORIGIN, adopted: 0 });
    expect(await own.proven(record, true)).toBe(size);
    const [ours, theirs] = [await own.publicStore.get("checkpoint"), await record.store.get("checkpoint")];
    expect(ours!.bytes).toEqual(theirs!.bytes);
  });

  it("fetches only what is new, and keeps serving what was there", async () => {
    const own = await mirror(before);
    const from = source();
    expect(await own.run(from)).toMatchObject({ result: "synced", from: first, tree_size: size });
    expect(await own.proven(record, true)).toBe(size);
    expect(from.asked.filter((key) => key.startsWith("tile/entries/")).sort()).toEqual([
      "tile/entries/001",
      `tile/entries/002.p/${size - 512}`,
    ]);
    expect(from.asked).not.toContain("keys/0.json");
  });

  it("proves a folder that a plain copy filled, and fetches nothing of it again", async () => {
    const own = await mirror();
    for (const { key } of await record.store.list("")) {
      await own.publicStore.create(key, (await record.store.get(key))!.bytes);
    }
    const from = source();
    expect(await own.run(from, { keys: keysOf(record) })).toMatchObject({
      result: "synced",
      tree_size: size,
      fetched: 0,
    });
    expect(await own.proven(record, true)).toBe(size);
    expect(from.asked.filter((key) => !/^(?:checkpoint|tile\/\d)/.test(key))).toEqual([]);
  });

  it("asks for one object when there is nothing new", async () => {
    const own = await mirror();
    await own.run(source(), { keys: keysOf(record) });
    const idle = source();
    expect(await own.run(idle)).toMatchObject({ result: "idle", tree_size: size, fetched: 0 });
    expect(idle.asked).toEqual(["checkpoint"]);
  });

  it("hands on a fresher cosignature of the same tree, and never an older one", async () => {
    const own = await mirror(before);
    const from = source();
    await own.run(from);
    const root = Buffer.from((await own.run(from)).root, "hex");
    const note = (at: string) => record.note({ size, root }, at);
    for (const [at, result] of [
      ["2026-11-21T12:05:00.000Z", "refreshed"],
      ["2026-11-21T12:01:00.000Z", "idle"],
    ] as const) {
      from.shown.set("checkpoint", note(at));
      expect(await own.run(from)).toMatchObject({ result, cosigned_at: "2026-11-21T12:05:00.000Z" });
    }
    const served = await own.publicStore.get("checkpoint");
    expect(Buffer.from(served!.bytes)).toEqual(note("2026-11-21T12:05:00.000Z"));
  });

  it("keeps to the checkpoint it began with while the source grows", async () => {
    const growing = await PublicRecord.open();
    await publishKeys(growing);
    await grow(growing, "a", 270);
    const begun = growing.committer.fold.size;
    const own = await mirror();
    const from = new WatchedSource(sourceDir(growing));
    from.onGet = async (key) => {
      if (key !== "tile/entries/000") return;
      await grow(growing, "b", 300);
      growing.clock.set("2026-12-21T12:00:00.000Z");
      expect(await collectPartials(growing.store, growing.clock)).toBeGreaterThan(0);
    };
    expect(await own.run(from, { keys: keysOf(growing) })).toMatchObject({ tree_size: begun });
    expect(from.asked.filter((key) => key === "checkpoint")).toHaveLength(1);
    expect(await own.proven(growing, true)).toBe(begun);
    from.onGet = () => undefined;
    expect(await own.run(from)).toMatchObject({ from: begun, tree_size: growing.committer.fold.size });
    expect(await own.proven(growing, true)).toBe(growing.committer.fold.size);
    await growing.close();
  });

  it("heals its own folder: a tile lost, a bundle damaged, the checkpoint gone", async () => {
    const own = await mirror(before);
    await own.publicStore.delete("tile/0/000");
    await own.publicStore.delete(`tile/0/001.p/${first - 256}`);
    const held = await own.publicStore.head("tile/entries/000");
    await own.publicStore.swap("tile/entries/000", Buffer.from("rust"), held!.etag);
    expect(await own.run(source())).toMatchObject({ result: "synced", tree_size: size });
    expect(await own.proven(record, true)).toBe(size);
    await own.publicStore.delete("checkpoint");
    expect(await own.run(source())).toMatchObject({ result: "synced", from: 0, tree_size: size, fetched: 0 });
    expect(await own.proven(record, true)).toBe(size);
  });

  it("notices another process in its folder", async () => {
    const own = await mirror(before);
    const from = source();
    from.onGet = async (_, n) => {
      if (n === 1) await own.run(source());
    };
    await expect(own.run(from)).rejects.toThrow(MirrorBusy);
    expect(await own.proven(record, true)).toBe(size);
  });
});

describe("trust on first use", () => {
  it("pins the keys that signed, says so once, and needs them no more", async () => {
    const own = await mirror();
    const said: string[] = [];
    const from = source();
    await own.run(from, { say: (text) => said.push(text) });
    const { log, witness } = keysOf(record);
    expect(said.join()).toContain(log);
    expect(said.join()).toContain(witness);
    expect(from.asked.slice(0, 3)).toEqual(["checkpoint", "hint/keys.json", "keys/1.json"]);
    const idle = source();
    await own.run(idle, { say: (text) => said.push(text) });
    expect(idle.asked).toEqual(["checkpoint"]);
    expect(said).toHaveLength(1);
  });

  it.each<[string, Record<string, Uint8Array | null>]>([
    ["no hint", { "hint/keys.json": null }],
    ["a hint that is no JSON", { "hint/keys.json": Buffer.from("{") }],
    ["a hint elsewhere", { "hint/keys.json": Buffer.from('{"key":"../private/keys"}') }],
  ])("asks for keys when the source has %s", async (_, shown) => {
    const own = await mirror();
    const from = source();
    for (const [key, bytes] of Object.entries(shown)) from.shown.set(key, bytes);
    await expect(own.run(from)).rejects.toMatchObject({ code: "usage" });
    expect(await own.publicStore.list("")).toEqual([]);
  });
});

describe("a run that is cut off", () => {
  /** A small one of its own, since it is copied and proven again many times: the tail of one bundle and a new one. */
  let record: PublicRecord;
  let before: Mirror;
  let [first, size] = [0, 0];
  const source = () => new WatchedSource(sourceDir(record));
  beforeAll(async () => {
    record = await PublicRecord.open();
    await publishKeys(record);
    await grow(record, "a", 240);
    first = record.committer.fold.size;
    before = await Mirror.open();
    await before.run(source(), { keys: keysOf(record) });
    const more = { ...record.jwks.keys[0]!, purpose: "answers" as const };
    await publishKeys(record, { keys: [...record.jwks.keys, more] });
    await grow(record, "b", 20);
    await publishIndex(record);
    size = record.committer.fold.size;
  });
  afterAll(async () => {
    await before.close();
    await record.close();
  });

  /** Everything but notes, hints and tiles: what must never be fetched twice. */
  const lasting = (keys: readonly string[]) => keys.filter((key) => /^(tile\/entries|index|keys)\//.test(key));

  it("at any fetch keeps the old snapshot, and the next run adopts what was left", async () => {
    const counted = source();
    await (await mirror(before)).run(counted, { width: 1 });
    expect(counted.asked.length).toBeGreaterThan(8);
    for (const n of counted.asked.keys()) {
      const own = await mirror(before);
      const cut = source();
      cut.onGet = (_, at) => {
        if (at >= n) throw new Error("cut off");
      };
      await expect(own.run(cut, { width: 1 })).rejects.toThrow("cut off");
      expect(await own.proven(record)).toBe(first);
      const again = source();
      expect(await own.run(again, { width: 1 })).toMatchObject({ result: "synced", tree_size: size });
      expect(await own.proven(record, true)).toBe(size);
      const twice = [...lasting(cut.asked.slice(0, n)), ...lasting(again.asked)];
      expect(new Set(twice).size, `cut at ${counted.asked[n]}`).toBe(twice.length);
    }
  });

  it("right after any write exposes the old snapshot or the new one", async () => {
    const counting = new Faults();
    const wrap = (own: Mirror, faults: Faults) => ({
      publicStore: faults.wrap(own.publicStore, "public"),
      stateStore: faults.wrap(own.stateStore, "state"),
    });
    const all = await mirror(before);
    await all.run(source(), wrap(all, counting));
    for (const write of counting.writes.keys()) {
      const own = await mirror(before);
      const faults = new Faults({ write, outcome: "answer lost", dies: true });
      await expect(own.run(source(), wrap(own, faults))).rejects.toThrow();
      expect([first, size]).toContain(await own.proven(record));
      expect((await own.run(source())).tree_size).toBe(size);
      expect(await own.proven(record, true)).toBe(size);
    }
  });
});

it("refuses a cosignature of its future, whatever age it accepts, and exposes nothing of it", async () => {
  const own = await mirror();
  for (const maxAgeSeconds of [undefined, 0, 60]) {
    own.clock.set(new Date(Date.parse(NOW) - 301_000));
    await expect(own.run(source(), { maxAgeSeconds })).rejects.toThrow(/cosigned by .* has not reached yet/);
    await expect(own.run(source(), { maxAgeSeconds })).rejects.toThrow(Unproven);
  }
  expect(await own.proven(record)).toBeNull();
  own.clock.set(new Date(Date.parse(NOW) - 300_000));
  expect(await own.run(source())).toMatchObject({ result: "synced" });
});

it("measures time by the clock it was given", async () => {
  const own = await mirror(before);
  own.clock.set(new Date(Date.parse(NOW) + 86_400_000));
  expect(await own.run(source())).toMatchObject({ result: "synced" });
  own.clock.set(new Date(Date.parse(NOW) + 86_402_000));
  await expect(own.run(source())).rejects.toThrow("stale: cosigned at 2026-11-21T12:00:00.000Z, 86402 s ago");
});
