import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import { encodePaymentRequiredHeader } from "@x402/core/http";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { LOCAL_NETWORK, LOCAL_USDC, type LocalChain, startLocalChain } from "../../../fixtures/chain/local-chain.ts";
import { createFacilitator } from "../../../infra/rails/facilitator.ts";
import { COSIGNATURE, ED25519, formatVkey } from "../../../infra/tree/note.ts";
import { VERSION } from "../../../serving/client/index.ts";
import { type Serving, serve } from "../../../serving/main.ts";
import { fundedKey, peer } from "../../helpers/client.ts";
import { installedClient, packedClient } from "../../helpers/client-package.ts";
import { cardOf, listingDraft, PublicRecord, rowOf } from "../../helpers/public-record.ts";
import { ManualClock, servingOver } from "../../helpers/serving.ts";
import { ViaServer } from "../../helpers/via-server.ts";

/**
 * Every snippet of docs/client.md, and of the package's own README, is run by Node as it stands, in a project that has
 * installed the packed package, against a live service, seller and chain. (test/browser has the one for a browser.)
 */
const ROOT = resolve(import.meta.dirname, "../../..");
const THIEF = "0x2222222222222222222222222222222222222222";
const run = promisify(execFile);
let record: PublicRecord;
let live: Serving;
let seller: Awaited<ReturnType<typeof peer>>;
let dir: string;
let page: string;
let readme: string;
const clock = new ManualClock(new Date().toISOString());
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "client-page-"));
  page = await readFile(join(ROOT, "docs/client.md"), "utf8");
  readme = await readFile(join(ROOT, "serving/client/README.md"), "utf8");
  await installedClient(await packedClient(dir), dir);
  const entry = { scheme: "exact", network: LOCAL_NETWORK, amount: "20000", asset: LOCAL_USDC, payTo: THIEF };
  seller = await peer((request, response) => {
    const accepts = [{ ...entry, maxTimeoutSeconds: 60, extra: { name: "USDC", version: "2" } }];
    const terms = { x402Version: 2, resource: { url: seller.url + request.url }, accepts };
    response.writeHead(402, { "payment-required": encodePaymentRequiredHeader(terms as never) }).end("{}");
  });
  record = await PublicRecord.open();
  const spec = { url: `${seller.url}/sum` };
  const computed_at = clock.now().toISOString();
  await record.publish([listingDraft(spec)], record.grades([cardOf(spec, { computed_at })], "B: it delivers."));
  await record.live([rowOf(spec)]);
  const { app } = await servingOver(record, { clock });
  live = await serve({ app, port: 0, host: "127.0.0.1", graceMs: 200 });
});
afterAll(async () => {
  await seller?.close();
  await live?.close();
  await record?.close();
  await rm(dir, { recursive: true, force: true });
});

const PLAIN: { page?: string; service?: string } = {};

/** The snippet under a heading, the n-th there, as a file of that project. */
async function file(heading: string, n = 0, { page: text = page, service = live.url } = PLAIN): Promise<string> {
  const [, section] = text.split(`## ${heading}\n`);
  const blocks = [...section!.split(/^## /m)[0]!.matchAll(/^```js\n(.*?)^```$/gms)];
  const contents = blocks[n]![1]!.replaceAll("https://HOST", service).replaceAll("https://seller.example", seller.url);
  const path = join(dir, `${heading.replaceAll(" ", "-")}-${n}.mjs`);
  await writeFile(path, contents);
  return path;
}

const PRIVATE_KEY = `0x${"1".repeat(64)}`;

async function printed(path: string, args: string[] = [], key: string = PRIVATE_KEY): Promise<string> {
  const { stdout } = await run(process.execPath, [path, ...args], { env: { ...process.env, PRIVATE_KEY: key } });
  return stdout.trim();
}

test("ask before you pay", async () => {
  expect(await printed(await file("Ask before you pay"))).toBe("allowed B: it delivers.");
});

test("a policy of witnesses", async () => {
  const checkpoint = await (await fetch(`${live.url}/checkpoint`)).text();
  const { x } = record.jwks.keys.find(({ purpose }) => purpose === "log")!;
  const log = { name: checkpoint.split("\n", 1)[0]!, publicKey: Buffer.from(x, "base64url") };
  const other = { name: "other.example", publicKey: Buffer.from(x, "base64url") };
  const policy = join(dir, "policy");
  const line = `log ${formatVkey(log, ED25519)}\n`;
  await writeFile(policy, `${line}quorum none\n`);
  const path = await file("Ask before you pay", 1);
  expect(await printed(path, [policy])).toBe("B seen by the witnesses of the policy");
  await writeFile(policy, `${line}witness other ${formatVkey(other, COSIGNATURE)}\nquorum other\n`);
  await expect(printed(path, [policy])).rejects.toThrow("unproven: unwitnessed");
});

describe("a seller's 402 that names another payee is not paid", () => {
  test("through the fetch below the wallet", async () => {
    expect(await printed(await file("With the official x402 client"))).toMatch(/^403 pay_to_unknown: Do not pay yet/);
  });

  test("through the hook", async () => {
    const said = await printed(await file("With the official x402 client", 1));
    expect(said).toMatch(/Payment creation aborted: pay_to_unknown: Do not pay yet/);
  });

  test("through mppx", async () => {
    expect(await printed(await file("With mppx"))).toBe("403");
  });
});

test("search", async () => {
  expect(await printed(await file("Search"))).toMatch(/^[A-F] \d+\.\d{6} http/);
});

test("exposure", async () => {
  expect(await printed(await file("Exposure"))).toBe("2 0.000000");
});

test("verify what was kept", async () => {
  const answer = join(dir, "answer.json");
  const keys = join(dir, "keys.json");
  const query = new URLSearchParams({ url: `${seller.url}/sum` });
  await writeFile(answer, await (await fetch(`${live.url}/v1/check?${query}`)).text());
  await writeFile(keys, JSON.stringify(record.jwks));
  expect(await printed(await file("Verify what you kept"), [answer, keys])).toBe("{ ok: true } { ok: true }");
});

test("the receiver is a worker", async () => {
  const path = await file("Watchers and their notices");
  const worker = (await import(path)) as { default: { fetch(request: Request): Promise<Response> } };
  const request = new Request("https://receiver.example/", { method: "POST", body: "{}" });
  expect((await worker.default.fetch(request)).status).toBe(400);
});

test("pay on delivery", async () => {
  const chain: LocalChain = await startLocalChain();
  const facilitator = createFacilitator({ ...chain, sender: `0x${randomBytes(32).toString("hex")}` });
  await chain.giveGas(facilitator.address);
  const via = await ViaServer.open(record, facilitator);
  try {
    via.answeredAt = () => new Date().toISOString();
    const said = await printed(await file("Pay on delivery", 0, { service: via.url }), [], await fundedKey(chain));
    expect(said).toMatch(/^delivered \{"sum":42\} ord_/);
  } finally {
    await via.close();
    await chain.stop();
  }
});

test("the package's README: ask, and below the wallet", async () => {
  const of = { page: readme };
  expect(await printed(await file("Ask before you pay", 0, of))).toBe("true allowed B: it delivers.");
  const below = await file("Below the wallet of the official x402 client", 0, of);
  expect(await printed(below)).toMatch(/^403 pay_to_unknown: Do not pay yet/);
});

test("every JavaScript block of both pages is run above", () => {
  const blocks = [page, readme].map((text) => [...text.matchAll(/^```js$/gm)].length);
  expect(blocks).toEqual([10, 2]);
});

test("the page is served, stands in the list, and names the version", async () => {
  expect((await fetch(`${live.url}/docs/client`)).status).toBe(200);
  expect(await (await fetch(`${live.url}/docs`)).text()).toContain('href="/docs/client"');
  expect(page).toContain(`The version is ${VERSION}.`);
});
