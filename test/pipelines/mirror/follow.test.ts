import { afterAll, afterEach, beforeAll, expect, it } from "vitest";
import { FixedClock } from "../../../infra/clock.ts";
import { followMirror } from "../../../pipelines/mirror/mirror.ts";
import { Forked, SourceDown } from "../../../pipelines/published/errors.ts";
import { NOW, PublicRecord } from "../../helpers/public-record.ts";
import { grow, keysOf, Mirror, publishKeys, sourceDir, WatchedSource } from "./testbed.ts";

let record: PublicRecord;
const opened: Mirror[] = [];
beforeAll(async () => {
  record = await PublicRecord.open();
  await publishKeys(record);
  await grow(record, "a", 5);
});
afterEach(async () => {
  for (const one of opened.splice(0)) await one.close();
});
afterAll(() => record.close());

/** Follows for as many pauses as there are steps; each happens in one pause. */
async function follow(from: WatchedSource, steps: (() => unknown)[]) {
  const own = await Mirror.open();
  opened.push(own);
  const stop = new AbortController();
  const pauses: number[] = [];
  const sizes: number[] = [];
  const faults: string[] = [];
  const clock = new FixedClock(NOW);
  const left = [...steps];
  clock.sleep = async (ms) => {
    pauses.push(ms / 1_000);
    await left.shift()?.();
    if (left.length === 0) stop.abort();
  };
  const ended = followMirror({
    ...{ source: from, publicStore: own.publicStore, stateStore: own.stateStore, clock, keys: keysOf(record) },
    ...{ everySeconds: 10, signal: stop.signal, maxAgeSeconds: 0 },
    onSnapshot: async ({ tree_size }) => {
      // It is served already when it is said.
      expect(await own.proven(record)).toBe(tree_size);
      sizes.push(tree_size);
    },
    onFault: (error) => faults.push(error.name),
  });
  return { own, ended, pauses, sizes, faults };
}

it("goes on with the source, says each new snapshot once, and rests longer while the source is away", async () => {
  const from = new WatchedSource(sourceDir(record));
  const first = record.committer.fold.size;
  const away = () => {
    from.onGet = (key) => {
      throw new SourceDown("watched", key, "away");
    };
  };
  const back = async () => {
    from.onGet = () => undefined;
    await grow(record, "b", 5);
  };
  const { own, ended, pauses, sizes, faults } = await follow(from, [
    () => undefined,
    away,
    () => undefined,
    back,
    () => undefined,
  ]);
  await ended;
  expect(pauses).toEqual([10, 10, 20, 40, 10]);
  expect(faults).toEqual(["SourceDown", "SourceDown"]);
  expect(sizes).toEqual([first, record.committer.fold.size]);
  expect(await own.proven(record, true)).toBe(record.committer.fold.size);
});

it("ends with a fork, both notes kept", async () => {
  const from = new WatchedSource(sourceDir(record));
  const { size } = record.committer.fold;
  const note = record.note({ size, root: Buffer.alloc(32, 3) });
  const { own, ended } = await follow(from, [() => from.shown.set("checkpoint", note), () => undefined]);
  await expect(ended).rejects.toThrow(Forked);
  expect(await own.stateStore.list("fork/")).toHaveLength(1);
  expect(await own.proven(record)).toBe(size);
});

it.each([0, 301, Number.NaN])("does not follow every %s seconds", async (everySeconds) => {
  const how = { everySeconds, signal: new AbortController().signal } as never;
  await expect(followMirror(how)).rejects.toMatchObject({ code: "usage" });
});
