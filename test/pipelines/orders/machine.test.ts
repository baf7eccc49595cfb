import { expect, test } from "vitest";
import { advance, faultOf, type Order, orderFromClaim } from "../../../pipelines/orders/order.ts";
import { OrderStep, type StepOf, type StepState } from "../../../pipelines/record/order-step.ts";
import * as fc from "../../helpers/fast-check.ts";

const ORDER = "ord_00000000000000000000000000";
const KEY = "eip155:84532|0xa|0xb|0xc";
const SHA = "0".repeat(64);
const WORN = { order: ORDER, key: KEY, epoch: 0, by: "r0", at: "2026-11-23T12:00:00.000Z" };
const request = { url: "https://seller.example/", method: "GET" as const, headers: {}, body: null, sha256: SHA };
const authorized = { nonce: "0xc", valid_before: 100, since_block: 1 };

const claimed = (more: Partial<StepOf<"claimed">> = {}): StepOf<"claimed"> => ({
  ...{ ...WORN, state: "claimed", operation: "via", scheme: "exact", network: "eip155:84532", asset: "0xa" },
  ...{ payer: "0xB", ...authorized, valid_after: 0, payment: {}, payment_sha256: SHA, requirements: { payTo: "0xD" } },
  ...{ request_sha256: SHA, publish: false, quote: { price: "0.010000", fee: "0.002000", total: "0.012000" } },
  ...more,
});

/** A step of each state, as its replica would write it. */
const STEPS: Readonly<Record<StepState, object>> = {
  claimed: claimed(),
  rejected: { says: "no" },
  verified: {},
  hold_intent: {},
  held: { tx: "0x1", capture_deadline: 50 },
  hold_failed: { says: "no" },
  hold_unknown: { says: "who knows" },
  seller_intent: {
    ...{ leg: 0, cap: "cap_x", request, wallet: "0xf", pay_to: "0x5", price: "0.010000", network: "eip155:84532" },
    ...{ asset: "0xa", header_name: "X-PAYMENT", signed_bytes: "e30=", ...authorized, deadline_ms: 1000 },
    want: { class: "any", mime: null },
  },
  worked: { content_type: "application/json", sha256: SHA, size: 1 },
  seller_result: {
    ...{ leg: 0, status: 200, content_type: null, sha256: SHA, size: 1, delivered: true, latency_ms: 1 },
    ...{ checks: [], pass: true },
  },
  seller_unknown: { leg: 0, says: "lost" },
  checked: { leg: 0, pass: true, last: true, fault: null },
  leg_paid: { leg: 0, tx: "0x2", amount: "0.010000" },
  leg_unpaid: { leg: 0 },
  leg_recovered: { leg: 0, tx: "0x3", amount: "0.010000" },
  settle_intent: {},
  settled: { tx: "0x4", amount: "0.012000" },
  settle_unknown: { says: "timeout" },
  written_off: { says: "gone" },
  released: { says: "no" },
  void_intent: { says: "no" },
  voided: { tx: "0x5", says: "no" },
  void_unknown: { says: "timeout" },
  reclaimable: { says: "late" },
  refund_due: { tx: "0x6", amount: "0.012000" },
  refund_intent: { amount: "0.012000", from: "0xd", transfer: {}, ...authorized },
  refunded: { tx: "0x7", amount: "0.012000" },
  refund_unknown: { says: "timeout" },
  expired: {},
  recorded: {},
  adopted: {},
  reopened: { steps: 0 },
  stamped: {},
};
const ALL = Object.keys(STEPS) as StepState[];
const TAKES_OVER: ReadonlySet<StepState> = new Set(["adopted", "reopened"]);
const stepOf = (state: StepState, more: object = {}): OrderStep =>
  OrderStep.parse({ ...WORN, ...STEPS[state], state, ...(TAKES_OVER.has(state) ? { epoch: 1 } : {}), ...more });
/** The step as its writer makes it of the order that it read. */
const nextOf = ({ epoch, steps }: Order, state: StepState): OrderStep =>
  stepOf(state, { epoch: TAKES_OVER.has(state) ? epoch + 1 : epoch, ...(state === "reopened" ? { steps } : {}) });

type Way = (StepState | "failed" | "held")[];
const failed = { pass: false, fault: "seller" };

function after(way: Way, claim: Partial<StepOf<"claimed">> = {}): Order {
  const order = orderFromClaim(claimed(claim), { partition: 0, offset: 0, appendedAt: new Date(0), bytes: 100 });
  for (const [i, word] of way.entries()) {
    const step = word === "failed" ? stepOf("checked", failed) : nextOf(order, word);
    expect(
      advance(order, step, { partition: 0, offset: i + 1, appendedAt: new Date(i), bytes: 100 }),
      `${way} at ${i}`,
    ).toBe(true);
  }
  return order;
}

const PASSED: Way = ["verified", "seller_intent", "seller_result", "checked"];
const FAILED: Way = ["verified", "seller_intent", "seller_unknown", "failed"];
const HELD: Way = ["verified", "hold_intent", "held"];
const HELD_FAILED: Way = [...HELD, "seller_intent", "seller_unknown", "failed"];

/** Where an order stands, and every step that changes it there, beside being adopted and lapsing. */
const TABLE: [string, Way, Partial<StepOf<"claimed">>, StepState[]][] = [
  ["claimed", [], {}, ["rejected", "verified"]],
  ["rejected", ["rejected"], {}, ["refund_due"]],
  ["verified", ["verified"], {}, ["seller_intent", "released"]],
  ["under way", ["verified", "seller_intent"], {}, ["seller_result", "seller_unknown", "leg_paid", "leg_unpaid"]],
  ["answered", PASSED.slice(0, 3), {}, ["checked", "leg_paid", "leg_unpaid"]],
  ["lost", FAILED.slice(0, 3), {}, ["leg_paid", "leg_unpaid"]],
  ["passed", PASSED, {}, ["settle_intent", "written_off", "leg_paid", "leg_unpaid"]],
  ["failed", FAILED, {}, ["released", "leg_paid", "leg_unpaid"]],
  [
    "charging",
    [...PASSED, "settle_intent"],
    {},
    ["settled", "settle_unknown", "written_off", "leg_paid", "leg_unpaid"],
  ],
  [
    "charged, maybe",
    [...PASSED, "settle_intent", "settle_unknown"],
    {},
    ["settle_intent", "settled", "written_off", "leg_paid", "leg_unpaid"],
  ],
  ["settled", [...PASSED, "settle_intent", "settled"], {}, ["leg_paid", "leg_unpaid"]],
  ["settled and paid", [...PASSED, "settle_intent", "settled", "leg_paid"], {}, ["leg_recovered", "recorded"]],
  ["written off", [...PASSED, "written_off", "leg_paid"], {}, ["settled", "refund_due", "leg_recovered"]],
  ["released", [...FAILED, "released"], {}, ["refund_due", "leg_paid", "leg_unpaid"]],
  ["released, its seller paid", [...FAILED, "released", "leg_paid"], {}, ["refund_due", "leg_recovered"]],
  ["owed", ["rejected", "refund_due"], {}, ["refund_intent"]],
  ["paying back", ["rejected", "refund_due", "refund_intent"], {}, ["refunded", "refund_unknown"]],
  [
    "paid back, maybe",
    ["rejected", "refund_due", "refund_intent", "refund_unknown"],
    {},
    ["refund_intent", "refunded"],
  ],
  ["paid back", ["rejected", "refund_due", "refund_intent", "refunded"], {}, []],
  ["own: verified", ["verified"], { operation: "own" }, ["worked", "released"]],
  ["own: rejected", ["rejected"], { operation: "own" }, ["refund_due", "reopened"]],
  ["own: released", ["verified", "released"], { operation: "own" }, ["refund_due", "reopened"]],
  ["own: begun again", ["verified", "released", "reopened"], { operation: "own" }, ["worked", "released"]],
  ["own: worked", ["verified", "worked"], { operation: "own" }, ["settle_intent", "written_off"]],
  ["own: settled", ["verified", "worked", "settle_intent", "settled"], { operation: "own" }, []],
  ["escrow: verified", ["verified"], { scheme: "auth-capture" }, ["hold_intent", "released"]],
  [
    "escrow: holding",
    HELD.slice(0, 2),
    { scheme: "auth-capture" },
    ["held", "hold_failed", "hold_unknown", "refund_due"],
  ],
  ["escrow: held", HELD, { scheme: "auth-capture" }, ["seller_intent", "void_intent", "reclaimable"]],
  ["escrow: failed", HELD_FAILED, { scheme: "auth-capture" }, ["void_intent", "reclaimable", "leg_paid", "leg_unpaid"]],
  [
    "escrow: voiding",
    [...HELD_FAILED, "void_intent"],
    { scheme: "auth-capture" },
    ["voided", "void_unknown", "hold_failed", "refund_due", "reclaimable", "leg_paid", "leg_unpaid"],
  ],
  ["escrow: voided", [...HELD_FAILED, "void_intent", "voided"], { scheme: "auth-capture" }, ["leg_paid", "leg_unpaid"]],
];
const at = { partition: 0, offset: 99, appendedAt: new Date(99), bytes: 100 };

test.each(TABLE)("%s: each step changes it or nothing", (_, way, claim, changing) => {
  const changed = ALL.filter((state) => {
    const order = after(way, claim);
    return advance(order, nextOf(order, state), at);
  });
  expect(changed.sort()).toEqual([...changing, "adopted", "expired"].sort());
});

test.each(TABLE)(
  "%s: what is not its own, or comes late or twice, changes nothing at all",
  (_, way, claim, changing) => {
    for (const state of [...changing, "expired" as const]) {
      const order = after(way, claim);
      const before = structuredClone(order);
      const step = nextOf(order, state);
      const adopting = nextOf(order, "adopted");
      const strange = [{ order: ORDER.replace(/0$/, "1") }, { epoch: 7 }];
      for (const other of strange) expect(advance(order, stepOf(state, other), at)).toBe(false);
      expect(advance(order, stepOf("adopted", { epoch: 3 }), at)).toBe(false);
      expect(order).toEqual(before);
      expect(advance(order, adopting, at)).toBe(true);
      const adopted = structuredClone(order);
      expect(advance(order, step, at), `${state} of the epoch before`).toBe(false);
      expect(advance(order, adopting, at), "adopted twice").toBe(false);
      expect(order).toEqual(adopted);
      const moved = after(way, claim);
      advance(moved, step, at);
      const once = structuredClone(moved);
      advance(moved, step, { ...at, offset: 100 });
      expect(moved, `${state} twice`).toEqual(once);
    }
  },
);

test("work of our own is begun again from the order as it was read, not after its payment has expired, and not for ever", () => {
  const released = () => after(["verified", "released"], { operation: "own" });
  const order = released();
  expect(advance(order, stepOf("reopened", { steps: order.steps - 1 }), at)).toBe(false);
  const expired = released();
  advance(expired, stepOf("expired"), at);
  expect(advance(expired, nextOf(expired, "reopened"), at)).toBe(false);
  let tries = 0;
  while (advance(order, nextOf(order, "reopened"), at)) {
    tries++;
    expect(advance(order, nextOf(order, "released"), at)).toBe(true);
  }
  expect(tries).toBe(32);
});

test("a verdict better than the result, a leg out of turn: nothing", () => {
  const underWay = () => after(["verified", "seller_intent"]);
  expect(advance(underWay(), stepOf("seller_result", { leg: 1 }), at)).toBe(false);
  expect(advance(after(["verified"]), stepOf("seller_intent", { leg: 1 }), at)).toBe(false);
  const bad = underWay();
  advance(bad, stepOf("seller_result", { pass: false }), at);
  expect(advance(bad, stepOf("checked"), at)).toBe(false);
});

test("another seller is paid only once the one before can take nothing more", () => {
  const next = stepOf("seller_intent", { leg: 1 });
  expect(advance(after(FAILED), next, at)).toBe(false);
  expect(advance(after([...FAILED, "leg_paid"]), next, at)).toBe(false);
  expect(advance(after([...PASSED, "leg_unpaid"]), next, at)).toBe(false);
  expect(advance(after([...FAILED, "leg_unpaid"]), next, at)).toBe(true);
});

test("a charge whose block vanished, said again after it was written off, is no charge; one that is final is", () => {
  const unsure = stepOf("settled", { final: false });
  const order = after([...PASSED, "settle_intent"]);
  const at = { partition: 0, offset: 9, appendedAt: new Date(9), bytes: 100 };
  expect(advance(order, unsure, at)).toBe(true);
  expect(advance(order, stepOf("written_off"), at)).toBe(true);
  const before = structuredClone(order);
  expect(advance(order, unsure, at)).toBe(false);
  expect(order).toEqual(before);
  expect(advance(order, stepOf("settled"), at)).toBe(true);
  expect(order).toMatchObject({ state: "settled", final: true });
});

test.each([
  ["as older records are: its buyer's", {}, { state: "written_off" }, "buyer", false],
  ["by a fault of ours", {}, { state: "written_off", fault: "ours" }, "ours", false],
  ["after a refusal, as older records say it", { payer_has: "0.010000" }, { state: "written_off" }, "buyer", true],
  ["after a transaction", { tx: "0x9" }, { state: "written_off" }, "buyer", true],
  ["after an attempt at an empty wallet", { by_payer: true }, { state: "written_off" }, "buyer", true],
] as const)("written off %s", (_what, attempt, { state, ...fault }, expected, failedByPayer) => {
  const order = after([...PASSED, "settle_intent"]);
  expect(advance(order, stepOf("settle_unknown", attempt), at)).toBe(true);
  // A later attempt takes nothing of it back.
  for (const next of ["settle_intent", "settle_unknown"] as const) expect(advance(order, stepOf(next), at)).toBe(true);
  expect(advance(order, stepOf(state, fault), at)).toBe(true);
  expect([faultOf(order, order.legs[0]!), order.failedByPayer]).toEqual([expected, failedByPayer]);
});

test("a drawn log of steps folds to the same order with any of its steps repeated", () => {
  const drawn = fc.array(fc.tuple(fc.constantFrom(...ALL), fc.nat(2), fc.boolean()), { maxLength: 40 });
  fc.assert(
    fc.property(drawn, (steps) => {
      const fold = (doubled: boolean) => {
        const order = orderFromClaim(claimed(), { partition: 0, offset: 0, appendedAt: new Date(0), bytes: 100 });
        for (const [i, [state, epoch, fails]] of steps.entries()) {
          const step = stepOf(state, { epoch, ...(fails && state === "checked" ? failed : {}) });
          advance(order, step, { ...at, offset: i + 1 });
          if (doubled) advance(order, step, { ...at, offset: i + 1 });
        }
        return order;
      };
      expect(fold(true)).toEqual(fold(false));
    }),
    { numRuns: 1000 },
  );
});
