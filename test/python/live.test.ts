import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { promisify } from "node:util";
import {
  decodePaymentSignatureHeader,
  encodePaymentRequiredHeader,
  encodePaymentResponseHeader,
} from "@x402/core/http";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { LOCAL_NETWORK, LOCAL_USDC, type LocalChain, startLocalChain } from "../../fixtures/chain/local-chain.ts";
import { createFacilitator, type Facilitator } from "../../infra/rails/facilitator.ts";
import { type Serving, serve } from "../../serving/main.ts";
import { fundedKey, peer } from "../helpers/client.ts";
import { cardOf, listingDraft, PAYEE, PublicRecord, rowOf } from "../helpers/public-record.ts";
import { ManualClock, servingOver } from "../helpers/serving.ts";

/**
 * The official x402 package for Python buys from sellers on a local chain, under the guard of the wheel that is installed
 * in the environment of `npm run test:python`; and the page's snippets run there.
 */
const PYTHON = process.env.PYTHON ?? "python3";
const HERE = import.meta.dirname;
const README = resolve(HERE, "../../serving/client-python/README.md");
const THIEF = "0x2222222222222222222222222222222222222222";
const run = promisify(execFile);
const clock = new ManualClock(new Date().toISOString());
let chain: LocalChain;
let facilitator: Facilitator;
let record: PublicRecord;
let live: Serving;
let seller: Awaited<ReturnType<typeof peer>>;
let key: string;
let dir: string;
/** Payments that a seller was shown, by path. */
const shown: string[] = [];

/** What each path asks, where it differs. */
const ASKS: Record<string, { payTo?: string; amount?: string; resource?: string }> = {
  "/swapped": { payTo: THIEF },
  "/dear": { amount: "60000" },
  "/liar": { resource: "/good" },
};

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "python-"));
  chain = await startLocalChain();
  facilitator = createFacilitator({ ...chain, sender: `0x${randomBytes(32).toString("hex")}` });
  await chain.giveGas(facilitator.address);
  key = await fundedKey(chain);
  seller = await peer(async (request, response) => {
    const { payTo = PAYEE, amount = "20000", resource = request.url! } = ASKS[request.url!] ?? {};
    const requirements = {
      ...{ scheme: "exact", network: LOCAL_NETWORK, amount, asset: LOCAL_USDC, payTo, maxTimeoutSeconds: 60 },
      extra: { name: "USDC", version: "2" },
    } as never;
    const payment = request.headers["payment-signature"] as string | undefined;
    if (payment === undefined) {
      const terms = { x402Version: 2, resource: { url: seller.url + resource }, accepts: [requirements] };
      response.writeHead(402, { "payment-required": encodePaymentRequiredHeader(terms as never) }).end("{}");
      return;
    }
    shown.push(request.url!);
    const settled = await facilitator.settle(decodePaymentSignatureHeader(payment), requirements);
    response.writeHead(settled.success ? 200 : 402, { "payment-response": encodePaymentResponseHeader(settled) });
    response.end('{"sum":42}');
  });
  record = await PublicRecord.open();
  const computed_at = clock.now().toISOString();
  const at = (name: string) => ({ url: `${seller.url}/${name}` });
  await record.publish(
    ["swapped", "dear", "took", "liar"].map((name) => listingDraft(at(name))),
    [listingDraft({ ...at("good"), description: "The sum of two numbers" })],
    record.grades([cardOf(at("good"), { computed_at })], "B: it delivers."),
    record.grades([cardOf(at("swapped"), { computed_at })], "B: it delivers."),
    record.grades([cardOf(at("dear"), { computed_at })], "B: it delivers."),
    record.grades([cardOf(at("took"), { computed_at, band: "UNRATED", flags: ["took_the_money"] })], "It took it."),
    record.grades([cardOf(at("liar"), { computed_at, band: "F" })], "F: it fails."),
  );
  const kept = { unserved: 1, unserved_since: 0 };
  const rows = ["good", "swapped", "dear", "took", "liar"].map((name) => rowOf(at(name), name === "took" ? kept : {}));
  await record.live(rows);
  const { app } = await servingOver(record, { clock });
  live = await serve({ app, port: 0, host: "127.0.0.1", graceMs: 200 });
});
afterAll(async () => {
  await seller?.close();
  await live?.close();
  await record?.close();
  await chain?.stop();
  await rm(dir, { recursive: true, force: true });
});

interface Said {
  status: number | null;
  error: string | null;
  signed: { to: string; value: string; validBefore: string }[];
  decision: [boolean, string, string | null] | null;
  at: string | null;
}

async function pay(path: string, more: object = {}): Promise<Said> {
  const asked = { base: live.url, url: seller.url + path, key, ...more };
  const { stdout } = await run(PYTHON, [join(HERE, "pay.py"), JSON.stringify(asked)]);
  return JSON.parse(stdout) as Said;
}

/** What an address holds, in atomic units. */
async function held(address: string): Promise<bigint> {
  const call = { to: LOCAL_USDC, data: `0x70a08231${address.slice(2).padStart(64, "0")}` };
  const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method: "eth_call", params: [call, "latest"] });
  const headers = { "content-type": "application/json" };
  const answer = (await (await fetch(chain.rpcUrl, { method: "POST", body, headers })).json()) as { result: string };
  return BigInt(answer.result);
}

describe.each([{ sync: false }, { sync: true }])("the official client, %o", ({ sync }) => {
  test("pays a good endpoint what was read, and the seller has it on the chain", async () => {
    const before = await held(PAYEE);
    const said = await pay("/good", { sync });
    expect(said).toMatchObject({ status: 200, error: null, decision: [true, "allowed", null] });
    expect(said.at).toBe(`${seller.url}/good`);
    const [one, ...others] = said.signed;
    expect([one!.to.toLowerCase(), one!.value, others]).toEqual([PAYEE.toLowerCase(), "20000", []]);
    expect(Number(one!.validBefore) - Date.now() / 1000).toBeLessThanOrEqual(61);
    expect((await held(PAYEE)) - before).toBe(20_000n);
  });

  test.each([
    ["whose 402 pays another", "/swapped", {}, "flag"],
    ["that took the money", "/took", {}, "flag"],
    ["that asks three times its price", "/dear", {}, "price"],
    ["that fails, and names a good one in its 402", "/liar", {}, "failing"],
    ["that nobody knows, where a letter is wanted", "/never", { policy: { unrated: "refuse" } }, "unrated"],
    ["below the letter that is wanted", "/good", { policy: { at_least: "A" } }, "below_minimum"],
    ["while the service is away", "/good", { base: "http://127.0.0.1:9" }, "not_asked"],
  ])("signs nothing for one %s", async (_, path, more, reason) => {
    shown.length = 0;
    const [before, thief] = [await held(PAYEE), await held(THIEF)];
    const said = await pay(path, { sync, ...more });
    expect([said.decision?.[0], said.decision?.[2]]).toEqual([false, reason]);
    expect(said).toMatchObject({ status: null, error: expect.stringContaining("abort"), signed: [] });
    expect([shown, await held(PAYEE), await held(THIEF)]).toEqual([[], before, thief]);
  });

  test("signs nothing where the guard itself breaks", async () => {
    shown.length = 0;
    const said = await pay("/good", { sync, broken: true });
    expect([said.status, said.signed, shown]).toEqual([null, [], []]);
    expect(said.error).toContain("a fault of our own");
  });
});

test("one that nobody knows is paid by default: unknown, not bad", async () => {
  expect(await pay("/never")).toMatchObject({ status: 200, decision: [true, "allowed", null] });
});

test("a bare client has only the seller's word for the url: the page says so", async () => {
  expect((await pay("/liar", { bare: true })).at).toBe(`${seller.url}/good`);
  expect(await readFile(README, "utf8")).toContain("has only the `resource` that the seller wrote into its 402");
});

/** The n-th snippet of the page, as its reader runs it. */
async function snippet(n: number, args: string[] = []): Promise<string> {
  const page = await readFile(README, "utf8");
  const [, code] = [...page.matchAll(/^```python\n(.*?)^```$/gms)][n]!;
  const file = join(dir, `snippet-${n}.py`);
  await writeFile(
    file,
    code!.replaceAll("https://HOST", live.url).replaceAll("https://seller.example/sum", `${seller.url}/good`),
  );
  const { stdout } = await run(PYTHON, [file, ...args], { cwd: dir, env: { ...process.env, PRIVATE_KEY: key } });
  return stdout.trim();
}

test("every snippet of the page runs", async () => {
  expect(await snippet(0)).toBe("allowed B: it delivers.");
  expect(await snippet(1)).toBe("200");
  expect(await snippet(2)).toBe(`{'Touchstone-Expect': '{"jsonpath":{"path":"$.sum","value":42},"min_length":5}'}`);
  const [answer, keys] = [join(dir, "answer.json"), join(dir, "keys.json")];
  const query = new URLSearchParams({ url: `${seller.url}/good` });
  const text = await (await fetch(`${live.url}/v1/check?${query}`)).text();
  await writeFile(answer, text);
  await writeFile(keys, JSON.stringify(record.jwks));
  expect(await snippet(3, [answer, keys])).toBe("None None");
  await writeFile(answer, text.replace('"band":"B"', '"band":"A"'));
  expect(await snippet(3, [answer, keys])).toMatch(/^bad_signature /);
  expect(await snippet(4)).toBe(`B 0.020000 ${seller.url}/good`);
});
