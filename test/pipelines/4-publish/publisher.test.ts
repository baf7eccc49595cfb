import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { sha256hex } from "../../../infra/canonical.ts";
import type { ObjectMeta, Store } from "../../../infra/store/store.ts";
import type { Publisher } from "../../../pipelines/4-publish/publisher.ts";
import { writeRun } from "../../../pipelines/4-publish/runs.ts";
import { headersOf, kindOfKey } from "../../../pipelines/published/objects.ts";
import { readCheckpoint } from "../../../pipelines/published/reader.ts";
import { proveRecord } from "../../helpers/prove-record.ts";
import { publishListings } from "../../helpers/publishing.ts";
import { Faults } from "./faults.ts";
import { capOf, cardToken, header, JWKS, line, listing, NEXT_CARDS, rotated, SIGNERS, TRUST, World } from "./world.ts";

const DAY = "2026-11-21T04:00:00.000Z";
const SCHEDULE = { day: "2026-11-22", salt_hash: sha256hex(Buffer.alloc(32, 7)), covered_root: "00", covered: 2 };

let world: World;
let publisher: Publisher;
beforeEach(async () => {
  world = await World.open();
  publisher = world.publisher();
  await publisher.publishKeys(JWKS);
});
afterEach(() => world.close());

const proven = () => proveRecord(world.publicStore, { trust: TRUST, atRest: true });
const kinds = async () => (await proven()).leaves.map((leaf) => leaf.kind).join(" ");

/** Writes that a call makes, over both stores. */
async function writesOf(call: (publisher: Publisher) => Promise<unknown>): Promise<string[]> {
  const faults = new Faults();
  const privateStore = faults.wrap(world.privateStore, "private");
  const counted = world.publisher({ privateStore, publicStore: faults.wrap(world.publicStore, "public") });
  await counted.start();
  await call(counted);
  return faults.writes;
}

describe("a publication", () => {
  it("of each kind is a record that proves itself", async () => {
    await publishListings(publisher, [listing("a"), listing("b")]);
    await writeRun(world.privateStore, header(DAY, 5), [line("a", DAY, ["B"]), line("b", DAY, ["UNRATED"])]);
    const [result] = await publisher.takeNewRuns();
    expect(result).toEqual({ n: 0, taken: true, reason: null, cards: 2, leaves: 2, stale: 0 });
    await publisher.publishSchedule(SCHEDULE);
    const { checkpoint } = await proveRecord(world.publicStore, {
      trust: TRUST,
      atRest: true,
      expected: [cardToken("a", DAY), cardToken("b", DAY)],
    });
    expect(checkpoint?.size).toBe(6);
    expect(await kinds()).toBe("keys listing listing grade grade schedule");
  });

  it("of ten leaves costs five writes", async () => {
    const ten = Array.from({ length: 10 }, (_, i) => listing(`ten-${i}`));
    const writes = await writesOf((counted) => publishListings(counted, ten));
    expect(writes.map((name) => name.replaceAll(/\d{20}|[0-9a-f]{64}/g, "N"))).toEqual([
      "private staging/N",
      "private generation/N",
      "public tile/0/000.p/11",
      "public tile/entries/000.p/11",
      "public checkpoint",
    ]);
    expect(await writesOf((counted) => publishListings(counted, ten))).toEqual([]);
  });

  it("leaves the same in memory as a start from the public store", async () => {
    await publishListings(publisher, [listing("a"), listing("b")], [capOf("b")]);
    await publisher.takeRun({ header: header(DAY, 5), lines: [line("a", DAY, ["B"])] });
    await publisher.buildIndex();
    await publisher.publishSchedule(SCHEDULE);
    const other = world.publisher();
    await other.start();
    expect(other.fold).toEqual(publisher.fold);
  });

  it("writes public keys of the table only, with its headers", async () => {
    const metas = new Map<string, ObjectMeta | undefined>();
    const seen = (store: Store): Store => ({
      ...new Faults().wrap(store, ""),
      create: (key, bytes, meta) => store.create(key, bytes, metas.set(key, meta).get(key)),
      swap: (key, bytes, expected, meta) => store.swap(key, bytes, expected, metas.set(key, meta).get(key)),
    });
    const watched = world.publisher({ publicStore: seen(world.publicStore) });
    await publishListings(
      watched,
      Array.from({ length: 300 }, (_, i) => listing(`n-${i}`)),
    );
    await watched.buildIndex();
    await watched.publishSchedule(SCHEDULE);
    await watched.writeView({ live: [await watched.writeLiveTable(0, Buffer.from("arrow"))], positions: {} });
    for (const [key, meta] of metas) {
      expect(meta).toEqual(headersOf(key));
    }
    const written = new Set([...metas.keys()].map(kindOfKey));
    const want = ["checkpoint", "tile", "entries", "indexList", "indexShard", "indexTable", "hint", "view"];
    expect([...written].sort()).toEqual([...want, "liveTable"].sort());
  });

  it.each(["generation/00000000000000000000", "tile/0/1", "tile/0/000.p/256", "index/x.json", "live/../view.json"])(
    "never writes %s in public",
    (key) => expect(() => headersOf(key)).toThrow("not a public key"),
  );
});

describe("listings", () => {
  it("are published when they are new or differ, and once however often they are told", async () => {
    await publishListings(publisher, [listing("a"), listing("b")]);
    const again = await publishListings(publisher, [
      listing("a"),
      listing("b", { description: null }),
      listing("c"),
      listing("c"),
    ]);
    expect(again).toEqual({ leaves: 2, refused: [] });
    expect(await publishListings(publisher, [listing("c")])).toEqual({ leaves: 0, refused: [] });
  });

  it("go and come back", async () => {
    await publishListings(publisher, [listing("a")]);
    await publishListings(publisher, [], [capOf("a"), capOf("never seen")]);
    await publishListings(publisher, [], [capOf("a")]);
    await publishListings(publisher, [listing("a")]);
    expect(await kinds()).toBe("keys listing delisting listing");
  });

  it("that cannot be a leaf are refused with the reason, and cost no other its place", async () => {
    const long = Array.from({ length: 64 }, () => ({ defect: "bad_network", says: "x".repeat(2000) }));
    const { leaves, refused } = await publishListings(publisher, [
      listing("a"),
      listing("b", { defects: long }),
      listing("c", { description: "\ud800" }),
      listing("d"),
    ]);
    expect(leaves).toBe(2);
    expect(refused.map((error) => error.message)).toEqual([
      expect.stringMatching(new RegExp(`listing leaf of ${capOf("b")}: 13\\d+ bytes, at most 65535`)),
      expect.stringMatching(new RegExp(`listing leaf of ${capOf("c")}: .*surrogate`)),
    ]);
    expect(await kinds()).toBe("keys listing listing");
  });
});

describe("schedules", () => {
  it("are published once a day, and only a salt that opens its day is", async () => {
    await publisher.publishSchedule(SCHEDULE);
    await publisher.publishSchedule({ ...SCHEDULE, covered: 9 });
    const next = { ...SCHEDULE, day: "2026-11-23" };
    const opens = { day: SCHEDULE.day, salt: "07".repeat(32) };
    const wrong = { ...opens, salt: "08".repeat(32) };
    await expect(publisher.publishSchedule({ ...next, opens: wrong })).rejects.toThrow(`does not open ${SCHEDULE.day}`);
    await publisher.publishSchedule({ ...next, opens });
    expect(await kinds()).toBe("keys schedule schedule");
    expect(publisher.fold.schedules.get(SCHEDULE.day)?.salt).toBe(opens.salt);
  });
});

describe("keys", () => {
  const LATER = "2026-11-21T05:00:00.000Z";

  it("form a chain: the next document is signed by the one before, and cards go on under the new key", async () => {
    await publisher.takeRun({ header: header(DAY, 5), lines: [line("a", DAY, ["B"])] });
    world.clock.set(LATER);
    const next = world.publisher({ signers: { ...SIGNERS, cards: NEXT_CARDS } });
    await expect(next.publishKeys(rotated(LATER))).rejects.toThrow("must be signed by a cards key of document 0");
    // The old key is retired at this instant, so it signs the document that says so a moment before.
    world.clock.set("2026-11-21T04:59:59.999Z");
    const retired = [{ signer: SIGNERS.cards, until: new Date(LATER) }];
    const holding = world.publisher({ signers: { ...SIGNERS, cards: NEXT_CARDS, retired } });
    await holding.publishKeys(rotated(LATER));
    await holding.publishKeys(rotated(LATER));
    world.clock.set(LATER);
    await next.takeRun({ header: header(LATER, 6), lines: [line("b", LATER, ["B"])] });
    expect(await kinds()).toBe("keys grade keys grade");
  });

  it("of a writer that died before its leaf come first, and ours after them", async () => {
    const dead = new Faults({ write: 1, outcome: "fails before", dies: true });
    const dying = world.publisher({
      privateStore: dead.wrap(world.privateStore, ""),
      publicStore: dead.wrap(world.publicStore, ""),
    });
    await expect(dying.publishKeys(rotated(LATER))).rejects.toThrow();
    // Its own end of the key, sooner: one that puts it off would be an older keyring.
    await publisher.publishKeys(rotated("2026-11-21T04:30:00.000Z"));
    expect(await kinds()).toBe("keys keys keys");
  });

  it("are not dated before the document before them, also after the clock was set back", async () => {
    world.clock.set("2026-11-21T04:59:00.000Z");
    const retired = [{ signer: SIGNERS.cards, until: new Date(LATER) }];
    const holding = world.publisher({ signers: { ...SIGNERS, cards: NEXT_CARDS, retired } });
    await holding.publishKeys(rotated(LATER));
    world.clock.set("2026-11-21T04:10:00.000Z");
    await holding.publishKeys(rotated("2026-11-21T04:59:30.000Z"));
    expect(await kinds()).toBe("keys keys keys");
    const { bytes } = (await world.publicStore.get("keys/2.json"))!;
    expect(JSON.parse(Buffer.from(bytes).toString()).computed_at).toBe("2026-11-21T04:59:00.000Z");
  });
});

describe("the index", () => {
  it("rides along with other leaves and never causes a publication", async () => {
    await publishListings(publisher, [listing("a")]);
    await publisher.takeRun({ header: header(DAY, 5), lines: [line("a", DAY, ["B"])] });
    await publisher.buildIndex();
    expect((await readCheckpoint(world.publicStore, TRUST))?.size).toBe(3);
    expect(await world.publicStore.head("hint/index.json")).toBeNull();
    await publishListings(publisher, [listing("b")]);
    expect(await kinds()).toBe("keys listing grade listing index");
    const hint = await world.publicStore.get("hint/index.json");
    const [table] = await world.publicStore.list("index/table/");
    const named = { key: "index/3.json", leaf: 4, tree_size: 3, table: table!.key };
    expect(JSON.parse(Buffer.from(hint!.bytes).toString())).toEqual(named);
  });

  it("of an unchanged shard is the same object, and of an unchanged log nothing at all", async () => {
    await publishListings(publisher, [listing("a")]);
    await publisher.buildIndex();
    const table = (size: number) => expect.stringMatching(`^public index/table/${size}\\.`);
    expect(await writesOf((counted) => counted.buildIndex())).toEqual(["public index/2.json", table(2)]);
    await publisher.publishSchedule(SCHEDULE);
    expect(await writesOf((counted) => counted.buildIndex())).toEqual(["public index/4.json", table(4)]);
    await proven();
  });

  it("has its Parquet file for two days, and that of the newest index for good", async () => {
    const tables = async () => (await world.publicStore.list("index/table/")).map(({ key }) => key.split(".")[0]);
    await publishListings(publisher, [listing("a")]);
    await publisher.buildIndex();
    await publishListings(publisher, [listing("b")]);
    await publisher.buildIndex();
    await publisher.publishSchedule(SCHEDULE);
    expect(await tables()).toEqual(["index/table/2", "index/table/4"]);
    const written = (await world.publicStore.head((await world.publicStore.list("index/table/"))[1]!.key))!.modifiedAt;
    const at = (hours: number) => world.clock.set(new Date(written.getTime() + hours * 3_600_000).toISOString());
    at(47);
    await publisher.collectGarbage();
    expect(await tables()).toHaveLength(2);
    at(49);
    await publisher.collectGarbage();
    expect(await tables()).toEqual(["index/table/4"]);
  });
});

describe("the checkpoint", () => {
  const cosigned = async () => (await readCheckpoint(world.publicStore, TRUST))?.cosignedAt?.toISOString();

  it("is signed again for freshness, never with an older time", async () => {
    world.clock.set("2026-11-21T04:10:00.000Z");
    await publisher.refreshCheckpoint();
    expect(await cosigned()).toBe("2026-11-21T04:10:00.000Z");
    world.clock.set("2026-11-21T04:05:00.000Z");
    await publisher.refreshCheckpoint();
    expect(await cosigned()).toBe("2026-11-21T04:10:00.000Z");
    await proven();
  });

  it("of an empty log is none", async () => {
    const empty = await World.open();
    await empty.publisher().refreshCheckpoint();
    expect(await empty.publicStore.list("")).toEqual([]);
    await empty.close();
  });
});
