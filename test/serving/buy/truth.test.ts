import { afterAll, beforeAll, expect, test } from "vitest";
import { createEvmRail } from "../../../infra/rails/evm.ts";
import type { Rail } from "../../../infra/rails/rails.ts";
import type { OrderShown } from "../../../serving/schemas/orders.ts";
import { marketBeside, officialBuyer, type Replica, sellingOver } from "../../helpers/buying.ts";
import { capOf } from "../../helpers/public-record.ts";

/**
 * What "passed" means, over real settlement: a seller that lies on the buyer's own input, and what a buyer itself expects.
 * What the 402 promises is what ran.
 */
let world: Awaited<ReturnType<typeof marketBeside>>;
let service: Replica;
let rail: Rail;

const sellerOf = (name: string) => world.sellers.find((one) => one.name === name)!;
const capNamed = (name: string) => capOf({ url: sellerOf(name).urls[0]! });
const viaOf = (name: string, query = "a=103&b=9") => `${service.url}/v1/via/${capNamed(name)}?${query}`;
const orderOf = async (answer: Response): Promise<OrderShown> =>
  (await (await fetch(`${service.url}/v1/orders/${answer.headers.get("touchstone-order")}`)).json()) as OrderShown;
const termsOf = async (answer: Response) => {
  const header = JSON.parse(Buffer.from(answer.headers.get("payment-required")!, "base64").toString("utf8"));
  return { header, body: (await answer.json()) as { guarantee: string; accepts: object[] } };
};
const sending = (expected: unknown) => ({ headers: { "touchstone-expect": JSON.stringify(expected) } });

beforeAll(async () => {
  world = await marketBeside();
  const sold = (name: string, price: string) => {
    const { urls, payTo } = sellerOf(name);
    return { url: urls[0]!, payTo, price, band: "A" as const };
  };
  service = await sellingOver(world, [sold("honest-v2", "0.010000"), sold("liar", "0.010000")]);
  const { rpcUrl, asset, chainId } = world;
  rail = createEvmRail({ rpcUrl, asset, network: `eip155:${chainId}`, confirmations: 1 });
});
afterAll(async () => {
  await service?.close();
  await world?.close();
});

const TRUTH =
  "You are charged only if the answer is right: your input fixes the right answer of the class arithmetic, and we know it.";

test("before anybody pays, the 402 names the check that will run, in both versions", async () => {
  const { header, body } = await termsOf(await fetch(viaOf("honest-v2")));
  expect(body.guarantee).toBe(TRUTH);
  expect(header.resource.description).toContain(TRUTH);
  // Another member of the input could ask for another answer: then nothing is promised of the truth.
  const other = await termsOf(await fetch(viaOf("honest-v2", "a=103&b=9&topic=stones")));
  expect(other.body.guarantee).toBe(
    "You are charged only if the answer fits the JSON Schema that the seller itself advertises; whether it is true is not checked.",
  );
});

test("an honest answer passes by the truth, and the order, its leg and the answer say so", async () => {
  const buyer = await officialBuyer(world);
  const answer = await buyer.fetch(viaOf("honest-v2"));
  expect([answer.status, answer.headers.get("touchstone-judged-by")]).toEqual([200, "truth"]);
  const { legs, expect: expected } = await orderOf(answer);
  expect(legs[0]).toMatchObject({ class: "arithmetic", judged_by: "truth", passed: true });
  expect(legs[0]!.checks).toContainEqual({ name: "truth", ok: true });
  expect(expected).toBeNull();
});

test("what the guarantee names is what ran, for an input that fixes nothing", async () => {
  const buyer = await officialBuyer(world);
  const answer = await buyer.fetch(viaOf("honest-v2", "a=103&b=9&topic=stones"));
  const { legs } = await orderOf(answer);
  expect(legs[0]).toMatchObject({ judged_by: "schema", passed: true });
  expect(legs[0]!.checks.map(({ name }) => name)).not.toContain("truth");
  expect(legs[0]!.checks).toContainEqual({ name: "schema", ok: true });
});

/** The terms that a buyer saw promised the truth, whatever the seller's newest ones allow. */
const promising: typeof fetch = async (input, init) => {
  const answer = await fetch(input, init);
  const header = answer.headers.get("payment-required");
  if (header === null) return answer;
  const terms = JSON.parse(Buffer.from(header, "base64").toString("utf8"));
  terms.resource.description = `A call bought through Touchstone. ${TRUTH}`;
  const headers = new Headers(answer.headers);
  headers.set("payment-required", Buffer.from(JSON.stringify(terms)).toString("base64"));
  return new Response(await answer.text(), { status: answer.status, headers });
};

test("what was promised when it was paid is checked, or nothing is bought", async () => {
  const buyer = await officialBuyer(world);
  const before = (await rail.balance(buyer.address)).value;
  const answer = await buyer.over(promising)(viaOf("honest-v2", "a=103&b=9&topic=stones"));
  const body = (await answer.json()) as { error: string; guarantee: string };
  expect([answer.status, body.error, body.guarantee]).toEqual([
    402,
    "guarantee_changed",
    expect.stringContaining("JSON Schema"),
  ]);
  expect((await rail.balance(buyer.address)).value).toBe(before);
  // Terms that promise as much as can be checked, or less, are no reason to refuse.
  const again = await (await officialBuyer(world)).over(promising)(viaOf("honest-v2"));
  expect([again.status, again.headers.get("touchstone-judged-by")]).toEqual([200, "truth"]);
});

/** Expectations of an answer `{"sum":112}`, and which check of theirs fails; null: it passes. */
const EXPECTATIONS: readonly [object, string | null][] = [
  [{ jsonpath: { path: "$.sum", value: 112 } }, null],
  [{ jsonpath: { path: "$.sum" } }, null],
  [{ jsonpath: { path: "$.sum", value: "112" } }, "expect_jsonpath"],
  [{ jsonpath: { path: "$.total" } }, "expect_jsonpath"],
  [{ regex: '^\\{"sum":1+2\\}$', min_length: 11 }, null],
  [{ regex: "(1+)+3" }, "expect_regex"],
  [{ min_length: 12 }, "expect_min_length"],
  [{ schema: { type: "object", required: ["sum"], properties: { sum: { minimum: 100 } } } }, null],
  [{ schema: { properties: { sum: { maximum: 100 } } } }, "expect_schema"],
];

test("a buyer's own expectation decides too, and a seller that did its part is not blamed for it", async () => {
  for (const [expected, failed] of EXPECTATIONS) {
    const buyer = await officialBuyer(world);
    const before = (await rail.balance(buyer.address)).value;
    const answer = await buyer.fetch(viaOf("honest-v2"), sending(expected));
    const charged = before - (await rail.balance(buyer.address)).value;
    expect([expected, answer.status, charged]).toEqual([expected, failed ? 502 : 200, failed ? 0n : 12_000n]);
    const order = await orderOf(answer);
    expect(order.expect).toEqual(expected);
    expect(order.legs[0]!.checks.filter(({ ok }) => !ok).map(({ name }) => name)).toEqual(failed ? [failed] : []);
    // Values of an answer that nobody paid for stand nowhere in the order.
    if (failed) expect(JSON.stringify(order.legs[0]!.checks)).not.toContain("112");
  }
  const { body } = await termsOf(await fetch(viaOf("honest-v2"), sending(EXPECTATIONS[4]![0])));
  expect(body.guarantee).toBe(
    TRUTH.replace(/\.$/, "; and only if it also matches your expression, is as long as you ask."),
  );
  // Nobody's money is held where the outcome is in its buyer's own hands.
  expect(body.accepts).toHaveLength(1);
});

/** What cannot be expected, and where the fault is. */
const REFUSED: readonly [unknown, string][] = [
  [{}, ""],
  [{ regex: "(?=a)" }, "/regex"],
  [{ regex: "(a)\\1" }, "/regex"],
  [{ regex: "((a{100}){100}){100}" }, "/regex"],
  [{ jsonpath: { path: "sum" } }, "/jsonpath/path"],
  [{ jsonpath: { path: "$..a..b" } }, "/jsonpath/path"],
  [{ jsonpath: { path: '$[?match(@.a, "(a+)+b")]' } }, "/jsonpath/path"],
  [{ jsonpath: { path: "$[?nobody(@.a)]" } }, "/jsonpath/path"],
  [{ jsonpath: { path: "$.id", value: 9_007_199_254_740_992 } }, "/jsonpath/value"],
  [{ jsonpath: { path: "$[?@.id==9007199254740993]" } }, "/jsonpath/path"],
  [{ schema: { enum: [9_007_199_254_740_992] } }, "/schema/enum/0"],
  [{ schema: { type: "nothing" } }, "/schema"],
  [{ schema: { $ref: "https://elsewhere.example/" } }, "/schema"],
  [{ schema: true }, "/schema"],
  [{ min_length: 0 }, "/min_length"],
  [{ regex: "a", min_length: "5" }, "/min_length"],
  [{ schema: { description: "x".repeat(5_000) } }, ""],
];

test("an expectation that cannot be used is refused before anybody is asked, at its place", async () => {
  for (const [expected, pointer] of REFUSED) {
    const via = await fetch(viaOf("honest-v2"), sending(expected));
    const problem = (await via.json()) as { errors: { pointer: string }[] };
    expect([expected, via.status, problem.errors[0]!.pointer]).toEqual([
      expected,
      400,
      `/headers/Touchstone-Expect${pointer}`,
    ]);
    const body = { capability_ids: [capNamed("honest-v2")], max_total: "0.05", expect: expected };
    const execute = await fetch(`${service.url}/v1/route/execute`, { method: "POST", body: JSON.stringify(body) });
    const told = (await execute.json()) as typeof problem;
    expect([expected, execute.status, told.errors[0]!.pointer]).toEqual([expected, 400, `/expect${pointer}`]);
  }
  for (const text of ["no json", "[]", '"a"']) {
    const answer = await fetch(viaOf("honest-v2"), { headers: { "touchstone-expect": text } });
    expect([text, answer.status]).toEqual([text, 400]);
  }
});

test("the same payment with another expectation is another request", async () => {
  const buyer = await officialBuyer(world);
  let paid = new Headers();
  const spying: typeof fetch = (input, init) => {
    const request = new Request(input, init);
    if (request.headers.has("payment-signature")) paid = request.headers;
    return fetch(request);
  };
  const url = viaOf("honest-v2", "a=1&b=2");
  const first = await buyer.over(spying)(url, sending({ min_length: 3 }));
  expect(first.status).toBe(200);
  const again = new Headers(paid);
  expect((await fetch(url, { headers: again })).status).toBe(200);
  again.set("touchstone-expect", '{"min_length":4}');
  expect((await fetch(url, { headers: again })).status).toBe(409);
  again.delete("touchstone-expect");
  expect((await fetch(url, { headers: again })).status).toBe(409);
});

test("execute: the expectation of its body decides, and stands in the order", async () => {
  const buyer = await officialBuyer(world);
  const body = (value: number) =>
    JSON.stringify({
      ...{ capability_ids: [capNamed("honest-v2")], input: { query: { a: "103", b: "9" } }, max_total: "0.05" },
      expect: { jsonpath: { path: "$.sum", value } },
    });
  const post = (value: number) => buyer.fetch(`${service.url}/v1/route/execute`, { method: "POST", body: body(value) });
  expect((await post(112)).status).toBe(200);
  const failed = await post(93);
  expect([failed.status, (await orderOf(failed)).expect]).toEqual([502, { jsonpath: { path: "$.sum", value: 93 } }]);
});

test("execute: what was promised when it was paid is checked, or nobody is paid", async () => {
  const buyer = await officialBuyer(world);
  const before = (await rail.balance(buyer.address)).value;
  const asking = (query: Record<string, string>) => ({
    method: "POST",
    body: JSON.stringify({ capability_ids: [capNamed("honest-v2")], input: { query }, max_total: "0.05" }),
  });
  const execute = `${service.url}/v1/route/execute`;
  const other = { a: "103", b: "9", topic: "stones" };
  const answer = await buyer.over(promising)(execute, asking(other));
  const { body } = await termsOf(answer);
  expect([answer.status, body]).toEqual([
    402,
    expect.objectContaining({ error: "guarantee_changed", guarantee: expect.stringContaining("JSON Schema") }),
  ]);
  expect((await rail.balance(buyer.address)).value).toBe(before);
  expect(service.sales.buying.orders.table.ofPayer(buyer.address)).toEqual([]);
  // Whoever saw these terms, or better ones can be kept: bought.
  const seen = await buyer.fetch(execute, asking(other));
  expect([seen.status, seen.headers.get("touchstone-judged-by")]).toEqual([200, "schema"]);
  const kept = await buyer.over(promising)(execute, asking({ a: "103", b: "9" }));
  expect([kept.status, kept.headers.get("touchstone-judged-by")]).toEqual([200, "truth"]);
});

test("a seller that lies on the buyer's own input fails, and nobody is charged", async () => {
  const buyer = await officialBuyer(world);
  const before = (await rail.balance(buyer.address)).value;
  const { body } = await termsOf(await fetch(viaOf("liar")));
  expect(body.guarantee).toBe(TRUTH);
  const answer = await buyer.fetch(viaOf("liar"));
  expect(answer.status).toBe(502);
  expect(((await answer.json()) as { detail: string }).detail).toContain("Failed: truth");
  expect((await rail.balance(buyer.address)).value).toBe(before);
  const order = await orderOf(answer);
  expect(order).toMatchObject({ charged: null, legs: [{ judged_by: "truth", passed: false }] });
  // It fits its schema: nothing but the truth tells it from an honest seller.
  expect(order.legs[0]!.checks.filter(({ ok }) => !ok).map(({ name }) => name)).toEqual(["truth"]);
});
