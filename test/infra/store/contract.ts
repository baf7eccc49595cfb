import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import { BadKey, type Store } from "../../../infra/store/store.ts";

/** One storage; every `open` is another client of it, as another process would be. */
export interface StoreUnderTest {
  open(): Promise<Store>;
  dispose(): Promise<void>;
}

const text = (s: string) => new TextEncoder().encode(s);
const read = async (store: Store, key: string) => {
  const found = await store.get(key);
  return found && new TextDecoder().decode(found.bytes);
};

/** What every store must do. Keys live under a random folder, so a shared bucket will do. */
export function storeContract(name: string, makeStore: () => Promise<StoreUnderTest>): void {
  describe(`store contract: ${name}`, () => {
    let under: StoreUnderTest;
    let store: Store;
    let other: Store;
    let base: string;

    beforeAll(async () => {
      under = await makeStore();
      store = await under.open();
      other = await under.open();
    });
    afterAll(async () => {
      await store.close();
      await other.close();
      await under.dispose();
    });
    beforeEach(() => {
      base = `t${randomBytes(6).toString("hex")}`;
    });

    it("has nothing under a free key", async () => {
      expect(await store.get(`${base}/a`)).toBeNull();
      expect(await store.head(`${base}/a`)).toBeNull();
      expect(await store.getRange(`${base}/a`, 0, 1)).toBeNull();
      expect(await store.list(`${base}/`)).toEqual([]);
    });

    it("gives back what was created, to every client", async () => {
      const before = Date.now();
      const bytes = Buffer.from(Array.from({ length: 256 }, (_, i) => i));
      expect(await store.create(`${base}/deep/er/a.bin`, bytes)).toEqual({ result: "created" });
      const found = await other.get(`${base}/deep/er/a.bin`);
      expect(Buffer.from(found!.bytes).equals(bytes)).toBe(true);
      expect(found).toMatchObject({ key: `${base}/deep/er/a.bin`, size: 256 });
      const head = await other.head(`${base}/deep/er/a.bin`);
      expect(head).toEqual({ key: found!.key, size: 256, etag: found!.etag, modifiedAt: found!.modifiedAt });
      expect(await other.list(`${base}/`)).toEqual([head]);
      expect(Math.abs(found!.modifiedAt.getTime() - before)).toBeLessThan(60_000);
    });

    it.each([0, 1, 5_000_000])("keeps an object of %i bytes", async (size) => {
      const bytes = randomBytes(size);
      await store.create(`${base}/o`, bytes);
      const found = await other.get(`${base}/o`);
      expect(found!.size).toBe(size);
      expect(Buffer.from(found!.bytes).equals(bytes)).toBe(true);
    });

    it("refuses to create over an object and leaves it as it was", async () => {
      await store.create(`${base}/a`, text("first"));
      const before = await store.head(`${base}/a`);
      expect(await other.create(`${base}/a`, text("second"))).toEqual({ result: "exists" });
      expect(await read(store, `${base}/a`)).toBe("first");
      expect(await store.head(`${base}/a`)).toEqual(before);
    });

    it("lets exactly one of 20 racing creators win", async () => {
      const racers = Array.from({ length: 20 }, (_, i) =>
        (i % 2 ? store : other).create(`${base}/new/race`, text(`racer ${i}`)),
      );
      const winners = (await Promise.all(racers)).flatMap(({ result }, i) => (result === "created" ? [i] : []));
      expect(winners).toHaveLength(1);
      expect(await read(store, `${base}/new/race`)).toBe(`racer ${winners[0]}`);
    });

    it("swaps only from the etag that was read", async () => {
      expect(await store.swap(`${base}/c`, text("0"), "0123456789abcdef")).toEqual({ result: "lost" });
      const one = await store.swap(`${base}/c`, text("one"), null);
      if (one.result !== "swapped") throw new Error("a free key is there to be taken");
      expect((await other.head(`${base}/c`))!.etag).toBe(one.etag);
      const two = await other.swap(`${base}/c`, text("two"), one.etag);
      if (two.result !== "swapped") throw new Error("the etag was current");
      expect(two.etag).not.toBe(one.etag);
      expect(await store.swap(`${base}/c`, text("three"), one.etag)).toEqual({ result: "lost" });
      expect(await store.swap(`${base}/c`, text("three"), null)).toEqual({ result: "lost" });
      expect(await read(store, `${base}/c`)).toBe("two");
      expect((await store.head(`${base}/c`))!.etag).toBe(two.etag);
    });

    it("lets exactly one of 20 racing swaps win", async () => {
      await store.create(`${base}/c`, text("start"));
      const { etag } = (await store.head(`${base}/c`))!;
      const racers = Array.from({ length: 20 }, (_, i) =>
        (i % 2 ? store : other).swap(`${base}/c`, text(`racer ${i}`), etag),
      );
      const winners = (await Promise.all(racers)).flatMap(({ result }, i) => (result === "swapped" ? [i] : []));
      expect(winners).toHaveLength(1);
      expect(await read(store, `${base}/c`)).toBe(`racer ${winners[0]}`);
    });

    it("lets exactly one of a creator and a swapper take a free key", async () => {
      for (let round = 0; round < 5; round++) {
        const key = `${base}/r${round}`;
        const [created, swapped] = await Promise.all([
          store.create(key, text("creator")),
          other.swap(key, text("swapper"), null),
        ]);
        const winners = [created.result === "created" && "creator", swapped.result === "swapped" && "swapper"];
        expect(winners.filter(Boolean)).toEqual([await read(store, key)]);
      }
    });

    it("loses no count when several clients swap a counter up", async () => {
      await store.create(`${base}/count`, text("0"));
      const countUp = async (client: Store) => {
        for (let done = 0; done < 5; ) {
          const now = (await client.get(`${base}/count`))!;
          const next = text(String(Number(new TextDecoder().decode(now.bytes)) + 1));
          if ((await client.swap(`${base}/count`, next, now.etag)).result === "swapped") done++;
        }
      };
      await Promise.all([store, other, store, other].map(countUp));
      expect(await read(store, `${base}/count`)).toBe("20");
    });

    it("never shows a reader half a swap", async () => {
      const whole = (i: number) => Buffer.alloc(200_000, i);
      await store.create(`${base}/w`, whole(0));
      let writing = true;
      const writer = (async () => {
        for (let i = 1; i <= 10; i++) {
          const { etag } = (await store.head(`${base}/w`))!;
          expect((await store.swap(`${base}/w`, whole(i), etag)).result).toBe("swapped");
        }
        writing = false;
      })();
      while (writing) {
        const { bytes } = (await other.get(`${base}/w`))!;
        expect(Buffer.from(bytes).equals(whole(bytes[0]!))).toBe(true);
      }
      await writer;
    });

    it.each([
      [0, 10, "0123456789"],
      [0, 1, "0"],
      [3, 7, "3456"],
      [8, 99, "89"],
      [10, 20, ""],
      [50, 60, ""],
      [4, 4, ""],
    ])("reads the range [%i, %i)", async (start, end, expected) => {
      await store.create(`${base}/r`, text("0123456789"));
      expect(new TextDecoder().decode((await store.getRange(`${base}/r`, start, end))!)).toBe(expected);
    });

    it("refuses ranges that are none", async () => {
      await store.create(`${base}/r`, text("0123456789"));
      await expect(store.getRange(`${base}/r`, 5, 4)).rejects.toThrow();
      await expect(store.getRange(`${base}/r`, -1, 4)).rejects.toThrow();
      await expect(store.getRange(`${base}/r`, 0.5, 4)).rejects.toThrow();
    });

    it("refuses to read more than it was asked to hold", async () => {
      await store.create(`${base}/big`, Buffer.alloc(1_000));
      await expect(store.get(`${base}/big`, { maxBytes: 999 })).rejects.toThrow(/999/);
      expect((await store.get(`${base}/big`, { maxBytes: 1_000 }))!.size).toBe(1_000);
    });

    it("lists in bytewise order, whole folders at their slash", async () => {
      const names = ["A", "Z/z", "_", "a", "a-b", "a.b", "a0/x", "a1", "a=b", "aa/b/c", "aa/b-c", "b.d/e", "c"];
      const inOrder = names.map((n) => `${base}/${n}`).sort((x, y) => Buffer.compare(Buffer.from(x), Buffer.from(y)));
      for (const key of [...inOrder].reverse()) await store.create(key, text(key));
      const list = async (prefix: string, options?: { startAfter?: string; limit?: number }) =>
        (await other.list(prefix, options)).map((o) => o.key);

      expect(await list(`${base}/`)).toEqual(inOrder);
      expect(await list(`${base}/aa`)).toEqual(inOrder.filter((k) => k.startsWith(`${base}/aa`)));
      expect(await list(`${base}/aa/b`)).toEqual([`${base}/aa/b-c`, `${base}/aa/b/c`]);
      expect(await list(`${base}/aa/b/`)).toEqual([`${base}/aa/b/c`]);
      expect(await list(`${base}/nothing`)).toEqual([]);
      for (const startAfter of [...inOrder, `${base}/aa`, `${base}/aa/b/`, `${base}/zzz`, `${base}/`, "0"]) {
        expect(await list(`${base}/`, { startAfter })).toEqual(inOrder.filter((k) => k > startAfter));
      }
      const pages: string[] = [];
      for (;;) {
        const page = await list(`${base}/`, { startAfter: pages.at(-1), limit: 3 });
        if (page.length === 0) break;
        expect(page.length).toBeLessThanOrEqual(3);
        pages.push(...page);
      }
      expect(pages).toEqual(inOrder);
    });

    it("deletes, and does not mind when there is nothing", async () => {
      await store.create(`${base}/d/x`, text("x"));
      const { etag } = (await store.head(`${base}/d/x`))!;
      await other.delete(`${base}/d/x`);
      await other.delete(`${base}/d/x`);
      expect(await store.get(`${base}/d/x`)).toBeNull();
      expect(await store.list(`${base}/`)).toEqual([]);
      expect(await store.swap(`${base}/d/x`, text("y"), etag)).toEqual({ result: "lost" });
      expect(await store.create(`${base}/d/x`, text("again"))).toEqual({ result: "created" });
      expect(await read(other, `${base}/d/x`)).toBe("again");
    });

    it.each([
      "",
      "/a",
      "a/",
      "a//b",
      ".",
      "..",
      "../a",
      "a/../b",
      "a/./b",
      "a b",
      "a\\b",
      "a\0",
      "ä",
      "~a",
      "a\n",
      "x".repeat(513),
    ])("refuses the key %j everywhere", async (key) => {
      await expect(store.get(key)).rejects.toThrow(BadKey);
      await expect(store.getRange(key, 0, 1)).rejects.toThrow(BadKey);
      await expect(store.head(key)).rejects.toThrow(BadKey);
      await expect(store.create(key, text(""))).rejects.toThrow(BadKey);
      await expect(store.swap(key, text(""), null)).rejects.toThrow(BadKey);
      await expect(store.delete(key)).rejects.toThrow(BadKey);
    });
  });
}
