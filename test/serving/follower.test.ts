import { cp, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { tableFromIPC, tableToIPC } from "apache-arrow";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { openDirectoryStore } from "../../infra/store/directory.ts";
import type { Store } from "../../infra/store/store.ts";
import { CHECKPOINT, VIEW } from "../../pipelines/published/objects.ts";
import { PublishedTree, type Snapshot } from "../../pipelines/published/reader.ts";
import { encodeVolatile } from "../../pipelines/record/volatile-arrow.ts";
import { headlineOf } from "../../serving/tables/entry.ts";
import { Follower, type FollowerDeps } from "../../serving/tables/follower.ts";
import { capOf, cardOf, listingDraft, ORIGIN, PublicRecord, rowOf } from "../helpers/public-record.ts";
import { ManualClock } from "../helpers/serving.ts";
import { TurnsSeen } from "../helpers/turns.ts";

const A = { url: "https://a.example/x" };
const B = { url: "https://b.example/x" };

let record: PublicRecord;
beforeEach(async () => {
  record = await PublicRecord.open();
});
afterEach(() => record.close());

const treeOf = (store: Store): PublishedTree => new PublishedTree(store, record.trust);

const follow = (store: Store = record.store, tree: FollowerDeps["tree"] = treeOf(store)): Follower =>
  new Follower({
    ...{ tree, store, origin: ORIGIN, clock: new ManualClock() },
    ...{ logger: record.logger, metrics: record.metrics, everyMs: 5 },
  });

/** A copy of the public store as it is now. */
async function copy(): Promise<{ store: Store; remove: () => Promise<void> }> {
  const dir = await mkdtemp(join(tmpdir(), "public-copy-"));
  await cp(join(record.dir, "public"), dir, { recursive: true });
  const store = await openDirectoryStore(dir);
  return {
    store,
    remove: async () => {
      await store.close();
      await rm(dir, { recursive: true, force: true });
    },
  };
}

const bandOf = (follower: Follower, spec: { url: string }) => {
  const entry = follower.view.entry(capOf(spec));
  return entry ? (headlineOf(entry)?.band ?? null) : undefined;
};

describe("following", () => {
  test("before the first publication there is an empty view, and it is no error", async () => {
    const follower = follow();
    expect(follower.viewAgeMs).toBeNull();
    expect(await follower.refresh()).toBe(false);
    expect([follower.view.size, follower.snapshot, follower.viewAgeMs]).toEqual([0, null, 0]);
  });

  test("each look folds what is new, and a view that was taken stays as it was", async () => {
    const follower = follow();
    await record.publish([listingDraft(A)]);
    expect(await follower.refresh()).toBe(true);
    const first = follower.view;
    expect(bandOf(follower, A)).toBeNull();
    await record.publish([listingDraft(B)], record.grades([cardOf(A)], "B."));
    expect(await follower.refresh()).toBe(true);
    expect([bandOf(follower, A), bandOf(follower, B)]).toEqual(["B", null]);
    expect([first.size, first.entries.size, headlineOf(first.entry(capOf(A))!)]).toEqual([1, 1, null]);
    expect(await follower.refresh()).toBe(false);
  });

  test("folding in steps gives the state of folding at once", async () => {
    const stepwise = follow();
    for (let i = 0; i < 21; i++) {
      const spec = { url: `https://s${i % 7}.example/x` };
      const card = cardOf(spec, {
        computed_at: `2026-11-20T00:00:${String(i).padStart(2, "0")}.000Z`,
        composite: i / 100,
      });
      const lower = { ...card, tier: "DELIVERY_VERIFIED" as const };
      const draft = listingDraft(spec);
      await record.publish(
        [draft],
        record.grades([card, lower], `w${i}`),
        ...(i % 5 ? [] : [[{ kind: "delisting" as const, capability_id: capOf(spec) }]]),
      );
      await stepwise.refresh();
    }
    const once = follow();
    await once.refresh();
    const all = (follower: Follower) => [...follower.view.entries.values()].sort((a, b) => (a.cap < b.cap ? -1 : 1));
    expect(all(once)).toEqual(all(stepwise));
    expect(all(once)).toHaveLength(7);
    expect(all(once).every((entry) => entry.cards.length === 2)).toBe(true);
  });

  test("however many leaves are new, few of them are folded in one turn of the loop", async () => {
    await record.publish(Array.from({ length: 250 }, (_, i) => listingDraft({ url: `https://s${i}.example/x` })));
    const follower = follow();
    const { urlIndex: names } = follower.view;
    const add = names.add.bind(names);
    const turns = new TurnsSeen();
    names.add = (name) => {
      turns.see();
      add(name);
    };
    await follower.refresh();
    const seen = turns.end();
    expect(seen.all).toBe(250);
    expect(seen.most).toBeLessThanOrEqual(64);
  });

  test("two looks at once are one", async () => {
    const follower = follow();
    await record.publish([listingDraft(A)]);
    expect(follower.refresh()).toBe(follower.refresh());
    await follower.refresh();
  });

  test("start goes on after a look that failed; stop ends it", async () => {
    let fail = true;
    const store: Store = {
      ...record.store,
      get: async (key, options) => {
        if (fail) throw new Error("store is away");
        return record.store.get(key, options);
      },
    } as Store;
    const follower = follow(store);
    await record.publish([listingDraft(A)]);
    follower.start();
    await new Promise((resolve) => setTimeout(resolve, 30));
    expect(follower.viewAgeMs).toBeNull();
    fail = false;
    await expect.poll(() => follower.view.size, { interval: 5 }).toBe(1);
    await follower.stop();
    await record.publish([listingDraft(B)]);
    await new Promise((resolve) => setTimeout(resolve, 40));
    expect(follower.view.size).toBe(1);
  });
});

describe("what is not followed", () => {
  test("a smaller checkpoint: the old view stays", async () => {
    await record.publish([listingDraft(A)]);
    const old = (await record.store.get(CHECKPOINT))!;
    await record.publish([listingDraft(B)]);
    const follower = follow();
    await follower.refresh();
    const now = await record.store.head(CHECKPOINT);
    await record.store.swap(CHECKPOINT, old.bytes, now!.etag);
    await expect(follower.refresh()).rejects.toThrow("back from 2 leaves to 1");
    expect(follower.view.size).toBe(2);
  });

  test("a fork of the same size, and one that is longer", async () => {
    await record.publish([listingDraft(A)]);
    const follower = follow();
    await follower.refresh();
    // The same keys, another history: what a publisher that lost its private store would write.
    const forked = await PublicRecord.open(record.keys);
    try {
      await forked.publish([listingDraft(B)]);
      await replaceAll(forked.store, record.store);
      await expect(follower.refresh()).rejects.toThrow("two roots for 1 leaves");
      await forked.publish([listingDraft({ url: "https://c.example/" })]);
      await replaceAll(forked.store, record.store);
      await expect(follower.refresh()).rejects.toThrow("does not begin with");
      expect([follower.view.size, bandOf(follower, A), bandOf(follower, B)]).toEqual([1, null, undefined]);
    } finally {
      await forked.close();
    }
  });

  test("a leaf that is not what the root commits to", async () => {
    await record.publish([listingDraft(A)]);
    const held = await copy();
    try {
      const key = "tile/entries/000.p/1";
      const other = await PublicRecord.open();
      await other.publish([listingDraft(B)]);
      await held.store.delete(key);
      await held.store.create(key, (await other.store.get(key))!.bytes);
      await other.close();
      const follower = follow(held.store);
      await expect(follower.refresh()).rejects.toThrow(/tile\/entries/);
      expect(follower.view.size).toBe(0);
    } finally {
      await held.remove();
    }
  });

  test("a checkpoint of another key", async () => {
    const other = await PublicRecord.open();
    await other.publish([listingDraft(A)]);
    await expect(follow(other.store).refresh()).rejects.toThrow(/signed|signature/);
    await other.close();
  });
});

describe("the volatile rows", () => {
  test("never go back: an older position is not taken, a newer one is", async () => {
    await record.publish([listingDraft(A)]);
    const follower = follow();
    const probes = () => follower.view.row(capOf(A))?.probes;
    await record.live([rowOf(A, { probes: 10 })], { positions: { t: { "0": 5, "1": 7 } } });
    await follower.refresh();
    for (const positions of [{ t: { "0": 6, "1": 6 } }, { t: { "0": 9 } }, {}]) {
      await record.live([rowOf(A, { probes: 3 })], { positions: positions as Record<string, Record<string, number>> });
      expect(await follower.refresh()).toBe(false);
      expect(probes()).toBe(10);
    }
    await record.live([rowOf(A, { probes: 11 })], { positions: { t: { "0": 5, "1": 8 } } });
    expect(await follower.refresh()).toBe(true);
    expect(probes()).toBe(11);
  });

  test("a table that is named again is not read again", async () => {
    await record.publish([listingDraft(A)]);
    await record.live([rowOf(A, { probes: 10 })]);
    const follower = follow();
    await follower.refresh();
    const [key] = [...follower.view.volatile.files.keys()];
    await record.store.delete(key!);
    await record.live([rowOf(B, { probes: 1 })], { live: [key!, "live/0.1.arrow"] });
    await follower.refresh();
    expect([A, B].map((spec) => follower.view.row(capOf(spec))?.probes)).toEqual([10, 1]);
  });

  test("speak of the card they were counted against, not of a newer one", async () => {
    await record.publish([listingDraft(A)], record.grades([cardOf(A)], "B."));
    await record.live([rowOf(A, { withdrawn_since: 4, observations_since: 9 })]);
    const follower = follow();
    await follower.refresh();
    const since = () => follower.view.countsSince(capOf(A), headlineOf(follower.view.entry(capOf(A))!)?.leaf);
    expect(since()).toEqual({ observations: 9, withdrawn: 4 });
    await record.publish(record.grades([cardOf(A, { computed_at: "2026-11-21T11:00:00.000Z" })], "C."));
    await follower.refresh();
    expect(since()).toEqual({ observations: 0, withdrawn: 0 });
  });

  /** A card and the row that withdraws half of it; then the correction, the next card, and the row that is made against it. */
  const FIRST = cardOf(A, { sample_count: 12 });
  const SECOND = cardOf(A, { sample_count: 7, computed_at: "2026-11-21T11:00:00.000Z" });
  const since = ({ view }: Follower) => view.countsSince(capOf(A), headlineOf(view.entry(capOf(A))!)?.leaf).withdrawn;
  const corrected = JSON.stringify([{ kind: "correction", body: { id: "ours" } }]);

  test("that are newer than the tree wait for it, so that a withdrawn letter does not come back", async () => {
    await record.publish([listingDraft(A)], record.grades([FIRST], "B."));
    await record.live([rowOf(A, { withdrawn_since: 5, corrected })]);
    // The tree of a replica: its checkpoint is older than what `live/` has by then.
    const tree = treeOf(record.store);
    let behind: Snapshot | null = null;
    const follower = follow(record.store, { newest: async () => behind ?? tree.newest() });
    await follower.refresh();
    expect(since(follower)).toBe(5);
    behind = await tree.newest();
    const said = { kind: "correction" as const, capability_id: capOf(A), body: { id: "ours" }, position: 1 };
    await record.publish([said], record.grades([SECOND], "C."));
    await record.live([rowOf(A)]);
    await follower.refresh();
    expect([follower.view.size, since(follower), follower.view.row(capOf(A))?.corrected]).toEqual([2, 5, corrected]);
    behind = null;
    await follower.refresh();
    expect([follower.view.size, since(follower), follower.view.row(capOf(A))?.corrected]).toEqual([4, 0, "[]"]);
  });

  test("that are named after a card they were not made against do not withdraw it", async () => {
    await record.publish([listingDraft(A)], record.grades([FIRST], "B."));
    await record.live([rowOf(A, { withdrawn_since: 5, corrected })]);
    const follower = follow();
    await follower.refresh();
    const live = [...follower.view.volatile.files.keys()];
    await record.publish(record.grades([SECOND], "C."));
    await record.name(live);
    await follower.refresh();
    expect([follower.view.volatile.treeSize, since(follower)]).toEqual([3, 0]);
    await record.live([rowOf(A, { withdrawn_since: 1 })]);
    await follower.refresh();
    expect(since(follower)).toBe(1);
  });

  test("of an owner of the version before, which do not name their card, count as of the tree they were named with", async () => {
    await record.publish([listingDraft(A)], record.grades([FIRST], "B."));
    const table = tableFromIPC(await encodeVolatile([rowOf(A, { withdrawn_since: 5 })]));
    const older = tableToIPC(table.select(table.schema.names.filter((name) => name !== "card_leaf")), "file");
    await record.store.create("live/0.77.arrow", older);
    await record.name(["live/0.77.arrow"]);
    const follower = follow();
    await follower.refresh();
    expect(since(follower)).toBe(5);
    await record.publish(record.grades([SECOND], "C."));
    await follower.refresh();
    expect(since(follower)).toBe(0);
  });

  test.each([
    ["a view that is no JSON", "{"],
    [
      "a view of another version",
      JSON.stringify({ v: 2, at: "x", index: null, tree_size: 0, live: [], positions: {} }),
    ],
    [
      "a table that is gone",
      JSON.stringify({
        v: 1,
        at: "x",
        index: null,
        tree_size: 0,
        live: ["live/0.77.arrow"],
        positions: { "observations.free": { "0": 99 } },
      }),
    ],
  ])("%s: the old rows stay, it is counted, and no letter waits for it", async (_, text) => {
    await record.publish([listingDraft(A)]);
    await record.live([rowOf(A, { probes: 10 })]);
    const follower = follow();
    await follower.refresh();
    const held = await record.store.head(VIEW);
    await record.store.swap(VIEW, Buffer.from(text), held!.etag);
    await record.publish(record.grades([cardOf(A, { band: "F" })], "F."));
    await follower.refresh();
    expect([bandOf(follower, A), follower.view.row(capOf(A))?.probes]).toEqual(["F", 10]);
    expect(await record.metrics.text()).toContain("touchstone_serving_volatile_failures_total 1");
  });
});

/** Make one store hold exactly what another holds. */
async function replaceAll(from: Store, to: Store): Promise<void> {
  for (const { key } of await to.list("")) await to.delete(key);
  for (const { key } of await from.list("")) await to.create(key, (await from.get(key))!.bytes);
}
