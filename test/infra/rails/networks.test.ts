import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { exitCodeOf } from "../../../commands/exit.ts";
import { loadConfig } from "../../../infra/config.ts";
import { checkNetwork, createNetworkGuard, requireNetworks } from "../../../infra/rails/network-checks.ts";
import { configuredNetworks, createRails, type Network, paidNetworks, railOn } from "../../../infra/rails/networks.ts";
import type { PayableEntry, Rail } from "../../../infra/rails/rails.ts";
import { createReader } from "../../../infra/rails/rpc.ts";
import { requireLocalChain } from "../../../infra/rails/wallets.ts";
import { redact } from "../../../infra/secrets.ts";
import { type FundedChain, fundedChain, sellerOn } from "../../helpers/funded-chain.ts";
import { PAYEE } from "./harness.ts";

const BASE = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913";
const NOBODY = "http://127.0.0.1:9";
const OTHER = "0x000000000000000000000000000000000000dead";
const config = (networks: unknown, more: Record<string, string> = {}) =>
  loadConfig(undefined, { TOUCHSTONE_NETWORKS: JSON.stringify(networks), ...more });

describe("settings", () => {
  test("an id and a node suffice where the chain's USDC is known", () => {
    const [base, sepolia, celo] = configuredNetworks(
      config(["eip155:8453", "eip155:84532", "eip155:42220"].map((id) => ({ id, rpc_urls: [NOBODY] }))),
    );
    expect(base).toEqual({
      ...{ id: "eip155:8453", rpcUrls: [NOBODY], agree: 1, confirmations: "finalized" },
      gasCeiling: 10_000_000_000n,
      assets: [{ symbol: "USDC", address: BASE, decimals: 6, name: "USD Coin", version: "2" }],
    });
    expect(sepolia).toMatchObject({ confirmations: 1, assets: [{ name: "USDC", version: "2" }] });
    expect(celo).toMatchObject({ confirmations: "finalized", assets: [{ name: "USDC", version: "2" }] });
  });

  test("chain.* is short for one network, with a node or without", () => {
    const one = loadConfig(undefined, { TOUCHSTONE_CHAIN_NETWORK: "eip155:8453", TOUCHSTONE_CHAIN_RPC_URL: NOBODY });
    expect(configuredNetworks(one)).toEqual(configuredNetworks(config([{ id: "eip155:8453", rpc_urls: [NOBODY] }])));
    const none = loadConfig(undefined, {});
    expect(configuredNetworks(none)).toMatchObject([{ id: "eip155:84532", rpcUrls: [] }]);
    expect(() => paidNetworks(none)).toThrow("TOUCHSTONE_CHAIN_RPC_URL");
  });

  test.each<[string, unknown, string]>([
    ["a chain whose USDC nobody knows", [{ id: "eip155:999999", rpc_urls: [NOBODY] }], "networks.0.assets"],
    [
      "two addresses of one host that are to agree",
      [
        {
          id: "eip155:8453",
          rpc_urls: ["https://a.example/k1", "https://b.example", "https://A.example:443/k2"],
          agree: 2,
        },
      ],
      "networks.0.rpc_urls: 0 and 2 are of one host, a.example",
    ],
    ...["https://a.example:8443/k2", "https://a.example./k2"].map((second): [string, unknown, string] => [
      `one host as ${second}`,
      [{ id: "eip155:8453", rpc_urls: ["https://a.example/k1", second], agree: 2 }],
      "networks.0.rpc_urls: 0 and 1 are of one host, a.example",
    ]),
    [
      "one token twice",
      [
        {
          id: "eip155:8453",
          rpc_urls: [NOBODY],
          assets: [BASE, BASE.toUpperCase().replace("X", "x")].map((address) => ({ address })),
        },
      ],
      `networks.0.assets: ${BASE} is named twice`,
    ],
    ["more nodes to agree than there are", [{ id: "eip155:8453", rpc_urls: [NOBODY], agree: 2 }], "networks.0.agree"],
    ["one network twice", [1, 2].map(() => ({ id: "eip155:8453", rpc_urls: [NOBODY] })), "named twice"],
    ["no EVM chain", [{ id: "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp", rpc_urls: [NOBODY] }], "priced and not paid"],
    [
      "a token of a signing domain that nobody knows",
      [{ id: "eip155:8453", rpc_urls: [NOBODY], assets: [{ address: OTHER }] }],
      "networks.0.assets.0",
    ],
    ["no node", [{ id: "eip155:8453", rpc_urls: [] }], "RPC_URLS"],
    ["a depth that is none", [{ id: "eip155:8453", rpc_urls: [NOBODY], confirmations: "latest" }], "CONFIRMATIONS"],
  ])("%s is refused, by the setting's name", (_, networks, says) => {
    expect(() => configuredNetworks(config(networks))).toThrow(says);
  });

  test("the key in a node's address reaches no text", () => {
    config([{ id: "eip155:8453", rpc_urls: ["https://rpc.test/v2/a-key-of-mine?token=another-key"] }]);
    expect(redact("https://rpc.test/v2/a-key-of-mine?token=another-key")).not.toMatch(/key-of-mine|another-key/);
  });
});

const entry = (network: string, asset: string, amountAtomic: bigint): PayableEntry => ({
  ...{ x402Version: 2, scheme: "exact", network, asset, payTo: PAYEE, amountAtomic, maxTimeoutSeconds: 60 },
  ...{ extra: { name: "USD Coin", version: "2" }, raw: {} },
});

test("a token of 18 decimals: whole micro-units are paid, and what the record could not say is not", () => {
  const token = { symbol: "USDC", address: OTHER, decimals: 18, name: "USD Coin", version: "1" };
  const node = { id: "eip155:56", rpcUrls: [NOBODY], agree: 1, confirmations: 1 };
  const one: Network = { ...node, gasCeiling: 1n, assets: [token] };
  for (const rail of [railOn([{ ...one, rpcUrls: [] }]), railOn([one])]) {
    expect(rail.canPay(entry("eip155:56", OTHER, 20_000_000_000_000_000n))).toBe(true);
    expect(rail.canPay(entry("eip155:56", OTHER, 20_000_000_000_000_001n))).toBe(false);
    expect(rail.decimalsOf!({ network: "eip155:56", asset: OTHER })).toBe(18);
  }
});

test("a question that does not say which chain is refused where there are several", async () => {
  const rail = railOn(
    configuredNetworks(config(["eip155:8453", "eip155:137"].map((id) => ({ id, rpc_urls: [NOBODY] })))),
  );
  const query = { from: OTHER, nonce: `0x${"1".repeat(64)}`, sinceBlock: 0 };
  await expect(rail.settlementOf(query)).rejects.toThrow("name one");
  await expect(rail.settlementOf({ ...query, network: "eip155:1", asset: BASE })).rejects.toThrow("0 rails");
  await expect(rail.head()).rejects.toThrow("name one");
});

test("a rail without a node says of every question that the chain is down", async () => {
  const rail = railOn(configuredNetworks(loadConfig(undefined, {})));
  const query = { from: OTHER, nonce: `0x${"1".repeat(64)}`, sinceBlock: 0 };
  for (const ask of [() => rail.head(), () => rail.balance(OTHER), () => rail.settlementOf(query)])
    await expect(ask()).rejects.toMatchObject({ name: "ChainDown" });
});

/** A node in between that answers some methods in its own way, or with an error: a lagging one, a lying one, a busy one. */
async function through(
  rpcUrl: string,
  answers: Record<string, unknown>,
  errors: Record<string, unknown> = {},
): Promise<{ url: string; server: Server }> {
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const asked = JSON.parse(Buffer.concat(chunks).toString()) as { id: number; method: string };
    const headers = { "content-type": "application/json" };
    if (asked.method in answers || asked.method in errors) {
      const [result, error] = [answers[asked.method], errors[asked.method]];
      return void response.writeHead(200, headers).end(JSON.stringify({ jsonrpc: "2.0", id: asked.id, result, error }));
    }
    const answer = await fetch(rpcUrl, { method: "POST", body: JSON.stringify(asked), headers });
    response.writeHead(200, headers).end(await answer.text());
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, server };
}

describe("over a chain", () => {
  let chain: FundedChain;
  let blindNode: Awaited<ReturnType<typeof through>>;
  let base: Network;
  beforeAll(async () => {
    chain = await fundedChain(8453);
    blindNode = await through(chain.rpcUrl, { eth_getLogs: [] });
    [base] = configuredNetworks(config([{ id: "eip155:8453", rpc_urls: [chain.rpcUrl] }])) as [Network];
  });
  afterAll(async () => {
    blindNode?.server.close();
    await chain?.stop();
  });

  test("a chain that is what the settings say", async () => {
    const findings = await checkNetwork(base);
    expect(findings.filter(({ standing }) => standing !== "ok")).toEqual([]);
    expect(findings.map(({ name }) => name)).toEqual([
      "network eip155:8453 node 1",
      "network eip155:8453 confirmations",
      `token USDC ${BASE} on eip155:8453: decimals`,
      `token USDC ${BASE} on eip155:8453: signing domain`,
    ]);
  });

  const wrong: [string, (one: Network) => Network, string[]][] = [
    ["another chain's id", (one) => ({ ...one, id: "eip155:137" }), ["eip155:137", "eip155:8453"]],
    [
      "another domain",
      (one) => ({ ...one, assets: [{ ...one.assets[0]!, name: "USDC" }] }),
      ['settings say name "USDC"', 'token says name "USD Coin"'],
    ],
    [
      "another version of it",
      (one) => ({ ...one, assets: [{ ...one.assets[0]!, version: "1" }] }),
      ['version "1"', 'version "2"'],
    ],
    [
      "other decimals",
      (one) => ({ ...one, assets: [{ ...one.assets[0]!, decimals: 18 }] }),
      ["settings say 18", "token says 6"],
    ],
    ["no contract", (one) => ({ ...one, assets: [{ ...one.assets[0]!, address: OTHER }] }), [OTHER, "no contract"]],
  ];
  test.each(wrong)("%s: refused, both sides named, with a code of its own", async (_, change, says) => {
    const refused = await requireNetworks([change(base)]).then(
      () => null,
      (error: Error) => error,
    );
    expect(refused?.name).toBe("network");
    for (const text of says) expect(refused!.message).toContain(text);
    expect(exitCodeOf(refused)).toBe(21);
    const confirm = createNetworkGuard([change(base)]);
    await expect(confirm(change(base).id)).rejects.toMatchObject({ name: "network" });
  });

  test("a node that is down is no mismatch: what is left is said, and nothing is signed until enough answer", async () => {
    const half = { ...base, rpcUrls: [NOBODY, chain.rpcUrl] };
    expect(await requireNetworks([half])).toMatchObject([{ name: "network eip155:8453 node 1", standing: "warn" }]);
    await createNetworkGuard([half])("eip155:8453");
    await expect(createNetworkGuard([{ ...half, agree: 2 }])("eip155:8453")).rejects.toMatchObject({
      name: "ChainDown",
    });
    const dead = { ...base, rpcUrls: [NOBODY] };
    expect(await requireNetworks([dead])).toMatchObject([{ standing: "warn" }]);
    const rail = railOn([dead], createNetworkGuard([dead]));
    const wallet = { address: OTHER, privateKey: `0x${"1".repeat(64)}` };
    await expect(rail.sign(entry("eip155:8453", BASE, 5n), wallet, {})).rejects.toMatchObject({ name: "ChainDown" });
  });

  const LIMITED = { code: -32005, message: "Request exceeds defined limit" };
  const INTERNAL = { code: -32603, message: "Internal error" };
  test.each<[string, Record<string, unknown>, Record<string, unknown>, RegExp]>([
    ["a limit on blocks", {}, { eth_getBlockByNumber: LIMITED }, / confirmations$/],
    ["another limit on them", {}, { eth_getBlockByNumber: { code: -32000, message: "too busy" } }, / confirmations$/],
    ["an internal error for each call", {}, { eth_call: INTERNAL }, /^token /],
    ["a limit on calls", {}, { eth_call: LIMITED }, /^token /],
    ["null for code", { eth_getCode: null }, {}, /^token /],
    ["null for calls", { eth_call: null }, {}, /^token /],
  ])("a node with %s is no mismatch: it is said, and nothing is signed", async (_, answers, errors, name) => {
    const busy = await through(chain.rpcUrl, answers, errors);
    const network = { ...base, rpcUrls: [busy.url] };
    const found = { standing: "warn", name: expect.stringMatching(name) };
    expect(await requireNetworks([network])).toEqual([expect.objectContaining(found)]);
    await expect(createNetworkGuard([network])(base.id)).rejects.toMatchObject({ name: "ChainDown" });
    busy.server.close();
  });

  test.each([
    ["no such block", { eth_getBlockByNumber: null }, {}],
    ["an unknown tag", {}, { eth_getBlockByNumber: { code: -32602, message: "invalid argument 0: hex string" } }],
    ["no final block", {}, { eth_getBlockByNumber: { code: -32000, message: "finalized block not found" } }],
  ])("a node that answers the tag of finality with %s does not know it", async (_, answers, errors) => {
    const node = await through(chain.rpcUrl, answers, errors);
    await expect(requireNetworks([{ ...base, rpcUrls: [node.url] }])).rejects.toMatchObject({ name: "network" });
    node.server.close();
  });

  test("two nodes have to agree: what one alone tells of is neither settled nor missing", async () => {
    const seller = await sellerOn({ network: "eip155:8453", asset: BASE, amount: "20000", payTo: PAYEE }, chain);
    const { privateKeyToAddress } = await import("viem/accounts");
    const privateKey = `0x${"7".repeat(64)}` as const;
    const wallet = { address: privateKeyToAddress(privateKey).toLowerCase(), privateKey };
    await chain.fund(wallet.address, 1_000_000n);
    const over = (rpcUrls: string[], agree: number): Rail => railOn([{ ...base, rpcUrls, agree, confirmations: 1 }]);
    const one = over([chain.rpcUrl], 1);
    const { number: sinceBlock } = await one.head();
    const signed = await one.sign({ ...entry("eip155:8453", BASE, 20_000n), raw: seller.terms }, wallet, {});
    const query = { from: wallet.address, nonce: signed.nonce, sinceBlock, network: "eip155:8453", asset: BASE };
    const both = over([chain.rpcUrl, blindNode.url], 2);
    expect((await both.settlementOf(query)).value).toBeNull();

    const paid = await fetch(seller.url, { headers: { "payment-signature": signed.headerValue } });
    expect(paid.status).toBe(200);
    await seller.close();
    const settled = { tx: seller.seen.paid[0], amountAtomic: 20_000n, final: true };
    expect((await one.settlementOf(query)).value).toMatchObject(settled);
    await expect(both.settlementOf(query)).rejects.toMatchObject({ name: "ChainDown" });
    // A third that saw it too: two agree, and the one that did not is outvoted. So is one that is down.
    expect((await over([blindNode.url, chain.rpcUrl, chain.rpcUrl], 2).settlementOf(query)).value).toMatchObject(
      settled,
    );
    expect((await over([NOBODY, chain.rpcUrl, chain.rpcUrl], 2).settlementOf(query)).value).toMatchObject(settled);
    await expect(over([NOBODY, chain.rpcUrl], 2).settlementOf(query)).rejects.toMatchObject({ name: "ChainDown" });
    expect((await over([NOBODY, chain.rpcUrl], 1).settlementOf(query)).value).toMatchObject(settled);
    const back = { from: wallet.address, to: PAYEE, sinceBlock, network: "eip155:8453", asset: BASE };
    expect((await over([chain.rpcUrl, chain.rpcUrl], 2).transfers(back)).value).toHaveLength(1);
    await expect(both.transfers(back)).rejects.toMatchObject({ name: "ChainDown" });
  });

  test.each<[string, unknown, Record<string, unknown>]>([
    ["null of a call", null, { eth_call: null }],
    ["nothing of a call, as of a token that it has not synced", "0x", { eth_call: "0x" }],
    ["a word that is too short", "0x01", { eth_call: "0x01" }],
    ["null of logs", null, { eth_getLogs: null }],
  ])("%s: one node's own trouble", async (_, result, answers) => {
    const bad = await through(chain.rpcUrl, answers);
    const over = (rpcUrls: string[], agree: number): Rail => railOn([{ ...base, rpcUrls, agree, confirmations: 1 }]);
    const query = { from: OTHER, to: PAYEE, sinceBlock: 0, network: "eip155:8453", asset: BASE };
    const reads = [(rail: Rail) => rail.balance(OTHER), (rail: Rail) => rail.transfers(query)];
    const read = reads["eth_call" in answers ? 0 : 1]!;
    const { value } = await read(over([chain.rpcUrl], 1));
    expect((await read(over([bad.url, chain.rpcUrl], 1))).value).toEqual(value);
    expect((await read(over([chain.rpcUrl, chain.rpcUrl, bad.url], 2))).value).toEqual(value);
    await expect(read(over([bad.url], 1))).rejects.toMatchObject({ name: "ChainDown" });
    if (result === null) {
      const reader = createReader([bad.url, chain.rpcUrl]);
      expect(await reader.getLogs({ address: OTHER })).toEqual([]);
      expect((await reader.call({ to: BASE, data: "0x313ce567" })).data).toMatch(/6$/);
    }
    bad.server.close();
  });

  test("the head that two nodes agree on is the older one: nothing is called over too soon", async () => {
    const genesis = await fetch(chain.rpcUrl, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "eth_getBlockByNumber", params: ["0x0", false] }),
    });
    const { result } = (await genesis.json()) as { result: unknown };
    const lagging = await through(chain.rpcUrl, { eth_getBlockByNumber: result });
    const rail = railOn([{ ...base, rpcUrls: [chain.rpcUrl, lagging.url], agree: 2 }]);
    expect(await rail.head()).toMatchObject({ number: 0 });
    // And the check of the network says so when they are far apart.
    const old = await through(chain.rpcUrl, { eth_getBlockByNumber: { ...(result as object), timestamp: "0x1" } });
    const findings = await checkNetwork({ ...base, rpcUrls: [chain.rpcUrl, old.url] });
    expect(findings.find(({ name }) => name.endsWith("in step"))).toMatchObject({ standing: "warn" });
    old.server.close();
    lagging.server.close();
  });

  test("money is minted on a node that was started for it, and nowhere else", async () => {
    await requireLocalChain(chain.rpcUrl);
    const real = await through(chain.rpcUrl, { web3_clientVersion: "reth/v1.9.3/x86_64-unknown-linux-gnu" });
    await expect(requireLocalChain(real.url)).rejects.toThrow("wallets.mint");
    real.server.close();
  });

  test("a rail over none is no rail", () => {
    expect(() => createRails([])).toThrow(TypeError);
  });
});
