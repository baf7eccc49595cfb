import { expect } from "vitest";
import type { Settlement } from "../../../infra/rails/rails.ts";
import { booksOf, findDifferences } from "../../../pipelines/orders/ledger.ts";
import type { Order } from "../../../pipelines/orders/order.ts";
import { STALE_MS } from "../../../pipelines/orders/order-log.ts";
import { answerOf, objectKey } from "../../../pipelines/orders/order-objects.ts";
import type { OrderTable } from "../../../pipelines/orders/order-table.ts";
import { parseMoney } from "../../../pipelines/record/money.ts";
import { FakeChain, type TestChain } from "../../helpers/fake-chain.ts";
import type { AppendFault } from "../../helpers/fake-log.ts";
import * as fc from "../../helpers/fast-check.ts";
import {
  type FakePayment,
  FLOAT,
  FLOAT_HAS,
  OrderWorld,
  SELLERS,
  type SellerKind,
  TILL,
} from "../../helpers/order-world.ts";

/** What happens in a history: buyers, sellers, strangers, faults of processes and of the log (orders.md, Commands). */
type Happening =
  | { do: "post"; replica: number; buyer: number; seller: SellerKind; tool?: boolean; twice: boolean }
  | { do: "again"; replica: number; of: number }
  | { do: "halt"; replica: number; in: number }
  | { do: "fail"; replica: number; in: number; fault: AppendFault }
  | { do: "store"; replica: number; in: number; many: number; writes: boolean }
  | { do: "wake" | "restart"; replica: number }
  | { do: "look"; replica: number; adopt: boolean }
  | { do: "till"; fault: "says nothing" | "settles and says nothing" | "lies" }
  | { do: "clock"; seconds: number }
  | { do: "cancel" | "submit"; of: number }
  | { do: "elsewhere"; of: number; to: "self" | "till"; micro: number }
  | { do: "drain"; buyer: number }
  | { do: "reorg"; depth: number; again: boolean }
  | { do: "arrive" | "grab" | "give back" };

const REPLICAS = 3;
const BUYERS = 3;
/** Where blocks can vanish at all: so many blocks are final, the newest counted. */
const CONFIRMATIONS = 12;
const replica = fc.nat(REPLICAS - 1);
const of = fc.nat(5);
const buyer = fc.nat(BUYERS - 1);
const one = <D extends string>(word: D) => fc.constant(word);

const post = fc.record({
  ...{ do: one("post"), replica, buyer, twice: fc.boolean() },
  seller: fc.constantFrom<SellerKind[]>("honest", "honest", "honest", ...SELLERS),
  tool: fc.boolean(),
});
const happening: fc.Arbitrary<Happening> = fc.oneof(
  { weight: 6, arbitrary: post },
  { weight: 3, arbitrary: fc.record({ do: one("again"), replica, of }) },
  { weight: 4, arbitrary: fc.record({ do: one("halt"), replica, in: fc.integer({ min: 1, max: 14 }) }) },
  {
    weight: 4,
    arbitrary: fc.record({
      ...{ do: one("fail"), replica, in: fc.integer({ min: 1, max: 5 }) },
      fault: fc.constantFrom<AppendFault[]>("lost ack", "refused", "prefix", "late", "twice"),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      ...{ do: one("store"), replica, in: fc.nat(2), many: fc.integer({ min: 1, max: 3 }), writes: fc.boolean() },
    }),
  },
  { weight: 3, arbitrary: fc.record({ do: fc.constantFrom("wake" as const, "restart" as const), replica }) },
  { weight: 5, arbitrary: fc.record({ do: one("look"), replica, adopt: fc.boolean() }) },
  {
    weight: 2,
    arbitrary: fc.record({
      do: one("till"),
      fault: fc.constantFrom("says nothing" as const, "settles and says nothing" as const, "lies" as const),
    }),
  },
  { weight: 3, arbitrary: fc.record({ do: one("clock"), seconds: fc.constantFrom(1, 30, 61, 130, 301, 700) }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constantFrom("cancel" as const, "submit" as const), of }) },
  {
    weight: 2,
    arbitrary: fc.record({
      ...{ do: one("elsewhere"), of, micro: fc.integer({ min: 0, max: 900_000 }) },
      to: fc.constantFrom("self" as const, "till" as const),
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: one("drain"), buyer }) },
  {
    weight: 2,
    arbitrary: fc.record({ do: one("reorg"), depth: fc.integer({ min: 1, max: CONFIRMATIONS }), again: fc.boolean() }),
  },
  {
    weight: 3,
    arbitrary: fc.record({ do: fc.constantFrom("arrive" as const, "grab" as const, "give back" as const) }),
  },
);

/** A history, whether its halted processes wake before the end or after it, and when a block is final. */
export const history = fc.record({
  happenings: fc.array(happening, { minLength: 3, maxLength: 24, size: "max" }),
  wakesLate: fc.boolean(),
  confirmations: fc.constantFrom(1, 3, CONFIRMATIONS),
});
export type History = typeof history extends fc.Arbitrary<infer H> ? H : never;

const buyerOf = (n: number): string => `0xbuyer${n}`;
const BUYER_HAS = 1_000_000n;
const TILL_HAS = 5_000_000n;

type AnyWorld = OrderWorld<TestChain>;

interface Told {
  world: AnyWorld;
  payments: FakePayment[];
  gone: AnyWorld["replicas"];
}

async function happen({ world, payments, gone }: Told, event: Happening): Promise<void> {
  const { chain } = world;
  const acted = "replica" in event ? world.replicas[event.replica]! : world.replicas[0]!;
  const named = "of" in event ? payments[event.of % Math.max(1, payments.length)] : undefined;
  switch (event.do) {
    case "post": {
      const payment = { ...world.pay(buyerOf(event.buyer), event.seller), tool: event.tool === true };
      payments.push(payment);
      void world.post(acted, payment);
      if (event.twice) void world.post(world.replicas[(event.replica + 1) % REPLICAS]!, payment);
      return;
    }
    case "again":
      if (named) void world.post(acted, named);
      return;
    case "halt":
      acted.haltIn = event.in;
      return;
    case "fail":
      acted.faultIn = { appends: event.in, fault: event.fault };
      return;
    case "store":
      acted.storeFault = { in: event.in, many: event.many, writes: event.writes };
      return;
    case "wake":
      acted.wake();
      return;
    case "restart":
      gone.push(acted);
      world.replicas[event.replica] = world.replica();
      return;
    case "look":
      if (event.adopt) world.log.now += STALE_MS;
      void acted.recovery
        .look()
        .then(() => acted.recovery.recoverLosses())
        .catch(() => {});
      return;
    case "till":
      world.tillFault = event.fault;
      return;
    case "clock":
      return chain.pass(event.seconds);
    case "reorg":
      return chain.reorg(event.depth, event.again);
    case "cancel":
      if (named) await chain.cancel(named.auth);
      return;
    case "submit":
      if (named) await chain.submit(named.auth);
      return;
    case "elsewhere":
      // The buyer's other transfer under the same nonce.
      if (!named) return;
      await chain.submit({ ...named.auth, to: event.to === "till" ? TILL : "0xself", value: BigInt(event.micro) });
      return;
    case "drain":
      await chain.transfer(buyerOf(event.buyer), "0xself", await chain.balance(buyerOf(event.buyer)));
      return;
    case "arrive":
      world.log.arrive();
      return;
    case "grab":
      for (const auth of world.held.splice(0)) await chain.submit(auth);
      return;
    case "give back":
      await chain.transfer("0xthief", FLOAT, 10_000n);
  }
}

/** What the wallets of a history hold at its beginning, by their names. */
export const HOLDINGS: Readonly<Record<string, bigint>> = {
  ...Object.fromEntries(Array.from({ length: BUYERS }, (_, n) => [buyerOf(n), BUYER_HAS])),
  [TILL]: TILL_HAS,
  [FLOAT]: FLOAT_HAS,
};

/** Lives through a history and brings it to its end. @param chain where nothing but {@link HOLDINGS} is */
export async function lived(
  { happenings, wakesLate, confirmations }: History,
  chain: TestChain = new FakeChain(confirmations),
): Promise<AnyWorld> {
  const world = new OrderWorld(REPLICAS, undefined, chain);
  for (let n = 0; n < BUYERS; n++) world.chain.mint(buyerOf(n), BUYER_HAS);
  world.chain.mint(TILL, TILL_HAS);
  const told: Told = { world, payments: [], gone: [] };
  for (const event of happenings) {
    await happen(told, event);
    await chain.turn();
    // What nobody may ask for any more goes at any moment, whoever acts meanwhile.
    await world.replicas[0]!.sweep.sweepSome();
  }
  const wake = async () => {
    for (const process of [...told.gone, ...world.replicas]) {
      process.haltIn = null;
      process.wake();
      await chain.turn();
    }
    world.log.arrive();
  };
  if (!wakesLate) await wake();
  for (const auth of world.held.splice(0)) await chain.submit(auth);
  await world.end();
  await wake();
  return world;
}

const ordersOf = (table: OrderTable): string => JSON.stringify([...table.all()]);

const show = (of: object): string => JSON.stringify(of, (_, value) => (typeof value === "bigint" ? `${value}` : value));

/** The chain agrees with itself: each wallet holds what it began with and what moved. A chain that does not agree proves nothing of an order. */
export async function agreesWithItself(chain: TestChain, holdings = HOLDINGS): Promise<void> {
  const moved = await chain.movements();
  const sum = (all: readonly Settlement[]) => all.reduce((micro, one) => micro + one.amountAtomic, 0n);
  for (const [name, has] of Object.entries(holdings)) {
    const came = moved.filter(({ to }) => to === name);
    const went = moved.filter(({ from }) => from === name);
    expect(await chain.balance(name), `${name} of the chain itself: ${show({ came, went })}`).toBe(
      has + sum(came) - sum(went),
    );
  }
}

/** What moved out of and into the wallet that pays sellers, beside the legs that the log knows, for who reads a failure. */
async function floatsCourse(chain: TestChain, orders: readonly Order[]): Promise<string> {
  const moved = (await chain.movements()).filter(({ from, to }) => from === FLOAT || to === FLOAT);
  const legs = await Promise.all(
    orders.flatMap(({ id, state, legs }) =>
      legs.map(async ({ wallet, nonce, fate, tx, price, sinceBlock }) => ({
        ...{ order: id, state, nonce, fate, tx, price, sinceBlock },
        isUsed: await chain.isUsed({ from: wallet, nonce }),
      })),
    ),
  );
  return [...moved, ...legs].map(show).join("\n");
}

/** The books sum to zero, are on the chain, and say what both wallets hold. */
async function balances({ chain }: AnyWorld, orders: readonly Order[], gifts: bigint, tillHas: bigint): Promise<void> {
  const [books] = booksOf(orders);
  if (!books) return;
  expect([...books.accounts.values()].reduce((all, one) => all + one, 0n)).toBe(0n);
  expect(await findDifferences(books.movements, chain.rail())).toEqual([]);
  expect(books.owed.filter(({ what }) => what !== "loss")).toEqual([]);
  expect(await chain.balance(TILL)).toBe(tillHas + (books.accounts.get("till") ?? 0n) + gifts);
  const recovered = new Set(books.movements.flatMap(({ what, tx }) => (what === "call sent back" ? [tx] : [])));
  const moved = await chain.movements();
  const toFloat = moved.filter(({ to, tx }) => to === FLOAT && !recovered.has(tx));
  const unasked = toFloat.reduce((all, one) => all + one.amountAtomic, 0n);
  const twice = books.movements.filter(({ what }) => what === "call sent back").length - recovered.size;
  expect(twice, "one transfer back made good two losses").toBe(0);
  const has = await chain.balance(FLOAT);
  const said = FLOAT_HAS + (books.accounts.get("float") ?? 0n) + unasked;
  expect(has, has === said ? "" : await floatsCourse(chain, orders)).toBe(said);
}

/** The invariants of one order. @returns what its buyer's nonce moved */
async function eachHolds(order: Order, chain: TestChain): Promise<Settlement | null> {
  const paid = await chain.settlementOf({ from: order.payer, nonce: order.nonce, sinceBlock: 0 });
  const debit = paid?.to === TILL ? paid.amountAtomic : 0n;
  const back = order.refunded ? parseMoney(order.refunded.amount) : 0n;
  const passed = order.legs.at(-1)?.checked?.pass === true;
  if (order.state === "settled") {
    expect({ passed, debit }).toEqual({ passed: true, debit: parseMoney(order.quote.total) });
  } else expect({ order, net: debit - back }).toEqual({ order, net: 0n });
  const asked = order.legs.map(({ wallet, nonce }) => chain.settlementOf({ from: wallet, nonce, sinceBlock: 0 }));
  const spent = await Promise.all(asked);
  const out = spent.reduce((all, one) => all + (one?.amountAtomic ?? 0n), 0n);
  expect(out <= parseMoney(order.quote.price)).toBe(true);
  expect(order.legs.map(({ fate }) => fate)).toEqual(spent.map((one) => (one ? "paid" : "unpaid")));
  return paid;
}

/** Whatever was charged can be given again, and nothing else is kept. */
async function keepsAnswers(world: AnyWorld, orders: readonly Order[]): Promise<void> {
  const { buying, sweep } = world.replica();
  const settled = orders.filter(({ state }) => state === "settled");
  for (const order of settled) expect(await answerOf(buying.objects, order), order.id).not.toBeNull();
  const keys = settled.map(({ id, createdAt, legs }) =>
    objectKey({ day: createdAt.slice(0, 10), order: id, leg: legs.at(-1)!.leg, kind: "answer" }),
  );
  const kept = (): string[] => [...world.store.objects.keys()].sort();
  // A process that woke at the very end writes its answer a moment later: that goes with a later turn. (A poll of vitest
  // would keep every world until the end of the test.)
  for (const until = performance.now() + 60_000; ; await new Promise((resolve) => setTimeout(resolve, 20))) {
    await sweep.sweepSome();
    if (kept().length === keys.length || performance.now() > until) break;
  }
  expect(kept()).toEqual(keys.sort());
}

/**
 * The invariants of orders.md, of a history that has come to its end.
 * @param holdings what the wallets held at its beginning
 */
export async function holds(world: AnyWorld, holdings = HOLDINGS): Promise<OrderTable> {
  const { chain } = world;
  const table = await world.end();
  expect(world.unannounced).toEqual([]);
  expect(table.open().map(({ id, state, legs }) => ({ id, state, legs: legs.map(({ fate }) => fate) }))).toEqual([]);
  const orders = [...table.all()];
  const tillHas = holdings[TILL]!;
  await agreesWithItself(chain, holdings);
  const theirs = (await Promise.all(orders.map((order) => eachHolds(order, chain)))).filter((one) => one !== null);
  const moved = await chain.movements();
  const refunds = orders.reduce((all, { refunded }) => all + (refunded ? parseMoney(refunded.amount) : 0n), 0n);
  const sentBack = moved.filter(({ from }) => from === TILL).reduce((all, one) => all + one.amountAtomic, 0n);
  expect(sentBack).toBe(refunds);
  const settled = orders.filter(({ state }) => state === "settled");
  const charged = settled.reduce((all, { quote }) => all + parseMoney(quote.total), 0n);
  // What came to the till under nonces of no order is a gift of whoever sent it.
  const came = moved.filter(({ to }) => to === TILL);
  const unasked = came.filter(({ tx }) => !theirs.some((one) => one.tx === tx));
  const gifts = unasked.reduce((all, one) => all + one.amountAtomic, 0n);
  const told = orders.map(({ state, charged, expired }) => ({ state, charged, expired }));
  expect(await chain.balance(TILL), show({ told, came, theirs })).toBe(tillHas + charged + gifts);
  await balances(world, orders, gifts, tillHas);
  await keepsAnswers(world, orders);
  const ofKey = new Map<string, Set<string>>();
  for (const { payment, order } of world.bought) {
    ofKey.set(payment.auth.nonce, (ofKey.get(payment.auth.nonce) ?? new Set()).add(order));
  }
  expect([...ofKey.values()].filter((ids) => ids.size > 1)).toEqual([]);
  // What was charged in a block that vanished may never be had again: our loss, unless another sum came under its nonce.
  const after = chain.confirmations === 1 ? ["settled"] : ["settled", "written_off", "refunded"];
  for (const { order, state } of world.bought) {
    if (state === "settled") expect(after).toContain(table.get(order)!.state);
  }
  const records = world.log.all();
  const once = ordersOf(world.table(records));
  const twice = world.table(records.flatMap((record) => [record, record]));
  expect(ordersOf(twice)).toBe(once);
  for (const record of records) twice.apply(record);
  expect(ordersOf(twice)).toBe(once);
  return table;
}
