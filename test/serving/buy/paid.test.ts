import { decodePaymentRequiredHeader, decodePaymentResponseHeader } from "@x402/core/http";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { createEvmRail } from "../../../infra/rails/evm.ts";
import type { Rail } from "../../../infra/rails/rails.ts";
import { NotBought } from "../../../pipelines/orders/buying.ts";
import { marketBeside, officialBuyer, type Replica, sellingOver } from "../../helpers/buying.ts";

/** Our own paid operations, bought over HTTP by the protocol's own client on the local chain. */
let world: Awaited<ReturnType<typeof marketBeside>>;
let service: Replica;
let rail: Rail;

beforeAll(async () => {
  world = await marketBeside();
  service = await sellingOver(world, []);
  const { rpcUrl, asset, chainId } = world;
  rail = createEvmRail({ rpcUrl, asset, network: `eip155:${chainId}`, confirmations: 1 });
});
afterAll(async () => {
  await service?.close();
  await world?.close();
});

const PATHS = ["/v1/docs/extract", "/v1/web/evidence", "/v1/research/brief"];
const page = Buffer.from(
  "<!doctype html><html><head><title>T</title></head><body><h1>One</h1><p>Two words.</p></body></html>",
).toString("base64");
const post = (body: unknown): RequestInit => ({
  ...{ method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) },
});

test.each(PATHS)("%s asks for 0.020000 before it looks at the body", async (path) => {
  for (const body of [post({}), { method: "POST", body: "no json" }, { method: "POST" }]) {
    const answer = await fetch(service.url + path, body);
    expect(answer.status).toBe(402);
    expect(await answer.json()).toMatchObject({ accepts: [{ maxAmountRequired: "20000", payTo: service.till }] });
  }
});

test("without a register a lookup has no price, and no description names it", async () => {
  const answer = await fetch(`${service.url}/v1/companies/lookup`, post({ name: "Acme" }));
  expect([answer.status, answer.headers.get("payment-required")]).toEqual([503, null]);
  for (const path of ["/openapi.json", "/.well-known/x402", "/llms.txt"]) {
    const text = await (await fetch(service.url + path)).text();
    expect([path, text.includes("/v1/companies/lookup"), text.includes("/v1/web/evidence")]).toEqual([
      path,
      false,
      true,
    ]);
  }
});

test("a document is extracted and charged once, and the same payment again gives the same bytes", async () => {
  const buyer = await officialBuyer(world);
  const before = (await rail.balance(buyer.address)).value;
  let payment = "";
  const spying: typeof fetch = async (input, init) => {
    payment = (input instanceof Request ? input.headers : new Headers()).get("payment-signature") ?? payment;
    return fetch(input, init);
  };
  const answer = await buyer.over(spying)(`${service.url}/v1/docs/extract`, post({ bytes: page }));
  const text = await answer.text();
  expect([answer.status, text]).toEqual([200, expect.stringContaining("Two words.")]);
  expect(JSON.parse(text)).toMatchObject({ kind: "html", headings: [{ level: 1, text: "One" }] });
  expect(before - (await rail.balance(buyer.address)).value).toBe(20_000n);
  const again = post({ bytes: page });
  const headers = { ...(again.headers as Record<string, string>), "payment-signature": payment };
  const same = await fetch(`${service.url}/v1/docs/extract`, { ...again, headers });
  expect([same.status, await same.text()]).toEqual([200, text]);
  const other = await fetch(`${service.url}/v1/docs/extract`, { ...post({ bytes: page, part: "main" }), headers });
  expect([other.status, (await other.json()) as object]).toEqual([
    409,
    expect.objectContaining({ type: "/docs/api#payment-used" }),
  ]);
  expect(before - (await rail.balance(buyer.address)).value).toBe(20_000n);
});

test.each([
  ["/v1/docs/extract", { bytes: Buffer.from([0, 1, 2, 3, 255]).toString("base64") }, 422],
  ["/v1/docs/extract", {}, 400],
  ["/v1/web/evidence", { url: "http://127.0.0.1:9/" }, 422],
  ["/v1/research/brief", { question: "Which sellers are thieves?" }, 422],
  ["/v1/research/brief", { question: "What is the boiling point of helium?" }, 422],
])("%s with %j is work that cannot be done, and costs nothing", async (path, body, status) => {
  const buyer = await officialBuyer(world);
  const before = (await rail.balance(buyer.address)).value;
  const answer = await buyer.fetch(service.url + path, post(body));
  expect([answer.status, answer.headers.get("content-type")]).toEqual([status, "application/problem+json"]);
  expect((await rail.balance(buyer.address)).value).toBe(before);
});

/** What the client sent, to be sent again. */
function spied() {
  const sent = { payment: "" };
  const spying: typeof fetch = async (input, init) => {
    sent.payment = (input instanceof Request ? input.headers : new Headers()).get("payment-signature") ?? sent.payment;
    return fetch(input, init);
  };
  const again = (path: string, body: unknown) => {
    const headers = { "content-type": "application/json", "payment-signature": sent.payment };
    return fetch(service.url + path, { method: "POST", headers, body: JSON.stringify(body) });
  };
  return { spying, again };
}

test.each([
  ["/v1/docs/extract", { bytes: Buffer.from([0, 1, 2, 3, 255]).toString("base64") }, 422],
  ["/v1/web/evidence", { url: "http://127.0.0.1:9/" }, 422],
])("%s with %j is answered with the same problem each time that the same payment comes", async (path, body, status) => {
  const buyer = await officialBuyer(world);
  const { spying, again } = spied();
  const first = await buyer.over(spying)(service.url + path, post(body));
  const problem = await first.json();
  expect([first.status, first.headers.get("touchstone-order")]).toEqual([status, expect.stringMatching(/^ord_/)]);
  expect(first.headers.get("retry-after")).toBe(status === 503 ? "5" : null);
  for (let n = 0; n < 2; n++) {
    const answer = await again(path, body);
    expect([answer.status, await answer.json()]).toEqual([status, problem]);
    expect(answer.headers.get("touchstone-order")).toBe(first.headers.get("touchstone-order"));
    expect(answer.headers.get("retry-after")).toBe(first.headers.get("retry-after"));
  }
});

test("after a 503 whose cause is gone the same payment buys, and is charged once", async () => {
  const buyer = await officialBuyer(world);
  const before = (await rail.balance(buyer.address)).value;
  const { spying, again } = spied();
  const put = vi.spyOn(service.sales.buying.objects, "putAnswer").mockResolvedValueOnce(false);
  const first = await buyer.over(spying)(`${service.url}/v1/docs/extract`, post({ bytes: page }));
  put.mockRestore();
  expect([first.status, first.headers.get("retry-after")]).toEqual([503, "5"]);
  expect((await rail.balance(buyer.address)).value).toBe(before);
  for (let n = 0; n < 2; n++) {
    const answer = await again("/v1/docs/extract", { bytes: page });
    expect([answer.status, await answer.text()]).toEqual([200, expect.stringContaining("Two words.")]);
    expect(before - (await rail.balance(buyer.address)).value).toBe(20_000n);
  }
});

test.each([
  ["0.000000", "insufficient_funds"],
  [null, "unexpected_settle_error"],
])(
  "a charge that failed for good (its payer held %s) is a 402 whose PAYMENT-RESPONSE says why",
  async (held, reason) => {
    const buyer = await officialBuyer(world);
    const { spying, again } = spied();
    await buyer.over(spying)(`${service.url}/v1/docs/extract`, post({ bytes: page }));
    const { buying } = service.sales;
    const outcome = vi.spyOn(buying, "waitForOutcome").mockImplementationOnce(async (order) => {
      return { ...order, state: "written_off", charged: null, refusedAt: held };
    });
    const answer = await again("/v1/docs/extract", { bytes: page });
    outcome.mockRestore();
    expect(answer.status).toBe(402);
    expect(decodePaymentResponseHeader(answer.headers.get("payment-response")!)).toMatchObject({
      ...{ success: false, errorReason: reason, transaction: "", network: "eip155:84532", payer: buyer.address },
    });
    expect(decodePaymentRequiredHeader(answer.headers.get("payment-required")!)).toMatchObject({
      error: reason,
      accepts: [],
    });
    expect(answer.headers.get("access-control-expose-headers")).toBe("*");
  },
);

test("where it cannot be sold now the buyer is told as of a call: a 402 that offers nothing", async () => {
  const buyer = await officialBuyer(world);
  const before = (await rail.balance(buyer.address)).value;
  const sell = vi
    .spyOn(service.sales.buying, "sell")
    .mockRejectedValueOnce(new NotBought("The chain is out of reach."));
  const answer = await buyer.fetch(`${service.url}/v1/docs/extract`, post({ bytes: page }));
  expect(sell).toHaveBeenCalledOnce();
  expect([answer.status, await answer.json()]).toEqual([
    402,
    { x402Version: 1, error: "The chain is out of reach.", accepts: [] },
  ]);
  expect((await rail.balance(buyer.address)).value).toBe(before);
});
