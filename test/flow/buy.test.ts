import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { evm, Mppx } from "mppx/client";
import { privateKeyToAccount } from "viem/accounts";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { WorldInfo } from "../../commands/world.ts";
import { createEvmRail } from "../../infra/rails/evm.ts";
import type { CheckAnswer } from "../../serving/schemas/check.ts";
import type { SearchAnswer } from "../../serving/schemas/search.ts";
import { officialBuyer } from "../helpers/buying.ts";
import { runStart, type StartRun } from "../helpers/run-start.ts";
import { unhurried } from "../helpers/unhurried.ts";
import { LEAST_RIGHT, QUESTIONS } from "./questions.ts";

/**
 * `npm start` as a buyer meets it: the record's own letters say what is sold, the protocol's own client buys it over HTTP
 * from every seller of the market, and the chain says what was charged.
 */
let dir: string;
let run: StartRun;
let url: string;
let world: WorldInfo;
let buyer: Awaited<ReturnType<typeof officialBuyer>>;

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "buy-"));
  run = runStart(["--market", "--days", "12"], { TOUCHSTONE_DATA_DIR: dir, TOUCHSTONE_PORT: "0" });
  url = await run.serving();
  world = JSON.parse(await readFile(join(dir, "market", "world.json"), "utf8")) as WorldInfo;
  buyer = await officialBuyer(world);
});
afterAll(async () => {
  run?.child.kill("SIGTERM");
  await run?.ended;
  await rm(dir, { recursive: true, force: true });
});

/** What a call through the service comes to, of each seller that is sold. */
const EXPECTED: Readonly<Record<string, number>> = {
  ...{ "honest-v2": 200, "honest-v1": 200, slow: 200, "v2-in-body": 200, mpp: 200, both: 200, "free-for-all": 200 },
  // Answers of another form than its own schema: it is paid, and its buyer is not charged.
  "schema-breaker": 502,
};
const NOT_SOLD = ["thief", "liar", "dead", "wildcard"];

async function checked(name: string): Promise<CheckAnswer> {
  const seller = world.sellers.find((one) => one.name === name)!;
  return (await (await unhurried(`${url}/v1/check?url=${encodeURIComponent(seller.urls[0]!)}`)).json()) as CheckAnswer;
}

/** The way to via on this port, whatever the base address says. */
const viaOf = (answer: CheckAnswer): string =>
  `${url}${new URL(answer.buy!.url).pathname}?${new URLSearchParams({ a: "20", b: "22", topic: "stones" })}`;

test("strangers' questions find whom they mean, and nothing that failed stands before what did not", async () => {
  const missed: string[] = [];
  for (const { q, first } of QUESTIONS) {
    const answer = await unhurried(`${url}/v1/search?${new URLSearchParams({ q, limit: "50" })}`);
    const { capabilities } = (await answer.json()) as SearchAnswer;
    const sellerOf = (at: string | undefined) => world.sellers.find(({ urls }) => urls.includes(at!))?.name;
    const found = sellerOf(capabilities[0]?.url);
    if (first === null ? capabilities.length > 0 : !first.includes(found!)) missed.push(`${q}: ${found ?? "nobody"}`);
    const failed = capabilities.map(({ band }) => band === "F");
    expect([q, failed.indexOf(true) === -1 ? [] : failed.slice(failed.indexOf(true))]).toEqual([
      q,
      failed.filter(Boolean),
    ]);
  }
  expect(QUESTIONS).toHaveLength(20);
  expect(QUESTIONS.length - missed.length, missed.join("\n")).toBeGreaterThanOrEqual(LEAST_RIGHT);
});

test("what took money, is dead or lies is not sold, and its check says why", async () => {
  for (const name of NOT_SOLD) {
    const { buy, not_bought } = await checked(name);
    expect([name, buy, not_bought]).toEqual([name, undefined, expect.stringMatching(/^[A-Z].*\.$/)]);
  }
});

test("each seller that is sold: charged once what passed, and not at all what did not", async () => {
  const { rpcUrl, asset, chainId } = world;
  const rail = createEvmRail({ rpcUrl, asset, network: `eip155:${chainId}`, confirmations: 1 });
  for (const [name, status] of Object.entries(EXPECTED)) {
    const check = await checked(name);
    expect([name, check.buy?.asset]).toEqual([name, "USDC"]);
    const total = BigInt(check.buy!.total.replace(".", ""));
    // One of three answers of a seller that breaks its schema keeps to it, and who knows whose turn it is.
    for (let left = name === "schema-breaker" ? 3 : 1; left > 0; left--) {
      const before = (await rail.balance(buyer.address)).value;
      const answer = await buyer.fetch(viaOf(check));
      const said = await answer.text();
      const charged = before - (await rail.balance(buyer.address)).value;
      expect([name, charged]).toEqual([name, answer.status === 200 ? total : 0n]);
      if (answer.status === 200 && status !== 200 && left > 1) continue;
      expect([name, answer.status, said]).toEqual([name, status, expect.any(String)]);
      break;
    }
  }
});

test("the tool of the MCP server is bought with its arguments as the body, and charged once", async () => {
  const { rpcUrl, asset, chainId } = world;
  const rail = createEvmRail({ rpcUrl, asset, network: `eip155:${chainId}`, confirmations: 1 });
  const check = await checked("mcp-paid");
  expect(check.buy).toMatchObject({ method: "POST", tool: "add" });
  const before = (await rail.balance(buyer.address)).value;
  const headers = { "content-type": "application/json" };
  const via = url + new URL(check.buy!.url).pathname;
  const answer = await buyer.fetch(via, { method: "POST", headers, body: '{"a":20,"b":22}' });
  expect([answer.status, await answer.json()]).toEqual([200, { sum: 42 }]);
  expect(before - (await rail.balance(buyer.address)).value).toBe(BigInt(check.buy!.total.replace(".", "")));
});

test("mpp's own client buys too, since it signs what x402 asks for: charged once what passed, and nothing else", async () => {
  const { rpcUrl, asset, chainId } = world;
  const rail = createEvmRail({ rpcUrl, asset, network: `eip155:${chainId}`, confirmations: 1 });
  const account = privateKeyToAccount(buyer.privateKey);
  const mppx = Mppx.create({ methods: [evm.charge({ account })], polyfill: false });
  for (const name of ["honest-v2", "mpp"]) {
    const check = await checked(name);
    const before = (await rail.balance(buyer.address)).value;
    const answer = await mppx.fetch(viaOf(check));
    expect([name, answer.status, await answer.json()]).toEqual([name, 200, { sum: 42 }]);
    expect(before - (await rail.balance(buyer.address)).value).toBe(BigInt(check.buy!.total.replace(".", "")));
  }
});

test("a seller that dropped its price or raised it is bought at the price that its own 402 asks now", async () => {
  const check = await checked("price-mover");
  const first = await fetch(viaOf(check));
  expect(first.status).toBe(402);
  const { accepts } = (await first.json()) as { accepts: { maxAmountRequired: string }[] };
  expect(Number(accepts[0]!.maxAmountRequired)).toBeGreaterThan(0);
});
