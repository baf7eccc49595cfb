import { readFile, utimes } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, afterEach, beforeAll, expect, it } from "vitest";
import { FixedClock } from "../../../infra/clock.ts";
import { cosignatureLine } from "../../../infra/tree/cosignature.ts";
import { COSIGNATURE, formatVkey, parseNote } from "../../../infra/tree/note.ts";
import { readPolicy, type WitnessPolicy } from "../../../infra/tree/policy.ts";
import { followMirror } from "../../../pipelines/mirror/mirror.ts";
import { Forked, SourceDown } from "../../../pipelines/published/errors.ts";
import { NOW, PublicRecord } from "../../helpers/public-record.ts";
import { noteSigner } from "../../helpers/witnessed.ts";
import { grow, keysOf, Mirror, publishIndex, publishKeys, sourceDir, WatchedSource } from "./testbed.ts";

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
async function follow(
  from: WatchedSource,
  steps: (() => unknown)[],
  policy?: WitnessPolicy,
  missingAtFirst: readonly string[] = [],
) {
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
    ...{
      source: from,
      publicStore: own.publicStore,
      stateStore: own.stateStore,
      clock,
      keys: { ...keysOf(record), policy },
    },
    ...{ everySeconds: 10, signal: stop.signal, maxAgeSeconds: 0 },
    onSnapshot: async ({ tree_size }) => {
      // It is served already when it is said.
      expect(await own.proven(record, false, sizes.length === 0 ? missingAtFirst : [])).toBe(tree_size);
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

it("says when missing objects came, and nothing while they are still missing", async () => {
  const own = await PublicRecord.open(record.keys);
  try {
    await publishKeys(own);
    await grow(own, "m", 5);
    await publishIndex(own);
    const from = new WatchedSource(sourceDir(own));
    const shard = (await own.store.list("index/shard/"))[0]!.key;
    from.shown.set(shard, null);
    const { ended, sizes } = await follow(
      from,
      [() => undefined, () => from.shown.clear(), () => undefined, () => undefined],
      undefined,
      [shard],
    );
    await ended;
    const size = own.committer.fold.size;
    expect(sizes).toEqual([size, size]);
  } finally {
    await own.close();
  }
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

it("goes on where a checkpoint lacks the cosignatures of its policy, and takes the next one that has them", async () => {
  const north = noteSigner("north.example/w1", 21);
  const policy = readPolicy(Buffer.from(`witness north ${formatVkey(north, COSIGNATURE)}\nquorum north\n`));
  const own = await readFile(join(sourceDir(record), "checkpoint"));
  const line = cosignatureLine(parseNote(own).text, north, new Date(NOW));
  const from = new WatchedSource(sourceDir(record));
  const cosigned = () => from.shown.set("checkpoint", Buffer.concat([own, Buffer.from(line)]));
  const { ended, sizes, faults } = await follow(from, [() => undefined, cosigned, () => undefined], policy);
  await ended;
  expect([faults, sizes]).toEqual([["Unwitnessed", "Unwitnessed"], [record.committer.fold.size]]);
});

it("deletes partial tiles and bundles once a day: those that are 48 hours old and became full", async () => {
  const growing = await PublicRecord.open();
  const own = await Mirror.open();
  opened.push(own);
  const from = new WatchedSource(sourceDir(growing));
  const partials = async (of: string) =>
    (await own.publicStore.list("tile/")).map(({ key }) => key).filter((key) => key.startsWith(`${of}.p/`));
  const stamped = new Set<string>();
  /** Copies what is new at this hour. What was written before has the time of its hour, and not that of this disk. */
  const runAt = async (hours: number, leaves: number) => {
    await grow(growing, `h${hours}-`, leaves);
    own.clock.set(new Date(Date.parse(NOW) + hours * 3_600_000).toISOString());
    await own.run(from, { keys: keysOf(growing), maxAgeSeconds: 0 });
    const at = own.clock.now();
    for (const key of [...(await partials("tile/0/000")), ...(await partials("tile/entries/000"))]) {
      if (!stamped.has(key)) await utimes(join(own.dir, "public", key), at, at);
      stamped.add(key);
    }
  };
  await publishKeys(growing);
  for (let hour = 0; hour < 4; hour++) await runAt(hour, 10);
  const first = await partials("tile/entries/000");
  expect(first).toHaveLength(4);
  // The bundle is not full: a reader of an older checkpoint has nothing else to read it from.
  await runAt(60, 10);
  expect(await partials("tile/entries/000")).toEqual(expect.arrayContaining(first));
  // It is full, and the search of this day is over.
  await runAt(61, 250);
  expect(await partials("tile/entries/000")).toHaveLength(5);
  // The next search finds all but that of hour 60.
  await runAt(90, 10);
  const left = await partials("tile/entries/000");
  expect([left.length, first.some((key) => left.includes(key))]).toEqual([1, false]);
  expect(await partials("tile/0/000")).toHaveLength(1);
  expect(await own.proven(growing)).toBe(growing.committer.fold.size);
  await runAt(120, 10);
  expect([await partials("tile/entries/000"), await partials("tile/0/000")]).toEqual([[], []]);
  expect((await partials("tile/entries/001")).length).toBeGreaterThan(1);
  expect(await own.proven(growing)).toBe(growing.committer.fold.size);
  await growing.close();
});

it.each([0, 301, Number.NaN])("does not follow every %s seconds", async (everySeconds) => {
  const how = { everySeconds, signal: new AbortController().signal } as never;
  await expect(followMirror(how)).rejects.toMatchObject({ code: "usage" });
});
