import { randomBytes } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { Hex } from "viem";
import { privateKeyToAccount } from "viem/accounts";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { systemClock } from "../../../infra/clock.ts";
import { createAuthorizations } from "../../../infra/rails/authorization.ts";
import { createEvmRail } from "../../../infra/rails/evm.ts";
import type { Rail, Wallet } from "../../../infra/rails/rails.ts";
import { createReader } from "../../../infra/rails/rpc.ts";
import { createSender } from "../../../infra/rails/sender.ts";
import { tokenOnChain } from "../../../infra/rails/settlement.ts";
import { createLocalWallets } from "../../../infra/rails/wallets.ts";
import type { Fallback } from "../../../pipelines/orders/buying.ts";
import { claimKey } from "../../../pipelines/orders/claim.ts";
import type { Leg, Order } from "../../../pipelines/orders/order.ts";
import { askForQuote, type SellerQuote } from "../../../pipelines/orders/seller.ts";
import { sellerRequest } from "../../../serving/buy/seller-request.ts";
import type { OrderShown } from "../../../serving/schemas/orders.ts";
import { marketBeside, officialBuyer, type Replica, sellingOver } from "../../helpers/buying.ts";
import { ORDER_CAPS } from "../../helpers/caps.ts";
import { capOf } from "../../helpers/public-record.ts";

/** `regulars-only` takes a payment, answers 500 to a wallet that it does not know, and leaves the money. */
let world: Awaited<ReturnType<typeof marketBeside>>;
let service: Replica;
let rail: Rail;
/** Nobody in the market knows it. */
let float: Wallet;
let floatIsGone = false;

const sellerOf = (name: string) => world.sellers.find((one) => one.name === name)!;
const capNamed = (name: string) => capOf({ url: sellerOf(name).urls[0]! });
const specOf = (name: string, price: string, band: "A" | "B" | "F") => {
  const { urls, payTo } = sellerOf(name);
  return { url: urls[0]!, payTo, price, band };
};
const EXECUTE = "/v1/route/execute";
const INPUT = { query: { a: "20", b: "22" } };
const asking = (body: object): RequestInit => ({
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify({ input: INPUT, max_total: "0.05", ...body }),
});
const termsOf = (answer: Response): { error: string; accepts: { amount: string }[] } =>
  JSON.parse(Buffer.from(answer.headers.get("payment-required")!, "base64").toString("utf8"));
const orderOf = async (answer: Response): Promise<OrderShown> =>
  (await (await fetch(`${service.url}/v1/orders/${answer.headers.get("touchstone-order")}`)).json()) as OrderShown;
const ordersOf = (payer: string): Order[] => service.sales.buying.orders.table.ofPayer(payer);
const spentBy = async (address: string, before: bigint) => before - (await rail.balance(address)).value;

/** Nothing is left of the orders before: while a seller may have our money nobody buys from it. */
const unowed = () => {
  const { urls, payTo } = sellerOf("regulars-only");
  const seller = { payTo, url: urls[0]!, cap: capNamed("regulars-only"), lettered: true };
  return expect.poll(() => service.sales.buying.orders.table.isOwedBy(seller)).toBe(false);
};

/** What the chain says of a leg's payment. */
async function stateOf({ wallet: from, nonce, sinceBlock }: Leg) {
  const { asset, chainId, rpcUrl } = world;
  const reader = createReader(rpcUrl);
  const sender = createSender(reader, chainId, `0x${"11".repeat(32)}`);
  const money = tokenOnChain({ rpcUrl, network: `eip155:${chainId}`, asset, confirmations: 1 });
  return (await createAuthorizations(money, sender).stateOf({ from, nonce, sinceBlock })).value;
}

beforeAll(async () => {
  world = await marketBeside();
  const specs = [specOf("regulars-only", "0.010000", "A"), specOf("honest-v2", "0.010000", "B")];
  service = await sellingOver(world, [...specs, specOf("thief", "0.010000", "B"), specOf("liar", "0.010000", "F")], {
    money: () => ({
      float: () => (floatIsGone ? Promise.reject(new Error("the wallet cannot be read")) : Promise.resolve(float)),
      ...{ lookMs: 3_600_000, staleMs: 0 },
      // Enough for one call at a time: a fallback must not be counted beside the call that it stands for.
      caps: { ...ORDER_CAPS, perPayer: 15_000n },
    }),
  });
  const { rpcUrl, asset, chainId } = world;
  rail = createEvmRail({ rpcUrl, asset, network: `eip155:${chainId}`, confirmations: 1 });
});
beforeEach(async () => {
  const { rpcUrl, asset } = world;
  float = await createLocalWallets({ rpcUrl, asset, seed: randomBytes(32) }).known();
});
afterAll(async () => {
  await service?.close();
  await world?.close();
});

describe("without a payment", () => {
  test("the price is that of the best candidate, and it is named", async () => {
    const answer = await fetch(service.url + EXECUTE, asking({ need: "sum" }));
    expect(answer.status).toBe(402);
    expect(termsOf(answer)).toMatchObject({
      accepts: [{ amount: "12000" }],
      error: expect.stringContaining(capNamed("regulars-only")),
    });
  });

  test("nobody fits: nothing is offered, and the reasons are said", async () => {
    const dear = await fetch(service.url + EXECUTE, asking({ need: "sum", max_total: "0.011999" }));
    expect(dear.status).toBe(402);
    expect(termsOf(dear)).toMatchObject({ accepts: [], error: expect.stringContaining("costs more than max_total") });
    const failing = await fetch(service.url + EXECUTE, asking({ capability_ids: [capNamed("liar")] }));
    expect(termsOf(failing)).toMatchObject({ accepts: [], error: expect.stringContaining("letter is F") });
    const none = await fetch(service.url + EXECUTE, asking({ need: "weather" }));
    expect(termsOf(none)).toMatchObject({ accepts: [], error: expect.stringContaining("/v1/route/plan") });
    const body = await fetch(
      service.url + EXECUTE,
      asking({ capability_ids: [capNamed("honest-v2")], input: { body: {} } }),
    );
    expect(termsOf(body)).toMatchObject({ accepts: [], error: expect.stringContaining("takes no body") });
  });

  test.each([
    [{}, "/need"],
    [{ need: "sum", capability_ids: [`cap_${"0".repeat(26)}`] }, "/need"],
    [{ need: "sum", max_total: "1" }, "/max_total"],
    [{ need: "sum", input: { query: { a: 1 } } }, "/input/query/a"],
    [{ need: "sum", input: { query: { a: "\ud800" } } }, "/input/query/a"],
    [{ need: "sum", input: { body: { id: 9_007_199_254_740_992 } } }, "/input/body/id"],
  ])("%j is refused at %s", async (body, pointer) => {
    const answer = await fetch(service.url + EXECUTE, asking(body));
    expect(answer.status).toBe(400);
    expect(await answer.json()).toMatchObject({ errors: [expect.objectContaining({ pointer })] });
  });
});

test("the first candidate fails and keeps nothing, the second delivers: charged once, and the first can never be paid", async () => {
  const buyer = await officialBuyer(world);
  const before = (await rail.balance(buyer.address)).value;
  const answer = await buyer.fetch(service.url + EXECUTE, asking({ need: "sum" }));
  expect(answer.status).toBe(200);
  expect(await answer.json()).toMatchObject({ sum: 42 });
  expect(await spentBy(buyer.address, before)).toBe(12_000n);
  const order = await orderOf(answer);
  expect(order).toMatchObject({ operation: "execute", state: "settled", total: "0.012000" });
  expect(order.legs.map(({ capability_id, passed }) => [capability_id, passed])).toEqual([
    [capNamed("regulars-only"), false],
    [capNamed("honest-v2"), true],
  ]);
  const [held] = ordersOf(buyer.address);
  expect(held!.legs[0]).toMatchObject({ fate: "unpaid" });
  expect(await stateOf(held!.legs[0]!)).toMatchObject({ state: "cancelled" });
  const paid = await stateOf(held!.legs[1]!);
  expect(paid).toMatchObject({ state: "used", settlement: { to: sellerOf("honest-v2").payTo.toLowerCase() } });
});

test("nobody is left: the last payment is cancelled too, and its seller can be bought from at once", async () => {
  const buyer = await officialBuyer(world);
  const before = (await rail.balance(buyer.address)).value;
  const only = asking({ capability_ids: [capNamed("regulars-only")] });
  const answer = await buyer.fetch(service.url + EXECUTE, only);
  expect(answer.status).toBe(502);
  const [order] = ordersOf(buyer.address);
  // Whatever recovery would do it does an hour from now, and an expiry is minutes away.
  await expect.poll(() => order!.legs[0]!.fate).toBe("unpaid");
  expect(await stateOf(order!.legs[0]!)).toMatchObject({ state: "cancelled" });
  expect(order).toMatchObject({ state: "released", charged: null });
  expect(await spentBy(buyer.address, before)).toBe(0n);
  const again = await buyer.fetch(service.url + EXECUTE, only);
  expect([again.status, ordersOf(buyer.address).length]).toEqual([502, 2]);
});

test("a call through via that came to nothing: its payment is cancelled too, where its seller did not take it", async () => {
  await unowed();
  const buyer = await officialBuyer(world);
  const before = (await rail.balance(buyer.address)).value;
  const via = `${service.url}/v1/via/${capNamed("regulars-only")}?a=20&b=22`;
  expect((await buyer.fetch(via)).status).toBe(502);
  const [order] = ordersOf(buyer.address);
  await expect.poll(() => order!.legs[0]!.fate).toBe("unpaid");
  expect(await stateOf(order!.legs[0]!)).toMatchObject({ state: "cancelled" });
  expect(order).toMatchObject({ operation: "via", state: "released", charged: null });
  expect(order!.gas).toEqual([
    { kind: "cancel", tx: expect.stringMatching(/^0x/), wei: expect.stringMatching(/^[1-9]/) },
  ]);
  expect(await spentBy(buyer.address, before)).toBe(0n);
  // Its seller can be bought from at once, and not only when the payment has expired.
  expect((await buyer.fetch(via)).status).toBe(502);
});

test("one payment in four requests at once is one order, one charge and the same bytes", async () => {
  const buyer = await officialBuyer(world);
  const before = (await rail.balance(buyer.address)).value;
  const body = asking({ capability_ids: [capNamed("honest-v2")] });
  const answers: Response[] = [];
  await buyer.over(async (input, init) => {
    const request = new Request(input, init);
    if (!request.headers.has("payment-signature")) return fetch(request);
    answers.push(...(await Promise.all(Array.from({ length: 4 }, () => fetch(request.clone())))));
    return answers[0]!.clone();
  })(service.url + EXECUTE, body);
  expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200]);
  expect(new Set(answers.map((one) => one.headers.get("touchstone-order"))).size).toBe(1);
  expect(new Set(await Promise.all(answers.map((one) => one.text()))).size).toBe(1);
  expect(await spentBy(buyer.address, before)).toBe(12_000n);
});

test("a seller that took the money ends the order: nobody else is paid, and the buyer is not charged", async () => {
  const buyer = await officialBuyer(world);
  const before = (await rail.balance(buyer.address)).value;
  const caps = [capNamed("thief"), capNamed("honest-v2")];
  const answer = await buyer.fetch(service.url + EXECUTE, asking({ capability_ids: caps }));
  expect(answer.status).toBe(502);
  expect(await spentBy(buyer.address, before)).toBe(0n);
  const order = await orderOf(answer);
  expect(order).toMatchObject({ state: "released", charged: null, legs: [{ money: "paid", passed: false }] });
});

test("the same payment again is the same order, and for another request it is refused", async () => {
  let sent: Headers | undefined;
  const buyer = await officialBuyer(world);
  const paying = buyer.over(async (input, init) => {
    const request = new Request(input, init);
    if (request.headers.has("payment-signature")) sent = new Headers(request.headers);
    return fetch(request);
  });
  const body = asking({ capability_ids: [capNamed("honest-v2")] });
  const first = await paying(service.url + EXECUTE, body);
  expect(first.status).toBe(200);
  const again = await fetch(service.url + EXECUTE, { ...body, headers: sent! });
  expect([again.status, again.headers.get("touchstone-order")]).toEqual([200, first.headers.get("touchstone-order")]);
  const other = asking({ capability_ids: [capNamed("honest-v2")], input: { query: { a: "1", b: "1" } } });
  expect((await fetch(service.url + EXECUTE, { ...other, headers: sent! })).status).toBe(409);
  expect(ordersOf(buyer.address)).toHaveLength(1);
});

/** A price of this seller, and a claim that nobody could settle: these orders never come to a charge. */
async function quoted(name: string): Promise<SellerQuote> {
  const sold = {
    cap: capNamed(name),
    url: sellerOf(name).urls[0]!,
    method: "GET" as const,
    tool: null,
    lettered: true,
  };
  const request = sellerRequest(sold, { query: new URLSearchParams(INPUT.query), body: null, headers: new Headers() });
  const quote = await askForQuote(service.sales.seller, sold, request, systemClock);
  if ("says" in quote) throw new Error(quote.says);
  return quote;
}
async function bought(fallback: Fallback) {
  const { network, asset } = service.sales.receivingAccount;
  // It holds what its orders come to: no other is begun.
  const payer = (await officialBuyer(world)).address.toLowerCase();
  const nonce = `0x${randomBytes(32).toString("hex")}`;
  const validBefore = Math.floor(systemClock.now().getTime() / 1000) + 240;
  const sha256 = randomBytes(32).toString("hex");
  const run = service.sales.buying.buy({
    key: claimKey({ network, asset, from: payer, nonce }),
    quote: await quoted("regulars-only"),
    fallback,
    claim: {
      ...{ operation: "execute", scheme: "exact", network, asset, payer, nonce, publish: false },
      ...{ valid_after: 0, valid_before: validBefore, payment: {}, requirements: {} },
      ...{ payment_sha256: sha256, request_sha256: sha256 },
      quote: { price: "0.010000", fee: "0.002000", total: "0.012000" },
    },
  });
  const failed = await run.then(
    () => null,
    (error: unknown) => error as Error,
  );
  return { order: ordersOf(payer)[0]!, failed };
}

test("stopped after the order ended and before its payment was cancelled: another replica cancels it", async () => {
  await unowed();
  const { order } = await bought({
    left: () => false,
    quote: async () => null,
    mayCancel: () => {
      floatIsGone = true;
      return true;
    },
  });
  await expect.poll(() => order.state).toBe("released");
  floatIsGone = false;
  expect(await stateOf(order.legs[0]!)).toMatchObject({ state: "unused" });
  const other = await service.another({ staleMs: 0, lookMs: 20, float: () => Promise.resolve(float) });
  try {
    await expect.poll(() => other.buying.orders.table.get(order.id)?.legs[0]?.fate).toBe("unpaid");
  } finally {
    await other.close();
  }
  expect(await stateOf(order.legs[0]!)).toMatchObject({ state: "cancelled" });
  await service.sales.buying.orders.catchUp();
  expect(order).toMatchObject({ state: "released", legs: [{ fate: "unpaid" }] });
});

describe("between two legs", () => {
  test("a candidate that costs more than what was quoted is never paid", async () => {
    const dearer = { ...(await quoted("honest-v2")), priceMicro: 10_001n };
    let asked = 0;
    const { order } = await bought({ left: () => asked === 0, quote: async () => (asked++ === 0 ? dearer : null) });
    expect(order).toMatchObject({ state: "released", says: "It costs more than what was quoted." });
    expect(order.legs.map(({ fate }) => fate)).toEqual(["unpaid"]);
  });

  test("stopped after the first payment was cancelled: recovery lets the buyer go", async () => {
    const { order, failed } = await bought({
      left: () => true,
      quote: () => Promise.reject(new Error("stopped here")),
    });
    expect(failed?.message).toBe("stopped here");
    expect(order).toMatchObject({ state: "checked", legs: [{ fate: "unpaid" }] });
    await service.recovering.look();
    expect(order).toMatchObject({ state: "released", legs: [{ fate: "unpaid" }] });
  });

  test("stopped before it was cancelled: recovery lets the buyer go, and nobody else was paid", async () => {
    let asked = 0;
    const { order, failed } = await bought({
      // Asked once the answer was checked: from then on our wallet is out of reach.
      left: () => {
        floatIsGone = true;
        return true;
      },
      quote: async () => {
        asked += 1;
        return null;
      },
    }).finally(() => {
      floatIsGone = false;
    });
    expect(failed?.message).toBe("the wallet cannot be read");
    expect(order).toMatchObject({ state: "checked", legs: [{ fate: "unknown" }] });
    await service.recovering.look();
    expect([order.state, order.legs.length, asked]).toEqual(["released", 1, 0]);
    expect(await stateOf(order.legs[0]!)).toMatchObject({ state: "unused" });
  });
});

test("each cancellation is a transaction of ours: a wallet has so many, and then an order ends with the first answer", async () => {
  const specs = [specOf("regulars-only", "0.010000", "A"), specOf("honest-v2", "0.010000", "B")];
  const other = await sellingOver(world, specs, {
    money: () => ({ float: () => Promise.resolve(float) }),
    deps: { limits: { fallbacks_per_hour: { payer: 1, all: 100 } } },
  });
  try {
    const buyer = await officialBuyer(world);
    const first = await buyer.fetch(other.url + EXECUTE, asking({ need: "sum" }));
    expect(first.status).toBe(200);
    const { rpcUrl, asset } = world;
    float = await createLocalWallets({ rpcUrl, asset, seed: randomBytes(32) }).known();
    const second = await buyer.fetch(other.url + EXECUTE, asking({ need: "sum" }));
    expect(second.status).toBe(502);
    const orders = other.sales.buying.orders.table.ofPayer(buyer.address);
    expect(orders.map(({ legs }) => legs.length)).toEqual([1, 2]);
    // Neither is one cancelled for it that another replica left.
    expect(other.sales.buying.cancelling.mayCancel(buyer.address)).toBe(false);
    expect(other.sales.buying.cancelling.mayCancel("0xother")).toBe(true);
  } finally {
    await other.close();
  }
});

/** An outside signer of one wallet: it signs transfers, and refuses to sign cancellations. */
async function signerOfTransfers({ privateKey }: Wallet) {
  const account = privateKeyToAccount(privateKey as Hex);
  const refused: string[] = [];
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const { id, params } = JSON.parse(Buffer.concat(chunks).toString()) as { id: number; params: [string, string] };
    const data = JSON.parse(params[1]) as { primaryType: string };
    const isTransfer = data.primaryType === "TransferWithAuthorization";
    if (!isTransfer) refused.push(data.primaryType);
    const answer = isTransfer
      ? { result: await account.signTypedData(data as never) }
      : { error: { code: 4001, message: "not allowed" } };
    response.setHeader("content-type", "application/json");
    response.end(JSON.stringify({ jsonrpc: "2.0", id, ...answer }));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, refused, close: () => server.close() };
}

test("a signer that does not sign the cancellation: nobody else is paid, and the buyer is told that the seller failed", async () => {
  const signer = await signerOfTransfers(float);
  const { address } = float;
  const specs = [specOf("regulars-only", "0.010000", "A"), specOf("honest-v2", "0.010000", "B")];
  const other = await sellingOver(world, specs, {
    money: () => ({ float: () => Promise.resolve({ address, signer: signer.url }), lookMs: 3_600_000 }),
  });
  try {
    const buyer = await officialBuyer(world);
    const answer = await buyer.fetch(other.url + EXECUTE, asking({ need: "sum" }));
    expect([answer.status, await answer.json()]).toMatchObject([502, { type: "/docs/api#seller-failed" }]);
    expect(signer.refused).toContain("CancelAuthorization");
    const [order] = other.sales.buying.orders.table.ofPayer(buyer.address);
    expect(order).toMatchObject({ state: "released", charged: null, legs: [{ fate: "unknown" }] });
  } finally {
    await other.close();
    signer.close();
  }
});
