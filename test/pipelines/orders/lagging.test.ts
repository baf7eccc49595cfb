import { beforeEach, describe, expect, test } from "vitest";
import type { Order } from "../../../pipelines/orders/order.ts";
import { type FakeReplica, FLOAT, FLOAT_HAS, OrderWorld, TILL } from "../../helpers/order-world.ts";

/**
 * Orders over nodes that lag, or that disagree: the newest block is one node's, and what happened is asked of another,
 * which is behind it. No verdict follows from what the second one does not have yet.
 */
const PRICE = 100_000n;
const TOTAL = 110_000n;
const BUYER = "0xbuyer";
/** Longer than any payment here is valid, and than it is waited for after that. */
const LONG_S = 900;

let world: OrderWorld;
let replica: FakeReplica;
beforeEach(() => {
  world = new OrderWorld(1);
  [replica] = world.replicas as [FakeReplica];
  world.chain.mint(BUYER, TOTAL);
  world.chain.pass(60);
});

const order = (): Order => [...replica.buying.orders.table.all()][0]!;
const looks = async (times: number, passing: number) => {
  for (let n = 0; n < times; n++) {
    world.chain.pass(passing);
    await replica.recovery.look();
  }
};
const lags = () => Object.assign(replica.node, { lagS: 10 * LONG_S, headLagS: 0 });
const hasCaughtUp = () => Object.assign(replica.node, { lagS: 0 });

describe("a charge that a lagging node does not show", () => {
  beforeEach(async () => {
    lags();
    world.tillFault = "settles and says nothing";
    await world.post(replica, world.pay(BUYER, "honest", PRICE));
    expect([world.chain.balance(BUYER), world.chain.balance(TILL)]).toEqual([0n, TOTAL]);
    await looks(4, LONG_S);
  });

  test("is not written off, whatever the newest block of another node says", () => {
    expect(order().state).not.toBe("written_off");
    expect(order()).toMatchObject({ charged: null, expired: false, legs: [{ fate: "unknown" }] });
  });

  test("is found once the node has caught up, and its buyer was charged once", async () => {
    hasCaughtUp();
    await looks(3, 10);
    expect(order()).toMatchObject({ state: "settled", legs: [{ fate: "paid" }] });
    expect(order().charged?.amount).toBe("0.110000");
    expect(world.chain.balance(TILL)).toBe(TOTAL);
    expect(world.unannounced).toEqual([]);
  });

  test("is found too where no node answered for a while", async () => {
    replica.node.down = true;
    await looks(2, LONG_S);
    expect(order().charged).toBeNull();
    replica.node.down = false;
    hasCaughtUp();
    await looks(3, 10);
    expect(order().state).toBe("settled");
  });
});

test("a refund that a lagging node does not show is not signed a second time", async () => {
  const payment = world.pay(BUYER, "thief", PRICE);
  await world.post(replica, payment);
  // Nobody is charged for it; and then somebody uses the buyer's signature.
  expect(order().state).toBe("released");
  expect(world.chain.submit(payment.auth)).toBeNull();
  world.chain.pass(LONG_S);
  for (let n = 0; n < 5 && order().state !== "refund_intent"; n++) await replica.recovery.look();
  const { nonce } = order().refund!;
  expect([order().state, world.chain.balance(BUYER)]).toEqual(["refund_intent", TOTAL]);

  lags();
  await looks(4, LONG_S);
  expect([order().state, order().refund!.nonce]).toEqual(["refund_intent", nonce]);
  hasCaughtUp();
  await looks(2, 10);
  expect([order().state, world.chain.balance(BUYER), world.chain.balance(TILL)]).toEqual(["refunded", TOTAL, 0n]);
});

test("a seller's payment that a lagging node does not show is not called unpaid", async () => {
  const payment = world.pay(BUYER, "thief", PRICE);
  lags();
  await world.post(replica, payment);
  await looks(4, LONG_S);
  expect(order()).toMatchObject({ state: "released", legs: [{ fate: "unknown" }] });
  hasCaughtUp();
  await looks(2, 10);
  expect(order().legs).toMatchObject([{ fate: "paid" }]);
  expect(world.chain.balance(FLOAT)).toBe(FLOAT_HAS - PRICE);
});
