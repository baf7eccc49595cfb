import { createServer, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { encodePaymentRequiredHeader } from "@x402/core/http";
import { afterAll, beforeAll, expect, test } from "vitest";
import { VIA_AT_ONCE } from "../../../pipelines/1-observe/queue.ts";
import { marketBeside, type OfficialBuyer, officialBuyer, type Replica, sellingOver } from "../../helpers/buying.ts";
import { capOf } from "../../helpers/public-record.ts";

/** One stranger's slow seller and its wallets against everybody else: over HTTP, on the local chain, with the protocol's client. */
let world: Awaited<ReturnType<typeof marketBeside>>;
let service: Replica;
let slow: Server;
/** Calls that the slow seller was paid for and has not answered. */
const held: ServerResponse[] = [];
let paidAt: number[] = [];

/** So many that some are refused: one network and one seller have half of the places. */
const CALLS = 24;

const slowUrl = () => `http://127.0.0.1:${(slow.address() as AddressInfo).port}/slow`;
const honest = () => world.sellers.find(({ name }) => name === "honest-v2")!;

beforeAll(async () => {
  world = await marketBeside();
  const payTo = "0x00000000000000000000000000000000000000c1";
  slow = createServer((request, answer) => {
    if (request.headers["payment-signature"]) {
      paidAt.push(performance.now());
      held.push(answer);
      return;
    }
    const offer = {
      ...{ scheme: "exact", network: `eip155:${world.chainId}` as const, asset: world.asset, amount: "1000", payTo },
      ...{ maxTimeoutSeconds: 60, extra: { name: "USDC", version: "2" } },
    };
    const terms = { x402Version: 2, error: "pay", resource: { url: slowUrl() }, accepts: [offer] };
    answer.writeHead(402, { "payment-required": encodePaymentRequiredHeader(terms as never) }).end("{}");
  });
  await new Promise<void>((resolve) => slow.listen(0, "127.0.0.1", resolve));
  const { urls, payTo: honestPayTo } = honest();
  const specs = [
    { url: slowUrl(), payTo, price: "0.001000" },
    { url: urls[0]!, payTo: honestPayTo, price: "0.010000" },
  ];
  service = await sellingOver(world, specs, { deps: { limits: { trusted_proxies: ["127.0.0.1"] } as never } });
});
afterAll(async () => {
  slow?.closeAllConnections();
  slow?.close();
  await service?.close();
  await world?.close();
});

/** Buys as the official client does, from this network; what it paid with last stands in `payment`. */
function buyingFrom(client: string, buyer: OfficialBuyer) {
  const sent = { payment: "" };
  const fetching: typeof fetch = (input, init) => {
    const request = new Request(input as Request, init);
    request.headers.set("x-forwarded-for", client);
    sent.payment = request.headers.get("payment-signature") ?? sent.payment;
    return fetch(request);
  };
  return { sent, buy: (url: string) => buyer.over(fetching)(url), fetching };
}

test("slow calls of one network and one seller take half of the places; the others buy at once, and nothing was signed in vain", async () => {
  const wallets = await Promise.all([1, 2, 3].map(() => officialBuyer(world)));
  const victim = await officialBuyer(world);
  const buysHonest = async (query: string): Promise<{ status: number; ms: number }> => {
    const began = performance.now();
    const url = `${service.url}/v1/via/${capOf({ url: honest().urls[0]! })}?${query}`;
    const { status } = await buyingFrom("203.0.113.9", victim).buy(url);
    return { status, ms: performance.now() - began };
  };
  const alone = await buysHonest("a=1&b=2");
  expect(alone.status).toBe(200);
  const via = `${service.url}/v1/via/${capOf({ url: slowUrl() })}`;
  const calls = Array.from({ length: CALLS }, (_, i) => {
    const one = buyingFrom("198.51.100.1", wallets[i % 3]!);
    return { one, answer: one.buy(`${via}?n=${i}`) };
  });
  await expect.poll(() => held.length).toBe(VIA_AT_ONCE / 2);
  const beside = await buysHonest("a=20&b=22");
  // It waits for nobody: a machine on which it takes long takes as long without the slow calls.
  expect([beside.status, beside.ms < 8_000 + 4 * alone.ms]).toEqual([200, true]);
  // Those that got no place are told so within its wait, while the others are still held.
  const settled = new Map<number, Response>();
  for (const [i, { answer }] of calls.entries()) void answer.then((response) => settled.set(i, response));
  await expect.poll(() => settled.size).toBe(CALLS - VIA_AT_ONCE / 2);
  expect(held).toHaveLength(VIA_AT_ONCE / 2);
  for (const response of settled.values()) {
    expect([response.status, response.headers.get("retry-after")]).toEqual([429, "5"]);
  }
  // Nothing was claimed for them: the very same payment buys once there is a place.
  for (const answer of held.splice(0)) answer.writeHead(200, { "content-type": "application/json" }).end("{}");
  await Promise.all(calls.map(({ answer }) => answer));
  const refused = [...settled.keys()].find((i) => calls[i]!.one.sent.payment !== "");
  const { sent, fetching } = calls[refused!]!.one;
  paidAt = [];
  const again = fetching(`${via}?n=${refused}`, { headers: { "payment-signature": sent.payment } });
  await Promise.race([
    again.then(async (r) => {
      throw new Error(`${r.status} ${await r.text()}`);
    }),
    expect.poll(() => held.length).toBe(1),
  ]);
  held[0]!.writeHead(200, { "content-type": "application/json" }).end("{}");
  expect([(await again).status, paidAt.length]).toEqual([200, 1]);
});
