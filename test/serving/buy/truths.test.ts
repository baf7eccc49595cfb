import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createPublicClient, createTestClient, http } from "viem";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { systemClock } from "../../../infra/clock.ts";
import { createEvmRail } from "../../../infra/rails/evm.ts";
import type { Rail } from "../../../infra/rails/rails.ts";
import { plantedHtml, plantedPage } from "../../../pipelines/record/classes/planted.ts";
import { importRegister, registerPath } from "../../../pipelines/register/import.ts";
import { createPageSource } from "../../../pipelines/roles/classes.ts";
import type { OrderShown } from "../../../serving/schemas/orders.ts";
import { marketBeside, officialBuyer, type Replica, type SoldSpec, sellingOver } from "../../helpers/buying.ts";
import { type ClassSeller, classSellers } from "../../helpers/class-sellers.ts";
import { capOf } from "../../helpers/public-record.ts";

/**
 * Truths that have to be looked up, bought over real settlement: the register, the chain, pages of ours, the reference of
 * prices, and an operator's file. A wrong answer costs its buyer nothing, and a right one is charged.
 */
const PAGES = Buffer.alloc(32, 5);
const [SAP, SIEMENS] = ["529900D6BF99LW9R2E68", "W38RGI023J3WT1HWRP32"];
const BLOCK = { block: "1", network: "eip155:84532" };
const PAIR = { base: "BTC", quote: "USD" };
/** What our reference says, by pair; of any other pair it knows nothing. */
const PRICES: Record<string, number> = { "BTC-USD": 60_000, "EUR-USD": 1.1 };

let world: Awaited<ReturnType<typeof marketBeside>>;
let service: Replica;
let sellers: Awaited<ReturnType<typeof classSellers>>;
let rail: Rail;
let dir: string;
let isReferenceDown = false;
/** A page of ours that nobody has seen, what is on it, and a final block. */
let page: { url: string; facts: readonly string[] };
let block: { number: string; hash: string; time: number };

/** The reference of prices, and our planted pages. */
const ours = createServer((request, response) => {
  const { pathname } = new URL(request.url!, "http://ours");
  const pair = /^\/price\/(.+)$/.exec(pathname)?.[1];
  if (pair !== undefined) {
    if (isReferenceDown) return void response.destroy();
    return void response.end(JSON.stringify({ price: PRICES[pair] }));
  }
  const made = plantedPage(PAGES, pathname.slice("/p/".length), systemClock.now());
  response.writeHead(made ? 200 : 404, { "content-type": "text/html" }).end(made ? plantedHtml(made) : "");
});
const readOnly = (count: number) => ({ text: `Some words, ${page.facts.slice(0, count).join(" and ")}.` });
const company = { class: "company-name", example: { lei: SAP }, member: "name" };
const hash = { class: "chain-data", example: BLOCK, member: "hash" };
const time = { class: "chain-data", example: BLOCK, member: "timestamp" };
const reader = { class: "planted-page", example: { url: "https://example.com/" }, member: "text" };
const token = { class: "token-price", example: PAIR, member: "price" };
const currency = { class: "token-price", example: { base: "EUR", quote: "USD" }, member: "rate" };

interface Case extends Omit<ClassSeller, "method"> {
  /** What is asked: parameters of a query, or members of a body. */
  asks: () => Record<string, string>;
  /** Is it charged? */
  right: boolean;
}

/** Sellers by name, each asked once. */
const CASES: Readonly<Record<string, Case>> = {
  "the company": { ...company, asks: () => ({ lei: SAP }), answer: () => ({ name: "Sap S.E." }), right: true },
  "another company": { ...company, asks: () => ({ lei: SIEMENS }), answer: () => ({ name: "SAP SE" }), right: false },
  "the hash": { ...hash, asks: ask, answer: () => ({ hash: block.hash.toUpperCase() }), right: true },
  "another block's hash": { ...hash, asks: ask, answer: () => ({ hash: `0x${"ab".repeat(32)}` }), right: false },
  "the time": { ...time, asks: ask, answer: () => ({ timestamp: `0x${block.time.toString(16)}` }), right: true },
  "a second later": { ...time, asks: ask, answer: () => ({ timestamp: block.time + 1 }), right: false },
  "three of the page's five": { ...reader, asks: read, answer: () => readOnly(3), right: true },
  "two of the page's five": { ...reader, asks: read, answer: () => readOnly(2), right: false },
  "the price, 2 % above": { ...token, asks: () => PAIR, answer: () => ({ price: 61_199 }), right: true },
  "half right, 5 % below": { ...token, asks: () => PAIR, answer: () => ({ price: "57001" }), right: true },
  "the price outside of the band": { ...token, asks: () => PAIR, answer: () => ({ price: 56_999 }), right: false },
  "the rate": { ...currency, asks: () => currency.example, answer: () => ({ rate: 1.1 }), right: true },
  "a rate of yesterday": { ...currency, asks: () => currency.example, answer: () => ({ rate: 1.2 }), right: false },
  "mapped digest": { asks: word, answer: () => ({ out: [{ hex: ABC_SHA256 }] }), right: true },
  "mapped digest of another text": {
    ...{ asks: word, answer: () => ({ out: [{ hex: "00".repeat(32) }] }) },
    right: false,
  },
  "mapped digest, not scored yet": { asks: word, answer: () => ({ out: [] }), right: true },
  "mapped row": { asks: () => ({ date: "2019-03-08" }), answer: () => ({ mean: 9.8 }), right: true },
  "mapped row outside": { asks: () => ({ date: "2019-03-08" }), answer: () => ({ mean: 10 }), right: false },
};
const ABC_SHA256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
function ask() {
  return { ...BLOCK, block: block.number };
}
function read() {
  return { url: page.url };
}
function word() {
  return { text: "abc" };
}

/** The operator's file: forms of its own, which no seller declares. */
const mappings = (urlOf: (name: string) => string) => ({
  version: 1,
  rows: {
    kew: {
      within: 0.5,
      rows: Array.from({ length: 20 }, (_, i) => ({
        asks: { day: `2019-03-${String(i + 1).padStart(2, "0")}` },
        answer: i === 7 ? 9.4 : i,
      })),
    },
  },
  mappings: Object.keys(CASES).flatMap((name) => {
    const match = { url: urlOf(name) };
    if (name.startsWith("mapped digest"))
      return {
        ...{ match, class: "encodings", variant: "sha256", answer: "/out/0/hex" },
        input: { body: { algorithm: "sha256", payload: { data: "{text}" } } },
      };
    return name.startsWith("mapped row")
      ? { ...{ match, class: "known-rows", rows: "kew", answer: "/mean" }, input: { query: { date: "{day}" } } }
      : [];
  }),
});

const isInBody = (name: string): boolean => name.startsWith("mapped digest");
const pathOf = (name: string): string => name.replace(/[^a-z0-9]+/gi, "-");
const marketSpec = (name: string): SoldSpec => {
  const { urls, payTo } = world.sellers.find((one) => one.name === name)!;
  return { url: urls[0]!, payTo, price: "0.008000", band: "A" };
};
const specOf = (name: string): SoldSpec => {
  const { class: named } = CASES[name]!;
  const tier = name.endsWith("not scored yet") ? { tier: "DELIVERY_VERIFIED" as const } : {};
  return { ...sellers.spec(pathOf(name)), ...tier, ...(named ? { class: named } : {}) };
};

/** Buys one call with the protocol's own client. */
async function bought(spec: SoldSpec, asked: Record<string, string>, inBody = false) {
  const buyer = await officialBuyer(world);
  const before = (await rail.balance(buyer.address)).value;
  const via = `${service.url}/v1/via/${capOf(spec)}`;
  const body = JSON.stringify({ algorithm: "sha256", payload: { data: asked.text } });
  const [url, init] = inBody ? [via, { method: "POST", body }] : [`${via}?${new URLSearchParams(asked)}`, {}];
  const { guarantee } = (await (await fetch(url, init)).json()) as { guarantee?: string };
  const answer = await buyer.fetch(url, init);
  const id = answer.headers.get("touchstone-order");
  const order = id === null ? null : ((await (await fetch(`${service.url}/v1/orders/${id}`)).json()) as OrderShown);
  return { answer, guarantee, order, charged: before - (await rail.balance(buyer.address)).value };
}

beforeAll(async () => {
  world = await marketBeside();
  dir = await mkdtemp(join(tmpdir(), "truths-"));
  await new Promise<void>((done) => ours.listen(0, "127.0.0.1", done));
  const at = `http://127.0.0.1:${(ours.address() as AddressInfo).port}`;
  page = createPageSource(at, PAGES, systemClock)(Buffer.alloc(32, 1));
  await importRegister({
    ...{ source: resolve("fixtures/register/golden-copy.csv"), to: registerPath(dir), clock: systemClock },
  });
  const { rpcUrl, asset, chainId } = world;
  await createTestClient({ mode: "anvil", transport: http(rpcUrl) }).mine({ blocks: 150 });
  const client = createPublicClient({ transport: http(rpcUrl) });
  const { number, hash, timestamp } = await client.getBlock({ blockTag: "finalized" });
  block = { number: String(number), hash, time: Number(timestamp) };
  sellers = await classSellers(
    world,
    Object.fromEntries(
      Object.entries(CASES).map(([name, one]): [string, ClassSeller] => [
        pathOf(name),
        { ...one, method: isInBody(name) ? "POST" : "GET" },
      ]),
    ),
  );
  const classes = join(dir, "classes.json");
  await writeFile(classes, JSON.stringify(mappings((name) => specOf(name).url)));
  const specs = [...Object.keys(CASES).map(specOf), ...["scraper", "stale-scraper", "chain-reader"].map(marketSpec)];
  service = await sellingOver(world, specs, {
    dir,
    env: {
      TOUCHSTONE_CLASSES_FILE: classes,
      TOUCHSTONE_PRICE_REFERENCE: JSON.stringify({ url: `${at}/price/{base}-{quote}`, answer: "/price" }),
    },
    parts: { pages: PAGES, pagesAt: at },
    deps: { limits: { quotes_per_domain_minute: 1_000 } },
  });
  rail = createEvmRail({ rpcUrl, asset, network: `eip155:${chainId}`, confirmations: 1 });
});
afterAll(async () => {
  ours.closeAllConnections();
  ours.close();
  await service?.close();
  await sellers?.close();
  await world?.close();
  await rm(dir, { recursive: true, force: true });
});

describe("an answer to the buyer's own question", () => {
  test.each(Object.keys(CASES).filter((name) => !name.endsWith("not scored yet")))("%s", async (name) => {
    const { asks, right, class: named } = CASES[name]!;
    const { answer, guarantee, order, charged } = await bought(specOf(name), asks(), isInBody(name));
    expect(guarantee).toContain("your input fixes the right answer");
    expect([answer.status, charged]).toEqual(right ? [200, 12_000n] : [502, 0n]);
    const [leg] = order!.legs;
    expect(leg).toMatchObject({ judged_by: "truth", passed: right, ...(named ? { class: named } : {}) });
    expect(leg!.checks.filter(({ ok }) => !ok).map((one) => one.name)).toEqual(right ? [] : ["truth"]);
    if (right) expect(answer.headers.get("touchstone-judged-by")).toBe("truth");
    else expect(((await answer.json()) as { detail: string }).detail).toContain("Failed: truth");
  });
});

describe("the market's own sellers", () => {
  test.each<[string, () => Record<string, string>, boolean]>([
    ["scraper", read, true],
    ["stale-scraper", read, false],
    ["chain-reader", ask, true],
  ])("%s", async (name, asks, right) => {
    const { answer, order, charged } = await bought(marketSpec(name), asks());
    expect([answer.status, charged > 0n, order!.legs[0]!.judged_by]).toEqual([right ? 200 : 502, right, "truth"]);
  });
});

describe("what fixes no answer that we know is not promised", () => {
  test.each<[string, string, Record<string, string>]>([
    ["a company that is not in the register", "the company", { lei: "529900ZZZZZZZZZZZZ00" }],
    ["a block that is not final", "the hash", { ...BLOCK, block: "99999999" }],
    ["a block of another chain", "the hash", { ...BLOCK, network: "eip155:1" }],
    ["a page that is not ours", "three of the page's five", { url: "https://example.com/other" }],
    ["a pair of which we ask nobody", "the price, 2 % above", { base: "DOGE", quote: "USD" }],
    ["a row that the operator does not have", "mapped row", { date: "2018-01-01" }],
    ["a row's input with another member", "mapped row", { date: "2019-03-08", unit: "F" }],
  ])("%s", async (_, name, asked) => {
    const answer = await fetch(`${service.url}/v1/via/${capOf(specOf(name))}?${new URLSearchParams(asked)}`);
    const { guarantee } = (await answer.json()) as { guarantee: string };
    expect([answer.status, guarantee]).toEqual([402, expect.stringMatching(/whether it is true is not|nothing else/)]);
  });

  test("a mapping of ours that no answer was scored by yet", async () => {
    const { answer, order } = await bought(specOf("mapped digest, not scored yet"), word(), true);
    expect([answer.status, order!.legs[0]!.judged_by]).toEqual([200, "parses"]);
  });

  test("the answer cannot be looked up now: nothing is bought, and the same can be asked again", async () => {
    isReferenceDown = true;
    const spec = specOf("the price, 2 % above");
    const { answer, order, charged } = await bought(spec, PAIR).finally(() => {
      isReferenceDown = false;
    });
    expect([answer.status, answer.headers.get("retry-after"), order, charged]).toEqual([503, "5", null, 0n]);
    expect(((await answer.json()) as { detail: string }).detail).toContain("cannot be looked up now");
    expect((await bought(spec, PAIR)).answer.status).toBe(200);
  });
});
