import { generatePrivateKey, privateKeyToAddress } from "viem/accounts";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { loadConfig } from "../../../infra/config.ts";
import { checkNetwork } from "../../../infra/rails/network-checks.ts";
import { configuredNetworks, type Network, railOn } from "../../../infra/rails/networks.ts";
import type { PayableEntry, PaymentChallenge, Rail, Wallet } from "../../../infra/rails/rails.ts";
import { type TempoNode, tempoNode, tempoSeller } from "../../helpers/tempo.ts";
import { readTerms } from "../../pipelines/1-observe/readings.ts";

/** mpp `tempo/charge` over a local Tempo node: mpp's own server sells, the chain says what was paid. */
const PAY_TO = "0x00000000000000000000000000000000000000b2";
/** A wallet with money. */
async function payer(funds = 1_000_000n): Promise<Wallet> {
  const privateKey = generatePrivateKey();
  const address = privateKeyToAddress(privateKey).toLowerCase();
  if (funds > 0n) await node.fund(address, funds);
  return { address, privateKey };
}

let node: TempoNode;
let seller: Awaited<ReturnType<typeof tempoSeller>>;
let network: Network;
let rail: Rail;
beforeAll(async () => {
  node = await tempoNode();
  seller = await tempoSeller(node, { amount: "10000", payTo: PAY_TO });
  const networks = JSON.stringify([{ id: node.network, rpc_urls: [node.rpcUrl] }]);
  [network] = configuredNetworks(loadConfig(undefined, { TOUCHSTONE_NETWORKS: networks })) as [Network];
  rail = railOn([network]);
});
afterAll(async () => {
  await seller?.close();
  await node?.stop();
});

/** What the seller's own 402 asks, as the observer reads it. */
async function asked(): Promise<PayableEntry> {
  const answer = await fetch(seller.url);
  expect(answer.status).toBe(402);
  const headers = Object.fromEntries(answer.headers);
  const read = readTerms({ headers, body: Buffer.from(await answer.text()) }, rail);
  expect(read).toMatchObject({ readable: true, price: "0.010000" });
  return read.payable!;
}

const pay = (headerValue: string) => fetch(seller.url, { headers: { authorization: headerValue } });

test("the network is what the settings say, by its id alone", async () => {
  expect(network).toMatchObject({
    confirmations: 1,
    assets: [{ symbol: "pathUSD", address: node.asset, decimals: 6 }],
  });
  expect((await checkNetwork(network)).every(({ standing }) => standing === "ok")).toBe(true);
});

test("paid once: the seller takes it, and the chain's own event of this payment says to whom and how much", async () => {
  const [entry, wallet] = [await asked(), await payer()];
  const { number: sinceBlock } = await rail.head();
  const before = (await rail.balance(PAY_TO)).value;
  const signed = await rail.sign(entry, wallet, {});
  expect(signed).toMatchObject({ headerName: "AUTHORIZATION", from: wallet.address, amountAtomic: 10_000n });
  expect(signed.validBefore).toBeLessThanOrEqual(Date.now() / 1000 + 30);
  const query = { from: wallet.address, nonce: signed.nonce, sinceBlock };
  expect((await rail.settlementOf(query)).value).toBeNull();
  expect((await pay(signed.headerValue)).status).toBe(200);
  const seen = (await rail.settlementOf(query)).value;
  expect(seen).toMatchObject({
    ...{ from: wallet.address, to: PAY_TO, amountAtomic: 10_000n, final: true },
    ...{ network: node.network, asset: node.asset, tx: expect.stringMatching(/^0x[0-9a-f]{64}$/) },
  });
  expect((await rail.balance(PAY_TO)).value).toBe(before + 10_000n);
  // Shown again it is the same payment, and moves nothing.
  expect((await pay(signed.headerValue)).status).toBe(402);
  expect((await rail.balance(PAY_TO)).value).toBe(before + 10_000n);
  expect((await rail.transfers({ from: wallet.address, to: PAY_TO, sinceBlock })).value).toHaveLength(1);
  const another = { ...query, nonce: `0x${"9".repeat(64)}` };
  expect((await rail.settlementOf(another)).value).toBeNull();
});

test("a wallet pays again at once: its payments do not wait for each other", async () => {
  const wallet = await payer();
  for (let n = 0; n < 3; n++) {
    const signed = await rail.sign(await asked(), wallet, {});
    expect([n, (await pay(signed.headerValue)).status]).toEqual([n, 200]);
  }
});

test("a challenge that is repeated is signed once, after a restart too", async () => {
  const [entry, wallet] = [await asked(), await payer()];
  const signed = await rail.sign(entry, wallet, {});
  await expect(rail.sign(entry, wallet, {})).rejects.toMatchObject({ name: "CannotSign" });
  expect((await pay(signed.headerValue)).status).toBe(200);
  await expect(railOn([network]).sign(entry, wallet, {})).rejects.toMatchObject({ name: "CannotSign" });
});

test("a challenge that is about to end, and a wallet without money, are not signed", async () => {
  const entry = await asked();
  const late = { ...entry, challenge: { ...entry.challenge!, expires: new Date(Date.now() + 5_000).toISOString() } };
  await expect(rail.sign(late, await payer(), {})).rejects.toMatchObject({ name: "CannotSign" });
  // The price itself is not enough: the fee is taken in the same token, unless the seller pays it.
  expect(rail.feeReserve!(entry)).toBe(10_000n);
  for (const funds of [0n, 10_000n])
    await expect(rail.sign(entry, await payer(funds), {})).rejects.toMatchObject({ name: "NoWallet" });
});

test("a node that is down is ChainDown", async () => {
  const entry = await asked();
  const down = railOn([{ ...network, rpcUrls: ["http://127.0.0.1:9"] }]);
  await expect(down.sign(entry, await payer(), {})).rejects.toMatchObject({ name: "ChainDown" });
});

describe("what is not paid", () => {
  const details = (methodDetails: object) => ({
    request: Buffer.from(JSON.stringify({ amount: "10000", methodDetails })).toString("base64url"),
  });
  const cases: [string, (entry: PayableEntry) => Partial<PayableEntry>, Partial<PaymentChallenge>?][] = [
    ["another method", () => ({}), { method: "stripe" }],
    ["another intent", () => ({}), { intent: "session" }],
    ["another chain", () => ({ network: "eip155:4217" })],
    ["another token", () => ({ asset: "0x20c0000000000000000000000000000000000001" })],
    ["to nobody", () => ({ payTo: "0x0000000000000000000000000000000000000000" })],
    ["nothing", () => ({ amountAtomic: 0n })],
    ["a memo of the seller's", () => ({}), details({ memo: `0x${"1".repeat(64)}` })],
    ["several payees", () => ({}), details({ splits: [{ amount: "1", recipient: PAY_TO }] })],
    ["payments that the payer sends", () => ({}), details({ supportedModes: ["push"] })],
  ];
  test.each(cases)("%s", async (_, change, challenge = {}) => {
    const nodeless = { ...network, rpcUrls: [] };
    const entry = await asked();
    const changed = { ...entry, ...change(entry), challenge: { ...entry.challenge!, ...challenge } };
    expect([rail.canPay(entry), railOn([nodeless]).canPay(entry)]).toEqual([true, true]);
    expect([rail.canPay(changed), railOn([nodeless]).canPay(changed)]).toEqual([false, false]);
  });
});
