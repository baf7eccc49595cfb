import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { SegmentRef } from "../../../infra/chain/commit.ts";
import { openChain } from "../../../infra/chain/commits.ts";
import type { Store } from "../../../infra/store/store.ts";
import { BATCH_BYTES } from "../../../pipelines/2-ingest/batch.ts";
import { collectGarbage, groupsOf } from "../../../pipelines/2-ingest/tidy.ts";
import { type Breach, failing } from "./failing.ts";
import { proveIngest, tablesOf } from "./prove-ingest.ts";
import { at, capOf, garbage, handshake, intent } from "./records.ts";
import { openTestWorld, type World } from "./world.ts";

const DAY = 86_400_000;
let world: World;
beforeEach(async () => {
  world = await openTestWorld();
});
afterEach(() => world.close());

/** Small segments of one partition, the second with a rejected record. */
async function passes(n: number): Promise<{ topic: string; partition: number }> {
  const place = { topic: "observations.free", partition: handshake("a", at("02:00:00")).partition };
  for (let i = 0; i < n; i++) {
    const record = handshake("a", at(`0${i}:00:00`));
    await world.append(record, ...(i === 1 ? [{ ...garbage("x", "{"), ...place }] : []));
    await world.ingest.pass();
  }
  return place;
}
const chainOf = (place: { topic: string; partition: number }) =>
  openChain(world.store, { logId: world.log.id, ...place });
const dataFiles = async (place: { topic: string; partition: number }): Promise<string[]> =>
  (await world.store.list(`lake/${world.log.id}/${place.topic}/${place.partition}/data/`)).map(({ key }) => key);
const pass = (days: number) => world.clock.set(new Date(Date.now() + days * DAY));

describe("small segments", () => {
  test("become one with the same records; the lake, and one rebuilt from it, are the same", async () => {
    const place = await passes(4);
    const before = await tablesOf(world.lake);
    expect(await world.ingest.tidy(2)).toMatchObject({ before: 4, after: 1, deleted: 0 });
    await proveIngest(world);
    const { live } = await chainOf(place).head();
    expect(live).toMatchObject([{ first: 0, last: 4, rows: 4, rejected: 1 }]);
    const { loaded: _files, ...rows } = before as Record<string, unknown>;
    expect(await tablesOf(world.lake)).toMatchObject(rows);
    expect(await world.lake.all("SELECT file FROM loaded")).toEqual([{ file: live[0]!.file }]);
    await world.ingest.rebuild();
    await proveIngest(world);
    expect(await tablesOf(world.lake)).toMatchObject(rows);
    // After a rebuild everything is to be graded, so that what a run keeps between runs is made anew.
    expect(await world.lake.all("SELECT DISTINCT cap FROM dirty")).toEqual([{ cap: capOf("a") }]);
    expect(await world.ingest.tidy(2)).toMatchObject({ before: 1, after: 1 });
  });

  test("are left alone while they are few", async () => {
    await passes(3);
    expect(await world.ingest.tidy()).toEqual({ before: 3, after: 3, deleted: 0 });
  });

  const moments = ["before", "after"] as const;
  const writes = ["compacted file", "rejected file", "commit"];
  test.each(writes.flatMap((what, n) => moments.map((when) => [when, what, n] as const)))(
    "broken off %s the %s is written: nothing is lost or doubled, and the next one does it",
    async (when, _what, n) => {
      await passes(4);
      const { broken, reached } = failing(world.store, { method: "create", n, when } satisfies Breach<Store>);
      const first = await world.rival({ privateStore: broken, lake: world.lake });
      await expect(first.tidy(2)).rejects.toThrow(/broken/);
      expect(reached()).toBe(true);
      const next = await world.rival({ lake: world.lake });
      await next.pass();
      await proveIngest(world);
      expect(await next.tidy(2)).toMatchObject({ after: 1 });
      await proveIngest(world);
    },
  );

  test("two at once: one wins, the other's file is dropped, and both lakes agree", async () => {
    const place = await passes(4);
    const other = await world.rival();
    await other.pass();
    await Promise.all([world.ingest.tidy(2), other.tidy(2)]);
    await Promise.all([world.ingest.pass(), other.pass()]);
    await proveIngest(world);
    const { live } = await chainOf(place).head();
    expect(live).toHaveLength(1);
  });

  test("are joined in groups that fit into a batch with their files of rejected records", () => {
    const refs = (rejectedBytes: number) =>
      [0, 1, 2].map((n) => ({
        ...{ first: n, last: n, rows: 0, rejected: 1, file: `${n}`, bytes: 300, sha256: "" },
        rejects: { file: `${n}`, bytes: rejectedBytes, sha256: "" },
      }));
    const sizes = (rejectedBytes: number) => groupsOf(refs(rejectedBytes)).map((group) => group.length);
    expect(sizes(BATCH_BYTES / 4)).toEqual([3]);
    expect(sizes(BATCH_BYTES / 2)).toEqual([1, 1, 1]);
  });

  test("of a partition with a torn one stay, and those of the others are joined", async () => {
    const place = await passes(3);
    const other = { ...place, topic: "observations.paid" };
    for (let hour = 1; hour < 4; hour++) {
      await world.append(intent("a", at(`0${hour}:00:00`)));
      await world.ingest.pass();
    }
    const [torn] = await dataFiles(place);
    const path = join(world.dir, "private", torn!);
    await writeFile(path, (await readFile(path)).subarray(1));
    await expect(world.ingest.tidy(2)).rejects.toMatchObject({ code: "record", key: torn });
    expect((await chainOf(place).head()).live).toHaveLength(3);
    expect((await chainOf(other).head()).live).toHaveLength(1);
  });
});

describe("files that nothing needs", () => {
  test("of a compaction go a week after it, not before, whatever their own age", async () => {
    const place = await passes(4);
    pass(30);
    await world.ingest.tidy(2);
    expect(await dataFiles(place)).toHaveLength(7);
    pass(36.9);
    expect((await world.ingest.tidy(2)).deleted).toBe(0);
    pass(37);
    expect((await world.ingest.tidy(2)).deleted).toBe(5);
    expect(await dataFiles(place)).toHaveLength(2);
    await world.ingest.rebuild();
    await proveIngest(world);
  });

  test("left by a writer that died before its commit go when they are a week old", async () => {
    const place = await passes(1);
    await chainOf(place).putSegment(Buffer.from("orphan"), 1, 1, { rows: 1 });
    pass(6);
    expect((await world.ingest.tidy()).deleted).toBe(0);
    pass(8);
    expect((await world.ingest.tidy()).deleted).toBe(1);
    expect(await dataFiles(place)).toHaveLength(1);
    await proveIngest(world);
  });

  test("are found by the commits of a week: older ones are not read", async () => {
    const place = { topic: "listings", partition: 0 };
    const [chain, start, HOUR] = [chainOf(place), Date.now(), 3_600_000];
    const put = (n: number) =>
      chain.putSegment(Buffer.from("x"), n, n, { rows: 1, rejected: { records: 1, bytes: Buffer.from("x") } });
    const refs: SegmentRef[] = [];
    for (let n = 0; n < 200; n++) {
      refs.push(await put(n));
      const positions = { first: n, next: n + 1, lastEventId: `rec_${n}` };
      await chain.commit({ ...positions, add: [refs[n]!], remove: [], at: new Date(start) });
    }
    for (let n = 0; n < 60; n++) {
      const [add, remove, at] = [[await put(n)], [refs[n]!.file], new Date(start + (240 + n) * HOUR)];
      await chain.commit({ first: 200, next: 200, lastEventId: "rec_199", add, remove, at });
    }
    let reads = 0;
    const counting = new Proxy(world.store, {
      get(store, name: keyof Store) {
        const method = store[name] as (...args: unknown[]) => unknown;
        return (...args: unknown[]) => {
          if (name === "get" && String(args[0]).includes("/commit/")) reads++;
          return method.apply(store, args);
        };
      },
    });
    // At hour 432, those removed until hour 264 go: 25 data files, and as many files of rejected records.
    const deleted = await collectGarbage(counting, openChain(counting, chain), new Date(start + 432 * HOUR));
    expect(deleted).toBe(50);
    expect(await dataFiles(place)).toHaveLength(2 * 260 - 50);
    expect(reads).toBeLessThan(100);
  });
});
