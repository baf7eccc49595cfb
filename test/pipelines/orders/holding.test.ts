import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { x402Client } from "@x402/core/client";
import { AuthCaptureEvmScheme } from "@x402/evm/auth-capture/client";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { LOCAL_NETWORK, LOCAL_USDC } from "../../../fixtures/chain/local-chain.ts";
import { systemClock } from "../../../infra/clock.ts";
import { openEmbeddedLog } from "../../../infra/log/embedded.ts";
import type { Log } from "../../../infra/log/log.ts";
import type { HoldState } from "../../../infra/rails/escrow.ts";
import { escrowOffer } from "../../../infra/rails/escrow-terms.ts";
import type { AsOf } from "../../../infra/rails/rails.ts";
import { ChainDown } from "../../../infra/rails/rpc.ts";
import type { Outcome } from "../../../infra/rails/sender.ts";
import { claimKey, createOrderId } from "../../../pipelines/orders/claim.ts";
import { Holding } from "../../../pipelines/orders/holding.ts";
import { isClosed, type Order } from "../../../pipelines/orders/order.ts";
import { type NewStep, OrderLog, OrderLost } from "../../../pipelines/orders/order-log.ts";
import { TOPICS } from "../../../pipelines/record/topics.ts";

/** What the escrow and the chain may say, in every order: a fake of both, beside the real ones of the serving tests. */
const T0 = Math.floor(Date.now() / 1000);
const DEADLINE = T0 + 1_800;
/** Past the end of any signature that is made here, and what may be seen after it. */
const GONE = T0 + 480;
const SHA = "0".repeat(64);
const AT = "0x00000000000000000000000000000000000000d4";

let dir: string;
let log: Log;
let orders: OrderLog;
let holding: Holding;
let holdingAt: (confirmations: number) => Holding;
let now: number;
/** What the chain shows, look by look: the last one stays. A null is a chain that cannot be asked. */
let shown: (HoldState | null)[];
/** What was asked of the escrow, and what it says; `shows` is what the chain shows from then on. */
let asked: string[];
let says: Record<"authorize" | "capture" | "void", { said: Outcome; shows?: HoldState }>;

const sent: Outcome = { outcome: "sent", tx: "0xsent" };
const unknown: Outcome = { outcome: "unknown", says: "no receipt" };
const none: HoldState = { state: "none" };
const is = (state: "held" | "captured" | "voided" | "reclaimed", final = true): HoldState => ({
  ...{ state, tx: `0x${state}`, final, amountAtomic: 50_600n },
});

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "holding-"));
  log = await openEmbeddedLog(join(dir, "log"), { topics: TOPICS, partitions: 1 });
});
afterAll(async () => {
  await log.close();
  await rm(dir, { recursive: true, force: true });
});
beforeEach(() => {
  now = T0;
  shown = [none];
  asked = [];
  says = {
    authorize: { said: sent, shows: is("held") },
    capture: { said: sent, shows: is("captured") },
    void: { said: sent, shows: is("voided") },
  };
  orders = new OrderLog(log, systemClock, "one", null, { staleMs: 0 });
  const act = (what: keyof typeof says) => async () => {
    asked.push(what);
    const { said, shows } = says[what];
    if (shows) shown = [shows];
    return said;
  };
  const state = async (): Promise<AsOf<HoldState>> => {
    const seen = shown.length > 1 ? shown.shift()! : shown[0]!;
    if (seen === null) throw new ChainDown("nobody answers");
    const block = { number: 1, time: now };
    return { value: seen, head: block, final: block };
  };
  const escrow = { authorize: act("authorize"), capture: act("capture"), void: act("void"), state };
  const rail = { head: async () => ({ number: 1, time: now }) };
  const [logger, metrics] = [{ warn: () => {} }, { count: () => {} }];
  holdingAt = (confirmations) =>
    new Holding({ orders, escrow, rail, confirmations, logger, metrics, pollMs: [0, 0, 0] });
  holding = holdingAt(1);
});

/** @param time of the newest block, which no longer vanishes */
function bringAt(order: Order, time: number): Promise<void> {
  now = time;
  return holding.continueOrder(order);
}

async function claimed(): Promise<Order> {
  const account = privateKeyToAccount(generatePrivateKey());
  const place = { network: LOCAL_NETWORK, asset: LOCAL_USDC, payTo: AT, operator: AT };
  const requirements = escrowOffer(place, 50_600n, T0);
  const client = new x402Client().register("eip155:*", new AuthCaptureEvmScheme(account));
  const payment = await client.createPaymentPayload({ x402Version: 2, resource: { url: AT }, accepts: [requirements] });
  const { from, nonce, validBefore } = payment.payload.authorization as Record<
    "from" | "nonce" | "validBefore",
    string
  >;
  const authorized = { network: LOCAL_NETWORK, asset: LOCAL_USDC, from, nonce };
  return orders.claim(createOrderId(), claimKey(authorized), {
    ...{ operation: "via", scheme: "auth-capture", network: LOCAL_NETWORK, asset: LOCAL_USDC, payer: from, nonce },
    ...{
      valid_after: 0,
      valid_before: Number(validBefore),
      since_block: 0,
      payment: { ...payment },
      payment_sha256: SHA,
    },
    ...{ requirements: { ...requirements }, request_sha256: SHA, publish: false },
    quote: { price: "0.046000", fee: "0.004600", total: "0.050600" },
  });
}

/** The steps of a seller that was paid and whose answer was worth so much. */
function bought(pass: boolean): NewStep[] {
  const request = { url: "https://seller.example/", method: "GET" as const, headers: {}, body: null, sha256: SHA };
  return [
    {
      state: "seller_intent",
      ...{ leg: 0, cap: "cap_1", request, wallet: AT, pay_to: AT, price: "0.046000", network: LOCAL_NETWORK },
      ...{ asset: LOCAL_USDC, header_name: "X", signed_bytes: "x", nonce: "0x1", valid_before: T0 },
      ...{ since_block: 0, want: { class: "any", mime: null }, deadline_ms: 1 },
    },
    {
      state: "seller_result",
      ...{ leg: 0, status: 200, content_type: null, sha256: SHA, size: 0, delivered: true, latency_ms: 1 },
      ...{ checks: [], pass },
    },
    { state: "checked", leg: 0, pass, last: true, fault: pass ? null : "seller" },
  ];
}

/** An order whose money is held and whose seller was called; in `settle_intent` or `void_intent`. */
async function answered(pass: boolean): Promise<Order> {
  const order = await claimed();
  await holding.place(order);
  const next = pass ? ({ state: "settle_intent" } as const) : ({ state: "void_intent", says: "no" } as const);
  await orders.step(order, ...bought(pass), next);
  asked = [];
  return order;
}

describe("placing", () => {
  test.each<[string, (HoldState | null)[], Order["state"]]>([
    ["there at once", [is("held")], "held"],
    ["there after two looks", [none, none, is("held")], "held"],
    ["there once the chain answers", [null, is("held")], "held"],
    ["final after two looks", [is("held", false), is("held", false), is("held")], "held"],
    ["never final", [is("held", false)], "hold_unknown"],
    ["not there yet", [none], "hold_unknown"],
    ["nobody can be asked", [null], "hold_unknown"],
  ])("%s", async (_, looks, ends) => {
    says.authorize = { said: sent };
    shown = looks;
    const order = await claimed();
    expect(await holding.place(order)).toBe(ends === "held");
    expect(order.state).toBe(ends);
    expect(order.hold).toEqual(ends === "held" ? { tx: "0xheld", captureDeadline: DEADLINE } : null);
  });

  test.each<[string, Outcome, HoldState | null, Order["state"]]>([
    ["refused, and nothing was sent", { outcome: "refused", reason: "TokenCollectionFailed" }, none, "hold_failed"],
    ["refused in a block", { outcome: "refused", reason: "reverted", tx: "0x1" }, none, "hold_failed"],
    ["refused, and nobody can be asked", { outcome: "refused", reason: "x" }, null, "hold_unknown"],
    ["refused, and it is there", { outcome: "refused", reason: "PaymentAlreadyCollected" }, is("held"), "held"],
    ["lost on the way, and not there", unknown, none, "hold_unknown"],
    ["lost on the way, and there", unknown, is("held"), "held"],
  ])("%s", async (_, said, seen, ends) => {
    says.authorize = { said };
    shown = [seen];
    const order = await claimed();
    await holding.place(order);
    expect(order.state).toBe(ends);
  });

  test("refused in a block that may vanish: it may yet be placed by the same transaction", async () => {
    says.authorize = { said: { outcome: "refused", reason: "reverted", tx: "0x1" } };
    const order = await claimed();
    expect(await holdingAt(2).place(order)).toBe(false);
    expect(order.state).toBe("hold_unknown");
  });

  test("where another replica has the order already, nothing is asked of the escrow", async () => {
    const order = await claimed();
    const other = new OrderLog(log, systemClock, "two", null, { staleMs: 0 });
    await other.catchUp();
    expect(await other.adopt(other.table.get(order.id)!)).toBe(true);
    await expect(holding.place(order)).rejects.toThrow(OrderLost);
    expect(asked).toEqual([]);
    other.close();
  });
});

describe("brought on from a hold that is not known", () => {
  async function unsure(): Promise<Order> {
    says.authorize = { said: unknown };
    const order = await claimed();
    await holding.place(order);
    expect(order.state).toBe("hold_unknown");
    asked = [];
    return order;
  }

  test.each<[string, HoldState, number, Order["state"], string[]]>([
    ["it can still come: nothing is done", none, 60, "hold_unknown", []],
    ["it can come no more", none, 61, "hold_failed", []],
    ["it came: nobody waits for the seller's answer, so it is given back", is("held"), 61, "voided", ["void"]],
    ["it came, and may vanish", is("held", false), 61, "hold_unknown", []],
    ["it came and went", is("reclaimed"), 61, "hold_failed", []],
    ["it was captured by a hand of ours", is("captured"), 61, "refund_due", []],
  ])("%s", async (_, seen, afterEnd, ends, acts) => {
    const order = await unsure();
    shown = [seen];
    await bringAt(order, order.validBefore + afterEnd);
    expect([order.state, asked]).toEqual([ends, acts]);
    expect(order.charged).toEqual(ends === "refund_due" ? { tx: "0xcaptured", amount: "0.050600" } : null);
  });

  test("a chain that does not answer leaves it as it is", async () => {
    const order = await unsure();
    const { steps } = order;
    shown = [null];
    await expect(bringAt(order, GONE)).rejects.toThrow(ChainDown);
    expect(order.steps).toBe(steps);
  });
});

describe("capturing", () => {
  test("charges what the chain says", async () => {
    const order = await answered(true);
    await holding.collect(order);
    expect([order.state, order.charged]).toEqual(["settled", { tx: "0xcaptured", amount: "0.050600" }]);
  });

  test("in a block that vanishes is done again, and counts for good in one that does not", async () => {
    const order = await answered(true);
    says.capture = { said: sent, shows: is("captured", false) };
    await holding.collect(order);
    expect([order.state, order.final, isClosed(order)]).toEqual(["settled", false, false]);
    const { steps } = order;
    await bringAt(order, T0);
    expect([order.steps, asked]).toEqual([steps, ["capture"]]);
    shown = [is("held")];
    await bringAt(order, T0);
    expect([order.state, order.final, asked]).toEqual(["settled", false, ["capture", "capture"]]);
    shown = [is("captured")];
    await bringAt(order, T0);
    expect([order.state, order.final, order.charged?.tx]).toEqual(["settled", true, "0xcaptured"]);
  });

  test("is not begun within a minute of the deadline, nor after it, and then the money is the buyer's to reclaim", async () => {
    const order = await answered(true);
    now = DEADLINE - 60;
    await holding.collect(order);
    expect([order.state, asked]).toEqual(["settle_unknown", []]);
    const { steps } = order;
    for (const time of [DEADLINE - 60, DEADLINE, DEADLINE + 60]) await bringAt(order, time);
    expect([order.steps, asked]).toEqual([steps, []]);
    await bringAt(order, DEADLINE + 61);
    expect([order.state, order.charged, asked]).toEqual(["reclaimable", null, []]);
  });

  test.each<[string, HoldState, number, Order["state"], string[]]>([
    ["held, in time: again", is("held"), T0, "settled", ["capture"]],
    ["captured before", is("captured"), T0, "settled", []],
    ["captured just in time, seen after the deadline", is("captured"), DEADLINE + 100, "settled", []],
    ["taken back by its buyer", is("reclaimed"), DEADLINE + 1, "reclaimable", []],
    ["given back by a hand of ours", is("voided"), T0, "written_off", []],
    ["vanished, and may be placed again", none, T0, "settle_unknown", []],
    ["vanished for good", none, GONE, "written_off", []],
  ])("unknown, then %s", async (_, seen, time, ends, acts) => {
    const order = await answered(true);
    const { capture } = says;
    says.capture = { said: unknown };
    await holding.collect(order);
    expect(order.state).toBe("settle_unknown");
    [asked, says.capture, shown] = [[], capture, [seen]];
    await bringAt(order, time);
    expect([order.state, asked]).toEqual([ends, acts]);
  });
});

describe("giving back", () => {
  test("in a block that vanishes is done again, and counts for good in one that does not", async () => {
    const order = await answered(false);
    says.void = { said: sent, shows: is("voided", false) };
    await holding.giveBack(order);
    expect([order.state, order.final, isClosed(order)]).toEqual(["voided", false, false]);
    shown = [is("held")];
    await bringAt(order, T0);
    expect([order.state, order.final, asked]).toEqual(["voided", false, ["void", "void"]]);
    shown = [is("voided")];
    await bringAt(order, T0);
    expect([order.state, order.final]).toEqual(["voided", true]);
  });

  test.each<[string, HoldState, HoldState | null, number, Order["state"], string[]]>([
    ["held: again", is("held"), is("voided"), T0, "voided", ["void"]],
    ["held, refused again", is("held"), null, T0, "void_unknown", ["void"]],
    ["held past the deadline: tried all the same", is("held"), is("voided"), DEADLINE + 61, "voided", ["void"]],
    ["held past the deadline, refused", is("held"), null, DEADLINE + 61, "reclaimable", ["void"]],
    ["given back before", is("voided"), null, T0, "voided", []],
    ["taken back by its buyer", is("reclaimed"), null, DEADLINE + 1, "reclaimable", []],
    ["captured by a hand of ours", is("captured"), null, T0, "refund_due", []],
    ["vanished for good", none, null, GONE, "hold_failed", []],
  ])("unknown, then %s", async (_, seen, shows, time, ends, acts) => {
    const order = await answered(false);
    says.void = { said: unknown };
    await holding.giveBack(order);
    expect(order.state).toBe("void_unknown");
    [asked, shown] = [[], [seen]];
    says.void = shows ? { said: sent, shows } : { said: { outcome: "refused", reason: "x" } };
    await bringAt(order, time);
    expect([order.state, asked]).toEqual([ends, acts]);
  });
});

describe("the rules", () => {
  const refused = async (order: Order, ...steps: NewStep[]) => {
    const { state } = order;
    await expect(orders.step(order, ...steps)).rejects.toThrow(OrderLost);
    expect(order.state).toBe(state);
  };

  test("no seller is paid before the money is held", async () => {
    const order = await claimed();
    await orders.step(order, { state: "verified" });
    await refused(order, bought(true)[0]!);
    await orders.step(order, { state: "hold_intent" });
    await refused(order, bought(true)[0]!);
    await orders.step(order, { state: "hold_unknown", says: "?" });
    await refused(order, bought(true)[0]!);
  });

  test("an order of which nothing was asked of the escrow is let go, and one that is held is not", async () => {
    const order = await claimed();
    await orders.step(order, { state: "verified" });
    await orders.step(order, { state: "released", says: "We stopped before it was begun." });
    const held = await claimed();
    await holding.place(held);
    await refused(held, { state: "released", says: "no" });
  });

  test("nothing is captured that did not pass, and nothing given back that did", async () => {
    const failed = await claimed();
    await holding.place(failed);
    await refused(failed, { state: "settle_intent" });
    await orders.step(failed, ...bought(false));
    await refused(failed, { state: "settle_intent" });
    const passed = await claimed();
    await holding.place(passed);
    await orders.step(passed, ...bought(true));
    await refused(passed, { state: "void_intent", says: "no" });
  });
});
