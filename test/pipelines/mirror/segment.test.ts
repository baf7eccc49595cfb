import { expect, it } from "vitest";
import { decompress } from "zstd-napi";
import { FixedClock } from "../../../infra/clock.ts";
import type { Store, StoredObject } from "../../../infra/store/store.ts";
import { signCheckpoint } from "../../../infra/tree/checkpoint.ts";
import { writeTree } from "../../../pipelines/4-publish/apply.ts";
import { EMPTY_LIVE, grow } from "../../../pipelines/4-publish/live.ts";
import { mirrorOnce } from "../../../pipelines/mirror/mirror.ts";
import { NOW, ORIGIN, PublicRecord } from "../../helpers/public-record.ts";
import { keysOf } from "./bed.ts";

/** A store in memory: a thousand fsyncs would say nothing here and take seconds. */
class MemoryStore implements Store {
  readonly objects = new Map<string, StoredObject>();
  #writes = 0;
  get = async (key: string) => this.objects.get(key) ?? null;
  head = this.get;
  getRange = async (key: string, start: number, end: number) =>
    this.objects.get(key)?.bytes.subarray(start, end) ?? null;
  async create(key: string, bytes: Uint8Array) {
    if (this.objects.has(key)) return { result: "exists" as const };
    await this.swap(key, bytes, null);
    return { result: "created" as const };
  }
  async swap(key: string, bytes: Uint8Array, expected: string | null) {
    if ((this.objects.get(key)?.etag ?? null) !== expected) return { result: "lost" as const };
    const etag = String(this.#writes++);
    this.objects.set(key, { key, bytes, size: bytes.length, etag, modifiedAt: new Date(NOW) });
    return { result: "swapped" as const, etag };
  }
  list = async (prefix: string) => [...this.objects.values()].filter(({ key }) => key.startsWith(prefix));
  async delete(key: string) {
    this.objects.delete(key);
  }
  async close() {}
}

it.each([
  ["copies the segment of 65,536 leaves instead of its bundles, and makes those", true],
  ["makes the segment from the bundles that it proved where the source has none", false],
])(
  "%s",
  async (_, given) => {
    const {
      keys: signers,
      trust,
      ...record
    } = await PublicRecord.open().then(async (one) => {
      await one.close();
      return { keys: one.keys, trust: one.trust, given: keysOf(one) };
    });
    const size = 65_539;
    const entries = Array.from({ length: size }, (_, i) =>
      Buffer.from(`{"at":"${NOW}","capability_id":"c","index":${i},"kind":"delisting","seq":${i}}`),
    );
    const grown = grow(EMPTY_LIVE, entries);
    const [theirs, publicStore, stateStore] = [new MemoryStore(), new MemoryStore(), new MemoryStore()];
    await writeTree(theirs, grown);
    const by = [
      { ...trust.log, sign: signers.log.sign },
      { ...trust.witness!, sign: signers.witness.sign },
    ] as const;
    const head = { origin: ORIGIN, size, root: grown.live.tree.root() };
    await theirs.create("checkpoint", signCheckpoint(head, ...by, new Date(NOW)));

    const asked: string[] = [];
    const get = async (key: string) => {
      asked.push(key);
      return key === "segment/0.ndjson.zst" && !given ? null : ((await theirs.get(key))?.bytes ?? null);
    };
    const source = { name: "memory", get, close: async () => undefined };
    const done = await mirrorOnce({
      ...{ source, publicStore, stateStore, clock: new FixedClock(NOW) },
      keys: record.given,
    });
    expect(done).toMatchObject({ result: "synced", size, fetched: given ? 2 : 257 });
    expect(asked.filter((key) => key.startsWith("tile/entries/"))).toHaveLength(given ? 1 : 257);
    const segment = decompress((await publicStore.get("segment/0.ndjson.zst"))!.bytes);
    const lines = entries.slice(0, 65_536).flatMap((entry) => [entry, Buffer.from("\n")]);
    expect(segment.equals(Buffer.concat(lines))).toBe(true);
    const ours = [...publicStore.objects.keys()].sort();
    expect(ours).toEqual([...theirs.objects.keys()].sort());
    for (const key of ours) {
      const [own, copy] = [theirs.objects.get(key)!, publicStore.objects.get(key)!].map(({ bytes }) => bytes);
      expect([key, Buffer.compare(own!, copy!)]).toEqual([key, 0]);
    }
  },
  60_000,
);
