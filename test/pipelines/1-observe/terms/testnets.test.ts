import * as chains from "viem/chains";
import { expect, test } from "vitest";
import { EVM_TESTNETS, isTestnet } from "../../../../pipelines/1-observe/terms/testnets.ts";

/** The numbers in lines of at most 116 characters, as they stand in the file. */
function inLines(ids: readonly number[]): string {
  const lines: string[] = [];
  for (const id of ids) {
    const last = lines.at(-1);
    if (last !== undefined && last.length + String(id).length < 118) lines[lines.length - 1] = `${last} ${id}`;
    else lines.push(`  ${id}`);
  }
  return lines.join("\n");
}

test("a test network is what viem marks as one", () => {
  const all = Object.values(chains);
  const real = new Set(all.filter(({ testnet }) => !testnet).map(({ id }) => id));
  const ids = [...new Set(all.filter(({ id, testnet }) => testnet && !real.has(id)).map(({ id }) => id))];
  expect(ids.length).toBeGreaterThan(300);
  expect(EVM_TESTNETS.trim()).toBe(inLines(ids.sort((a, b) => a - b)).trim());
});

test("other families number their test networks, or call them so", () => {
  const play = ["xrpl:1", "aptos:2", "stacks:2147483648", "stellar:testnet", "sui:testnet", "hedera:testnet"];
  expect(play.filter((one) => !isTestnet(one))).toEqual([]);
  const real = ["xrpl:0", "aptos:1", "stacks:1", "stellar:pubnet", "sui:mainnet", "hedera:mainnet", "near:mytestnet"];
  expect(real.filter(isTestnet)).toEqual([]);
});

test("Arbitrum Sepolia and XDC Apothem are test networks; Base, Arbitrum and two numbers that viem has twice are not", () => {
  expect(["eip155:421614", "eip155:51"].map(isTestnet)).toEqual([true, true]);
  expect(["eip155:8453", "eip155:42161", "eip155:999", "eip155:260"].map(isTestnet)).toEqual(Array(4).fill(false));
});
