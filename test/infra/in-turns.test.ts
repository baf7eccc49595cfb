import { once } from "node:events";
import { type AddressInfo, connect, createServer } from "node:net";
import { expect, it } from "vitest";
import { createYielder, forEachYielding, range, runYielding, sortInSteps } from "../../infra/concurrency.ts";
import { drawn, SEED } from "../helpers/drawn.ts";
import { TurnsSeen } from "../helpers/turns.ts";

it("works on so many items in their order, and on no more within one turn of the loop", async () => {
  const turns = new TurnsSeen();
  const done: number[] = [];
  await forEachYielding(range(0, 100), 8, (item) => {
    turns.see();
    done.push(item);
  });
  expect(done).toEqual([...range(0, 100)]);
  expect(turns.end()).toMatchObject({ all: 100, most: 8 });
});

it("throws what the work throws, and does nothing after it", async () => {
  const done: number[] = [];
  const work = (item: number): void => {
    done.push(item);
    if (item === 5) throw new Error("five");
  };
  await expect(forEachYielding(range(0, 100), 2, work)).rejects.toThrow("five");
  expect(done).toEqual([0, 1, 2, 3, 4, 5]);
});

it("bounds a turn for all who take part, however many begin at once and whatever each has to do", async () => {
  const giveTurn = createYielder(10);
  const turns = new TurnsSeen();
  await Promise.all(
    Array.from({ length: 50 }, async () => {
      await giveTurn(4);
      for (let i = 0; i < 4; i++) turns.see();
    }),
  );
  // Who fits in still may go past it by his own work.
  expect(turns.end()).toMatchObject({ all: 200, most: 12 });
});

it("sorts as Array.sort does, stably, however many there are", () => {
  const random = drawn(SEED);
  for (const many of [0, 1, 2, 15, 16, 17, 100, 1_000, 1_025]) {
    const items = Array.from({ length: many }, (_, at) => ({ key: Math.floor(random() * 20), at }));
    const before = [...items];
    const steps = sortInSteps(items, (a, b) => a.key - b.key, 16);
    let step = steps.next();
    while (!step.done) step = steps.next();
    expect(step.value).toEqual([...items].sort((a, b) => a.key - b.key));
    expect(items).toEqual(before);
  }
});

it("sorts no more within one turn of the loop than was asked for", async () => {
  const turns = new TurnsSeen();
  const items = Array.from({ length: 5_000 }, (_, i) => (i * 7_919) % 5_003);
  const compare = (a: number, b: number): number => {
    turns.see();
    return a - b;
  };
  const sorted = await runYielding(sortInSteps(items, compare, 32), 4);
  expect(sorted).toEqual([...items].sort((a, b) => a - b));
  const seen = turns.end();
  // 4 steps of 32 items: each is compared once when merged, and log2(32) times in its first run.
  expect([seen.most <= 4 * 32 * 6, seen.turns > 100]).toEqual([true, true]);
});

it("lets several of those who wait at the door in before each piece of work, where a turn of the loop takes one", async () => {
  const many = 48;
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  // Connected by the system as they are asked for: they wait in its queue, whatever our loop does.
  const clients = Array.from({ length: many }, () => connect(port, "127.0.0.1").on("error", () => {}));
  let inside = 0;
  server.on("connection", (socket) => {
    inside++;
    socket.on("error", () => {});
  });
  const seen: number[] = [];
  await forEachYielding(range(0, 3 * many), 1, () => seen.push(inside));
  for (const client of clients) client.destroy();
  server.close();
  // One at a time took as many pieces of work as there are clients.
  const pieces = seen.indexOf(many);
  expect(pieces, "all of them are in at last").toBeGreaterThan(0);
  expect(pieces).toBeLessThan(many / 4);
});
