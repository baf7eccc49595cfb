import { decodePaymentResponseHeader, encodePaymentSignatureHeader } from "@x402/core/http";
import type { PaymentPayload, PaymentRequired } from "@x402/core/types";
import { wrapFetchWithPayment } from "@x402/fetch";
import type { Hex } from "viem";
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from "vitest";
import { ESCROW } from "../../../infra/rails/escrow-terms.ts";
import { createEvmRail } from "../../../infra/rails/evm.ts";
import type { Rail } from "../../../infra/rails/rails.ts";
import { createReader } from "../../../infra/rails/rpc.ts";
import { booksOf, findDifferences } from "../../../pipelines/orders/ledger.ts";
import { buyThrough, payBy, Service } from "../../../serving/client/index.ts";
import type { OrderShown } from "../../../serving/schemas/orders.ts";
import { marketBeside, officialBuyer, type Replica, sellingOver } from "../../helpers/buying.ts";
import { ORDER_CAPS } from "../../helpers/caps.ts";
import { dearSeller } from "../../helpers/dear-seller.ts";
import { capOf, NOW, ORIGIN } from "../../helpers/public-record.ts";

let world: Awaited<ReturnType<typeof marketBeside>>;
let seller: Awaited<ReturnType<typeof dearSeller>>;
let service: Replica;
let rail: Rail;
type Spec = ReturnType<typeof seller.spec>;
let specs: Record<"good" | "thief" | "broken" | "cheap" | "least" | "most" | "over", Spec>;

const viaOf = (spec: Spec, query = "a=20&b=22") => `${service.url}/v1/via/${capOf(spec)}?${query}`;
const orderOf = async (answer: Response): Promise<OrderShown> =>
  (await (await fetch(`${service.url}/v1/orders/${answer.headers.get("touchstone-order")}`)).json()) as OrderShown;
async function termsOf(spec: Spec): Promise<PaymentRequired> {
  const answer = await fetch(viaOf(spec));
  expect(answer.status).toBe(402);
  return JSON.parse(Buffer.from(answer.headers.get("payment-required")!, "base64").toString("utf8"));
}
const kept = ({ order_id }: OrderShown) => service.sales.buying.orders.table.get(order_id)!;
const walletOf = (order: OrderShown) => kept(order).legs[0]!.wallet;
async function blockOf(hash: string): Promise<number> {
  const { blockNumber } = await createReader(world.rpcUrl).getTransactionReceipt({ hash: hash as Hex });
  return Number(blockNumber);
}
const buyerByEscrow = () => officialBuyer(world, payBy("escrow"));

beforeAll(async () => {
  world = await marketBeside();
  seller = await dearSeller(world);
  specs = {
    good: seller.spec(46_000, "honest", "good"),
    thief: seller.spec(46_000, "thief", "thief"),
    broken: seller.spec(46_000, "broken", "broken"),
    cheap: seller.spec(45_453, "honest", "cheap"),
    least: seller.spec(45_454, "honest", "least"),
    most: seller.spec(909_090, "honest", "most"),
    over: seller.spec(909_091, "honest", "over"),
  };
  service = await sellingOver(world, Object.values(specs), {
    money: () => ({ caps: { ...ORDER_CAPS, wastedPerPayerDay: 3n } }),
  });
  const { rpcUrl, asset, chainId } = world;
  rail = createEvmRail({ rpcUrl, asset, network: `eip155:${chainId}`, confirmations: 1 });
});
afterEach(() => vi.unstubAllGlobals());
afterAll(async () => {
  await service?.close();
  await seller?.close();
  await world?.close();
});

describe("the offer", () => {
  test.each([
    ["cheap", "49999", ["exact"]],
    ["least", "50000", ["exact", "auth-capture"]],
    ["most", "999999", ["exact", "auth-capture"]],
    ["over", "1000001", ["exact"]],
  ] as const)("%s, %s in all: %o", async (name, amount, schemes) => {
    const { accepts } = await termsOf(specs[name]);
    expect(accepts.map((offer) => [offer.scheme, offer.amount])).toEqual(schemes.map((scheme) => [scheme, amount]));
  });

  test("is of version 2 only, for the address of the other offer, and for half an hour from now", async () => {
    const answer = await fetch(viaOf(specs.good));
    const { accepts } = (await answer.json()) as { accepts: { scheme: string }[] };
    expect(accepts.map(({ scheme }) => scheme)).toEqual(["exact"]);
    const held = (await termsOf(specs.good)).accepts[1]!;
    const { extra } = held as { extra: Record<string, number | string> };
    expect(held.payTo.toLowerCase()).toBe(service.till);
    expect(Number(extra.captureDeadline) - Date.now() / 1000).toBeGreaterThan(1_700);
    expect(Number(extra.captureDeadline) - Date.now() / 1000).toBeLessThanOrEqual(1_800);
    expect(extra.authCaptureEscrow).toBe(ESCROW);
  });
});

test("bought in escrow: held before the seller is paid, captured after it passed, and charged once", async () => {
  const buyer = await buyerByEscrow();
  const [before, ours, inEscrow] = await Promise.all(
    [buyer.address, service.till, ESCROW].map(async (one) => (await rail.balance(one)).value),
  );
  const answer = await buyer.fetch(viaOf(specs.good));
  expect([answer.status, await answer.json()]).toEqual([200, { sum: 42 }]);
  const settled = decodePaymentResponseHeader(answer.headers.get("payment-response")!);
  expect(settled).toMatchObject({ success: true, payer: buyer.address, network: "eip155:84532" });
  expect(before! - (await rail.balance(buyer.address)).value).toBe(50_600n);
  expect((await rail.balance(service.till)).value - ours!).toBe(50_600n);
  expect((await rail.balance(ESCROW)).value).toBe(inEscrow);
  const order = await orderOf(answer);
  expect(order).toMatchObject({ state: "settled", scheme: "auth-capture", total: "0.050600" });
  expect(order.charged).toEqual({ tx: settled.transaction, amount: "0.050600" });

  const [leg] = order.legs;
  const paid = (await rail.transfers({ from: walletOf(order), to: leg!.pay_to, sinceBlock: 0 })).value;
  expect(paid).toHaveLength(1);
  const [held, captured] = await Promise.all([order.hold!.tx, order.charged!.tx].map(blockOf));
  expect(held).toBeLessThan(paid[0]!.blockNumber);
  expect(paid[0]!.blockNumber).toBeLessThan(captured!);
});

test("the thief: what was held is back with its buyer", async () => {
  const buyer = await buyerByEscrow();
  const [before, inEscrow] = await Promise.all(
    [buyer.address, ESCROW].map(async (one) => (await rail.balance(one)).value),
  );
  const answer = await buyer.fetch(viaOf(specs.thief));
  expect(answer.status).toBe(502);
  expect(await answer.json()).toMatchObject({ type: "/docs/api#seller-failed" });
  expect((await rail.balance(buyer.address)).value).toBe(before);
  expect((await rail.balance(ESCROW)).value).toBe(inEscrow);
  const order = await orderOf(answer);
  expect(order).toMatchObject({ state: "voided", scheme: "auth-capture", charged: null, answer: null });
  expect(order.hold!.tx).toMatch(/^0x[0-9a-f]{64}$/);
  expect(order.hold!.capture_deadline).toBeGreaterThan(Date.now() / 1000 + 1_700);
});

describe("an execution", () => {
  const asking = (...candidates: Spec[]): RequestInit => {
    const body = { capability_ids: candidates.map((one) => capOf(one)), max_total: "0.06" };
    return { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  };
  const EXECUTE = "/v1/route/execute";

  test("is held once, over its fallback, and captured once", async () => {
    const buyer = await buyerByEscrow();
    const [before, inEscrow] = await Promise.all(
      [buyer.address, ESCROW].map(async (address) => (await rail.balance(address)).value),
    );
    const answer = await buyer.fetch(service.url + EXECUTE, asking(specs.broken, specs.good));
    expect([answer.status, await answer.json()]).toEqual([200, { sum: 42 }]);
    expect(before! - (await rail.balance(buyer.address)).value).toBe(50_600n);
    expect((await rail.balance(ESCROW)).value).toBe(inEscrow);
    const order = await orderOf(answer);
    expect(order).toMatchObject({ state: "settled", operation: "execute", scheme: "auth-capture", total: "0.050600" });
    expect(order.legs.map(({ passed }) => passed)).toEqual([false, true]);
    expect(kept(order).legs[0]!.fate).toBe("unpaid");
  });

  test("that came to nothing gives back what was held, and its last payment is dead", async () => {
    const buyer = await buyerByEscrow();
    const [before, inEscrow] = await Promise.all(
      [buyer.address, ESCROW].map(async (address) => (await rail.balance(address)).value),
    );
    const answer = await buyer.fetch(service.url + EXECUTE, asking(specs.broken));
    expect(answer.status).toBe(502);
    expect([(await rail.balance(buyer.address)).value, (await rail.balance(ESCROW)).value]).toEqual([before, inEscrow]);
    const order = await orderOf(answer);
    expect(order).toMatchObject({ state: "voided", scheme: "auth-capture", charged: null });
    await expect.poll(() => kept(order).legs[0]!.fate).toBe("unpaid");
    // The payment to the seller is cancelled behind the answer, before or after the order was asked for.
    expect(order.gas.map(({ kind }) => kind).slice(0, 2)).toEqual(["hold", "void"]);
    expect(kept(order).gas.map(({ kind }) => kind)).toEqual(["hold", "void", "cancel"]);
    // Three transactions for nothing are what a wallet may have of this service in a day.
    const more = await buyer.fetch(viaOf(specs.good));
    const { detail } = (await more.json()) as { detail: string };
    expect([more.status, detail]).toEqual([402, expect.stringContaining("nothing more is held for this wallet today")]);
  });
});

test("a client that is offered both pays after delivery, unless it is told otherwise", async () => {
  const buyer = await officialBuyer(world);
  const order = await orderOf(await buyer.fetch(viaOf(specs.good)));
  expect(order).toMatchObject({ state: "settled", scheme: "exact", hold: null });
});

test("the client library buys in escrow with its policy", async () => {
  const buyer = await buyerByEscrow();
  // The check answer names the service by its public name.
  const named = fetch;
  vi.stubGlobal("fetch", (asked: Request | string, init?: RequestInit) =>
    named(String(asked instanceof Request ? asked.url : asked).replace(`https://${ORIGIN}`, service.url), init),
  );
  const bought = await buyThrough(new Service({ base: service.url, now: () => Date.parse(NOW) }), {
    ...{ url: `${specs.good.url}?a=20&b=22`, cap: "0.06", pay: (below) => wrapFetchWithPayment(below, buyer.client) },
  });
  expect([bought.outcome, await bought.response.json()]).toEqual(["delivered", { sum: 42 }]);
  expect(await orderOf(bought.response)).toMatchObject({
    scheme: "auth-capture",
    charged: { tx: bought.receipt!.transaction },
  });
});

describe("a payment", () => {
  /** What the official client would send for these terms. */
  async function paymentFor(spec: Spec): Promise<PaymentPayload> {
    const buyer = await buyerByEscrow();
    return buyer.client.createPaymentPayload(await termsOf(spec));
  }
  const send = (spec: Spec, payment: PaymentPayload, query?: string) =>
    fetch(viaOf(spec, query), { headers: { "payment-signature": encodePaymentSignatureHeader(payment) } });
  const errorOf = async (answer: Response) => {
    const header = answer.headers.get("payment-required");
    return header && JSON.parse(Buffer.from(header, "base64").toString("utf8")).error;
  };

  test("that comes twice is one order and one answer, and for another request it is refused", async () => {
    const payment = await paymentFor(specs.good);
    const paid = seller.paid.length;
    const [one, two] = await Promise.all([send(specs.good, payment), send(specs.good, payment)]);
    expect([one.status, two.status]).toEqual([200, 200]);
    expect(two.headers.get("touchstone-order")).toBe(one.headers.get("touchstone-order"));
    expect(seller.paid.length).toBe(paid + 1);
    expect((await send(specs.good, payment, "a=1&b=1")).status).toBe(409);
  });

  test("of money that is spent twice at once buys once: one is held, and for the other no seller is paid", async () => {
    const buyer = await officialBuyer(world, payBy("escrow"), 60_000n);
    const terms = await termsOf(specs.good);
    const payments = await Promise.all([1, 2].map(() => buyer.client.createPaymentPayload(terms)));
    const paid = seller.paid.length;
    const answers = await Promise.all(payments.map((payment) => send(specs.good, payment)));
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 402]);
    expect(seller.paid.length).toBe(paid + 1);
    expect((await rail.balance(buyer.address)).value).toBe(9_400n);
    const states = service.sales.buying.orders.table.ofPayer(buyer.address).map(({ state }) => state);
    expect(states.filter((state) => state !== "hold_failed")).toEqual(["settled"]);
  });

  test("into an escrow for what is not offered in one is refused, and nothing is bought", async () => {
    const payment = await paymentFor(specs.good);
    const paid = seller.paid.length;
    const answer = await send(specs.cheap, payment);
    expect([answer.status, await errorOf(answer)]).toEqual([402, "unsupported_scheme"]);
    expect(seller.paid.length).toBe(paid);
  });

  test("whose deadlines are not those that were signed is refused", async () => {
    const payment = await paymentFor(specs.good);
    Object.assign(payment.accepted.extra, { captureDeadline: Number(payment.accepted.extra.captureDeadline) - 1 });
    const answer = await send(specs.good, payment);
    const error = "invalid_auth_capture_evm_nonce_mismatch";
    expect([answer.status, await errorOf(answer)]).toEqual([402, error]);
  });

  test("that would be held for longer than we offer is refused, though it is signed", async () => {
    const { client } = await officialBuyer(world);
    const { accepts, ...terms } = await termsOf(specs.good);
    const offer = structuredClone(accepts[1]!);
    for (const name of ["captureDeadline", "refundDeadline"]) offer.extra[name] = Number(offer.extra[name]) + 60;
    const answer = await send(specs.good, await client.createPaymentPayload({ ...terms, accepts: [offer] }));
    const error = "invalid_auth_capture_evm_extra";
    expect([answer.status, await errorOf(answer)]).toEqual([402, error]);
  });

  test.each<[string, (payment: PaymentPayload) => void]>([
    ["salt", (payment) => void delete payment.payload.salt],
    ["deadlines", (payment) => void delete payment.accepted.extra.captureDeadline],
  ])("without its %s is no payment", async (_, change) => {
    const payment = await paymentFor(specs.good);
    change(payment);
    const answer = await send(specs.good, payment);
    expect([answer.status, ((await answer.json()) as { type: string }).type]).toEqual([400, "/docs/api#bad-payment"]);
  });
});

test("the books of all that are on the chain: what was captured, not what was held", async () => {
  await service.recovering.look();
  const [books] = booksOf(service.sales.buying.orders.table.all());
  expect(books!.movements.filter(({ what }) => what === "charge").length).toBeGreaterThan(0);
  expect(await findDifferences(books!.movements, rail)).toEqual([]);
});
