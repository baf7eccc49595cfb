import { expect, test } from "vitest";
import { OrderTable } from "../../../pipelines/orders/order-table.ts";
import { SUM } from "../../../pipelines/orders/stakes.ts";

const DAY = "2026-11-23";

test.each([
  ["a hold under way may still be captured", "held", ["hold"], 0],
  ["a hold that was given back", "voided", ["hold", "void", "cancel"], 3],
  ["a hold that was undone", "hold_failed", ["hold"], 1],
  ["charges that were undone, of an order under way", "settle_unknown", ["charge", "charge"], 2],
  ["a charge that was undone, of an order given up", "written_off", ["charge"], 1],
  ["a capture that was undone, its hold under way", "settle_unknown", ["hold", "capture"], 1],
  ["what was settled", "settled", ["hold", "capture"], 0],
  ["a charge that was undone before the one that stands", "settled", ["charge", "charge"], 1],
  ["the first leg's payment of what was settled", "settled", ["cancel", "charge"], 1],
  ["a refund that its buyer provoked", "refunded", ["refund"], 1],
] as const)("gas for nothing: %s", (_what, state, kinds, count) => {
  const table = new OrderTable();
  const gas = kinds.map((kind, n) => ({ kind, tx: `0x${n}`, wei: "1" }));
  const quote = { price: "0.010000", fee: "0.002000", total: "0.012000" };
  const charged = state === "settled" ? { tx: `0x${kinds.length - 1}`, amount: quote.total } : null;
  const order = {
    ...{ id: "ord_0", key: "key", payer: "0xb", client: "net", createdAt: `${DAY}T10:00:00.000Z`, state, gas },
    ...{ legs: [], own: null, quote, charged, scheme: "exact", credit: false, bytes: 0 },
  };
  table.restore({ order, open: false });
  const wasted = (day: string, who: string) => table.sum(SUM.wasted(day, who));
  expect([wasted(DAY, "payer 0xb"), wasted(DAY, "network net")]).toEqual([BigInt(count), BigInt(count)]);
  expect([wasted("2026-11-24", "payer 0xb"), wasted(DAY, "payer 0xc")]).toEqual([0n, 0n]);
});
