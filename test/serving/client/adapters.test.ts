import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { x402Client, x402HTTPClient } from "@x402/core/client";
import { ExactEvmScheme } from "@x402/evm/exact/client";
import { ExactEvmSchemeV1 } from "@x402/evm/exact/v1/client";
import { wrapFetchWithPayment } from "@x402/fetch";
import { evm, Mppx } from "mppx/client";
import { privateKeyToAccount } from "viem/accounts";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import {
  guard,
  guardClient,
  guardedFetch,
  guardTools,
  mppxChallenge,
  PaymentRefused,
} from "../../../serving/client/index.ts";
import { marketUp } from "../../fixtures/market/up.ts";
import { fundedKey, type LiveService, liveService, peer } from "../../helpers/client.ts";
import { cardOf, type EndpointSpec, listingDraft, PublicRecord, rowOf } from "../../helpers/public-record.ts";

/** Real sellers on a real chain, the official clients, and a record that thinks well of some of them. */
const native = { Request, Response };
const market = marketUp();
let record: PublicRecord;
let live: LiveService;
let account: ReturnType<typeof privateKeyToAccount>;

/** An endpoint of a seller in the record: its url, and what its 402s asked. */
const specOf = (name: string, more: Partial<EndpointSpec> = {}): EndpointSpec => ({
  url: market.seller(name).urls[0]!,
  ...more,
});
const pathOf = (name: string): string => `${market.seller(name).urls[0]}?a=20&b=22`;

beforeAll(async () => {
  record = await PublicRecord.open();
  const good = ["honest-v2", "mpp", "pay-to-changer"].map((name) => specOf(name));
  const bad = ["honest-v1", "v2-in-body"].map((name) => specOf(name));
  const tool = specOf("mcp-paid", { tool: "add", method: "POST" });
  await record.publish(
    [...good, ...bad, tool].map(listingDraft),
    ...good.map((spec) => record.grades([cardOf(spec)], "B: it delivers.")),
    ...[...bad, tool].map((spec) => record.grades([cardOf(spec, { band: "F" })], "F: it fails.")),
  );
  const priced = { price: "0.010000", asset: market.world.info.asset };
  const rows = (names: string[]) =>
    names.map((name) => rowOf(specOf(name), { ...priced, pay_to: market.seller(name).payTo }));
  await record.live(rows(["honest-v2", "mpp", "pay-to-changer", "honest-v1", "v2-in-body"]));
  // The sellers' servers put classes of their own in the place of the runtime's, which the service does not take for such.
  Object.assign(globalThis, native);
  live = await liveService(record);
  account = privateKeyToAccount(await fundedKey(market.world.info));
});
afterAll(async () => {
  await live?.close();
  await record?.close();
});

const wallet = (): x402Client =>
  new x402Client()
    .register("eip155:*", new ExactEvmScheme(account))
    .registerV1("base-sepolia", new ExactEvmSchemeV1(account));

/** Payments that reached a seller. */
const paidAt = async (name: string): Promise<number> =>
  (await market.ledgerOf(name)).filter(({ nonce }) => nonce !== undefined).length;

describe("a fetch below the wallet", () => {
  test("lets the official client pay what is good", async () => {
    const seen: string[] = [];
    const below = guardedFetch(guard(live.client()), {
      onDecision: ({ outcome }, url) => seen.push(`${outcome} ${url}`),
    });
    const response = await wrapFetchWithPayment(below, wallet())(pathOf("honest-v2"));
    expect([response.status, await response.json()]).toEqual([200, { sum: 42 }]);
    expect(response.headers.get("payment-response")).toEqual(expect.any(String));
    expect(seen).toEqual([`allowed ${pathOf("honest-v2")}`]);
    expect(await paidAt("honest-v2")).toBe(1);
  });

  test.each(["honest-v1", "v2-in-body"])("answers 403 in the place of a 402 of %s, which fails", async (name) => {
    const before = await paidAt(name);
    const response = await wrapFetchWithPayment(guardedFetch(guard(live.client())), wallet())(pathOf(name));
    expect([response.status, response.headers.get("content-type")]).toEqual([403, "application/problem+json"]);
    expect(await response.json()).toMatchObject({
      ...{ title: "Payment refused", status: 403, detail: "F: it fails.", refused_by: "touchstone-client" },
      ...{ outcome: "refused", reason: "failing", answer: { band: "F", signature: expect.any(String) } },
    });
    expect(await paidAt(name)).toBe(before);
  });

  test("answers 403 where the service cannot be asked, unless told to pay then", async () => {
    const { url, close } = await peer((request) => void request.socket.destroy());
    const service = live.client({ base: url });
    const refused = await guardedFetch(guard(service))(pathOf("honest-v2"));
    expect([refused.status, await refused.json()]).toMatchObject([
      403,
      { title: "Payment not checked", fault: "unreachable" },
    ]);
    const passed = await guardedFetch(guard(service, { notAsked: "pay" }))(pathOf("honest-v2"));
    expect(passed.status).toBe(402);
    // The 402 is whole, although its body was read on the way.
    expect(await passed.text()).toBe(await (await fetch(pathOf("honest-v2"))).text());
    await close();
  });

  test("asks about the host that a redirect ended at", async () => {
    const { url, close } = await peer((_, response) =>
      response.writeHead(302, { location: pathOf("honest-v1") }).end(),
    );
    expect((await guardedFetch(guard(live.client()))(`${url}/free`)).status).toBe(403);
    await close();
  });

  test.each([
    ["a header that is no base64", { "payment-required": "%%%" }, "{}"],
    ["a challenge that is none", { "www-authenticate": 'Payment id="1", method="evm", request="%"' }, ""],
    ["a body without end", {}, "x".repeat(2_000_000)],
  ])("refuses terms that it cannot read: %s", async (_, headers, body) => {
    const { url, close } = await peer((_request, response) => response.writeHead(402, headers).end(body));
    const response = await guardedFetch(guard(live.client()))(url);
    expect([response.status, ((await response.json()) as { reason: string }).reason]).toEqual([
      403,
      "unreadable_terms",
    ]);
    await close();
  });

  test("leaves alone what is no 402, and asks nobody", async () => {
    live.asked.length = 0;
    expect((await guardedFetch(guard(live.client()))(`${market.seller("honest-v2").origin}/nothing`)).status).toBe(404);
    expect(live.asked).toEqual([]);
  });
});

describe("a hook of the official client", () => {
  test("lets pay what is good, and stops the rest before anything is signed", async () => {
    const http = guardClient(new x402HTTPClient(wallet()), guard(live.client()));
    const paying = wrapFetchWithPayment(fetch, http);
    expect(await (await paying(pathOf("honest-v2"))).json()).toEqual({ sum: 42 });
    const before = await paidAt("honest-v1");
    await expect(paying(pathOf("honest-v1"))).rejects.toThrow("Payment creation aborted: F: it fails.");
    expect(await paidAt("honest-v1")).toBe(before);
  });

  test("on the client itself goes by the resource that the 402 names, or by the url that it is told", async () => {
    const client = guardClient(wallet(), guard(live.client()));
    await expect(wrapFetchWithPayment(fetch, client)(pathOf("honest-v1"))).rejects.toThrow("F: it fails.");
    const told = guardClient(wallet(), guard(live.client()), { url: pathOf("honest-v1") });
    await expect(wrapFetchWithPayment(fetch, told)(pathOf("honest-v2"))).rejects.toThrow("F: it fails.");
  });

  test("is not misled by a 402 that names a better seller", async () => {
    const { accepts } = (await wanted("honest-v2")) as { accepts: unknown[] };
    const lie = { x402Version: 2, resource: { url: pathOf("honest-v2") }, accepts };
    const header = Buffer.from(JSON.stringify(lie)).toString("base64");
    const { url, close } = await peer((_, response) => response.writeHead(402, { "payment-required": header }).end());
    const asked: string[] = [];
    const onDecision = (_: unknown, at: string) => void asked.push(at);
    const strict = guard(live.client(), { unrated: "refuse" });
    const http = guardClient(new x402HTTPClient(wallet()), strict, { onDecision });
    await expect(wrapFetchWithPayment(fetch, http)(`${url}/x`)).rejects.toThrow("Payment creation aborted");
    expect(asked).toEqual([`${url}/x`]);
    await close();
  });

  test("stops a payment to another address than the record knows", async () => {
    const { accepts } = (await wanted("honest-v2")) as { accepts: object[] };
    const terms = { x402Version: 2, resource: { url: pathOf("honest-v2") } };
    const stolen = accepts.map((entry) => ({ ...entry, payTo: "0x2222222222222222222222222222222222222222" }));
    const client = guardClient(wallet(), guard(live.client()));
    await expect(client.createPaymentPayload({ ...terms, accepts: stolen } as never)).rejects.toThrow("pay_to_unknown");
    expect(await client.createPaymentPayload({ ...terms, accepts } as never)).toHaveProperty("payload");
  });
});

/** Terms of a seller's 402. */
async function wanted(name: string): Promise<unknown> {
  const { headers } = await fetch(pathOf(name));
  return JSON.parse(Buffer.from(headers.get("payment-required")!, "base64").toString());
}

describe("mppx", () => {
  const methods = () => [evm.charge({ account, authorization: { name: "USDC", version: "2" } })];

  test("pays through the fetch below it what is good, and sees no challenge of what is refused", async () => {
    const below = guardedFetch(guard(live.client()));
    const paid = await Mppx.create({ fetch: below, methods: methods(), polyfill: false }).fetch(pathOf("mpp"));
    expect([paid.status, await paid.json()]).toEqual([200, { sum: 42 }]);
    const before = await paidAt("mpp");
    const strict = guardedFetch(guard(live.client(), { atLeast: "A" }));
    const refused = await Mppx.create({ fetch: strict, methods: methods(), polyfill: false }).fetch(pathOf("mpp"));
    expect([refused.status, await paidAt("mpp")]).toEqual([403, before]);
  });

  test("is stopped by its own hook too", async () => {
    const before = await paidAt("mpp");
    const onChallenge = mppxChallenge(guard(live.client(), { atLeast: "A" }), pathOf("mpp"));
    const strict = Mppx.create({ methods: methods(), polyfill: false, onChallenge });
    await expect(strict.fetch(pathOf("mpp"))).rejects.toThrow(PaymentRefused);
    expect(await paidAt("mpp")).toBe(before);
    const lax = Mppx.create({
      ...{ methods: methods(), polyfill: false },
      onChallenge: mppxChallenge(guard(live.client()), pathOf("mpp")),
    });
    expect((await lax.fetch(pathOf("mpp"))).status).toBe(200);
  });

  test("with a share for somebody whom the record does not know is refused", async () => {
    const response = await fetch(pathOf("mpp"));
    const [, request] = /request="([^"]+)"/.exec(response.headers.get("www-authenticate")!)!;
    const read = JSON.parse(Buffer.from(request!, "base64url").toString());
    const splits = [{ recipient: "0x2222222222222222222222222222222222222222", amount: "7000" }];
    const challenge = { method: "evm", request: { ...read, methodDetails: { ...read.methodDetails, splits } } };
    const ask = mppxChallenge(guard(live.client()), pathOf("mpp"));
    await expect(ask(challenge)).rejects.toThrow("pay_to_unknown");
    await expect(ask({ method: "evm", request: read })).resolves.toBeUndefined();
  });
});

test("an MCP tool that is refused asks for nothing, and what it answers without asking for money passes", async () => {
  const server = market.seller("mcp-paid").urls[0]!;
  const client = new Client({ name: "test", version: "1.0.0" });
  await client.connect(new StreamableHTTPClientTransport(new URL(server)));
  const call = { name: "add", arguments: { a: 20, b: 22 } };
  const refused = await guardTools(client, guard(live.client()), server).callTool(call);
  expect(refused).toEqual({ isError: true, content: [{ type: "text", text: "Payment refused: F: it fails." }] });
  const lax = await guardTools(client, guard(live.client(), { flags: [] }), `${server}-other`).callTool(call);
  expect(lax.structuredContent).toMatchObject({ x402Version: 2, accepts: [{ payTo: expect.any(String) }] });
  await client.close();
});
