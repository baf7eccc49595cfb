import { expect, test } from "vitest";
import type { OwnAnswer, OwnFailure } from "../../../pipelines/orders/buying.ts";
import { claimKey } from "../../../pipelines/orders/claim.ts";
import type { Order } from "../../../pipelines/orders/order.ts";
import { ASSET, NETWORK, written } from "../../helpers/fake-chain.ts";
import type { AppendFault } from "../../helpers/fake-log.ts";
import { type FakePayment, type FakeReplica, OrderWorld, TILL } from "../../helpers/order-world.ts";

/** Work of our own that fails, and is tried again for the same payment, with a fault at every moment between. */
const PRICE = 20_000n;
const SHA = "0".repeat(64);
const DONE: OwnAnswer = { bytes: Buffer.from("{}"), contentType: "application/json" };
const DOWN: OwnFailure = { problem: { code: "unavailable", detail: "no register" } };
const BAD: OwnFailure = { problem: { code: "not_extracted", detail: "no document", errors: [] } };

const claimOf = ({ auth }: FakePayment, request = SHA) => ({
  ...{ operation: "own" as const, scheme: "exact" as const, network: NETWORK, asset: ASSET, payer: auth.from },
  ...{ nonce: auth.nonce, client: "net", valid_after: 0, valid_before: auth.validBefore, publish: false },
  ...{ payment: { payload: written(auth) }, payment_sha256: SHA, requirements: { payTo: TILL } },
  ...{ request_sha256: request, quote: { price: "0.000000", fee: "0.020000", total: "0.020000" } },
});
const keyOf = ({ auth }: FakePayment) =>
  claimKey({ network: NETWORK, asset: ASSET, from: auth.from, nonce: auth.nonce });

function worldOf(replicas = 2) {
  const world = new OrderWorld(replicas);
  world.chain.mint("0xbuyer", PRICE);
  const payment = world.pay("0xbuyer", "honest", PRICE - 2_000n);
  const sell = async (
    replica: FakeReplica,
    answer: OwnAnswer | OwnFailure,
    request?: string,
  ): Promise<Order | null> => {
    await replica.buying.orders.catchUp().catch(() => {});
    return replica.buying.sell(keyOf(payment), claimOf(payment, request), async () => answer).catch(() => null);
  };
  return { world, payment, sell };
}

test("what failed is kept with its problem; another replica does the work for the same payment, which is charged once", async () => {
  const { world, sell } = worldOf();
  const [one, other] = world.replicas as [FakeReplica, FakeReplica];
  expect(await sell(one, DOWN)).toMatchObject({ state: "released", ...DOWN, charged: null });
  expect(await sell(other, DONE)).toMatchObject({ state: "settled", problem: null });
  expect(await sell(one, DONE)).toMatchObject({ state: "settled" });
  expect([world.chain.balance("0xbuyer"), world.chain.balance(TILL)]).toEqual([0n, PRICE]);
  expect([world.stepsOf("claimed").length, world.stepsOf("reopened").length]).toEqual([1, 1]);
  expect(world.unannounced).toEqual([]);
});

test("the payment of an order that failed does no other work", async () => {
  const { world, sell } = worldOf();
  const [one] = world.replicas as [FakeReplica];
  await sell(one, BAD);
  expect(await sell(one, DONE, "1".repeat(64))).toMatchObject({ state: "released", ...BAD });
  expect(world.stepsOf("reopened")).toEqual([]);
});

test("two replicas that begin it again at once do it once", async () => {
  const { world, sell } = worldOf(3);
  const [one, other, third] = world.replicas as [FakeReplica, FakeReplica, FakeReplica];
  await sell(one, DOWN);
  await Promise.all([sell(one, DONE), sell(one, DONE), sell(other, DONE), sell(third, DONE)]);
  const table = await world.end();
  expect([...table.all()].map(({ state }) => state)).toEqual(["settled"]);
  expect(world.stepsOf("worked")).toHaveLength(1);
  expect(world.chain.balance(TILL)).toBe(PRICE);
});

test("a payment that its buyer sent in the meantime pays for the work, or is sent back", async () => {
  for (const tries of [true, false]) {
    const { world, payment, sell } = worldOf();
    const [one] = world.replicas as [FakeReplica];
    world.chain.mint("0xbuyer", PRICE);
    await sell(one, DOWN);
    expect(await world.chain.submit(payment.auth)).toBe(null);
    if (tries) await sell(one, DONE);
    const table = await world.end();
    const [order] = [...table.all()];
    expect([tries, order!.state]).toEqual([tries, tries ? "settled" : "refunded"]);
    expect(world.chain.balance("0xbuyer")).toBe(tries ? PRICE : 2n * PRICE);
  }
});

const FAULTS: readonly AppendFault[] = ["lost ack", "refused", "prefix", "late", "twice"];
const MOMENTS = Array.from({ length: 12 }, (_, n) => n + 1);

/** A try that fails, one that succeeds, and one more, while the first replica meets a fault; then all comes to its end. */
async function lived(hurt: (replica: FakeReplica) => void): Promise<void> {
  const { world, sell } = worldOf();
  const [one, other] = world.replicas as [FakeReplica, FakeReplica];
  hurt(one);
  const tries = [sell(one, DOWN)];
  await Promise.race([tries[0], new Promise((resolve) => setTimeout(resolve, 20))]);
  tries.push(sell(one, DONE));
  await Promise.race([tries[1], new Promise((resolve) => setTimeout(resolve, 20))]);
  const told = await sell(other, DONE);
  one.wake();
  await Promise.all(tries);
  const table = await world.end();
  const [order, ...others] = [...table.all()];
  expect(others).toEqual([]);
  expect(world.unannounced).toEqual([]);
  expect(["settled", "released", "rejected"]).toContain(order!.state);
  expect(world.chain.balance(TILL)).toBe(order!.state === "settled" ? PRICE : 0n);
  expect(order!.own!.result !== null).toBe(order!.state === "settled");
  if (told?.state === "settled") expect(order!.state).toBe("settled");
  expect(table.sum("open")).toBe(0n);
}

test.each(FAULTS.flatMap((fault) => MOMENTS.map((appends) => ({ fault, appends }))))(
  "append $appends is $fault: charged once, or not at all",
  ({ fault, appends }) => lived((replica) => Object.assign(replica, { faultIn: { appends, fault } })),
);

test.each(MOMENTS.flatMap((n) => [n, n + MOMENTS.length]))(
  "the replica stands still at its effect %i, and goes on when another has the payment: charged once, or not at all",
  (haltIn) => lived((replica) => Object.assign(replica, { haltIn })),
);

test.each([0, 1, 2])(
  "an answer that cannot be kept (%i objects before) is made again for the same payment",
  async (n) => {
    const { world, sell } = worldOf();
    const [one] = world.replicas as [FakeReplica];
    one.storeFault = { in: n, many: 8, writes: false };
    for (let tries = 0; tries < 20 && (await sell(one, DONE))?.state !== "settled"; tries++);
    expect(world.chain.balance(TILL)).toBe(PRICE);
  },
);
