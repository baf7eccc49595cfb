import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { openDirectoryStore } from "../../../infra/store/directory.ts";
import { BadKey, type Bulk, bulkOf, type Store, StoreFull } from "../../../infra/store/store.ts";
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
const NEW = KEYS.slice(0, 3);
const RUSTY = "rust";

async function prepared(): Promise<{ fs: RecordingFs; store: Store }> {
  const fs = new RecordingFs();
  const store = await openDirectoryStore(ROOT, { fs });
  await store.create("a/old", bytesOf("an old object"));
  await store.create("a/held", bytesOf(RUSTY));
  await store.create("a/same", bytesOf("what is here already"));
  fs.steps.length = 0;
  return { fs, store };
}

async function putAll(bulk: Bulk): Promise<void> {
  await Promise.all(OBJECTS.map(([key, text]) => bulk.put(key, bytesOf(text))));
  await bulk.flush();
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

/** Nothing but whole objects: those of before, or the new ones. @param torn of the new ones there may be a part */
function expectWhole(texts: Record<string, string | null>, torn = false): void {
  for (const [key, text] of Object.entries(texts)) {
    if (key === "a/held") expect([RUSTY, whole[key]], key).toContain(text);
    else if (!NEW.includes(key)) expect(text, key).toBe(whole[key]);
    else if (torn) expect(whole[key]!.startsWith(text ?? ""), key).toBe(true);
    else expect([whole[key], null], key).toContain(text);
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

async function stepsOf(): Promise<Step[]> {
  const { fs, store } = await prepared();
  await putAll(bulkOf(store));
  return [...fs.steps];
}

describe("a bulk in a folder", () => {
  it("is all there after a power loss, once it has settled", async () => {
    await fc.assert(
      fc.asyncProperty(disks, async (choices) => {
        const { fs, store } = await prepared();
        await putAll(bulkOf(store));
        expect(await found(fs.afterPowerLoss(keepsBy(choices)))).toEqual(whole);
        expect(await found(fs)).toEqual(whole);
      }),
      { numRuns: 20 },
    );
  });

  it("keeps what was there whole when power goes at any step, and the next bulk writes again what is torn", async () => {
    const seen = new Set<string | null>();
    for (const { index, op } of await stepsOf()) {
      const property = fc.asyncProperty(disks, async (choices) => {
        const { fs, store } = await prepared();
        fs.fault = (step) => (step.index === index ? "power" : undefined);
        const lost = await putAll(bulkOf(store)).catch((error: unknown) => error);
        // Tidying up may be what power took.
        if (op !== "unlink") expect(lost).toBeInstanceOf(PowerLoss);
        const disk = fs.afterPowerLoss(keepsBy(choices));
        const texts = await found(disk);
        expectWhole(texts, true);
        seen.add(texts["a/three"]!);
        await putAll(bulkOf(await openDirectoryStore(ROOT, { fs: disk })));
        expect(await found(disk.afterPowerLoss(() => false))).toEqual(whole);
      });
      await fc.assert(property, { numRuns: 5 });
    }
    expect([...seen].filter((text) => text !== null && text !== whole["a/three"])).not.toEqual([]);
  });

  it.each([
    { error: "ENOSPC", torn: true },
    { error: "EDQUOT", torn: false },
    { error: "EIO", torn: true },
  ])("says $error of any step, shows nothing half, and leaves no temporary file", async ({ error, torn }) => {
    for (const { index, op } of await stepsOf()) {
      const { fs, store } = await prepared();
      fs.fault = (step) => (step.index === index ? { fail: error, torn } : undefined);
      const bulk = bulkOf(store);
      const puts = await Promise.allSettled(OBJECTS.map(([key, text]) => bulk.put(key, bytesOf(text))));
      const ended = await bulk.flush().catch((fault: unknown) => fault);
      const faults = [...puts.flatMap((put) => (put.status === "rejected" ? [put.reason] : [])), ended].filter(Boolean);
      if (op === "unlink") expect(faults).toEqual([]);
      else if (error === "EIO") expect(faults[0]).toMatchObject({ code: "EIO" });
      else expect(faults[0]).toBeInstanceOf(StoreFull);
      fs.fault = () => undefined;
      if (op !== "unlink") expect(await fs.readdir(`${ROOT}/.~store/tmp`)).toEqual([]);
      expectWhole(await found(fs));
      await putAll(bulkOf(store));
      expect(await found(fs.afterPowerLoss(() => false))).toEqual(whole);
    }
  });

  it("takes away what the disk did not keep: a later sync of it would find nothing amiss", async () => {
    const { fs, store } = await prepared();
    const bulk = bulkOf(store);
    for (const [key, text] of OBJECTS) await bulk.put(key, bytesOf(text));
    bulk.adopt("a/old");
    fs.fault = ({ op, path }) => (op === "sync" && /one$|old$/.test(path) ? { fail: "EIO" } : undefined);
    await expect(bulk.flush()).rejects.toMatchObject({ code: "EIO" });
    fs.fault = () => undefined;
    // From then on: who asks again must not believe that all is well.
    await expect(bulk.flush()).rejects.toMatchObject({ code: "EIO" });
    // All the rest is kept, and what others may rely on stays.
    expect(await found(fs.afterPowerLoss(() => false))).toEqual({ ...whole, "new/deep/one": null });
  });

  it("makes durable what it adopts: an object that its writer did not live to sync", async () => {
    const [key, text] = OBJECTS[0]!;
    for (const way of ["adopt", "put"] as const) {
      const { fs, store } = await prepared();
      await bulkOf(store).put(key, bytesOf(text));
      expect((await found(fs.afterPowerLoss(() => false)))[key]).toBeNull();
      const bulk = bulkOf(await openDirectoryStore(ROOT, { fs }));
      if (way === "adopt") bulk.adopt(key);
      else await bulk.put(key, bytesOf(text));
      await bulk.flush();
      expect((await found(fs.afterPowerLoss(() => false)))[key]).toBe(text);
    }
  });

  it("goes on when a process that starts deletes its temporary files, and when another bulk puts the same", async () => {
    const { fs, store } = await prepared();
    const [one, two] = [bulkOf(store), bulkOf(await openDirectoryStore(ROOT, { fs }))];
    const link = fs.link.bind(fs);
    let deleted = 0;
    fs.link = async (from, to) => {
      if (deleted < OBJECTS.length) {
        deleted += (await fs.readdir(`${ROOT}/.~store/tmp`)).length;
        await openDirectoryStore(ROOT, { fs });
      }
      return link(from, to);
    };
    await Promise.all(OBJECTS.flatMap(([key, text]) => [one, two].map((bulk) => bulk.put(key, bytesOf(text)))));
    expect(deleted).toBeGreaterThanOrEqual(OBJECTS.length);
    await Promise.all([one.flush(), two.flush()]);
    expect(await found(fs.afterPowerLoss(() => false))).toEqual(whole);
  });

  it("refuses keys that are none, and a folder in the place of an object", async () => {
    const { fs, store } = await prepared();
    const bulk = bulkOf(store);
    await expect(bulk.put("../a", bytesOf("x"))).rejects.toThrow(BadKey);
    expect(() => bulk.adopt("../a")).toThrow(BadKey);
    await expect(bulk.put("a", bytesOf("x"))).rejects.toThrow("crosses an object and a folder");
    await expect(bulk.put("a/old/b", bytesOf("x"))).rejects.toThrow("crosses an object and a folder");
    await bulk.flush();
    expect(await fs.readdir(`${ROOT}/.~store/tmp`)).toEqual([]);
  });
});

describe("the syncs of a bulk", () => {
  const syncsOf = (steps: readonly Step[]) =>
    steps.filter(({ op }) => op.startsWith("sync")).map(({ path }) => path.slice(ROOT.length));

  it("are one a file and one a folder, at the end; objects are in sight before", async () => {
    const fs = new RecordingFs();
    const store = await openDirectoryStore(ROOT, { fs });
    fs.steps.length = 0;
    const bulk = bulkOf(store);
    for (let i = 0; i < 50; i++) await bulk.put(`many/of/${i}`, bytesOf(`object ${i}`));
    expect(syncsOf(fs.steps)).toEqual([]);
    expect(await store.list("many/")).toHaveLength(50);
    await bulk.flush();
    await bulk.flush();
    const files = Array.from({ length: 50 }, (_, i) => `/many/of/${i}`);
    expect(syncsOf(fs.steps).sort()).toEqual(["", "/many", "/many/of", ...files].sort());
  });

  it("are needed, every one: without it an object is lost, or a part of it", async () => {
    const count = async (fs: RecordingFs, store: Store, key: string) => {
      const bulk = bulkOf(store);
      await bulk.put(key, bytesOf(whole[key]!));
      await bulk.flush();
      return fs.steps.filter(({ op }) => op.startsWith("sync"));
    };
    const first = await prepared();
    const syncs = await count(first.fs, first.store, "new/deep/one");
    expect(syncs).toHaveLength(4);
    for (const { index } of syncs) {
      const { fs, store } = await prepared();
      fs.fault = (step) => (step.index === index ? "lie" : undefined);
      await count(fs, store, "new/deep/one");
      expect((await found(fs.afterPowerLoss(() => false)))["new/deep/one"]).not.toBe(whole["new/deep/one"]);
    }
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
    await bulk.flush();
    expect(await readFile(join(root, "a/6/6"), "utf8")).toBe("object 6");
    expect(await store.list("a/", { limit: 1_000 })).toHaveLength(300);
    expect(await readdir(join(root, ".~store/tmp"))).toEqual([]);
    await store.close();
  });
});
