import { randomBytes } from "node:crypto";
import type { PaymentRequirements } from "@x402/core/types";
import type { Address } from "viem";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { createAuthorizations } from "../../../infra/rails/authorization.ts";
import { createFacilitator } from "../../../infra/rails/facilitator.ts";
import type { Wallet } from "../../../infra/rails/rails.ts";
import { createReader, type Reader } from "../../../infra/rails/rpc.ts";
import { createSender } from "../../../infra/rails/sender.ts";
import { tokenOnChain } from "../../../infra/rails/settlement.ts";
import { createTill, type Till } from "../../../infra/rails/till.ts";
import { decoded, entryV1, entryV2, payer, type Rig, startRig } from "./harness.ts";

/** What settling costs us where a payment cannot settle: each transaction is paid by us, also one that is undone. */
const PRICE = 20_000n;
const REQUIRED = entryV2(PRICE).raw as PaymentRequirements;

let rig: Rig;
let reader: Reader;
let till: Till;
let gas: Address;
beforeAll(async () => {
  rig = await startRig();
  reader = createReader(rig.chain.rpcUrl);
});
afterAll(() => rig.stop());
beforeEach(async () => {
  [till, gas] = await tillOver(rig.chain.rpcUrl);
});

async function tillOver(rpcUrl: string): Promise<[Till, Address]> {
  const sender = createSender(createReader(rpcUrl), rig.chain.chainId, `0x${randomBytes(32).toString("hex")}`);
  await rig.chain.giveGas(sender.address);
  return [createTill("own", createFacilitator({ rpcUrl, network: rig.chain.network, sender })), sender.address];
}

const holding = (amount: bigint): Promise<Wallet> =>
  rig.wallets.blind(`cap_${randomBytes(4).toString("hex")}`, "2026-11-21", amount);
const signedBy = async (wallet: Wallet, version: 1 | 2 = 2) =>
  decoded(await rig.rail.sign(version === 1 ? entryV1(PRICE) : entryV2(PRICE), wallet, {}));
const twelveOf = (wallet: Wallet) => Promise.all(Array.from({ length: 12 }, () => signedBy(wallet)));
const settle = (payment: unknown) => till.settle(payment, REQUIRED);
const sent = (blockTag: "latest" | "pending" = "latest") => reader.getTransactionCount({ address: gas, blockTag });
const node = (method: string, ...params: unknown[]) => reader.request({ method, params } as never);

test("of twelve payments of a wallet with money for one, one is sent, and no other at any later try", async () => {
  const all = await twelveOf(await holding(PRICE));
  // Each by itself is valid.
  for (const payment of all) expect(await till.verify(payment, REQUIRED)).toMatchObject({ valid: true });
  const outcomes = await Promise.all(all.map(settle));
  expect(outcomes.filter(({ outcome }) => outcome === "sent")).toHaveLength(1);
  const refused = { outcome: "refused", reason: "invalid_exact_evm_insufficient_balance" };
  expect(outcomes.filter(({ outcome }) => outcome !== "sent")).toEqual(Array(11).fill(refused));
  expect(await sent()).toBe(1);
  const drained = all[outcomes.findIndex(({ outcome }) => outcome === "refused")];
  for (let n = 0; n < 3; n++) expect(await settle(drained)).toEqual(refused);
  expect(await sent("pending")).toBe(1);
});

describe("while no block comes", () => {
  /** Signed and sent with blocks that stand still; they come again once the pool has so many. */
  async function settledAt(wallet: Wallet, pooled: number) {
    const all = await twelveOf(wallet);
    await node("evm_setIntervalMining", 0);
    await node("evm_setAutomine", false);
    try {
      const settling = Promise.all(all.map(settle));
      await expect.poll(() => sent("pending")).toBe(pooled);
      // Whoever would go ahead beside it has asked by now.
      await new Promise((resolve) => setTimeout(resolve, 500));
      expect(await sent("pending")).toBe(pooled);
      await node("evm_mine");
      await node("evm_setAutomine", true);
      return (await settling).map(({ outcome }) => outcome).sort();
    } finally {
      await node("evm_setAutomine", true);
      await node("evm_setIntervalMining", 1);
    }
  }

  test("the others of a wallet with money for one wait for its receipt, and are refused then", async () => {
    expect(await settledAt(await holding(PRICE), 1)).toEqual([...Array(11).fill("refused"), "sent"]);
    expect(await sent("pending")).toBe(1);
  });

  test("an honest burst waits for nothing: all twelve are in the pool at once", async () => {
    expect(await settledAt(await holding(12n * PRICE), 12)).toEqual(Array(12).fill("sent"));
  });
});

test.each([1, 2] as const)(
  "x402 v%i: a nonce that was used or cancelled is refused without a transaction",
  async (version) => {
    const wallet = await payer(rig);
    const [used, cancelled] = [await signedBy(wallet, version), await signedBy(wallet, version)];
    expect(await settle(used)).toMatchObject({ outcome: "sent" });
    const { rpcUrl, network, asset, chainId } = rig.chain;
    const other = createSender(reader, chainId, `0x${randomBytes(32).toString("hex")}`);
    await rig.chain.giveGas(other.address);
    const ours = createAuthorizations(tokenOnChain({ rpcUrl, network, asset, confirmations: 1 }), other);
    const { nonce } = cancelled.payload.authorization as { nonce: string };
    expect(await ours.submitCancel(await ours.signCancel(wallet, nonce))).toMatchObject({ outcome: "sent" });
    for (const payment of [used, cancelled])
      expect(await settle(payment)).toEqual({ outcome: "refused", reason: "invalid_exact_evm_nonce_already_used" });
    expect(await sent("pending")).toBe(1);
  },
);
