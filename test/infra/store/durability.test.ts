import { describe, expect, it } from "vitest";
import { openDirectoryStore } from "../../../infra/store/directory.ts";
import { type Store, StoreFull } from "../../../infra/store/store.ts";
import { fc } from "../../helpers/histories.ts";
import { PowerLoss, RecordingFs, type Step } from "./recording-fs.ts";

const OLD = new TextEncoder().encode("old bytes of the object");
const NEW = new TextEncoder().encode("the new bytes, which are longer");
const KEY = "lake/a/b/object";
const ROOT = "/srv/store";

/** One write each: what is there before, the write, and what may be seen when it did not finish. */
const WRITES = [
  { write: "create in new folders", before: null, run: (s: Store) => s.create(KEY, NEW) },
  { write: "create in an old folder", before: null, neighbour: true, run: (s: Store) => s.create(KEY, NEW) },
  { write: "swap into a free key", before: null, run: (s: Store) => s.swap(KEY, NEW, null) },
  { write: "swap over an object", before: OLD, run: async (s: Store) => s.swap(KEY, NEW, (await s.head(KEY))!.etag) },
];

async function prepared(write: (typeof WRITES)[number]): Promise<{ fs: RecordingFs; store: Store }> {
  const fs = new RecordingFs();
  const store = await openDirectoryStore(ROOT, { fs });
  if (write.neighbour) await store.create("lake/a/b/neighbour", OLD);
  if (write.before) await store.create(KEY, write.before);
  fs.steps.length = 0;
  return { fs, store };
}

async function stepsOf(write: (typeof WRITES)[number]): Promise<Step[]> {
  const { fs, store } = await prepared(write);
  await write.run(store);
  return [...fs.steps];
}

async function seen(fs: RecordingFs): Promise<string | null> {
  const store = await openDirectoryStore(ROOT, { fs });
  expect(await fs.readdir(`${ROOT}/.~store/tmp`)).toEqual([]);
  const found = await store.get(KEY);
  expect((await store.list("lake/a/b/o")).map((o) => o.key)).toEqual(found ? [KEY] : []);
  return found && Buffer.from(found.bytes).toString();
}

const allowed = (write: (typeof WRITES)[number]) => [
  write.before && Buffer.from(write.before).toString(),
  Buffer.from(NEW).toString(),
];

/** The harshest disk, the kindest one, and some in between, which fast-check picks and shrinks. */
const disks = fc.oneof(
  fc.constant([false]),
  fc.constant([true]),
  fc.array(fc.boolean(), { minLength: 1, maxLength: 12 }),
);
const keepsBy = (choices: readonly boolean[]) => {
  let i = 0;
  return () => choices[i++ % choices.length]!;
};

describe.each(WRITES)("$write", (write) => {
  it("survives a power loss right after it was acknowledged", async () => {
    const property = fc.asyncProperty(disks, async (choices) => {
      const { fs, store } = await prepared(write);
      await write.run(store);
      expect(await seen(fs.afterPowerLoss(keepsBy(choices)))).toBe(Buffer.from(NEW).toString());
    });
    await fc.assert(property, { numRuns: 20 });
  });

  it("shows the old state or the new one, whole, when power goes at any step", async () => {
    const steps = await stepsOf(write);
    for (const { index } of steps) {
      const property = fc.asyncProperty(disks, async (choices) => {
        const { fs, store } = await prepared(write);
        fs.fault = (step) => (step.index === index ? "power" : undefined);
        await expect(write.run(store)).rejects.toThrow(PowerLoss).catch(ignoreUnlink(steps[index]!));
        const disk = fs.afterPowerLoss(keepsBy(choices));
        expect(allowed(write)).toContain(await seen(disk));
        // And the next process can do what this one could not.
        const again = await openDirectoryStore(ROOT, { fs: disk });
        if (write.before) await again.swap(KEY, NEW, (await again.head(KEY))!.etag);
        else await again.create(KEY, NEW);
        expect(await seen(disk.afterPowerLoss(() => false))).toBe(Buffer.from(NEW).toString());
      });
      await fc.assert(property, { numRuns: 6 });
    }
  });

  it("needs every one of its syncs: without it an acknowledged write is lost", async () => {
    const syncs = (await stepsOf(write)).filter((step) => step.op === "sync" || step.op === "syncFile");
    expect(syncs.length).toBeGreaterThanOrEqual(2);
    for (const { index } of syncs) {
      const { fs, store } = await prepared(write);
      fs.fault = (step) => (step.index === index ? "lie" : undefined);
      await write.run(store);
      expect(await seen(fs.afterPowerLoss(() => false))).not.toBe(Buffer.from(NEW).toString());
    }
  });

  it.each([
    { error: "ENOSPC", torn: false },
    { error: "ENOSPC", torn: true },
    { error: "EDQUOT", torn: false },
    { error: "EIO", torn: false },
    { error: "EIO", torn: true },
  ])("rejects and shows nothing half on $error (torn: $torn) at any step", async ({ error, torn }) => {
    for (const { index, op } of await stepsOf(write)) {
      const { fs, store } = await prepared(write);
      fs.fault = (step) => (step.index === index ? { fail: error, torn } : undefined);
      const outcome = await write.run(store).then(
        () => "done",
        (e: Error) => e,
      );
      // Only tidying up may fail unheard: the next open deletes what was left.
      if (op === "unlink") expect(outcome).toBe("done");
      else if (error === "EIO") expect(outcome).toMatchObject({ code: "EIO" });
      else expect(outcome).toBeInstanceOf(StoreFull);
      expect(allowed(write)).toContain(await seen(fs));

      fs.fault = () => undefined;
      const { etag } = (await store.head(KEY)) ?? { etag: null };
      expect((await store.swap(KEY, NEW, etag)).result).toBe("swapped");
      expect(await seen(fs.afterPowerLoss(() => false))).toBe(Buffer.from(NEW).toString());
    }
  });
});

/** The last step only tidies up, so a write may be acknowledged although power went in it. */
const ignoreUnlink = (step: Step) => (error: unknown) => {
  if (step.op !== "unlink") throw error;
};

describe("adopting what another writer left", () => {
  it("makes an object durable before it says exists, wherever its writer died", async () => {
    const steps = await stepsOf(WRITES[0]!);
    const linked = steps.findIndex((step) => step.op === "link");
    for (let index = linked + 1; index < steps.length; index++) {
      const { fs, store } = await prepared(WRITES[0]!);
      fs.fault = (step) => (step.index === index ? { fail: "EIO" } : undefined);
      await store.create(KEY, NEW).catch(() => undefined);
      const second = await openDirectoryStore(ROOT, { fs });
      expect(await second.create(KEY, OLD)).toEqual({ result: "exists" });
      expect(await seen(fs.afterPowerLoss(() => false))).toBe(Buffer.from(NEW).toString());
    }
  });

  it("syncs folders that another process made and never synced", async () => {
    const fs = new RecordingFs();
    const store = await openDirectoryStore(ROOT, { fs });
    for (const folder of ["lake", "lake/a", "lake/a/b"]) await fs.mkdir(`${ROOT}/${folder}`);
    await store.create(KEY, NEW);
    expect(await seen(fs.afterPowerLoss(() => false))).toBe(Buffer.from(NEW).toString());
  });

  it("a delete is durable too: the object does not come back", async () => {
    const { fs, store } = await prepared(WRITES[3]!);
    await store.delete(KEY);
    expect(await seen(fs.afterPowerLoss(() => false))).toBeNull();
  });

  it("deletes on a full disk, since that is what frees it", async () => {
    const { fs, store } = await prepared(WRITES[3]!);
    fs.fault = (step) => (step.op === "openNew" ? { fail: "ENOSPC" } : undefined);
    await store.delete(KEY);
    expect(await store.get(KEY)).toBeNull();
  });
});
