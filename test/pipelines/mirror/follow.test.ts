import { readFile } from "node:fs/promises";
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
async function follow(from: WatchedSource, steps: (() => unknown)[], policy?: WitnessPolicy) {
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

it.each([0, 301, Number.NaN])("does not follow every %s seconds", async (everySeconds) => {
  const how = { everySeconds, signal: new AbortController().signal } as never;
  await expect(followMirror(how)).rejects.toMatchObject({ code: "usage" });
});
