import { describe, expect, test } from "vitest";
import { BoundedMap } from "../../../infra/bounded-map.ts";
import { forEachConcurrent } from "../../../infra/concurrency.ts";
import { HostQueue } from "../../../pipelines/1-observe/queue.ts";

const turn = () => new Promise<void>((done) => setImmediate(done));

describe("the queue of hosts", () => {
  test("one at a time for a host, so many hosts at once, order kept within a host", async () => {
    const queue = new HostQueue(3);
    const running = new Map<string, number>();
    const order = new Map<string, number[]>();
    let most = 0;
    const work = (host: string, n: number) => async () => {
      running.set(host, (running.get(host) ?? 0) + 1);
      expect(running.get(host)).toBe(1);
      most = Math.max(most, [...running.values()].filter((x) => x > 0).length);
      await turn();
      order.set(host, [...(order.get(host) ?? []), n]);
      running.set(host, 0);
    };
    await Promise.all(Array.from({ length: 60 }, (_, i) => queue.run(`h${i % 6}`, work(`h${i % 6}`, i))));
    expect(most).toBe(3);
    for (const list of order.values()) expect(list).toEqual([...list].sort((a, b) => a - b));
    expect(queue.size).toBe(0);
  });

  test("a host with much to do delays nobody: hosts take turns", async () => {
    const queue = new HostQueue(1);
    const served: string[] = [];
    const ask = (host: string) =>
      queue.run(host, async () => {
        served.push(host);
      });
    await Promise.all([...Array.from({ length: 50 }, () => ask("big")), ask("small"), ask("tiny")]);
    expect(served.indexOf("small")).toBeLessThan(4);
    expect(served.indexOf("tiny")).toBeLessThan(5);
  });

  test("work that is put aside has a number of its own, and still one host at a time", async () => {
    const queue = new HostQueue(2, 100, { asks: 1 });
    const begun: string[] = [];
    const held: (() => void)[] = [];
    const run = (host: string, aside?: string) =>
      queue.run(
        host,
        () => {
          begun.push(`${host} ${aside ?? "plan"}`);
          return new Promise<void>((done) => held.push(done));
        },
        aside,
      );
    const all = [run("a", "asks"), run("b", "asks"), run("b"), run("a"), run("c")];
    await turn();
    // The ask of b waits for that of a, and its planned call does not wait for the ask.
    expect(begun).toEqual(["a asks", "b plan", "c plan"]);
    while (held.length > 0) {
      for (const done of held.splice(0)) done();
      await turn();
    }
    await Promise.all(all);
    expect(begun.slice(3).sort()).toEqual(["a plan", "b asks"]);
  });

  test("it is bounded, and a failure costs nobody else", async () => {
    const queue = new HostQueue(1, 2);
    const slow = queue.run("a", turn);
    const bad = queue.run("a", () => {
      throw new Error("own");
    });
    await expect(queue.run("a", turn)).rejects.toThrow(/more than \d+ calls are waiting/);
    await slow;
    await expect(bad).rejects.toThrow("own");
    await expect(queue.run("a", async () => 7)).resolves.toBe(7);
    expect(() => new HostQueue(0)).toThrow(RangeError);
  });
});

describe("small helpers", () => {
  test("a bounded map forgets the oldest", () => {
    const map = new BoundedMap<string, number>(2);
    map.set("a", 1);
    map.set("b", 2);
    map.set("a", 3);
    map.set("c", 4);
    expect([map.get("a"), map.has("b"), map.get("c"), map.size]).toEqual([3, false, 4, 2]);
  });

  test("work in parallel: all of it, no more than asked at once, and no new one after a failure", async () => {
    const seen: number[] = [];
    let now = 0;
    await forEachConcurrent([1, 2, 3, 4, 5], 2, async (n) => {
      expect(++now).toBeLessThanOrEqual(2);
      await turn();
      seen.push(n);
      now--;
    });
    expect(seen.sort()).toEqual([1, 2, 3, 4, 5]);
    const begun: number[] = [];
    const all = forEachConcurrent([1, 2, 3, 4, 5, 6], 2, async (n) => {
      begun.push(n);
      await turn();
      if (n === 1) throw new Error("one");
    });
    await expect(all).rejects.toThrow("one");
    expect(begun.length).toBeLessThan(6);
  });
});
