import { encodePaymentSignatureHeader } from "@x402/core/http";
import type { PaymentRequirements } from "@x402/core/types";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { OpenSales } from "../../../commands/selling.ts";
import { ESCROW, ESCROW_ABI, type Hold, holdOf } from "../../../infra/rails/escrow-terms.ts";
import { createEvmRail } from "../../../infra/rails/evm.ts";
import type { Rail } from "../../../infra/rails/rails.ts";
import { createReader } from "../../../infra/rails/rpc.ts";
import { createSender, transact } from "../../../infra/rails/sender.ts";
import { giveLocalGas } from "../../../infra/rails/wallets.ts";
import { isEnded, type Order } from "../../../pipelines/orders/order.ts";
import { payBy } from "../../../serving/client/index.ts";
import { marketBeside, officialBuyer, type Replica, sellingOver } from "../../helpers/buying.ts";
import { dearSeller } from "../../helpers/dear-seller.ts";
import { KillableLog, type KillPoint } from "../../helpers/killable-log.ts";
import { capOf } from "../../helpers/public-record.ts";

/** A replica dies at one step of an order whose money is in escrow; another brings it to its end, and the chain is asked. */
let world: Awaited<ReturnType<typeof marketBeside>>;
/** One for each table: a call that was killed holds its place as long as this process lives, and a seller has its share. */
let sellers: Record<"cases" | "between" | "late", Awaited<ReturnType<typeof dearSeller>>>;
let log: KillableLog;
let service: Replica;
let rail: Rail;

const TOTAL = 50_600n;
type Kind = "honest" | "thief" | "broken";

interface Killed extends KillPoint {
  kind: Kind;
  /** How its order ends, and whether its seller was paid. */
  ends: Order["state"];
  paid: boolean;
}

const CASES: Killed[] = [
  { when: "after", state: "claimed", kind: "honest", ends: "rejected", paid: false },
  { when: "before", state: "held", kind: "honest", ends: "voided", paid: false },
  { when: "after", state: "held", kind: "honest", ends: "voided", paid: false },
  { when: "after", state: "seller_intent", kind: "honest", ends: "voided", paid: false },
  { when: "before", state: "seller_result", kind: "honest", ends: "voided", paid: true },
  { when: "after", state: "settle_intent", kind: "honest", ends: "settled", paid: true },
  { when: "before", state: "settled", kind: "honest", ends: "settled", paid: true },
  { when: "after", state: "void_intent", kind: "thief", ends: "voided", paid: true },
  { when: "before", state: "voided", kind: "thief", ends: "voided", paid: true },
];
/** In the same way between the legs of an execution: the first seller breaks and leaves the money, the second delivers. */
const BETWEEN: (KillPoint & { ends: "voided" | "settled"; second: boolean })[] = [
  { when: "before", state: "checked", leg: 0, ends: "voided", second: false },
  { when: "after", state: "checked", leg: 0, ends: "voided", second: false },
  { when: "before", state: "leg_unpaid", leg: 0, ends: "voided", second: false },
  { when: "after", state: "leg_unpaid", leg: 0, ends: "voided", second: false },
  { when: "before", state: "seller_intent", leg: 1, ends: "voided", second: false },
  { when: "after", state: "seller_intent", leg: 1, ends: "voided", second: false },
  { when: "before", state: "seller_result", leg: 1, ends: "voided", second: true },
  { when: "after", state: "settle_intent", ends: "settled", second: true },
];
/** Those in which chain time must pass. */
const LATE = ["unplaced", "uncaptured", "reclaimed", "unvoided"] as const;

const sellerOf = (name: string) =>
  sellers[name.startsWith("between") ? "between" : (LATE as readonly string[]).includes(name) ? "late" : "cases"];
const specOf = (kind: Kind, name: string) => sellerOf(name).spec(46_000, kind, name);
const nameOf = ({ when, state }: KillPoint) => `${when}-${state}`;
const between = (one: KillPoint) => `between-${nameOf(one)}`;
const kindOf = (name: string): Kind => (name === "unvoided" ? "thief" : "honest");

beforeAll(async () => {
  world = await marketBeside();
  sellers = { cases: await dearSeller(world), between: await dearSeller(world), late: await dearSeller(world) };
  const specs = [
    ...CASES.map((one) => specOf(one.kind, nameOf(one))),
    ...LATE.map((name) => specOf(kindOf(name), name)),
    ...BETWEEN.flatMap((one) => [specOf("broken", between(one)), specOf("honest", between(one))]),
  ];
  service = await sellingOver(world, specs, {
    deps: { limits: { trusted_proxies: ["127.0.0.1"] } as never },
    seen: (whole) => {
      log = new KillableLog(whole);
      return log;
    },
  });
  const { rpcUrl, asset, chainId } = world;
  rail = createEvmRail({ rpcUrl, asset, network: `eip155:${chainId}`, confirmations: 1 });
});
afterAll(async () => {
  await service?.close();
  for (const one of Object.values(sellers ?? {})) await one.close();
  await world?.close();
});

interface Left {
  buyer: Awaited<ReturnType<typeof officialBuyer>>;
  before: bigint;
  /** The same request with the same payment, once more. */
  again(): Promise<Response>;
}

/** An order whose replica died at one step: a call through via. */
const dying = (kind: Kind, name: string, point: KillPoint): Promise<Left> =>
  dyingOf(`/v1/via/${capOf(specOf(kind, name))}?a=20&b=22`, {}, point);

/** Networks that something was bought from. */
let networks = 0;

/** The same of whatever is bought. */
async function dyingOf(path: string, init: RequestInit, point: KillPoint): Promise<Left> {
  const buyer = await officialBuyer(world, payBy("escrow"));
  const before = (await rail.balance(buyer.address)).value;
  const url = service.url + path;
  const asked = await fetch(url, init);
  const terms = JSON.parse(Buffer.from(asked.headers.get("payment-required")!, "base64").toString("utf8"));
  const header = encodePaymentSignatureHeader(await buyer.client.createPaymentPayload(terms));
  const from = { "x-forwarded-for": `198.51.100.${++networks}`, "payment-signature": header };
  const send = (signal?: AbortSignal) =>
    fetch(url, { ...init, headers: { ...init.headers, ...from }, signal: signal ?? null });
  const gone = new AbortController();
  const died = log.dies(point);
  const lost = send(gone.signal).catch(() => {});
  await died;
  gone.abort();
  await lost;
  return { buyer, before, again: () => send() };
}

/** Another replica, which acts on whatever is open, until it has done with this buyer's order. */
async function recovered({ buyer }: Left, until: (order: Order) => boolean = isEnded): Promise<Order> {
  const other = await service.another({ staleMs: 0, lookMs: 20 });
  try {
    const orderOf = () => other.buying.orders.table.ofPayer(buyer.address)[0];
    await expect.poll(() => orderOf() !== undefined && until(orderOf()!)).toBe(true);
    return orderOf()!;
  } finally {
    await other.close();
  }
}

const paths = (kind: Kind, name: string) =>
  sellerOf(name).paid.filter((path) => path === new URL(specOf(kind, name).url).pathname);

describe("killed", () => {
  test.each(CASES)("$when $state ($kind): $ends", async (one) => {
    const inEscrow = (await rail.balance(ESCROW)).value;
    const ours = (await rail.balance(service.till)).value;
    const left = await dying(one.kind, nameOf(one), one);
    const order = await recovered(left);
    expect([order.state, order.epoch]).toEqual([one.ends, 1]);
    const charged = one.ends === "settled" ? TOTAL : 0n;
    expect(left.before - (await rail.balance(left.buyer.address)).value).toBe(charged);
    expect((await rail.balance(service.till)).value - ours).toBe(charged);
    expect((await rail.balance(ESCROW)).value).toBe(inEscrow);
    expect(paths(one.kind, nameOf(one))).toHaveLength(one.paid ? 1 : 0);
    // What only our own crash did is never said of the seller.
    const fault = one.kind === "thief" ? "seller" : order.legs[0] && charged === 0n ? "ours" : null;
    expect(order.legs[0]?.checked?.fault ?? null).toBe(fault);

    const answer = await left.again();
    // Rejected before anything was held or paid: the payment is refused as it would have been then.
    expect(answer.status).toBe(charged > 0n ? 200 : order.state === "rejected" ? 402 : 502);
    expect(answer.headers.get("touchstone-order")).toBe(order.id);
    if (charged > 0n) expect(await answer.json()).toEqual({ sum: 42 });
    expect(left.before - (await rail.balance(left.buyer.address)).value).toBe(charged);
  });
});

describe("killed between two legs", () => {
  test.each(BETWEEN)("$when $state of leg $leg: $ends", async (one) => {
    const inEscrow = (await rail.balance(ESCROW)).value;
    const candidates = [specOf("broken", between(one)), specOf("honest", between(one))];
    const body = JSON.stringify({ capability_ids: candidates.map((spec) => capOf(spec)), max_total: "0.06" });
    const init = { method: "POST", headers: { "content-type": "application/json" }, body };
    const left = await dyingOf("/v1/route/execute", init, one);
    const order = await recovered(left, (seen) => isEnded(seen) && seen.legs.every(({ fate }) => fate !== "unknown"));
    const charged = one.ends === "settled" ? TOTAL : 0n;
    expect(order.state).toBe(one.ends);
    // What a buyer paid is what it got an answer for, once; and of two sellers none has money that nobody knows of.
    expect(left.before - (await rail.balance(left.buyer.address)).value).toBe(charged);
    expect((await rail.balance(ESCROW)).value).toBe(inEscrow);
    expect([paths("broken", between(one)).length, paths("honest", between(one)).length]).toEqual([
      0,
      one.second ? 1 : 0,
    ]);
    const paid = order.legs.filter(({ fate }) => fate === "paid").map(({ leg }) => leg);
    expect(paid).toEqual(one.second ? [1] : []);
    const answer = await left.again();
    expect([answer.status, answer.headers.get("touchstone-order")]).toEqual([charged > 0n ? 200 : 502, order.id]);
  });
});

/** Last: chain time that has passed does not come back. */
describe("once deadlines have passed", () => {
  const node = (method: string, params: unknown[] = []) =>
    createReader(world.rpcUrl).request({ method, params } as never);
  const pass = async (seconds: number) => {
    await node("evm_increaseTime", [seconds]);
    await node("evm_mine");
  };
  async function holdIn(order: Order, sales: Pick<OpenSales, "buying">): Promise<Hold> {
    const at = { partition: order.partition, offset: order.claimedAt };
    const { payment, requirements } = await sales.buying.orders.read("claimed", at);
    return holdOf(payment, requirements as unknown as PaymentRequirements) as Hold;
  }
  /** The buyer's own way to its money, without us. */
  async function reclaim({ buyer }: Left) {
    const [order] = service.sales.buying.orders.table.ofPayer(buyer.address);
    const { info } = await holdIn(order!, service.sales);
    await giveLocalGas(world.rpcUrl, buyer.address);
    const reader = createReader(world.rpcUrl);
    const sender = createSender(reader, world.chainId, buyer.privateKey);
    const call = { address: ESCROW, abi: ESCROW_ABI, functionName: "reclaim", args: [info], gas: 500_000n } as const;
    return transact(sender, call);
  }

  test("nothing is captured, and whatever was held is back with its buyer or there for it to take", async () => {
    const left = (name: (typeof LATE)[number], state: string) => dying(kindOf(name), name, { when: "after", state });
    const unplaced = await left("unplaced", "hold_intent");
    const uncaptured = await left("uncaptured", "settle_intent");
    const reclaimed = await left("reclaimed", "settle_intent");
    const unvoided = await left("unvoided", "void_intent");
    const ours = (await rail.balance(service.till)).value;
    const owed = async ({ before, buyer }: Left) => before - (await rail.balance(buyer.address)).value;
    const all = () => Promise.all([unplaced, uncaptured, reclaimed, unvoided].map(owed));
    expect(await all()).toEqual([0n, TOTAL, TOTAL, TOTAL]);
    expect(await reclaim(reclaimed)).toEqual({ outcome: "refused", reason: "BeforeAuthorizationExpiry" });

    await pass(1_900);
    expect(await reclaim(reclaimed)).toMatchObject({ outcome: "sent" });
    expect((await recovered(unplaced)).state).toBe("hold_failed");
    expect((await recovered(uncaptured)).state).toBe("reclaimable");
    expect((await recovered(reclaimed)).state).toBe("reclaimable");
    expect((await recovered(unvoided)).state).toBe("voided");
    expect(await all()).toEqual([0n, TOTAL, 0n, 0n]);
    expect(await reclaim(uncaptured)).toMatchObject({ outcome: "sent" });
    expect(await all()).toEqual([0n, 0n, 0n, 0n]);
    expect([(await rail.balance(service.till)).value, (await rail.balance(ESCROW)).value]).toEqual([ours, 0n]);

    const answers = await Promise.all([unplaced, uncaptured, reclaimed, unvoided].map((one) => one.again()));
    expect(answers.map(({ status }) => status)).toEqual([402, 502, 502, 502]);
    expect(paths("honest", "unplaced")).toEqual([]);
  });
});
