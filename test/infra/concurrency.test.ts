import { setTimeout as pause } from "node:timers/promises";
import { describe, expect, it } from "vitest";
import { forEachConcurrent, forEachSettled, mapConcurrent, range } from "../../infra/concurrency.ts";

/** Notes what was begun and ended; work on an item takes as many ms as `takes` says, and fails where it is in `bad`. */
function watched(bad: readonly number[] = [], takes: (item: number) => number = () => 1) {
  const seen = { begun: [] as number[], ended: [] as number[], most: 0 };
  const work = async (item: number): Promise<number> => {
    seen.begun.push(item);
    seen.most = Math.max(seen.most, seen.begun.length - seen.ended.length);
    await pause(takes(item));
    seen.ended.push(item);
    if (bad.includes(item)) throw new Error(`item ${item}`);
    return item * 10;
  };
  return { seen, work };
}

describe("forEachConcurrent", () => {
  it("works through all items in their order, and never on more than so many", async () => {
    const { seen, work } = watched();
    await forEachConcurrent(range(0, 20), 3, work);
    expect(seen.begun).toEqual([...range(0, 20)]);
    expect([seen.ended.length, seen.most]).toEqual([20, 3]);
  });

  it("begins nothing after the first failure, and throws it when all under way has ended", async () => {
    const { seen, work } = watched([1, 2], (item) => (item === 1 ? 1 : 15));
    await expect(forEachConcurrent(range(0, 20), 3, work)).rejects.toThrow("item 1");
    expect(seen.begun).toEqual([0, 1, 2]);
    expect([...seen.ended].sort()).toEqual([0, 1, 2]);
  });

  it("tells of a failure that is nothing", async () => {
    await expect(forEachConcurrent([1], 2, () => Promise.reject(undefined))).rejects.toBe(undefined);
  });
});

describe("forEachSettled", () => {
  it("works through all items whatever fails, and returns every failure", async () => {
    const { seen, work } = watched([1, 5, 19]);
    const failures = await forEachSettled(range(0, 20), 4, work);
    expect(failures.map((error) => (error as Error).message)).toEqual(["item 1", "item 5", "item 19"]);
    expect([seen.ended.length, seen.most]).toEqual([20, 4]);
  });

  it("returns nothing when nothing fails", async () => {
    expect(await forEachSettled([], 4, async () => undefined)).toEqual([]);
  });
});

describe("mapConcurrent", () => {
  it("gives results in the order of the items, with so many under way or waiting", async () => {
    const { seen, work } = watched([], (item) => (item % 3) * 3);
    const results: number[] = [];
    for await (const result of mapConcurrent(3, range(0, 10), work)) {
      results.push(result);
      expect(seen.begun.length - results.length).toBeLessThanOrEqual(3);
    }
    expect(results).toEqual([...range(0, 10)].map((item) => item * 10));
  });

  it("throws a failure in its turn, when nothing is under way any more", async () => {
    const { seen, work } = watched([1], (item) => (item > 1 ? 15 : 1));
    const results: number[] = [];
    const taking = async () => {
      for await (const result of mapConcurrent(4, range(0, 10), work)) results.push(result);
    };
    await expect(taking()).rejects.toThrow("item 1");
    expect(results).toEqual([0]);
    expect(seen.ended).toHaveLength(seen.begun.length);
  });

  it("leaves nothing under way for whoever stops early", async () => {
    const { seen, work } = watched([], () => 5);
    for await (const _ of mapConcurrent(4, range(0, 10), work)) break;
    expect(seen.ended).toHaveLength(seen.begun.length);
  });
});
