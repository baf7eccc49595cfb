import { expect, test } from "vitest";
import type { Observer } from "../../../../pipelines/1-observe/observer.ts";
import { payOnce } from "../day.ts";
import { answer, type FakeWorld, fakeWorld, paying } from "../world.ts";

// What a paid call leaves behind is a fold over the record: any process that comes later sees it through.

/** Takes the money and gives nothing, also when it is shown the proof again. */
async function robbed(): Promise<FakeWorld> {
  const world = fakeWorld();
  await payOnce(
    world,
    paying(world.rail, (asked) => {
      world.rail.settle(asked.payment!);
      return answer(200, "");
    }),
  );
  return world;
}

const later = (world: FakeWorld) => world.log.bodies("paid.followup").filter((one) => one.kind !== "shown_again");
const payment = (world: FakeWorld) => [...world.rail.settled.values()][0]!;
const back = (world: FakeWorld, tx: string, amountAtomic: bigint, final = true) => {
  const { to, from, ...rest } = payment(world);
  world.rail.transfersBack.push({
    ...rest,
    blockNumber: rest.blockNumber + 5,
    from: to,
    to: from,
    tx,
    amountAtomic,
    final,
  });
};
const refundsFound = async (observer: Observer) => (await observer.followUpCalls()).refunded;

test("a refund after a restart is seen by the next process, once, and by no later one again", async () => {
  const world = await robbed();
  expect(await refundsFound(world.restart())).toBe(0);
  back(world, "0xback", 10_000n);
  const next = world.restart();
  expect([await refundsFound(next), await refundsFound(next), await refundsFound(world.restart())]).toEqual([1, 0, 0]);
  expect(later(world)).toMatchObject([{ kind: "refund", refund: { tx: "0xback", amount_atomic: "10000" } }]);
});

test("less than was paid, or a Transfer that is not final, pays nothing back; when it becomes final it does", async () => {
  const world = await robbed();
  back(world, "0xless", 9_999n);
  back(world, "0xyoung", 10_000n, false);
  const next = world.restart();
  expect(await refundsFound(next)).toBe(0);
  world.rail.transfersBack.at(-1)!.final = true;
  expect(await refundsFound(next)).toBe(1);
  expect(later(world)).toMatchObject([{ refund: { tx: "0xyoung" } }]);
});

test("a Transfer of before the payment is no refund of it", async () => {
  const world = await robbed();
  back(world, "0xolder", 10_000n);
  world.rail.transfersBack[0]!.blockNumber = payment(world).blockNumber - 1;
  expect(await refundsFound(world.restart())).toBe(0);
});

test("a chain that is down loses nothing: the refund is booked when it is back", async () => {
  const world = await robbed();
  back(world, "0xback", 10_000n);
  const next = world.restart();
  world.rail.down = true;
  expect(await next.followUpCalls()).toMatchObject({ refunded: 0, down: expect.any(String) });
  world.rail.down = false;
  expect(await refundsFound(next)).toBe(1);
});

test("a log that refuses the refund loses nothing either", async () => {
  const world = await robbed();
  back(world, "0xback", 10_000n);
  const next = world.restart();
  world.log.refuse = () => ({ keep: 0 });
  await expect(next.followUpCalls()).rejects.toThrow("did not confirm");
  world.log.refuse = null;
  expect(await refundsFound(next)).toBe(1);
});

test("one Transfer pays one debt back, the very amount before a larger one, whoever booked the first", async () => {
  const world = await robbed();
  const { memory } = world;
  const { owed } = await memory.readDebts();
  const [first] = owed;
  const second = { ...first!, eventId: "rec_second", seen: { ...first!.seen, amount_atomic: "4000" } };
  const known = memory.readDebts.bind(memory);
  memory.readDebts = async () => {
    const { owed: open, refunds } = await known();
    return { owed: [...open, ...(refunds.some((one) => one.intent === second.eventId) ? [] : [second])], refunds };
  };
  back(world, "0xlarge", 10_000n);
  back(world, "0xsmall", 4_000n);
  expect(await refundsFound(world.restart())).toBe(2);
  const pairs = later(world).map((one) => [one.of, one.refund!.tx]);
  expect(new Map(pairs as [string, string][])).toEqual(
    new Map([
      [first!.eventId, "0xlarge"],
      ["rec_second", "0xsmall"],
    ]),
  );
});

test("a Transfer that an earlier process booked pays no second debt", async () => {
  const world = await robbed();
  back(world, "0xback", 10_000n);
  expect(await refundsFound(world.restart())).toBe(1);
  const { memory } = world;
  const known = memory.readDebts.bind(memory);
  const [intent] = world.log.envelopes().filter((one) => one.type === "paid.intent");
  const seen = world.log.bodies("settlement")[0]!;
  const other = {
    eventId: "rec_other",
    cap: intent!.cap!,
    observedAt: intent!.observed_at,
    intent: intent!.body as never,
    seen,
  };
  memory.readDebts = async () => ({ ...(await known()), owed: [other] });
  expect(await refundsFound(world.restart())).toBe(0);
  // One transaction may hold two Transfers: then it pays two debts.
  back(world, "0xback", 10_000n);
  expect(await refundsFound(world.restart())).toBe(1);
});

test("one transaction that pays two wallets back pays two debts", async () => {
  const world = await robbed();
  back(world, "0xboth", 10_000n);
  expect(await refundsFound(world.restart())).toBe(1);
  const { memory } = world;
  const known = memory.readDebts.bind(memory);
  const [intent] = world.log.envelopes().filter((one) => one.type === "paid.intent");
  const seen = { ...world.log.bodies("settlement")[0]!, from: "0x2222222222222222222222222222222222222222" };
  const other = {
    eventId: "rec_other",
    cap: intent!.cap!,
    observedAt: intent!.observed_at,
    intent: intent!.body as never,
    seen,
  };
  memory.readDebts = async () => ({ ...(await known()), owed: [other] });
  world.rail.transfersBack.push({ ...world.rail.transfersBack[0]!, to: seen.from });
  expect(await refundsFound(world.restart())).toBe(1);
});

test("a debt is looked for ever less often, and never given up within the window", async () => {
  const world = await robbed();
  const next = world.restart();
  let asked = 0;
  const transfers = world.rail.transfers.bind(world.rail);
  world.rail.transfers = async (query) => {
    asked++;
    return transfers(query);
  };
  for (let n = 0; n < 100; n++) await next.followUpCalls();
  expect(asked).toBeGreaterThan(20);
  expect(asked).toBeLessThan(50);
  back(world, "0xback", 10_000n);
  let found = 0;
  for (let n = 0; n < 10; n++) found += await refundsFound(next);
  expect(found).toBe(1);
});

test("a settlement that was not final when its process ended becomes final under the next one", async () => {
  const world = fakeWorld();
  world.rail.final = false;
  await payOnce(
    world,
    paying(world.rail, (asked) => {
      world.rail.settle(asked.payment!);
      return answer(200, { sum: 0 });
    }),
  );
  expect(world.log.bodies("settlement")).toMatchObject([{ final: false }]);
  const [nonce, transfer] = [...world.rail.settled][0]!;
  expect(await world.restart().followUpCalls()).toMatchObject({ waiting: 1, settled: 0 });
  world.rail.settled.set(nonce, { ...transfer, final: true });
  const next = world.restart();
  expect(await next.followUpCalls()).toMatchObject({ waiting: 0, settled: 0 });
  await next.followUpCalls();
  await world.restart().followUpCalls();
  expect(later(world)).toMatchObject([{ kind: "finality" }]);
  expect(world.log.bodies("settlement")).toHaveLength(1);
});

test("a refund is not passed over by a look at a node that lags behind the one with the newest block", async () => {
  const world = await robbed();
  back(world, "0xback", 10_000n);
  const next = world.restart();
  // It has the block of the payment, and nothing since.
  const { blockNumber: number, blockTime: time } = payment(world);
  world.rail.asOf = { number, time };
  world.rail.block += 10_000;
  expect(await refundsFound(next)).toBe(0);
  world.rail.asOf = null;
  expect(await refundsFound(next)).toBe(1);
});
