import { afterEach, describe, expect, test, vi } from "vitest";
import { systemClock } from "../../../infra/clock.ts";
import type { Purchase } from "../../../pipelines/orders/buying.ts";
import { claimKey } from "../../../pipelines/orders/claim.ts";
import type { Order } from "../../../pipelines/orders/order.ts";
import { OrderStep, type StepState } from "../../../pipelines/record/order-step.ts";
import { Checkout, type Sales } from "../../../serving/buy/checkout.ts";
import type { Payment } from "../../../serving/buy/payments.ts";
import type { Sale } from "../../../serving/buy/terms.ts";
import type { Problem } from "../../../serving/http/problem.ts";

/** What a checkout decides from its table of orders alone: no chain, no log. */
const PAYMENT = {
  network: "eip155:84532",
  from: "0x00000000000000000000000000000000000000a1",
  nonce: `0x${"11".repeat(32)}`,
  identifier: null,
  sha256: "aa".repeat(32),
} as Payment;
const REQUEST_SHA256 = "bb".repeat(32);
const SALE = { url: "https://touchstone.test/v1/via/x" } as Sale;

function checkoutOver(
  table: Partial<Sales["buying"]["orders"]["table"]>,
  acts: Partial<Record<"buy" | "sell", () => Promise<Order>>> = {},
): Checkout {
  const orders = {
    catchUp: async () => {},
    table: { ofKey: () => undefined, ofIdentifier: () => undefined, ...table },
  };
  return new Checkout({ receivingAccount: { asset: "0xasset" }, buying: { orders, ...acts } } as unknown as Sales);
}

/** Whether the payment-identifier of an order in this state may be used by another payment. */
const IDENTIFIERS: Record<Order["state"], "free" | "used"> = {
  claimed: "used",
  rejected: "free",
  verified: "used",
  hold_intent: "used",
  held: "used",
  hold_failed: "free",
  hold_unknown: "used",
  seller_intent: "used",
  seller_result: "used",
  seller_unknown: "used",
  checked: "used",
  worked: "used",
  settle_intent: "used",
  settled: "used",
  settle_unknown: "used",
  written_off: "used",
  released: "free",
  void_intent: "used",
  voided: "free",
  void_unknown: "used",
  reclaimable: "free",
  refund_due: "used",
  refund_intent: "used",
  refunded: "free",
  refund_unknown: "used",
};
/** Steps that leave an order in its state. */
const SIDE_STEPS: Record<Exclude<StepState, Order["state"]>, true> = {
  ...{ leg_paid: true, leg_unpaid: true, leg_recovered: true, expired: true, recorded: true },
  ...{ adopted: true, stamped: true, reopened: true },
};
const STATES = Object.keys(IDENTIFIERS) as Order["state"][];
const IDENTIFIED = { ...PAYMENT, identifier: "what_the_client_buys" };
const KEY = claimKey({ ...PAYMENT, asset: "0xasset" });
const ID = `ord_${"1".repeat(26)}`;

afterEach(() => void vi.restoreAllMocks());

test("a request waits 15 s for an earlier one with its payment, and is then told to ask again", async () => {
  let nowMs = 1_000;
  vi.spyOn(systemClock, "monotonic").mockImplementation(() => nowMs);
  vi.spyOn(systemClock, "sleep").mockImplementation(async (ms) => {
    nowMs += ms;
  });
  const checkout = checkoutOver({});
  let end = (_: Response): void => {};
  const first = checkout.answer(PAYMENT, REQUEST_SHA256, SALE, () => new Promise((resolve) => (end = resolve)));
  const buyAgain = vi.fn(async () => new Response("second"));
  const again = checkout.answer({ ...PAYMENT, from: PAYMENT.from.toUpperCase() }, REQUEST_SHA256, SALE, buyAgain);
  await expect(again).rejects.toMatchObject({ code: "unavailable", extra: { headers: { "retry-after": "5" } } });
  expect([nowMs, buyAgain.mock.calls.length]).toEqual([16_000, 0]);
  // Another payment does not wait, and the same one does not once the first has ended.
  const other = { ...PAYMENT, nonce: `0x${"22".repeat(32)}` };
  const answer = async (payment: Payment) =>
    (await checkout.answer(payment, REQUEST_SHA256, SALE, async () => new Response("third"))).text();
  expect(await answer(other)).toBe("third");
  end(new Response("first"));
  expect(await (await first).text()).toBe("first");
  expect([await answer(PAYMENT), nowMs]).toEqual(["third", 16_000]);
});

test("a request that failed leaves its payment to the next one", async () => {
  const checkout = checkoutOver({});
  const failing = checkout.answer(PAYMENT, REQUEST_SHA256, SALE, () => Promise.reject(new Error("lost")));
  await expect(failing).rejects.toThrow("lost");
  const answer = await checkout.answer(PAYMENT, REQUEST_SHA256, SALE, async () => new Response("next"));
  expect(await answer.text()).toBe("next");
});

test("so many payments are under way that one more is told to ask again; once one has ended it is taken", async () => {
  const checkout = checkoutOver({});
  const ends: ((response: Response) => void)[] = [];
  const payments = Array.from({ length: 4_097 }, (_, n) => ({ ...PAYMENT, nonce: `0x${n.toString(16)}` }));
  const answer = (payment: Payment) =>
    checkout.answer(payment, REQUEST_SHA256, SALE, () => new Promise((resolve) => ends.push(resolve)));
  const [first] = payments.slice(0, 4_096).map(answer);
  await expect.poll(() => ends.length).toBe(4_096);
  await expect(answer(payments.at(-1)!)).rejects.toMatchObject({ code: "unavailable" });
  ends[0]!(new Response());
  await first;
  void answer(payments.at(-1)!);
  await expect.poll(() => ends.length).toBe(4_097);
});

describe("a payment-identifier", () => {
  test("has a rule for every state of an order", () => {
    const states = OrderStep.options.map(({ shape }) => shape.state.value);
    expect([...STATES, ...Object.keys(SIDE_STEPS)].sort()).toEqual(states.sort());
  });

  const PURCHASE = { key: KEY, claim: { request_sha256: REQUEST_SHA256 } } as Purchase;
  /** What buying or selling under this payment's identifier comes to: the problem, or that it was begun. */
  async function begunOver(table: Parameters<typeof checkoutOver>[0]) {
    const begin = vi.fn(() => Promise.reject(new Error("begun")));
    const checkout = checkoutOver(table, { buy: begin, sell: begin });
    const sellWork = () => checkout.sell(PURCHASE, IDENTIFIED, SALE, async () => Promise.reject(new Error("no work")));
    const ways = [() => checkout.buy(PURCHASE, IDENTIFIED, SALE), sellWork];
    const errors: Problem[] = [];
    for (const way of ways) errors.push(await (async () => way())().then(Promise.reject, (error: Problem) => error));
    return { errors, begun: begin.mock.calls.length };
  }

  test.each(STATES)("of another payment's order that is %s", async (state) => {
    const another = { id: ID, key: "another", state } as Order;
    const { errors, begun } = await begunOver({ ofIdentifier: () => another });
    expect(begun).toBe(IDENTIFIERS[state] === "free" ? 2 : 0);
    for (const error of errors) {
      if (begun > 0) expect(error.message).toBe("begun");
      else expect(error).toMatchObject({ code: "payment_used" });
      // With its id anybody can read an order.
      expect(JSON.stringify([String(error), error])).not.toContain(ID);
    }
  });

  test.each(STATES)("of this payment's own order that is %s is no other order's", async (state) => {
    const own = { id: ID, key: KEY, state } as Order;
    expect((await begunOver({ ofIdentifier: () => own })).begun).toBe(2);
  });

  test.each(STATES)("says nothing of an order that is %s to a payment that was not verified", async (state) => {
    const another = { id: ID, key: "another", state } as Order;
    const guessed = checkoutOver({ ofIdentifier: () => another }).existingOrder(IDENTIFIED, REQUEST_SHA256);
    await expect(guessed).resolves.toBeNull();
  });

  test("belongs to the payment: without it, or with another, the payment as the chain shows it opens no order", async () => {
    const { identifier } = IDENTIFIED;
    const own = { id: ID, key: KEY, identifier, requestSha256: REQUEST_SHA256, paymentSha256: PAYMENT.sha256 } as Order;
    const checkout = checkoutOver({ ofKey: () => own });
    expect(await checkout.existingOrder(IDENTIFIED, REQUEST_SHA256)).toBe(own);
    for (const payment of [PAYMENT, { ...IDENTIFIED, identifier: "what_another_guesses" }]) {
      const opened = checkout.existingOrder(payment, REQUEST_SHA256);
      await expect(opened).rejects.toMatchObject({ code: "payment_used" });
    }
  });

  test.each(STATES)("of this payment's own order that is %s: that order", async (state) => {
    const { identifier, sha256: paymentSha256 } = IDENTIFIED;
    const own = { id: ID, key: KEY, state, identifier, requestSha256: REQUEST_SHA256, paymentSha256 } as Order;
    const checkout = checkoutOver({ ofIdentifier: () => own, ofKey: (key) => (key === KEY ? own : undefined) });
    expect(await checkout.existingOrder(IDENTIFIED, REQUEST_SHA256)).toBe(own);
  });

  test("that a payment does not have is not looked up", async () => {
    const ofIdentifier = vi.fn();
    expect(await checkoutOver({ ofIdentifier }).existingOrder(PAYMENT, REQUEST_SHA256)).toBeNull();
    expect(ofIdentifier).not.toHaveBeenCalled();
  });
});
