import { type ChildProcess, spawn } from "node:child_process";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { join, resolve } from "node:path";
import { x402Client } from "@x402/core/client";
import { decodePaymentResponseHeader } from "@x402/core/http";
import { AuthCaptureEvmScheme } from "@x402/evm/auth-capture/client";
import { ExactEvmScheme } from "@x402/evm/exact/client";
import { wrapFetchWithPayment } from "@x402/fetch";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { sellingFindings } from "../../commands/findings/selling.ts";
import { ledgerOf } from "../../commands/ledger.ts";
import { newWallets, sweepWallets } from "../../commands/wallets.ts";
import { type Config, loadConfig } from "../../infra/config.ts";
import type { Finding } from "../../infra/finding.ts";
import { createSecret } from "../../infra/keys/keys.ts";
import { openEmbeddedLog } from "../../infra/log/embedded.ts";
import { ESCROW } from "../../infra/rails/escrow-terms.ts";
import { createEvmRail } from "../../infra/rails/evm.ts";
import type { Rail } from "../../infra/rails/rails.ts";
import { createReader } from "../../infra/rails/rpc.ts";
import type { FolderWallets } from "../../infra/rails/wallet-folder.ts";
import { WalletFolder } from "../../infra/rails/wallet-folder.ts";
import { TOPICS } from "../../pipelines/record/topics.ts";
import { OBSERVER_SECRET_NAME, walletsFolderOf } from "../../pipelines/roles/data-folder.ts";
import { payBy } from "../../serving/client/index.ts";
import { type FundedChain, fundedChain, sellerOn } from "../helpers/funded-chain.ts";
import { runs } from "../helpers/programs.ts";
import { capOf, cardOf, listingDraft, PublicRecord, rowOf } from "../helpers/public-record.ts";

/**
 * Selling off the demo: `touchstone serve` in a process of its own over a node with the id, the USDC address and the
 * signing domain of Base, where nobody can mint; its wallets lie in a folder and were funded from outside. The buyer is
 * the protocol's own client. A sale waits for the chain's own word that a block is final.
 */
const BASE = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913";
const NETWORK = "eip155:8453";
const PRICE = "0.100000";
const TOTAL = 110_000n;

let chain: FundedChain;
let record: PublicRecord;
let rail: Rail;
let seller: Awaited<ReturnType<typeof sellerOn>>;
/** Settles on the demo's network only. */
let elsewhere: Server;
let config: Config;
let wallets: FolderWallets;
let service: ChildProcess | null = null;
let url: string;

const settings = (): Record<string, string> => ({
  TOUCHSTONE_DATA_DIR: record.dir,
  TOUCHSTONE_ALLOW_LOOPBACK: "true",
  TOUCHSTONE_BASE_URL: "https://touchstone.test",
  TOUCHSTONE_PORT: "0",
  TOUCHSTONE_LOG_LEVEL: "warn",
  TOUCHSTONE_NETWORKS: JSON.stringify([
    { id: NETWORK, rpc_urls: [chain.rpcUrl, chain.rpcUrl.replace("127.0.0.1", "localhost")], agree: 2 },
  ]),
  TOUCHSTONE_SELL_NETWORK: NETWORK,
});

/** `touchstone serve` as its own process, once it listens. */
async function started(): Promise<string> {
  const root = resolve(import.meta.dirname, "../..");
  const child = spawn(process.execPath, [...runs("touchstone.ts"), "serve"], {
    ...{ cwd: root, env: { ...process.env, ...settings() }, stdio: ["ignore", "pipe", "inherit"] },
  });
  service = child;
  let said = "";
  const at = await new Promise<string>((found, failed) => {
    child.stdout!.on("data", (chunk: Buffer) => {
      said += chunk.toString();
      const at = /^Serving at (http:\S+)/m.exec(said)?.[1];
      if (at) found(at);
    });
    child.once("exit", (code) => failed(new Error(`it ended with ${code}: ${said}`)));
  });
  // It listens before it has read the record.
  await expect.poll(async () => (await fetch(`${at}/readyz`)).status).toBe(200);
  return at;
}

async function stopped(): Promise<void> {
  const child = service;
  service = null;
  if (!child || child.exitCode !== null) return;
  const gone = new Promise((done) => child.once("exit", done));
  child.kill("SIGTERM");
  await gone;
}

const viaOf = () => `${url}/v1/via/${capOf({ url: seller.url })}`;
const quietly = async <T>(work: () => T | Promise<T>): Promise<T> => {
  const spy = vi.spyOn(process.stdout, "write").mockReturnValue(true);
  try {
    return await work();
  } finally {
    spy.mockRestore();
  }
};

beforeAll(async () => {
  [chain, record] = await Promise.all([fundedChain(8453), PublicRecord.open()]);
  const payTo = "0x00000000000000000000000000000000000000b2";
  seller = await sellerOn({ network: NETWORK, asset: BASE, amount: "100000", payTo }, chain);
  const spec = { url: seller.url };
  await record.publish([listingDraft(spec)], record.grades([cardOf(spec, { band: "B" })], "B: it passed."));
  await record.live([rowOf(spec, { price: PRICE, pay_to: payTo })]);
  createSecret(join(record.dir, "keys"), OBSERVER_SECRET_NAME);
  elsewhere = createServer((_, response) => {
    const kinds = [{ x402Version: 2, scheme: "exact", network: "eip155:84532" }];
    const body = JSON.stringify({ kinds, extensions: [], signers: {} });
    response.writeHead(200, { "content-type": "application/json" }).end(body);
  });
  await new Promise<void>((done) => elsewhere.listen(0, "127.0.0.1", done));
  config = loadConfig(undefined, settings());
  // Beside a published record a log was there: none is made in the place of one that was lost.
  const partitions = config.log_partitions;
  await (await openEmbeddedLog(join(record.dir, "log"), { topics: TOPICS, partitions })).close();
  rail = createEvmRail({ rpcUrl: chain.rpcUrl, asset: BASE, network: NETWORK, confirmations: 1 });
});
afterAll(async () => {
  await stopped();
  await seller?.close();
  elsewhere?.closeAllConnections();
  elsewhere?.close();
  await chain?.stop();
  await record?.close();
});

const standings = (found: readonly Finding[]) =>
  Object.fromEntries(found.filter(({ name }) => !/network|token/.test(name)).map((one) => [one.name, one.standing]));

test("without wallets nothing is sold, and who asks to buy is told what is missing", async () => {
  url = await started();
  const answer = await fetch(viaOf());
  expect([answer.status, ((await answer.json()) as { detail: string }).detail]).toEqual([
    503,
    expect.stringContaining("wallets are missing (till, float, gas)"),
  ]);
  expect(standings(await sellingFindings(config))["sell wallets"]).toBe("broken");
  await stopped();
});

test("doctor: what the wallets hold, whether the facilitator knows the network, whether there is an escrow", async () => {
  await quietly(() => newWallets(config, { blind: 0, json: true }));
  wallets = new WalletFolder(walletsFolderOf(config)).read();
  expect(standings(await sellingFindings(config))).toEqual({
    ...{ "sell till": "ok", "sell float": "warn", "sell gas": "broken", "facilitator 1": "ok", escrow: "ok" },
  });
  await chain.fund(wallets.float!.address, 5_000_000n);
  await chain.giveGas(wallets.gas!.address);
  const at = `http://127.0.0.1:${(elsewhere.address() as AddressInfo).port}`;
  const facilitators = [{ url: at, headers: {} }, "own" as const];
  const found = await sellingFindings({ ...config, sell: { ...config.sell, facilitators } });
  expect(standings(found)).toMatchObject({
    ...{ "sell float": "ok", "sell gas": "ok", "facilitator 1": "broken", "facilitator 2": "ok" },
  });
  expect(found.find(({ name }) => name === "escrow")?.says).toBe("is offered");
  const node = { id: NETWORK, rpc_urls: [chain.rpcUrl], agree: 1, confirmations: 1, assets: [] };
  const dear = await sellingFindings({ ...config, networks: [{ ...node, gas_ceiling_gwei: 1e-9 }] });
  expect(standings(dear)).toMatchObject({ "sell gas": "ok", "sell gas price": "broken" });
});

/** The protocol's own client, unmodified, with money that it did not mint. */
async function buyer(way: "exact" | "escrow") {
  const account = privateKeyToAccount(generatePrivateKey());
  await chain.fund(account.address, 1_000_000n);
  const client = new x402Client()
    .register(NETWORK, new ExactEvmScheme(account))
    .register(NETWORK, new AuthCaptureEvmScheme(account));
  if (way === "escrow") client.registerPolicy(payBy("escrow"));
  return { address: account.address.toLowerCase(), fetch: wrapFetchWithPayment(fetch, client) };
}

test("the official client buys through via, on delivery and out of escrow: settled on chain, and the ledger balances", async () => {
  url = await started();
  for (const [n, way] of (["exact", "escrow"] as const).entries()) {
    const { address, fetch: pay } = await buyer(way);
    const answer = await pay(viaOf());
    expect([way, answer.status, await answer.text()]).toEqual([way, 200, '{"sum":42}']);
    const settled = decodePaymentResponseHeader(answer.headers.get("payment-response")!);
    expect(settled).toMatchObject({ success: true, network: NETWORK, payer: address });
    expect((await rail.balance(address)).value).toBe(1_000_000n - TOTAL);
    expect((await rail.balance(wallets.till!.address)).value).toBe(TOTAL * BigInt(n + 1));
  }
  expect((await rail.balance(ESCROW)).value).toBe(0n);
  expect(seller.seen.payers).toEqual(new Set([wallets.float!.address]));
  // Charge and seller's payment are final a few blocks later, and recovery writes that down.
  await expect
    .poll(async () => (await ledgerOf(config, chain.rpcUrl)).assets[0]!.owed, { interval: 1_000 })
    .toEqual([]);
  const { assets } = await ledgerOf(config, chain.rpcUrl);
  // One transaction on delivery and two with escrow, each as the chain's own receipts have it; together what the key has spent.
  const { gas } = assets[0]!;
  expect(
    Object.entries(gas)
      .map(([kind, { transactions }]) => [kind, transactions])
      .sort(),
  ).toEqual([
    ...[
      ["capture", 1],
      ["charge", 1],
      ["hold", 1],
    ],
  ]);
  const spent = Object.values(gas).reduce((sum, { wei }) => sum + BigInt(wei), 0n);
  const reader = createReader(chain.rpcUrl);
  const left = await reader.getBalance({ address: wallets.gas!.address as `0x${string}` });
  expect(spent).toBe(10n ** 21n - left);
  expect(assets).toMatchObject([
    {
      ...{ network: NETWORK, asset: BASE, orders: 2, sum: "0.000000", differences: [] },
      accounts: { till: "0.220000", sales: "-0.220000", float: "-0.200000", "calls bought": "0.200000" },
      wallets: {
        [wallets.till!.address]: { cash: "till", books: "0.220000", holds: "0.220000" },
        [wallets.float!.address]: { cash: "float", books: "-0.200000", holds: "4.800000" },
      },
    },
  ]);
});

test("a float that cannot pay the seller signs nothing: the buyer is told so and keeps its money", async () => {
  await chain.fund(wallets.float!.address, 99_999n);
  const { address, fetch: pay } = await buyer("exact");
  const answer = await pay(viaOf());
  expect([answer.status, (await rail.balance(address)).value, seller.seen.paid.length]).toEqual([402, 1_000_000n, 2]);
  const body = (await answer.json()) as { detail: string };
  expect(JSON.stringify(body)).toContain("not enough money to pay this seller");
});

test("what was taken in leaves by the operator's own command", async () => {
  const to = "0x00000000000000000000000000000000000000c3";
  await quietly(() => sweepWallets(config, { to, till: true, json: true }));
  expect([(await rail.balance(to)).value, (await rail.balance(wallets.till!.address)).value]).toEqual([2n * TOTAL, 0n]);
});
