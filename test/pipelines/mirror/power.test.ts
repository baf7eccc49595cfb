import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { FixedClock } from "../../../infra/clock.ts";
import { openDirectoryStore } from "../../../infra/store/directory.ts";
import type { Store } from "../../../infra/store/store.ts";
import { mirrorOnce } from "../../../pipelines/mirror/mirror.ts";
import { drawn, SEED } from "../../helpers/drawn.ts";
import { proveRecord } from "../../helpers/prove-record.ts";
import { NOW, PublicRecord } from "../../helpers/public-record.ts";
import { RecordingFs, type Step } from "../../infra/store/recording-fs.ts";
import { keysOf, publishAll, publishMore, sourceDir, WatchedSource } from "./testbed.ts";

/**
 * A mirror whose machine loses power, runs full or is killed at every single step that it asks of its disk, on disks that
 * lose whatever was not synced, keep all of it, or keep some. After each the served snapshot is proven whole.
 */
const draw = drawn(SEED);
let record: PublicRecord;
let [first, size] = [0, 0];
let before: RecordingFs;

interface Open {
  fs: RecordingFs;
  publicStore: Store;
  stateStore: Store;
}
const open = async (fs: RecordingFs): Promise<Open> => ({
  fs,
  publicStore: await openDirectoryStore("/mirror/public", { fs }),
  stateStore: await openDirectoryStore("/mirror/state", { fs }),
});
const run = ({ publicStore, stateStore }: Open, source = new WatchedSource(sourceDir(record))) =>
  mirrorOnce({ source, publicStore, stateStore, clock: new FixedClock(NOW), keys: keysOf(record) });
/** @param atRest a run went through since: nothing lies beyond the checkpoint, and nothing is torn */
const proven = async ({ publicStore }: Open, atRest = false) =>
  (await proveRecord(publicStore, { trust: record.trust, atRest, torn: !atRest })).checkpoint?.size ?? null;

/** Disks after the power went: the harshest, the kindest (kill -9), and one drawn at random. */
const DISKS: [what: string, keeps: () => boolean][] = [
  ["loses all that was not synced", () => false],
  ["loses nothing", () => true],
  ["loses half", () => draw() < 0.5],
];
const copyOf = (fs: RecordingFs): RecordingFs => fs.afterPowerLoss(() => true);

beforeAll(async () => {
  record = await PublicRecord.open();
  await publishAll(record, "a", 12);
  first = record.committer.fold.size;
  const own = await open(new RecordingFs());
  await run(own);
  before = own.fs;
  await publishMore(record, "b", 6);
  size = record.committer.fold.size;
});
afterAll(() => record.close());

/** Every step of a run that goes from `first` to `size`. */
async function stepsOf(): Promise<Step[]> {
  const own = await open(copyOf(before));
  own.fs.steps.length = 0;
  await run(own);
  return own.fs.steps;
}

describe(`a mirror on a disk that fails it (seed ${SEED})`, () => {
  it.each(DISKS)(
    "power goes at any step, the disk %s: a proven snapshot is served, and the next run goes on",
    async (_, keeps) => {
      const steps = await stepsOf();
      expect(steps.filter(({ op }) => op === "link").length).toBeGreaterThan(4);
      for (const { index } of steps) {
        const own = await open(copyOf(before));
        own.fs.steps.length = 0;
        own.fs.fault = (step) => (step.index === index ? "power" : undefined);
        // The last steps only tidy up.
        await run(own).catch(() => undefined);
        const again = await open(own.fs.afterPowerLoss(keeps));
        expect([first, size], `step ${index}`).toContain(await proven(again));
        expect((await run(again)).tree_size).toBe(size);
        const last = await open(again.fs.afterPowerLoss(() => false));
        expect(await proven(last, true)).toBe(size);
      }
    },
  );

  it.each(["ENOSPC", "EIO"])(
    "%s at any step: a proven snapshot is served, and the same process goes on",
    async (fail) => {
      for (const { index } of await stepsOf()) {
        const own = await open(copyOf(before));
        own.fs.steps.length = 0;
        // A deletion waits for the clock of the disk, so the steps of two runs are not the same from there on.
        let failed: string | undefined;
        own.fs.fault = (step) => {
          if (step.index !== index) return undefined;
          failed = step.op;
          return { fail, torn: true };
        };
        await run(own).catch(() => undefined);
        own.fs.fault = () => undefined;
        expect([first, size], `step ${index}`).toContain(await proven(own));
        expect((await run(own)).tree_size).toBe(size);
        const last = await open(own.fs.afterPowerLoss(() => false));
        // A hint or checkpoint whose sync failed may be the older one again, until the next run.
        expect([first, size], `step ${index}, then power`).toContain(await proven(last));
        expect((await run(last)).tree_size).toBe(size);
        expect(await proven(last, true)).toBe(size);
        // A temporary file that could not be deleted is deleted by the next start.
        if (failed !== "unlink") expect(await own.fs.readdir("/mirror/public/.~store/tmp")).toEqual([]);
      }
    },
  );

  it("needs its syncs: a disk that lies about those of one kind is found out by a power cut", async () => {
    const steps = await stepsOf();
    const isObject = ({ path }: Step) => path.startsWith("/mirror/public/") && !path.includes(".~store");
    const linked = steps.filter((step) => step.op === "link" && isObject(step)).map(({ path }) => path);
    const last = Math.max(...steps.flatMap(({ op, path }, i) => (op === "sync" && linked.includes(path) ? [i] : [])));
    // One by one, and all of them before the first byte of what commits to them.
    for (const path of linked)
      expect(
        steps.some((step) => step.op === "sync" && step.path === path),
        path,
      ).toBe(true);
    expect(steps.findIndex(({ op, path }) => op === "rename" && path.startsWith("/mirror/state/"))).toBeGreaterThan(
      last,
    );
    for (const lies of [(path: string) => linked.includes(path), (path: string) => !linked.includes(path)]) {
      const own = await open(copyOf(before));
      own.fs.fault = ({ op, path }) =>
        op === "sync" && path.startsWith("/mirror/public/") && lies(path) ? "lie" : undefined;
      await run(own);
      const lost = await open(own.fs.afterPowerLoss(() => false));
      await expect(proven(lost)).rejects.toThrow();
    }
  });

  it("two runs in one folder at once: one of them says so, and the snapshot survives a power cut after it", async () => {
    for (let n = 0; n < 5; n++) {
      const one = await open(copyOf(before));
      const two = await open(one.fs);
      const late = new WatchedSource(sourceDir(record));
      let other: Promise<unknown> = Promise.resolve(new Error("it never began"));
      late.onGet = async (_, at) => {
        if (at === n) other = run(two).catch((error: unknown) => error);
      };
      const ended = await Promise.allSettled([run(one, late)]);
      const ends = [...ended.map((end) => (end.status === "rejected" ? end.reason : end.value)), await other];
      for (const end of ends) {
        if (end instanceof Error) expect(end.name).toBe("MirrorBusy");
        else expect(end).toMatchObject({ tree_size: size });
      }
      const after = await open(one.fs.afterPowerLoss(() => false));
      expect([first, size]).toContain(await proven(after));
      await run(after);
      expect(await proven(after, true)).toBe(size);
    }
  });
});
