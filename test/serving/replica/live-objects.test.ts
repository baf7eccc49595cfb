import { expect, test } from "vitest";
import { VIEW } from "../../../pipelines/published/objects.ts";
import type { Source } from "../../../pipelines/published/source.ts";
import { createReplicaStore, LiveObjects } from "../../../serving/replica/live-objects.ts";
import { ManualClock } from "../../helpers/serving.ts";

function source() {
  const asked: string[] = [];
  const objects = new Map<string, Buffer>();
  const of: Source = {
    name: "test",
    get: async (key) => {
      asked.push(key);
      return objects.get(key) ?? null;
    },
    close: async () => undefined,
  };
  return { asked, objects, of };
}
const bounds = { maxBytes: 100, cacheBytes: 25, viewTtlMs: 1_000 };

test("the view is asked for once a second, however many look", async () => {
  const { asked, objects, of } = source();
  const clock = new ManualClock();
  const live = new LiveObjects(of, clock, bounds);
  objects.set(VIEW, Buffer.from("one"));
  await Promise.all([live.get(VIEW), live.get(VIEW)]);
  objects.set(VIEW, Buffer.from("two"));
  clock.pass(999);
  const first = await live.get(VIEW);
  expect([String(first!.bytes), asked.length]).toEqual(["one", 1]);
  clock.pass(2);
  const second = await live.get(VIEW);
  expect([String(second!.bytes), asked.length]).toEqual(["two", 2]);
  expect(second!.etag).not.toBe(first!.etag);
});

test("tables are read once and held as long as there is room; what is missing is asked for again", async () => {
  const { asked, objects, of } = source();
  const live = new LiveObjects(of, new ManualClock(), bounds);
  for (const n of [1, 2, 3]) objects.set(`live/0.${n}.arrow`, Buffer.alloc(10, n));
  await live.get("live/0.1.arrow");
  await live.get("live/0.2.arrow");
  await live.get("live/0.1.arrow");
  expect(asked).toHaveLength(2);
  await live.get("live/0.3.arrow");
  // The second was not looked at for longest.
  await live.get("live/0.1.arrow");
  expect(asked).toHaveLength(3);
  await live.get("live/0.2.arrow");
  expect(asked).toHaveLength(4);
  expect(await live.get("live/0.9.arrow")).toBeNull();
  expect(await live.get("live/0.9.arrow")).toBeNull();
  expect(asked).toHaveLength(6);
});

test("live objects come from the source, everything else from what is proven, and never the other way round", async () => {
  const { asked, objects, of } = source();
  objects.set("live/0.1.arrow", Buffer.from("0123456789"));
  objects.set("checkpoint", Buffer.from("unproven"));
  const proven: string[] = [];
  const noted = (what: string): null => {
    proven.push(what);
    return null;
  };
  const own = {
    get: async (key: string) => noted(`get ${key}`),
    head: async (key: string) => noted(`head ${key}`),
    getRange: async (key: string) => noted(`range ${key}`),
  };
  const store = createReplicaStore(own, new LiveObjects(of, new ManualClock(), bounds));
  expect(String(await store.getRange("live/0.1.arrow", 2, 4))).toBe("23");
  expect(await store.head("live/0.1.arrow")).toMatchObject({ size: 10 });
  expect(await store.getRange("live/0.2.arrow", 0, 1)).toBeNull();
  for (const key of ["checkpoint", "tile/0/000"]) {
    expect(await store.get(key)).toBeNull();
    expect(await store.head(key)).toBeNull();
    expect(await store.getRange(key, 0, 1)).toBeNull();
  }
  expect(asked.every((key) => key.startsWith("live/"))).toBe(true);
  expect(proven).toHaveLength(6);
});
