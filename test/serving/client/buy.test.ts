import { randomBytes } from "node:crypto";
import { x402Client } from "@x402/core/client";
import type { PaymentRequirements } from "@x402/core/types";
import { AuthCaptureEvmScheme } from "@x402/evm/auth-capture/client";
import { ExactEvmScheme } from "@x402/evm/exact/client";
import { wrapFetchWithPayment } from "@x402/fetch";
import { evm, Mppx } from "mppx/client";
import { createPublicClient, http, parseAbi } from "viem";
import { privateKeyToAccount } from "viem/accounts";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test, vi } from "vitest";
import { LOCAL_USDC, type LocalChain, startLocalChain } from "../../../fixtures/chain/local-chain.ts";
import { createFacilitator, type Facilitator } from "../../../infra/rails/facilitator.ts";
import { BuyersExpectation } from "../../../pipelines/record/expectation.ts";
import { BuyUnknown, buyThrough, payBy, resumeThrough, Service } from "../../../serving/client/index.ts";
import { PROBLEMS, Problem, type ProblemCode, problemResponse } from "../../../serving/http/problem.ts";
import { fundedKey, now } from "../../helpers/client.ts";
import { PublicRecord } from "../../helpers/public-record.ts";
import { type AnswerFault, ORDER, SELLER, ViaServer } from "../../helpers/via-server.ts";

/** Purchases through a service that is lost, slow or at odds, with the official client on a real chain. */
let chain: LocalChain;
let facilitator: Facilitator;
let record: PublicRecord;
let via: ViaServer;
let account: ReturnType<typeof privateKeyToAccount>;
let signed = 0;
beforeAll(async () => {
  chain = await startLocalChain();
  facilitator = createFacilitator({ ...chain, sender: `0x${randomBytes(32).toString("hex")}` });
  await chain.giveGas(facilitator.address);
  record = await PublicRecord.open();
});
afterAll(async () => {
  await record?.close();
  await chain?.stop();
});
beforeEach(async () => {
  via = await ViaServer.open(record, facilitator);
  account = privateKeyToAccount(await fundedKey(chain, 1_000_000n));
  signed = 0;
});
afterEach(() => via.close());

const wallet = (): x402Client =>
  new x402Client().register("eip155:*", new ExactEvmScheme(account)).onAfterPaymentCreation(async () => void signed++);

const buy = (more: object = {}) =>
  buyThrough(new Service({ base: via.url, now }), {
    ...{ url: `${SELLER}?a=20`, method: "POST" as const, cap: "0.03", body: '{"b":22}' },
    pay: (fetch) => wrapFetchWithPayment(fetch, wallet()),
    patience: { wait_ms: 5 },
    ...more,
  });

async function spent(): Promise<bigint> {
  const reader = createPublicClient({ transport: http(chain.rpcUrl) });
  const abi = parseAbi(["function balanceOf(address) view returns (uint256)"]);
  const args = [account.address] as const;
  return 1_000_000n - (await reader.readContract({ address: LOCAL_USDC, abi, functionName: "balanceOf", args }));
}

test("what passed is delivered, charged once and has a receipt of the chain", async () => {
  const bought = await buy();
  expect([bought.outcome, await bought.response.json(), bought.order]).toEqual(["delivered", { sum: 42 }, ORDER]);
  expect(bought.receipt).toMatchObject({ success: true, transaction: via.settlements[0], payer: account.address });
  expect(await spent()).toBe(22_000n);
  expect(via.calls.map(({ url, body }) => [url.split("?")[1], body])).toEqual([
    ["a=20", '{"b":22}'],
    ["a=20", '{"b":22}'],
  ]);
  expect(via.calls.map(({ publish }) => publish)).toEqual([null, null]);
});

test("with the publish flag the header that the check names is sent", async () => {
  await buy({ publish: true });
  expect(via.calls.map(({ publish }) => publish)).toEqual(["true", "true"]);
});

test("what the buyer expects is sent with the price's request and the payment, as ASCII that reads as it was given", async () => {
  const expected = { jsonpath: { path: "$.sum", value: 42 }, regex: "4.", schema: { title: "Süß \u{1f36c}\n" } };
  await buy({ expect: expected });
  const sent = via.calls.map((call) => call.expect!);
  expect(sent.map((text) => JSON.parse(text))).toEqual([expected, expected]);
  for (const text of sent) expect(BuyersExpectation.parse(JSON.parse(text))).toEqual(expected);
  expect(sent.join("")).toMatch(/^[\x20-\x7e]+$/);
});

test.each<[string, AnswerFault[], number, string]>([
  ["the first sending is refused", ["refused"], 0, "not_delivered"],
  ["the service was busy before", ["busy", "refused"], 0, "not_delivered"],
  ["an earlier sending was lost a minute before", ["lost", "refused"], 60_000, "not_delivered"],
  ["an earlier sending was lost just now", ["lost", "refused", "refused"], 0, "BuyUnknown"],
  ["an earlier one met a proxy just now", ["proxy", "refused", "refused"], 0, "BuyUnknown"],
])("a refusal without an order where %s", async (_, faults, laterMs, ended) => {
  via.faults = faults;
  const clock = performance.now.bind(performance);
  let passedMs = 0;
  vi.spyOn(performance, "now").mockImplementation(() => clock() + passedMs);
  via.at = (step) => {
    if (step === "paid" && via.calls.filter(({ paid }) => paid !== null).length > 1) passedMs = laterMs;
  };
  const patience = { wait_ms: 1, sends: 3 };
  const outcome = await buy({ patience })
    .then(({ outcome }) => outcome)
    .catch((error: Error) => error.name);
  vi.mocked(performance.now).mockRestore();
  expect(outcome).toBe(ended);
});

test("what did not pass is not charged", async () => {
  via.passes = false;
  const bought = await buy();
  expect([bought.outcome, bought.response.status, bought.receipt]).toEqual(["not_delivered", 502, null]);
  expect(await spent()).toBe(0n);
});

test.each<[string, AnswerFault[], number]>([
  ["the answer was lost", ["lost"], 2],
  ["the answer broke off", ["cut"], 2],
  ["it was lost three times", ["lost", "lost", "cut"], 4],
  ["the service was busy", ["busy", "busy"], 3],
  ["something in between failed", ["proxy"], 2],
  ["it was lost, and the next request timed out", ["lost", "slow"], 3],
  ["a CDN waited in vain", ["silent"], 2],
  ["it was lost, and another replica refused the next", ["lost", "refused", "refused"], 4],
  ["the outcome was open", ["open"], 2],
  ["everything went wrong", ["busy", "open", "proxy", "slow", "silent", "lost", "cut"], 8],
])("where %s, the same payment is sent again, and charged once", async (_, faults, sends) => {
  via.faults = faults;
  const bought = await buy();
  expect([bought.outcome, await bought.response.json()]).toEqual(["delivered", { sum: 42 }]);
  const paid = via.calls.flatMap((call) => call.paid ?? []);
  expect([paid.length, new Set(paid).size, signed]).toEqual([sends, 1, 1]);
  expect(via.settlements).toHaveLength(1);
  expect(await spent()).toBe(22_000n);
  if (faults.includes("open")) expect(via.polls).toBe(2);
});

const PROBLEM = { "content-type": "application/problem+json" };
const HTML = { "content-type": "text/html" };

describe("what an answer to a payment ends", () => {
  /** Whether the outcome is known after this answer, and which it is; the payment is sent once. */
  async function outcomeAfter(answer: Response): Promise<string> {
    const sent = vi.spyOn(globalThis, "fetch").mockResolvedValueOnce(answer);
    const paid = { url: `${via.url}/v1/via/x`, method: "GET", body: null };
    const headers: [string, string][] = [["payment-signature", "e30="]];
    const ended = await resumeThrough(
      new Service({ base: via.url, now }),
      { ...paid, headers },
      { sends: 1, wait_ms: 1 },
    )
      .then(({ outcome }) => outcome)
      .catch((error: unknown) => (error as Error).name);
    sent.mockRestore();
    return ended;
  }
  const open = "BuyUnknown";

  test.each<[number, Record<string, string>, string]>([
    [402, { "payment-required": "e30=" }, "not_paid"],
    [402, { "content-type": "application/json" }, open],
    [402, HTML, open],
    [403, HTML, open],
    [404, {}, open],
    [408, {}, open],
    [408, PROBLEM, open],
    [409, PROBLEM, "not_delivered"],
    [410, { ...PROBLEM, "touchstone-order": ORDER }, "expired"],
    [413, HTML, open],
    [429, PROBLEM, open],
    [431, {}, open],
    [500, PROBLEM, open],
    [500, { ...PROBLEM, "touchstone-order": ORDER }, open],
    [502, HTML, open],
    [502, PROBLEM, "not_delivered"],
    [503, PROBLEM, open],
    [504, HTML, open],
    [520, HTML, open],
    [524, HTML, open],
    [524, PROBLEM, open],
    [200, HTML, open],
    [200, { "touchstone-order": ORDER, "payment-response": btoa('{"success":true}') }, "delivered"],
    [202, { "touchstone-order": ORDER, "x-payment-response": btoa('{"success":true}') }, "delivered"],
    [202, { "touchstone-order": ORDER }, open],
  ])("a %i with %j: %s", async (status, headers, ended) => {
    expect(await outcomeAfter(new Response("{}", { status, headers }))).toBe(ended);
  });

  test.each(Object.keys(PROBLEMS) as ProblemCode[])("the service's own %s", async (code) => {
    const { status } = PROBLEMS[code];
    const ended =
      status === 429 || status === 500 || status === 503 ? open : status === 410 ? "expired" : "not_delivered";
    expect(await outcomeAfter(problemResponse(new Problem(code, "why"), "/v1/via/x"))).toBe(ended);
  });
});

test("after a 202 an order with an answer of 1 MiB is read to its end", async () => {
  via.faults = ["open"];
  via.answerBytes = 1024 * 1024;
  const bought = await buy();
  expect([bought.outcome, await bought.response.json(), via.polls]).toEqual(["delivered", { sum: 42 }, 2]);
});

test("an order that was charged, and whose answer is not kept any more, is not told as one that was not charged", async () => {
  via.faults = ["lost", "expired"];
  const bought = await buy();
  expect([bought.outcome, bought.response.status, bought.order]).toEqual(["expired", 410, ORDER]);
  expect(await spent()).toBe(22_000n);
});

test("where the outcome stays open, what is needed to ask again is handed out, and pays nothing twice", async () => {
  via.faults = ["open"];
  via.openFor = 1000;
  const error = await buy({ patience: { wait_ms: 5, within_ms: 2_000 } }).catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(BuyUnknown);
  const { order, state, paid } = error as BuyUnknown;
  expect([order, state, via.settlements.length]).toEqual([ORDER, "settle_unknown", 0]);
  via.openFor = 1;
  await fetch(`${via.url}/v1/orders/${ORDER}`);
  const { url, ...init } = paid;
  const again = await fetch(url, init);
  expect([again.status, await again.json(), await spent()]).toEqual([200, { sum: 42 }, 22_000n]);
});

test("a wallet that begins again by itself signs no second payment while the first is open", async () => {
  via.faults = Array(50).fill("lost");
  const stubborn = (below: typeof fetch): typeof fetch => {
    const paying = wrapFetchWithPayment(below, wallet());
    return (input, init) => paying(input, init).catch(() => paying(input, init));
  };
  await expect(buy({ pay: stubborn, patience: { wait_ms: 1, sends: 2 } })).rejects.toThrow(BuyUnknown);
  expect([signed, new Set(via.calls.map(({ paid }) => paid)).size]).toEqual([1, 2]);
});

test("a service that is lost for good is asked a bounded number of times", async () => {
  via.faults = Array(50).fill("lost");
  await expect(buy({ patience: { wait_ms: 1, sends: 5 } })).rejects.toThrow(BuyUnknown);
  expect(via.calls.filter(({ paid }) => paid !== null)).toHaveLength(5);
});

describe("nothing is signed where", () => {
  test("the estimate is over the cap", async () => {
    via.total = "0.030001";
    await expect(buy()).rejects.toMatchObject({ name: "BuyRefused", code: "over_cap" });
    expect(via.calls).toEqual([]);
  });

  test("it is not for sale", async () => {
    via.isForSale = false;
    await expect(buy()).rejects.toMatchObject({ code: "not_offered" });
  });

  test.each(["", "x", "-1", "1,5", "0x10"])("the cap is no money: %s", async (cap) => {
    await expect(buy({ cap })).rejects.toMatchObject({ code: "bad_cap" });
  });

  test.each([
    ["the quote is over the cap, whatever the estimate was", "30001"],
    ["the quote is no amount", "a lot"],
  ])("%s", async (_, amount) => {
    via.amount = amount;
    const bought = await buy();
    expect([bought.outcome, bought.response.status, signed]).toEqual(["not_paid", 403, 0]);
    expect(await bought.response.json()).toMatchObject({ title: "Over the cap" });
  });

  test("the price rises above the cap when the payment comes, and the wallet (mppx) pays a 402 that answers one", async () => {
    via.amount = "12000";
    via.at = (step) => {
      if (step === "paid") via.amount = "30001";
    };
    const methods = [evm.charge({ account, currencies: [evm.assets.baseSepolia.USDC], maxAmount: "1" })];
    const pay = (fetch: typeof globalThis.fetch) => Mppx.create({ fetch, methods, polyfill: false }).fetch;
    const bought = await buy({ pay });
    const signatures = via.calls.flatMap(({ paid }) => (paid === null ? [] : [amountOf(paid)]));
    expect([bought.outcome, bought.response.status, signatures]).toEqual(["not_paid", 403, ["12000"]]);
    expect(await bought.response.json()).toMatchObject({ detail: expect.stringContaining("30001 of") });
    expect(await spent()).toBe(0n);
  });

  test("one of the offers is in another asset", async () => {
    const asset = "0x2222222222222222222222222222222222222222";
    via.extra = [{ ...(await quoted()), asset }];
    expect((await buy()).response.status).toBe(403);
    expect(signed).toBe(0);
  });
});

/** The amount for which a payment of the version 2 is signed. */
const amountOf = (paid: string): string =>
  JSON.parse(Buffer.from(paid, "base64").toString()).payload.authorization.value;

async function quoted(): Promise<PaymentRequirements> {
  const { headers } = await fetch(`${via.url}/v1/via/cap_x`, { method: "POST" });
  return JSON.parse(Buffer.from(headers.get("payment-required")!, "base64").toString()).accepts[0];
}

describe("which way to pay", () => {
  const ESCROW = "0xBdEA0D1bcC5966192B070Fdf62aB4EF5b4420cff";
  const deadline = () => Math.floor(Date.now() / 1000) + 1800;
  const escrow = (exact: PaymentRequirements, more: object = {}): PaymentRequirements => ({
    ...exact,
    scheme: "auth-capture",
    maxTimeoutSeconds: 60,
    extra: {
      ...{ name: "USDC", version: "2", captureAuthorizer: exact.payTo, feeRecipient: exact.payTo },
      ...{ minFeeBps: 0, maxFeeBps: 0, captureMode: "deferred", authCaptureEscrow: ESCROW },
      ...{ captureDeadline: deadline(), refundDeadline: deadline(), ...more },
    },
  });

  /** The scheme of what the official client signs. */
  async function taken(offers: PaymentRequirements[], prefer?: "delivery" | "escrow"): Promise<string> {
    const client = wallet().register("eip155:*", new AuthCaptureEvmScheme(account));
    if (prefer) client.registerPolicy(payBy(prefer));
    const resource = { url: SELLER };
    const payload = await client.createPaymentPayload({ x402Version: 2, resource, accepts: offers } as never);
    return payload.accepted.scheme;
  }

  test.each([undefined, "escrow"])(
    "pay after delivery unless escrow is preferred, wherever it stands (flow %s)",
    async (paymentFlow) => {
      const exact = await quoted();
      for (const offers of [
        [exact, escrow(exact, { paymentFlow })],
        [escrow(exact, { paymentFlow }), exact],
      ]) {
        expect(await taken(offers, "delivery")).toBe("exact");
        expect(await taken(offers, "escrow")).toBe("auth-capture");
      }
      expect(await taken([exact, escrow(exact, { paymentFlow })])).toBe("exact");
      expect(await taken([exact], "escrow")).toBe("exact");
    },
  );

  test.each([
    ["another contract holds the money", { authCaptureEscrow: "0x2222222222222222222222222222222222222222" }],
    ["no contract is named", { authCaptureEscrow: undefined }],
    ["it is held for a day", { captureDeadline: deadline() + 86_400, refundDeadline: deadline() + 86_400 }],
    ["it is held since yesterday", { captureDeadline: deadline() - 86_400 }],
    ["no deadline is named", { captureDeadline: undefined }],
  ])("an escrow is not taken where %s", async (_, more) => {
    const exact = await quoted();
    expect(await taken([escrow(exact, more), exact], "escrow")).toBe("exact");
    await expect(taken([escrow(exact, more)], "escrow")).rejects.toThrow("filtered out by policies");
  });
});
