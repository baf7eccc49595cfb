import { expect, test } from "vitest";
import { checkLines } from "../../commands/check.ts";
import type { CheckAnswer } from "../../serving/client/index.ts";

const asked = (asset: string, networks: string[]): string | undefined => {
  const advertised = { amount: "0.010000", asset, networks };
  const answer = { band: "A", asked: "https://a.example/x", observed: { advertised } } as unknown as CheckAnswer;
  return checkLines(answer, []).find((line) => line.includes("newest 402"));
};

test.each([
  ["0x036CbD53842c5426634e7929541eC2318f3dCF7e", ["eip155:84532"], "0.010000 USDC on base-sepolia"],
  ["0x20c0000000000000000000000000000000000000", ["eip155:42431"], "0.010000 pathUSD on eip155:42431"],
  ["0x7777777777777777777777777777777777777777", ["eip155:8453"], `0.010000 0x${"7".repeat(40)} on base`],
  ["USDC", ["solana:x", "eip155:1"], "0.010000 USDC on solana:x, ethereum"],
  ["constructor", [], "0.010000 constructor on "],
])("a token and its networks by their names, where they are known: %s", (asset, networks, says) => {
  expect(asked(asset, networks)).toBe(`  the newest 402 asks ${says}`);
});
