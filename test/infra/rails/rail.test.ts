import { randomBytes } from "node:crypto";
import type { PaymentPayload } from "@x402/core/types";
import {
  declarePaymentIdentifierExtension,
  extractPaymentIdentifier,
  validatePaymentIdentifierRequirement,
} from "@x402/extensions/payment-identifier";
import { type Abi, type Address, createWalletClient, encodeFunctionData, type Hex, http, parseSignature } from "viem";
import { privateKeyToAccount } from "viem/accounts";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { readArtefact } from "../../../fixtures/chain/artefact.ts";
import { createEvmRail } from "../../../infra/rails/evm.ts";
import { createFacilitator } from "../../../infra/rails/facilitator.ts";
import type { PayableEntry, SignedPayment } from "../../../infra/rails/rails.ts";
import { ChainDown } from "../../../infra/rails/rpc.ts";
import { SEARCH_MARGIN_BLOCKS } from "../../../infra/rails/settlement.ts";
import { LOCAL_MINTER } from "../../../infra/rails/wallets.ts";
import { decoded, entryV1, entryV2, offer, PAYEE, payer, type Rig, startRig } from "./harness.ts";

let rig: Rig;
beforeAll(async () => {
  rig = await startRig();
});
afterAll(() => rig.stop());

const settlementOf = async (signed: Pick<SignedPayment, "from" | "nonce">, sinceBlock = 0) =>
  (await rig.rail.settlementOf({ from: signed.from, nonce: signed.nonce, sinceBlock })).value;

async function sendFromMinter(to: string, abi: Abi, functionName: string, args: unknown[]): Promise<Hex> {
  const wallet = createWalletClient({ account: LOCAL_MINTER, transport: http(rig.chain.rpcUrl) });
  const call = { address: to as Address, abi, functionName, args };
  const hash = await wallet.writeContract({ ...call, gas: 500_000n, chain: null });
  while (!(await wallet.request({ method: "eth_getTransactionReceipt" as never, params: [hash] as never }))) {
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  return hash;
}

describe.each([
  ["v1", entryV1, "X-PAYMENT"],
  ["v2", entryV2, "PAYMENT-SIGNATURE"],
] as const)("%s", (_version, entryOf, headerName) => {
  test("a signed payment verifies, settles once, and the chain says so", async () => {
    const wallet = await payer(rig);
    const before = (await rig.rail.balance(PAYEE)).value;
    const since = (await rig.rail.head()).number;
    const entry = entryOf(12_345n);
    const began = Date.now() / 1000;
    const signed = await rig.rail.sign(entry, wallet, {});
    expect(signed).toMatchObject({ headerName, from: wallet.address, amountAtomic: 12_345n });
    expect(signed.nonce).toMatch(/^0x[0-9a-f]{64}$/);
    expect(signed.validBefore - began).toBeGreaterThan(55);

    expect(await rig.facilitator.verify(...offer(entry, signed))).toMatchObject({ isValid: true });
    expect(await settlementOf(signed, since)).toBeNull();
    const settled = await rig.facilitator.settle(...offer(entry, signed));
    expect(settled).toMatchObject({ success: true, payer: expect.stringMatching(new RegExp(wallet.address, "i")) });
    const seen = await settlementOf(signed, since);
    expect(seen).toMatchObject({
      tx: settled.transaction,
      from: wallet.address,
      to: PAYEE,
      amountAtomic: 12_345n,
      asset: rig.chain.asset,
      network: "eip155:84532",
      final: true,
      // Who sent the transaction, not what the seller says of its facilitator.
      sender: rig.facilitator.address.toLowerCase(),
    });
    expect(Math.abs(seen!.blockTime - Date.now() / 1000)).toBeLessThan(60);

    // The same header again: nothing moves, and the record of the first stays what it was.
    expect(await rig.facilitator.verify(...offer(entry, signed))).toMatchObject({ isValid: false });
    expect(await rig.facilitator.settle(...offer(entry, signed))).toMatchObject({ success: false });
    expect((await rig.rail.balance(PAYEE)).value).toBe(before + 12_345n);
    expect(await settlementOf(signed, since)).toEqual(seen);
    const { sender, ...moved } = seen!;
    expect((await rig.rail.transfers({ from: wallet.address, to: PAYEE, sinceBlock: since })).value).toEqual([moved]);
  });

  test("two settlements of one header at the same moment move money once", async () => {
    const wallet = await payer(rig);
    const entry = entryOf(500n);
    const signed = await rig.rail.sign(entry, wallet, {});
    const both = await Promise.all([0, 1].map(() => rig.facilitator.settle(...offer(entry, signed))));
    expect(both.filter((one) => one.success)).toHaveLength(1);
    expect((await rig.rail.balance(wallet.address)).value).toBe(10_000_000n - 500n);
  });
});

test("v2 gives back what the seller sent, and signs the parsed fields whatever raw says", async () => {
  const raw = { ...(entryV2(10n).raw as object), amount: "999999", note: "ours" };
  const context = { resource: { url: "http://127.0.0.1/paid" }, extensions: { bazaar: { info: {} } } };
  const payload = decoded(await rig.rail.sign(entryV2(10n, { raw }), await payer(rig), context));
  expect(payload).toMatchObject({ x402Version: 2, accepted: raw, ...context });
  expect(payload.payload).toMatchObject({ authorization: { value: "10", to: expect.stringMatching(/0b2$/i) } });
});

test("v2 names the payment where the seller requires it: an identifier of its own", async () => {
  const sign = async (extensions: unknown) =>
    decoded(await rig.rail.sign(entryV2(10n), await payer(rig), { extensions }));
  const required = { "payment-identifier": declarePaymentIdentifierExtension(true), other: { info: {} } };
  const [one, two] = await Promise.all([sign(required), sign(required)]);
  const idOf = (payload: typeof one) => extractPaymentIdentifier(payload as PaymentPayload);
  for (const payload of [one, two]) {
    expect(validatePaymentIdentifierRequirement(payload as PaymentPayload, true)).toEqual({ valid: true });
    const { nonce } = (payload.payload as { authorization: { nonce: string } }).authorization;
    expect(idOf(payload)).toMatch(/^pay_[0-9a-f]{32}$/);
    // The nonce is on the chain: the identifier cannot be computed from it.
    expect(nonce).not.toContain(idOf(payload)!.slice(4, 12));
    expect(payload.extensions).toMatchObject({ other: { info: {} } });
  }
  expect(idOf(one)).not.toBe(idOf(two));
  // The seller's own terms are not written to, and nothing is added where nothing is required.
  expect(required["payment-identifier"].info).toEqual({ required: true });
  for (const extensions of [
    { "payment-identifier": declarePaymentIdentifierExtension(false) },
    { "payment-identifier": { info: "required" } },
    { "payment-identifier": null },
    ["payment-identifier"],
  ])
    expect((await sign(extensions)).extensions).toEqual(extensions);
});

test("forty settlements through one key, and twenty through a second process's copy of it, all succeed", async () => {
  const privateKey = `0x${randomBytes(32).toString("hex")}`;
  const { rpcUrl, network } = rig.chain;
  const [one, two] = [0, 1].map(() => createFacilitator({ rpcUrl, network, sender: privateKey as `0x${string}` }));
  await rig.chain.giveGas(one!.address);
  const wallet = await payer(rig);
  const pay = async (facilitator = one!) => {
    const entry = entryV2(100n);
    const signed = await rig.rail.sign(entry, wallet, {});
    const { success, errorReason, errorMessage } = await facilitator.settle(...offer(entry, signed));
    return success ? "settled" : `${errorReason}: ${errorMessage}`;
  };
  const outcomes = await Promise.all([
    ...Array.from({ length: 40 }, () => pay()),
    ...Array.from({ length: 20 }, () => pay(two)),
  ]);
  expect(outcomes).toEqual(Array(60).fill("settled"));
  expect((await rig.rail.balance(wallet.address)).value).toBe(10_000_000n - 6_000n);
});

describe("settlementOf believes only the nonce's own event", () => {
  const token = readArtefact("LocalUsdc").abi;

  test("a plain transfer of the same amount to the same payee is no settlement", async () => {
    const signed = await rig.rail.sign(entryV2(777n), { ...(await payer(rig)) }, {});
    await sendFromMinter(rig.chain.asset, token, "mint", [LOCAL_MINTER, 777n]);
    await sendFromMinter(rig.chain.asset, token, "transfer", [PAYEE, 777n]);
    expect(await settlementOf(signed)).toBeNull();
    expect((await rig.rail.transfers({ from: LOCAL_MINTER, to: PAYEE, sinceBlock: 0 })).value).toMatchObject([
      { amountAtomic: 777n },
    ]);
  });

  test("another wallet's use of the same nonce is none, nor is one long before sinceBlock", async () => {
    const entry = entryV2(40n);
    const signed = await rig.rail.sign(entry, await payer(rig), {});
    expect(await rig.facilitator.settle(...offer(entry, signed))).toMatchObject({ success: true });
    const other = await payer(rig);
    expect(await settlementOf({ ...signed, from: other.address })).toBeNull();
    const seen = await settlementOf(signed);
    // The chain may have put the payment into an earlier block than the newest one at the time of signing.
    for (const later of [0, 1, SEARCH_MARGIN_BLOCKS])
      expect(await settlementOf(signed, seen!.blockNumber + later)).toEqual(seen);
    const tooLate = seen!.blockNumber + SEARCH_MARGIN_BLOCKS + 1;
    expect(await settlementOf(signed, tooLate)).toBeNull();
    // Of blocks that the node does not have, nothing is guessed.
    await expect(settlementOf(signed, tooLate + 10_000)).rejects.toThrow(ChainDown);
  });

  test("a cancelled authorization is not settled", async () => {
    const wallet = await payer(rig);
    const signed = await rig.rail.sign(entryV2(50n), wallet, {});
    const signature = await privateKeyToAccount(wallet.privateKey as Hex).signTypedData({
      domain: { name: "USDC", version: "2", chainId: 84532, verifyingContract: rig.chain.asset as Address },
      types: {
        CancelAuthorization: [
          { name: "authorizer", type: "address" },
          { name: "nonce", type: "bytes32" },
        ],
      },
      primaryType: "CancelAuthorization",
      message: { authorizer: wallet.address as Address, nonce: signed.nonce as Hex },
    });
    const { v, r, s } = parseSignature(signature);
    await sendFromMinter(rig.chain.asset, token, "cancelAuthorization", [wallet.address, signed.nonce, v, r, s]);
    expect(await rig.facilitator.verify(...offer(entryV2(50n), signed))).toMatchObject({ isValid: false });
    expect(await settlementOf(signed)).toBeNull();
  });

  test("several authorizations of one payer in one transaction each keep their own amount", async () => {
    const wallet = await payer(rig);
    const payments = await Promise.all([11n, 22n, 33n].map((amount) => rig.rail.sign(entryV2(amount), wallet, {})));
    const calls = payments.map((signed) => {
      const { authorization: a, signature } = decoded(signed).payload as {
        authorization: Record<string, string>;
        signature: Hex;
      };
      const args = [a.from, a.to, BigInt(a.value!), BigInt(a.validAfter!), BigInt(a.validBefore!), a.nonce, signature];
      const callData = encodeFunctionData({ abi: token, functionName: "transferWithAuthorization", args });
      return { target: rig.chain.asset, allowFailure: false, callData };
    });
    const multicall = "0xca11bde05977b3631167028862be2a173976ca11";
    await sendFromMinter(multicall, readArtefact("Multicall").abi, "aggregate3", [calls]);
    const seen = await Promise.all(payments.map((signed) => settlementOf(signed)));
    expect(seen.map((one) => one?.amountAtomic)).toEqual([11n, 22n, 33n]);
    expect(new Set(seen.map((one) => one?.tx)).size).toBe(1);
  });

  test("final only once it is deep enough", async () => {
    const { rpcUrl, network, asset } = rig.chain;
    const deep = createEvmRail({ rpcUrl, network, asset, confirmations: 2 });
    const entry = entryV2(60n);
    const signed = await rig.rail.sign(entry, await payer(rig), {});
    await rig.facilitator.settle(...offer(entry, signed));
    const query = { from: signed.from, nonce: signed.nonce, sinceBlock: 0 };
    const seen = (await deep.settlementOf(query)).value;
    const { number } = await rig.rail.head();
    if (number === seen?.blockNumber) expect(seen.final).toBe(false);
    while ((await rig.rail.head()).number === seen?.blockNumber) await new Promise((r) => setTimeout(r, 100));
    expect((await deep.settlementOf(query)).value).toMatchObject({ final: true, blockNumber: seen?.blockNumber });
  });
});

const table: [string, Partial<PayableEntry>, boolean][] = [
  ["as it is", {}, true],
  ["token address in another case", { asset: "0x036CbD53842c5426634e7929541eC2318f3dCF7e" }, true],
  ["payTo in another case", { payTo: PAYEE.toUpperCase().replace("0X", "0x") }, true],
  ["eip3009 by name", { extra: { name: "USDC", version: "2", assetTransferMethod: "eip3009" } }, true],
  ["permit2", { extra: { name: "USDC", version: "2", assetTransferMethod: "permit2" } }, false],
  ["no domain", { extra: {} }, false],
  ["extra is null", { extra: null as never }, false],
  ["another scheme", { scheme: "upto" }, false],
  ["another chain", { network: "eip155:8453" }, false],
  ["another token", { asset: "0x833589fCD6eDb6E08f4c7C32D4f71b54bdA02913" }, false],
  ["no asset", { asset: undefined as never }, false],
  ["payTo is a name", { payTo: "seller.eth" }, false],
  ["payTo is zero", { payTo: `0x${"0".repeat(40)}` }, false],
  ["amount zero", { amountAtomic: 0n }, false],
  ["amount negative", { amountAtomic: -1n }, false],
  ["amount past uint256", { amountAtomic: 1n << 256n }, false],
  ["timeout zero", { maxTimeoutSeconds: 0 }, false],
  ["timeout broken", { maxTimeoutSeconds: 1.5 }, false],
  ["timeout a year", { maxTimeoutSeconds: 31_536_000 }, false],
];
test.each(table)("canPay: %s", async (_name, changes, payable) => {
  const entry = entryV2(10n, changes);
  expect(rig.rail.canPay(entry)).toBe(payable);
  const signing = rig.rail.sign(entry, { address: "", privateKey: `0x${"1".repeat(64)}` }, {});
  if (payable) await expect(signing).resolves.toMatchObject({ amountAtomic: 10n });
  else await expect(signing).rejects.toThrow("cannot pay");
});

test("a chain that is down is ChainDown for every read, and signing needs no chain", async () => {
  const { network, asset } = rig.chain;
  const rail = createEvmRail({ rpcUrl: "http://127.0.0.1:9", network, asset, confirmations: 1 });
  const query = { from: PAYEE, nonce: `0x${"0".repeat(64)}`, sinceBlock: 0 };
  const reads = [
    rail.head(),
    rail.balance(PAYEE),
    rail.settlementOf(query),
    rail.transfers({ from: PAYEE, to: PAYEE, sinceBlock: 0 }),
  ];
  for (const outcome of await Promise.allSettled(reads)) {
    expect(outcome).toMatchObject({ status: "rejected", reason: expect.any(ChainDown) });
  }
  await expect(rail.sign(entryV2(1n), { address: "", privateKey: `0x${"1".repeat(64)}` }, {})).resolves.toBeDefined();
});
