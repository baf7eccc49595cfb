import { randomBytes } from "node:crypto";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import type { FacilitatorClient } from "@x402/core/server";
import type { PaymentRequirements } from "@x402/core/types";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { createFacilitator } from "../../../infra/rails/facilitator.ts";
import type { SignedPayment } from "../../../infra/rails/rails.ts";
import { Cooldowns } from "../../../infra/rails/rpc.ts";
import { createHttpTill, createTill, createTills, type Till, TillDown, toVersion1 } from "../../../infra/rails/till.ts";
import { decoded, entryV1, entryV2, nodeThatDiesAfterSending, payer, type Rig, startRig } from "./harness.ts";

/** How the facilitator behind the HTTP adapter behaves, in front of the real one. */
type Manner = "well" | "late" | "500" | "503 with a verdict" | "garbage" | "half" | "hangs up" | "denies" | "strange";

let rig: Rig;
let server: Server;
let manner: Manner = "well";
let asked: string[] = [];
let url: string;

/** A small facilitator over HTTP whose verdicts and settlements are the real one's. */
function serveFacilitator(facilitator: FacilitatorClient): Server {
  return createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const path = request.url ?? "";
    asked.push(path);
    const json = (status: number, body: unknown) => {
      response.writeHead(status, { "content-type": "application/json" });
      response.end(JSON.stringify(body));
    };
    if (manner === "500") return json(500, { error: "out of order" });
    if (manner === "503 with a verdict") {
      const words = { isValid: false, invalidReason: "invalid_x", success: false, errorReason: "invalid_x" };
      return json(503, { ...words, transaction: "", network: "eip155:84532" });
    }
    if (manner === "garbage") return response.end("<html>all is well</html>");
    if (manner === "strange") return json(200, { isValid: "yes", success: 1 });
    if (manner === "hangs up") return void request.socket.destroy();
    if (manner === "denies") {
      return json(400, {
        ...{ isValid: false, invalidReason: "a word nobody knows" },
        ...{ success: false, errorReason: "no_word_of_ours", transaction: "", network: "eip155:84532" },
      });
    }
    const { paymentPayload, paymentRequirements } = JSON.parse(Buffer.concat(chunks).toString());
    if (path === "/verify") return json(200, await facilitator.verify(paymentPayload, paymentRequirements));
    const how = manner;
    const answer = await facilitator.settle(paymentPayload, paymentRequirements);
    if (how === "late") return;
    if (how === "half") {
      response.writeHead(200, { "content-type": "application/json", "content-length": "500" });
      response.write('{"success":true,');
      return void setTimeout(() => request.socket.destroy(), 20);
    }
    return json(200, answer);
  });
}

beforeAll(async () => {
  rig = await startRig();
  server = serveFacilitator(rig.facilitator);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
});
afterAll(async () => {
  server.closeAllConnections();
  server.close();
  await rig.stop();
});

const DOWN = "http://127.0.0.1:9";
const httpTill = (timeout_ms = 20_000) => createHttpTill({ name: "elsewhere", url, timeout_ms });
const inProcess = () => createTill("here", rig.facilitator);
const listOf = (...tills: Till[]) => createTills(tills);

const terms = (amount: bigint): PaymentRequirements => entryV2(amount).raw as PaymentRequirements;
const settlementOf = async ({ from, nonce }: SignedPayment) =>
  (await rig.rail.settlementOf({ from, nonce, sinceBlock: 0 })).value;

async function signed(amount: bigint, version: 1 | 2 = 2) {
  const wallet = await payer(rig);
  const payment = await rig.rail.sign(version === 1 ? entryV1(amount) : entryV2(amount), wallet, {});
  return { wallet, payment, payload: decoded(payment) };
}

/** The same payload with some members of its payment changed. */
function forged(payload: unknown, changes: Record<string, unknown>): unknown {
  const copy = structuredClone(payload) as { payload: { authorization: Record<string, unknown>; signature: string } };
  Object.assign(copy.payload.authorization, changes);
  return copy;
}

const ADAPTERS: [string, () => Till][] = [
  ["in process", inProcess],
  ["over HTTP", () => httpTill()],
  ["a list of one", () => listOf(inProcess())],
  ["a list whose second is over HTTP", () => listOf(inProcess(), httpTill())],
];

describe.each(ADAPTERS)("the contract, %s", (_name, open) => {
  test.each([1, 2] as const)("x402 v%i: valid, then charged once, exactly, and never twice", async (version) => {
    const till = open();
    const { wallet, payment, payload } = await signed(4_321n, version);
    expect(await till.verify(payload, terms(4_321n))).toEqual({ valid: true, payer: wallet.address });
    expect(await settlementOf(payment)).toBeNull();
    const outcome = await till.settle(payload, terms(4_321n));
    const seen = await settlementOf(payment);
    expect(outcome).toEqual({ outcome: "sent", tx: seen?.tx });
    expect(seen).toMatchObject({ amountAtomic: 4_321n, from: wallet.address, to: entryV2(1n).payTo });

    expect(await till.verify(payload, terms(4_321n))).toEqual({
      valid: false,
      reason: "invalid_exact_evm_nonce_already_used",
    });
    expect(await till.settle(payload, terms(4_321n))).toMatchObject({ outcome: "refused" });
    expect((await rig.rail.balance(wallet.address)).value).toBe(10_000_000n - 4_321n);
  });

  test.each([1, 2] as const)(
    "x402 v%i: what does not fit the offer is invalid, and charges nothing",
    async (version) => {
      const till = open();
      const { wallet, payload } = await signed(50n, version);
      const expired = String(Math.floor(Date.now() / 1000) - 5);
      const cases: [unknown, PaymentRequirements][] = [
        [payload, terms(51n)],
        [payload, { ...terms(50n), payTo: "0x00000000000000000000000000000000000000b3" }],
        [payload, { ...terms(50n), asset: "0x00000000000000000000000000000000000000b4" }],
        [forged(payload, { value: "51" }), terms(51n)],
        [forged(payload, { validBefore: expired }), terms(50n)],
        [forged(payload, { from: "0x00000000000000000000000000000000000000b5" }), terms(50n)],
      ];
      for (const [payment, offer] of cases) {
        expect(await till.verify(payment, offer)).toEqual({ valid: false, reason: expect.any(String) });
        expect(await till.settle(payment, offer)).toMatchObject({ outcome: "refused" });
      }
      expect((await rig.rail.balance(wallet.address)).value).toBe(10_000_000n);
    },
  );

  test("a payer without the money is invalid", async () => {
    const wallet = await rig.wallets.blind(`cap_${randomBytes(4).toString("hex")}`, "2026-11-21", 9n);
    const payload = decoded(await rig.rail.sign(entryV2(10n), wallet, {}));
    const reason = "invalid_exact_evm_insufficient_balance";
    expect(await open().verify(payload, terms(10n))).toEqual({ valid: false, reason });
    expect(await open().settle(payload, terms(10n))).toMatchObject({ outcome: "refused" });
  });

  test("what is no payment is refused without asking anybody", async () => {
    const till = open();
    const { payload } = await signed(10n);
    asked = [];
    for (const odd of [
      ...[null, undefined, 7, "x402", [], {}, { x402Version: 2 }, { ...payload, payload: null }],
      ...[
        { ...payload, x402Version: 3 },
        { ...payload, x402Version: "2" },
        { ...payload, accepted: undefined },
      ],
      ...[
        { ...payload, x402Version: 1 },
        { ...payload, payload: { permit2Authorization: {}, signature: "0x" } },
      ],
      ...[forged(payload, { nonce: "0x12" }), forged(payload, { value: "1e3" }), forged(payload, { value: 10 })],
      ...[forged(payload, { validBefore: "9".repeat(30) }), forged(payload, { to: "seller.eth" })],
    ]) {
      expect(await till.verify(odd, terms(10n))).toEqual({ valid: false, reason: "invalid_payload" });
      expect(await till.settle(odd, terms(10n))).toEqual({ outcome: "refused", reason: "invalid_payload" });
    }
    expect(asked).toEqual([]);
  });
});

describe("a facilitator elsewhere that misbehaves", () => {
  const settling = async (how: Manner, timeout_ms = 20_000) => {
    const { payment, payload } = await signed(77n);
    manner = how;
    try {
      return { payment, payload, outcome: await httpTill(timeout_ms).settle(payload, terms(77n)) };
    } finally {
      manner = "well";
    }
  };

  test.each([
    ["says nothing after it settled", "late", 700],
    ["breaks off in the middle of its answer", "half", 20_000],
  ] as const)("one that %s is unknown, and the chain knows: the buyer was charged", async (_what, how, timeout_ms) => {
    const { payment, payload, outcome } = await settling(how, timeout_ms);
    expect(outcome).toMatchObject({ outcome: "unknown", says: expect.stringContaining("elsewhere") });
    // It settles in its own time, and the caller may have stopped waiting before that.
    await expect.poll(() => settlementOf(payment)).not.toBeNull();
    const seen = await settlementOf(payment);
    expect(seen).toMatchObject({ amountAtomic: 77n });
    // The caller that does not look sends it again: nothing moves twice.
    expect(await httpTill().settle(payload, terms(77n))).toMatchObject({ outcome: "refused" });
    expect(await settlementOf(payment)).toEqual(seen);
    expect((await rig.rail.balance(payment.from)).value).toBe(10_000_000n - 77n);
  });

  test.each(["500", "503 with a verdict", "garbage", "strange", "hangs up"] as const)(
    "one that answers so, %s, is unknown at a settlement and nobody at a verification",
    async (how) => {
      const { payment, payload, outcome } = await settling(how);
      expect(outcome).toMatchObject({ outcome: "unknown" });
      expect(await settlementOf(payment)).toBeNull();
      manner = how;
      const verifying = httpTill().verify(payload, terms(77n));
      await expect(verifying).rejects.toMatchObject({ name: "TillDown", retriable: true });
      manner = "well";
    },
  );

  test("one that is down is nobody, and its settlement unknown; its address's key is in no word", async () => {
    const { payload } = await signed(5n);
    const till = createHttpTill({ name: "gone", url: `${DOWN}?key=abcdefghijk` });
    expect(await till.settle(payload, terms(5n))).toMatchObject({ outcome: "unknown" });
    const error = await till.verify(payload, terms(5n)).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(TillDown);
    expect(String(error)).not.toContain("abcdefghijk");
  });

  test("one that denies in words and codes nobody knows has given its verdict", async () => {
    const { payload, outcome } = await settling("denies");
    expect(outcome).toEqual({ outcome: "refused", reason: "no_word_of_ours" });
    manner = "denies";
    expect(await httpTill().verify(payload, terms(77n))).toEqual({ valid: false, reason: "a word nobody knows" });
    manner = "well";
  });

  const ANSWERS: [string, { success: boolean; errorReason?: string; transaction: string }, string][] = [
    ["settlement_pending", { success: false, errorReason: "settlement_pending", transaction: "" }, "unknown"],
    ["a reverted transfer", failed("invalid_exact_evm_transaction_failed", `0x${"a".repeat(64)}`), "refused"],
    ["the same without a transaction", failed("invalid_exact_evm_transaction_failed", ""), "unknown"],
    ["a transaction that it will not vouch for", failed("insufficient_funds", `0x${"a".repeat(64)}`), "unknown"],
    ["a code", failed("insufficient_funds", ""), "refused"],
    ["a sentence", failed("The request took too long to respond.", ""), "unknown"],
    ["a failure of its own", failed("unexpected_settle_error", ""), "unknown"],
    ["no reason at all", { success: false, transaction: "" }, "unknown"],
    ["success without a transaction", { success: true, transaction: "" }, "unknown"],
    ["success", { success: true, transaction: `0x${"A".repeat(64)}` }, "sent"],
  ];
  function failed(errorReason: string, transaction: string) {
    return { success: false, errorReason, transaction };
  }
  test.each(ANSWERS)("an answer of %s", async (_what, answer, outcome) => {
    const { payload } = await signed(5n);
    const settle: FacilitatorClient["settle"] = async () => ({ ...answer, network: "eip155:84532" });
    const till = createTill("x", { ...rig.facilitator, settle });
    expect(await till.settle(payload, terms(5n))).toMatchObject({ outcome });
  });

  test("one that speaks of another payer is not believed", async () => {
    const { payload } = await signed(5n);
    const verify: FacilitatorClient["verify"] = async () => ({ isValid: true, payer: `0x${"7".repeat(40)}` });
    await expect(createTill("x", { ...rig.facilitator, verify }).verify(payload, terms(5n))).rejects.toThrow(TillDown);
  });
});

describe("in process, a chain that does not answer", () => {
  const far = () => {
    const privateKey = `0x${randomBytes(32).toString("hex")}`;
    return createTill(
      "here",
      createFacilitator({ rpcUrl: DOWN, network: rig.chain.network, sender: privateKey as `0x${string}` }),
    );
  };

  test.each([1, 2] as const)("x402 v%i: is nobody at a verification, and unknown at a settlement", async (version) => {
    const { payload } = await signed(5n, version);
    await expect(far().verify(payload, terms(5n))).rejects.toThrow(TillDown);
    expect(await far().settle(payload, terms(5n))).toMatchObject({ outcome: "unknown" });
  });

  test.each([1, 2] as const)(
    "x402 v%i: a receipt that does not come leaves the transaction's hash",
    async (version) => {
      const { payload, payment } = await signed(5n, version);
      const node = await nodeThatDiesAfterSending(rig.chain.rpcUrl);
      try {
        const privateKey = `0x${randomBytes(32).toString("hex")}`;
        const facilitator = createFacilitator({
          rpcUrl: node.rpcUrl,
          network: rig.chain.network,
          sender: privateKey as `0x${string}`,
        });
        await rig.chain.giveGas(facilitator.address);
        const outcome = await createTill("here", facilitator).settle(payload, terms(5n));
        const seen = await settlementOf(payment);
        expect(outcome).toMatchObject({ outcome: "unknown", tx: seen?.tx });
        expect(seen).toMatchObject({ amountAtomic: 5n });
      } finally {
        node.close();
      }
    },
  );
});

describe("several tills", () => {
  const clock = { at: 0 };
  const restingFor = (ms: number) => new Cooldowns<Till>(ms, () => clock.at);
  const counted = (name: string, till: Till) => {
    const calls: string[] = [];
    const one: Till & { calls: string[] } = {
      ...{ name, calls },
      verify(payment, offer) {
        calls.push("verify");
        return till.verify(payment, offer);
      },
      settle(payment, offer) {
        calls.push("settle");
        return till.settle(payment, offer);
      },
    };
    return one;
  };

  test("one that is down is passed over for a while and then tried again", async () => {
    const { payload } = await signed(5n);
    const [gone, here] = [counted("gone", createHttpTill({ name: "gone", url: DOWN })), counted("here", inProcess())];
    const resting = restingFor(1_000);
    const tills = createTills([gone, here], resting);
    for (let n = 0; n < 3; n++) expect(await tills.verify(payload, terms(5n))).toMatchObject({ valid: true });
    expect([gone.calls.length, here.calls.length]).toEqual([1, 3]);
    expect(resting.inOrder([gone, here])).toEqual([here, gone]);
    clock.at += 1_001;
    expect(resting.inOrder([gone, here])).toEqual([gone, here]);
    await tills.verify(payload, terms(5n));
    expect([gone.calls.length, here.calls.length]).toEqual([2, 4]);
  });

  test("a settlement that ended unknown goes nowhere else by itself; asked again, the next one takes it", async () => {
    const { payload, payment } = await signed(5n);
    const [gone, here] = [counted("gone", createHttpTill({ name: "gone", url: DOWN })), counted("here", inProcess())];
    const tills = createTills([gone, here], restingFor(1_000));
    expect(await tills.settle(payload, terms(5n))).toMatchObject({ outcome: "unknown" });
    expect(here.calls).toEqual([]);
    expect(await settlementOf(payment)).toBeNull();
    expect(await tills.settle(payload, terms(5n))).toMatchObject({ outcome: "sent" });
    expect(gone.calls).toEqual(["settle"]);
    expect(await settlementOf(payment)).toMatchObject({ amountAtomic: 5n });
  });

  test("a settlement that was refused goes to the next one when it is asked again, and the first is asked after it", async () => {
    const { payload, payment } = await signed(5n);
    const clash: FacilitatorClient["settle"] = async () => ({
      ...{ success: false, errorReason: "invalid_transaction_state", transaction: "", network: "eip155:84532" },
    });
    const ill = counted("ill", createTill("ill", { ...rig.facilitator, settle: clash }));
    const here = counted("here", inProcess());
    const resting = restingFor(1_000);
    const tills = createTills([ill, here], resting);
    expect(await tills.settle(payload, terms(5n))).toEqual({ outcome: "refused", reason: "invalid_transaction_state" });
    expect(here.calls).toEqual([]);
    expect(await tills.settle(payload, terms(5n))).toMatchObject({ outcome: "sent" });
    expect([ill.calls, here.calls]).toEqual([["settle"], ["settle"]]);
    expect(await settlementOf(payment)).toMatchObject({ amountAtomic: 5n });
    clock.at += 1_001;
    expect(resting.inOrder([ill, here])).toEqual([ill, here]);
  });

  test("when all are down nobody can be asked, and all are asked again the next time", async () => {
    const { payload } = await signed(5n);
    const both = ["a", "b"].map((name) => counted(name, createHttpTill({ name, url: DOWN })));
    const tills = createTills(both, restingFor(1_000));
    for (let n = 0; n < 2; n++) await expect(tills.verify(payload, terms(5n))).rejects.toThrow(TillDown);
    expect(both.map((one) => one.calls.length)).toEqual([2, 2]);
  });

  test("a verdict is a verdict: nobody else is asked", async () => {
    const { payload } = await signed(5n);
    const [first, second] = [counted("first", inProcess()), counted("second", inProcess())];
    const tills = createTills([first, second]);
    expect(await tills.verify(payload, terms(6n))).toMatchObject({ valid: false });
    expect(await tills.settle(payload, terms(6n))).toMatchObject({ outcome: "refused" });
    expect(second.calls).toEqual([]);
  });
});

test("an offer in the words of v1", () => {
  const { amount, network, ...rest } = terms(5n);
  expect(toVersion1(terms(5n))).toEqual({ ...rest, network: "base-sepolia", maxAmountRequired: amount });
  expect(toVersion1({ ...terms(5n), network: "eip155:999999999" })).toMatchObject({ network: "eip155:999999999" });
  expect(network).toBe("eip155:84532");
});

test("what is no address of a facilitator is refused at once", () => {
  for (const odd of ["", "facilitator.example", "ftp://facilitator.example", "file:///etc"]) {
    expect(() => createHttpTill({ name: "x", url: odd })).toThrow(TypeError);
  }
});
