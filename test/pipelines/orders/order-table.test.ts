import { expect, test } from "vitest";
import { OrderTable } from "../../../pipelines/orders/order-table.ts";

const DAY = "2026-11-23";

test.each([
  ["a hold under way may still be captured", "held", ["hold"], 0],
  ["a hold that was given back", "voided", ["hold", "void", "cancel"], 3],
  ["a hold that was undone", "hold_failed", ["hold"], 1],
  ["charges that were undone, of an order under way", "settle_unknown", ["charge", "charge"], 2],
  ["a charge that was undone, of an order given up", "written_off", ["charge"], 1],
  ["a capture that was undone, its hold under way", "settle_unknown", ["hold", "capture"], 1],
  ["what was settled", "settled", ["hold", "capture"], 0],
  ["the first leg's payment of what was settled", "settled", ["cancel", "charge"], 1],
] as const)("gas for nothing: %s", (_what, state, kinds, count) => {
  const table = new OrderTable();
  const gas = kinds.map((kind, n) => ({ kind, tx: `0x${n}`, wei: "1" }));
  const order = { id: "ord_0", key: "key", payer: "0xb", createdAt: `${DAY}T10:00:00.000Z`, state, gas };
  table.restore({ order, open: false });
  expect([table.wasted("0xb", DAY), table.wasted("0xb", "2026-11-24"), table.wasted("0xc", DAY)]).toEqual([
    count,
    0,
    0,
  ]);
});
