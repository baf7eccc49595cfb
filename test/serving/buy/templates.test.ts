import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createEvmRail } from "../../../infra/rails/evm.ts";
import type { Rail } from "../../../infra/rails/rails.ts";
import { type BuyOptions, buyThrough, Service } from "../../../serving/client/index.ts";
import type { CheckAnswer } from "../../../serving/schemas/check.ts";
import type { PlanAnswer } from "../../../serving/schemas/route.ts";
import { marketBeside, officialBuyer, type Replica, sellingOver } from "../../helpers/buying.ts";
import { now } from "../../helpers/client.ts";
import { capOf } from "../../helpers/public-record.ts";
import { toolSeller } from "../../helpers/tool-seller.ts";

/** Listed templates, whose variables the buyer's input fills: over a real settlement. */
let world: Awaited<ReturnType<typeof marketBeside>>;
let seller: Awaited<ReturnType<typeof toolSeller>>;
let service: Replica;
let rail: Rail;

beforeAll(async () => {
  world = await marketBeside();
  seller = await toolSeller(world);
  const described = { ...seller.weather, description: "Weather of a city" };
  service = await sellingOver(world, [described, seller.tool("honest")], {
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

const via = (query: Record<string, string>) =>
  `${service.url}/v1/via/${capOf(seller.weather)}?${new URLSearchParams(query)}`;

test("the official client buys with its variables in the query; what is left of the query goes to the seller", async () => {
  const buyer = await officialBuyer(world);
  const before = (await rail.balance(buyer.address)).value;
  const answer = await buyer.fetch(via({ city: "São Paulo/SP", when: "now!", units: "°C", lang: "pt" }));
  expect([answer.status, await answer.json()]).toEqual([
    200,
    { city: "São Paulo/SP", when: "now!", units: "°C", sky: "clear" },
  ]);
  expect(seller.called.at(-1)!.at).toBe("/weather/S%C3%A3o%20Paulo%2FSP/now%21?units=%C2%B0C&lang=pt");
  expect(before - (await rail.balance(buyer.address)).value).toBe(12_000n);
});

test.each<[string, string, [string, RegExp][]]>([
  [
    "",
    "nothing",
    [
      ["/query/city", /variable of .*\{city\}/],
      ["/query/when", /must be given/],
      ["/query/units", /must/],
    ],
  ],
  ["?city=Oslo&units=c", "one of three", [["/query/when", /must be given/]]],
  ["?city=&when=now&units=c", "an empty one", [["/query/city", /must not be empty/]]],
  ["?city=a&city=b&when=now&units=c", "one twice", [["/query/city", /must be given once/]]],
  ["?city=a&when=now&units=c&units=d", "one of the query twice", [["/query/units", /must be given once/]]],
  ["?city=a&when=now&units=", "an empty one of the query", [["/query/units", /must not be empty/]]],
  [`?city=${"x".repeat(1_001)}&when=now&units=c`, "a long one", [["/query/city", /at most 1000/]]],
  ["?city=..&when=now&units=c", "a way out of the path", [["/query/city", /dots/]]],
  [
    "?city=%2e&when=..&units=..",
    "two of them",
    [
      ["/query/city", /dots/],
      ["/query/when", /dots/],
    ],
  ],
])("%s (%s) is a 422 that points at each variable, and nobody is asked", async (query, _, errors) => {
  const answer = await fetch(`${service.url}/v1/via/${capOf(seller.weather)}${query}`);
  expect([answer.status, answer.headers.get("content-type")]).toEqual([422, "application/problem+json"]);
  expect(await answer.json()).toMatchObject({
    type: "/docs/api#bad-input",
    errors: errors.map(([pointer, says]) => ({ pointer, detail: expect.stringMatching(says) })),
  });
});

test("a check of the template says where it is bought and what it needs; of a url below it, with that url's values", async () => {
  const checked = async (url: string) =>
    ((await (await fetch(`${service.url}/v1/check?url=${encodeURIComponent(url)}`)).json()) as CheckAnswer).buy!;
  const { origin } = seller;
  expect(await checked(seller.weather.url)).toMatchObject({
    url: expect.stringMatching(/\/v1\/via\/cap_[0-9A-Z]{26}$/),
    variables: ["city", "when", "units"],
  });
  const below = await checked(`${origin}/weather/New%20York/now?units=f`);
  expect(new URL(below.url).search).toBe("?city=New+York&when=now");
  expect(below.variables).toEqual(["city", "when", "units"]);
});

test("route: a plan names the variables, an execution fills them from path or query", async () => {
  const ask = (path: string, body: unknown): [string, RequestInit] => [
    service.url + path,
    { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) },
  ];
  const plan = (await (await fetch(...ask("/v1/route/plan", { need: "weather" }))).json()) as PlanAnswer;
  expect(plan.candidates).toMatchObject([{ tool: null, variables: ["city", "when", "units"] }]);
  const buyer = await officialBuyer(world);
  const asked = (input: object) => ask("/v1/route/execute", { need: "weather", input, max_total: "0.05" });
  const input = { path: { city: "Bergen" }, query: { when: "now", units: "c", city: "kept for the seller" } };
  const answer = await buyer.fetch(...asked(input));
  expect([answer.status, await answer.json()]).toMatchObject([200, { city: "Bergen", when: "now", units: "c" }]);
  expect(seller.called.at(-1)!.at).toBe("/weather/Bergen/now?units=c&city=kept+for+the+seller");
  const none = await fetch(...asked({ path: { city: "Bergen" } }));
  expect([none.status, ((await none.json()) as { error: string }).error]).toEqual([
    402,
    expect.stringContaining("query/when must be given"),
  ]);
});

/** Fenced blocks of a page in a language. */
const blocksOf = (page: string, language: string): string[] =>
  [...readFileSync(join(import.meta.dirname, `../../../docs/${page}`), "utf8").matchAll(/```(\w+)\n(.*?)```/gs)]
    .filter(([, is]) => is === language)
    .map(([, , text]) => text!);

test("the commands of the page ask for a tool's and a template's price", async () => {
  const commands = blocksOf("pay-on-delivery.md", "sh").filter((text) => text.includes("/v1/via/"));
  expect(commands).toHaveLength(2);
  for (const command of commands) {
    const here = command
      .replaceAll("https://HOST", service.url)
      .replace("TOOL_ID", capOf(seller.tool("honest")))
      .replace("TEMPLATE_ID", capOf(seller.weather));
    const { stdout } = await promisify(execFile)("sh", ["-c", here]);
    expect(JSON.parse(stdout)).toMatchObject({ x402Version: 1, accepts: [{ maxAmountRequired: "12000" }] });
  }
});

test("the page's execution of a template is bought", async () => {
  const [body] = blocksOf("route.md", "json").filter((text) => text.includes('"path"'));
  const buyer = await officialBuyer(world);
  const headers = { "content-type": "application/json" };
  const answer = await buyer.fetch(`${service.url}/v1/route/execute`, { method: "POST", headers, body: body! });
  expect([answer.status, await answer.json()]).toMatchObject([200, { city: "Oslo", when: "now" }]);
});

test("the client buys a template with its variables, a url below it, and a tool", async () => {
  const buyer = await officialBuyer(world);
  const from = new Service({ base: service.url, now });
  // The service says that it is at another address.
  const pay: BuyOptions["pay"] = (inner) => (input, init) =>
    buyer.over(inner)(String(input).replace("https://touchstone.test", service.url), init);
  const buy = (options: Pick<BuyOptions, "url"> & Partial<BuyOptions>) =>
    buyThrough(from, { cap: "0.05", pay, ...options });
  const { url } = seller.weather;
  const variables = { city: "Oslo", when: "now", units: "c" };
  const template = await buy({ url, variables });
  expect([template.outcome, await template.response.json()]).toMatchObject(["delivered", variables]);
  const below = await buy({ url: `${seller.origin}/weather/Moss/now?units=f` });
  expect([below.outcome, await below.response.json()]).toMatchObject(["delivered", { city: "Moss", units: "f" }]);
  const tool = await buy({ url: `${seller.tool("honest").url}#add`, method: "POST", body: '{"a":20,"b":22}' });
  expect([tool.outcome, await tool.response.json()]).toEqual(["delivered", { sum: 42 }]);
});
