import { describe, expect, test } from "vitest";

import type { EgressResult } from "../../../infra/egress/egress.ts";

import { OrderWorld } from "../../helpers/order-world.ts";

/** Sellers answer these bytes instead of their own, where they answer at all. */
function answering(world: OrderWorld, body: Buffer): void {
  const sell = world.sell.bind(world);
  world.sell = async (request) => {
    const came = await sell(request);
    return came.outcome === "answered" ? ({ ...came, body } as EgressResult) : came;
  };
}

const MIB = 1024 * 1024;
const big = Buffer.from(`{"sum":"${"x".repeat(MIB - 20)}"}`);
const inLog = (world: OrderWorld): number => world.log.all().reduce((sum, { value }) => sum + value.byteLength, 0);

describe("bytes on the disk", () => {
  test("one order of one micro-unit with an answer of 1 MiB that is never charged: below 10 kB, and then no object", async () => {
    const world = new OrderWorld(1);
    answering(world, big);
    world.charge = async () => ({ outcome: "refused", reason: "drained" });
    world.chain.mint("0xm", 2_001n);
    const order = await world.post(world.replicas[0]!, world.pay("0xm", "honest", 1n));
    expect(order?.state).toBe("settle_unknown");
    expect(inLog(world)).toBeLessThan(10_000);
    expect([...world.store.objects.values()].map(({ size }) => size)).toEqual([big.length]);
    await world.end();
    await world.replicas[0]!.sweep.turn();
    expect(world.store.objects.size).toBe(0);
  });
});
