import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { FixedClock } from "../../../infra/clock.ts";
import type { RecordPart } from "../../../pipelines/mirror/state.ts";
import { kindOfKey, type ObjectKind } from "../../../pipelines/published/objects.ts";
import { DirectorySource } from "../../../pipelines/published/source.ts";
import { PublicRecord } from "../../helpers/public-record.ts";
import { handshake, listing } from "../2-ingest/records.ts";
import { TRUST } from "../4-publish/world.ts";
import { ArchiveWorld } from "../5-archive/world.ts";
import { grow, keysOf, Mirror, publishAll, publishIndex, sourceDir } from "./testbed.ts";

/** Kinds of object in a store, each once. */
async function kindsIn(mirror: Mirror): Promise<Set<ObjectKind>> {
  const kinds = new Set<ObjectKind>();
  for (let startAfter: string | undefined; ; ) {
    const page = await mirror.publicStore.list("", startAfter ? { startAfter } : {});
    for (const { key } of page) kinds.add(kindOfKey(key)!);
    startAfter = page.at(-1)?.key;
    if (!startAfter) return kinds;
  }
}

const ARCHIVED = "2027-03-02T00:00:00.000Z";

/** What one part alone adds to the tree. */
const KINDS: Record<RecordPart, ObjectKind[]> = {
  index: ["indexList", "indexShard", "indexTable"],
  archive: ["archiveFile", "archiveManifest"],
  evidence: ["evidence"],
};
const ALL = Object.values(KINDS).flat();

describe("a copy of one part", () => {
  let world: ArchiveWorld;
  let source: DirectorySource;
  const clock = new FixedClock(ARCHIVED);
  beforeAll(async () => {
    world = await ArchiveWorld.open();
    await world.ingest.append(listing("a", "2026-11-10T00:00:00.000Z", { seller_controlled: true }));
    await world.ingest.append(handshake("a", "2026-11-10T02:10:00.000Z", { planned: "asked" }));
    await world.grade("2026-11-10T23:00:00.000Z");
    await world.publisher.buildIndex();
    await world.archive(ARCHIVED);
    source = new DirectorySource(world.publicDir);
  });
  afterAll(() => world.close());

  const run = (mirror: Mirror, only?: RecordPart) =>
    mirror.run(source, { keys: keysOf({ trust: TRUST }), clock, only });

  it.each(Object.keys(KINDS) as RecordPart[])(
    "%s: the whole tree, that part, and nothing of the others",
    async (part) => {
      const mirror = await Mirror.open();
      try {
        const done = await run(mirror, part);
        expect(done).toMatchObject({ result: "synced", missing: [] });
        const kinds = await kindsIn(mirror);
        expect(ALL.filter((kind) => kinds.has(kind))).toEqual(KINDS[part]);
        for (const kind of ["checkpoint", "tile", "entries", "keys"] as const) expect(kinds).toContain(kind);
        expect((await mirror.publicStore.head("hint/index.json")) !== null).toBe(part === "index");
        expect(await run(mirror, part)).toMatchObject({ result: "idle", fetched: 0 });
      } finally {
        await mirror.close();
      }
    },
  );

  it("becomes whole by a run without the option, though the source has nothing new, and is proven as one that always was", async () => {
    const mirror = await Mirror.open();
    try {
      await run(mirror, "archive");
      const done = await run(mirror);
      expect(done.missing).toEqual([]);
      expect(done.fetched).toBeGreaterThan(0);
      const kinds = await kindsIn(mirror);
      expect(ALL.filter((kind) => kinds.has(kind))).toEqual(ALL);
      expect(await mirror.proven({ trust: TRUST }, true)).toBe(done.tree_size);
    } finally {
      await mirror.close();
    }
  });
});

describe("the Parquet file of an index", () => {
  it("is that of the newest index alone, also where an older one can no longer be had", async () => {
    const record = await PublicRecord.open();
    const mirror = await Mirror.open();
    try {
      const tables = async (store = mirror.publicStore) => (await store.list("index/table/")).map(({ key }) => key);
      await publishAll(record, "a", 8);
      const [first] = await tables(record.store);
      const keys = keysOf(record);
      const from = new DirectorySource(sourceDir(record));
      await mirror.run(from, { keys });
      expect(await tables()).toEqual([first]);
      await record.store.delete(first!);
      await grow(record, "b", 3);
      await publishIndex(record);
      const [second] = await tables(record.store);
      expect(await mirror.run(from, { keys })).toMatchObject({ result: "synced", missing: [] });
      expect(await tables()).toEqual([second]);
      const hint = JSON.parse(Buffer.from((await mirror.publicStore.get("hint/index.json"))!.bytes).toString());
      expect(hint.table).toBe(second);

      // A copy that lacks it says so, and forgets it with the next index.
      await record.store.delete(second!);
      const late = await Mirror.open();
      try {
        expect((await late.run(from, { keys })).missing.map(({ key }) => key)).toEqual([second]);
        expect(await late.publicStore.head("hint/index.json")).toBeNull();
        await grow(record, "c", 3);
        await publishIndex(record);
        expect(await late.run(from, { keys })).toMatchObject({ result: "synced", missing: [] });
        expect(await late.publicStore.head("hint/index.json")).not.toBeNull();
      } finally {
        await late.close();
      }
    } finally {
      await mirror.close();
      await record.close();
    }
  });
});
