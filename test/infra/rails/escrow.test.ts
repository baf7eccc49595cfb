import { randomBytes } from "node:crypto";
import { x402Client } from "@x402/core/client";
import type { PaymentPayload, PaymentRequirements } from "@x402/core/types";
import { AuthCaptureEvmScheme } from "@x402/evm/auth-capture/client";

import { type Address, type Hex, parseAbi, zeroAddress } from "viem";
import { privateKeyToAccount } from "viem/accounts";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { REFUND_COLLECTOR } from "../../../fixtures/chain/local-chain.ts";
import { createEscrow, type Escrow } from "../../../infra/rails/escrow.ts";
import { COLLECTOR, ESCROW, ESCROW_ABI, type Hold, holdOf } from "../../../infra/rails/escrow-terms.ts";
import type { Wallet } from "../../../infra/rails/rails.ts";
import { ChainDown, createReader } from "../../../infra/rails/rpc.ts";
import { createSender, type Sender, transact } from "../../../infra/rails/sender.ts";
import { tokenOnChain } from "../../../infra/rails/settlement.ts";
import * as fc from "../../helpers/fast-check.ts";
import { nodeThatDiesAfterSending, payer, type Rig, startRig } from "./harness.ts";

const TOTAL = 250_000n;
const TILL = "0x00000000000000000000000000000000000000D4";
const MINT_AND_APPROVE = parseAbi([
  "function mint(address to, uint256 value)",
  "function approve(address spender, uint256 value) returns (bool)",
]);
const operatorKey: Hex = `0x${randomBytes(32).toString("hex")}`;
const seconds = () => Math.floor(Date.now() / 1000);

let rig: Rig;
let escrow: Escrow;
let wallet: Wallet;
let since: number;
beforeAll(async () => {
  rig = await startRig();
  escrow = open();
  await rig.chain.giveGas(escrow.operator);
});
afterAll(() => rig.stop());
beforeEach(async () => {
  wallet = await payer(rig);
  since = (await rig.rail.head()).number;
});

const senderOf = (privateKey: Hex = operatorKey, rpcUrl = rig.chain.rpcUrl): Sender =>
  createSender(createReader(rpcUrl), rig.chain.chainId, privateKey);

function open(rpcUrl = rig.chain.rpcUrl): Escrow {
  const { network, asset } = rig.chain;
  const money = tokenOnChain({ rpcUrl, network, asset, confirmations: 1 });
  return createEscrow({ money, sender: senderOf(operatorKey, rpcUrl), payTo: TILL });
}

/** What the protocol's own client sends back for an offer. */
async function paid(offer: PaymentRequirements, by = wallet): Promise<PaymentPayload> {
  const client = new x402Client().register(
    "eip155:*",
    new AuthCaptureEvmScheme(privateKeyToAccount(by.privateKey as Hex)),
  );
  const terms = { x402Version: 2, resource: { url: "https://ours.example/v1/buy" }, accepts: [offer] };
  // As it comes over the wire.
  return JSON.parse(JSON.stringify(await client.createPaymentPayload(terms)));
}

async function hold(by = wallet, of = escrow): Promise<Hold> {
  const offer = of.offer(TOTAL, seconds());
  const checked = await of.check(await paid(offer, by), offer, seconds());
  if (!checked.valid) throw new Error(checked.reason);
  return checked.hold;
}

const balance = async (address: string) => (await rig.rail.balance(address)).value;
const held = () => balance(ESCROW);
const reader = () => createReader(rig.chain.rpcUrl);
const call = (sender: Sender, functionName: string, args: readonly unknown[]) =>
  transact(sender, { address: ESCROW, abi: ESCROW_ABI, functionName, args, gas: 500_000n });

describe("the offer", () => {
  test("says what the scheme wants, names its escrow, and lets the buyer reclaim after thirty minutes", () => {
    const offer = escrow.offer(TOTAL, 1_790_000_000);
    expect(offer).toEqual({
      scheme: "auth-capture",
      network: "eip155:84532",
      amount: "250000",
      asset: rig.chain.asset,
      payTo: TILL,
      maxTimeoutSeconds: 300,
      extra: {
        name: "USDC",
        version: "2",
        authCaptureEscrow: "0xBdEA0D1bcC5966192B070Fdf62aB4EF5b4420cff",
        captureAuthorizer: expect.stringMatching(new RegExp(escrow.operator, "i")),
        operatorType: "delegated",
        paymentFlow: "escrow",
        captureMode: "deferred",
        captureDeadline: 1_790_001_800,
        refundDeadline: 1_790_001_800,
        feeRecipient: TILL,
        minFeeBps: 0,
        maxFeeBps: 0,
        assetTransferMethod: "eip3009",
      },
    });
    expect(() => escrow.offer(0n, 0)).toThrow(RangeError);
    expect(() => escrow.offer(1n << 120n, 0)).toThrow(RangeError);
  });

  test("the official client's payment is one hold, by every name the contract has for it", async () => {
    const offer = escrow.offer(TOTAL, seconds());
    const payment = await paid(offer);
    const checked = await escrow.check(payment, offer, seconds());
    expect(checked).toMatchObject({ valid: true, payer: wallet.address });
    const { info, hash, nonce } = (checked as { hold: Hold }).hold;
    const getHash = (of: typeof info) =>
      reader().readContract({ address: ESCROW, abi: ESCROW_ABI, functionName: "getHash", args: [of] });
    expect(hash).toBe(await getHash(info));
    expect(nonce).toBe(await getHash({ ...info, payer: zeroAddress }));
    expect(nonce).toBe((payment.payload.authorization as { nonce: string }).nonce);
    // Read again from what was written down, it is the same.
    expect(holdOf(JSON.parse(JSON.stringify(payment)), offer)).toEqual((checked as { hold: Hold }).hold);
  });
});

describe("a hold", () => {
  test("authorized and captured: all of it moves once, however often each is asked", async () => {
    const one = await hold();
    const [before, ours] = [await held(), await balance(TILL)];
    expect((await escrow.state(one, since)).value).toEqual({ state: "none" });
    const authorized = await escrow.authorize(one, since);
    expect(authorized).toMatchObject({ outcome: "sent" });
    expect(await escrow.authorize(one, since)).toEqual(authorized);
    expect(await balance(wallet.address)).toBe(10_000_000n - TOTAL);
    expect(await held()).toBe(before + TOTAL);
    const { tx } = authorized as { tx: string };
    expect((await escrow.state(one, since)).value).toEqual({ state: "held", tx, final: true, amountAtomic: TOTAL });
    // The rail sees the same money leave under the same nonce.
    const moved = { from: wallet.address, nonce: one.nonce, sinceBlock: since };
    expect((await rig.rail.settlementOf(moved)).value).toMatchObject({
      tx,
      amountAtomic: TOTAL,
      to: COLLECTOR.toLowerCase(),
    });

    const captured = await escrow.capture(one, since);
    expect(captured).toMatchObject({ outcome: "sent" });
    expect(await escrow.capture(one, since)).toEqual(captured);
    expect((await escrow.state(one, since)).value).toMatchObject({
      ...{ state: "captured", amountAtomic: TOTAL },
      tx: txOf(captured),
    });
    expect(await escrow.authorize(one, since)).toEqual(authorized);
    expect(await escrow.void(one, since)).toEqual({ outcome: "refused", reason: "ZeroAuthorization" });
    expect([await held(), await balance(TILL)]).toEqual([before, ours + TOTAL]);
    expect(await balance(wallet.address)).toBe(10_000_000n - TOTAL);
  });

  test("authorized and voided: all of it is back, and can be neither captured nor held again", async () => {
    const one = await hold();
    const [before, ours] = [await held(), await balance(TILL)];
    expect(await escrow.void(one, since)).toEqual({ outcome: "refused", reason: "ZeroAuthorization" });
    await escrow.authorize(one, since);
    const voided = await escrow.void(one, since);
    expect(voided).toMatchObject({ outcome: "sent" });
    expect(await escrow.void(one, since)).toEqual(voided);
    expect((await escrow.state(one, since)).value).toEqual({
      ...{ state: "voided", tx: txOf(voided), final: true, amountAtomic: TOTAL },
    });
    expect(await escrow.capture(one, since)).toEqual({ outcome: "refused", reason: "InsufficientAuthorization" });
    expect(await balance(wallet.address)).toBe(10_000_000n);
    expect([await held(), await balance(TILL)]).toEqual([before, ours]);
  });

  test("captured before it is held is refused", async () => {
    const one = await hold();
    expect(await escrow.capture(one, since)).toEqual({ outcome: "refused", reason: "InsufficientAuthorization" });
  });

  test("two processes with one key authorize, then capture, the same one at the same moment: it moves once", async () => {
    const one = await hold();
    const ours = await balance(TILL);
    const both = [escrow, open()];
    for (const what of ["authorize", "capture"] as const) {
      const outcomes = await Promise.all(both.map((each) => each[what](one, since)));
      expect(outcomes[0]).toMatchObject({ outcome: "sent" });
      expect(outcomes[1]).toEqual(outcomes[0]);
    }
    expect(await balance(wallet.address)).toBe(10_000_000n - TOTAL);
    expect(await balance(TILL)).toBe(ours + TOTAL);
  });

  test("ten at once through one key", async () => {
    const buyers = await Promise.all(Array.from({ length: 10 }, () => payer(rig)));
    const ours = await balance(TILL);
    const holds = await Promise.all(buyers.map((each) => hold(each)));
    const outcomes = await Promise.all(holds.map((one) => escrow.authorize(one, since)));
    expect(outcomes.map(({ outcome }) => outcome)).toEqual(Array(10).fill("sent"));
    const ends = await Promise.all(
      holds.map((one, n) => (n % 2 ? escrow.capture(one, since) : escrow.void(one, since))),
    );
    expect(ends.map(({ outcome }) => outcome)).toEqual(Array(10).fill("sent"));
    expect(await balance(TILL)).toBe(ours + 5n * TOTAL);
  });

  test.each(["authorize", "capture", "void"] as const)(
    "a node that is lost after it took the transaction leaves %s unknown, and asked again it is the same",
    async (what) => {
      const one = await hold();
      if (what !== "authorize") await escrow.authorize(one, since);
      const node = await nodeThatDiesAfterSending(rig.chain.rpcUrl);
      try {
        const lost = await open(node.rpcUrl)[what](one, since);
        expect(lost).toMatchObject({ outcome: "unknown" });
        const again = await escrow[what](one, since);
        expect(again).toMatchObject({ outcome: "sent", ...("tx" in lost && { tx: lost.tx }) });
      } finally {
        node.close();
      }
      const reached = { authorize: "held", capture: "captured", void: "voided" }[what];
      expect((await escrow.state(one, since)).value).toMatchObject({ state: reached });
    },
  );

  test("a chain that does not answer leaves all unknown, and says nothing of a hold", async () => {
    const one = await hold();
    const far = open("http://127.0.0.1:9");
    const outcomes = await Promise.all(
      (["authorize", "capture", "void"] as const).map((what) => far[what](one, since)),
    );
    expect(outcomes.map(({ outcome }) => outcome)).toEqual(["unknown", "unknown", "unknown"]);
    await expect(far.state(one, since)).rejects.toThrow(ChainDown);
    const offer = far.offer(TOTAL, seconds());
    await expect(far.check(await paid(offer), offer, seconds())).rejects.toThrow(ChainDown);
    expect((await escrow.state(one, since)).value).toMatchObject({ state: "none" });
  });
});

const txOf = (outcome: object): string => (outcome as { tx: string }).tx;

describe("what is not our offer is not held", () => {
  type Change = (payment: PaymentPayload, offer: PaymentRequirements) => unknown;
  const inside = (payment: PaymentPayload) => payment.payload as Record<string, Record<string, unknown>>;
  // Times are those of the test, and not of when the table was read.
  const echo =
    (changes: () => object): Change =>
    (payment) =>
      void Object.assign(payment.accepted.extra, changes());
  const signed =
    (changes: () => object): Change =>
    (payment) =>
      void Object.assign(inside(payment).authorization!, changes());
  const flip = (text: string) => text.slice(0, 20) + (text[20] === "0" ? "1" : "0") + text.slice(21);
  const CASES: [string, string, Change][] = [
    ["nothing at all", "payload_format", () => null],
    ["no signature", "payload_format", (p) => void delete inside(p).signature],
    ["no salt", "payload_format", (p) => void delete inside(p).salt],
    ["a bound salt", "payload_format", (p) => void Object.assign(p.payload, { saltNonce: `0x${"1".repeat(64)}` })],
    ["x402 v1", "scheme", (p) => void Object.assign(p, { x402Version: 1 })],
    ["another scheme", "scheme", (p) => void Object.assign(p.accepted, { scheme: "exact" })],
    ["another network", "network_mismatch", (p) => void Object.assign(p.accepted, { network: "eip155:8453" })],
    ["no echo of the deadlines", "extra", (p) => void Object.assign(p.accepted, { extra: null })],
    ["another amount", "amount_mismatch", signed(() => ({ value: "249999" }))],
    ["a transfer to somebody else", "token_collector_mismatch", signed(() => ({ to: TILL }))],
    ["a start that the collector ignores", "authorization_not_yet_valid", signed(() => ({ validAfter: "1" }))],
    ["a deadline that was not signed", "nonce_mismatch", echo(() => ({ captureDeadline: seconds() + 1_000 }))],
    ["a refund deadline that was not signed", "nonce_mismatch", echo(() => ({ refundDeadline: seconds() + 10_000 }))],
    ["deadlines in the wrong order", "deadline_ordering", echo(() => ({ refundDeadline: seconds() + 400 }))],
    [
      "a signature that outlives the hold",
      "deadline_ordering",
      signed(() => ({ validBefore: String(seconds() + 9_000) })),
    ],
    ["another salt", "nonce_mismatch", (p) => void Object.assign(p.payload, { salt: `0x${"7".repeat(64)}` })],
    ["another nonce", "nonce_mismatch", signed(() => ({ nonce: `0x${"7".repeat(64)}` }))],
    ["a payer who did not sign", "signature", signed(() => ({ from: "0x00000000000000000000000000000000000000e5" }))],
    [
      "a forged signature",
      "signature",
      (p) => void Object.assign(p.payload, { signature: flip(String(p.payload.signature)) }),
    ],
    [
      "a wallet that is yet to be made",
      "erc6492_factory_not_allowed",
      (p) => void Object.assign(p.payload, { signature: `${String(p.payload.signature)}${"6492".repeat(16)}` }),
    ],
  ];
  test.each(CASES)("%s: %s", async (_what, reason, change) => {
    const offer = escrow.offer(TOTAL, seconds());
    const payment = await paid(offer);
    const changed = change(payment, offer);
    const checked = await escrow.check(changed === null ? null : payment, offer, seconds());
    expect(checked).toEqual({ valid: false, reason: `invalid_auth_capture_evm_${reason}` });
  });

  const OFFERS: [string, string, (offer: PaymentRequirements) => void][] = [
    [
      "another receiver",
      "nonce_mismatch",
      (o) => void Object.assign(o, { payTo: "0x00000000000000000000000000000000000000E6" }),
    ],
    ["another operator", "nonce_mismatch", (o) => void Object.assign(o.extra, { captureAuthorizer: COLLECTOR })],
    ["another escrow", "token_collector_mismatch", (o) => void delete o.extra.authCaptureEscrow],
    ["a fee", "nonce_mismatch", (o) => void Object.assign(o.extra, { maxFeeBps: 100 })],
    ["a fee's receiver", "nonce_mismatch", (o) => void Object.assign(o.extra, { feeRecipient: COLLECTOR })],
    ["less money", "amount_mismatch", (o) => void Object.assign(o, { amount: "1" })],
    ["another token's name", "signature", (o) => void Object.assign(o.extra, { name: "USD Coin" })],
    [
      "a longer hold",
      "extra",
      (o) => void Object.assign(o.extra, { captureDeadline: seconds() + 1_900, refundDeadline: seconds() + 1_900 }),
    ],
    ["a longer refund", "extra", (o) => void Object.assign(o.extra, { refundDeadline: seconds() + 86_400 })],
    [
      "a hold about to end",
      "capture_deadline_expired",
      (o) => void Object.assign(o.extra, { captureDeadline: seconds() + 500, refundDeadline: seconds() + 500 }),
    ],
    ["a signature about to end", "authorization_expired", (o) => void Object.assign(o, { maxTimeoutSeconds: 3 })],
  ];
  test.each(OFFERS)("signed for %s: %s", async (_what, reason, change) => {
    const ours = escrow.offer(TOTAL, seconds());
    const theirs = structuredClone(ours);
    change(theirs);
    const checked = await escrow.check(await paid(theirs), ours, seconds());
    expect(checked).toEqual({ valid: false, reason: `invalid_auth_capture_evm_${reason}` });
  });

  test("whatever a stranger writes, reading it never throws", async () => {
    const offer = escrow.offer(TOTAL, seconds());
    const payment = await paid(offer);
    const odd = fc.oneof(fc.anything(), fc.constantFrom(null, "", 0, "0x", [], {}));
    const paths = [["payload"], ["accepted"], ["x402Version"], ["accepted", "extra"], ["payload", "salt"]];
    const deeper = ["from", "to", "value", "validAfter", "validBefore", "nonce"];
    const all = [...paths, ["payload", "authorization"], ...deeper.map((name) => ["payload", "authorization", name])];
    fc.assert(
      fc.property(fc.constantFrom(...all), odd, (path, value) => {
        const copy = structuredClone(payment) as unknown as Record<string, never>;
        const parent = path.slice(0, -1).reduce((at, name) => at[name]!, copy);
        Object.assign(parent, { [path.at(-1)!]: value });
        expect(holdOf(copy, offer)).toBeTypeOf("object");
        expect(holdOf(value, offer)).toHaveProperty("reason");
      }),
      { numRuns: 2_000 },
    );
  });

  test("an answer to the offer of some minutes ago is held by that offer's deadline", async () => {
    const then = escrow.offer(TOTAL, seconds() - 900);
    const checked = await escrow.check(await paid(then), escrow.offer(TOTAL, seconds()), seconds());
    expect(checked).toMatchObject({ valid: true, hold: { captureDeadline: then.extra.captureDeadline } });
  });

  test("a payer without the money, a payment that was held, and one that was cancelled", async () => {
    const offer = escrow.offer(TOTAL, seconds());
    const poor = await rig.wallets.blind(`cap_${randomBytes(4).toString("hex")}`, "2026-11-21", TOTAL - 1n);
    const reason = async (payment: unknown) => (await escrow.check(payment, offer, seconds())) as unknown;
    const why = (what: string) => ({ valid: false, reason: `invalid_auth_capture_evm_${what}` });
    expect(await reason(await paid(offer, poor))).toEqual(why("insufficient_balance"));
    const payment = await paid(offer);
    const one = holdOf(payment, offer) as Hold;
    await escrow.authorize(one, since);
    expect(await reason(payment)).toEqual(why("payment_already_collected"));
    await escrow.void(one, since);
    expect(await reason(payment)).toEqual(why("payment_already_collected"));
  });
});

describe("the contract", () => {
  test("obeys its operator only, and never takes more than was held or a fee that was not signed", async () => {
    const one = await hold();
    const stranger = senderOf(`0x${randomBytes(32).toString("hex")}`);
    await rig.chain.giveGas(stranger.address);
    const authorizing = [one.info, TOTAL, COLLECTOR, one.signature];
    const notYou = { outcome: "refused", reason: "InvalidSender" };
    expect(await call(stranger, "authorize", authorizing)).toEqual(notYou);
    await escrow.authorize(one, since);
    expect(await call(stranger, "capture", [one.info, TOTAL, 0, TILL])).toEqual(notYou);
    expect(await call(stranger, "void", [one.info])).toEqual(notYou);
    expect(await call(stranger, "reclaim", [one.info])).toEqual(notYou);
    const us = senderOf();
    const refused = (reason: string) => ({ outcome: "refused", reason });
    expect(await call(us, "capture", [one.info, TOTAL + 1n, 0, TILL])).toEqual(refused("InsufficientAuthorization"));
    expect(await call(us, "capture", [one.info, TOTAL, 1, TILL])).toEqual(refused("FeeBpsOutOfRange"));
    expect(await call(us, "capture", [one.info, TOTAL, 0, COLLECTOR])).toEqual(refused("InvalidFeeReceiver"));
    expect(await call(us, "capture", [one.info, 0n, 0, TILL])).toEqual(refused("ZeroAmount"));
    expect(await call(us, "capture", [{ ...one.info, receiver: us.address }, TOTAL, 0, TILL])).toMatchObject({
      outcome: "refused",
      reason: "InsufficientAuthorization",
    });
    expect(await call(us, "authorize", authorizing)).toEqual(refused("PaymentAlreadyCollected"));
    expect((await escrow.state(one, since)).value).toMatchObject({ state: "held" });
  });

  test("holds part of what was signed and gives the rest back at once, and captures in parts", async () => {
    const one = await hold();
    const [us, ours] = [senderOf(), await balance(TILL)];
    await call(us, "authorize", [one.info, TOTAL - 50_000n, COLLECTOR, one.signature]);
    expect(await balance(wallet.address)).toBe(10_000_000n - 200_000n);
    for (let n = 0; n < 2; n++) await call(us, "capture", [one.info, 60_000n, 0, TILL]);
    expect(await balance(TILL)).toBe(ours + 120_000n);
    await call(us, "void", [one.info]);
    expect(await balance(wallet.address)).toBe(10_000_000n - 120_000n);
  });

  test("refunds what was captured and no more, out of what its operator approved", async () => {
    const one = await hold();
    const us = senderOf();
    await escrow.authorize(one, since);
    const refunding = (amount: bigint) => call(us, "refund", [one.info, amount, REFUND_COLLECTOR, "0x"]);
    expect(await refunding(1n)).toEqual({ outcome: "refused", reason: "RefundExceedsCapture" });
    await escrow.capture(one, since);
    const token = { address: rig.chain.asset as Address, abi: MINT_AND_APPROVE };
    const write = (functionName: string, args: unknown[]) => transact(us, { ...token, functionName, args });
    await write("mint", [us.address, TOTAL]);
    await write("approve", [REFUND_COLLECTOR, TOTAL]);
    expect(await call(us, "refund", [one.info, TOTAL, COLLECTOR, "0x"])).toMatchObject({ outcome: "refused" });
    expect(await refunding(TOTAL)).toMatchObject({ outcome: "sent" });
    expect(await balance(wallet.address)).toBe(10_000_000n);
    expect(await refunding(1n)).toEqual({ outcome: "refused", reason: "RefundExceedsCapture" });
    // What was captured stays captured.
    expect((await escrow.state(one, since)).value).toMatchObject({ state: "captured" });
  });
});

/** Last: chain time that has passed does not come back. */
describe("once the capture deadline has passed", () => {
  const pass = async (secondsOn: number) => {
    for (const [method, params] of [
      ["evm_increaseTime", [secondsOn]],
      ["evm_mine", []],
    ]) {
      await reader().request({ method, params } as never);
    }
  };

  test("its payer takes the money back, nobody before and nobody else; it is captured no more", async () => {
    const [one, other, late] = [await hold(), await hold(await payer(rig)), await hold(await payer(rig))];
    const ours = await balance(TILL);
    for (const each of [one, other]) expect(await escrow.authorize(each, since)).toMatchObject({ outcome: "sent" });
    const buyer = senderOf(wallet.privateKey as Hex);
    await rig.chain.giveGas(wallet.address);
    const reclaim = () => call(buyer, "reclaim", [one.info]);
    expect(await reclaim()).toEqual({ outcome: "refused", reason: "BeforeAuthorizationExpiry" });

    await pass(1_801);
    expect(await escrow.capture(one, since)).toEqual({ outcome: "refused", reason: "AfterAuthorizationExpiry" });
    expect(await escrow.authorize(late, since)).toEqual({ outcome: "refused", reason: "AfterPreApprovalExpiry" });
    const none = await escrow.state(late, since);
    expect(none.value).toEqual({ state: "none" });
    expect(none.final.time).toBeGreaterThan(late.validBefore);
    expect(await call(senderOf(), "reclaim", [one.info])).toEqual({ outcome: "refused", reason: "InvalidSender" });
    const reclaimed = await reclaim();
    expect(reclaimed).toMatchObject({ outcome: "sent" });
    expect((await escrow.state(one, since)).value).toMatchObject({
      state: "reclaimed",
      tx: txOf(reclaimed),
      amountAtomic: TOTAL,
    });
    expect(await balance(wallet.address)).toBe(10_000_000n);
    expect(await reclaim()).toEqual({ outcome: "refused", reason: "ZeroAuthorization" });
    expect(await escrow.void(one, since)).toEqual({ outcome: "refused", reason: "ZeroAuthorization" });

    expect(await escrow.void(other, since)).toMatchObject({ outcome: "sent" });
    expect(await balance(other.payer)).toBe(10_000_000n);
    expect(await balance(TILL)).toBe(ours);
  });
});
