import { utimesSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Publisher } from "../../../pipelines/4-publish/publisher.ts";
import { readView } from "../../../pipelines/4-publish/view.ts";
import { RecordReader, readCheckpoint } from "../../../pipelines/published/reader.ts";
import { proveRecord } from "../../helpers/prove-record.ts";
import { publishListings } from "../../helpers/publishing.ts";
import { JWKS, listing, TRUST, World } from "./world.ts";

let world: World;
let publisher: Publisher;
beforeEach(async () => {
  world = await World.open();
  publisher = world.publisher();
  await publisher.publishKeys(JWKS);
});
afterEach(() => world.close());

const keys = async (prefix: string) => (await world.publicStore.list(prefix)).map(({ key }) => key);
const POSITIONS = { asks: { "0": 7 } };

describe("the view", () => {
  it("moves index, tree size, tables and positions together", async () => {
    expect(await readView(world.publicStore)).toBeNull();
    const first = await publisher.writeLiveTable(0, Buffer.from("one"));
    await publisher.writeView({ live: [first], positions: POSITIONS });
    expect(await readView(world.publicStore)).toEqual({
      v: 1,
      at: "2026-11-21T04:00:00.000Z",
      index: null,
      tree_size: 1,
      live: [first],
      positions: POSITIONS,
    });
    await publisher.buildIndex();
    await publishListings(publisher, [listing("a")]);
    await publisher.writeView({ live: [], positions: POSITIONS });
    expect(await readView(world.publicStore)).toMatchObject({ index: "index/1.json", tree_size: 3, live: [] });
  });

  it("names tables under numbers that nobody had", async () => {
    const made = await Promise.all([0, 0, 1].map((partition) => publisher.writeLiveTable(partition, Buffer.from("t"))));
    expect(new Set(made).size).toBe(3);
    expect(made.filter((key) => key.startsWith("live/0."))).toHaveLength(2);
  });
});

describe("the history", () => {
  it("stays in force from view to view until another one is named", async () => {
    const file = await publisher.writeHistory(7, Buffer.from("one"));
    expect(file).toMatch(/^live\/history\/7\.\d+\.arrow$/);
    const history = { files: { "7": file }, positions: POSITIONS };
    expect(await publisher.nameHistory(history)).toBe(false);
    await publisher.writeView({ live: [], positions: POSITIONS });
    expect((await readView(world.publicStore))?.history).toBeUndefined();
    expect(await publisher.nameHistory(history)).toBe(true);
    await publisher.writeView({ live: [], positions: { asks: { "0": 8 } } });
    expect(await readView(world.publicStore)).toMatchObject({ positions: { asks: { "0": 8 } }, history });
    const newer = { files: { "7": await publisher.writeHistory(7, Buffer.from("two")) }, positions: {} };
    expect(newer.files["7"]).not.toBe(file);
    await publisher.nameHistory(newer);
    expect((await readView(world.publicStore))?.history).toEqual(newer);
    world.clock.set("2026-11-21T05:30:00.000Z");
    expect(await publisher.collectGarbage()).toBe(1);
    expect(await keys("live/")).toEqual([newer.files["7"], "live/view.json"]);
  });
});

describe("collecting garbage", () => {
  it("deletes tables an hour old that no view names", async () => {
    const old = await publisher.writeLiveTable(0, Buffer.from("old"));
    const named = await publisher.writeLiveTable(1, Buffer.from("named"));
    await publisher.writeView({ live: [named], positions: {} });
    world.clock.set("2026-11-21T04:59:59.999Z");
    expect(await publisher.collectGarbage()).toBe(0);
    world.clock.set("2026-11-21T05:00:00.000Z");
    expect(await publisher.collectGarbage()).toBe(1);
    expect(await keys("live/")).toEqual([named, "live/view.json"]);
    expect(await world.publicStore.head(old)).toBeNull();
  });

  it("deletes partial objects after 48 h once the full ones are there, and old checkpoints still read", async () => {
    await publishListings(publisher, [listing("a")]);
    const old = (await readCheckpoint(world.publicStore, TRUST))!;
    await publishListings(
      publisher,
      Array.from({ length: 300 }, (_, i) => listing(`n-${i}`)),
    );
    const partials = (await keys("tile/")).filter((key) => key.includes(".p/"));
    const made = new Date("2026-11-19T04:00:00.000Z");
    for (const key of partials) utimesSync(join(world.dir, "public", key), made, made);
    world.clock.set("2026-11-21T04:00:00.000Z");
    world.clock.set(new Date(made.getTime() + 48 * 3_600_000 - 1));
    expect(await publisher.collectGarbage()).toBe(0);
    world.clock.set(new Date(made.getTime() + 48 * 3_600_000));
    expect(await publisher.collectGarbage()).toBe(4);
    // The right edge is never full, so it stays, however old.
    expect((await keys("tile/")).filter((key) => key.includes(".p/"))).toEqual([
      "tile/0/001.p/46",
      "tile/1/000.p/1",
      "tile/entries/001.p/46",
    ]);
    expect((await RecordReader.open(world.publicStore, old)).size).toBe(2);
    expect(await (await RecordReader.open(world.publicStore, old)).entries(0)).toHaveLength(2);
    await proveRecord(world.publicStore, { trust: TRUST, atRest: true });
    expect((await publishListings(world.publisher(), [listing("later")])).leaves).toBe(1);
  });
});
