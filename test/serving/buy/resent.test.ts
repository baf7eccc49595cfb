import { createServer, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { encodePaymentRequiredHeader } from "@x402/core/http";
import { afterAll, beforeAll, beforeEach, expect, test, vi } from "vitest";
import { createEvmRail } from "../../../infra/rails/evm.ts";
import type { Rail } from "../../../infra/rails/rails.ts";
import { marketBeside, type OfficialBuyer, officialBuyer, type Replica, sellingOver } from "../../helpers/buying.ts";
import { capOf } from "../../helpers/public-record.ts";

/**
 * A payment that is sent again while the request that brought it first has no order yet: over HTTP, on the local chain,
 * with the protocol's client.
 */
let world: Awaited<ReturnType<typeof marketBeside>>;
let service: Replica;
let rail: Rail;
let seller: Server;
/** What the seller does with each request for its price, in order of arrival; the last one repeats. */
let prices: ((answer: ServerResponse) => void)[] = [];
let pricesAsked = 0;
let paidCalls = 0;
/** The request for a price that waits for the test. */
let held: ServerResponse | null = null;

const PAY_TO = "0x00000000000000000000000000000000000000c1";
/** Longer than two looks of a request that waits for another, real ms. */
const A_WHILE_MS = 600;
const sellerUrl = () => `http://127.0.0.1:${(seller.address() as AddressInfo).port}/call`;
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

const demand = (answer: ServerResponse, amount = "10000"): void => {
  const offer = {
    ...{ scheme: "exact", network: `eip155:${world.chainId}` as const, asset: world.asset, amount, payTo: PAY_TO },
    ...{ maxTimeoutSeconds: 60, extra: { name: "USDC", version: "2" } },
  };
  const terms = { x402Version: 2, error: "pay", resource: { url: sellerUrl() }, accepts: [offer] };
  answer.writeHead(402, { "payment-required": encodePaymentRequiredHeader(terms as never) }).end("{}");
};
const hold = (answer: ServerResponse): void => {
  held = answer;
};
const busy = (answer: ServerResponse): void => void answer.writeHead(429, { "retry-after": "1" }).end();
const dearer = (answer: ServerResponse): void => demand(answer, "20000");

beforeAll(async () => {
  world = await marketBeside();
  seller = createServer((request, answer) => {
    if (request.headers["payment-signature"]) {
      paidCalls++;
      answer.writeHead(200, { "content-type": "application/json" }).end('{"sum":42}');
    } else (prices[pricesAsked++] ?? prices.at(-1)!)(answer);
  });
  await new Promise<void>((resolve) => seller.listen(0, "127.0.0.1", resolve));
  service = await sellingOver(world, [{ url: sellerUrl(), payTo: PAY_TO, price: "0.010000" }]);
  const { rpcUrl, asset, chainId } = world;
  rail = createEvmRail({ rpcUrl, asset, network: `eip155:${chainId}`, confirmations: 1 });
});
beforeEach(() => {
  pricesAsked = 0;
  paidCalls = 0;
  held = null;
});
afterAll(async () => {
  seller?.closeAllConnections();
  seller?.close();
  await service?.close();
  await world?.close();
});

/** Returns the request with its payment as the official client sends it; it is not sent. */
async function paidRequest(buyer: OfficialBuyer, url: string, init?: RequestInit): Promise<Request> {
  let paid: Request | undefined;
  const spying: typeof fetch = async (input, more) => {
    const request = new Request(input, more);
    if (!request.headers.has("payment-signature")) return fetch(request);
    paid = request;
    return new Response("{}");
  };
  await buyer.over(spying)(url, init);
  return paid!;
}

const json = (body: unknown): RequestInit => ({
  ...{ method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) },
});
/** The two ways to buy a seller's call. */
const WAYS: Record<string, () => [url: string, init?: RequestInit]> = {
  via: () => [`${service.url}/v1/via/${capOf({ url: sellerUrl() })}?a=1`],
  execute: () => [
    `${service.url}/v1/route/execute`,
    json({ capability_ids: [capOf({ url: sellerUrl() })], input: { query: { a: "1" } }, max_total: "0.05" }),
  ],
};

test.each([
  ["via", "gives no price to the second", busy],
  ["via", "asks more of the second", dearer],
  ["execute", "gives no price to the second", busy],
  ["execute", "asks more of the second", dearer],
])("%s: where the seller %s, it is told nothing before the first has its order", async (way, _, second) => {
  prices = [demand, hold, second];
  const buyer = await officialBuyer(world);
  const before = (await rail.balance(buyer.address)).value;
  const request = await paidRequest(buyer, ...WAYS[way]!());
  // The buyer hangs up on the first, as after a broken connection.
  const broken = new AbortController();
  const first = fetch(request.clone(), { signal: broken.signal }).catch(() => null);
  await expect.poll(() => held).not.toBeNull();
  broken.abort();
  const again = fetch(request.clone());
  await pause(A_WHILE_MS);
  demand(held!);
  const answer = await again;
  expect([answer.status, await answer.json()]).toEqual([200, { sum: 42 }]);
  expect([await first, pricesAsked, paidCalls]).toEqual([null, 2, 1]);
  expect(before - (await rail.balance(buyer.address)).value).toBe(12_000n);
});

test("where the first is refused without an order, the next one asks for itself, and the payment buys once", async () => {
  prices = [demand, hold, demand];
  const buyer = await officialBuyer(world);
  const before = (await rail.balance(buyer.address)).value;
  const request = await paidRequest(buyer, ...WAYS.via!());
  const first = fetch(request.clone());
  await expect.poll(() => held).not.toBeNull();
  const others = [fetch(request.clone()), fetch(request.clone())];
  await pause(A_WHILE_MS);
  busy(held!);
  expect((await first).status).toBe(502);
  expect((await Promise.all(others)).map(({ status }) => status)).toEqual([200, 200]);
  expect([pricesAsked, paidCalls]).toEqual([3, 1]);
  expect(before - (await rail.balance(buyer.address)).value).toBe(12_000n);
});

test("our own work that is begun again: a second request is not told the failure of the first attempt", async () => {
  const buyer = await officialBuyer(world);
  const before = (await rail.balance(buyer.address)).value;
  const page = Buffer.from("<!doctype html><title>T</title><p>Two words.</p>").toString("base64");
  const request = await paidRequest(buyer, `${service.url}/v1/docs/extract`, json({ bytes: page }));
  const { objects, orders } = service.sales.buying;
  // The attempt ends without an answer and without a problem of the request.
  vi.spyOn(objects, "putAnswer").mockResolvedValueOnce(false);
  expect((await fetch(request.clone())).status).toBe(503);
  const reopen = orders.reopen.bind(orders);
  let goOn = (): void => {};
  const gate = new Promise<void>((resolve) => {
    goOn = resolve;
  });
  const reopening = vi.spyOn(orders, "reopen").mockImplementationOnce(async (order) => {
    await gate;
    return reopen(order);
  });
  const retried = fetch(request.clone());
  await expect.poll(() => reopening.mock.calls.length).toBe(1);
  const again = fetch(request.clone());
  await pause(A_WHILE_MS);
  goOn();
  const answers = await Promise.all([retried, again]);
  vi.restoreAllMocks();
  expect(answers.map(({ status }) => status)).toEqual([200, 200]);
  expect(before - (await rail.balance(buyer.address)).value).toBe(20_000n);
});
