import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { openEmbeddedLog } from "../../../infra/log/embedded.ts";
import type { Log } from "../../../infra/log/log.ts";
import { LogTail } from "../../../infra/log/tail.ts";
import { TurnsSeen } from "../../helpers/turns.ts";

let dir: string;
let log: Log;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "tail-"));
  log = await openEmbeddedLog(dir, { topics: ["t"], partitions: 2 });
});
afterEach(async () => {
  await log.close();
  await rm(dir, { recursive: true, force: true });
});

let serial = 0;
const append = async (partition: number) => {
  const eventId = `e${serial++}`;
  const [at] = await log.append([{ topic: "t", partition, eventId, key: "k", value: Buffer.from("v") }]);
  return { eventId, offset: at!.offset };
};
const tailOf = () => {
  const seen: string[] = [];
  return { seen, tail: new LogTail(log, "t", ({ eventId }) => void seen.push(eventId)) };
};

test("every record is applied once and in order, however many catch up at the same time", async () => {
  const { seen, tail } = tailOf();
  const told = [];
  for (let i = 0; i < 5; i++) told.push((await append(0)).eventId);
  await Promise.all([tail.catchUp(), tail.catchUp(0), tail.reach(0, 4, 60_000), tail.catchUp()]);
  expect(seen).toEqual(told);
  expect([tail.has(0, 4), tail.has(0, 5), tail.has(1, 0)]).toEqual([true, false, false]);
});

test("however many records wait, few of them are applied in one turn of the loop", async () => {
  const turns = new TurnsSeen();
  const event = (i: number) => ({ topic: "t", partition: 0, eventId: `many${i}`, key: "k", value: Buffer.from("v") });
  await log.append(Array.from({ length: 500 }, (_, i) => event(i)));
  await new LogTail(log, "t", turns.see).catchUp();
  const seen = turns.end();
  expect(seen.all).toBe(500);
  expect(seen.most).toBeLessThanOrEqual(64);
});

test("a record that was told of is waited for; one that cannot be there is not", async () => {
  const { tail, seen } = tailOf();
  const { offset } = await append(1);
  expect(await tail.reach(1, offset, 60_000)).toBe("there");
  expect(seen).toHaveLength(1);
  expect(await tail.reach(1, offset + 1, 60_000)).toBe("none");
  expect(await tail.reach(7, 0, 60_000)).toBe("none");
  const deaf = { partitions: 2, bounds: log.bounds.bind(log), read: async () => [] };
  expect(await new LogTail(deaf, "t", () => {}).reach(1, offset, 50)).toBe("late");
});

test("records that the log keeps no more are passed over", async () => {
  const { seen, tail } = tailOf();
  await append(0);
  await tail.catchUp();
  await append(0);
  const last = await append(0);
  await log.truncate("t", 0, last.offset);
  await tail.catchUp();
  expect(seen.at(-1)).toBe(last.eventId);
  expect(seen).toHaveLength(2);
});

test("a log that lost records which were applied is refused, and nothing of it is applied", async () => {
  const { seen, tail } = tailOf();
  for (let i = 0; i < 3; i++) await append(0);
  await tail.catchUp();
  const longer = log;
  log = await openEmbeddedLog(join(dir, "shorter"), { topics: ["t"], partitions: 2 });
  const read = vi.spyOn(longer, "read").mockImplementation((...asked) => log.read(...asked));
  try {
    for (let i = 0; i < 2; i++) {
      await append(0);
      await expect(tail.catchUp()).rejects.toThrow(`t/0: it ends at ${i + 1}, 3 was reached already`);
    }
    expect(seen).toHaveLength(3);
  } finally {
    read.mockRestore();
    await longer.close();
  }
});

test("a read that fails is the caller's, and the next one goes on from there", async () => {
  await append(0);
  let fails = true;
  const read: Log["read"] = async (...args) => {
    if (fails) throw new Error("no broker");
    return log.read(...args);
  };
  const seen: string[] = [];
  const shaky = { partitions: 2, bounds: log.bounds.bind(log), read };
  const tail = new LogTail(shaky, "t", ({ eventId }) => void seen.push(eventId));
  await expect(tail.catchUp()).rejects.toThrow("no broker");
  fails = false;
  await tail.catchUp();
  expect(seen).toHaveLength(1);
});
