import { x402Client, x402HTTPClient } from "@x402/core/client";
import { ExactEvmScheme } from "@x402/evm/exact/client";
import type { Browser, Page } from "playwright-core";
import { privateKeyToAccount } from "viem/accounts";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { isDescribed, templateOf } from "../../serving/operations/operation.ts";
import { OPERATIONS } from "../../serving/operations.ts";
import { launchChromium } from "../browser/chromium.ts";
import { marketBeside, officialBuyer, type Replica, sellingOver } from "../helpers/buying.ts";
import { peer } from "../helpers/client.ts";
import { capOf } from "../helpers/public-record.ts";

/** A page of another origin in a real Chromium asks the service, and reads the headers that the documents name. */
let world: Awaited<ReturnType<typeof marketBeside>>;
let service: Replica;
let browser: Browser;
let site: Awaited<ReturnType<typeof peer>>;
let page: Page;

beforeAll(async () => {
  world = await marketBeside();
  const { urls, payTo } = world.sellers.find(({ name }) => name === "honest-v2")!;
  service = await sellingOver(world, [{ url: urls[0]!, payTo, price: "0.010000" }], {
    deps: { limits: { exposures_per_minute: 1 } },
  });
  site = await peer((_, response) => void response.writeHead(200, { "content-type": "text/html" }).end("<title>x"));
  browser = await launchChromium();
  page = await browser.newPage();
  await page.goto(site.url);
});
afterAll(async () => {
  await browser?.close();
  await site?.close();
  await service?.close();
  await world?.close();
});

interface Seen {
  status: number;
  headers: Record<string, string>;
  text: string;
}

/** What the page reads of an answer. @throws where the browser lets it read nothing */
const inPage = (path: string, init: object = {}): Promise<Seen> =>
  page.evaluate(`fetch(${JSON.stringify(service.url + path)}, ${JSON.stringify(init)}).then(async (answer) => ({
    status: answer.status, headers: Object.fromEntries(answer.headers), text: await answer.text() }))`);

/** Headers of the connection, and what a browser keeps from every page. */
const OF_THE_CONNECTION = new Set(["connection", "date", "keep-alive", "transfer-encoding", "vary"]);

/** Headers that the server sent and the page cannot read. */
async function hidden(path: string, init: RequestInit = {}): Promise<string[]> {
  const [seen, sent] = [await inPage(path, init), await fetch(service.url + path, init)];
  await sent.text();
  expect([path, seen.status]).toEqual([path, sent.status]);
  return [...sent.headers.keys()].filter((name) => !OF_THE_CONNECTION.has(name) && !(name in seen.headers));
}

const sold = (): string => {
  const { urls } = world.sellers.find(({ name }) => name === "honest-v2")!;
  return capOf({ url: urls[0]! });
};

const described = OPERATIONS.filter((row) => isDescribed(row) && row.method === undefined);
const addressOf = (template: string): string =>
  template
    .replace("{capability_id}", sold())
    .replace("/v1/trust/{id}", `/v1/trust/${sold()}`)
    .replace("{id}", `arc_${"0".repeat(26)}`)
    .replace("{order_id}", `ord_${"0".repeat(26)}`)
    .replace("{watcher_id}", `wat_${"0".repeat(26)}`)
    .replace("{address}", `0x${"1".repeat(40)}`);

describe("a page of another origin", () => {
  test.each(described.map((row) => [row.id, templateOf(row)] as const))("reads every header of %s", async (_, path) => {
    expect(await hidden(addressOf(path))).toEqual([]);
  });

  test.each([
    ["the checkpoint", "/checkpoint"],
    ["an object of the log", "/hint/keys.json"],
    ["an address that is none", "/v1/nothing"],
  ])("reads every header of %s", async (_, path) => {
    expect(await hidden(path)).toEqual([]);
  });

  test("reads where a feed goes on, its ETag and its limit, and has the feed answered from its own copy", async () => {
    const { headers } = await inPage("/v1/trust/feed");
    expect(headers).toMatchObject({
      link: expect.stringMatching(/^<.*\/v1\/trust\/feed\?cursor=.*>; rel="next"$/),
      etag: expect.stringMatching(/^".+"$/),
      ratelimit: expect.stringMatching(/^"[a-z]+";r=\d+;t=\d+$/),
      "ratelimit-policy": expect.stringMatching(/^"[a-z]+";q=\d+;w=\d+$/),
    });
    for (const path of ["/v1/trust/feed", "/checkpoint"]) {
      const { etag } = (await inPage(path)).headers;
      const again = await inPage(path, { headers: { "if-none-match": etag! }, cache: "no-store" });
      expect([path, again.status]).toEqual([path, 304]);
    }
  });

  test("reads when to come again, and a part of an object", async () => {
    const report = { method: "POST", headers: { "content-type": "application/json" }, body: '{"dependencies":[]}' };
    const answers = [await inPage("/v1/exposure", report), await inPage("/v1/exposure", report)];
    expect(answers.map(({ status }) => status)).toEqual([200, 429]);
    expect(answers[1]!.headers["retry-after"]).toMatch(/^\d+$/);
    const size = (await inPage("/checkpoint")).text.split("\n")[1];
    const part = await inPage(`/tile/0/000.p/${size}`, { headers: { range: "bytes=0-9" } });
    expect([part.status, part.headers["content-range"]]).toEqual([206, expect.stringMatching(/^bytes 0-9\/\d+$/)]);
  });

  test("buys: reads the terms, sends a payment, and reads its receipt, its order and the salts of its commitments", async () => {
    const buyer = await officialBuyer(world);
    const scheme = new ExactEvmScheme(privateKeyToAccount(buyer.privateKey));
    const client = new x402HTTPClient(new x402Client().register(`eip155:${world.chainId}`, scheme));
    const via = `/v1/via/${sold()}?a=20&b=22`;
    const asked = await inPage(via);
    const terms = client.getPaymentRequiredResponse((name) => asked.headers[name.toLowerCase()], undefined);
    const payment = client.encodePaymentSignatureHeader(await client.createPaymentPayload(terms));
    const bought = await inPage(via, { headers: payment });
    expect([asked.status, bought.status]).toEqual([402, 200]);
    expect(JSON.parse(bought.text)).toMatchObject({ sum: 42 });
    expect(bought.headers).toMatchObject({
      "payment-response": expect.any(String),
      "touchstone-order": expect.stringMatching(/^ord_/),
      "touchstone-salt-request": expect.stringMatching(/^[0-9a-f]+$/),
      "touchstone-salt-response": expect.stringMatching(/^[0-9a-f]+$/),
    });
  });
});
