import { expect, test, vi } from "vitest";
import { systemClock } from "../../../infra/clock.ts";
import { NoWallet } from "../../../infra/rails/rails.ts";
import { ChainDown } from "../../../infra/rails/rpc.ts";
import type { Outcome } from "../../../infra/rails/sender.ts";
import { Caps } from "../../../pipelines/orders/caps.ts";
import { claimKey } from "../../../pipelines/orders/claim.ts";
import { booksOf, findDifferences } from "../../../pipelines/orders/ledger.ts";
import { isClosed, type Order } from "../../../pipelines/orders/order.ts";
import { STALE_MS } from "../../../pipelines/orders/order-log.ts";
import { OrderTable } from "../../../pipelines/orders/order-table.ts";
import { SUM } from "../../../pipelines/orders/stakes.ts";
import { formatMoney, parseMoney } from "../../../pipelines/record/money.ts";
import { ORDER_CAPS } from "../../helpers/caps.ts";
import { ASSET, type FakeAuthorization, NETWORK, readAuth, written } from "../../helpers/fake-chain.ts";
import { type FakeReplica, FLOAT, FLOAT_HAS, OrderWorld, sellerOfKind, TILL } from "../../helpers/order-world.ts";

/** What each attack is about: docs/design/orders.md, "Bounding our losses". */
const DAY = "2026-11-23";
const PRICE = 100_000n;
const TOTAL = 110_000n;
const THIEF = sellerOfKind("thief");

const SHOPS = ["a", "b", "c", "d", "e", "f"].map((name) => `https://shop-${name}.example`);
const bought = (world: OrderWorld, payer: string, shop = SHOPS[0]!, replica = world.replicas[0]!) =>
  world.post(replica, world.pay(payer, "honest", PRICE), shop);
const tableOf = (world: OrderWorld) => world.replicas[0]!.buying.orders.table;
const floatSpent = (world: OrderWorld): bigint => FLOAT_HAS - world.chain.balance(FLOAT);

test("settlements for nothing: a drained order is charged once, until its payer's balance changes", async () => {
  const world = new OrderWorld(1);
  const [replica] = world.replicas as [FakeReplica];
  const charge = vi.spyOn(world, "charge");
  world.chain.mint("0xm", TOTAL);
  // It empties its wallet once its balance was read, before the charge.
  charge.mockImplementationOnce(async () => {
    world.chain.transfer("0xm", "0xelse", TOTAL);
    return { outcome: "refused", reason: "insufficient_funds" };
  });
  await bought(world, "0xm");
  await replica.recovery.look();
  const { length } = world.log.all();
  for (let looks = 0; looks < 20; looks++) await replica.recovery.look();
  expect([charge.mock.calls.length, world.log.all().length]).toEqual([1, length]);
  world.chain.transfer("0xelse", "0xm", TOTAL);
  await replica.recovery.look();
  expect([charge.mock.calls.length, [...tableOf(world).countByState()]]).toEqual([2, [["settled", 1]]]);
});

test("settlements for nothing: of one order three transactions are sent, however often its payer fills its wallet", async () => {
  const world = new OrderWorld(1);
  const [replica] = world.replicas as [FakeReplica];
  let sent = 0;
  world.charge = async () => ({ outcome: "refused", reason: "reverted", tx: `0x${sent++}` });
  world.chain.mint("0xm", TOTAL);
  await bought(world, "0xm");
  for (let looks = 0; looks < 20; looks++) {
    world.chain.mint("0xm", 1n);
    await replica.recovery.look();
  }
  expect(sent).toBe(3);
  await world.end();
  expect([...tableOf(world).all()].map(({ state }) => state)).toEqual(["settle_unknown"]);
  expect([...world.table().all()].map(({ state }) => state)).toEqual(["written_off"]);
});

test("a refusal that is not about the balance: the charge is sent again, and its seller's price is not lost", async () => {
  const world = new OrderWorld(1);
  const [replica] = world.replicas as [FakeReplica];
  const charge = vi.spyOn(world, "charge");
  // Two facilitators' own trouble: each answers once with a code of the protocol, and sends nothing.
  for (const reason of ["invalid_transaction_state", "invalid_network"])
    charge.mockImplementationOnce(async () => ({ outcome: "refused", reason }));
  world.chain.mint("0xb", 5n * TOTAL);
  expect((await bought(world, "0xb"))?.state).toBe("settle_unknown");
  for (let looks = 0; looks < 5; looks++) await replica.recovery.look();
  expect([charge.mock.calls.length, [...tableOf(world).countByState()]]).toEqual([3, [["settled", 1]]]);
  expect(world.chain.balance(TILL)).toBe(TOTAL);
});

test("a charge that is refused for ever is sent ever more seldom, until the payment has expired", async () => {
  const world = new OrderWorld(1);
  const [replica] = world.replicas as [FakeReplica];
  const charge = vi.spyOn(world, "charge");
  charge.mockImplementation(async () => ({ outcome: "refused", reason: "invalid_transaction_state" }));
  world.chain.mint("0xb", 5n * TOTAL);
  const order = (await bought(world, "0xb"))!;
  let elapsedMs = 0;
  // A whole number, so that sums of milliseconds are exact.
  const real = Math.ceil(systemClock.monotonic());
  const monotonic = vi.spyOn(systemClock, "monotonic").mockImplementation(() => real + elapsedMs);
  const attempts: number[] = [];
  for (; order.state !== "written_off" && elapsedMs < 600_000; elapsedMs += 1_000) {
    const { length } = charge.mock.calls;
    await replica.recovery.turn();
    if (charge.mock.calls.length > length) attempts.push(elapsedMs / 1_000);
    world.chain.pass(1);
  }
  monotonic.mockRestore();
  // After 5 s, doubled by each refusal. The payment is valid for 240 s.
  expect([attempts, order.state]).toEqual([[0, 10, 30, 70, 150], "written_off"]);
});

test("settlements for nothing: a wallet that had so many transactions wasted gets no order for the rest of the day", async () => {
  const world = new OrderWorld(1, { ...ORDER_CAPS, wastedPerPayerDay: 2n, lossPerCapDay: 10n ** 9n });
  let sent = 0;
  world.charge = async () => ({ outcome: "refused", reason: "reverted", tx: `0x${sent++}` });
  world.chain.mint("0xm", 10n * TOTAL);
  world.chain.mint("0xother", TOTAL);
  for (const shop of SHOPS) await bought(world, "0xm", shop);
  expect(sent).toBe(2);
  const { buying } = world.replicas[0]!;
  expect(buying.hasWastedTooMuch({ payer: "0xM", client: null })).toBe(true);
  expect(buying.hasWastedTooMuch({ payer: "0xother", client: null })).toBe(false);
});

/** The claim of a paid operation of our own. */
function ownClaim(world: OrderWorld, payer: string) {
  const { auth } = world.pay(payer, "honest", 20_000n);
  const of = { network: NETWORK, asset: ASSET, from: payer, nonce: auth.nonce };
  const sha = "0".repeat(64);
  return {
    key: claimKey(of),
    claim: {
      ...{ operation: "own" as const, scheme: "exact" as const, network: NETWORK, asset: ASSET, payer },
      ...{ nonce: auth.nonce, client: "net", valid_after: 0, valid_before: auth.validBefore, publish: false },
      ...{ payment: { payload: "" }, payment_sha256: sha, request_sha256: sha, requirements: { payTo: TILL } },
      quote: { price: "0.000000", fee: "0.020000", total: "0.020000" },
    },
  };
}

test("work for nothing: one balance pays for one piece of work at once, and no wallet has more than its cap", async () => {
  const world = new OrderWorld(1, { ...ORDER_CAPS, perPayer: 60_000n });
  const [{ buying }] = world.replicas as [FakeReplica];
  world.charge = async () => ({ outcome: "unknown", says: "timeout" });
  world.chain.mint("0xpoor", 20_000n);
  world.chain.mint("0xrich", 10n ** 9n);
  const worked = { "0xpoor": 0, "0xrich": 0 };
  const sold = async (payer: "0xpoor" | "0xrich") => {
    const { key, claim } = ownClaim(world, payer);
    const work = async () => {
      worked[payer] += 1;
      return { bytes: Buffer.from("{}"), contentType: "application/json" };
    };
    await buying.sell(key, claim, work).catch(() => null);
  };
  for (let n = 0; n < 5; n++) for (const payer of ["0xpoor", "0xrich"] as const) await sold(payer);
  expect(worked).toEqual({ "0xpoor": 1, "0xrich": 3 });
});

test.each([1, 3])(
  "one balance behind many orders, at %i replicas: sellers get no more than the wallets hold",
  async (n) => {
    const much = { lossPerPayeeDay: 10n ** 9n, lossPerPlatformDay: 10n ** 9n, lossPerCapDay: 10n ** 9n };
    const world = new OrderWorld(n, { ...ORDER_CAPS, ...much });
    // What can be charged is: nobody is let off, so what sellers got more than that would be our loss.
    const wallets = Array.from({ length: 8 }, (_, w) => `0xmallory${w}`);
    for (const wallet of wallets) world.chain.mint(wallet, TOTAL);
    await Promise.all(
      wallets.flatMap((wallet, w) =>
        Array.from({ length: 18 }, (_, i) =>
          bought(world, wallet, SHOPS[(w + i) % SHOPS.length], world.replicas[i % n]),
        ),
      ),
    );
    await world.end();
    expect(floatSpent(world)).toBeLessThanOrEqual(8n * PRICE);
    expect(world.chain.balance(TILL)).toBe((floatSpent(world) / PRICE) * TOTAL);
    if (n === 1) expect(floatSpent(world)).toBe(8n * PRICE);
  },
);

test("an honest burst: a wallet that holds 18 totals buys 18 calls at once", async () => {
  const world = new OrderWorld(1, { ...ORDER_CAPS, perPayer: 18n * PRICE });
  world.chain.mint("0xhonest", 18n * TOTAL);
  const all = await Promise.all(
    Array.from({ length: 18 }, (_, i) => bought(world, "0xhonest", SHOPS[i % SHOPS.length])),
  );
  expect(all.map((order) => order?.state)).toEqual(all.map(() => "settled"));
  expect(world.chain.balance(TILL)).toBe(18n * TOTAL);
});

/** A world in which wallets took what may be lost in a day: each emptied itself between its answer and the charge. */
async function drained(): Promise<OrderWorld> {
  const world = new OrderWorld(1, { ...ORDER_CAPS, lossPerDay: 3n * PRICE });
  const charge = world.charge.bind(world);
  world.charge = async (payment) => {
    const { from, value } = JSON.parse((payment as { payload: string }).payload) as { from: string; value: string };
    if (from.startsWith("0xm")) world.chain.transfer(from, "0xelse", BigInt(value));
    return charge(payment);
  };
  for (const [n, shop] of SHOPS.slice(0, 3).entries()) {
    world.chain.mint(`0xm${n}`, TOTAL);
    await bought(world, `0xm${n}`, shop);
  }
  await world.end();
  await world.replicas[0]!.buying.orders.catchUp();
  return world;
}

test("the day's loss through drained wallets closes nothing but payment after delivery of unknown wallets", async () => {
  const world = await drained();
  const table = tableOf(world);
  expect(table.sum(SUM.lostInAll(DAY))).toBe(3n * PRICE);
  world.chain.mint("0xunknown", TOTAL);
  expect(await bought(world, "0xunknown", SHOPS[4])).toBe(null);
  const caps = new Caps(table, { ...ORDER_CAPS, lossPerDay: 3n * PRICE }, () => DAY);
  const buyer = { payer: "0xunknown", client: "net", micro: PRICE, totalMicro: TOTAL };
  expect(caps.standingOfBuyer({ ...buyer, scheme: "exact" })).toEqual({
    exactOnly: true,
    says: expect.stringContaining("escrow"),
  });
  expect(caps.standingOfBuyer({ ...buyer, scheme: "auth-capture" })).toEqual({ credit: false });
  // Not one of the sellers has done anything.
  for (const url of SHOPS) {
    expect(caps.refusalOfSeller({ payTo: "0xhonest", url, cap: "cap_honest", lettered: true, micro: PRICE })).toBe(
      null,
    );
  }
});

test("a wallet that paid fees goes on when the day's loss is reached, up to what it paid, and costs nothing more", async () => {
  const caps = { ...ORDER_CAPS, lossPerDay: PRICE };
  const world = new OrderWorld(1, caps);
  world.chain.mint("0xregular", 100n * TOTAL);
  for (let n = 0; n < 12; n++) expect((await bought(world, "0xregular", SHOPS[n % 6]))?.state).toBe("settled");
  const charge = world.charge.bind(world);
  world.charge = async () => ({ outcome: "refused", reason: "drained" });
  world.chain.mint("0xm", TOTAL);
  await bought(world, "0xm", SHOPS[5]);
  world.chain.transfer("0xm", "0xelse", TOTAL);
  await world.end();
  world.chain.mint("0xunknown", TOTAL);
  world.charge = charge;
  expect(await bought(world, "0xunknown")).toBe(null);
  // 12 fees of 0.01: one call of 0.10 at a time.
  expect(await bought(world, "0xregular")).toMatchObject({ state: "settled", credit: true });
  world.charge = async () => ({ outcome: "refused", reason: "drained" });
  expect(await bought(world, "0xregular")).toMatchObject({ state: "settle_unknown", credit: true });
  expect(await bought(world, "0xregular")).toBe(null);
  world.chain.transfer("0xregular", "0xelse", world.chain.balance("0xregular"));
  await world.end();
  const table = world.table();
  expect(table.sum(SUM.fees("0xregular")) - table.sum(SUM.unpaid("0xregular"))).toBe(130_000n - PRICE);
});

test("calls at once: far more than may be lost in a day is sold at one moment", async () => {
  const world = new OrderWorld(1, ORDER_CAPS);
  const wallets = Array.from({ length: 100 }, (_, n) => `0xhonest${n}`);
  for (const wallet of wallets) world.chain.mint(wallet, TOTAL);
  let most = 0n;
  let asked = 0;
  let answer = (): void => undefined;
  const areAllAsked = new Promise<void>((resolve) => {
    answer = resolve;
  });
  const sell = world.sell.bind(world);
  world.sell = async (request) => {
    // No seller answers before all are asked.
    if (++asked === wallets.length) answer();
    await areAllAsked;
    const out = tableOf(world).sum(SUM.openInAll);
    if (out > most) most = out;
    return sell(request);
  };
  const shops = wallets.map((_, n) => `https://s${n}.example`);
  const all = await Promise.all(wallets.map((wallet, n) => bought(world, wallet, shops[n])));
  expect(all.filter((order) => order?.state === "settled")).toHaveLength(100);
  expect(most).toBeGreaterThan(ORDER_CAPS.lossPerDay);
});

test("one network with many wallets is one buyer where it leaves calls unpaid", async () => {
  const world = new OrderWorld(1, { ...ORDER_CAPS, perNetwork: 3n * PRICE });
  world.charge = async () => ({ outcome: "unknown", says: "timeout" });
  world.network = () => "net";
  for (let n = 0; n < 6; n++) {
    world.chain.mint(`0xm${n}`, TOTAL);
    await bought(world, `0xm${n}`, SHOPS[n]);
  }
  expect(floatSpent(world)).toBe(3n * PRICE);
});

test("sellers that take the money: names under a hosting platform are one seller, and those without a letter have one cap", async () => {
  const world = new OrderWorld(1, { ...ORDER_CAPS, lossPerPlatformDay: 2n * PRICE, lossPerDay: 4n * PRICE });
  const took = async (shop: string, payTo: string, lettered: boolean) => {
    const wallet = `0x${payTo}`;
    world.chain.mint(wallet, TOTAL);
    await world.post(world.replicas[0]!, world.pay(wallet, "thief", PRICE), shop, { payTo: `0x${payTo}`, lettered });
  };
  for (let n = 0; n < 5; n++) await took(`https://n${n}.vercel.app`, `tenant${n}`, true);
  expect(floatSpent(world)).toBe(2n * PRICE);
  for (let n = 0; n < 8; n++) await took(`https://fresh${n}.example`, `fresh${n}`, false);
  expect(floatSpent(world)).toBe(6n * PRICE);
  // One with a letter is bought from all the same.
  await took("https://known.example", "known", true);
  expect(floatSpent(world)).toBe(7n * PRICE);
});

/** The thief's money is back: each Transfer of the price to the float makes good one loss. */
async function sendsBack(world: OrderWorld, payTo: string): Promise<void> {
  world.chain.mint(payTo, PRICE);
  world.chain.transfer(payTo, FLOAT, PRICE);
  await world.replicas[0]!.recovery.recoverLosses();
}

test.each([
  ["one url", () => "https://known.example"],
  ["several urls", (n: number) => `https://known${n}.example`],
])("a thief with a letter names a fresh payTo in each 402 of %s of its endpoint: robbed once", async (_, shop) => {
  const world = new OrderWorld(1, ORDER_CAPS);
  const [replica] = world.replicas as [FakeReplica];
  world.chain.mint("0xm", TOTAL);
  let calls = 0;
  const steal = async () => {
    const n = calls++;
    await world.post(replica, world.pay("0xm", "thief", PRICE), shop(n), { payTo: `0xfresh${n}`, cap: "cap_known" });
    await replica.recovery.look();
  };
  for (let day = 0; day < 5; day++) {
    world.clock.set(new Date(Date.UTC(2026, 10, 23 + day, 12)));
    for (let n = 0; n < 3; n++) await steal();
  }
  expect(floatSpent(world)).toBe(PRICE);
  // What it sends back opens its endpoint again.
  await sendsBack(world, "0xfresh0");
  await steal();
  expect(floatSpent(world)).toBe(PRICE);
  expect([...tableOf(world).losses()].map(({ payTo }) => payTo)).toEqual(["0xfresh15"]);
});

test("a rival without a letter names an honest seller's payTo: that seller is bought from all the same", async () => {
  const world = new OrderWorld(1, ORDER_CAPS);
  const [replica] = world.replicas as [FakeReplica];
  for (const wallet of ["0xm", "0xh"]) world.chain.mint(wallet, 5n * TOTAL);
  const call = (kind: "thief" | "honest", shop: string, lettered: boolean) =>
    world.post(replica, world.pay(kind === "thief" ? "0xm" : "0xh", kind, PRICE), shop, {
      ...{ payTo: "0xvictim", lettered },
    });
  expect((await call("thief", "https://rival.example", false))?.legs[0]?.fate).toBe("unknown");
  expect((await call("honest", "https://victim.example", true))?.state).toBe("settled");
  await replica.recovery.look();
  expect((await call("honest", "https://victim.example", true))?.state).toBe("settled");
  // The rival's own domain is refused, and whoever else without a letter is paid at that address.
  const spent = floatSpent(world);
  expect(await call("thief", "https://rival.example", true)).toBe(null);
  expect(await call("honest", "https://unknown.example", false)).toBe(null);
  expect(floatSpent(world)).toBe(spent);
  await sendsBack(world, "0xvictim");
  expect((await call("honest", "https://unknown.example", false))?.state).toBe("settled");
});

test.each([
  ["takes the money", "thief"],
  ["keeps the signed payments", "grabs later"],
] as const)(
  "many rivals name an honest seller's payTo, and each %s: its calls are bought all the same",
  async (_, kind) => {
    const world = new OrderWorld(1, ORDER_CAPS);
    const [replica] = world.replicas as [FakeReplica];
    const rivals = Number(ORDER_CAPS.lossPerPayeeDay / PRICE);
    for (let n = 0; n < rivals; n++) {
      world.chain.mint(`0xm${n}`, TOTAL);
      await world.post(replica, world.pay(`0xm${n}`, kind, PRICE), `https://rival${n}.example`, { payTo: "0xvictim" });
    }
    const table = tableOf(world);
    const named = [SUM.lost(DAY, "payTo 0xvictim"), SUM.out("payTo 0xvictim")].map((name) => table.sum(name));
    expect(named[0]! + named[1]!).toBe(ORDER_CAPS.lossPerPayeeDay);
    world.chain.mint("0xh", 2n * TOTAL);
    const victim = (lettered: boolean) =>
      world.post(replica, world.pay("0xh", "honest", PRICE), "https://victim.example", { payTo: "0xvictim", lettered });
    expect((await victim(true))?.state).toBe("settled");
    // Without a letter nothing tells it from the rivals.
    expect(await victim(false)).toBe(null);
  },
);

test("two replicas sign one challenge of a seller: one of the two payments is sent, and the seller owes nothing", async () => {
  const world = new OrderWorld(2, ORDER_CAPS);
  const [first, second] = world.replicas as [FakeReplica, FakeReplica];
  // The nonce of a payment by mpp is the hash of the seller's challenge, which may be the same for equal requests.
  const nonce = `0x${"ab".repeat(32)}`;
  for (const { rail } of world.replicas) {
    const sign = rail.sign.bind(rail);
    rail.sign = async (...terms) => {
      const signed = await sign(...terms);
      return { ...signed, nonce, headerValue: written({ ...readAuth(signed.headerValue), nonce }) };
    };
  }
  for (const wallet of ["0xa", "0xb"]) world.chain.mint(wallet, TOTAL);
  expect((await bought(world, "0xa", SHOPS[0], first))?.state).toBe("settled");
  expect(await bought(world, "0xb", SHOPS[0], second)).toBe(null);
  for (const { recovery } of world.replicas) await recovery.look();
  await first.buying.orders.catchUp();
  const orders = [...tableOf(world).all()].map(({ payer, state, legs }) => [
    payer,
    state,
    legs.map(({ fate }) => fate),
  ]);
  expect(orders).toEqual([
    ["0xa", "settled", ["paid"]],
    ["0xb", "released", ["unpaid"]],
  ]);
  expect([[...tableOf(world).losses()], floatSpent(world)]).toEqual([[], PRICE]);
});

test("a thief under a hosting platform shuts out no other name of the platform", async () => {
  const world = new OrderWorld(1, ORDER_CAPS);
  world.chain.mint("0xm", 5n * TOTAL);
  const call = (kind: "thief" | "honest", name: string) =>
    world.post(world.replicas[0]!, world.pay("0xm", kind, PRICE), `https://${name}.vercel.app`);
  expect((await call("thief", "thief"))?.state).toBe("released");
  expect(await call("honest", "thief")).toBe(null);
  expect((await call("honest", "neighbour"))?.state).toBe("settled");
});

test.each(["cancelled", "used elsewhere"])(
  "a nonce that was %s long before the claim, which the facilitator calls valid: no seller is paid, and the order ends",
  async (how) => {
    const world = new OrderWorld(1, ORDER_CAPS);
    const [replica] = world.replicas as [FakeReplica];
    for (const wallet of ["0xm", "0xh"]) world.chain.mint(wallet, 3n * TOTAL);
    const payment = { ...world.pay("0xm", "honest", PRICE, 3_500), waved: true };
    if (how === "cancelled") world.chain.cancel(payment.auth);
    else world.chain.submit({ ...payment.auth, to: "0xelse", value: 1n });
    world.chain.pass(700);
    expect(await world.post(replica, payment, SHOPS[0])).toBe(null);
    expect(floatSpent(world)).toBe(0n);
    world.chain.pass(3_500);
    for (let looks = 0; looks < 3; looks++) await replica.recovery.look();
    const [order] = [...tableOf(world).all()] as [Order];
    expect([order.state, order.says, isClosed(order)]).toEqual(["released", expect.stringContaining("used"), true]);
    expect((await bought(world, "0xh"))?.state).toBe("settled");
  },
);

test("a nonce that is found used long before the claim only when its seller was paid: the order is written off", async () => {
  const world = new OrderWorld(1, ORDER_CAPS);
  const [replica] = world.replicas as [FakeReplica];
  world.chain.mint("0xm", 3n * TOTAL);
  const payment = { ...world.pay("0xm", "honest", PRICE, 3_500), waved: true };
  world.chain.submit({ ...payment.auth, to: "0xelse", value: 1n });
  world.chain.pass(700);
  const stateOf = vi.spyOn(replica.rail, "stateOf");
  stateOf.mockImplementationOnce(async () => ({ ...(await replica.rail.balance("0xm")), value: { state: "unused" } }));
  expect((await world.post(replica, payment, SHOPS[0]))?.state).toBe("settle_unknown");
  await replica.recovery.look();
  world.chain.pass(3_500);
  for (let looks = 0; looks < 3; looks++) await replica.recovery.look();
  const [order] = [...tableOf(world).all()] as [Order];
  expect([order.state, isClosed(order)]).toEqual(["written_off", true]);
  const table = tableOf(world);
  expect([table.sum(SUM.openInAll), table.sum(SUM.lost(DAY, "payer 0xm"))]).toEqual([0n, PRICE]);
});

test("a payment that its buyer itself sent to us before the seller was paid pays for the call", async () => {
  const world = new OrderWorld(1, ORDER_CAPS);
  world.chain.mint("0xb", 3n * TOTAL);
  const payment = { ...world.pay("0xb", "honest", PRICE), waved: true };
  world.chain.submit(payment.auth);
  expect((await world.post(world.replicas[0]!, payment, SHOPS[0]))?.state).toBe("settled");
  expect(world.chain.balance(TILL)).toBe(TOTAL);
});

/** A call of this wallet that passed, whose charge these attempts met, and that is written off in the end. */
async function uncharged(attempt: (world: OrderWorld, auth: FakeAuthorization) => Outcome) {
  const world = new OrderWorld(1, ORDER_CAPS);
  world.chain.mint("0xb", 30n * TOTAL);
  const charge = vi.spyOn(world, "charge");
  const payment = world.pay("0xb", "honest", PRICE);
  charge.mockImplementation(async () => attempt(world, payment.auth));
  expect((await world.post(world.replicas[0]!, payment, SHOPS[0]))?.state).toBe("settle_unknown");
  await world.end();
  charge.mockRestore();
  await world.replicas[0]!.buying.orders.catchUp();
  const table = tableOf(world);
  const sums = [SUM.unpaid("0xb"), SUM.lost(DAY, "payer 0xb"), SUM.lostInAll(DAY)].map((name) => table.sum(name));
  return { world, table, sums, faults: [...table.losses()].map(({ fault }) => fault) };
}

test("a charge that we could not send while the payment held is our loss, and its buyer is bought for as before", async () => {
  const says = "gas costs 90 gwei, and gas_ceiling_gwei is 50";
  const { world, table, sums, faults } = await uncharged(() => ({ outcome: "unknown", says }));
  expect([[...table.countByState()], sums, faults]).toEqual([[["written_off", 1]], [0n, 0n, PRICE], ["ours"]]);
  const [books] = booksOf(table.all());
  expect(books!.owed).toMatchObject([{ what: "loss", fault: "ours" }]);
  for (let n = 0; n < 20; n++) expect((await bought(world, "0xb", SHOPS[n % 6]))?.state).toBe("settled");
});

const drain = ({ chain }: OrderWorld) => void chain.transfer("0xb", "0xelse", chain.balance("0xb"));
const fill = ({ chain }: OrderWorld) => void chain.transfer("0xelse", "0xb", chain.balance("0xelse"));
const UNKNOWN = { outcome: "unknown", says: "the transaction failed" } satisfies Outcome;

test.each<[string, (world: OrderWorld, auth: FakeAuthorization, attempt: number) => unknown, Outcome?]>([
  ["drains its wallet, and the facilitator does not say why", drain],
  ["drains its wallet for the first attempt and fills it then", (world, _, n) => (n === 0 ? drain : fill)(world)],
  ["cancels", ({ chain }, auth) => chain.cancel(auth)],
  ["spends the nonce elsewhere", ({ chain }, auth) => chain.submit({ ...auth, to: "0xelse", value: 1n })],
  ["signs for a wallet whose code refuses now", () => {}, { outcome: "refused", reason: "invalid_signature" }],
  ["lets a transaction revert", () => {}, { ...UNKNOWN, tx: "0x1" }],
])("a buyer that %s has caused the loss itself", async (_what, act, outcome = UNKNOWN) => {
  let attempts = 0;
  const { sums, faults } = await uncharged((world, auth) => {
    act(world, auth, attempts++);
    return outcome;
  });
  expect([sums, faults]).toEqual([[PRICE, PRICE, PRICE], ["buyer"]]);
});

test("holds for nothing: while we could not pay the seller, no money is put into escrow", async () => {
  const world = new OrderWorld(1, ORDER_CAPS);
  const [replica] = world.replicas as [FakeReplica];
  world.chain.mint("0xb", 2n * TOTAL);
  const place = vi.fn(async () => false);
  replica.holding.place = place;
  const float = vi.spyOn(world, "float");
  const call = () => world.post(replica, { ...world.pay("0xb", "honest", PRICE), escrow: true }, SHOPS[0]);
  float.mockRejectedValueOnce(new NoWallet("the float is empty"));
  const order = await call();
  expect(order).toMatchObject({ state: "rejected", says: expect.stringContaining("enough money"), gas: [] });
  expect([place.mock.calls.length, isClosed(order!)]).toEqual([0, true]);
  // Nothing is set aside for a hold that may never be placed.
  await call();
  expect(place).toHaveBeenCalledTimes(1);
  expect(float.mock.calls.map(([need]) => need?.onlyAsked)).toEqual([true, true]);
});

/** A wallet buys one call each of so many honest sellers with a letter, which answer its input with a paid error. */
async function poisoned(world: OrderWorld, wallet: string, sellers: number, name = "s"): Promise<void> {
  world.chain.mint(wallet, TOTAL);
  for (let n = 0; n < sellers; n++)
    await world.post(world.replicas[0]!, world.pay(wallet, "thief", PRICE), `https://${name}${n}.example`);
}

test("one wallet makes sellers with a letter fail: at most what may be lost through one buyer in a day, and it owes nothing", async () => {
  const world = new OrderWorld(1, ORDER_CAPS);
  const [{ buying }] = world.replicas as [FakeReplica];
  await poisoned(world, "0xm", 60);
  expect(floatSpent(world)).toBe(ORDER_CAPS.perPayer);
  const table = tableOf(world);
  const sums = [SUM.failed(DAY, "payer 0xm"), SUM.unpaid("0xm"), SUM.lost(DAY, "payer 0xm"), SUM.lostInAll(DAY)];
  expect(sums.map((name) => table.sum(name))).toEqual([ORDER_CAPS.perPayer, 0n, 0n, 0n]);
  // By neither scheme, and whoever else is bought for as before; as is its own work.
  const seller = { payTo: "0xh", url: SHOPS[0]!, cap: "cap_h", lettered: true, micro: PRICE };
  const refusalOf = (payer: string, more: object = {}) =>
    buying.findRefusal(seller, {
      payer,
      client: `net of ${payer}`,
      scheme: "exact",
      micro: PRICE,
      totalMicro: TOTAL,
      ...more,
    });
  const refused = { says: expect.stringContaining("Nothing is owed"), exactOnly: false };
  expect([refusalOf("0xm"), refusalOf("0xm", { scheme: "auth-capture" })]).toEqual([refused, refused]);
  expect([refusalOf("0xm", { own: true }), refusalOf("0xother")]).toEqual([null, null]);
  // Many wallets of one network are one buyer.
  world.network = () => "net";
  for (let n = 0; n < 4; n++) await poisoned(world, `0xn${n}`, 60, `n${n}-`);
  expect(floatSpent(world)).toBe(ORDER_CAPS.perPayer + ORDER_CAPS.perNetwork);
  // The money comes back, and its buyer with it.
  await replicaKnowsFates(world);
  await sendsBack(world, "0xthief of https://s0.example");
  expect(refusalOf("0xm")).toBe(null);
});

/** What sellers took is seen on the chain. */
const replicaKnowsFates = (world: OrderWorld) => world.replicas[0]!.recovery.look();

test("any number of wallets make sellers with a letter fail: from four times the day's loss on only credit is served", async () => {
  const world = new OrderWorld(1, { ...ORDER_CAPS, lossPerDay: PRICE });
  world.chain.mint("0xregular", 100n * TOTAL);
  for (let n = 0; n < 12; n++) expect((await bought(world, "0xregular", SHOPS[n % 6]))?.state).toBe("settled");
  const before = floatSpent(world);
  for (let n = 0; n < 20; n++) await poisoned(world, `0xm${n}`, 1, `w${n}-`);
  expect(floatSpent(world) - before).toBe(4n * PRICE);
  const caps = new Caps(tableOf(world), { ...ORDER_CAPS, lossPerDay: PRICE }, () => DAY);
  const unknown = { payer: "0xunknown", client: "net", micro: PRICE, totalMicro: TOTAL };
  const refused = { says: expect.stringContaining("fees cover"), exactOnly: false };
  for (const scheme of ["exact", "auth-capture"] as const) {
    expect(caps.standingOfBuyer({ ...unknown, scheme })).toEqual(refused);
    expect(caps.standingOfBuyer({ ...unknown, scheme, own: true })).toEqual({ credit: false });
    expect(caps.standingOfBuyer({ ...unknown, scheme, payer: "0xregular" })).toEqual({ credit: true });
  }
  // 12 fees of 0.01: what fails on credit uses it up.
  await world.post(world.replicas[0]!, world.pay("0xregular", "thief", PRICE), "https://x0.example");
  await world.post(world.replicas[0]!, world.pay("0xregular", "thief", PRICE), "https://x1.example");
  expect(floatSpent(world) - before).toBe(5n * PRICE);
  expect(await bought(world, "0xregular")).toBe(null);
});

test("dust: a call below the smallest price is not bought, and bytes of calls that nobody paid for have a bound", async () => {
  const world = new OrderWorld(1, { ...ORDER_CAPS, bytesPerPayerDay: 20_000n });
  const [replica] = world.replicas as [FakeReplica];
  world.chain.mint("0xm", 10n ** 9n);
  await world.post(replica, world.pay("0xm", "honest", 99n));
  expect([...tableOf(world).all()]).toEqual([]);
  for (let n = 0; n < 40; n++) {
    await world.post(replica, world.pay("0xm", "garbage", 100n), `https://s${n}.example`);
  }
  const kept = tableOf(world).sum(SUM.bytes(DAY, "payer 0xm"));
  expect(kept).toBeGreaterThan(20_000n);
  expect(kept).toBeLessThan(30_000n);
});

test("losses ever made: those that no seller sends back are never looked for, others a few at a time, from where it stood", async () => {
  const world = new OrderWorld(1);
  const [replica] = world.replicas as [FakeReplica];
  world.charge = async () => ({ outcome: "refused", reason: "drained" });
  for (let n = 0; n < 30; n++) {
    world.chain.mint(`0xm${n}`, 2n * TOTAL);
    await world.post(replica, world.pay(`0xm${n}`, "honest", PRICE), `https://s${n}.example`);
    await world.post(replica, world.pay(`0xm${n}`, "thief", PRICE), `https://t${n}.example`);
    world.chain.transfer(`0xm${n}`, "0xelse", 2n * TOTAL);
  }
  await world.end();
  await replica.buying.orders.catchUp();
  expect([...tableOf(world).losses()].map(({ fault }) => fault).sort()).toEqual([
    ...Array(30).fill("buyer"),
    ...Array(30).fill("seller"),
  ]);
  const asked = vi.spyOn(replica.rail, "transfers");
  const payees = () => asked.mock.calls.splice(0).map(([query]) => query);
  await replica.recovery.recoverLosses();
  const first = payees();
  expect([first.length, first.every(({ from }) => from.startsWith("0xthief"))]).toEqual([20, true]);
  await replica.recovery.recoverLosses();
  const second = payees();
  expect(new Set([...first, ...second].map(({ from }) => from)).size).toBe(30);
  world.chain.pass(10_000);
  world.chain.transfer(first[0]!.from, FLOAT, PRICE);
  await replica.recovery.recoverLosses();
  await replica.recovery.recoverLosses();
  expect(payees().every(({ sinceBlock }) => sinceBlock > first[0]!.sinceBlock)).toBe(true);
  expect([...tableOf(world).losses()].filter(({ fault }) => fault === "seller")).toHaveLength(29);
});

test("a node that is down for one order keeps no other from being brought on, and the turn goes on where it stood", async () => {
  const world = new OrderWorld(1);
  const [replica] = world.replicas as [FakeReplica];
  world.charge = async () => ({ outcome: "unknown", says: "timeout" });
  for (let n = 0; n < 3; n++) {
    world.chain.mint(`0xb${n}`, TOTAL);
    await bought(world, `0xb${n}`, SHOPS[n]);
  }
  const settlementOf = replica.rail.settlementOf.bind(replica.rail);
  let failed = 0;
  replica.rail.settlementOf = async (query) => {
    if (query.from === "0xb0") {
      failed += 1;
      throw new ChainDown("down");
    }
    return settlementOf(query);
  };
  const orders = [...tableOf(world).all()];
  world.charge = world.chargeAtChain;
  await replica.recovery.turn();
  expect(orders.map(({ state }) => state)).toEqual(["settle_unknown", "settled", "settled"]);
  // It has a longer pause than the others now: no turn is spent on it.
  for (let turns = 0; turns < 5; turns++) await replica.recovery.turn();
  expect(failed).toBe(1);
});

test("a clock that is minutes ahead: a replica with it takes over no order that is being served", async () => {
  const world = new OrderWorld(2);
  const [serving, ahead] = world.replicas as [FakeReplica, FakeReplica];
  ahead.aheadMs = STALE_MS + 60_000;
  world.chain.mint("0xb", TOTAL);
  // It stands still before the seller is paid, and goes on.
  serving.haltIn = 6;
  const run = bought(world, "0xb");
  await world.chain.turn();
  for (let looks = 0; looks < 5; looks++) await ahead.recovery.look();
  const [order] = [...ahead.buying.orders.table.all()] as [Order];
  expect([order.by, isClosed(order)]).toEqual([serving.name, false]);
  // One record of its own told it how wrong its clock is, and nothing was taken over.
  expect(world.stepsOf("stamped")).toHaveLength(1);
  expect(world.stepsOf("adopted")).toEqual([]);
  serving.wake();
  expect((await run)?.state).toBe("settled");
  expect(parseMoney(formatMoney(world.chain.balance(TILL)))).toBe(TOTAL);
});

test("refunds that a buyer provokes again and again count as transactions for nothing", async () => {
  const world = new OrderWorld(1, { ...ORDER_CAPS, wastedPerPayerDay: 2n, lossPerCapDay: 10n ** 9n });
  const [replica] = world.replicas as [FakeReplica];
  world.chain.mint("0xm", 10n * TOTAL);
  for (const shop of SHOPS) {
    const payment = world.pay("0xm", "garbage", PRICE);
    await world.post(replica, payment, shop);
    // An answer that did not pass; and its buyer submits the payment itself.
    world.chain.submit(payment.auth);
    world.chain.pass(400);
    for (let looks = 0; looks < 3; looks++) await replica.recovery.look();
  }
  expect([...tableOf(world).countByState()]).toEqual([["refunded", 2]]);
});

test("a refund waits for a till that was emptied, without another record, and is sent once it holds enough", async () => {
  const world = new OrderWorld(1);
  const [replica] = world.replicas as [FakeReplica];
  world.chain.mint("0xb", TOTAL);
  const payment = world.pay("0xb", "garbage", PRICE);
  const order = (await world.post(replica, payment))!;
  world.chain.submit(payment.auth);
  world.chain.transfer(TILL, "0xcold", TOTAL);
  for (let hours = 0; hours < 10; hours++) {
    world.chain.pass(3_600);
    for (let looks = 0; looks < 2; looks++) await replica.recovery.look();
  }
  expect([order.state, world.stepsOf("refund_intent").length]).toEqual(["refund_due", 0]);
  world.chain.transfer("0xcold", TILL, TOTAL);
  for (let looks = 0; looks < 2; looks++) await replica.recovery.look();
  expect([order.state, world.chain.balance("0xb")]).toEqual(["refunded", TOTAL]);
});

test("a thief owes its loss while the buyer's refund is open too, and may send it back then", async () => {
  const world = new OrderWorld(1);
  const [replica] = world.replicas as [FakeReplica];
  world.chain.mint("0xb", 10n * TOTAL);
  const payment = world.pay("0xb", "thief", PRICE);
  const order = (await world.post(replica, payment))!;
  await replica.recovery.look();
  const table = tableOf(world);
  const caps = new Caps(table, { ...ORDER_CAPS, lossPerDay: PRICE }, () => DAY);
  const seen = () => ({
    state: order.state,
    owes: table.isOwedBy(THIEF),
    lost: table.sum(SUM.lost(DAY, "payTo 0xthief")),
    losses: [...table.losses()].map(({ fault }) => fault),
    isRefused: caps.refusalOfSeller({ ...order.legs[0]!, micro: PRICE }) !== null,
  });
  const owing = { owes: true, lost: PRICE, losses: ["seller"], isRefused: true };
  expect(seen()).toEqual({ state: "released", ...owing });
  // The buyer submits its payment itself, and our refund of it does not come through.
  world.payBack = async () => ({ outcome: "unknown", says: "timeout" });
  world.chain.submit(payment.auth);
  world.chain.pass(301);
  await replica.recovery.look();
  expect(seen()).toEqual({ state: "refund_due", ...owing });
  await replica.recovery.look();
  expect(seen()).toEqual({ state: "refund_intent", ...owing });
  expect(booksOf(table.all())[0]!.owed.map(({ what, who }) => `${what} ${who}`)).toEqual([
    "refund 0xb",
    "loss 0xthief",
  ]);
  world.chain.transfer("0xthief", FLOAT, PRICE);
  await replica.recovery.recoverLosses();
  expect(seen()).toMatchObject({ state: "refund_intent", owes: false, lost: 0n, losses: [], isRefused: false });
});

test("losses sent back in one transaction: each Transfer of it makes good one loss, and the books agree", async () => {
  const world = new OrderWorld(1);
  const [replica] = world.replicas as [FakeReplica];
  world.chain.mint("0xb", 10n * TOTAL);
  const prices = [PRICE, PRICE, PRICE / 2n, PRICE];
  const stolen = await Promise.all(prices.map((price) => world.post(replica, world.pay("0xb", "thief", price))));
  await replica.recovery.look();
  expect(stolen.map((order) => order!.legs[0]!.fate)).toEqual(Array(4).fill("paid"));
  // One transaction of a wallet that sends several at once: two losses of one price, and a smaller one.
  for (const price of [PRICE, PRICE, PRICE / 2n]) world.chain.transfer("0xthief", FLOAT, price);
  const sent = world.chain.moved.slice(-3);
  for (const one of sent) one.tx = sent[0]!.tx;
  for (let rounds = 0; rounds < 4; rounds++) await replica.recovery.recoverLosses();
  const recovered = () => stolen.map((order) => order!.legs[0]!.recoveredAmount);
  expect(recovered().filter((amount) => amount === "0.100000")).toHaveLength(2);
  expect([recovered()[2], recovered().filter((amount) => amount === null).length]).toEqual(["0.050000", 1]);
  const [books] = booksOf(tableOf(world).all());
  expect(await findDifferences(books!.movements, world.chain.rail())).toEqual([]);
  expect(FLOAT_HAS + books!.accounts.get("float")!).toBe(world.chain.balance(FLOAT));
  // The last loss is still owed, and no Transfer that was counted makes it good.
  expect(tableOf(world).isOwedBy(THIEF)).toBe(true);
  world.chain.transfer("0xthief", FLOAT, PRICE);
  await replica.recovery.recoverLosses();
  expect(tableOf(world).isOwedBy(THIEF)).toBe(false);
});

test.each([
  ["our uplink is down", false, "ours"],
  ["our uplink is up", true, "seller"],
] as const)("a seller settles, and its answer comes to nobody; %s", async (_, isOnline, fault) => {
  const world = new OrderWorld(1);
  const [replica] = world.replicas as [FakeReplica];
  world.chain.mint("0xb", 10n * TOTAL);
  const sell = world.sell.bind(world);
  world.sell = async (request) => {
    await sell(request);
    world.isOnline = isOnline;
    return { outcome: "transport", says: "reset", totalMs: 5, sent: true };
  };
  const order = (await bought(world, "0xb"))!;
  expect(order).toMatchObject({ state: "released", legs: [{ checked: { pass: false, fault } }] });
  await replica.recovery.look();
  const { payTo, fate } = order.legs[0]!;
  const lost = [`payTo ${payTo}`, "payer 0xb"].map((who) => tableOf(world).sum(SUM.lost(DAY, who)));
  expect([fate, [...tableOf(world).losses()].map((one) => one.fault), ...lost]).toEqual([
    ...["paid", [fault]],
    ...(fault === "ours" ? [0n, 0n] : [PRICE, 0n]),
  ]);
  expect(tableOf(world).sum(SUM.lostInAll(DAY))).toBe(fault === "ours" ? PRICE : 0n);
  // Our outage is over: an honest seller is bought from again at once.
  Object.assign(world, { sell, isOnline: true });
  expect((await bought(world, "0xb"))?.state ?? null).toBe(fault === "ours" ? "settled" : null);
});

test("orders of another network are left as they are, in no sum, until calls are sold for its money again", async () => {
  const world = new OrderWorld(1, { ...ORDER_CAPS, lossPerDay: 10n * PRICE });
  const [before] = world.replicas as [FakeReplica];
  world.chain.mint("0xb", 10n * TOTAL);
  expect((await bought(world, "0xb"))?.state).toBe("settled");
  // A refund that is due, a charge that is not known yet, and a loss that its seller sends back later.
  const stolen = world.pay("0xb", "thief", PRICE);
  await world.post(before, stolen);
  world.tillFault = "settles and says nothing";
  before.rail.settlementOf = async () => Promise.reject(new ChainDown("down"));
  await bought(world, "0xb", SHOPS[1]);
  world.chain.submit(stolen.auth);
  world.chain.pass(700);
  world.chain.transfer("0xthief", FLOAT, PRICE);
  const states = () => [...world.table().all()].map(({ state, legs }) => [state, legs[0]!.fate]).sort();
  const left = states();
  expect(left.map(([state]) => state)).toEqual(["released", "settle_unknown", "settled"]);

  // Calls are sold on another chain now, where nothing of this has happened.
  world.sold = { network: "eip155:8453", asset: ASSET };
  const warn = vi.fn();
  world.logger = { warn, error() {} };
  world.log.now += STALE_MS;
  const payBack = vi.spyOn(world, "payBack");
  const { length } = world.log.all();
  const other = world.replica();
  const asked = [vi.spyOn(other.rail, "settlementOf"), vi.spyOn(other.rail, "transfers")];
  for (let looks = 0; looks < 3; looks++) await other.recovery.look();
  await other.recovery.recoverLosses();
  expect([world.log.all().length, payBack.mock.calls, ...asked.map((one) => one.mock.calls)]).toEqual([
    ...[length, [], [], []],
  ]);
  expect(states()).toEqual(left);
  expect(warn.mock.calls).toEqual([[{ orders: 3 }, expect.stringContaining("sell.network")]]);
  const { table } = other.buying.orders;
  const names = [SUM.fees("0xb"), SUM.due("0xb"), SUM.openInAll, SUM.lost(DAY, "payTo 0xthief")];
  expect(names.map((name) => table.sum(name))).toEqual([0n, 0n, 0n, 0n]);
  expect([table.isOwedBy(THIEF), tableOf(world).isOwedBy(THIEF)]).toEqual([false, true]);
  expect(names.every((name) => tableOf(world).sum(name) > 0n)).toBe(true);

  // What the other process kept of them is whole.
  const restored = new OrderTable(undefined, { network: NETWORK, asset: ASSET.toUpperCase().replace("0X", "0x") });
  for (const value of [...table.kept()]) restored.restore(structuredClone(value));
  expect([restored.open().length, restored.countLeftOut(), [...restored.owedBySellers()].length]).toEqual([3, 0, 1]);
  world.sold = { network: NETWORK, asset: ASSET };
  const ended = await world.end();
  world.log.now += STALE_MS;
  await world.replica().recovery.recoverLosses();
  expect([[...ended.countByState()].sort(), world.table().isOwedBy(THIEF)]).toEqual([
    ...[
      [
        ["refunded", 1],
        ["settled", 2],
      ],
      false,
    ],
  ]);
});
