import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { privateKeyToAccount } from "viem/accounts";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { watchMoney } from "../../commands/selling.ts";
import { type LocalChain, startLocalChain } from "../../fixtures/chain/local-chain.ts";
import { loadConfig } from "../../infra/config.ts";
import { configuredNetworks, railOn } from "../../infra/rails/networks.ts";
import { createReader } from "../../infra/rails/rpc.ts";

/** A node in front of a local chain that answers 503 until it is told to forward. */
let chain: LocalChain;
let node: Server;
let isBusy = true;
beforeEach(async () => {
  chain = await startLocalChain();
  node = createServer(async (request, response) => {
    if (isBusy) return void response.writeHead(503).end();
    const parts: Buffer[] = [];
    for await (const part of request) parts.push(part as Buffer);
    const headers = { "content-type": "application/json" };
    const answer = await fetch(chain.rpcUrl, { method: "POST", headers, body: Buffer.concat(parts) });
    response.writeHead(answer.status, headers).end(await answer.text());
  });
  await new Promise<void>((resolve) => node.listen(0, "127.0.0.1", resolve));
});
afterEach(async () => {
  await new Promise((resolve) => node.close(resolve));
  await chain.stop();
});

test("a node that is busy at the start costs escrow a minute, not the life of the process", async () => {
  const rpcUrl = `http://127.0.0.1:${(node.address() as AddressInfo).port}`;
  const [network] = configuredNetworks(loadConfig(undefined, { TOUCHSTONE_CHAIN_RPC_URL: rpcUrl }));
  const privateKey = `0x${"1".repeat(64)}` as const;
  const wallet = { name: "wallet", address: privateKeyToAccount(privateKey).address, privateKey };
  let pass = () => {};
  const sleep = () =>
    new Promise<void>((resolve) => {
      pass = resolve;
    });
  const warnings: unknown[] = [];
  const watch = watchMoney({
    ...{ network: network!, rail: railOn([network!]), reader: createReader([rpcUrl]) },
    wallets: { till: wallet, float: wallet, gas: wallet },
    logger: { warn: (facts: unknown) => warnings.push(facts) } as never,
    metrics: { gauge: () => {} },
    clock: { sleep },
  });
  try {
    await watch.first;
    expect([watch.isEscrowOffered(), watch.closed()]).toEqual([false, expect.stringContaining("not been checked")]);
    expect(warnings.length).toBeGreaterThan(1);
    isBusy = false;
    pass();
    await vi.waitFor(() => expect(watch.isEscrowOffered()).toBe(true), { timeout: 150_000 });
    expect(watch.closed()).toContain("cannot pay the gas");
  } finally {
    const stopped = watch.stop();
    pass();
    await stopped;
  }
});
