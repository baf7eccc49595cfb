import { createHash } from "node:crypto";
import { type DiscoveryExtension, validateDiscoveryExtension } from "@x402/extensions/bazaar";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { decompress } from "zstd-napi";
import { createEvmRail } from "../../../infra/rails/evm.ts";
import type { Rail } from "../../../infra/rails/rails.ts";
import type { OrderShown } from "../../../serving/schemas/orders.ts";
import type { PlanAnswer } from "../../../serving/schemas/route.ts";
import { marketBeside, officialBuyer, type Replica, sellingOver } from "../../helpers/buying.ts";
import { ORDER_CAPS } from "../../helpers/caps.ts";
import { capOf } from "../../helpers/public-record.ts";
import { TOOLS, toolSeller } from "../../helpers/tool-seller.ts";

/** Tools of MCP servers, bought over a real session and a real settlement: the market's own, and worse ones. */
let world: Awaited<ReturnType<typeof marketBeside>>;
let seller: Awaited<ReturnType<typeof toolSeller>>;
let service: Replica;
let rail: Rail;
let market: { url: string; method: "POST"; tool: string; payTo: string; price: string; class: string };

type Buyer = Awaited<ReturnType<typeof officialBuyer>>;
type Described = {
  properties: { input: { properties: { body: object } }; output: { properties: { example: object } } };
};
type Problem = { title: string; type: string; detail: string; errors?: { pointer: string; detail: string }[] };

beforeAll(async () => {
  world = await marketBeside();
  seller = await toolSeller(world);
  const { urls, payTo } = world.sellers.find(({ name }) => name === "mcp-paid")!;
  market = { url: urls[0]!, method: "POST", tool: "add", payTo, price: "0.007000", class: "arithmetic" };
  const specs = [market, ...[...Object.keys(TOOLS), "hangs-up.2"].map((name) => seller.tool(name))];
  const many = Object.fromEntries(Object.entries(ORDER_CAPS).map(([name, micro]) => [name, micro * 100n]));
  const caps = { ...many, leastPrice: 100n } as unknown as typeof ORDER_CAPS;
  service = await sellingOver(world, specs, {
    money: () => ({ caps }),
    deps: { limits: { quotes_per_domain_minute: 1e6, buys_per_minute: 1e6 } },
  });
  const { rpcUrl, asset, chainId } = world;
  rail = createEvmRail({ rpcUrl, asset, network: `eip155:${chainId}`, confirmations: 1 });
});
afterAll(async () => {
  await service?.close();
  await seller?.close();
  await world?.close();
});

type SoldTool = { url: string; method: "POST"; tool: string };
const viaOf = (spec: SoldTool) => `${service.url}/v1/via/${capOf(spec)}`;
const args = (body: unknown, headers = {}): RequestInit => ({
  method: "POST",
  headers: { "content-type": "application/json", ...headers },
  body: typeof body === "string" ? body : JSON.stringify(body),
});
const SUM = { a: 20, b: 22 };
const holds = async ({ address }: Buyer) => (await rail.balance(address)).value;
const orderOf = async (answer: Response): Promise<OrderShown> =>
  (await (await fetch(`${service.url}/v1/orders/${answer.headers.get("touchstone-order")}`)).json()) as OrderShown;
/** The buyer's payment beside its answer. */
async function bought(buyer: Buyer, url: string, init: RequestInit) {
  let paid = new Headers();
  const spying: typeof fetch = (input, inner) => {
    const request = new Request(input, inner);
    if (request.headers.has("payment-signature")) paid = request.headers;
    return fetch(request);
  };
  return { answer: await buyer.over(spying)(url, init), payment: () => paid.get("payment-signature")! };
}

describe("a tool of the market's MCP server", () => {
  test("asks its price for these arguments, and GET says how it is called", async () => {
    const answer = await fetch(viaOf(market), args(SUM));
    expect(answer.status).toBe(402);
    const terms = JSON.parse(Buffer.from(answer.headers.get("payment-required")!, "base64").toString("utf8"));
    expect(terms).toMatchObject({ x402Version: 2, accepts: [{ scheme: "exact", amount: "9000" }] });
    const got = await fetch(viaOf(market));
    expect([got.status, got.headers.get("allow")]).toEqual([405, "POST"]);
  });

  const termsOf = (answer: Response): { accepts: object[]; extensions: { bazaar: DiscoveryExtension } } =>
    JSON.parse(Buffer.from(answer.headers.get("payment-required")!, "base64").toString("utf8"));

  test.each<[string, () => SoldTool, object, object]>([
    ["the arguments of this call", () => market, SUM, SUM],
    ["what of them is missing is made up", () => seller.tool("honest"), { a: 1 }, { a: 1, b: expect.any(Number) }],
  ])("its 402 has its schemas, with an example that fits: %s", async (_, spec, sent, example) => {
    const answer = await fetch(viaOf(spec()), args(sent));
    const { bazaar } = termsOf(answer).extensions;
    expect(validateDiscoveryExtension(bazaar)).toEqual({ valid: true });
    expect(bazaar.info.input).toEqual({ type: "http", method: "POST", bodyType: "json", body: example });
    const { input, output } = (bazaar.schema as unknown as Described).properties;
    expect(input.properties.body).toMatchObject({
      type: "object",
      required: ["a", "b"],
      properties: { a: { type: expect.stringMatching(/^(?:number|integer)$/) }, b: expect.anything() },
    });
    expect(output.properties.example).toMatchObject({ properties: { sum: { type: "number" } } });
    const { accepts } = (await answer.json()) as { accepts: { outputSchema: { input: object } }[] };
    expect(accepts[0]!.outputSchema.input).toMatchObject({ bodyFields: { required: ["a", "b"] } });
  });

  test("is bought by the official client: its result is the answer, and it is charged once, after it", async () => {
    const buyer = await officialBuyer(world);
    const before = await holds(buyer);
    const { answer, payment } = await bought(buyer, viaOf(market), args(SUM));
    expect([answer.status, answer.headers.get("content-type")]).toEqual([200, "application/json"]);
    const bytes = Buffer.from(await answer.arrayBuffer());
    expect(JSON.parse(bytes.toString())).toEqual({ sum: 42 });
    expect(before - (await holds(buyer))).toBe(9_000n);
    const order = await orderOf(answer);
    expect(order).toMatchObject({ state: "settled", seller_price: "0.007000", total: "0.009000" });
    // Its arguments have the members of the class's question and no others, so the right answer is known.
    expect(order.legs[0]).toMatchObject({ class: "arithmetic", judged_by: "truth" });
    expect(order.answer).toMatchObject({
      ...{ status: 200, content_type: "application/json", base64: bytes.toString("base64") },
      sha256: createHash("sha256").update(bytes).digest("hex"),
    });
    // The same payment again is the same order; with other arguments it is another's.
    const again = await fetch(viaOf(market), args(SUM, { "payment-signature": payment() }));
    expect([again.status, Buffer.from(await again.arrayBuffer())]).toEqual([200, bytes]);
    const written = await fetch(viaOf(market), args('{ "a": 20,\n"b": 22 }', { "payment-signature": payment() }));
    expect(written.status).toBe(200);
    const other = await fetch(viaOf(market), args({ a: 1, b: 1 }, { "payment-signature": payment() }));
    expect([other.status, ((await other.json()) as Problem).type]).toEqual([409, "/docs/api#payment-used"]);
    expect(before - (await holds(buyer))).toBe(9_000n);
  });
});

describe("a tool of a server with sessions", () => {
  test("the paid call goes out in a session of its own, and what the tool gives as text is the answer", async () => {
    const buyer = await officialBuyer(world);
    for (const name of ["honest", "honest-text"]) {
      const answer = await buyer.fetch(viaOf(seller.tool(name)), args(SUM));
      expect([name, answer.status, await answer.json()]).toEqual([name, 200, { sum: 42 }]);
      const calls = seller.called.filter((one) => one.name === name);
      expect(calls).toEqual([{ name, at: `/mcp/${name}`, args: SUM, session: expect.any(String) }]);
    }
  });

  test.each([
    ["honest-cloudflare", ["string"]],
    ["honest-x402-mcp", ["object", "string"]],
  ])("a seller that takes a payment only as a string is paid once: %s", async (name, forms) => {
    const buyer = await officialBuyer(world);
    const before = await holds(buyer);
    const spec = seller.tool(name);
    const answer = await buyer.fetch(viaOf(spec), args(SUM));
    expect([answer.status, await answer.json()]).toEqual([200, { sum: 42 }]);
    expect(before - (await holds(buyer))).toBe(12_000n);
    expect(seller.called.filter((one) => one.name === name)).toHaveLength(1);
    const { orders } = service.sales.buying;
    const order = orders.table.get(answer.headers.get("touchstone-order")!)!;
    const intent = await orders.read("seller_intent", { partition: order.partition, offset: order.intentAt! });
    const { wallet: from, nonce, since_block: sinceBlock } = intent;
    expect((await rail.settlementOf({ from, nonce, sinceBlock })).value).toMatchObject({ amountAtomic: 10_000n });
    expect((await rail.transfers({ from, to: spec.payTo, sinceBlock: 0 })).value).toHaveLength(1);
    // Steps of other orders may stand between the two.
    const places = Array.from({ length: 20 }, (_, n) => ({
      partition: order.partition,
      offset: order.intentAt! + 1 + n,
    }));
    const steps = await Promise.all(places.map((place) => orders.read("seller_result", place).catch(() => null)));
    expect(steps.find((step) => step?.order === order.id)).toMatchObject({ payment_forms: forms });
  });

  test("the intent in the log names the tool, and the payment that left, before it left", async () => {
    const buyer = await officialBuyer(world);
    const answer = await buyer.fetch(viaOf(seller.tool("honest")), args({ a: 1, b: 2 }));
    const { orders } = service.sales.buying;
    const order = orders.table.get(answer.headers.get("touchstone-order")!)!;
    const intent = await orders.read("seller_intent", { partition: order.partition, offset: order.intentAt! });
    const body = '{"a":1,"b":2}';
    const named = `TOOL ${seller.origin}/mcp/honest add\n${body}`;
    expect(intent).toMatchObject({
      header_name: "x402/payment",
      request: {
        ...{ method: "POST", url: `${seller.origin}/mcp/honest`, tool: "add", body_bytes: body.length },
        ...{ sha256: createHash("sha256").update(named).digest("hex") },
        body_sha256: createHash("sha256").update(body).digest("hex"),
      },
    });
  });

  test("a published call: its files are the tool with its arguments, and its result", async () => {
    const buyer = await officialBuyer(world);
    const headers = { "touchstone-publish": "true" };
    const answer = await buyer.fetch(viaOf(seller.tool("honest")), args({ a: 3, b: 4 }, headers));
    const result = Buffer.from(await answer.arrayBuffer());
    const id = answer.headers.get("touchstone-order")!;
    const { table } = service.sales.buying.orders;
    const looked = async () => {
      await service.recovering.look();
      return table.get(id)!.recorded;
    };
    await expect.poll(looked).toBe(true);
    const fileOf = async (bytes: Buffer) => {
      const found = await service.publicStore.get(`call/${createHash("sha256").update(bytes).digest("hex")}.zst`);
      return decompress(Buffer.from(found!.bytes));
    };
    const request = Buffer.from(`TOOL ${seller.origin}/mcp/honest add\n{"a":3,"b":4}`);
    expect(await fileOf(request)).toEqual(request);
    expect(await fileOf(result)).toEqual(result);
  });
});

describe("a seller that delivers nothing that passes: nobody is charged", () => {
  test.each(Object.keys(TOOLS).filter((name) => !name.startsWith("honest")))("%s", async (name) => {
    const buyer = await officialBuyer(world);
    const before = await holds(buyer);
    const spec = seller.tool(name);
    const { answer, payment } = await bought(buyer, viaOf(spec), args(SUM));
    expect([answer.status, ((await answer.json()) as Problem).type]).toEqual([502, "/docs/api#seller-failed"]);
    const again = await fetch(viaOf(spec), args(SUM, { "payment-signature": payment() }));
    expect([again.status, again.headers.get("touchstone-order")]).toEqual([
      502,
      answer.headers.get("touchstone-order"),
    ]);
    const order = await orderOf(answer);
    expect(order).toMatchObject({ state: "released", charged: null, answer: null, legs: [{ passed: false }] });
    // Only the chain says whether its seller was paid.
    const { orders } = service.sales.buying;
    const [leg] = orders.table.get(order.order_id)!.legs;
    const { wallet: from, nonce, sinceBlock } = leg!;
    const settled = (await rail.settlementOf({ from, nonce, sinceBlock })).value;
    expect(settled !== null).toBe(TOOLS[name]!.takes);
    // One that broke off before the call never saw the payment.
    const calls = seller.called.filter((one) => one.name === name).length;
    expect(calls).toBe(TOOLS[name]!.welcome ? 0 : 1);
    expect(await holds(buyer)).toBe(before);
  });
});

describe("what is no call of a tool is refused before anybody is asked", () => {
  test.each<[string, string, RequestInit, string, RegExp]>([
    ["no JSON", "", args("{a:1}"), "", /must be a JSON object/],
    ["a list", "", args([1, 2]), "", /must be a JSON object/],
    ["nested too deep", "", args(`{"a":${"[".repeat(200)}${"]".repeat(200)}}`), "", /must be a JSON object/],
    ["a number that another would be sent for", "", args('{"a":9007199254740993}'), "/a", /past 2\^53/],
    ["half a character", "", args('{"a":"\\ud800"}'), "/a", /cannot be sent/],
    ["arguments in the query", "?a=1&b=2", args(SUM), "/query/a", /its arguments are the body/],
  ])("%s", async (_, query, init, pointer, says) => {
    const answer = await fetch(viaOf(seller.tool("honest")) + query, init);
    const problem = (await answer.json()) as Problem;
    expect([answer.status, problem.type]).toEqual([422, "/docs/api#bad-input"]);
    expect(problem.errors?.[0]).toEqual({ pointer, detail: expect.stringMatching(says) });
  });

  test("arguments that the tool itself refuses: its own words, and nothing is bought", async () => {
    const answer = await fetch(viaOf(seller.tool("honest")), args({ a: "x" }));
    const { type, title, detail } = (await answer.json()) as Problem;
    expect([answer.status, type, title, detail]).toEqual([
      502,
      "/docs/api#no-price",
      "The seller named no price for this call; nothing was bought",
      "The seller did not ask for payment (the tool failed: Invalid arguments: a is no number). Nothing was bought.",
    ]);
  });
});

describe("a route", () => {
  test("a plan names the tool that a candidate is", async () => {
    const asked = args({ need: "mcp add", limit: 20 });
    const plan = (await (await fetch(`${service.url}/v1/route/plan`, asked)).json()) as PlanAnswer;
    const found = plan.candidates.find(({ url }) => url === market.url);
    expect(found).toMatchObject({ tool: "add", method: "POST", variables: [] });
  });

  test("an execution falls back from a tool that breaks off to one that answers, for one charge", async () => {
    const buyer = await officialBuyer(world);
    const before = await holds(buyer);
    const caps = [seller.tool("hangs-up.2"), seller.tool("honest-text")].map(capOf);
    const asked = args({ capability_ids: caps, input: { body: SUM }, max_total: "0.05" });
    const answer = await buyer.fetch(`${service.url}/v1/route/execute`, asked);
    expect([answer.status, await answer.json()]).toEqual([200, { sum: 42 }]);
    expect(before - (await holds(buyer))).toBe(12_000n);
  });

  test("a query is not for tools, and who fits nowhere is told why", async () => {
    const asked = { capability_ids: [capOf(market)], input: { query: { a: "1" } }, max_total: "0.05" };
    const answer = await fetch(`${service.url}/v1/route/execute`, args(asked));
    expect([answer.status, ((await answer.json()) as { error: string }).error]).toEqual([
      402,
      expect.stringContaining("query/a is not sent to a tool"),
    ]);
  });
});
