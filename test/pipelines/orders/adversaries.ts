import { expect } from "vitest";
import type { AsOf, Block } from "../../../infra/rails/rails.ts";
import { ChainDown } from "../../../infra/rails/rpc.ts";
import type { OrderCaps } from "../../../pipelines/orders/caps.ts";
import type { Order } from "../../../pipelines/orders/order.ts";
import { STALE_MS } from "../../../pipelines/orders/order-log.ts";
import type { OrderTable } from "../../../pipelines/orders/order-table.ts";
import { SUM } from "../../../pipelines/orders/stakes.ts";
import { FakeChain, type FakeNode, type TestChain, type TestRail } from "../../helpers/fake-chain.ts";
import type { AppendFault } from "../../helpers/fake-log.ts";
import * as fc from "../../helpers/fast-check.ts";
import {
  type FakePayment,
  type FakeReplica,
  FLOAT,
  FLOAT_HAS,
  OrderWorld,
  SELLERS,
  type SellerKind,
  TILL,
} from "../../helpers/order-world.ts";
import { holds } from "./histories.ts";

/**
 * Histories in which buyers and sellers are adversaries with real balances: wallets that hold money for a few calls and
 * empty themselves, cancel, replay, pay twice with one nonce and buy in bursts; sellers that take the money; nodes that
 * lag, lie and fail; replicas whose clocks are minutes apart. Honest buyers buy meanwhile.
 */
type Move =
  | { do: "burst"; wallet: number; shop: number; calls: number; kind: SellerKind }
  | { do: "honest"; replica: number; shop: number }
  | { do: "used"; replica: number; wallet: number; shop: number; by: "cancel" | "elsewhere"; isPosted: boolean }
  | { do: "drain" | "fill"; wallet: number }
  | { do: "cancel" | "submit" | "elsewhere"; of: number }
  | { do: "again"; replica: number; of: number }
  | { do: "node"; replica: number; node: number; is: "lags" | "lies" | "down" | "well" }
  | { do: "clock"; seconds: number }
  | { do: "skew"; replica: number; minutes: number }
  | { do: "look"; replica: number; stale: boolean }
  | { do: "halt"; replica: number; in: number }
  | { do: "fail"; replica: number; in: number; fault: AppendFault }
  | { do: "wake" | "restart"; replica: number }
  | { do: "till"; fault: "says nothing" | "settles and says nothing" | "lies" }
  | { do: "grab" | "arrive" };

const REPLICAS = 3;
const WALLETS = 8;
const SHOPS = 6;
const PRICE = 100_000n;
const TOTAL = 110_000n;
const TILL_HAS = 5_000_000n;
const HONEST = 12;
const HONEST_HAS = 10n * TOTAL;
const WALLET_HAS = 2n * TOTAL;

/** Small enough that every one of them is reached. */
export const CAPS: OrderCaps = {
  ...{ leastPrice: 100n, perPayer: 2n * PRICE, perNetwork: 6n * PRICE, open: 10n * PRICE },
  ...{ lossPerPayeeDay: 3n * PRICE, lossPerPlatformDay: 3n * PRICE, lossPerCapDay: 3n * PRICE, lossPerDay: 5n * PRICE },
  ...{ wastedPerPayerDay: 6n, wastedPerNetworkDay: 12n },
  ...{ bytesPerPayerDay: 100_000n, bytesPerNetworkDay: 400_000n },
};

const at = fc.nat(REPLICAS - 1);
const wallet = fc.nat(WALLETS - 1);
const shop = fc.nat(SHOPS - 1);
const of = fc.nat(11);
const word = <W extends string>(...words: W[]) => fc.constantFrom(...words);

const move: fc.Arbitrary<Move> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      ...{ do: word("burst"), wallet, shop, calls: fc.integer({ min: 1, max: 4 }) },
      kind: word<SellerKind>("honest", "honest", "honest", "thief", "grabs later", "garbage", "reprices"),
    }),
  },
  { weight: 5, arbitrary: fc.record({ do: word("honest"), replica: at, shop }) },
  {
    weight: 2,
    arbitrary: fc.record({
      ...{ do: word("used"), replica: at, wallet, shop },
      ...{ by: word("cancel", "elsewhere"), isPosted: fc.boolean() },
    }),
  },
  { weight: 5, arbitrary: fc.record({ do: word("drain", "drain", "fill"), wallet }) },
  { weight: 3, arbitrary: fc.record({ do: word("cancel", "submit", "elsewhere"), of }) },
  { weight: 2, arbitrary: fc.record({ do: word("again"), replica: at, of }) },
  {
    weight: 4,
    arbitrary: fc.record({ do: word("node"), replica: at, node: fc.nat(2), is: word("lags", "lies", "down", "well") }),
  },
  { weight: 3, arbitrary: fc.record({ do: word("clock"), seconds: fc.constantFrom(1, 30, 130, 301, 700) }) },
  { weight: 2, arbitrary: fc.record({ do: word("skew"), replica: at, minutes: fc.integer({ min: -10, max: 10 }) }) },
  { weight: 4, arbitrary: fc.record({ do: word("look"), replica: at, stale: fc.boolean() }) },
  { weight: 2, arbitrary: fc.record({ do: word("halt"), replica: at, in: fc.integer({ min: 1, max: 14 }) }) },
  {
    weight: 2,
    arbitrary: fc.record({
      ...{ do: word("fail"), replica: at, in: fc.integer({ min: 1, max: 5 }) },
      fault: word<AppendFault>("lost ack", "refused", "prefix", "late", "twice"),
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: word("wake", "restart"), replica: at }) },
  {
    weight: 1,
    arbitrary: fc.record({ do: word("till"), fault: word("says nothing", "settles and says nothing", "lies") }),
  },
  { weight: 2, arbitrary: fc.record({ do: word("grab", "arrive") }) },
);

export const battle = fc.array(move, { minLength: 4, maxLength: 30, size: "max" });
export type Battle = typeof battle extends fc.Arbitrary<infer B> ? B : never;

/** What two of three nodes say alike, as of blocks that two of those have; nothing where no two do. */
function quorum(rails: readonly TestRail[]): TestRail {
  const text = (value: unknown) => JSON.stringify(value, (_, one) => (typeof one === "bigint" ? `${one}` : one));
  const second = (blocks: readonly Block[]): Block => blocks.toSorted((a, b) => b.number - a.number)[1]!;
  async function alike<T>(ask: (rail: TestRail) => Promise<AsOf<T>>): Promise<AsOf<T>> {
    const came = await Promise.all(rails.map((rail) => ask(rail).catch(() => null)));
    const said = came.filter((one) => one !== null);
    const withoutFinality = (one: AsOf<T>) => text(one.value).replaceAll(/"final":(true|false)/g, "");
    for (const one of said) {
      const same = said.filter((other) => withoutFinality(other) === withoutFinality(one));
      if (same.length < 2) continue;
      // What one of them calls final and the other does not is not final.
      const value = same.find((other) => text(other.value).includes('"final":false'))?.value ?? one.value;
      return { value, head: second(same.map(({ head }) => head)), final: second(same.map(({ final }) => final)) };
    }
    throw new ChainDown("no two nodes say the same");
  }
  return {
    ...rails[0]!,
    settlementOf: (query) => alike((rail) => rail.settlementOf(query)),
    stateOf: (query) => alike((rail) => rail.stateOf(query)),
    transfers: (query) => alike((rail) => rail.transfers(query)),
    transfersIn: (tx) => alike((rail) => rail.transfersIn(tx)),
    balance: (address) => alike((rail) => rail.balance(address)),
    async head() {
      const heads = await Promise.all(rails.map((rail) => rail.head().catch(() => null)));
      const known = heads.filter((one) => one !== null);
      if (known.length < 2) throw new ChainDown("fewer than two nodes answer");
      return second(known);
    },
  };
}

interface Fought {
  world: OrderWorld<TestChain>;
  /** The three nodes of each replica, by the node that it was made with. */
  nodes: WeakMap<FakeNode, FakeNode[]>;
  payments: FakePayment[];
  gone: FakeReplica[];
  /** Calls of honest buyers, and whether the replica and its nodes were well when they came. */
  honest: { order: Promise<Order | null>; isWell: boolean }[];
}

const honestOf = (n: number): string => `0xhonest${n}`;
const fairOf = (n: number): string => `https://fair${n}.example`;
const walletOf = (n: number): string => `0xmallory${n}`;
const shopOf = (n: number): string => (n < 2 ? `https://n${n}.vercel.app` : `https://shop${n}.example`);
/** Two of the six have no letter. */
const letter = (n: number): { lettered: boolean } => ({ lettered: n < 4 });
const NODES: Record<Extract<Move, { do: "node" }>["is"], FakeNode> = {
  lags: { lagS: 500, down: false, lies: false },
  lies: { lagS: 0, down: false, lies: true },
  down: { lagS: 0, down: true, lies: false },
  well: { lagS: 0, down: false, lies: false },
};

/** How long an honest buyer waits before the battle goes on, ms: a call that meets a fault may wait for what comes later. */
const PATIENCE_MS = 50;
/** Where all was well when it came it waits for its answer, which is there in some ms of an idle machine. */
const HANGS_MS = 30_000;

/** An honest buyer waits for its answer, in the middle of everything that goes on. */
async function buys({ world, nodes, honest }: Fought, replica: FakeReplica): Promise<void> {
  const n = honest.length % HONEST;
  const areNodesWell = nodes.get(replica.node)!.every(({ down, lies, lagS }) => !down && !lies && !lagS);
  const isWell = areNodesWell && !replica.stands && world.tillFault === null;
  const order = world.post(replica, world.pay(honestOf(n), "honest", PRICE), fairOf(n));
  honest.push({ order, isWell });
  // A real chain takes longer, and what comes meanwhile is to meet the call.
  const patienceMs = isWell && world.chain instanceof FakeChain ? HANGS_MS : PATIENCE_MS;
  let timer: NodeJS.Timeout | undefined;
  const patience = new Promise((resolve) => {
    timer = setTimeout(resolve, patienceMs);
  });
  await Promise.race([order, patience]).finally(() => clearTimeout(timer));
}

function burst({ world, payments }: Fought, one: Extract<Move, { do: "burst" }>): void {
  for (let n = 0; n < one.calls; n++) {
    const payment = world.pay(walletOf(one.wallet), one.kind, PRICE);
    payments.push(payment);
    void world.post(world.replicas[n % REPLICAS]!, payment, shopOf(one.shop), letter(one.shop));
  }
}

async function fight(fought: Fought, one: Move): Promise<void> {
  const { world, nodes, payments, gone } = fought;
  const { chain, log } = world;
  const replica = "replica" in one ? world.replicas[one.replica]! : world.replicas[0]!;
  const named = "of" in one ? payments[one.of % Math.max(1, payments.length)] : undefined;
  switch (one.do) {
    case "burst":
      return burst(fought, one);
    case "honest":
      return buys(fought, replica);
    case "used": {
      // A nonce that is used before its claim, and a facilitator that calls the payment valid all the same.
      const payment = { ...world.pay(walletOf(one.wallet), "honest", PRICE, 3_500), waved: true };
      if (one.by === "cancel") await chain.cancel(payment.auth);
      else await chain.submit({ ...payment.auth, to: "0xstash", value: 1n });
      // Else it is posted "again", maybe long after.
      payments.push(payment);
      return void (one.isPosted && world.post(replica, payment, shopOf(one.shop), letter(one.shop)));
    }
    case "drain":
      await chain.transfer(walletOf(one.wallet), "0xstash", await chain.balance(walletOf(one.wallet)));
      return;
    case "fill":
      await chain.transfer("0xstash", walletOf(one.wallet), TOTAL);
      return;
    case "cancel":
      return named && chain.cancel(named.auth);
    case "submit":
      await (named && chain.submit(named.auth));
      return;
    case "elsewhere":
      await (named && chain.submit({ ...named.auth, to: "0xstash", value: 1n }));
      return;
    case "again":
      return void (named && world.post(replica, named, shopOf(0)));
    case "node":
      // One of three may lie; two that lie together are believed, as docs/networks-and-wallets.md says.
      return void Object.assign(nodes.get(replica.node)![one.is === "lies" ? 0 : one.node]!, NODES[one.is]);
    case "clock":
      log.now += one.seconds * 1000;
      return chain.pass(one.seconds);
    case "skew":
      replica.aheadMs = one.minutes * 60_000;
      return;
    case "look":
      if (one.stale) log.now += STALE_MS;
      return void replica.recovery.look().then(
        () => replica.recovery.recoverLosses().catch(() => {}),
        () => {},
      );
    case "halt":
      replica.haltIn = one.in;
      return;
    case "fail":
      replica.faultIn = { appends: one.in, fault: one.fault };
      return;
    case "wake":
      return replica.wake();
    case "restart":
      gone.push(replica);
      world.replicas[one.replica] = world.replica();
      return;
    case "till":
      world.tillFault = one.fault;
      return;
    case "grab":
      for (const auth of world.held.splice(0)) await chain.submit(auth);
      return;
    case "arrive":
      return log.arrive();
  }
}

/**
 * Lives through a battle and brings it to its end, with all nodes well again.
 * @param chain where nothing but {@link HOLDINGS} is; one on a real node has no nodes that lag or lie
 */
export async function fought(moves: Battle, chain: TestChain = new FakeChain(3)): Promise<Fought> {
  const world = new OrderWorld(0, CAPS, chain);
  const nodes = new WeakMap<FakeNode, FakeNode[]>();
  const all: FakeNode[] = [];
  world.railOf = (node) => {
    const three: FakeNode[] = [{}, {}, {}];
    nodes.set(node, three);
    all.push(...three);
    return quorum(three.map((one) => chain.rail(one)));
  };
  world.network = (payer) => (payer.startsWith("0xhonest") ? `home ${payer}` : `net ${Number(payer.at(-1)) % 2}`);
  for (let n = 0; n < REPLICAS; n++) world.replicas.push(world.replica());
  for (const [name, has] of Object.entries(HOLDINGS)) if (name !== FLOAT) chain.mint(name, has);
  const state: Fought = { world, nodes, payments: [], gone: [], honest: [] };
  for (const one of moves) {
    await fight(state, one);
    await chain.turn();
  }
  for (const node of all) Object.assign(node, NODES.well);
  for (const replica of [...state.gone, ...world.replicas]) {
    replica.haltIn = null;
    replica.wake();
    await chain.turn();
  }
  for (const auth of world.held.splice(0)) await chain.submit(auth);
  await world.end();
  return state;
}

/** What the wallets of a battle hold at its beginning, by their names. */
export const HOLDINGS: Readonly<Record<string, bigint>> = {
  ...Object.fromEntries(Array.from({ length: WALLETS }, (_, n) => [walletOf(n), WALLET_HAS])),
  ...Object.fromEntries(Array.from({ length: HONEST }, (_, n) => [honestOf(n), HONEST_HAS])),
  ...{ [TILL]: TILL_HAS, [FLOAT]: FLOAT_HAS, "0xstash": 0n },
};

/** Wallets that hold nothing then. */
export const PAYEES: readonly string[] = SELLERS.flatMap((kind) => {
  const name = `0x${kind.replaceAll(" ", "")}`;
  const shops = Array.from({ length: SHOPS }, (_, n) => shopOf(n));
  const fair = Array.from({ length: HONEST }, (_, n) => fairOf(n));
  return [name, ...[...shops, ...fair].map((shop) => `${name} of ${shop}`)];
});

const DAY = "2026-11-23";

/** No loss is larger than docs/design/orders.md says it can be. */
function lossIsBounded(table: OrderTable): void {
  const { lossPerDay, open, lossPerPlatformDay } = CAPS;
  expect(table.sum(SUM.lostInAll(DAY)), "buyers without credit, and our own crashes").toBeLessThanOrEqual(
    lossPerDay + open,
  );
  expect(table.sum(SUM.lost(DAY, "unlettered")), "sellers without a letter").toBeLessThanOrEqual(lossPerDay);
  expect(table.sum(SUM.lost(DAY, "lettered")), "sellers with a letter").toBeLessThanOrEqual(4n * lossPerDay + open);
  for (let n = 0; n < WALLETS; n++) {
    expect(table.sum(SUM.failed(DAY, `payer ${walletOf(n)}`)), walletOf(n)).toBeLessThanOrEqual(CAPS.perPayer);
    expect(table.sum(SUM.failed(DAY, `network net ${n % 2}`)), "a network").toBeLessThanOrEqual(CAPS.perNetwork);
  }
  for (let n = 0; n < SHOPS; n++) {
    const { hostname } = new URL(shopOf(n));
    const platform = hostname.endsWith(".vercel.app") ? "vercel.app" : hostname;
    const sum = table.sum(SUM.lost(DAY, `platform ${platform}`));
    expect(sum, platform).toBeLessThanOrEqual(lossPerPlatformDay);
  }
  for (const payer of Object.keys(HOLDINGS)) {
    const onCredit = [...table.losses()].filter((one) => one.payer === payer && table.get(one.order)!.credit);
    const micro = onCredit.reduce((sum, one) => sum + one.micro, 0n);
    expect(micro, `${payer} on credit`).toBeLessThanOrEqual(table.sum(SUM.fees(payer)));
  }
}

/** Calls of honest buyers, in all battles so far, at replicas that were well; and how many of them were served. */
export const served = { asked: 0, settled: 0 };

/** The books agree with the chain to the micro-unit, and no loss is larger than it can be. */
export async function survives({ world, honest }: Fought): Promise<void> {
  const table = await holds(world, HOLDINGS);
  lossIsBounded(table);
  for (const { order, isWell } of honest) {
    if (!isWell) continue;
    served.asked += 1;
    served.settled += (await Promise.race([order, null]))?.state === "settled" ? 1 : 0;
  }
}
