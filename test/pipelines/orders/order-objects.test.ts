import { describe, expect, test } from "vitest";
import { sha256hex } from "../../../infra/canonical.ts";
import type { EgressResult } from "../../../infra/egress/egress.ts";
import type { Order } from "../../../pipelines/orders/order.ts";
import { STALE_MS } from "../../../pipelines/orders/order-log.ts";
import { answerOf, OrderObjects, objectKey, parseObjectKey } from "../../../pipelines/orders/order-objects.ts";
import { neededBy, ObjectSweep } from "../../../pipelines/orders/order-objects-sweep.ts";
import { FLOAT, FLOAT_HAS, OrderWorld, sellerOfKind } from "../../helpers/order-world.ts";
import { MemoryStore } from "../mirror/memory-store.ts";

const MIB = 1024 * 1024;
const BODY = Buffer.from('{"a":20,"b":22}');
const HONEST = Buffer.from('{"sum":42}');
const big = Buffer.from(`{"sum":"${"x".repeat(MIB - 20)}"}`);

/** Sellers answer these bytes instead of their own, where they answer at all. */
function answering(world: OrderWorld, body: Buffer): void {
  const sell = world.sell.bind(world);
  world.sell = async (request) => {
    const came = await sell(request);
    return came.outcome === "answered" ? ({ ...came, body } as EgressResult) : came;
  };
}

const inLog = (world: OrderWorld): number => world.log.all().reduce((sum, { value }) => sum + value.byteLength, 0);
const keysOf = (world: OrderWorld): string[] => [...world.store.objects.keys()].sort();
const keyOf = ({ id, createdAt }: Order, kind: "request" | "answer", leg = 0): string =>
  objectKey({ day: createdAt.slice(0, 10), order: id, leg, kind });

/** A world in which a buyer has the money for so many calls. */
function rich(replicas = 1): OrderWorld {
  const world = new OrderWorld(replicas);
  world.chain.mint("0xbuyer", 1_000_000n);
  return world;
}

/** An order of an honest seller, charged. */
async function bought(world: OrderWorld, body?: Uint8Array): Promise<Order> {
  const order = await world.post(world.replicas[0]!, { ...world.pay("0xbuyer", "honest"), ...(body ? { body } : {}) });
  expect(order?.state).toBe("settled");
  return order!;
}

describe("bytes on the disk", () => {
  test("one order of one micro-unit with an answer of 1 MiB, never charged: below 10 kB, and then no object", async () => {
    const world = new OrderWorld(1);
    answering(world, big);
    world.charge = async () => ({ outcome: "refused", reason: "drained" });
    world.chain.mint("0xm", 2_001n);
    const order = await world.post(world.replicas[0]!, world.pay("0xm", "honest", 1n));
    expect(order?.state).toBe("settle_unknown");
    expect(inLog(world)).toBeLessThan(10_000);
    expect([...world.store.objects.values()].map(({ size }) => size)).toEqual([big.length]);
    await world.end();
    await world.replicas[0]!.sweep.sweepSome();
    expect(keysOf(world)).toEqual([]);
  });

  test("body and answer stand in no record, and each object before the step that names it", async () => {
    const world = rich();
    const named: boolean[] = [];
    const { append } = world.log;
    world.log.append = async (records, fault) => {
      for (const { value } of records) {
        const { state, request } = JSON.parse(Buffer.from(value).toString()).body;
        if (state === "seller_intent")
          named.push(request.body_sha256 === sha256hex(BODY), world.store.objects.size === 1);
        if (state === "seller_result") named.push(world.store.objects.size === 2);
      }
      return append(records, fault);
    };
    // The seller asks for the same append that a replica was made with.
    world.replicas = [world.replica()];
    const order = await bought(world, BODY);
    expect(named).toEqual([true, true, true]);
    expect(keysOf(world)).toEqual([keyOf(order, "answer"), keyOf(order, "request")]);
    const text = world.log.all().map(({ value }) => Buffer.from(value).toString());
    for (const bytes of [BODY, HONEST])
      expect(text.filter((one) => one.includes(bytes.toString("base64")) || one.includes('\\"sum\\"'))).toEqual([]);
  });
});

describe("killed at any moment", () => {
  test("what was charged is given again, everything else goes, and nobody is paid for a body that is not kept", async () => {
    const ends = new Set<string>();
    for (let at = 1; ; at++) {
      const world = rich(2);
      const [first, second] = world.replicas;
      first!.haltIn = at;
      const payment = { ...world.pay("0xbuyer", "honest"), body: BODY };
      const sell = world.sell.bind(world);
      let unkept = 0;
      let isOver = false;
      world.sell = async (request) => {
        // Who sleeps through the end of its order pays with what the sweep has taken: it was kept when that was signed.
        unkept += isOver || keysOf(world).some((key) => key.endsWith(".request")) ? 0 : 1;
        return sell(request);
      };
      let isWhole = false;
      const told = world.post(first!, payment).then(() => {
        isWhole = first!.haltIn !== null;
      });
      while (!isWhole && first!.haltIn !== null) await new Promise(setImmediate);
      world.log.now += STALE_MS;
      if (!isWhole) await second!.recovery.look();
      await world.end();
      isOver = true;
      first!.wake();
      await told;
      const table = await world.end();
      const [order] = [...table.all()];
      await second!.sweep.sweepSome();
      if (order) ends.add(order.state);
      const charged = order?.state === "settled";
      expect(keysOf(world), `at ${at}`).toEqual(charged ? [keyOf(order, "answer")] : []);
      if (charged) expect(await answerOf(second!.buying.objects, order)).toEqual(HONEST);
      expect([unkept, world.unannounced]).toEqual([0, []]);
      if (isWhole) break;
    }
    expect(ends).toEqual(new Set(["rejected", "released", "settled"]));
  });
});

describe("a store that fails", () => {
  test("before the seller is paid: nobody is paid, nothing is charged", async () => {
    const world = rich();
    world.replicas[0]!.storeFault = { in: 0, many: 9, writes: false };
    const payment = { ...world.pay("0xbuyer", "honest"), body: BODY };
    expect(await world.post(world.replicas[0]!, payment)).toBeNull();
    const [order] = [...(await world.end()).all()];
    expect(order).toMatchObject({ state: "rejected", legs: [] });
    expect([world.chain.balance(FLOAT), world.chain.balance("0xbuyer")]).toEqual([FLOAT_HAS, 1_000_000n]);
  });

  test.each([
    ["does not write once", { in: 1, many: 1, writes: false }],
    ["writes once and does not say so", { in: 1, many: 1, writes: true }],
  ])("after the seller was paid, %s: the answer is written again, and charged", async (_, fault) => {
    const world = rich();
    world.replicas[0]!.storeFault = fault;
    const order = await bought(world, BODY);
    expect(await answerOf(world.replicas[0]!.buying.objects, order)).toEqual(HONEST);
  });

  test("after the seller was paid, and stays down: our own loss, not the seller's, and nothing is charged", async () => {
    const world = rich();
    const [replica] = world.replicas;
    replica!.storeFault = { in: 0, many: 9, writes: false };
    const order = (await world.post(replica!, world.pay("0xbuyer", "honest")))!;
    expect(order).toMatchObject({ state: "released", says: expect.stringContaining("could not be kept") });
    await world.end();
    await replica!.buying.orders.catchUp();
    const { table } = replica!.buying.orders;
    expect([...table.losses()]).toMatchObject([{ fault: "ours", micro: 10_000n }]);
    expect([table.isOwedBy(sellerOfKind("honest")), world.chain.balance("0xbuyer")]).toEqual([false, 1_000_000n]);
  });

  test("an object of the same name with other bytes, of a leg that never was: replaced", async () => {
    const world = rich();
    const [replica] = world.replicas;
    const { objects } = replica!.buying;
    const order = await bought(world);
    await objects.put(order, 1, "answer", Buffer.from("torn"));
    await objects.put(order, 1, "answer", HONEST);
    expect(Buffer.from(world.store.objects.get(keyOf(order, "answer", 1))!.bytes)).toEqual(HONEST);
  });

  test.each([
    ["gone", null],
    ["cut", Buffer.from('{"sum"')],
    ["longer", Buffer.from('{"sum":42} ')],
    ["of the same length", Buffer.from('{"sum":43}')],
  ])("an answer that is %s is given to nobody", async (_, bytes) => {
    const world = rich();
    const order = await bought(world);
    const key = keyOf(order, "answer");
    const { etag } = world.store.objects.get(key)!;
    if (bytes) await world.store.swap(key, bytes, etag);
    else await world.store.delete(key);
    expect(await answerOf(world.replicas[0]!.buying.objects, order)).toBeNull();
  });
});

test("a retry at another replica gets the same bytes", async () => {
  const world = rich(2);
  answering(world, big);
  const payment = world.pay("0xbuyer", "honest");
  const [first, second] = world.replicas;
  const one = (await world.post(first!, payment))!;
  const other = (await world.post(second!, payment))!;
  expect([other.id, other.state]).toEqual([one.id, "settled"]);
  expect((await answerOf(second!.buying.objects, other))?.equals(big)).toBe(true);
});

test("what was written is counted by its kind, what could not be too, and no bytes are no object", async () => {
  const counted: [string, string, number][] = [];
  const metrics = {
    count: (name: string, labels: Record<string, string> = {}, by = 1) =>
      void counted.push([name.slice("touchstone_orders_objects_".length), labels.kind!, by]),
  };
  const store = new MemoryStore();
  const objects = new OrderObjects(store, metrics, []);
  const order = { id: `ord_${"0".repeat(26)}`, createdAt: "2026-11-23T12:00:00.000Z" } as Order;
  await objects.put(order, 0, "request", BODY);
  expect(await objects.putAnswer(order, 0, HONEST)).toBe(true);
  expect(await objects.putAnswer(order, 1, Buffer.alloc(0))).toBe(true);
  store.create = async () => {
    throw new Error("down");
  };
  expect(await objects.putAnswer(order, 2, HONEST)).toBe(false);
  expect(counted).toEqual([
    ["written_bytes_total", "request", BODY.length],
    ["written_bytes_total", "answer", HONEST.length],
    ["failed_total", "answer", 1],
  ]);
  expect(store.objects.size).toBe(2);
});

describe("what is needed, and by whom", () => {
  const leg = (more: object = {}) => ({
    leg: 0,
    fate: "paid",
    result: {},
    checked: { pass: true, fault: null },
    ...more,
  });
  const order = (state: Order["state"], more: object = {}, ofLeg: object = {}): Order =>
    ({
      state,
      scheme: "exact",
      final: true,
      recorded: false,
      expired: false,
      own: null,
      legs: [leg(ofLeg)],
      ...more,
    }) as unknown as Order;
  const failed = { checked: { pass: false, fault: "seller" } };
  const lost = { result: null, checked: { pass: false, fault: "ours" } };
  test.each<[string, Order, "order" | "buyer" | null, "order" | "buyer" | null]>([
    ["the seller is being called", order("seller_intent", {}, { result: null, checked: null }), "order", "order"],
    ["passed, being charged", order("settle_intent"), "order", "order"],
    ["charged in a block that may vanish", order("settled", { final: false }), "order", "order"],
    ["charged, its call not on record yet", order("settled"), "order", "order"],
    ["charged, the chain not sure of the seller's money", order("settled", {}, { fate: "unknown" }), "order", "order"],
    ["charged and on record", order("settled", { recorded: true }), null, "buyer"],
    ["charged, the seller never took its money", order("settled", {}, { fate: "unpaid" }), null, "buyer"],
    ["passed, and the payment may still be found", order("written_off"), "order", "order"],
    ["passed, and the payment can be used no more", order("written_off", { expired: true }), null, null],
    ["failed, its call not on record yet", order("released", {}, failed), "order", "order"],
    ["failed, the chain not sure", order("released", {}, { ...failed, fate: "unknown" }), "order", "order"],
    ["failed and on record", order("released", { recorded: true }, failed), null, null],
    ["failed, the seller did not take it", order("released", {}, { ...failed, fate: "unpaid" }), null, null],
    ["lost by us", order("released", {}, lost), null, null],
    [
      "given back in a block that may vanish",
      order("voided", { final: false }, { ...failed, fate: "unpaid" }),
      "order",
      "order",
    ],
    ["being sent back to its buyer", order("refund_due", { recorded: true }, failed), "order", "order"],
    ["sent back, its call not on record yet", order("refunded", {}, failed), "order", "order"],
    ["nothing was bought", order("rejected", { legs: [] }), null, null],
  ])("%s", (_, of, request, answer) => {
    expect([neededBy(of, 0, "request"), neededBy(of, 0, "answer")]).toEqual([request, answer]);
  });

  test("of several legs only the last, and of one that never was nothing once the order has ended", () => {
    const legs = [leg(failed), leg({ leg: 1 })];
    const of = (state: Order["state"], recorded: boolean) => order(state, { legs, recorded });
    const each = (of: Order) => [0, 1, 2].map((n) => neededBy(of, n, "answer"));
    expect(each(of("settle_intent", false))).toEqual([null, "order", "order"]);
    expect(each(of("settled", true))).toEqual([null, "buyer", null]);
    const own = { own: { result: {} }, legs: [] };
    expect(each(order("settled", own))).toEqual(["buyer", null, null]);
    expect(each(order("worked", own))).toEqual(["order", "order", "order"]);
  });
});

describe("the sweep", () => {
  const quiet = { logger: { warn() {} } };

  test("a charged answer goes once its days are over, and its buyer is told what it was", async () => {
    const world = rich();
    const [replica] = world.replicas;
    const order = await bought(world);
    await world.end();
    world.clock.set("2026-12-23T23:59:00.000Z");
    await replica!.sweep.sweepSome();
    expect(await answerOf(replica!.buying.objects, order)).toEqual(HONEST);
    world.clock.set("2026-12-24T00:01:00.000Z");
    await replica!.sweep.sweepSome();
    expect(await answerOf(replica!.buying.objects, order)).toBeNull();
  });

  test("past the bound the oldest charged answers go first, never what an open order needs; two at once take no more", async () => {
    const world = rich();
    world.sweeping = { maxBytes: 25 };
    const days = ["2026-11-20", "2026-11-21", "2026-11-22", "2026-11-23"];
    const orders: Order[] = [];
    for (const day of days) {
      world.clock.set(`${day}T12:00:00.000Z`);
      orders.push(await bought(world));
    }
    world.tillFault = "says nothing";
    world.clock.set("2026-11-19T12:00:00.000Z");
    const open = (await world.post(world.replicas[0]!, world.pay("0xbuyer", "honest")))!;
    expect(open.state).toBe("settle_unknown");
    world.clock.set("2026-11-23T12:00:00.000Z");
    for (const order of orders)
      await world.replicas[0]!.buying.orders.step(
        order,
        { state: "leg_paid", leg: 0, tx: "0x1", amount: "0.010000" },
        { state: "recorded" },
      );
    const [a, b] = [world.replica(), world.replica()];
    expect(await a!.sweep.sweepSome()).toBe(true);
    expect(await b!.sweep.sweepSome()).toBe(true);
    expect(keysOf(world)).toHaveLength(5);
    await a!.sweep.sweepSome();
    await b!.sweep.sweepSome();
    // 50 bytes, of which 25 may be: three of the four go.
    expect(keysOf(world)).toEqual([keyOf(open, "answer"), keyOf(orders[3]!, "answer")]);
  });

  test("open orders alone over the bound: nothing is sold until there is room", async () => {
    const world = rich();
    world.sweeping = { maxBytes: 5 };
    world.tillFault = "says nothing";
    const order = (await world.post(world.replicas[0]!, world.pay("0xbuyer", "honest")))!;
    expect(order.state).toBe("settle_unknown");
    const { sweep, buying } = world.replica();
    expect(sweep.refusalWhenFull()).toBeNull();
    await sweep.sweepSome();
    expect([sweep.refusalWhenFull() !== null, keysOf(world)]).toEqual([true, [keyOf(order, "answer")]]);
    await world.end();
    await buying.orders.catchUp();
    await sweep.sweepSome();
    await sweep.sweepSome();
    expect(sweep.refusalWhenFull()).toBeNull();
  });

  test("goes on where it stood, a bounded piece a turn; objects of nobody's orders go after a day", async () => {
    const world = rich();
    const order = (n: number) => `ord_${String(n).padStart(26, "0")}`;
    for (let n = 0; n < 1_300; n++)
      await world.store.create(objectKey({ day: "2026-11-21", order: order(n), leg: 0, kind: "answer" }), HONEST);
    const young = objectKey({ day: "2026-11-22", order: order(1), leg: 0, kind: "answer" });
    await world.store.create(young, HONEST);
    await world.store.create("held/2026-11-20/of-somebody-else", HONEST);
    const gone: string[] = [];
    const counted: string[] = [];
    const sweep = new ObjectSweep({
      ...{ orders: world.replicas[0]!.buying.orders, clock: world.clock, keepDays: 30, maxBytes: MIB, ...quiet },
      store: { list: world.store.list.bind(world.store), delete: async (key) => void gone.push(key) },
      metrics: { count: (_, labels) => void counted.push(String((labels as { why?: string }).why)), gauge() {} },
    });
    const turns: number[] = [];
    for (let whole = false; !whole; ) {
      const before = gone.length;
      whole = await sweep.sweepSome();
      turns.push(gone.length - before);
    }
    expect(turns).toEqual([250, 250, 250, 250, 250, 50]);
    expect([new Set(gone).size, gone.includes(young), new Set(counted)]).toEqual([1_300, false, new Set(["unknown"])]);
  });

  test("a log that cannot be read: nothing is removed", async () => {
    const world = rich();
    const order = await bought(world);
    const { table } = world.replicas[0]!.buying.orders;
    const catchUp = async () => {
      throw new Error("the log is gone");
    };
    const { store, clock } = world;
    const metrics = { count() {}, gauge() {} };
    const sweep = new ObjectSweep({
      orders: { table, catchUp },
      store,
      clock,
      keepDays: 30,
      maxBytes: 1,
      metrics,
      ...quiet,
    });
    await expect(sweep.sweepSome()).rejects.toThrow("the log is gone");
    expect(keysOf(world)).toEqual([keyOf(order, "answer")]);
  });
});

test.each(["held/2026-11-23/ord_x-0.answer", "held/2026-11-23/ord_00000000000000000000000000-0.secret", "probe/x"])(
  "%s is no object of an order",
  (key) => {
    expect(parseObjectKey(key)).toBeNull();
  },
);
