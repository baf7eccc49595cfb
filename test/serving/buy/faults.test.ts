import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { encodePaymentRequiredHeader, encodePaymentSignatureHeader } from "@x402/core/http";
import { getAddress, type Hex } from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { ledgerOf } from "../../../commands/ledger.ts";
import { loadConfig } from "../../../infra/config.ts";
import { createAuthorizations, TRANSFER_TYPES } from "../../../infra/rails/authorization.ts";
import { createEvmRail } from "../../../infra/rails/evm.ts";
import type { Rail } from "../../../infra/rails/rails.ts";
import { createReader } from "../../../infra/rails/rpc.ts";
import { createSender } from "../../../infra/rails/sender.ts";
import { tokenOnChain } from "../../../infra/rails/settlement.ts";
import type { Till } from "../../../infra/rails/till.ts";
import { createLocalWallets, giveLocalGas } from "../../../infra/rails/wallets.ts";
import type { OrderShown } from "../../../serving/schemas/orders.ts";
import { marketBeside, type Replica, sellingOver } from "../../helpers/buying.ts";
import { capOf } from "../../helpers/public-record.ts";

const NETWORK = "eip155:84532";
const PRICE = "0.010000";
const TOTAL = 12_000n;
/** What a seller does with a payment; it takes none of them. */
const ODD: Record<string, (answer: ServerResponse) => void> = {
  again: (answer) => answer.writeHead(402, terms("0x00000000000000000000000000000000000000a1", "90000")).end("{}"),
  redirects: (answer) => answer.writeHead(302, { location: "http://169.254.169.254/" }).end(),
  streams: (answer) => {
    answer.writeHead(200, { "content-type": "application/json" });
    const pour = (): void => {
      while (!answer.destroyed && answer.write("1".repeat(65_536)));
    };
    answer.on("drain", pour).on("error", () => {});
    pour();
  },
  large: (answer) => answer.writeHead(200, { "content-type": "application/json" }).end(`"${"1".repeat(2_000_000)}"`),
  breaks: (answer) => answer.writeHead(200, { "content-length": "99" }).write("{", () => answer.destroy()),
};
const NAMES = Object.keys(ODD);
/** One more, for the order that somebody else's settlement comes to. */
ODD.fails = (answer) => answer.writeHead(500).end("{}");
const SOLD = Object.keys(ODD);
const payToOf = (name: string): string => `0x00000000000000000000000000000000000000b${SOLD.indexOf(name)}`;

let world: Awaited<ReturnType<typeof marketBeside>>;
let service: Replica;
let rail: Rail;
let seller: Server;
let odd: string;
let dir: string;
/** What a buyer was told whose nonce was spent. */
let spent: Response;
/** What the facilitator does once, in place of a settlement. */
let instead: ((settle: () => ReturnType<Till["settle"]>) => ReturnType<Till["settle"]>) | null = null;

const terms = (payTo: string, amount: string) => ({
  "payment-required": encodePaymentRequiredHeader({
    x402Version: 2,
    error: "pay",
    resource: { url: odd, description: "odd", mimeType: "application/json" },
    accepts: [offer(payTo, amount)],
  }),
});
const offer = (payTo: string, amount: string) => ({
  ...{ scheme: "exact", network: NETWORK as `eip155:${number}`, asset: world.asset, amount, payTo },
  ...{ maxTimeoutSeconds: 60, extra: { name: "USDC", version: "2" } },
});

const honest = () => world.sellers.find(({ name }) => name === "honest-v2")!;
const viaOf = (url: string, query = "") => `${service.url}/v1/via/${capOf({ url })}${query}`;
const SUM = "?a=20&b=22";

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "faults-"));
  world = await marketBeside();
  seller = createServer((request, answer) => {
    const name = new URL(request.url!, "http://odd").pathname.slice(1);
    if (request.headers["payment-signature"]) ODD[name]!(answer);
    else answer.writeHead(402, terms(payToOf(name), "10000")).end("{}");
  });
  await new Promise<void>((resolve) => seller.listen(0, "127.0.0.1", resolve));
  odd = `http://127.0.0.1:${(seller.address() as AddressInfo).port}`;
  const specs = SOLD.map((name) => ({ url: `${odd}/${name}`, payTo: payToOf(name), price: PRICE }));
  const { urls, payTo } = honest();
  service = await sellingOver(world, [...specs, { url: urls[0]!, payTo, price: PRICE }], {
    dir,
    money: ({ charger }) => ({
      lookMs: 200,
      charger: {
        ...charger,
        settle: (payment, requirements) => {
          const settle = () => charger.settle(payment, requirements);
          const act = instead ?? ((one) => one());
          instead = null;
          return act(settle);
        },
      },
    }),
  });
  const { rpcUrl, asset } = world;
  rail = createEvmRail({ rpcUrl, asset, network: NETWORK, confirmations: 1 });
});
afterAll(async () => {
  await service?.close();
  seller?.closeAllConnections();
  seller?.close();
  await world?.close();
  await rm(dir, { recursive: true, force: true });
});

interface Change {
  to?: string;
  value?: bigint;
  holdsS?: number;
  network?: string;
  forged?: boolean;
}

/** A wallet with money, and its signature under transfers of one nonce. */
async function buyer() {
  const seed = Buffer.from(generatePrivateKey().slice(2), "hex");
  const wallets = createLocalWallets({ rpcUrl: world.rpcUrl, seed, asset: world.asset });
  const account = privateKeyToAccount((await wallets.known()).privateKey as Hex);
  const nonce = generatePrivateKey();
  const signed = async ({ to = service.till, value = TOTAL, holdsS = 240, forged = false }: Change = {}) => {
    const validBefore = Math.floor(Date.now() / 1000) + holdsS;
    const from = account.address;
    const signature = await (forged ? privateKeyToAccount(generatePrivateKey()) : account).signTypedData({
      domain: { name: "USDC", version: "2", chainId: 84532, verifyingContract: getAddress(world.asset) },
      types: TRANSFER_TYPES,
      primaryType: "TransferWithAuthorization",
      message: { from, to: getAddress(to), value, validAfter: 0n, validBefore: BigInt(validBefore), nonce },
    });
    const text = { value: value.toString(), validAfter: "0", validBefore: String(validBefore) };
    return { signature, authorization: { from, to: getAddress(to), ...text, nonce } };
  };
  const headersOf = async (change: Change = {}) => {
    const accepted = { ...offer(service.till, TOTAL.toString()), ...(change.network && { network: change.network }) };
    const payload = { x402Version: 2, accepted, payload: await signed(change) };
    return { "payment-signature": encodePaymentSignatureHeader(payload as never) };
  };
  const address = account.address.toLowerCase();
  return { address, signed, headersOf, had: (await rail.balance(address)).value };
}

const problemOf = async (answer: Response) => (await answer.json()) as { type: string; detail: string };
const orderOf = async (answer: Response): Promise<OrderShown> =>
  (await (await fetch(`${service.url}/v1/orders/${answer.headers.get("touchstone-order")}`)).json()) as OrderShown;

/** Somebody's transfer, sent by whoever pays the gas. */
async function submit(transfer: Awaited<ReturnType<Awaited<ReturnType<typeof buyer>>["signed"]>>) {
  const reader = createReader(world.rpcUrl);
  const key = generatePrivateKey();
  await giveLocalGas(world.rpcUrl, privateKeyToAccount(key).address);
  const money = tokenOnChain({ rpcUrl: world.rpcUrl, network: NETWORK, asset: world.asset, confirmations: 1 });
  return createAuthorizations(money, createSender(reader, 84532, key)).submitTransfer(transfer);
}

test.each(NAMES)("a seller that %s when it is paid: its buyer is told so and keeps its money", async (name) => {
  const { address, headersOf, had } = await buyer();
  const answer = await fetch(viaOf(`${odd}/${name}`), { headers: await headersOf() });
  expect(answer.status).toBe(502);
  expect(await problemOf(answer)).toMatchObject({ type: "/docs/api#seller-failed" });
  expect(await orderOf(answer)).toMatchObject({ state: "released", charged: null, answer: null });
  expect((await rail.balance(address)).value).toBe(had);
  expect((await rail.balance(payToOf(name))).value).toBe(0n);
});

const EXACT = "invalid_exact_evm_payload";
test.each<[string, Change, string, RegExp]>([
  ["of less", { value: TOTAL - 1n }, `${EXACT}_authorization_value`, /the price is 0\.012000/],
  [
    "to another address",
    { to: "0x00000000000000000000000000000000000000c1" },
    `${EXACT}_recipient_mismatch`,
    /another address/,
  ],
  [
    "that has expired",
    { holdsS: -10 },
    `${EXACT}_authorization_valid_before`,
    /must hold.* your clock is 25\d s behind/,
  ],
  [
    "that holds for ever",
    { holdsS: 10 ** 9 },
    `${EXACT}_authorization_valid_before`,
    /at most 3600 s.* Our clock says 20\d\d-/,
  ],
  ["on another network", { network: "eip155:8453" }, "invalid_network", /not on eip155:84532/],
  ["that somebody else signed", { forged: true }, `${EXACT}_signature`, /not valid/],
])("a payment %s buys nothing: the terms again, with the specification's code", async (_, change, code, says) => {
  const { headersOf } = await buyer();
  const answer = await fetch(viaOf(honest().urls[0]!, SUM), { headers: await headersOf(change) });
  expect(answer.status).toBe(402);
  expect((await problemOf(answer)) as unknown as { error: string }).toMatchObject({
    error: code,
    detail: expect.stringMatching(says),
  });
  const required = JSON.parse(Buffer.from(answer.headers.get("payment-required")!, "base64").toString());
  expect([required.error, required.resource.url]).toEqual([
    code,
    expect.stringContaining(`?${new URLSearchParams(SUM)}`),
  ]);
  expect(answer.headers.get("touchstone-order")).toBe(null);
});

test("an order that is refused before a seller is paid: a 402 that offers nothing, and the same for the same payment", async () => {
  const { headersOf, address, had } = await buyer();
  const headers = await headersOf();
  const balance = vi.spyOn(service.sales.seller.rail, "balance");
  // Between the check of the payment and that of all its orders the wallet was emptied.
  balance.mockImplementation(async () => ({ value: 0n, block: 1 }) as never);
  const first = await fetch(viaOf(honest().urls[0]!, SUM), { headers });
  balance.mockRestore();
  const again = await fetch(viaOf(honest().urls[0]!, SUM), { headers });
  const said = async (answer: Response) => ({
    status: answer.status,
    terms: JSON.parse(Buffer.from(answer.headers.get("payment-required")!, "base64").toString("utf8")),
  });
  const refused = { status: 402, terms: { accepts: [], error: expect.stringMatching(/^The wallet holds less/) } };
  expect(await said(again)).toMatchObject(refused);
  expect(await said(first)).toMatchObject({
    status: 402,
    terms: { error: expect.stringMatching(/^The wallet holds/) },
  });
  expect(await orderOf(again)).toMatchObject({ state: "released", charged: null, legs: [{ money: "unpaid" }] });
  expect((await rail.balance(address)).value).toBe(had);
});

test("a payment that is garbage is named as one", async () => {
  const answer = await fetch(viaOf(honest().urls[0]!, SUM), { headers: { "payment-signature": "%%%" } });
  expect(answer.status).toBe(400);
  expect(await problemOf(answer)).toMatchObject({ type: "/docs/api#bad-payment" });
});

test("one payment in five requests at once is one order, one charge, the same bytes", async () => {
  const { address, headersOf, had } = await buyer();
  const headers = await headersOf();
  const answers = await Promise.all(Array.from({ length: 5 }, () => fetch(viaOf(honest().urls[0]!, SUM), { headers })));
  expect(answers.map(({ status }) => status)).toEqual([200, 200, 200, 200, 200]);
  expect(new Set(answers.map((one) => one.headers.get("touchstone-order"))).size).toBe(1);
  expect(new Set(await Promise.all(answers.map((one) => one.text()))).size).toBe(1);
  expect(had - (await rail.balance(address)).value).toBe(TOTAL);
  const other = await fetch(viaOf(honest().urls[0]!, "?a=1&b=1"), { headers });
  expect([other.status, (await problemOf(other)).type]).toEqual([409, "/docs/api#payment-used"]);
});

test("a facilitator that settles and says nothing: the chain says it, and the charge is one", async () => {
  const { address, headersOf, had } = await buyer();
  const headers = await headersOf();
  instead = async (settle) => {
    await settle();
    return { outcome: "unknown", says: "timeout" };
  };
  const first = await fetch(viaOf(honest().urls[0]!, SUM), { headers });
  expect(first.status).toBe(200);
  const again = await fetch(viaOf(honest().urls[0]!, SUM), { headers });
  expect(await again.text()).toBe(await first.text());
  expect(had - (await rail.balance(address)).value).toBe(TOTAL);
});

test("a facilitator that does nothing and does not say so: 202, never a second 402, the same order", async () => {
  const { address, headersOf, had } = await buyer();
  const headers = await headersOf();
  instead = async () => ({ outcome: "unknown", says: "timeout" });
  const first = await fetch(viaOf(honest().urls[0]!, SUM), { headers });
  expect(first.status).toBe(202);
  await expect.poll(async () => (await orderOf(first)).state).toBe("settled");
  const again = await fetch(viaOf(honest().urls[0]!, SUM), { headers });
  expect([again.status, again.headers.get("touchstone-order")]).toEqual([200, first.headers.get("touchstone-order")]);
  expect(had - (await rail.balance(address)).value).toBe(TOTAL);
});

test("a buyer that hangs up is charged for what passed, and has it with the same payment", async () => {
  const { address, headersOf, had } = await buyer();
  const headers = await headersOf();
  const gone = new AbortController();
  instead = async (settle) => {
    gone.abort();
    return settle();
  };
  await expect(fetch(viaOf(honest().urls[0]!, SUM), { headers, signal: gone.signal })).rejects.toThrow();
  const answer = await fetch(viaOf(honest().urls[0]!, SUM), { headers });
  expect([answer.status, await answer.json()]).toMatchObject([200, { sum: 42 }]);
  expect(had - (await rail.balance(address)).value).toBe(TOTAL);
});

test("a buyer that spends its nonce on itself before it is charged gets no answer", async () => {
  const { address, headersOf, signed, had } = await buyer();
  const headers = await headersOf();
  const elsewhere = await signed({ to: "0x00000000000000000000000000000000000000c2", value: 1n });
  instead = async (settle) => {
    expect((await submit(elsewhere)).outcome).toBe("sent");
    return settle();
  };
  const answer = await fetch(viaOf(honest().urls[0]!, SUM), { headers });
  expect(answer.status).toBe(202);
  expect(await orderOf(answer)).toMatchObject({ state: "settle_unknown", charged: null, answer: null });
  expect(had - (await rail.balance(address)).value).toBe(1n);
  spent = answer;
});

test("once payments have run out: one taken for nothing is sent back, one never collected given up", async () => {
  const { address, headersOf, signed, had } = await buyer();
  const answer = await fetch(viaOf(`${odd}/fails`), { headers: await headersOf() });
  expect((await orderOf(answer)).state).toBe("released");
  expect((await submit(await signed())).outcome).toBe("sent");
  expect((await rail.balance(address)).value).toBe(had - TOTAL);
  for (const [method, params] of [
    ["evm_increaseTime", [310]],
    ["evm_mine", []],
  ]) {
    const body = JSON.stringify({ jsonrpc: "2.0", id: 1, method, params });
    await fetch(world.rpcUrl, { method: "POST", headers: { "content-type": "application/json" }, body });
  }
  await expect.poll(async () => (await orderOf(answer)).state).toBe("refunded");
  expect((await rail.balance(address)).value).toBe(had);
  await expect.poll(async () => (await orderOf(spent)).state).toBe("written_off");
  expect((await orderOf(spent)).answer).toBe(null);
});

test("the books of all that sum to zero and are on the chain", async () => {
  const config = loadConfig(undefined, { TOUCHSTONE_DATA_DIR: dir, TOUCHSTONE_LOG_PARTITIONS: "2" });
  await service.recovering.look();
  const { assets } = await ledgerOf(config, world.rpcUrl);
  expect(assets).toMatchObject([{ network: NETWORK, sum: "0.000000", differences: [] }]);
  const { accounts, wallets } = assets[0]!;
  expect(accounts).toMatchObject({ till: "0.048000", sales: "-0.048000", "refunds due": "0.000000" });
  expect(wallets[service.till]).toEqual({ cash: "till", books: "0.048000", holds: "0.048000" });
});
