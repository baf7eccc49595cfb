import { createHash } from "node:crypto";
import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { decodePaymentResponseHeader, encodePaymentRequiredHeader } from "@x402/core/http";
import { validateDiscoveryExtension } from "@x402/extensions/bazaar";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { createEvmRail } from "../../../infra/rails/evm.ts";
import type { Rail } from "../../../infra/rails/rails.ts";
import type { OrderShown } from "../../../serving/schemas/orders.ts";
import type { PlanAnswer } from "../../../serving/schemas/route.ts";
import { marketBeside, officialBuyer, type Replica, sellingOver } from "../../helpers/buying.ts";
import { capOf } from "../../helpers/public-record.ts";

let world: Awaited<ReturnType<typeof marketBeside>>;
let service: Replica;
let rail: Rail;
let strange: Server;

/** What the 402 of a seller asks for that nothing is bought from, and the words for it, by the seller's path. */
const UNSOLD: Record<string, { asks: object; says: RegExp }> = {
  network: { asks: { network: "eip155:8453" }, says: /^Sellers are paid on eip155:84532 here, and its newest 402 / },
  asset: { asks: { asset: `0x${"7".repeat(40)}` }, says: /has no offer there that we can pay\. Nothing was bought\.$/ },
  scheme: { asks: { scheme: "upto" }, says: /has no offer there that we can pay\. Nothing was bought\.$/ },
  dear: { asks: { amount: `1${"0".repeat(18)}` }, says: /^The seller's price is past what can be bought here\. / },
};
const PAYEE = `0x${"a1".repeat(20)}`;
const strangeUrl = (path: string): string => `http://127.0.0.1:${(strange.address() as AddressInfo).port}/${path}`;

/** Sellers whose 402 is sound and asks for what we do not pay. */
async function strangeSellers(asset: string): Promise<Server> {
  const server = createServer(({ url = "" }, answer) => {
    const { asks } = UNSOLD[new URL(url, "http://seller").pathname.slice(1)]!;
    const offer = {
      ...{ scheme: "exact", network: "eip155:84532", asset, amount: "10000", payTo: PAYEE, maxTimeoutSeconds: 60 },
      ...{ extra: { name: "USDC", version: "2" }, ...asks },
    };
    const required = { x402Version: 2, error: "pay", resource: { url: strangeUrl("") }, accepts: [offer] };
    answer.writeHead(402, { "payment-required": encodePaymentRequiredHeader(required as never) }).end("{}");
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return server;
}

const sellerOf = (name: string) => world.sellers.find((one) => one.name === name)!;
const specOf = (name: string, price: string) => {
  const { urls, payTo } = sellerOf(name);
  return { url: urls[0]!, payTo, price };
};
const orderOf = async (answer: Response): Promise<OrderShown> =>
  (await (await fetch(`${service.url}/v1/orders/${answer.headers.get("touchstone-order")}`)).json()) as OrderShown;
const viaOf = (name: string, query = "a=20&b=22") =>
  `${service.url}/v1/via/${capOf({ url: sellerOf(name).urls[0]! })}?${query}`;

beforeAll(async () => {
  world = await marketBeside();
  const { rpcUrl, asset, chainId } = world;
  strange = await strangeSellers(asset);
  const unsold = Object.keys(UNSOLD).map((path) => ({ url: strangeUrl(path), payTo: PAYEE, price: "0.010000" }));
  service = await sellingOver(world, [
    ...[specOf("honest-v2", "0.010000"), specOf("thief", "0.010000"), ...unsold],
    { url: strangeUrl("method"), method: "PUT", payTo: PAYEE, price: "0.010000" },
  ]);
  rail = createEvmRail({ rpcUrl, asset, network: `eip155:${chainId}`, confirmations: 1 });
});
afterAll(async () => {
  await service?.close();
  strange?.close();
  await world?.close();
});

test("a plain request is told the price, for buyers of both versions", async () => {
  const answer = await fetch(viaOf("honest-v2"));
  expect(answer.status).toBe(402);
  const terms = JSON.parse(Buffer.from(answer.headers.get("payment-required")!, "base64").toString("utf8"));
  expect(terms).toMatchObject({ x402Version: 2, accepts: [{ scheme: "exact", amount: "12000", payTo: service.till }] });
  expect(await answer.json()).toMatchObject({
    x402Version: 1,
    accepts: [{ scheme: "exact", network: "base-sepolia", maxAmountRequired: "12000" }],
  });
});

test.each([
  ["the question itself", "a=20&b=22", { a: "20", b: "22" }],
  ["one that the seller's schema makes, for whoever only looks", "", { a: expect.anything(), b: expect.anything() }],
  ["a member of our own beside it", "a=20&b=22&unit=m", { a: "20", b: "22", unit: "m" }],
])("the 402 describes the call by the seller's own schemas, with an example: %s", async (_, query, example) => {
  const answer = await fetch(viaOf("honest-v2", query));
  const { extensions } = JSON.parse(Buffer.from(answer.headers.get("payment-required")!, "base64").toString("utf8"));
  expect(validateDiscoveryExtension(extensions.bazaar)).toEqual({ valid: true });
  expect(extensions.bazaar.info.input).toEqual({ type: "http", method: "GET", queryParams: example });
  const { input, output } = extensions.bazaar.schema.properties;
  expect(input.properties.queryParams.required).toEqual(["a", "b"]);
  expect(output.properties.example.required).toEqual(["sum"]);
});

test("the official client buys from the honest seller, and is charged on the chain after the answer", async () => {
  const buyer = await officialBuyer(world);
  const before = (await rail.balance(buyer.address)).value;
  const { reader } = service.sales.seller;
  const asked = vi.spyOn(reader, "ask");
  const answer = await buyer.fetch(viaOf("honest-v2"));
  // The description of the call, which is tried against the seller's schema, is made for the 402 alone.
  expect(asked.mock.calls.filter(([what]) => what === "expected")).toHaveLength(1);
  asked.mockRestore();
  expect(answer.status).toBe(200);
  expect(await answer.json()).toMatchObject({ sum: 42 });
  const settled = decodePaymentResponseHeader(answer.headers.get("payment-response")!);
  expect(settled).toMatchObject({ success: true, payer: buyer.address, network: "eip155:84532" });
  expect(before - (await rail.balance(buyer.address)).value).toBe(12_000n);
  const [moved] = (await rail.transfers({ from: buyer.address, to: service.till, sinceBlock: 0 })).value;
  expect(moved).toMatchObject({ tx: settled.transaction, amountAtomic: 12_000n });
  const order = await orderOf(answer);
  expect(order).toMatchObject({ state: "settled", total: "0.012000", seller_price: "0.010000", fee: "0.002000" });
  expect(JSON.parse(Buffer.from(order.answer!.base64, "base64").toString("utf8"))).toMatchObject({ sum: 42 });
});

test("an answer that is not kept any more: the same payment gets a 410, never a 402, and the order says what it was", async () => {
  const buyer = await officialBuyer(world);
  expect((await fetch(viaOf("honest-v2", "a=1&b=1"))).headers.get("ratelimit")).toMatch(/^".+";r=\d+;t=\d+$/);
  let paid = new Headers();
  const spying: typeof fetch = (input, init) => {
    const request = new Request(input, init);
    if (request.headers.has("payment-signature")) paid = request.headers;
    return fetch(request);
  };
  const answer = await buyer.over(spying)(viaOf("honest-v2", "a=1&b=1"));
  const bytes = Buffer.from(await answer.arrayBuffer());
  const again = () => fetch(viaOf("honest-v2", "a=1&b=1"), { headers: paid });
  expect([answer.headers.get("ratelimit-policy"), answer.headers.get("ratelimit")]).toEqual([
    expect.stringMatching(/^".+";q=\d+;w=\d+$/),
    expect.stringMatching(/^".+";r=\d+;t=\d+$/),
  ]);
  expect(Buffer.from(await (await again()).arrayBuffer())).toEqual(bytes);
  const id = answer.headers.get("touchstone-order")!;
  // The chain is read after the answer: the order names the seller's transaction only then.
  await expect.poll(async () => (await orderOf(answer)).legs![0]!.tx).not.toBeNull();
  const before = await orderOf(answer);
  expect(before).toMatchObject({
    state: "settled",
    answer: { base64: bytes.toString("base64") },
    answer_expired: null,
  });
  const [kept] = (await service.ordersStore.list("held/")).filter(({ key }) => key.includes(id));
  expect(kept).toMatchObject({ size: bytes.length });
  await service.ordersStore.delete(kept!.key);
  const gone = await again();
  expect([gone.status, gone.headers.get("touchstone-order")]).toEqual([410, id]);
  const sha256 = createHash("sha256").update(bytes).digest("hex");
  const problem = (await gone.json()) as { type: string; detail: string };
  expect(problem.type).toBe("/docs/api#answer-expired");
  expect(problem.detail).toContain(sha256);
  const after = await orderOf(answer);
  expect(after).toEqual({
    ...before,
    signature: expect.any(String),
    answer: null,
    answer_expired: { sha256, bytes: bytes.length },
  });
});

test("the thief is paid and its buyer is not charged", async () => {
  const buyer = await officialBuyer(world);
  const before = (await rail.balance(buyer.address)).value;
  const answer = await buyer.fetch(viaOf("thief"));
  expect(answer.status).toBe(502);
  expect(await answer.json()).toMatchObject({ type: "/docs/api#seller-failed" });
  expect((await rail.balance(buyer.address)).value).toBe(before);
  const order = await orderOf(answer);
  expect(order).toMatchObject({ state: "released", charged: null, answer: null });
});

test("who took money for nothing is not bought from: no price, no buy in a check, no place in a plan", async () => {
  const refused = await fetch(viaOf("thief"));
  expect(refused.status).toBe(402);
  const terms = JSON.parse(Buffer.from(refused.headers.get("payment-required")!, "base64").toString("utf8"));
  expect(terms).toMatchObject({ accepts: [], error: expect.stringContaining("our money of a call that did not pass") });
  const buyIn = async (name: string) => {
    const answer = await fetch(`${service.url}/v1/check?url=${encodeURIComponent(sellerOf(name).urls[0]!)}`);
    return ((await answer.json()) as { buy?: { total: string } }).buy?.total;
  };
  expect([await buyIn("honest-v2"), await buyIn("thief")]).toEqual(["0.012000", undefined]);
  const plan = await fetch(`${service.url}/v1/route/plan`, { method: "POST", body: JSON.stringify({ need: "sum" }) });
  const { candidates, passed_over } = (await plan.json()) as PlanAnswer;
  expect(candidates.map(({ url }) => url)).toEqual([sellerOf("honest-v2").urls[0]]);
  expect(passed_over).toMatchObject([{ reason: "not_sold", count: 1 }]);
});

describe("a seller that is not bought from at any time is a 403 that says why, and nothing is charged", () => {
  interface Told {
    type: string;
    detail: string;
  }
  const ways = Object.entries(UNSOLD).map(([path, { says }]) => [path, () => capOf({ url: strangeUrl(path) }), says]);
  test.each([
    ...(ways as [string, () => string, RegExp][]),
    ["method", () => capOf({ url: strangeUrl("method"), method: "PUT" }), /^Calls with PUT are not bought/],
  ] as [string, () => string, RegExp][])("%s", async (_, cap, says) => {
    const answer = await fetch(`${service.url}/v1/via/${cap()}`);
    const told = (await answer.json()) as Told;
    expect([answer.status, told.type, told.detail]).toEqual([403, "/docs/api#not-sold", expect.stringMatching(says)]);
  });

  test("also with a payment, which was made for another call", async () => {
    const buyer = await officialBuyer(world);
    let paid = new Headers();
    const spying: typeof fetch = (input, init) => {
      const request = new Request(input, init);
      if (!request.headers.has("payment-signature")) return fetch(request);
      paid = request.headers;
      return Promise.resolve(new Response(null, { status: 503 }));
    };
    await buyer.over(spying)(viaOf("honest-v2", "a=2&b=2"));
    expect(paid.has("payment-signature")).toBe(true);
    const before = (await rail.balance(buyer.address)).value;
    const answer = await fetch(`${service.url}/v1/via/${capOf({ url: strangeUrl("network") })}`, { headers: paid });
    expect([answer.status, ((await answer.json()) as Told).type]).toEqual([403, "/docs/api#not-sold"]);
    expect((await rail.balance(buyer.address)).value).toBe(before);
    expect([...service.sales.buying.orders.table.ofPayer(buyer.address)]).toEqual([]);
  });
});

test("a page of another origin may ask to send a payment, and nothing else is opened by that", async () => {
  const ask = (path: string, headers: Record<string, string>) =>
    fetch(service.url + path, { method: "OPTIONS", headers: { origin: "https://page.example", ...headers } });
  const wanted = {
    "access-control-request-method": "GET",
    "access-control-request-headers": "payment-signature,access-control-expose-headers",
  };
  const answer = await ask(new URL(viaOf("honest-v2")).pathname, wanted);
  expect([answer.status, Object.fromEntries(answer.headers)]).toMatchObject([
    204,
    {
      "access-control-allow-origin": "*",
      "access-control-allow-methods": "GET, HEAD, POST",
      "access-control-allow-headers": "*, Authorization",
    },
  ]);
  for (const path of ["/mcp", "/exposure/report"])
    expect([path, (await ask(path, wanted)).status]).toEqual([path, 405]);
  expect((await ask("/v1/route/plan", {})).status).toBe(405);
});
