import { expect, test } from "vitest";
import { systemClock } from "../../../infra/clock.ts";
import { Buying, type BuyingDeps } from "../../../pipelines/orders/buying.ts";
import type { Order } from "../../../pipelines/orders/order.ts";
import { Recovery, type RecoveryDeps, startRecovery } from "../../../pipelines/orders/recovery.ts";
import { ORDER_CAPS } from "../../helpers/caps.ts";

const quiet = { warn() {}, error() {} };
const metrics = { count() {}, gauge() {} };
const head = async () => ({ number: 1, time: 100 });

test("a payment whose cancellation takes long keeps no order from being brought on, and a stop waits for it", async () => {
  const orders = Array.from({ length: 9 }, (_, n) => ({ id: `ord_${n}`, by: "r0", state: "claimed", legs: [] }));
  const brought: string[] = [];
  const begun: (() => void)[] = [];
  const buying = {
    orders: {
      ...{ replica: "r0", catchUp: async () => {}, staleMs: 0, table: { open: () => orders, countLeftOut: () => 0 } },
      step: async ({ id }: Order) => void brought.push(id),
    },
    isActing: () => false,
    cancelling: { cancelAbandoned: () => new Promise<void>((resolve) => begun.push(resolve)) },
  };
  const deps = { buying, rail: { head }, logger: quiet, metrics };
  const recovering = startRecovery(new Recovery(deps as unknown as RecoveryDeps), quiet, 3_600_000);
  await recovering.look();
  expect(new Set(brought)).toEqual(new Set(orders.map(({ id }) => id)));
  expect(begun).toHaveLength(4);
  let isOver = false;
  const stopped = recovering.stop().then(() => {
    isOver = true;
  });
  for (const ends of begun.slice(0, 3)) ends();
  await new Promise(setImmediate);
  expect([isOver, begun.length]).toEqual([false, 4]);
  begun[3]!();
  await stopped;
});

/** An order of another replica that came to nothing, and a process that may cancel its payment. */
function left(validBefore: number) {
  const leg = { leg: 0, wallet: "0xF", nonce: "0x1", sinceBlock: 0, validBefore, checked: { pass: false } };
  const legs = [{ ...leg, fate: "unknown" }];
  const order = {
    id: "ord_0",
    payer: "0xb",
    state: "released",
    by: "r1",
    movedAt: 0,
    client: null,
    legs,
  } as unknown as Order;
  const cancelled: string[] = [];
  const buying = new Buying({
    orders: {
      ...{ replica: "r0", table: { sum: () => 0n } },
      looksAbandoned: ({ movedAt }: Order, ms: number) => Date.now() - movedAt >= ms,
    },
    seller: { rail: { head }, float: async () => ({ address: "0xf", privateKey: "0x" }) },
    authorizations: {
      signCancel: async (_wallet: unknown, nonce: string) => nonce,
      submitCancel: async (nonce: string) => {
        cancelled.push(nonce);
        return { outcome: "sent", tx: "0x2" };
      },
    },
    ...{ caps: ORDER_CAPS, clock: systemClock, logger: quiet, metrics },
  } as unknown as BuyingDeps);
  return { order, buying, cancelled };
}

test.each([
  ["that holds", 111, ["0x1"]],
  ["that ends at once", 109, []],
])("cancelAbandoned of a payment %s, by the chain's time of that moment", async (_what, validBefore, expected) => {
  const { order, buying, cancelled } = left(validBefore);
  await buying.cancelling.cancelAbandoned(order, 1);
  await buying.cancelling.cancelAbandoned(order, 1);
  expect(cancelled).toEqual(expected);
});

test("cancelLeft leaves an order alone that moved a moment ago", async () => {
  const { order, buying, cancelled } = left(200);
  order.movedAt = Date.now();
  await buying.cancelling.cancelAbandoned(order, 20_000);
  expect(cancelled).toEqual([]);
});

test("cancelLeft asks once whether this wallet may have one more cancelled, and takes no for the end", async () => {
  const { order, buying, cancelled } = left(200);
  const asked: string[] = [];
  buying.cancelling.mayCancel = (payer) => asked.push(payer) === 0;
  await buying.cancelling.cancelAbandoned(order, 1);
  await buying.cancelling.cancelAbandoned(order, 1);
  expect([asked, cancelled]).toEqual([["0xb"], []]);
});
