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
const FIRST = "2026-11-21T01:00:00.000Z";
const SECOND = "2026-11-21T03:00:00.000Z";
const KNOWN = 250;

async function makeBase(): Promise<string> {
  const world = await World.open();
  const publisher = world.publisher();
  await publisher.publishKeys(JWKS);
  await publisher.publishListings(Array.from({ length: KNOWN }, (_, i) => listing(`known-${i}`)));
  const liveness = { band: "UNRATED" as const, tier: "LIVENESS_VERIFIED" as const };
  await writeRun(world.privateStore, header(FIRST, 5), [
    line("known-0", FIRST, ["A", liveness]),
    line("known-1", FIRST, ["B"]),
  ]);
  await writeRun(world.privateStore, header(SECOND, 9), [line("known-0", SECOND, ["C"], "less rows")]);
  await world.privateStore.close();
  await world.publicStore.close();
  return world.dir;
}

/** Everything that a publisher does, crossing the edge of a tile. Every step may be done again. */
async function work(publisher: Publisher): Promise<void> {
  await publisher.publishListings(
    Array.from({ length: 8 }, (_, i) => listing(`new-${i}`)),
    [capOf("known-2")],
  );
  const correctionsOf = async ({ now }: { now: string }) => (now === SECOND ? [correction("known-0", "c1")] : []);
  await publisher.takeNewRuns(correctionsOf);
  await publisher.buildIndex();
  await publisher.publishSchedule({ day: "2026-11-22", salt_hash: "00", covered_root: "00", covered: 2 });
}

const PUT_IN = [
  cardToken("known-0", FIRST),
  cardToken("known-0", FIRST, "LIVENESS_VERIFIED"),
  cardToken("known-1", FIRST),
  cardToken("known-0", SECOND),
  tokenOf(correction("known-0", "c1")),
  "schedule 2026-11-22",
  `delisting ${capOf("known-2")}`,
  ...[...Array.from({ length: KNOWN }, (_, i) => `known-${i}`), ...Array.from({ length: 8 }, (_, i) => `new-${i}`)].map(
    (name) => tokenOf({ kind: "listing", ...listing(name) }),
  ),
];

const base = await makeBase();
afterAll(() => rm(base, { recursive: true, force: true }));

interface Stores {
  dir: string;
  privateStore: Store;
  publicStore: Store;
}

async function copyOfBase(): Promise<Stores> {
  const dir = await mkdtemp(join(tmpdir(), "publish-fault-"));
  await cp(base, dir, { recursive: true });
  const privateStore = await openDirectoryStore(join(dir, "private"));
  return { dir, privateStore, publicStore: await openDirectoryStore(join(dir, "public")) };
}

async function withStores<T>(run: (stores: Stores) => Promise<T>): Promise<T> {
  const stores = await copyOfBase();
  try {
    return await run(stores);
  } finally {
    await stores.privateStore.close();
    await stores.publicStore.close();
    await rm(stores.dir, { recursive: true, force: true });
  }
}

const world = await World.open();
afterAll(() => world.close());

/** A publisher whose writes are counted, and one of them may go wrong. */
function publisherOn(stores: Stores, fault: Fault | null): { publisher: Publisher; faults: Faults } {
  const faults = new Faults(fault);
  const privateStore = faults.wrap(stores.privateStore, "private");
  const publicStore = faults.wrap(stores.publicStore, "public");
  return { publisher: world.publisher({ privateStore, publicStore }), faults };
}

const clean = await withStores(async (stores) => {
  const { publisher, faults } = publisherOn(stores, null);
  await work(publisher);
  await proveRecord(stores.publicStore, { trust: TRUST, expected: PUT_IN, nothingElse: true, settled: true });
  return faults.writes;
});

const OUTCOMES: Outcome[] = ["fails before", "answer lost"];
/** Is it the first write of its kind? Who lives on takes the same way out wherever it happens, so once each will do. */
const isFirst = (name: string, write: number): boolean => {
  const kind = (text: string) => text.replaceAll(/[0-9a-f]{64}|\d+/g, "N");
  return clean.findIndex((other) => kind(other) === kind(name)) === write;
};
const table = clean.flatMap((name, write) =>
  OUTCOMES.flatMap((outcome) =>
    (isFirst(name, write) ? [true, false] : [true]).map((dies) => ({ name, write, outcome, dies })),
  ),
);

describe("a publication that goes wrong", () => {
  it("is tried at every kind of write", () => {
    const kinds = [
      "staging/",
      "generation/",
      "tile/0/000",
      "tile/0/001.p/",
      "tile/1/",
      "tile/entries/000",
      "checkpoint",
    ];
    for (const kind of [...kinds, "index/shard/", "index/2", "hint/index.json"]) {
      expect(clean.filter((name) => name.includes(kind))).not.toEqual([]);
    }
  });

  it.each(table)("write $write, $name: $outcome, dies: $dies", async ({ write, outcome, dies }) =>
    withStores(async (stores) => {
      const first = publisherOn(stores, { write, outcome, dies });
      const failed = await work(first.publisher).then(
        () => false,
        () => true,
      );
      // What a reader finds of a dead publisher is a whole record, only perhaps an older one.
      if (dies) await proveRecord(stores.publicStore, { trust: TRUST });
      const next = dies ? publisherOn(stores, null).publisher : first.publisher;
      await work(next);
      const { leaves } = await proveRecord(stores.publicStore, {
        trust: TRUST,
        expected: PUT_IN,
        nothingElse: true,
        settled: true,
      });
      // A lost answer to the one write that can be asked for again is no failure at all.
      expect(failed || outcome === "answer lost").toBe(true);
      expect(leaves.filter((leaf) => leaf.kind === "index").length).toBeLessThanOrEqual(2);
    }),
  );
});
