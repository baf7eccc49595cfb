import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { dayOfManifest } from "../../../pipelines/record/archive.ts";
import { addDays } from "../../../pipelines/record/time.ts";
import { proveRecord } from "../../helpers/prove-record.ts";
import { handshake } from "../2-ingest/records.ts";
import { TRUST } from "../4-publish/world.ts";
import { FaultInjected, faultIn, faultInLake, type StoreFault } from "./injected-faults.ts";
import { type ArchiveParts, ArchiveWorld, publisherOver, type Step } from "./world.ts";

/** A day for each disaster: it comes of age, something goes wrong, and after it the whole record is looked at. */
const FIRST = "2026-11-10";
const DAYS = 60;
const NAMES = ["a", "b", "c"];
const input = new Map(
  Array.from({ length: DAYS }, (_, n) => addDays(FIRST, n)).map((day) => [
    day,
    NAMES.map((name) => handshake(name, `${day}T05:00:00.000Z`)),
  ]),
);
const everyId = [...input.values()]
  .flat()
  .map(({ eventId }) => eventId)
  .sort();

let world: ArchiveWorld;
let turn = 0;
beforeAll(async () => {
  world = await ArchiveWorld.open();
  await world.ingest.append(...[...input.values()].flat());
  // The evidence of all days is closed by then; none is old enough for the archive.
  await world.archive(momentOf(-1));
});
afterAll(() => world.close());

/** From this moment on the n-th day is old enough, and no later one. */
const momentOf = (n: number): string => `${addDays(FIRST, 111 + n)}T00:00:00.000Z`;

interface Seen {
  lake: string[];
  files: string[];
}

/** What is where: rows of the lake, and rows of the files that the log names and nobody replaced. */
async function seen(): Promise<Seen> {
  const rows = await world.ingest.lake.all<{ event_id: string }>("SELECT event_id FROM event WHERE type = 'handshake'");
  const lines = (await Promise.all((await world.filed()).map((leaf) => world.linesOf(leaf)))).flat();
  return {
    lake: rows.map(({ event_id }) => event_id),
    files: lines.map((line) => (JSON.parse(line) as { record_id: string }).record_id),
  };
}

/** Nothing is lost, and whoever reads the files sees no row twice, whenever he looks. */
async function nothingLost(): Promise<Seen> {
  const { lake, files } = await seen();
  expect([...new Set([...lake, ...files])].sort()).toEqual(everyId);
  expect(new Set(files).size).toBe(files.length);
  expect(new Set(lake).size).toBe(lake.length);
  return { lake, files };
}

/** The next day comes of age, and this goes wrong with it; then the job is run again as it should be. */
async function disaster(
  wrong: (parts: ArchiveParts) => Partial<ArchiveParts>,
  more: { fails?: boolean; mend?: () => Promise<void> } = {},
): Promise<void> {
  const n = turn++;
  const at = momentOf(n);
  const own = world.archiveParts();
  const failed = await world.archive(at, wrong(own)).then(
    () => null,
    (error: unknown) => error as Error,
  );
  if (more.fails !== false) expect(failed).not.toBeNull();
  await nothingLost();
  await more.mend?.();
  await world.archive(at);
  const { lake, files } = await nothingLost();
  expect(files.length + lake.length).toBe(everyId.length);
  expect(files).toHaveLength((n + 1) * NAMES.length);
  expect((await world.filed()).filter(({ manifest }) => dayOfManifest(manifest) === addDays(FIRST, n))).toHaveLength(4);
  expect(await world.ingest.lake.all("SELECT sum(probes)::INTEGER AS n FROM seen")).toEqual([{ n: everyId.length }]);
}

/** A publisher of another process, which knows only what is durable. */
const another = (parts: ArchiveParts) => ({
  publisher: publisherOver(world.ingest, parts.publicStore, { privateStore: parts.privateStore }),
});

const STEPS: Step[] = [
  ...([
    "taken out",
    "looked",
    "written",
    "made",
    "packed",
    "put",
    "read back",
    "counted",
    "signed",
    "manifest put",
  ] as const),
  "published",
];

describe.each(["throws", "dies, and another process goes on"])("the job %s", (how) => {
  test.each(STEPS)("after: %s", async (step) => {
    const onStep = (at: Step) => {
      if (at === step) throw new FaultInjected(step);
    };
    await disaster((parts) => ({ onStep, ...(how === "throws" ? {} : another(parts)) }));
  });
});

/** Objects that one look writes: the file, its manifest, and what the publisher writes for the leaves. */
const FILE = /^archive\/liveness_probes\//;
const MANIFEST = /^archive\/arc_/;
const PUBLIC: [string, StoreFault["match"]][] = [
  ["file", FILE],
  ["manifest", MANIFEST],
  ["entries", /^tile\/entries\//],
  ["checkpoint", /^checkpoint$/],
];
const PRIVATE: [string, StoreFault["match"]][] = [
  ["staging", /^staging\//],
  ["generation", /^generation\//],
];

describe.each(["full", "answer lost"] as const)("a store: %s", (how) => {
  test.each([...PUBLIC, ...PRIVATE])("at the %s", async (name, match) => {
    const isPublic = PUBLIC.some(([known]) => known === name);
    let happened = () => false;
    await disaster(
      ({ publicStore, privateStore }) => {
        const fault = faultIn(isPublic ? publicStore : (privateStore as typeof publicStore), { match, how });
        happened = fault.happened;
        const stores = isPublic
          ? { publicStore: fault.store, privateStore }
          : { publicStore, privateStore: fault.store };
        return { ...stores, publisher: publisherOver(world.ingest, stores.publicStore, stores) };
      },
      { fails: how === "full" },
    );
    expect(happened()).toBe(true);
  });
});

describe("what was put is not what is there", () => {
  test.each<[string, StoreFault["how"], RegExp]>([
    ["the file is not seen yet", "stale", FILE],
    ["a bit of the file is flipped on the way", "flipped", FILE],
    ["the manifest is not seen yet", "stale", MANIFEST],
    ["a bit of the manifest is flipped on the way", "flipped", MANIFEST],
  ])("%s", async (_, how, match) => {
    await disaster(({ publicStore, ...parts }) => {
      const { store } = faultIn(publicStore, { match, how });
      return { publicStore: store, ...another({ ...parts, publicStore: store }) };
    });
  });

  /** No store of ours tears a write; where one does, the name is taken by what nobody can adopt, and an operator removes it. */
  test.each([
    ["file", FILE],
    ["manifest", MANIFEST],
  ])("the %s was torn: it is never adopted, and the day is filed once it is gone", async (_, match) => {
    let torn = "";
    await disaster(
      ({ publicStore, ...parts }) => {
        const noting = {
          ...faultIn(publicStore, { match, how: "torn" }).store,
        };
        const { create } = noting;
        noting.create = (key, bytes, meta) => {
          if (match.test(key) && torn === "") torn = key;
          return create(key, bytes, meta);
        };
        return { publicStore: noting, ...another({ ...parts, publicStore: noting }) };
      },
      {
        mend: async () => {
          await expect(world.archive(momentOf(turn - 1))).rejects.toThrow(/exists with other content/);
          await nothingLost();
          await world.publicStore.delete(torn);
        },
      },
    );
  });
});

describe("the lake, when the rows are to leave it", () => {
  test.each(["rolled back", "answer lost"] as const)("%s", async (how) => {
    await disaster((parts) => {
      const { lake, arm } = faultInLake(parts.lake, how);
      return { lake, onStep: (step) => (step === "published" ? arm() : undefined) };
    });
  });
});

test("two at once, over one lake and over two publishers: each day is filed once", async () => {
  const at = momentOf(turn++);
  const both = [world.archiveParts(), { ...world.archiveParts(), ...another(world.archiveParts()) }];
  await Promise.allSettled(both.map((parts) => world.archive(at, parts)));
  await world.archive(at);
  const { lake, files } = await nothingLost();
  expect(files.length + lake.length).toBe(everyId.length);
});

test("at the end the whole record proves itself, and a lake loaded anew has what is left", async () => {
  await proveRecord(world.publicStore, { trust: TRUST });
  const { lake } = await seen();
  await world.ingest.ingest.rebuild();
  expect((await seen()).lake.sort()).toEqual(lake.sort());
  expect(await world.ingest.lake.all("SELECT sum(probes)::INTEGER AS n FROM seen")).toEqual([{ n: everyId.length }]);
});
