import { randomBytes } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { Challenge } from "mppx";
import { assets, Types } from "mppx/evm";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { LOCAL_NETWORK, LOCAL_USDC } from "../../../fixtures/chain/local-chain.ts";
import { chargeServer, readCredential } from "../../../fixtures/market/charge.ts";
import type { Shop } from "../../../fixtures/market/shop.ts";
import { knownUsdc, signingDomain } from "../../../infra/rails/charge.ts";
import { createEvmRail } from "../../../infra/rails/evm.ts";
import type { PayableEntry, SignedPayment, Wallet } from "../../../infra/rails/rails.ts";
import { readChallenge } from "../../../pipelines/1-observe/terms/mpp.ts";
import { readChallenges } from "../../../pipelines/record/terms/challenges.ts";
import { PAYEE, payer, type Rig, startRig } from "./harness.ts";

let rig: Rig;
let wallet: Wallet;
let meet: ReturnType<typeof chargeServer>;
const URL_ = "http://127.0.0.1:9/sum?a=1&b=2";

beforeAll(async () => {
  rig = await startRig();
  wallet = await payer(rig);
  const shop = {
    origin: "http://127.0.0.1:9",
    payTo: PAYEE,
    network: LOCAL_NETWORK,
    asset: LOCAL_USDC,
    domain: { name: "USDC", version: "2" },
  };
  meet = chargeServer({ ...shop, facilitator: rig.facilitator } as Shop, "2500");
});
afterAll(() => rig.stop());

/** What the protocol's own server asks for, read as the observer reads it. */
async function asked(): Promise<PayableEntry> {
  const met = await meet(new Request(URL_));
  if (met.paid) throw new Error("an unpaid request was served");
  expect(met.demand.status).toBe(402);
  const [challenge] = readChallenges(met.demand.headers.get("www-authenticate")!).challenges;
  return readChallenge(challenge!).payable!;
}

const show = async (signed: SignedPayment): Promise<number> => {
  const met = await meet(new Request(URL_, { headers: { [signed.headerName]: signed.headerValue } }));
  return met.paid ? met.withReceipt(Response.json({ sum: 3 })).status : met.demand.status;
};
const settlementOf = async (signed: SignedPayment, sinceBlock = 0) =>
  (await rig.rail.settlementOf({ from: signed.from, nonce: signed.nonce, sinceBlock })).value;

test("every USDC in mppx's own table is known by its address and its domain", () => {
  const theirs = [assets.base, assets.baseSepolia, assets.celo, assets.celoSepolia].map(({ USDC }) => USDC);
  for (const { network, address, transfer } of theirs) {
    expect(transfer.type).toBe("eip3009");
    expect(knownUsdc(network)).toEqual({ network, address, name: transfer.name, version: transfer.version });
  }
  expect([Types.paymentMethod, Types.chargeIntent]).toEqual(["evm", "charge"]);
});

test("evm/charge: signed before anything leaves, settled once by mpp's own server, shown again in vain", async () => {
  const since = (await rig.rail.head()).number;
  const before = (await rig.rail.balance(PAYEE)).value;
  const entry = await asked();
  expect(rig.rail.canPay(entry)).toBe(true);
  const signed = await rig.rail.sign(entry, wallet, {});
  expect(signed).toMatchObject({ headerName: "AUTHORIZATION", from: wallet.address, amountAtomic: 2500n });
  expect(readCredential(signed.headerValue)).toEqual({ nonce: signed.nonce, payer: wallet.address, amount: "2500" });
  expect(await settlementOf(signed, since)).toBeNull();

  expect(await show(signed)).toBe(200);
  const seen = await settlementOf(signed, since);
  expect(seen).toMatchObject({ from: wallet.address, to: PAYEE, amountAtomic: 2500n, final: true });
  expect(await show(signed)).toBe(402);
  expect((await rig.rail.balance(PAYEE)).value).toBe(before + 2500n);
  expect(await settlementOf(signed, since)).toEqual(seen);
});

test("one credential shown twice at the same moment settles once", async () => {
  const before = (await rig.rail.balance(PAYEE)).value;
  const signed = await rig.rail.sign(await asked(), wallet, {});
  const both = await Promise.all([show(signed), show(signed)]);
  expect(both.filter((status) => status === 200)).toHaveLength(1);
  expect((await rig.rail.balance(PAYEE)).value).toBe(before + 2500n);
});

describe("a nonce is the seller's choice, so none is signed twice", () => {
  test("it is over the text of id and realm, also where that looks like hexadecimal", async () => {
    const entry = await asked();
    const challenge = { ...entry.challenge!, id: "0xab", realm: "cd12" };
    const { nonce } = await rig.rail.sign({ ...entry, challenge }, wallet, {});
    expect(nonce).toBe(Types.challengeHash(challenge));
  });

  test("a challenge that is repeated before it was paid", async () => {
    const entry = await asked();
    await rig.rail.sign(entry, wallet, {});
    await expect(rig.rail.sign(entry, wallet, {})).rejects.toThrow(/repeats a challenge that was signed/);
    // Another wallet has another nonce space: the token keeps them by payer.
    await expect(rig.rail.sign(entry, await payer(rig), {})).resolves.toMatchObject({ headerName: "AUTHORIZATION" });
  });

  test("two signatures of one challenge at the same moment: one is refused", async () => {
    const entry = await asked();
    const both = await Promise.allSettled([rig.rail.sign(entry, wallet, {}), rig.rail.sign(entry, wallet, {})]);
    expect(both.map(({ status }) => status).sort()).toEqual(["fulfilled", "rejected"]);
    const refused = both.find((one) => one.status === "rejected");
    expect(refused?.reason).toMatchObject({ name: "CannotSign" });
  });

  test("a challenge that nobody could ask the chain about is signed once the chain answers", async () => {
    const [{ rpcUrl, network, asset }, entry] = [rig.chain, await asked()];
    let isUp = false;
    const node = createServer(async (request, response) => {
      if (!isUp) return void response.writeHead(500).end();
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk as Buffer);
      const headers = { "content-type": "application/json" };
      const answer = await fetch(rpcUrl, { method: "POST", body: Buffer.concat(chunks), headers });
      response.writeHead(200, headers).end(await answer.text());
    });
    await new Promise<void>((done) => node.listen(0, "127.0.0.1", done));
    const through = `http://127.0.0.1:${(node.address() as AddressInfo).port}`;
    const rail = createEvmRail({ rpcUrl: through, network, asset, confirmations: 1 });
    await expect(rail.sign(entry, wallet, {})).rejects.toMatchObject({ name: "ChainDown" });
    isUp = true;
    await expect(rail.sign(entry, wallet, {})).resolves.toMatchObject({ headerName: "AUTHORIZATION" });
    node.close();
  });

  test("a challenge that was paid, asked again by a new process", async () => {
    const entry = await asked();
    expect(await show(await rig.rail.sign(entry, wallet, {}))).toBe(200);
    const { rpcUrl, network, asset } = rig.chain;
    const restarted = createEvmRail({ rpcUrl, network, asset, confirmations: 1 });
    await expect(restarted.sign(entry, wallet, {})).rejects.toThrow(/repeats a challenge that was paid/);
  });
});

describe("validity", () => {
  const expiring = (entry: PayableEntry, seconds: number): PayableEntry => ({
    ...entry,
    challenge: {
      ...entry.challenge!,
      id: randomBytes(8).toString("hex"),
      expires: new Date(Date.now() + seconds * 1000).toISOString(),
    },
  });
  test.each([
    ["ends with the challenge", 60, 300, 60],
    ["ends with the entry's own time when the challenge stays open for a day", 86_400, 300, 300],
    ["is kept short when the caller bounds it", 300, 30, 30],
  ])("%s", async (_name, seconds, bound, wanted) => {
    const terms = await asked();
    const began = Date.now() / 1000;
    const entry = expiring(terms, seconds);
    const signed = await rig.rail.sign({ ...entry, maxTimeoutSeconds: bound }, wallet, {});
    // Signing may take its time: the end lies so far from one of the moments it lasted.
    expect(signed.validBefore - wanted).toBeGreaterThan(began - 3);
    expect(signed.validBefore - wanted).toBeLessThan(Date.now() / 1000 + 3);
  });
  test("an expired challenge is not signed", async () => {
    await expect(rig.rail.sign(expiring(await asked(), -1), wallet, {})).rejects.toThrow(/expired/);
  });
  test("nor is one that would expire on the way", async () => {
    await expect(rig.rail.sign(expiring(await asked(), 5), wallet, {})).rejects.toThrow(/expired/);
  });
});

describe("what is not paid", () => {
  const of = (request: object): string => Buffer.from(JSON.stringify(request)).toString("base64url");
  const details = { chainId: 84532, credentialTypes: ["authorization"], decimals: 6 };
  const request = { amount: "2500", currency: LOCAL_USDC, recipient: PAYEE, methodDetails: details };
  const line = (change: { request?: object; params?: Record<string, string> } = {}) =>
    `Payment ${Object.entries({
      id: "abc",
      realm: "shop",
      method: "evm",
      intent: "charge",
      request: of({ ...request, ...change.request }),
      ...change.params,
    })
      .map(([name, value]) => `${name}="${value}"`)
      .join(", ")}`;
  const read = (change?: Parameters<typeof line>[0]) => readChallenge(readChallenges(line(change)).challenges[0]!);

  test("the line they differ from is paid", () => {
    expect(rig.rail.canPay(read().payable!)).toBe(true);
    expect(rig.rail.canPay(read({ params: { header: "Payment-Authorization" } }).payable!)).toBe(true);
  });
  test.each<[string, Parameters<typeof line>[0]]>([
    ["tempo", { params: { method: "tempo" } }],
    ["stripe", { params: { method: "stripe" } }],
    ["a session", { params: { intent: "session" } }],
    ["another network", { request: { methodDetails: { ...details, chainId: 8453 } } }],
    ["no network", { request: { methodDetails: { credentialTypes: ["authorization"] } } }],
    ["another asset", { request: { currency: PAYEE } }],
    ["the zero address", { request: { recipient: `0x${"0".repeat(40)}` } }],
    ["a name for an address", { request: { recipient: "shop.eth" } }],
    ["nothing", { request: { amount: "0" } }],
    ["no credential type", { request: { methodDetails: { chainId: 84532 } } }],
    ["another credential type", { request: { methodDetails: { ...details, credentialTypes: ["hash"] } } }],
    ["splits", { request: { methodDetails: { ...details, splits: [{ amount: "1", recipient: PAYEE }] } } }],
    ["a header of its own", { params: { header: "Cookie" } }],
    ["an expiry that is no time", { params: { expires: "soon" } }],
  ])("%s is an offer and no payment", async (_name, change) => {
    const { offer, payable } = read(change);
    expect(offer.scheme).toMatch(/^(evm|tempo|stripe)\/(charge|session)$/);
    expect(payable === null || !rig.rail.canPay(payable)).toBe(true);
    if (payable) await expect(rig.rail.sign(payable, wallet, {})).rejects.toThrow(/cannot pay/);
  });
  test("without realm or recipient there is nothing to sign", () => {
    expect(read({ params: { realm: "" } }).payable).toBeNull();
    expect(read({ request: { recipient: undefined } }).payable).toBeNull();
  });
});

test("what goes back is what the seller wrote: mpp's own reader finds the same challenge in the credential", async () => {
  const entry = await asked();
  const signed = await rig.rail.sign(entry, wallet, {});
  const { challenge } = JSON.parse(Buffer.from(signed.headerValue.slice("Payment ".length), "base64url").toString());
  expect(challenge).toEqual(entry.challenge);
  const theirs = Challenge.from({
    ...challenge,
    request: JSON.parse(Buffer.from(challenge.request, "base64url").toString()),
  });
  expect(theirs).toMatchObject({ id: entry.challenge!.id, request: { amount: "2500" } });
});

test("the signing domain of a token nobody told us of is not guessed", () => {
  expect(signingDomain("eip155:84532", LOCAL_USDC.toUpperCase().replace("0X", "0x"))).toEqual({
    name: "USDC",
    version: "2",
  });
  expect(signingDomain("eip155:8453", LOCAL_USDC)).toBeNull();
  expect(signingDomain("eip155:84532", PAYEE)).toBeNull();
});
