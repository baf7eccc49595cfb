import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Address } from "viem";
import { mnemonicToAccount, privateKeyToAccount } from "viem/accounts";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { LOCAL_CHAIN_ID, spawnAnvil } from "../../../fixtures/chain/local-chain.ts";
import { freePort } from "../../../fixtures/ports.ts";
import { accountOf } from "../../../infra/rails/account.ts";
import { createAuthorizations } from "../../../infra/rails/authorization.ts";
import { NoWallet, type Wallet } from "../../../infra/rails/rails.ts";
import { createReader } from "../../../infra/rails/rpc.ts";
import { createSender } from "../../../infra/rails/sender.ts";
import { tokenOnChain } from "../../../infra/rails/settlement.ts";
import { WalletFolder } from "../../../infra/rails/wallet-folder.ts";
import { createLocalWallets } from "../../../infra/rails/wallets.ts";
import { entryV1, entryV2, offer, PAYEE, type Rig, startRig } from "./harness.ts";

/** Keys that a node of its own keeps, as an operator's signer does: this process never has them. */
const MNEMONIC = "test test test test test test test test test test test junk";
const addressOf = (n: number) => mnemonicToAccount(MNEMONIC, { addressIndex: n }).address.toLowerCase();

let rig: Rig;
let signer: Awaited<ReturnType<typeof spawnAnvil>>;
let wallet: Wallet;
let gas: Wallet;
beforeAll(async () => {
  rig = await startRig();
  signer = await spawnAnvil(await freePort(), ["--chain-id", String(LOCAL_CHAIN_ID), "--mnemonic", MNEMONIC]);
  [wallet, gas] = [0, 1].map((n) => ({ address: addressOf(n), signer: signer.rpcUrl })) as [Wallet, Wallet];
  await rig.chain.giveGas(gas.address);
  const { rpcUrl, asset, chainId } = rig.chain;
  const minter = createLocalWallets({ rpcUrl, asset, seed: Buffer.alloc(32, 5), knownFloorAtomic: 1_000_000n });
  const funded = await minter.known();
  const reader = createReader(rpcUrl);
  const money = tokenOnChain({ rpcUrl, network: rig.chain.network, asset, confirmations: 1 });
  const sender = createSender(reader, chainId, accountOf(gas));
  const ours = createAuthorizations(money, sender);
  const given = await ours.signTransfer(funded, { to: wallet.address, amountAtomic: 500_000n, validForSeconds: 600 });
  // The transaction that brings it was signed outside, too.
  expect(await ours.submitTransfer(given)).toMatchObject({ outcome: "sent" });
  expect((await rig.rail.balance(wallet.address)).value).toBe(500_000n);
});
afterAll(async () => {
  await signer.stop();
  await rig.stop();
});

test.each([
  ["version 2", entryV2(1_000n)],
  ["version 1", entryV1(1_000n)],
])("a payment of x402 %s that an outside signer signed is settled", async (_, entry) => {
  const before = (await rig.rail.balance(PAYEE)).value;
  const signed = await rig.rail.sign(entry, wallet, {});
  expect(signed.from).toBe(wallet.address);
  expect(await rig.facilitator.settle(...offer(entry, signed))).toMatchObject({ success: true });
  expect((await rig.rail.balance(PAYEE)).value).toBe(before + 1_000n);
});

describe("a signer", () => {
  const other = privateKeyToAccount(`0x${"22".repeat(32)}`);
  const data = {
    domain: { name: "USDC", version: "2", chainId: LOCAL_CHAIN_ID },
    types: { Word: [{ name: "word", type: "string" }] },
    primaryType: "Word",
    message: { word: "yes" },
  } as const;
  const transaction = {
    ...({
      type: "eip1559",
      chainId: LOCAL_CHAIN_ID,
      nonce: 3,
      to: PAYEE as Address,
      data: "0x1234",
      gas: 90_000n,
    } as const),
    ...{ maxFeePerGas: 9n, maxPriorityFeePerGas: 2n },
  };

  /** What it is asked by way of one that answers with `answer`. */
  async function asking<T>(
    answer: (method: string) => Promise<unknown>,
    ask: (wallet: Wallet) => Promise<T>,
  ): Promise<T> {
    const server = createServer(async (req, res) => {
      let text = "";
      for await (const chunk of req) text += chunk;
      const { id, method } = JSON.parse(text) as { id: number; method: string };
      res.setHeader("content-type", "application/json");
      res.end(JSON.stringify({ jsonrpc: "2.0", id, ...((await answer(method)) as object) }));
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    try {
      const { port } = server.address() as AddressInfo;
      return await ask({ address: addressOf(0), signer: `http://127.0.0.1:${port}/key-of-the-operator` });
    } finally {
      server.close();
      server.closeAllConnections();
    }
  }
  const ours = mnemonicToAccount(MNEMONIC, { addressIndex: 0 });
  const typed = (one: Wallet) => accountOf(one).signTypedData(data);
  const sent = (one: Wallet) => accountOf(one).signTransaction(transaction);

  test("that answers as it was asked is believed, also where it wraps a transaction", async () => {
    const signature = await ours.signTypedData(data);
    expect(await asking(async () => ({ result: signature }), typed)).toBe(signature);
    const raw = await ours.signTransaction(transaction);
    for (const result of [raw, { raw, tx: {} }]) expect(await asking(async () => ({ result }), sent)).toBe(raw);
  });

  test.each<[string, () => Promise<unknown>, (one: Wallet) => Promise<unknown>, RegExp]>([
    ["another wallet's signature", () => other.signTypedData(data), typed, /another signature/],
    ["of other words", () => ours.signTypedData({ ...data, message: { word: "no" } }), typed, /another signature/],
    ["that is none", async () => "0x1234", typed, /another signature/],
    ["another wallet's transaction", () => other.signTransaction(transaction), sent, /another transaction/],
    [
      "to somebody else",
      () => ours.signTransaction({ ...transaction, to: other.address }),
      sent,
      /another transaction/,
    ],
    ["of more gas", () => ours.signTransaction({ ...transaction, maxFeePerGas: 10n }), sent, /another transaction/],
    ["with money", () => ours.signTransaction({ ...transaction, value: 1n }), sent, /another transaction/],
  ])("that answers with one %s is not", async (_, made, ask, says) => {
    const result = await made();
    const refused = expect(asking(async () => ({ result }), ask)).rejects;
    await refused.toThrow(NoWallet);
    await expect(asking(async () => ({ result }), ask)).rejects.toThrow(says);
  });

  test("that refuses, or is down, leaves no payment, and its address is in no message", async () => {
    const error = { code: -32_000, message: "locked; see http://127.0.0.1/key-of-the-operator" };
    const refused = await asking(async () => ({ error }), typed).catch((thrown: Error) => thrown);
    expect(refused).toBeInstanceOf(NoWallet);
    expect(String(refused)).toMatch(/gave no signature/);
    expect(String(refused)).not.toMatch(/key-of-the-operator/);
    const gone = { address: addressOf(0), signer: `http://127.0.0.1:${await freePort()}` };
    await expect(sent(gone)).rejects.toThrow(/gave no transaction/);
  });
});

describe("a key file", () => {
  const read = (text: string) => {
    const dir = mkdtempSync(join(tmpdir(), "signers-"));
    chmodSync(dir, 0o700);
    writeFileSync(join(dir, "known.key"), text, { mode: 0o600 });
    try {
      return new WalletFolder(dir).read().known;
    } finally {
      rmSync(dir, { recursive: true });
    }
  };

  test("may name a signer and the wallet that it has", () => {
    const address = addressOf(0);
    const known = read(`https://signer.example/v1  ${address.toUpperCase().replace("X", "x")}\n`);
    expect(known).toEqual({ address, signer: "https://signer.example/v1" });
  });

  test.each(["https://signer.example", "https://signer.example 0x12", `https:// 0x${"1".repeat(40)}`, "ftp://x 0x1"])(
    "%s is refused",
    (text) => expect(() => read(text)).toThrow(/known\.key (names no signer|is no key)/),
  );
});
