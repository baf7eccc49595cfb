import { describe, expect, it } from "vitest";
import {
  PREFETCH_AT_ONCE,
  PREFETCH_BYTES,
  PREFETCH_OBJECT_BYTES,
  Prefetch,
  type ToFetch,
} from "../../../pipelines/mirror/prefetch.ts";
import { Oversized, SourceDown } from "../../../pipelines/published/errors.ts";
import type { Source } from "../../../pipelines/published/source.ts";
import { fc } from "../../helpers/histories.ts";

/** A source far away: its answers come when the test says so, and it counts what is under way. */
class Far implements Source {
  readonly name = "far";
  readonly asked: string[] = [];
  running = 0;
  most = 0;
  #waiting: (() => void)[] = [];

  constructor(
    private readonly says: (key: string, n: number, maxBytes: number) => Uint8Array | null,
    readonly distant = true,
  ) {}

  async get(key: string, maxBytes: number): Promise<Uint8Array | null> {
    const n = this.asked.filter((one) => one === key).length;
    this.asked.push(key);
    this.most = Math.max(this.most, ++this.running);
    await new Promise<void>((resolve) => this.#waiting.push(resolve));
    this.running--;
    return this.says(key, n, maxBytes);
  }

  /** Answers come, oldest first, until nobody waits for any. */
  async answer(): Promise<void> {
    for (let quiet = 0; quiet < 20; quiet++) {
      if (this.#waiting.length > 0) quiet = 0;
      this.#waiting.shift()?.();
      await Promise.resolve();
    }
  }

  async close(): Promise<void> {}
}

const bytesOf = (key: string) => Buffer.from(`the bytes of ${key}`);
const toFetch = (key: string): ToFetch => ({ key, maxBytes: 1_000 });
const keys = (count: number, prefix = "k") => Array.from({ length: count }, (_, i) => `${prefix}${i}`);
const nothingHere = async () => false;

describe("what is wished for", () => {
  it("is asked for once, many at a time, and waits for whoever asks", async () => {
    const far = new Far(bytesOf);
    const source = new Prefetch(far, nothingHere);
    source.want(keys(100), toFetch);
    await far.answer();
    expect(far.asked).toEqual(keys(100));
    expect(far.most).toBe(PREFETCH_AT_ONCE);
    for (const key of keys(100)) expect(await source.get(key, 1_000)).toEqual(bytesOf(key));
    expect(far.asked).toHaveLength(100);
  });

  it("is not asked for early at a source that is near, nor where it is here already", async () => {
    const near = new Far(bytesOf, false);
    new Prefetch(near, nothingHere).want(keys(3), toFetch);
    const far = new Far(bytesOf);
    new Prefetch(far, async (key) => key !== "k1").want(keys(3), toFetch);
    await Promise.all([near.answer(), far.answer()]);
    expect([near.asked, far.asked]).toEqual([[], ["k1"]]);
  });

  it("is asked for in its turn where it was not begun, and then only once", async () => {
    const far = new Far(bytesOf);
    const source = new Prefetch(far, nothingHere);
    source.want(keys(PREFETCH_AT_ONCE + 1), toFetch);
    const last = source.get(`k${PREFETCH_AT_ONCE}`, 1_000);
    await far.answer();
    expect(await last).toEqual(bytesOf(`k${PREFETCH_AT_ONCE}`));
    expect([...far.asked].sort()).toEqual(keys(PREFETCH_AT_ONCE + 1).sort());
  });

  it("takes no more memory than it may, whatever comes, and goes on as it is taken", async () => {
    const far = new Far(() => Buffer.alloc(PREFETCH_OBJECT_BYTES));
    const source = new Prefetch(far, nothingHere);
    const many = keys(300);
    source.want(many, (key) => ({ key, maxBytes: 10 * PREFETCH_OBJECT_BYTES }));
    await far.answer();
    expect(far.asked).toHaveLength(PREFETCH_BYTES / PREFETCH_OBJECT_BYTES);
    for (const key of many) {
      const got = source.get(key, 10 * PREFETCH_OBJECT_BYTES);
      await far.answer();
      expect((await got)?.length).toBe(PREFETCH_OBJECT_BYTES);
    }
    expect([...far.asked].sort()).toEqual([...many].sort());
  });

  it("is announced some way ahead, in order, however long the list", () => {
    const far = new Far(bytesOf);
    const source = new Prefetch(far, nothingHere);
    let told = 0;
    const items = source.announced(keys(1_000), (key) => {
      told++;
      return toFetch(key);
    });
    const seen: string[] = [];
    for (const key of items) {
      seen.push(key);
      expect(told).toBeLessThanOrEqual(seen.length + 2 * PREFETCH_AT_ONCE);
      expect(told).toBe(Math.min(1_000, seen.length + 2 * PREFETCH_AT_ONCE));
    }
    expect(seen).toEqual(keys(1_000));
  });
});

describe("what does not come early", () => {
  const down = () => {
    throw new SourceDown("far", "k", "silence");
  };
  it.each<[string, (n: number, maxBytes: number) => Uint8Array | null]>([
    ["failed", (n) => (n === 0 ? down() : bytesOf("k0"))],
    ["was missing", (n) => (n === 0 ? null : bytesOf("k0"))],
    [
      "is longer than anything that comes early",
      (_, maxBytes) => {
        if (maxBytes <= PREFETCH_OBJECT_BYTES) throw new Oversized("k0", maxBytes);
        return bytesOf("k0");
      },
    ],
  ])("is asked for again in its turn: it %s", async (_, says) => {
    const far = new Far((_, n, maxBytes) => says(n, maxBytes));
    const source = new Prefetch(far, nothingHere);
    source.want(["k0"], (key) => ({ key, maxBytes: 2 * PREFETCH_OBJECT_BYTES }));
    await far.answer();
    const got = source.get("k0", 2 * PREFETCH_OBJECT_BYTES);
    await far.answer();
    expect(await got).toEqual(bytesOf("k0"));
    expect(far.asked).toEqual(["k0", "k0"]);
  });

  it("is refused as the source refuses it, when its turn allows fewer bytes", async () => {
    const far = new Far((key, _, maxBytes) => {
      if (maxBytes < 10) throw new Oversized(key, maxBytes);
      return bytesOf(key);
    });
    const source = new Prefetch(far, nothingHere);
    source.want(["k0"], toFetch);
    await far.answer();
    const got = source.get("k0", 9).catch((error: Error) => error);
    await far.answer();
    expect(await got).toEqual(new Oversized("k0", 9));
  });

  it("is not pressed for: after one failure only what was begun is waited for", async () => {
    const far = new Far(down);
    const source = new Prefetch(far, nothingHere);
    source.want(keys(500), toFetch);
    await far.answer();
    expect(far.asked).toHaveLength(PREFETCH_AT_ONCE);
    expect(source.distant).toBe(false);
    expect(await source.look(toFetch("k499"))).toBe(null);
    expect(far.asked).toHaveLength(PREFETCH_AT_ONCE);
  });
});

it("after stop nothing is on its way, and nothing begins any more", async () => {
  const far = new Far(bytesOf);
  const source = new Prefetch(far, nothingHere);
  source.want(keys(100), toFetch);
  let stopped = false;
  const stop = source.stop().then(() => {
    stopped = true;
  });
  expect(stopped).toBe(false);
  await far.answer();
  await stop;
  expect(far.running).toBe(0);
  source.want(keys(100, "late"), toFetch);
  await far.answer();
  expect(far.asked).toHaveLength(PREFETCH_AT_ONCE);
});

it("whatever is wished for, looked at and asked for: whoever asks gets what the source itself would say", async () => {
  const key = fc.integer({ min: 0, max: 60 }).map((i) => `k${i}`);
  const step = fc.oneof(
    fc.record({ what: fc.constant("want" as const), of: fc.array(key, { maxLength: 50 }) }),
    fc.record({ what: fc.constantFrom("get" as const, "look" as const), of: fc.array(key, { maxLength: 5 }) }),
    fc.record({ what: fc.constant("answer" as const), of: fc.constant([] as string[]) }),
  );
  const there = fc.uniqueArray(key);
  const failing = fc.uniqueArray(key, { maxLength: 3 });
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 20 }), there, failing, async (steps, missing, failsFirst) => {
      const far = new Far((of, n) => {
        if (n === 0 && failsFirst.includes(of)) throw new SourceDown("far", of, "silence");
        return missing.includes(of) ? null : bytesOf(of);
      });
      const source = new Prefetch(far, nothingHere);
      const said: Promise<void>[] = [];
      for (const { what, of } of steps) {
        if (what === "want") source.want(of, toFetch);
        else if (what === "answer") await far.answer();
        for (const one of of) {
          const want = missing.includes(one) ? null : bytesOf(one);
          if (what === "look") {
            const looked = source.look(toFetch(one));
            said.push(looked.then((bytes) => bytes && expect(bytes).toEqual(want)) as Promise<void>);
          } else if (what === "get") {
            const fails = (error: unknown) => {
              if (!(error instanceof SourceDown) || !failsFirst.includes(one)) throw error;
            };
            said.push(source.get(one, 1_000).then((bytes) => expect(bytes).toEqual(want), fails));
          }
        }
      }
      const stop = source.stop();
      await far.answer();
      await Promise.all([...said, stop]);
      expect(far.running).toBe(0);
    }),
  );
});
