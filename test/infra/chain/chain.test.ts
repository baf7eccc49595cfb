import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { BadProposal, DamagedChain } from "../../../infra/chain/commit.ts";
import { type Chain, openChain, type Proposal } from "../../../infra/chain/commits.ts";
import { openDirectoryStore } from "../../../infra/store/directory.ts";
import { BadKey, type Store } from "../../../infra/store/store.ts";
import { AT, append, bytesOf, compact, FOLDER, historyOf, memoryStore, PLACE, put } from "./make.ts";

/** Counts what is opened, and may lose an answer after the work was done. */
function watched(store: Store) {
  const seen = { gets: 0, heads: 0, lists: 0, loseCreate: (_key: string) => false };
  const proxy: Store = {
    ...(Object.fromEntries(
      (["getRange", "swap", "delete", "close"] as const).map((name) => [name, store[name].bind(store)]),
    ) as Pick<Store, "getRange" | "swap" | "delete" | "close">),
    get: (key, options) => {
      seen.gets++;
      return store.get(key, options);
    },
    head: (key) => {
      seen.heads++;
      return store.head(key);
    },
    list: (prefix, options) => {
      seen.lists++;
      return store.list(prefix, options);
    },
    create: async (key, bytes, meta) => {
      const result = await store.create(key, bytes, meta);
      if (seen.loseCreate(key)) throw new Error("connection reset");
      return result;
    },
  };
  return { seen, store: proxy };
}

const proposal = (chain: Chain, change: Partial<Proposal> = {}): Promise<Proposal> =>
  chain.head().then(async ({ next }) => ({
    first: next,
    next: next + 5,
    lastEventId: `rec_${next + 4}`,
    add: change.add ?? [await put(chain, next, next + 4)],
    remove: [],
    at: AT,
    ...change,
  }));

describe("commit chain", () => {
  it("is empty at first", async () => {
    const chain = openChain(await memoryStore(), PLACE);
    expect(await chain.head()).toEqual({ n: -1, next: 0, lastEventId: null, live: [] });
    expect(await historyOf(chain)).toEqual([]);
  });

  it("writes the commit that the format page says", async () => {
    const store = await memoryStore();
    const chain = openChain(store, PLACE);
    const rejects = Buffer.from("bad bytes");
    const ref = await chain.putSegment(bytesOf(0, 4), 0, 4, { rows: 4, rejected: { records: 1, bytes: rejects } });
    expect(ref.file).toMatch(/^lake\/00ff\/observations\.paid\/3\/data\/0-4-[0-9a-f]{8}\.parquet$/);
    const { won } = await chain.commit({ first: 0, next: 5, lastEventId: "rec_4", add: [ref], remove: [], at: AT });
    expect(won).toBe(true);
    const found = await store.get(`${FOLDER}/commit/00000000000000000000.json`);
    const sha256 = expect.stringMatching(/^[0-9a-f]{64}$/);
    expect(JSON.parse(Buffer.from(found!.bytes).toString())).toEqual({
      ...{ n: 0, first: 0, next: 5, last_event_id: "rec_4", remove: [], at: "2026-03-01T12:00:00.000Z" },
      add: [
        {
          ...{ file: ref.file, first: 0, last: 4, rows: 4, rejected: 1, bytes: bytesOf(0, 4).length, sha256 },
          rejects: { file: expect.stringMatching(/\/data\/0-4-[0-9a-f]{8}\.rejected$/), bytes: 9, sha256 },
        },
      ],
      live: [ref],
      writer: expect.stringMatching(/^[0-9a-f]{16}$/),
    });
    expect(Buffer.from(await chain.readSegment(ref.rejects!)).equals(rejects)).toBe(true);
  });

  it("goes on from where another process stopped, and sees what others do", async () => {
    const store = await memoryStore();
    const [a, b] = [openChain(store, PLACE), openChain(store, PLACE)];
    await append(a, 10);
    await append(b, 5);
    await append(a, 1);
    expect(await b.head()).toEqual(await a.head());
    expect(await openChain(store, PLACE).head()).toEqual(await a.head());
    expect(await a.head()).toMatchObject({ n: 2, next: 16, lastEventId: "rec_15" });
    expect((await a.head()).live.map((s) => [s.first, s.last])).toEqual([
      [0, 9],
      [10, 14],
      [15, 15],
    ]);
  });

  it("keeps chains of other places apart", async () => {
    const store = await memoryStore();
    await append(openChain(store, PLACE), 3);
    for (const other of [
      { ...PLACE, partition: 4 },
      { ...PLACE, topic: "asks" },
      { ...PLACE, logId: "00fe" },
    ]) {
      expect((await openChain(store, other).head()).n).toBe(-1);
    }
    expect(() => openChain(store, { ...PLACE, logId: "../x" })).toThrow(BadKey);
  });

  it("replaces files by a commit that moves nothing", async () => {
    const chain = openChain(await memoryStore(), PLACE);
    for (const n of [3, 4, 5]) await append(chain, n);
    const { won, head } = await compact(chain);
    expect(won).toBe(true);
    expect(head).toMatchObject({ n: 3, next: 12, lastEventId: "rec_11" });
    expect(head.live.map((s) => [s.first, s.last])).toEqual([[0, 11]]);
    await append(chain, 2);
    expect((await chain.head()).live.map((s) => [s.first, s.last])).toEqual([
      [0, 11],
      [12, 13],
    ]);
  });

  it("shows an accepted gap to everybody", async () => {
    const store = await memoryStore();
    const chain = openChain(store, PLACE);
    await append(chain, 3);
    expect((await chain.gap(3, 10, AT)).won).toBe(true);
    expect((await chain.gap(3, 10, AT)).won).toBe(false);
    expect(() => chain.gap(10, 10, AT)).toThrow(BadProposal);
    expect(await openChain(store, PLACE).head()).toMatchObject({ n: 1, next: 10, lastEventId: null });
    await append(chain, 2);
    expect((await compact(chain)).head.live.map((s) => [s.first, s.last])).toEqual([
      [0, 2],
      [10, 11],
    ]);
    expect((await historyOf(chain)).map((c) => c.gap ?? false)).toEqual([false, true, false, false]);
  });

  it("lets one of two writers win and the other drop its file", async () => {
    const store = await memoryStore();
    const [a, b] = [openChain(store, PLACE), openChain(store, PLACE)];
    const [mine, his] = [await proposal(a), await proposal(b)];
    // Equal bytes, yet two files: dropping one must not touch the other.
    expect(mine.add[0]!.sha256).toBe(his.add[0]!.sha256);
    const results = await Promise.all([a.commit(mine), b.commit(his)]);
    expect(results.map((r) => r.won).sort()).toEqual([false, true]);
    const [winner, loser] = results[0]!.won ? [mine, his] : [his, mine];
    expect(results[0]!.head).toEqual(results[1]!.head);
    expect(results[0]!.head.live).toEqual(winner.add);
    expect(await a.dropSegment(loser.add[0]!)).toBe(true);
    expect(await a.dropSegment(winner.add[0]!)).toBe(false);
    expect((await store.list(`${FOLDER}/data/`)).map((o) => o.key)).toEqual([winner.add[0]!.file]);
  });

  it("knows its own commit when the answer was lost", async () => {
    const { seen, store } = watched(await memoryStore());
    const chain = openChain(store, PLACE);
    const mine = await proposal(chain);
    seen.loseCreate = (key) => key.includes("/commit/");
    await expect(chain.commit(mine)).rejects.toThrow("connection reset");
    seen.loseCreate = () => false;
    expect(await chain.commit(mine)).toMatchObject({ won: true, head: { n: 0 } });
    expect(await historyOf(chain)).toHaveLength(1);
  });

  it("knows its own commit when the store tried twice and says exists", async () => {
    const inner = await memoryStore();
    const { store } = watched(inner);
    const chain = openChain(
      {
        ...store,
        create: async (key, bytes) => {
          await inner.create(key, bytes);
          return key.includes("/commit/") ? { result: "exists" } : { result: "created" };
        },
      },
      PLACE,
    );
    expect((await append(chain, 2)).won).toBe(true);
    expect((await append(chain, 2)).won).toBe(true);
  });

  it("opens at most 64 commits however long the chain is, and one when nothing happened", async () => {
    const inner = await memoryStore();
    const writer = openChain(inner, PLACE);
    for (let i = 0; i < 130; i++) await append(writer, 1);
    await compact(writer);
    for (const length of [131, 191, 192]) {
      while ((await writer.head()).n + 1 < length) await append(writer, 1);
      const { seen, store } = watched(inner);
      const reader = openChain(store, PLACE);
      expect(await reader.head()).toEqual(await writer.head());
      expect(seen.gets).toBe(length - 128);
      expect(seen.gets).toBeLessThanOrEqual(64);
      expect(seen.heads).toBeLessThan(40);
      seen.gets = 0;
      expect((await reader.head()).n).toBe(length - 1);
      expect(seen.gets).toBe(1);
    }
    // A reader that was paused for longer than that starts anew instead of walking.
    const { seen, store } = watched(inner);
    const paused = openChain(store, PLACE);
    await paused.head();
    for (let i = 0; i < 140; i++) await append(writer, 1);
    seen.gets = 0;
    expect(await paused.head()).toEqual(await writer.head());
    expect(seen.gets).toBeLessThanOrEqual(128);
    expect(await historyOf(writer)).toHaveLength(332);
  });

  it.each<[string, (c: Chain) => Promise<Partial<Proposal>>]>([
    ["positions skipped", async (c) => ({ first: 6, next: 11, add: [await put(c, 6, 10)] })],
    ["positions without a file", async () => ({ add: [] })],
    ["a file that ends too early", async (c) => ({ add: [await put(c, 5, 8)] })],
    ["a file that ends too late", async (c) => ({ add: [await put(c, 5, 10)] })],
    ["a hole between two files", async (c) => ({ add: [await put(c, 5, 6), await put(c, 8, 9)] })],
    ["files that overlap", async (c) => ({ add: [await put(c, 5, 8), await put(c, 8, 9)] })],
    ["a file that reaches back", async (c) => ({ add: [await put(c, 4, 9)] })],
    [
      "a file of another chain",
      async (c) => ({ add: [{ ...(await put(c, 5, 9)), file: "lake/x/asks/0/data/5-9-00000000.parquet" }] }),
    ],
    ["a file named for another range", async (c) => ({ add: [{ ...(await put(c, 5, 8)), last: 9 }] })],
    ["a bad sha256", async (c) => ({ add: [{ ...(await put(c, 5, 9)), sha256: "" }] })],
    ["no last event id", async () => ({ lastEventId: null })],
    ["positions that go back", async () => ({ next: 3 })],
    ["a removal without a replacement", async (c) => ({ remove: [(await c.head()).live[0]!.file] })],
    [
      "a replacement that replaces nothing",
      async (c) => ({ first: 5, next: 5, lastEventId: "rec_4", add: [await put(c, 0, 4)] }),
    ],
    [
      "a replacement that is short",
      async (c) => ({
        ...{
          first: 5,
          next: 5,
          lastEventId: "rec_4",
          add: [await put(c, 0, 3)],
          remove: [(await c.head()).live[0]!.file],
        },
      }),
    ],
    ["no move, but another last record", async () => ({ first: 5, next: 5, lastEventId: "rec_9", add: [] })],
    ["a live file added again", async (c) => ({ add: [...(await c.head()).live, await put(c, 5, 9)] })],
    ["half positions", async () => ({ next: 9.5 })],
  ])("refuses %s before anything is written", async (_what, change) => {
    const chain = openChain(await memoryStore(), PLACE);
    await append(chain, 5);
    const before = await chain.head();
    await expect(chain.commit(await proposal(chain, await change(chain)))).rejects.toThrow(BadProposal);
    expect(await chain.head()).toEqual(before);
    expect((await append(chain, 5)).won).toBe(true);
  });

  it("works on a real disk", async () => {
    const root = await mkdtemp(join(tmpdir(), "chain-"));
    const store = await openDirectoryStore(root);
    const chain = openChain(store, PLACE);
    for (let i = 0; i < 3; i++) await append(chain, 4);
    const { head } = await compact(chain);
    expect(Buffer.from(await chain.readSegment(head.live[0]!)).equals(bytesOf(0, 11))).toBe(true);
    await store.close();
    await rm(root, { recursive: true });
  });

  it("proves the bytes of a segment", async () => {
    const store = await memoryStore();
    const chain = openChain(store, PLACE);
    const { file, ...rest } = (await append(chain, 4)).head.live[0]!;
    for (const bytes of [Buffer.from("rows 0 to 4"), bytesOf(0, 3).subarray(0, 5)]) {
      await store.delete(file);
      await store.create(file, bytes);
      await expect(chain.readSegment({ file, ...rest })).rejects.toThrow(DamagedChain);
    }
    await store.delete(file);
    await expect(chain.readSegment({ file, ...rest })).rejects.toThrow(`${file} is missing`);
  });
});
