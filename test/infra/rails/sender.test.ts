import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import {
  type Abi,
  encodeErrorResult,
  erc20Abi,
  formatTransactionReceipt,
  type Hex,
  keccak256,
  parseAbi,
  parseTransaction,
} from "viem";
import { generatePrivateKey } from "viem/accounts";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { startLocalChain } from "../../../fixtures/chain/local-chain.ts";
import { ChainDown, chainRead, createReader, type Reader } from "../../../infra/rails/rpc.ts";
import { createSender, transact, whyItWouldRevert } from "../../../infra/rails/sender.ts";

const ABI = parseAbi(["function pay() returns (bool)", "error NotNow()"]);
const TO = "0x00000000000000000000000000000000000000a1";

/** A node that answers every call with one error. */
let fails: { code: number; message: string; data?: Hex };
let asked: string[] = [];
let node: Server;
let rpcUrl: string;
beforeAll(async () => {
  node = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const { id, method } = JSON.parse(Buffer.concat(chunks).toString());
    asked.push(method);
    response.end(JSON.stringify({ jsonrpc: "2.0", id, error: fails }));
  });
  await new Promise<void>((resolve) => node.listen(0, "127.0.0.1", resolve));
  rpcUrl = `http://127.0.0.1:${(node.address() as AddressInfo).port}`;
});
afterAll(() => {
  node.closeAllConnections();
  node.close();
});

const open = () => {
  const reader = createReader(rpcUrl);
  return { reader, sender: createSender(reader, 84532, `0x${"1".repeat(64)}`) };
};
const call = { address: TO, abi: ABI as Abi, functionName: "pay" } as const;

const NOT_NOW = encodeErrorResult({ abi: ABI, errorName: "NotNow" });
test.each([
  ["the code of a revert", { code: 3, message: "execution reverted", data: NOT_NOW }, "NotNow"],
  ["a revert under the code of an internal error", { code: -32603, message: "reverted", data: NOT_NOW }, "NotNow"],
  ["a revert in words", { code: 3, message: "execution reverted: too late" }, "too late"],
  ["a revert without words", { code: 3, message: "execution reverted" }, "execution reverted"],
] as const)("%s is a refusal, and nothing is sent", async (_what, answer, reason) => {
  fails = answer;
  asked = [];
  const { reader, sender } = open();
  expect(await transact(sender, call)).toMatchObject({
    outcome: "refused",
    reason: expect.stringContaining(reason),
  });
  expect(asked).not.toContain("eth_sendRawTransaction");
  await expect(chainRead("it", () => reader.readContract(call))).rejects.not.toThrow(ChainDown);
});

test.each([
  ["an internal error", { code: -32603, message: "database is locked" }],
  ["a limit", { code: -32005, message: "too many requests" }],
  ["a block it has not", { code: -32000, message: "header not found" }],
  ["a method it has not", { code: -32601, message: "no such method" }],
] as const)("a node's own trouble, %s, says nothing of the call", async (_what, answer) => {
  fails = answer;
  const { reader, sender } = open();
  expect(await transact(sender, call)).toMatchObject({ outcome: "unknown" });
  await expect(whyItWouldRevert(reader, TO, call)).rejects.toThrow(ChainDown);
  await expect(chainRead("it", () => reader.readContract(call))).rejects.toThrow(ChainDown);
});

const TX: Hex = `0x${"5".repeat(64)}`;
/** A sender whose node says this of every receipt; null: it never answers. */
const told = (receipt: object | null) => {
  const { sender } = open();
  const mined = async () => ({ from: sender.address, transactionHash: TX, gasUsed: "0x2", status: "0x1", ...receipt });
  const reader = {
    request: mined,
    getTransactionReceipt: async () =>
      receipt ? formatTransactionReceipt((await mined()) as never) : new Promise(() => {}),
  } as unknown as Reader;
  return createSender(reader, 84532, `0x${"1".repeat(64)}`);
};

test.each([
  ["all there", { effectiveGasPrice: "0x3", l1Fee: "0x4" }, 10n],
  ["without a price", {}, null],
  ["a fee that is no number", { effectiveGasPrice: "0x3", l1Fee: "0x" }, null],
] as const)("a receipt, %s, stands, whatever can be said of its cost", async (_what, receipt, cost) => {
  const sender = told(receipt);
  expect(await sender.spent(TX)).toBe(cost);
  expect(await sender.receipt(TX)).toMatchObject({ status: "success" });
});

test("a node that never says what a transaction cost is not waited for", async () => {
  vi.useFakeTimers();
  try {
    const cost = told(null).spent(TX);
    await vi.advanceTimersByTimeAsync(3_000);
    expect(await cost).toBe(null);
  } finally {
    vi.useRealTimers();
  }
});

/**
 * A node that takes transactions and puts none into a block. `pool`: the nonces that it holds; `mined`: those that are in
 * a block.
 */
function slowNode() {
  const pool = new Map<Hex, number>();
  const mined = new Set<Hex>();
  let next = 0;
  const nonceOf = (raw: Hex) => parseTransaction(raw).nonce ?? 0;
  const reader = {
    simulateContract: async () => ({}),
    estimateFeesPerGas: async () => ({ maxFeePerGas: 1n, maxPriorityFeePerGas: 1n }),
    getTransactionCount: async () => next,
    async getTransaction({ hash }: { hash: Hex }) {
      if (!pool.has(hash)) throw new Error("not found");
      return { nonce: pool.get(hash), blockNumber: mined.has(hash) ? 1n : null };
    },
    async request({ method, params: [one] }: { method: string; params: [Hex] }) {
      if (method === "eth_getTransactionReceipt")
        return mined.has(one) ? { from: TO, transactionHash: one, gasUsed: "0x2", status: "0x1" } : null;
      pool.set(keccak256(one), nonceOf(one));
      next = Math.max(next, nonceOf(one) + 1);
    },
  } as unknown as Reader;
  const setNext = (nonce: number) => {
    next = nonce;
  };
  const forget = () => {
    pool.clear();
    setNext(0);
  };
  const mine = () => {
    for (const hash of pool.keys()) mined.add(hash);
  };
  return { reader, pool, mine, forget, setNext };
}

test("a call is not sent twice while its first transaction may still enter a block", async () => {
  vi.useFakeTimers();
  try {
    const node = slowNode();
    const sender = createSender(node.reader, 84532, `0x${"1".repeat(64)}`);
    const attempt = async (change: { address?: Hex } = {}) => {
      const outcome = transact(sender, { ...call, ...change });
      await vi.advanceTimersByTimeAsync(16_000);
      return outcome;
    };
    const first = (await attempt()) as { outcome: string; tx: Hex };
    expect(first.outcome).toBe("unknown");
    expect(await attempt()).toMatchObject({ outcome: "unknown", tx: first.tx });
    expect(node.pool.size).toBe(1);
    // Another call is another transaction, late or not.
    expect(await attempt({ address: "0x00000000000000000000000000000000000000b2" })).toMatchObject({
      outcome: "unknown",
    });
    expect(node.pool.size).toBe(2);
    node.mine();
    expect(await attempt()).toEqual({ outcome: "sent", tx: first.tx });
    // Its receipt was read, so the next such call is one of its own.
    expect(((await attempt()) as { tx: Hex }).tx).not.toBe(first.tx);
    expect(node.pool.size).toBe(3);
  } finally {
    vi.useRealTimers();
  }
});

test.each([
  ["the node dropped", (node: ReturnType<typeof slowNode>) => node.forget()],
  ["waits behind an unused nonce", (node: ReturnType<typeof slowNode>) => node.setNext(0)],
] as const)("a call whose transaction %s is sent again", async (_what, happens) => {
  vi.useFakeTimers();
  try {
    const node = slowNode();
    node.setNext(7);
    const sender = createSender(node.reader, 84532, `0x${"1".repeat(64)}`);
    const attempt = async () => {
      const outcome = transact(sender, call);
      await vi.advanceTimersByTimeAsync(16_000);
      return (await outcome) as { tx: Hex };
    };
    const first = await attempt();
    happens(node);
    expect((await attempt()).tx).not.toBe(first.tx);
  } finally {
    vi.useRealTimers();
  }
});

test("a transaction that the node let go of stops one wait, and nothing that is sent after it", async () => {
  const chain = await startLocalChain();
  try {
    const reader = createReader(chain.rpcUrl);
    const sender = createSender(reader, chain.chainId, generatePrivateKey());
    await chain.giveGas(sender.address);
    const approve = { address: chain.asset as Hex, abi: erc20Abi as Abi, functionName: "approve", args: [TO, 1n] };
    const node = (method: string, ...params: unknown[]) => reader.request({ method, params } as never);
    const before = await node("evm_snapshot");
    expect(await transact(sender, approve)).toMatchObject({ outcome: "sent" });
    await node("evm_revert", before);
    // Its block is gone, and it with it: this one's number is past a gap.
    expect(await transact(sender, approve)).toMatchObject({ outcome: "unknown" });
    expect(await transact(sender, approve)).toMatchObject({ outcome: "sent" });
  } finally {
    await chain.stop();
  }
});

test("fees are what the chain takes: the base fee of the moment, and no tip of another chain; the cost is the receipt's", async () => {
  const chain = await startLocalChain();
  try {
    const reader = createReader(chain.rpcUrl);
    const key = generatePrivateKey();
    const sender = createSender(reader, chain.chainId, key);
    await chain.giveGas(sender.address);
    const approve = { address: chain.asset as Hex, abi: erc20Abi as Abi, functionName: "approve", args: [TO, 1n] };
    const node = (method: string, ...params: unknown[]) => reader.request({ method, params } as never);
    // Five times what was once offered to every chain.
    await node("anvil_setNextBlockBaseFeePerGas", "0xba43b7400");
    await node("evm_mine");
    const before = await reader.getBalance({ address: sender.address });
    const said = await transact(sender, approve);
    expect(said).toMatchObject({ outcome: "sent" });
    const { tx } = said as { tx: string };
    const spent = before - (await reader.getBalance({ address: sender.address }));
    expect(spent).toBeGreaterThan(20_000n * 30_000_000_000n);
    expect([await sender.spent(tx), await createSender(reader, chain.chainId, key).spent(tx)]).toEqual([spent, spent]);
    expect(await createSender(reader, chain.chainId, generatePrivateKey()).spent(tx)).toBe(null);
    expect(await sender.spent(`0x${"0".repeat(64)}`)).toBe(null);

    // Past a ceiling nothing is sent, and no reading of it is a refusal by the chain.
    await node("anvil_setNextBlockBaseFeePerGas", "0xba43b7400");
    await node("evm_mine");
    const { maxFeePerGas: named } = await reader.estimateFeesPerGas();
    const count = await reader.getTransactionCount({ address: sender.address });
    const capped = (ceiling: bigint) => createSender(reader, chain.chainId, key, ceiling);
    expect(await transact(capped(named / 2n), approve)).toMatchObject({
      ...{ outcome: "unknown", says: expect.stringContaining("gas_ceiling_gwei is ") },
    });
    expect(await reader.getTransactionCount({ address: sender.address, blockTag: "pending" })).toBe(count);
    const under = (await transact(capped(named * 2n), approve)) as { tx: Hex };
    const { maxFeePerGas, maxPriorityFeePerGas } = await reader.getTransaction({ hash: under.tx });
    expect(maxFeePerGas).toBeLessThanOrEqual(named * 2n);
    expect(maxPriorityFeePerGas).toBeLessThanOrEqual(named * 2n);
  } finally {
    await chain.stop();
  }
});
