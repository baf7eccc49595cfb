import { afterAll, beforeAll, expect, test } from "vitest";
import { createMemory } from "../../../pipelines/2-ingest/memory.ts";
import type { Memory } from "../../../pipelines/record/memory.ts";
import { at, followup, intent, later, NOTHING, PAY_TO, result, settlement } from "./records.ts";
import { openTestWorld, type World } from "./world.ts";

let world: World;
let memory: Memory;
beforeAll(async () => {
  world = await openTestWorld();
  memory = createMemory(world.lake);
});
afterAll(() => world.close());

const DAY = "2026-10-05";
const shown = (delivered: boolean) => ({
  kind: "shown_again" as const,
  shown_again: { watched: true, ...NOTHING, delivered },
});

/** One paid call: what came of it, in the words of the record. */
async function call(
  name: string,
  of: { day?: string; result?: object; final?: boolean; again?: boolean | null; later?: ("refund" | "finality")[] },
): Promise<string> {
  const time = at("03:00:00", of.day ?? DAY);
  const sent = intent(name, time, { valid_before: Math.floor(Date.now() / 1000) + 60, nonce: `0x${name}` });
  const id = sent.eventId;
  await world.append(sent, result(name, id, later(time, 2_000), of.result ?? NOTHING));
  await world.append(settlement(name, id, later(time, 3_000), { final: of.final ?? true, tx: `0xpaid-${name}` }));
  if (of.again !== null) await world.append(followup(name, id, later(time, 60_000), shown(of.again ?? false)));
  for (const kind of of.later ?? []) {
    const refund = kind === "refund" ? { refund: { tx: `0xback-${name}`, amount_atomic: "10000" } } : {};
    await world.append(followup(name, id, later(time, 7_200_000), { kind, ...refund }));
  }
  return id;
}

test("owed is what settled for nothing and was not paid back; what was paid back names its Transfer", async () => {
  const owed = await call("owed", {});
  const made = {
    late: await call("late", { final: false, later: ["finality"] }),
    came: await call("came", { again: true }),
    served: await call("served", { result: {}, again: null }),
    repaid: await call("repaid", { later: ["refund"] }),
    young: await call("young", { final: false }),
    unshown: await call("unshown", { again: null }),
    ours: await call("ours", { result: { ...NOTHING, fault: "ours" } }),
  };
  const old = await call("old", { day: "2026-06-20" });
  await world.ingest.pass();
  const debts = await memory.readDebts();
  expect(debts.owed.map((one) => one.eventId).sort()).toEqual([owed, made.late].sort());
  expect(debts.owed.map((one) => one.eventId)).not.toContain(old);
  expect(debts.owed.find((one) => one.eventId === owed)).toMatchObject({
    observedAt: at("03:00:00", DAY),
    intent: { nonce: "0xowed" },
    seen: { tx: "0xpaid-owed", final: true },
  });
  expect(debts.refunds).toEqual([
    { intent: made.repaid, tx: "0xback-repaid", payee: PAY_TO, wallet: expect.any(String) },
  ]);
});

test("a Transfer that was seen and is not final is awaited with what was seen of it, until it is final", async () => {
  const ids = async () =>
    new Map((await memory.awaitingSettlement()).map((one) => [one.eventId, one.seen?.tx ?? null]));
  const [pending, done] = [
    await call("pending", { final: false }),
    await call("done", { final: false, later: ["finality"] }),
  ];
  await world.ingest.pass();
  expect((await ids()).get(pending)).toBe("0xpaid-pending");
  expect((await ids()).has(done)).toBe(false);
  const time = at("03:00:09", DAY);
  await world.append(settlement("pending", pending, time, { final: true, tx: "0xpaid-pending" }));
  await world.ingest.pass();
  expect((await ids()).has(pending)).toBe(false);
});
