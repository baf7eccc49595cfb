import { type Address, createPublicClient, http } from "viem";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startTempoChain } from "../../../fixtures/chain/tempo-chain.ts";
import type { PaymentNeed } from "../../../infra/rails/rails.ts";
import { ChainDown } from "../../../infra/rails/rpc.ts";
import { createTempoRail } from "../../../infra/rails/tempo.ts";
import { createLocalWallets, giveLocalGas, type LocalWallets } from "../../../infra/rails/wallets.ts";
import { entryV2, offer, PAYEE, type Rig, startRig } from "./harness.ts";

let rig: Rig;
const seed = new Uint8Array(32).fill(7);
const open = (changes = {}): LocalWallets =>
  createLocalWallets({ rpcUrl: rig.chain.rpcUrl, asset: rig.chain.asset, seed, ...changes });
beforeAll(async () => {
  rig = await startRig();
});
afterAll(() => rig.stop());

test("same arguments, same wallet, after a restart too; any other argument, another wallet", async () => {
  const [first, second] = [open(), open()];
  expect(await second.known()).toEqual(await first.known());
  const wallet = await first.blind("cap_a", "2026-11-21", 5n);
  expect(await second.blind("cap_a", "2026-11-21", 5n)).toEqual(wallet);
  const others = await Promise.all([
    first.known(),
    first.blind("cap_b", "2026-11-21", 5n),
    first.blind("cap_a", "2026-11-22", 5n),
    open({ seed: new Uint8Array(32).fill(8) }).blind("cap_a", "2026-11-21", 5n),
  ]);
  expect(new Set([wallet, ...others].map((one) => one.address)).size).toBe(5);
});

test("a blind wallet holds what was asked for, also after it spent some, and is never funded twice for it", async () => {
  const wallets = open();
  const wallet = await wallets.blind("cap_spend", "2026-11-21", 300n);
  await wallets.blind("cap_spend", "2026-11-21", 300n);
  expect((await rig.rail.balance(wallet.address)).value).toBe(300n);
  const entry = entryV2(200n);
  const signed = await rig.rail.sign(entry, wallet, {});
  expect(await rig.facilitator.settle(...offer(entry, signed))).toMatchObject({ success: true });
  await wallets.blind("cap_spend", "2026-11-21", 300n);
  expect((await rig.rail.balance(wallet.address)).value).toBe(300n);
});

test("two hundred blind wallets at once, asked for by two processes, share a few transactions", async () => {
  const before = (await rig.rail.head()).number;
  const stores = [open(), open()];
  const wallets = await Promise.all(
    Array.from({ length: 200 }, (_, n) => stores[n % 2]!.blind(`cap_${n}`, "2026-11-21", BigInt(n + 1))),
  );
  const after = (await rig.rail.head()).number;
  const balances = await Promise.all(wallets.map(async (wallet) => (await rig.rail.balance(wallet.address)).value));
  expect(balances).toEqual(wallets.map((_, n) => BigInt(n + 1)));
  // One transaction each would make 200. Not blocks: one comes every second by itself, however long this takes.
  const chain = createPublicClient({ transport: http(rig.chain.rpcUrl) });
  let sent = 0;
  for (let n = before + 1; n <= after; n++) {
    sent += await chain.getBlockTransactionCount({ blockNumber: BigInt(n) });
  }
  expect(sent).toBeLessThan(100);
});

test("no link on the chain between the known wallet and a blind one: each is minted", async () => {
  const wallets = open();
  const [known, blind] = [await wallets.known(), await wallets.blind("cap_z", "2026-11-21", 9n)];
  expect((await rig.rail.balance(known.address)).value).toBe(10_000_000_000n);
  expect((await rig.rail.transfers({ from: known.address, to: blind.address, sinceBlock: 0 })).value).toEqual([]);
  const mints = { from: `0x${"0".repeat(40)}`, to: blind.address, sinceBlock: 0 };
  expect((await rig.rail.transfers(mints)).value).toMatchObject([{ amountAtomic: 9n }]);
});

test("what has to be paid on Tempo is held there, by the same wallets, with room for the fee in the same token", async () => {
  const { rpcUrl, network, asset, stop } = await startTempoChain();
  try {
    const wallets = open({ tempo: { rpcUrl, network, asset } });
    const rail = createTempoRail({ rpcUrl, network, asset, confirmations: 1 });
    const heldOnBoth = async ({ address }: { address: string }) => [
      (await rail.balance(address)).value,
      (await rig.rail.balance(address)).value,
    ];
    const need = { network, asset, amountAtomic: 300n };
    expect(await wallets.known(need)).toEqual(await wallets.known());
    expect(await heldOnBoth(await wallets.known())).toEqual([10_000_000_000n, 10_000_000_000n]);
    const blind = (cap: string, place: PaymentNeed = need) => wallets.blind(cap, "2026-11-21", 300n, place);
    const twice = await Promise.all([blind("cap_t"), blind("cap_t")]);
    expect(twice[1]).toEqual(twice[0]);
    expect(await heldOnBoth(twice[0])).toEqual([50_300n, 0n]);
    const { network: own, asset: usdc } = rig.chain;
    expect(await heldOnBoth(await blind("cap_u", { ...need, network: own, asset: usdc }))).toEqual([0n, 300n]);
  } finally {
    await stop();
  }
});

test("wallets of our own have names, each its own money, and are lifted when half is gone", async () => {
  const wallets = open();
  const [float, till] = [await wallets.named("float"), await wallets.named("till", 0n)];
  const others = await Promise.all([wallets.known(), wallets.blind("float", "2026-11-21", 1n)]);
  expect(new Set([float, till, ...others].map((one) => one.address)).size).toBe(4);
  expect(await open().named("float")).toEqual(float);
  expect((await rig.rail.balance(float.address)).value).toBe(10_000_000_000n);
  expect((await rig.rail.balance(till.address)).value).toBe(0n);
  const entry = entryV2(4_000_000_000n, { payTo: till.address });
  const raw = { ...(entry.raw as object), payTo: till.address };
  const pay = async () => {
    const signed = await rig.rail.sign({ ...entry, raw }, float, {});
    expect(await rig.facilitator.settle(...offer({ ...entry, raw }, signed))).toMatchObject({ success: true });
    await wallets.named("float");
    return (await rig.rail.balance(float.address)).value;
  };
  expect(await pay()).toBe(6_000_000_000n);
  expect(await pay()).toBe(10_000_000_000n);
  expect((await rig.rail.balance(till.address)).value).toBe(8_000_000_000n);
  await expect(wallets.named("Float|1")).rejects.toThrow(TypeError);
});

test("gas is given to whoever has little of it, and by a local chain only", async () => {
  const chain = createPublicClient({ transport: http(rig.chain.rpcUrl) });
  const { address } = await open().named("gas", 0n);
  await giveLocalGas(rig.chain.rpcUrl, address);
  expect(await chain.getBalance({ address: address as Address })).toBe(10n ** 21n);
  await expect(giveLocalGas("http://127.0.0.1:9", address)).rejects.toThrow(ChainDown);
});

test("a short seed is refused, and a chain that is down is said so", async () => {
  expect(() => open({ seed: new Uint8Array(8) })).toThrow("16 bytes");
  const down = open({ rpcUrl: "http://127.0.0.1:9" });
  await expect(down.blind("cap_a", "2026-11-21", 1n)).rejects.toThrow(ChainDown);
  await expect(down.known()).rejects.toThrow(ChainDown);
  expect((await rig.rail.balance(PAYEE)).value).toBe(200n);
});
