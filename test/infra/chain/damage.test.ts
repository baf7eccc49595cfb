import { beforeAll, describe, expect, it } from "vitest";
import { type Commit, commitKey, DamagedChain } from "../../../infra/chain/commit.ts";
import { openChain } from "../../../infra/chain/commits.ts";
import type { Store } from "../../../infra/store/store.ts";
import { append, FOLDER, historyOf, memoryStore, PLACE } from "./make.ts";

const LENGTH = 70;
const SNAPSHOT = 64;

/** What happened to commit `n`, as bytes to store instead (null: it is gone). */
const DAMAGES: [string, (c: Commit, bytes: Buffer) => Buffer | null | object][] = [
  ["is gone", () => null],
  ["is empty", () => Buffer.alloc(0)],
  ["is torn", (_c, bytes) => bytes.subarray(0, bytes.length - 9)],
  ["is no UTF-8", (_c, bytes) => Buffer.concat([bytes, Buffer.from([0xff])])],
  ["has another number", (c) => ({ ...c, n: c.n + 1 })],
  ["begins elsewhere", (c) => ({ ...c, first: c.first + 1 })],
  ["ends elsewhere", (c) => ({ ...c, next: c.next + 1 })],
  ["lost a sha256", (c) => ({ ...c, add: c.add.map(({ sha256: _, ...rest }) => rest) })],
  ["lost a file", (c) => ({ ...c, add: [] })],
  ["removes what is not live", (c) => ({ ...c, remove: [`${FOLDER}/data/0-0-00000000.parquet`] })],
  ["claims to be a gap", (c) => ({ ...c, gap: true })],
  ["has a time that is none", (c) => ({ ...c, at: "yesterday" })],
  ["has the list of live files where it is not due", (c) => ({ ...c, live: c.live ? undefined : [] })],
];

/** The store as it would be if the object `key` held other bytes (null: were gone); the one below stays as it is. */
function withObject(store: Store, key: string, bytes: Uint8Array | null): Store & { filled: boolean } {
  const etag = "damaged";
  const info = bytes && { key, size: bytes.length, etag, modifiedAt: new Date(0) };
  return {
    filled: false,
    get: async (k, options) => (k === key ? info && { ...info, bytes: bytes! } : store.get(k, options)),
    getRange: (k, start, end) => store.getRange(k, start, end),
    head: async (k) => (k === key ? info : store.head(k)),
    async create(k, b, meta) {
      if (k !== key || bytes) return store.create(k, b, meta);
      this.filled = true;
      return { result: "created" };
    },
    swap: (k, b, expected, meta) => store.swap(k, b, expected, meta),
    async list(prefix, options = {}) {
      const { limit = 1_000 } = options;
      const found = await store.list(prefix, { ...options, limit: limit + 1 });
      return found.filter((o) => o.key !== key || bytes).slice(0, limit);
    },
    delete: (k) => store.delete(k),
    close: () => store.close(),
  };
}

describe("a damaged chain", () => {
  let store: Store;
  beforeAll(async () => {
    store = await memoryStore();
    const chain = openChain(store, PLACE);
    for (let i = 0; i < LENGTH; i++) await append(chain, 1);
  });

  async function damaged(n: number, damage: (typeof DAMAGES)[number][1]): Promise<Store & { filled: boolean }> {
    const key = commitKey(FOLDER, n);
    const before = Buffer.from((await store.get(key))!.bytes);
    const after = damage(JSON.parse(before.toString()), before);
    return withObject(
      store,
      key,
      after === null || Buffer.isBuffer(after) ? after : Buffer.from(JSON.stringify(after)),
    );
  }

  const fails = async (work: Promise<unknown>, keys: string[]) => {
    const error = await work.catch((e: unknown) => e);
    expect(error).toBeInstanceOf(DamagedChain);
    expect(keys).toContain((error as DamagedChain).key);
  };

  it.each(DAMAGES)("is refused and named when a commit %s", async (what, damage) => {
    for (const n of [0, 1, 40, SNAPSHOT, SNAPSHOT + 1, LENGTH - 2]) {
      const bad = await damaged(n, damage);
      // A moved end agrees with itself: the next commit shows it.
      const named = [commitKey(FOLDER, n), commitKey(FOLDER, n + 1)];
      await fails(historyOf(openChain(bad, PLACE)), named);
      // Every reader opens what follows the last snapshot; only the history shows what the snapshot itself replaced.
      const seenByAll = n > SNAPSHOT || (n === SNAPSHOT && what !== "removes what is not live");
      if (seenByAll) await fails(openChain(bad, PLACE).head(), named);
    }
  });

  it.each(DAMAGES.filter(([what]) => what !== "is gone"))(
    "is refused when the last commit %s, so that nothing is built on it",
    async (_what, damage) => {
      const bad = await damaged(LENGTH - 1, damage);
      await fails(openChain(bad, PLACE).head(), [commitKey(FOLDER, LENGTH - 1)]);
      await fails(append(openChain(bad, PLACE), 1), [commitKey(FOLDER, LENGTH - 1)]);
      expect(await store.head(commitKey(FOLDER, LENGTH))).toBeNull();
    },
  );

  it("never fills a hole with another history, wherever it is", async () => {
    for (let n = 0; n < LENGTH - 1; n++) {
      const bad = await damaged(n, () => null);
      const head = await openChain(bad, PLACE)
        .head()
        .catch((e: unknown) => e);
      // The search may step over an old hole; then the end it finds must be the real one.
      if (head instanceof DamagedChain) expect(head.key).toBe(commitKey(FOLDER, n));
      else expect(head).toMatchObject({ n: LENGTH - 1 });
      if (head instanceof DamagedChain) await fails(append(openChain(bad, PLACE), 1), [commitKey(FOLDER, n)]);
      expect(bad.filled).toBe(false);
    }
  });

  it("is refused when a snapshot lists other files than are live", async () => {
    const key = commitKey(FOLDER, SNAPSHOT);
    const fewer = await damaged(SNAPSHOT, (c) => ({ ...c, live: c.live!.slice(1) }));
    await fails(historyOf(openChain(fewer, PLACE)), [key]);
    const twice = await damaged(SNAPSHOT, (c) => ({ ...c, live: [...c.live!, c.live![0]!] }));
    await fails(openChain(twice, PLACE).head(), [key]);
  });

  it("names what lies among the commits and is none", async () => {
    await store.create(`${FOLDER}/commit/notes.txt`, Buffer.from("hello"));
    await fails(openChain(store, PLACE).head(), [`${FOLDER}/commit/notes.txt`]);
    await store.delete(`${FOLDER}/commit/notes.txt`);
  });

  it("keeps fields it does not know", async () => {
    const later = await damaged(LENGTH - 1, (c) => ({ ...c, compactor: "v9" }));
    const chain = openChain(later, PLACE);
    expect((await historyOf(chain)).at(-1)).toMatchObject({ compactor: "v9" });
    expect((await chain.head()).n).toBe(LENGTH - 1);
  });
});
