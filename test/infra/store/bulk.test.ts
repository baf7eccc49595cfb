import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { bulkOf } from "../../../infra/store/bulk.ts";
import { openDirectoryStore } from "../../../infra/store/directory.ts";
import { KeyConflict, StoreFull } from "../../../infra/store/errors.ts";
import { nodeFs, tellsOfErrors } from "../../../infra/store/fs.ts";
import { BadKey, type Bulk, type Store } from "../../../infra/store/store.ts";
import { lots } from "../../helpers/drawn.ts";
import { fc } from "../../helpers/histories.ts";
import { PowerLoss, RecordingFs, type Step } from "./recording-fs.ts";

const ROOT = "/srv/store";
const bytesOf = (text: string) => new TextEncoder().encode(text);
/** New folders, an old one, one key twice over; `a/held` is there with other bytes, `a/same` with these. */
const OBJECTS: [key: string, text: string][] = [
  ["new/deep/one", "the first of the new objects"],
  ["new/deep/two", "the second one"],
  ["a/three", "one beside an old object"],
  ["a/held", "what has to be here"],
  ["a/same", "what is here already"],
];
const KEYS = [...OBJECTS.map(([key]) => key), "a/old"];
const RUSTY = "rust";

async function prepared(whole: boolean): Promise<{ fs: RecordingFs; store: Store }> {
  const fs = new RecordingFs();
  fs.syncsWhole = whole;
  const store = await openDirectoryStore(ROOT, { fs });
  await store.create("a/old", bytesOf("an old object"));
  await store.create("a/held", bytesOf(RUSTY));
  await store.create("a/same", bytesOf("what is here already"));
  fs.steps.length = 0;
  return { fs, store };
}

async function putAll(bulk: Bulk): Promise<void> {
  await Promise.all(OBJECTS.map(([key, text]) => bulk.put(key, bytesOf(text))));
  await bulk.settle();
}

/** What a process that starts now finds under each key; no temporary file is left then. */
async function found(fs: RecordingFs): Promise<Record<string, string | null>> {
  const store = await openDirectoryStore(ROOT, { fs });
  expect(await fs.readdir(`${ROOT}/.~store/tmp`)).toEqual([]);
  const texts: Record<string, string | null> = {};
  for (const key of KEYS) {
    const object = await store.get(key);
    texts[key] = object && Buffer.from(object.bytes).toString();
  }
  return texts;
}

const whole: Record<string, string> = { ...Object.fromEntries(OBJECTS), "a/old": "an old object" };

/** Nothing but whole objects: those of before, or the new ones. */
function expectWhole(texts: Record<string, string | null>): void {
  const before: Record<string, string | null> = { "a/held": RUSTY };
  for (const [key, text] of Object.entries(texts)) {
    const may = key === "a/old" || key === "a/same" ? [whole[key]] : [whole[key], before[key] ?? null];
    expect(may, key).toContain(text);
  }
}

const disks = fc.oneof(
  fc.constant([false]),
  fc.constant([true]),
  fc.array(fc.boolean(), { minLength: 1, maxLength: 40 }),
);
const keepsBy = (choices: readonly boolean[]) => {
  let i = 0;
  return () => choices[i++ % choices.length]!;
};

async function stepsOf(syncsWhole: boolean): Promise<Step[]> {
  const { fs, store } = await prepared(syncsWhole);
  await putAll(bulkOf(store));
  return [...fs.steps];
}

describe.each([
  ["whose file system is synced whole", true],
  ["whose file system cannot be synced whole", false],
])("a bulk in a folder %s", (_, syncsWhole) => {
  it("is all there after a power loss, once it has settled", async () => {
    await fc.assert(
      fc.asyncProperty(disks, async (choices) => {
        const { fs, store } = await prepared(syncsWhole);
        await putAll(bulkOf(store));
        expect(await found(fs.afterPowerLoss(keepsBy(choices)))).toEqual(whole);
        expect(await found(fs)).toEqual(whole);
      }),
      { numRuns: 20 },
    );
  });

  it("shows whole objects or none when power goes at any step, and the next bulk ends it", async () => {
    for (const { index, op } of await stepsOf(syncsWhole)) {
      const property = fc.asyncProperty(disks, async (choices) => {
        const { fs, store } = await prepared(syncsWhole);
        fs.fault = (step) => (step.index === index ? "power" : undefined);
        const lost = await putAll(bulkOf(store)).catch((error: unknown) => error);
        // Tidying up may be what power took.
        if (op !== "unlink") expect(lost).toBeInstanceOf(PowerLoss);
        const disk = fs.afterPowerLoss(keepsBy(choices));
        expectWhole(await found(disk));
        await putAll(bulkOf(await openDirectoryStore(ROOT, { fs: disk })));
        expect(await found(disk.afterPowerLoss(() => false))).toEqual(whole);
      });
      await fc.assert(property, { numRuns: 5 });
    }
  });

  it.each([
    { error: "ENOSPC", torn: true },
    { error: "EDQUOT", torn: false },
    { error: "EIO", torn: true },
  ])("says $error of any step, keeps nothing half, and leaves no temporary file", async ({ error, torn }) => {
    for (const { index, op } of await stepsOf(syncsWhole)) {
      const { fs, store } = await prepared(syncsWhole);
      fs.fault = (step) => (step.index === index ? { fail: error, torn } : undefined);
      const bulk = bulkOf(store);
      const puts = await Promise.allSettled(OBJECTS.map(([key, text]) => bulk.put(key, bytesOf(text))));
      const ended = await bulk.settle().catch((fault: unknown) => fault);
      const faults = [...puts.flatMap((put) => (put.status === "rejected" ? [put.reason] : [])), ended].filter(Boolean);
      if (op === "unlink") expect(faults).toEqual([]);
      else if (error === "EIO") expect(faults[0]).toMatchObject({ code: "EIO" });
      else if (op !== "syncAll") expect(faults[0]).toBeInstanceOf(StoreFull);
      else expect(faults[0]).toMatchObject({ code: error });
      fs.fault = () => undefined;
      if (op !== "unlink") expect(await fs.readdir(`${ROOT}/.~store/tmp`)).toEqual([]);
      expectWhole(await found(fs));
      await putAll(bulkOf(store));
      expect(await found(fs.afterPowerLoss(() => false))).toEqual(whole);
    }
  });

  it("makes durable what it adopts: a name that its writer did not live to sync", async () => {
    const { fs, store } = await prepared(syncsWhole);
    const dead = bulkOf(store);
    fs.fault = (step) =>
      step.op === "syncAll" && fs.steps.some((one) => one.op === "link") ? { fail: "EIO" } : undefined;
    await dead.put("new/deep/one", bytesOf("the first of the new objects"));
    await dead.settle().catch(() => undefined);
    fs.fault = () => undefined;
    const bulk = bulkOf(await openDirectoryStore(ROOT, { fs }));
    bulk.adopt("new/deep/one");
    await bulk.settle();
    expect(await found(fs.afterPowerLoss(() => false))).toMatchObject({
      "new/deep/one": "the first of the new objects",
    });
  });

  it("goes on when a process that starts sweeps its temporary files, and when another bulk puts the same", async () => {
    const { fs, store } = await prepared(syncsWhole);
    const [one, two] = [bulkOf(store), bulkOf(await openDirectoryStore(ROOT, { fs }))];
    for (const [key, text] of OBJECTS) {
      await one.put(key, bytesOf(text));
      await two.put(key, bytesOf(text));
    }
    const syncAll = fs.syncAll.bind(fs);
    let swept = 0;
    fs.syncAll = async (path) => {
      swept += (await fs.readdir(`${ROOT}/.~store/tmp`)).length;
      await openDirectoryStore(ROOT, { fs });
      return syncAll(path);
    };
    await Promise.all([one.settle(), two.settle()]);
    expect(swept).toBeGreaterThanOrEqual(OBJECTS.length);
    expect(await found(fs.afterPowerLoss(() => false))).toEqual(whole);
  });

  it("refuses keys that are none, and a folder in the place of an object", async () => {
    const { fs, store } = await prepared(syncsWhole);
    const bulk = bulkOf(store);
    await expect(bulk.put("../a", bytesOf("x"))).rejects.toThrow(BadKey);
    await bulk.put("a", bytesOf("x"));
    await expect(bulk.settle()).rejects.toThrow(KeyConflict);
    await expect(bulk.put("b", bytesOf("x"))).rejects.toThrow(KeyConflict);
    expect(await fs.readdir(`${ROOT}/.~store/tmp`)).toEqual([]);
  });
});

describe("the syncs of a bulk", () => {
  it("are two, whatever the number of objects", async () => {
    const fs = new RecordingFs();
    const store = await openDirectoryStore(ROOT, { fs });
    fs.steps.length = 0;
    const bulk = bulkOf(store);
    for (let i = 0; i < 50; i++) await bulk.put(`many/${i}`, bytesOf(`object ${i}`));
    expect(await store.list("many/")).toEqual([]);
    await bulk.settle();
    await bulk.settle();
    expect(fs.steps.filter(({ op }) => op.startsWith("sync")).map(({ op }) => op)).toEqual(["syncAll", "syncAll"]);
    expect(await store.list("many/")).toHaveLength(50);
  });

  it("are needed both: without the first a name without its bytes can be seen, without the second names are lost", async () => {
    const [first, second] = (await stepsOf(true)).filter(({ op }) => op === "syncAll").map(({ index }) => index);
    const { fs, store } = await prepared(true);
    fs.fault = ({ index }) => (index === first ? "lie" : index === second ? "power" : undefined);
    await expect(putAll(bulkOf(store))).rejects.toThrow(PowerLoss);
    const key = "new/deep/one";
    const seen = new Set<string | null>();
    for (let seed = 0; seed < 100; seed++) {
      const lot = lots(seed);
      seen.add((await found(fs.afterPowerLoss(() => (lot() & 1) === 1)))[key]!);
    }
    expect([...seen].filter((text) => text !== null && text !== whole[key])).not.toEqual([]);

    const again = await prepared(true);
    again.fs.fault = ({ index }) => (index === second ? "lie" : undefined);
    await putAll(bulkOf(again.store));
    expect(await found(again.fs.afterPowerLoss(() => false))).toMatchObject({ "new/deep/one": null });
  });

  it("come early where much is put: a process that dies loses no more than the last of it", async () => {
    const fs = new RecordingFs();
    const store = await openDirectoryStore(ROOT, { fs });
    const bulk = bulkOf(store);
    const large = Buffer.alloc(9 * 1024 * 1024, 1);
    for (let i = 0; i < 12; i++) await bulk.put(`large/${i}`, large);
    expect((await store.list("large/")).length).toBeGreaterThanOrEqual(4);
    await bulk.settle();
    expect(await store.list("large/")).toHaveLength(12);
  });
});

describe("on this machine's disk", () => {
  let root: string;
  beforeEach(async () => {
    root = await mkdtemp(join(tmpdir(), "bulk-"));
  });
  afterEach(() => rm(root, { recursive: true }));

  it("objects are plain files once it has settled, and nothing else stays", async () => {
    const store = await openDirectoryStore(root);
    const bulk = bulkOf(store);
    await Promise.all(Array.from({ length: 300 }, (_, i) => bulk.put(`a/${i % 7}/${i}`, bytesOf(`object ${i}`))));
    await bulk.settle();
    expect(await readFile(join(root, "a/6/6"), "utf8")).toBe("object 6");
    expect(await store.list("a/", { limit: 1_000 })).toHaveLength(300);
    expect(await readdir(join(root, ".~store/tmp"))).toEqual([]);
    await store.close();
  });

  it.runIf(process.platform === "linux")("a file system of which nothing is known is not synced whole", async () => {
    expect(await nodeFs.syncAll("/proc")).toBe(false);
    expect(await nodeFs.syncAll(root)).toBeTypeOf("boolean");
  });

  it.each([
    ["4.19.0-27-amd64", false],
    ["5.7.19", false],
    ["5.8.0", true],
    ["5.10.0-35-cloud-amd64", true],
    ["6.1.0", true],
  ])("Linux %s: is a sync that fails told? %s", (kernel, told) => {
    expect(tellsOfErrors(kernel)).toBe(told);
  });
});
