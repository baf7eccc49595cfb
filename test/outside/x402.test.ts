import { execFile } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import {
  decodePaymentRequiredHeader,
  decodePaymentResponseHeader,
  encodePaymentSignatureHeader,
} from "@x402/core/http";
import {
  extractDiscoveryInfo,
  validateDiscoveryExtension,
  validateDiscoveryExtensionSpec,
} from "@x402/extensions/bazaar";
import { appendPaymentIdentifierToExtensions, validatePaymentIdentifier } from "@x402/extensions/payment-identifier";
import { evm, Mppx } from "mppx/client";
import { privateKeyToAccount } from "viem/accounts";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { systemClock } from "../../infra/clock.ts";
import { createEvmRail } from "../../infra/rails/evm.ts";
import type { Rail } from "../../infra/rails/rails.ts";
import { importRegister, registerPath } from "../../pipelines/register/import.ts";
import { marketBeside, type OfficialBuyer, officialBuyer, type Replica, sellingOver } from "../helpers/buying.ts";
import { capOf } from "../helpers/public-record.ts";
import { PYTHON } from "./judges.ts";

/** Official clients buy a call through us and work of our own, over HTTP and on the local chain. */
const run = promisify(execFile);
let world: Awaited<ReturnType<typeof marketBeside>>;
let service: Replica;
let rail: Rail;
let dir: string;

beforeAll(async () => {
  world = await marketBeside();
  const { urls, payTo } = honest();
  dir = await mkdtemp(join(tmpdir(), "x402-"));
  const register = registerPath(dir);
  await importRegister({ source: resolve("fixtures/register/golden-copy.csv"), to: register, clock: systemClock });
  service = await sellingOver(world, [{ url: urls[0]!, payTo, price: "0.010000" }], { register });
  const { rpcUrl, asset, chainId } = world;
  rail = createEvmRail({ rpcUrl, asset, network: `eip155:${chainId}`, confirmations: 1 });
});
afterAll(async () => {
  await service?.close();
  await world?.close();
  await rm(dir, { recursive: true, force: true });
});

const honest = () => world.sellers.find(({ name }) => name === "honest-v2")!;
const PAGE = "<!doctype html><html><head><title>T</title></head><body><h1>One</h1><p>Two words.</p></body></html>";
const EXTRACT: RequestInit = {
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify({ bytes: Buffer.from(PAGE).toString("base64") }),
};
const viaUrl = () => `${service.url}/v1/via/${capOf({ url: honest().urls[0]! })}?a=20&b=22`;

interface Bought {
  status: number;
  text: string;
  settled: { success: boolean; transaction: string; payer?: string } | null;
}
type Client = (buyer: OfficialBuyer, url: string, init?: RequestInit) => Promise<Bought>;

async function asked(program: string, args: string[], buyer: OfficialBuyer, url: string, init?: RequestInit) {
  const what = JSON.stringify({ key: buyer.privateKey, rpc: world.rpcUrl, url, init });
  return JSON.parse((await run(program, [...args, what])).stdout) as Bought;
}

async function read(answer: Response): Promise<Bought> {
  const receipt = answer.headers.get("payment-response");
  const settled = receipt === null ? null : decodePaymentResponseHeader(receipt);
  return { status: answer.status, text: await answer.text(), settled };
}

const CLIENTS: [string, Client][] = [
  ["JavaScript, version 1", (...of) => asked(process.execPath, [join(import.meta.dirname, "js/buy.mjs")], ...of)],
  ["JavaScript, version 2", async (buyer, url, init) => read(await buyer.fetch(url, init))],
  ["Python, version 2", (...of) => asked(PYTHON, [join(import.meta.dirname, "python/buy.py")], ...of)],
  [
    "mppx",
    async (buyer, url, init) => {
      const account = privateKeyToAccount(buyer.privateKey);
      const mppx = Mppx.create({ methods: [evm.charge({ account })], polyfill: false });
      return read(await mppx.fetch(url, init));
    },
  ],
];

describe.each(CLIENTS)("the official client of %s", (_, buy) => {
  test.each<[string, () => string, RequestInit | undefined, string, bigint]>([
    ["a call through us", viaUrl, undefined, '"sum":42', 12_000n],
    ["work of our own", () => `${service.url}/v1/docs/extract`, EXTRACT, "Two words.", 20_000n],
  ])("buys %s: the answer, its price on the chain, and the receipt", async (_, url, init, text, price) => {
    const buyer = await officialBuyer(world);
    const before = (await rail.balance(buyer.address)).value;
    const bought = await buy(buyer, url(), init);
    expect(bought).toMatchObject({ status: 200, text: expect.stringContaining(text) });
    expect(before - (await rail.balance(buyer.address)).value).toBe(price);
    const [moved] = (await rail.transfers({ from: buyer.address, to: service.till, sinceBlock: 0 })).value;
    expect(bought.settled).toMatchObject({ success: true, transaction: moved!.tx });
  });
});

test("the official client of a wallet without money is told so in the specification's word", async () => {
  const buyer = await officialBuyer(world, undefined, 1n);
  const answer = await buyer.fetch(`${service.url}/v1/docs/extract`, EXTRACT);
  expect(answer.status).toBe(402);
  const { error } = decodePaymentRequiredHeader(answer.headers.get("payment-required")!);
  expect(error).toBe("insufficient_funds");
});

const WORKS = ["docs/extract", "web/evidence", "research/brief", "companies/lookup", "route/execute"];
test.each([...WORKS, "via"])("the terms of %s are what a catalogue of x402 takes", async (name) => {
  const url = name === "via" ? viaUrl() : `${service.url}/v1/${name}`;
  const body = JSON.stringify({ capability_ids: [capOf({ url: honest().urls[0]! })], max_total: "1.00" });
  const init = { method: "POST", headers: { "content-type": "application/json" }, body };
  const answer = await fetch(url, name === "via" ? {} : init);
  const header = answer.headers.get("payment-required")!;
  expect([answer.status, header.length < 6_000]).toEqual([402, true]);
  const terms = decodePaymentRequiredHeader(header);
  expect(new URL(terms.resource.url).search).toBe(new URL(url).search);
  const { bazaar, "payment-identifier": identifier } = terms.extensions!;
  expect(validateDiscoveryExtension(bazaar as never)).toMatchObject({ valid: true });
  expect(validateDiscoveryExtensionSpec(bazaar as never)).toMatchObject({ valid: true });
  expect(validatePaymentIdentifier(identifier)).toMatchObject({ valid: true });
  const [accepted] = terms.accepts;
  const found = extractDiscoveryInfo({ ...terms, accepted: accepted!, payload: {} } as never, accepted!);
  expect(found).toMatchObject({ method: name === "via" ? "GET" : "POST" });
});

test("a payment-identifier buys once: the same payment has the same answer, another one a 409", async () => {
  const buyer = await officialBuyer(world);
  const before = (await rail.balance(buyer.address)).value;
  const url = `${service.url}/v1/docs/extract`;
  const terms = decodePaymentRequiredHeader((await fetch(url, EXTRACT)).headers.get("payment-required")!);
  const extensions = appendPaymentIdentifierToExtensions(structuredClone(terms.extensions!), "pay_0123456789abcdef");
  const send = async () => {
    const payment = { ...(await buyer.client.createPaymentPayload(terms)), extensions };
    const headers = { ...EXTRACT.headers, "payment-signature": encodePaymentSignatureHeader(payment) };
    return () => fetch(url, { ...EXTRACT, headers });
  };
  const [first, other] = [await send(), await send()];
  const bought = await (await first()).text();
  expect(bought).toContain("Two words.");
  expect(await (await first()).text()).toBe(bought);
  expect((await other()).status).toBe(409);
  expect(before - (await rail.balance(buyer.address)).value).toBe(20_000n);
});
