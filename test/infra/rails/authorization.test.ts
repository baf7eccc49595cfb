import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { type Authorizations, authorizationOf, createAuthorizations } from "../../../infra/rails/authorization.ts";
import type { Wallet } from "../../../infra/rails/rails.ts";
import { ChainDown, createReader } from "../../../infra/rails/rpc.ts";
import { createSender } from "../../../infra/rails/sender.ts";
import { SEARCH_MARGIN_BLOCKS, tokenOnChain } from "../../../infra/rails/settlement.ts";
import { decoded, entryV2, offer, PAYEE, payer, type Rig, startRig } from "./harness.ts";

const BUYER = "0x00000000000000000000000000000000000000c3";

let rig: Rig;
let ours: Authorizations;
let wallet: Wallet;
beforeAll(async () => {
  rig = await startRig();
  ours = await open(rig.chain.rpcUrl);
});
afterAll(() => rig.stop());
beforeEach(async () => {
  wallet = await payer(rig);
});

async function open(rpcUrl: string): Promise<Authorizations> {
  const { network, chainId, asset } = rig.chain;
  const sender = createSender(createReader(rpcUrl), chainId, `0x${randomBytes(32).toString("hex")}`);
  await rig.chain.giveGas(sender.address);
  return createAuthorizations(tokenOnChain({ rpcUrl, network, asset, confirmations: 1 }), sender);
}

const refund = (amountAtomic = 900n, validForSeconds = 600) =>
  ours.signTransfer(wallet, { to: BUYER, amountAtomic, validForSeconds });
const stateOf = async (nonce: string, from = wallet.address) =>
  (await ours.stateOf({ from, nonce, sinceBlock: 0 })).value;

test("a refund is signed before it is sent, settles once however often it is sent, and the chain says so", async () => {
  const before = (await rig.rail.balance(BUYER)).value;
  const seenAt = (await rig.rail.head()).time;
  const signed = JSON.parse(JSON.stringify(await refund())) as Awaited<ReturnType<typeof refund>>;
  const { nonce } = signed.authorization;
  expect(await stateOf(nonce)).toEqual({ state: "unused" });
  expect(Number(signed.authorization.validBefore) - seenAt).toBeGreaterThan(590);

  const sent = await ours.submitTransfer(signed);
  const state = await stateOf(nonce);
  expect(state).toMatchObject({
    state: "used",
    settlement: { amountAtomic: 900n, from: wallet.address, to: BUYER, final: true },
  });
  expect(sent).toEqual({ outcome: "sent", tx: (state as { settlement: { tx: string } }).settlement.tx });
  expect(await ours.submitTransfer(signed)).toEqual({ outcome: "refused", reason: "ERC3009UsedAuthorization" });
  expect((await rig.rail.balance(BUYER)).value).toBe(before + 900n);
});

test("the same refund sent by two processes at the same moment moves money once", async () => {
  const before = (await rig.rail.balance(BUYER)).value;
  const other = await open(rig.chain.rpcUrl);
  const signed = await refund();
  const both = await Promise.all([ours.submitTransfer(signed), other.submitTransfer(signed)]);
  expect(both.map(({ outcome }) => outcome).sort()).toEqual(["refused", "sent"]);
  expect((await rig.rail.balance(BUYER)).value).toBe(before + 900n);
});

test("a refund that the wallet cannot pay, or that has expired, or was changed, is refused and unused", async () => {
  const tooMuch = await refund(10_000_001n);
  expect(await ours.submitTransfer(tooMuch)).toEqual({ outcome: "refused", reason: "ERC20InsufficientBalance" });
  const late = await refund(1n, 1);
  const { time } = await rig.rail.head();
  await expect.poll(async () => (await rig.rail.head()).time, { interval: 200 }).toBeGreaterThan(time + 1);
  expect(await ours.submitTransfer(late)).toEqual({ outcome: "refused", reason: "ERC3009InvalidAuthorizationTime" });
  const changed = structuredClone(await refund());
  changed.authorization.value = "901";
  expect(await ours.submitTransfer(changed)).toEqual({ outcome: "refused", reason: "ERC3009InvalidSignature" });
  for (const { authorization } of [tooMuch, late, changed]) {
    expect(await stateOf(authorization.nonce)).toMatchObject({ state: "unused" });
  }
});

test("a payment that was cancelled can never be taken", async () => {
  const entry = entryV2(70n);
  const signed = await rig.rail.sign(entry, wallet, {});
  expect(await rig.facilitator.verify(...offer(entry, signed))).toMatchObject({ isValid: true });
  const cancel = JSON.parse(JSON.stringify(await ours.signCancel(wallet, signed.nonce))) as never;
  expect(await stateOf(signed.nonce)).toMatchObject({ state: "unused" });
  const sent = await ours.submitCancel(cancel);
  expect(sent).toMatchObject({ outcome: "sent" });
  const state = await stateOf(signed.nonce);
  expect(state).toEqual({ state: "cancelled", tx: (sent as { tx: string }).tx, final: true });

  const taken = await rig.facilitator.settle(...offer(entry, signed));
  expect(taken).toMatchObject({ success: false, errorReason: "invalid_exact_evm_nonce_already_used" });
  expect(await ours.submitCancel(cancel)).toEqual({ outcome: "refused", reason: "ERC3009UsedAuthorization" });
  expect(await stateOf(signed.nonce)).toEqual(state);
  expect((await rig.rail.balance(wallet.address)).value).toBe(10_000_000n);
});

test("a cancel that comes too late is refused, and another wallet's word cancels nothing", async () => {
  const entry = entryV2(71n);
  const signed = await rig.rail.sign(entry, wallet, {});
  const stranger = await payer(rig);
  const theirs = { ...(await ours.signCancel(stranger, signed.nonce)), authorizer: wallet.address };
  expect(await ours.submitCancel(theirs)).toEqual({ outcome: "refused", reason: "ERC3009InvalidSignature" });
  expect(await rig.facilitator.settle(...offer(entry, signed))).toMatchObject({ success: true });
  const cancel = await ours.signCancel(wallet, signed.nonce);
  expect(await ours.submitCancel(cancel)).toEqual({ outcome: "refused", reason: "ERC3009UsedAuthorization" });
  expect(await stateOf(signed.nonce)).toMatchObject({ state: "used", settlement: { to: PAYEE, amountAtomic: 71n } });
});

test("a chain that does not answer leaves it unknown, and its state cannot be asked", async () => {
  const signed = await refund();
  const far = await open("http://127.0.0.1:9");
  expect(await far.submitTransfer(signed)).toMatchObject({ outcome: "unknown" });
  const { nonce } = signed.authorization;
  await expect(far.stateOf({ from: wallet.address, nonce, sinceBlock: 0 })).rejects.toThrow(ChainDown);
});

test("a nonce that was used or cancelled long before the block we look from: by no payment that we look for", async () => {
  const [sent, unused] = [await refund(), await refund()];
  const cancelled = await refund();
  await ours.submitTransfer(sent);
  await ours.submitCancel(await ours.signCancel(wallet, cancelled.authorization.nonce));
  const read = (nonce: string, sinceBlock: number) => ours.stateOf({ from: wallet.address, nonce, sinceBlock });
  const nonces = [sent, cancelled, unused].map(({ authorization }) => authorization.nonce);
  await createReader(rig.chain.rpcUrl).request({ method: "anvil_mine", params: ["0x190"] } as never);
  const { number } = await rig.rail.head();
  const states = await Promise.all(nonces.map(async (nonce) => (await read(nonce, number)).value));
  expect(states).toEqual([{ state: "used_before" }, { state: "used_before" }, { state: "unused" }]);
  const [nonce] = nonces as [string];
  expect((await rig.rail.settlementOf({ from: wallet.address, nonce, sinceBlock: number })).value).toBe(null);
  // Of blocks that the node does not have, nothing is guessed.
  await expect(read(nonce, number + SEARCH_MARGIN_BLOCKS + 10_000)).rejects.toThrow(ChainDown);
});

test("what a payload's authorization says is read with the chain's own types", async () => {
  const signed = await rig.rail.sign(entryV2(5n), wallet, {});
  expect(authorizationOf(decoded(signed))).toMatchObject({
    ...{ from: wallet.address, to: PAYEE, valueAtomic: 5n, validBefore: signed.validBefore },
    nonce: signed.nonce,
  });
  for (const odd of [null, 1, {}, { payload: { authorization: {} } }]) expect(authorizationOf(odd)).toBeNull();
});
