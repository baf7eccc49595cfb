import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type Address, createPublicClient, createWalletClient, http } from "viem";
import { afterAll, beforeAll, expect, test } from "vitest";
import { readArtefact } from "../../../../infra/rails/chain/artefact.ts";
import { LOCAL_USDC, type LocalChain, startLocalChain } from "../../../../infra/rails/chain/local-chain.ts";
import { LOCAL_MINTER } from "../../../../infra/rails/wallets.ts";

let dir: string;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "chain-"));
});
afterAll(() => rm(dir, { recursive: true, force: true }));

const { abi } = readArtefact("LocalUsdc");
const someone: Address = "0x00000000000000000000000000000000000000a1";
const reader = (chain: LocalChain) => createPublicClient({ transport: http(chain.rpcUrl) });
const read = (chain: LocalChain, functionName: string, args: unknown[] = []) =>
  reader(chain).readContract({ address: LOCAL_USDC, abi, functionName, args });

async function send(chain: LocalChain, functionName: string, args: unknown[]): Promise<void> {
  const wallet = createWalletClient({ account: LOCAL_MINTER, transport: http(chain.rpcUrl) });
  const hash = await wallet.writeContract({ address: LOCAL_USDC, abi, functionName, args, gas: 200_000n, chain: null });
  const receipt = await reader(chain).waitForTransactionReceipt({ hash, pollingInterval: 20 });
  expect(receipt.status).toBe("success");
}
const mint = (chain: LocalChain, value: bigint) => send(chain, "mint", [someone, value]);

const alive = (pid: number): boolean => {
  try {
    process.kill(pid, 0);
    return !/\bZ/.test(execFileSync("ps", ["-o", "stat=", "-p", String(pid)]).toString());
  } catch {
    return false;
  }
};

async function gone(pid: number): Promise<boolean> {
  for (let tries = 0; tries < 2_000 && alive(pid); tries++) await new Promise((resolve) => setTimeout(resolve, 50));
  return !alive(pid);
}

test("speaks with Base Sepolia's ids, its token says it is USDC, and its clock is ours", async () => {
  const chain = await startLocalChain();
  try {
    expect(await reader(chain).getChainId()).toBe(84532);
    expect([await read(chain, "name"), await read(chain, "version"), await read(chain, "decimals")]).toEqual([
      "USDC",
      "2",
      6,
    ]);
    const domain = (await read(chain, "eip712Domain")) as unknown[];
    expect(domain.slice(1, 5)).toEqual(["USDC", "2", 84532n, "0x036CbD53842c5426634e7929541eC2318f3dCF7e"]);
    // Many blocks in one second must not push chain time past the clock: payments would expire early.
    for (let n = 0; n < 20; n++) await mint(chain, 1n);
    const block = await reader(chain).getBlock();
    expect(Number(block.timestamp) - Date.now() / 1000).toBeLessThan(1);
    expect(block.number).toBeGreaterThanOrEqual(15n);
  } finally {
    await chain.stop();
  }
});

test("a chain stopped and started again has its balances, its logs and its port", async () => {
  const stateFile = join(dir, "state.json");
  const first = await startLocalChain({ stateFile });
  await mint(first, 7_000_000n);
  await first.stop();
  const second = await startLocalChain({ stateFile, port: first.port });
  try {
    expect(second.rpcUrl).toBe(first.rpcUrl);
    expect(await read(second, "balanceOf", [someone])).toBe(7_000_000n);
    const logs = await reader(second).getLogs({ address: LOCAL_USDC, fromBlock: 0n });
    expect(logs).toHaveLength(1);
    await expect(startLocalChain({ port: second.port })).rejects.toThrow(`port ${second.port} is taken`);
  } finally {
    await second.stop();
  }
});

test("topUp lifts to the floor once, and leaves who has enough alone", async () => {
  const chain = await startLocalChain();
  try {
    await mint(chain, 5n);
    for (let again = 0; again < 2; again++) {
      await send(chain, "topUp", [
        [someone, LOCAL_MINTER],
        [3n, 9n],
      ]);
    }
    expect(await read(chain, "balanceOf", [LOCAL_MINTER])).toBe(9n);
    expect(await read(chain, "balanceOf", [someone])).toBe(5n);
  } finally {
    await chain.stop();
  }
});

test("a parent killed without warning leaves no chain behind", async () => {
  const script = fileURLToPath(new URL("./orphan-parent.ts", import.meta.url));
  const parent = spawn(process.execPath, ["--import", "tsx", script], { stdio: ["ignore", "pipe", "inherit"] });
  const [line] = (await once(parent.stdout, "data")) as [Buffer];
  const { pid } = JSON.parse(line.toString()) as { pid: number };
  expect(alive(pid)).toBe(true);
  parent.kill("SIGKILL");
  expect(await gone(pid)).toBe(true);
});

test("a killed chain is told, and a killed guard takes its chain along", async () => {
  const first = await startLocalChain();
  process.kill(first.pid, "SIGKILL");
  expect((await first.ended).code).toBe(137);

  const second = await startLocalChain();
  const guard = Number(execFileSync("ps", ["-o", "ppid=", "-p", String(second.pid)]).toString());
  process.kill(guard, "SIGKILL");
  await second.ended;
  expect(await gone(second.pid)).toBe(true);
});
