import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { type Abi, encodeFunctionData } from "viem";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { readArtefact } from "../../../fixtures/chain/artefact.ts";
import { createEvmRail } from "../../../infra/rails/evm.ts";
import type { Payers } from "../../../infra/rails/rails.ts";
import { ChainDown, createReader } from "../../../infra/rails/rpc.ts";
import { LOCAL_MINTER } from "../../../infra/rails/wallets.ts";
import { entryV2, offer, payer, type Rig, startRig } from "./harness.ts";

const PAYEE = "0x00000000000000000000000000000000000000c3";
const STRANGER = "0x00000000000000000000000000000000000000d4";

let rig: Rig;
/** What the payee was sent, and the time of the block after that. */
let sent: Payers["payers"];
let until: number;
const servers: Server[] = [];

beforeAll(async () => {
  rig = await startRig();
  const [often, once, late] = [await payer(rig), await payer(rig), await payer(rig)];
  for (const [wallet, amount] of [[often, 300n] as const, [often, 50n] as const, [once, 100n] as const])
    await pay(wallet, amount);
  const token = readArtefact("LocalUsdc").abi as Abi;
  // Minted money, and a Transfer of nothing that somebody made in a stranger's name: neither is a payment.
  await send(encodeFunctionData({ abi: token, functionName: "mint", args: [PAYEE, 77n] }));
  await send(encodeFunctionData({ abi: token, functionName: "transferFrom", args: [STRANGER, PAYEE, 0n] }));
  const { time } = await rig.rail.head();
  await vi.waitUntil(async () => (await rig.rail.head()).time > time, { timeout: 10_000 });
  until = await pay(late, 999n);
  sent = new Map([
    [often.address, { transfers: 2, amountAtomic: 350n }],
    [once.address, { transfers: 1, amountAtomic: 100n }],
  ]);
});
afterAll(async () => {
  for (const server of servers) server.close();
  await rig.stop();
});

/** @returns the time of its block */
async function pay(wallet: Awaited<ReturnType<typeof payer>>, amount: bigint): Promise<number> {
  const entry = entryV2(amount, { payTo: PAYEE, raw: { ...(entryV2(amount).raw as object), payTo: PAYEE } });
  const signed = await rig.rail.sign(entry, wallet, {});
  expect(await rig.facilitator.settle(...offer(entry, signed))).toMatchObject({ success: true });
  return (await rig.rail.settlementOf({ from: signed.from, nonce: signed.nonce, sinceBlock: 0 })).value!.blockTime;
}

async function send(data: string): Promise<void> {
  const reader = createReader(rig.chain.rpcUrl);
  const transaction = { from: LOCAL_MINTER, to: rig.chain.asset, data, gas: "0x80000" };
  const receipt = await reader.request({ method: "eth_sendTransactionSync", params: [transaction] } as never);
  expect(receipt).toMatchObject({ status: "0x1" });
}

interface Asked {
  id: number;
  method: string;
  params: [{ fromBlock: string; toBlock: string }];
}
type Logs = Record<string, unknown>[];

/** A node of the same chain that has its own mind about logs: what it answers, or null for a refusal. */
async function nodeThat(answers: (logs: Logs, blocks: number, from: number) => Logs | null) {
  const asked: number[] = [];
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const question = JSON.parse(Buffer.concat(chunks).toString()) as Asked;
    const headers = { "content-type": "application/json" };
    const got = await fetch(rig.chain.rpcUrl, { method: "POST", body: JSON.stringify(question), headers });
    const answer = (await got.json()) as { result: Logs };
    response.writeHead(200, headers);
    if (question.method !== "eth_getLogs") return void response.end(JSON.stringify(answer));
    const [{ fromBlock, toBlock }] = question.params;
    const blocks = Number(toBlock) - Number(fromBlock) + 1;
    asked.push(blocks);
    const result = answers(answer.result, blocks, Number(fromBlock));
    const said = result ? { result } : { error: { code: -32614, message: "so much is not given at once" } };
    response.end(JSON.stringify({ jsonrpc: "2.0", id: question.id, ...said }));
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  servers.push(server);
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, asked };
}

const railOver = (rpcUrl: string | string[], agree = 1) => {
  const { network, asset } = rig.chain;
  return createEvmRail({ rpcUrl, agree, network, asset, confirmations: 1 });
};
const payersOn = (rpcUrl: string | string[], agree = 1, since = 0) =>
  railOver(rpcUrl, agree).payersOf({ to: PAYEE, since, until });

test("every payer with what it sent, up to the last block before the end", async () => {
  const all = await payersOn(rig.chain.rpcUrl);
  expect(all).toMatchObject({ payers: sent, fromBlock: 0, whole: true });
  const { timestamp } = await createReader(rig.chain.rpcUrl).getBlock({ blockNumber: BigInt(all!.toBlock + 1) });
  expect(Number(timestamp)).toBe(until);
  // Before the chain began there is nothing to read, and from its end on nobody has paid yet.
  expect(await railOver(rig.chain.rpcUrl).payersOf({ to: PAYEE, since: 0, until: 1 })).toBeNull();
  const rest = await railOver(rig.chain.rpcUrl).payersOf({ to: PAYEE, since: until, until: until + 3_600 });
  expect([...rest!.payers.values()]).toEqual([{ transfers: 1, amountAtomic: 999n }]);
  expect(rest!.fromBlock).toBe(all!.toBlock + 1);
});

test("a node that bounds blocks, or logs, is asked in halves, and keeps to what it took", async () => {
  const whole = await payersOn(rig.chain.rpcUrl);
  const narrow = await nodeThat((logs, blocks) => (blocks > 3 ? null : logs));
  expect(await payersOn(narrow.url)).toEqual(whole);
  const taken = narrow.asked.findIndex((blocks) => blocks <= 3);
  expect(narrow.asked.slice(taken).every((blocks) => blocks <= 3)).toBe(true);
  const short = await nodeThat((logs) => (logs.length > 1 ? null : logs));
  expect(await payersOn(short.url)).toEqual(whole);
});

test("a node without old logs gives a part that says so, and one that gives none is down", async () => {
  const { toBlock } = (await payersOn(rig.chain.rpcUrl))!;
  const pruned = await nodeThat((logs, _blocks, from) => (from < toBlock - 1 ? null : logs));
  expect(await payersOn(pruned.url)).toMatchObject({ fromBlock: toBlock - 1, toBlock, whole: false });
  const closed = await nodeThat(() => null);
  await expect(payersOn(closed.url)).rejects.toBeInstanceOf(ChainDown);
  expect(closed.asked.length).toBeLessThan(20);
});

test("where two have to agree, no payer is believed that one node alone tells of", async () => {
  const invented = `0x${"0".repeat(24)}${"e".repeat(40)}`;
  const liar = await nodeThat((logs) =>
    logs.map((log) => ({ ...log, topics: [(log.topics as string[])[0], invented, (log.topics as string[])[2]] })),
  );
  const { rpcUrl } = rig.chain;
  expect((await payersOn(liar.url))!.payers.size).toBe(1);
  await expect(payersOn([liar.url, rpcUrl], 2)).rejects.toBeInstanceOf(ChainDown);
  expect((await payersOn([liar.url, rpcUrl, rpcUrl], 2))!.payers).toEqual(sent);
});

test("a stop ends a reading", async () => {
  const query = { to: PAYEE, since: 0, until, signal: AbortSignal.abort(new Error("stopped")) };
  await expect(railOver(rig.chain.rpcUrl).payersOf(query)).rejects.toThrow("stopped");
});
