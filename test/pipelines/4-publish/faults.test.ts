import { cp, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { openDirectoryStore } from "../../../infra/store/directory.ts";
import type { Store } from "../../../infra/store/store.ts";
import type { Publisher } from "../../../pipelines/4-publish/publisher.ts";
import { writeRun } from "../../../pipelines/4-publish/runs.ts";
import { proveRecord, tokenOf } from "../../helpers/prove-record.ts";
import { type Fault, Faults, type Outcome } from "./faults.ts";
import { capOf, cardToken, correction, header, JWKS, line, listing, TRUST, World } from "./world.ts";

/**
 * A table of disasters: every write of a publication of each kind, failing before it is stored or losing its answer,
 * with the process dying there or living on. Whoever comes next calls the same again, and the record must be whole.
 */
interface Scene {
  /** What the log holds before. */
  prepare(world: World): Promise<void>;
  /** What goes wrong. Every step may be done again. */
  work(publisher: Publisher): Promise<void>;
  /** Tokens of everything that was put in. */
  putIn: string[];
  /** Kinds of writes that must be among those that go wrong. */
  writes: string[];
}

const names = (prefix: string, n: number) => Array.from({ length: n }, (_, i) => `${prefix}-${i}`);
const listings = (prefix: string, n: number) => names(prefix, n).map((name) => listing(name));
const listingTokens = (prefix: string, n: number) =>
  listings(prefix, n).map((facts) => tokenOf({ kind: "listing", ...facts }));

const FIRST = "2026-11-21T01:00:00.000Z";
const SECOND = "2026-11-21T03:00:00.000Z";
const LIVENESS = { band: "UNRATED", tier: "LIVENESS_VERIFIED" } as const;

const everyKind: Scene = {
  async prepare(world) {
    await world.publisher().publishListings(listings("known", 4));
    const lines = [line("known-0", FIRST, ["A", LIVENESS]), line("known-1", FIRST, ["B"])];
    await writeRun(world.privateStore, header(FIRST, 5), lines);
    await writeRun(world.privateStore, header(SECOND, 9), [line("known-0", SECOND, ["C"], "less rows")]);
  },
  async work(publisher) {
    await publisher.publishListings(listings("new", 3), [capOf("known-2")]);
    const correctionsOf = async ({ now }: { now: string }) => (now === SECOND ? [correction("known-0", "c1")] : []);
    await publisher.takeNewRuns(correctionsOf);
    await publisher.buildIndex();
    await publisher.publishSchedule({ day: "2026-11-22", salt_hash: "00", covered_root: "00", covered: 2 });
  },
  putIn: [
    cardToken("known-0", FIRST),
    cardToken("known-0", FIRST, "LIVENESS_VERIFIED"),
    cardToken("known-1", FIRST),
    cardToken("known-0", SECOND),
    tokenOf(correction("known-0", "c1")),
    "schedule 2026-11-22 ",
    `delisting ${capOf("known-2")}`,
    ...listingTokens("known", 4),
    ...listingTokens("new", 3),
  ],
  writes: [
    "staging/",
    "generation/",
    "tile/0/000.p/",
    "tile/entries/000.p/",
    "checkpoint",
    "shard/",
    "index/1",
    "hint/index",
  ],
};

const edgeOfATile: Scene = {
  async prepare(world) {
    await world.publisher().publishListings(listings("known", 250));
  },
  async work(publisher) {
    await publisher.publishListings(listings("new", 8));
  },
  putIn: [...listingTokens("known", 250), ...listingTokens("new", 8)],
  writes: ["tile/0/000", "tile/0/001.p/", "tile/1/000.p/1", "tile/entries/000", "tile/entries/001.p/"],
};

const firstOfAll: Scene = {
  async prepare() {},
  async work(publisher) {
    await publisher.publishKeys(JWKS);
  },
  putIn: [],
  writes: ["keys/0.json", "generation/00000000000000000000", "hint/keys.json"],
};

interface Stores {
  dir: string;
  privateStore: Store;
  publicStore: Store;
}

async function withCopy<T>(base: string, run: (stores: Stores) => Promise<T>): Promise<T> {
  const dir = await mkdtemp(join(tmpdir(), "publish-fault-"));
  await cp(base, dir, { recursive: true });
  const privateStore = await openDirectoryStore(join(dir, "private"));
  const publicStore = await openDirectoryStore(join(dir, "public"));
  try {
    return await run({ dir, privateStore, publicStore });
  } finally {
    await privateStore.close();
    await publicStore.close();
    await rm(dir, { recursive: true, force: true });
  }
}

const spare = await World.open();
afterAll(() => spare.close());

/** A publisher whose writes are counted, and one of them may go wrong. */
function publisherOn(stores: Stores, fault: Fault | null): { publisher: Publisher; faults: Faults } {
  const faults = new Faults(fault);
  const privateStore = faults.wrap(stores.privateStore, "private");
  const publicStore = faults.wrap(stores.publicStore, "public");
  return { publisher: spare.publisher({ privateStore, publicStore }), faults };
}

async function prepared(scene: Scene): Promise<string> {
  const world = await World.open();
  if (scene !== firstOfAll) await world.publisher().publishKeys(JWKS);
  await scene.prepare(world);
  await world.privateStore.close();
  await world.publicStore.close();
  return world.dir;
}

const OUTCOMES: Outcome[] = ["fails before", "answer lost"];

async function tableOf(scene: Scene) {
  const base = await prepared(scene);
  afterAll(() => rm(base, { recursive: true, force: true }));
  const proof = { trust: TRUST, expected: scene.putIn, nothingElse: true, settled: true };
  const clean = await withCopy(base, async (stores) => {
    const { publisher, faults } = publisherOn(stores, null);
    await scene.work(publisher);
    await proveRecord(stores.publicStore, proof);
    return faults.writes;
  });
  // Who lives on takes the same way out wherever in the work it happens: once for each kind of write will do.
  const kinds = clean.map((name) => name.replaceAll(/[0-9a-f]{64}|\d+/g, "N"));
  const table = clean.flatMap((name, write) =>
    OUTCOMES.flatMap((outcome) =>
      (kinds.indexOf(kinds[write]!) === write ? [true, false] : [true]).map((dies) => ({ name, write, outcome, dies })),
    ),
  );
  return { base, proof, clean, table };
}

const scenes = { everyKind, edgeOfATile, firstOfAll };
const tables = await Promise.all(
  Object.entries(scenes).map(async ([name, scene]) => ({ name, scene, ...(await tableOf(scene)) })),
);

describe.each(tables)("$name", ({ scene, base, proof, clean, table }) => {
  it("is tried at every kind of write", () => {
    for (const kind of scene.writes) expect(clean.filter((name) => name.includes(kind))).not.toEqual([]);
  });

  it.each(table)("write $write, $name: $outcome, dies: $dies", async ({ write, outcome, dies }) =>
    withCopy(base, async (stores) => {
      const first = publisherOn(stores, { write, outcome, dies });
      const failed = await scene.work(first.publisher).then(
        () => false,
        () => true,
      );
      // What a reader finds of a dead publisher is a whole record, only perhaps an older one.
      if (dies) await proveRecord(stores.publicStore, { trust: TRUST });
      await scene.work(dies ? publisherOn(stores, null).publisher : first.publisher);
      await proveRecord(stores.publicStore, proof);
      // A lost answer to the one write that is asked for again is no failure at all.
      expect(failed || outcome === "answer lost").toBe(true);
    }),
  );
});
