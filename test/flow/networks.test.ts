import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { generatePrivateKey, privateKeyToAddress } from "viem/accounts";
import { afterAll, beforeAll, expect, test } from "vitest";
import { SimulatedClock, SwitchedClock } from "../../infra/clock.ts";
import { type Config, loadConfig } from "../../infra/config.ts";
import { createFundedWallets } from "../../infra/rails/funded-wallets.ts";
import { paidNetworks, railOn } from "../../infra/rails/networks.ts";
import type { Rail } from "../../infra/rails/rails.ts";
import { WalletFolder } from "../../infra/rails/wallet-folder.ts";
import { volatileRows } from "../../pipelines/2-ingest/volatile.ts";
import type { RecordType } from "../../pipelines/record/bodies.ts";
import { type Envelope, readRecord } from "../../pipelines/record/envelope.ts";
import { addDays, dayOf, dayStart } from "../../pipelines/record/time.ts";
import { type Assembled, assemble } from "../../pipelines/roles/assemble.ts";
import { makeKeys, openParts, type Parts } from "../../pipelines/roles/parts.ts";
import { type FundedChain, fundedChain, sellerOn } from "../helpers/funded-chain.ts";
import { type TempoNode, tempoNode, tempoSeller } from "../helpers/tempo.ts";

/**
 * Networks in a box: nodes with the ids, the USDC addresses and the signing domains of Base and Polygon, and a node of
 * Tempo; nobody can mint, wallets were funded from outside. Days of the record are lived through: a seller on each is paid
 * for real, by known and by blind wallets, and sellers on other networks are priced and never paid.
 */
const BASE = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913";
const POLYGON = "0x3c499c542cef5e3811e1192ce70d8cc03d5c3359";
const AVALANCHE = "0xb97ef9ef8734c71904d8002f8b6bc66dd9c48a6e";
const SOLANA = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp";
const SOLANA_USDC = "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v";
/** Days that are lived through: two, and more while no call of theirs was drawn as a blind one, which happens. */
let days = 0;
const LEAST_DAYS = 2;
const MOST_DAYS = 8;
const FUNDS = 1_000_000n;

type Seller = Awaited<ReturnType<typeof sellerOn>>;
let dir: string;
let chains: { base: FundedChain; polygon: FundedChain; tempo: TempoNode };
let onTempo: Awaited<ReturnType<typeof tempoSeller>>;
let sellers: Record<"base" | "polygon" | "avalanche" | "solana", Seller>;
let catalogue: Server;
let config: Config;
let folder: WalletFolder;
let parts: Parts;
let roles: Assembled;
let rail: Rail;

const payTo = (n: number) => `0x${String(n).padStart(40, "0")}`;

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "networks-"));
  const [base, polygon, tempo] = await Promise.all([fundedChain(8453), fundedChain(137), tempoNode()]);
  chains = { base, polygon, tempo };
  onTempo = await tempoSeller(tempo, { amount: "50000", payTo: payTo(14) });
  sellers = {
    base: await sellerOn({ network: "eip155:8453", asset: BASE, amount: "20000", payTo: payTo(11) }, base),
    polygon: await sellerOn({ network: "eip155:137", asset: POLYGON, amount: "30000", payTo: payTo(12) }, polygon),
    avalanche: await sellerOn({ network: "eip155:43114", asset: AVALANCHE, amount: "10000", payTo: payTo(13) }, null),
    solana: await sellerOn(
      { network: SOLANA, asset: SOLANA_USDC, amount: "40000", payTo: "9xQeWvG816bUx9EPjHmaT23yvVM2ZWbrrpZb9PusVFin" },
      null,
    ),
  };
  const items = Object.values(sellers).map(({ url, terms }) => ({
    ...{ resource: url, type: "http", x402Version: 2, accepts: [terms], lastUpdated: 1_790_000_000 },
  }));
  // As a directory of mpp sellers has it: the 402 itself says what is asked.
  const rows = [...items, { resource: onTempo.url, type: "http", accepts: [] }];
  catalogue = createServer((_, response) => {
    const pagination = { limit: 100, offset: 0, total: rows.length };
    response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify({ items: rows, pagination }));
  });
  await new Promise<void>((done) => catalogue.listen(0, "127.0.0.1", done));
  const networks = [
    { id: "eip155:8453", rpc_urls: [base.rpcUrl, base.rpcUrl], agree: 2 },
    { id: "eip155:137", rpc_urls: ["http://127.0.0.1:9", polygon.rpcUrl] },
    { id: tempo.network, rpc_urls: [tempo.rpcUrl] },
  ];
  config = loadConfig(undefined, {
    TOUCHSTONE_DATA_DIR: dir,
    TOUCHSTONE_ALLOW_LOOPBACK: "true",
    TOUCHSTONE_BASE_URL: "https://touchstone.test",
    TOUCHSTONE_NETWORKS: JSON.stringify(networks),
    TOUCHSTONE_LOG_LEVEL: "silent",
  });
  await live();
}, 280_000);

/** Wallets are made and funded, and the days up to today are lived through. */
async function live(): Promise<void> {
  folder = new WalletFolder(join(dir, "wallets"));
  const blind = folder.make(40);
  const { known } = folder.read();
  await Promise.all(
    [chains.base, chains.polygon].flatMap((chain) => [
      chain.fund(known!.address, 10n * FUNDS),
      ...blind.map(({ address }) => chain.fund(address, FUNDS)),
    ]),
  );
  const from = dayOf(new Date(Date.now() - MOST_DAYS * 86_400_000));
  makeKeys(dir, dayStart(addDays(from, -1)));
  const clock = new SwitchedClock(new SimulatedClock(dayStart(from)));
  parts = await openParts(config, clock);
  const networks = paidNetworks(config);
  rail = railOn(networks);
  const { secret, logger, metrics } = parts;
  const funded = createFundedWallets({ folder, rail, secret, logger, metrics });
  const { tempo } = chains;
  // The pinned node takes one transaction with an expiring nonce of each sender and drops the next, which Tempo does not: so
  // there each call is paid from a wallet of its own.
  async function fresh() {
    const privateKey = generatePrivateKey();
    const address = privateKeyToAddress(privateKey).toLowerCase();
    await tempo.fund(address, FUNDS);
    return { address, privateKey };
  }
  const wallets: typeof funded = {
    known: (need) => (need?.network === tempo.network ? fresh() : funded.known(need)),
    blind: (cap, day, least, need) => (need?.network === tempo.network ? fresh() : funded.blind(cap, day, least, need)),
  };
  roles = await assemble(parts, clock, { wallets, controlUrls: [], settlePollMs: [30, 100] });
  const at = `http://127.0.0.1:${(catalogue.address() as AddressInfo).port}/`;
  for (; days < LEAST_DAYS || (days < MOST_DAYS && folder.read().uses.length === 0); days++) {
    const day = addDays(from, days);
    clock.use(new SimulatedClock(dayStart(day)));
    await roles.pipeline.intake([at]);
    const plan = await roles.pipeline.plan(day);
    await roles.pipeline.observe(plan, dayStart(day), new Date(dayStart(addDays(day, 1)).getTime() - 1));
  }
}

afterAll(async () => {
  await roles?.close();
  await parts?.close();
  await rail?.close();
  for (const seller of [...Object.values(sellers ?? {}), onTempo]) await seller?.close();
  catalogue?.close();
  await Promise.all(Object.values(chains ?? {}).map((chain) => chain.stop()));
  await rm(dir, { recursive: true, force: true });
}, 60_000);

const metric = async (name: string): Promise<string> =>
  (await parts.metrics.text())
    .split("\n")
    .filter((line) => line.startsWith(name))
    .join("\n");

test("a seller on Tempo alone is paid over mpp, four times a day, and its rows are graded like any other's", async () => {
  const { network, asset } = chains.tempo;
  expect(onTempo.seen.paid).toBe(4 * days);
  expect(await rail.balance(payTo(14), { network, asset })).toBe(50_000n * BigInt(4 * days));
  await roles.ingest.pass();
  const row = (await volatileRows(roles.lake, new Map())).find(({ url }) => url === onTempo.url)!;
  expect(row).toMatchObject({ price: "0.050000", unit: "USD", protocols: ["mpp"], paid_calls: 4 * days, unserved: 0 });
  const rows = await roles.lake.all<{ counted: boolean; settled: boolean; delivered: boolean; price: number }>(
    `SELECT DISTINCT is_counted(kind, fault, settled) AS counted, settled, delivered, price FROM samples WHERE cap = '${row.capability_id}'`,
  );
  expect(rows).toEqual([{ counted: true, settled: true, delivered: true, price: 0.05 }]);
});

test("a seller on each of the two chains is paid for real, four times a day, and the chain has it", async () => {
  for (const [seller, asset, network] of [
    [sellers.base, BASE, "eip155:8453"],
    [sellers.polygon, POLYGON, "eip155:137"],
  ] as const) {
    expect([network, seller.seen.paid.length]).toEqual([network, 4 * days]);
    const { amount, payTo } = seller.terms;
    expect(await rail.balance(payTo, { network, asset })).toBe(BigInt(amount) * BigInt(4 * days));
  }
});

const PRICES: Record<string, string> = {
  ...{ "eip155:8453": "0.020000", "eip155:137": "0.030000", "eip155:42431": "0.050000" },
};

/** Every record of a topic of this log, of one type. */
async function recorded<T extends RecordType>(topic: string, type: T): Promise<Envelope<T>[]> {
  const found: Envelope<T>[] = [];
  for (let partition = 0; partition < parts.log.partitions; partition++) {
    for (const record of await parts.log.read(topic, partition, 0, { maxRecords: 10_000, maxBytes: 64 * 1024 ** 2 })) {
      const read = readRecord(record);
      if (read.ok && read.envelope.type === type) found.push(read.envelope as Envelope<T>);
    }
  }
  return found;
}

test("what the record says of each payment: its own network and asset, settled by the chain's own log", async () => {
  const intents = await recorded("observations.paid", "paid.intent");
  const settlements = await recorded("observations.paid", "settlement");
  expect(settlements).toHaveLength(12 * days);
  // Nothing is paid twice: each call has one settlement, and each settlement its own transaction.
  expect(new Set(settlements.map(({ body }) => body.intent)).size).toBe(12 * days);
  expect(new Set(settlements.map(({ body }) => body.tx)).size).toBe(12 * days);
  // Over x402 the facilitator sends, and over Tempo nobody is named: there the payer's own transaction is sent on.
  expect(new Set(settlements.map(({ body }) => body.sender ?? body.network))).toEqual(
    new Set([sellers.base.facilitator, sellers.polygon.facilitator, chains.tempo.network]),
  );
  const settledOf = new Map(settlements.map(({ body }) => [body.intent, body]));
  for (const { event_id, body } of intents) {
    const { network, asset, pay_to, amount_atomic, price } = body.quote;
    const settled = settledOf.get(event_id);
    expect(settled).toMatchObject({ network, from: body.wallet, to: pay_to, amount_atomic });
    expect(settled!.asset).toBe(asset.toLowerCase());
    expect([network, price]).toEqual([network, PRICES[network]]);
    const seen = await rail.settlementOf({
      ...{ from: body.wallet, nonce: body.nonce, sinceBlock: body.since_block, network, asset },
    });
    expect(seen?.tx).toBe(settled!.tx);
  }
});

test("a settlement is final when the chain itself says so, and a later look writes that down", async () => {
  const settlements = await recorded("observations.paid", "settlement");
  // No depth in blocks is set: Base and Polygon have a word of their own for it, and a block of Tempo is final.
  expect(paidNetworks(config).map(({ confirmations }) => confirmations)).toEqual(["finalized", "finalized", 1]);
  const open = settlements.filter(({ body }) => !body.final).length;
  expect(open).toBeGreaterThan(0);
  await expect
    .poll(
      async () => {
        await roles.ingest.pass();
        await roles.observer.awaitSettlements();
        const finals = await recorded("observations.paid", "paid.followup");
        return finals.filter(({ body }) => body.kind === "finality").length;
      },
      { timeout: 20_000, interval: 500 },
    )
    .toBe(open);
});

test("a price on a network that we do not pay on is read all the same", async () => {
  const seen = await recorded("observations.free", "handshake");
  const offers = seen.flatMap(({ body }) => body.terms?.offers ?? []);
  const said = (network: string) => offers.find((one) => one.network === network);
  expect(said("eip155:43114")).toMatchObject({ price: "0.010000", payable: false });
  expect(said(SOLANA)).toMatchObject({ price: "0.040000", payable: false });
  expect(said("eip155:137")).toMatchObject({ price: "0.030000", payable: true });
});

test("blind calls: a wallet belongs to one endpoint and one day, on whichever chain, and the known one pays the rest", async () => {
  const { known, uses } = folder.read();
  expect(uses.length).toBeGreaterThan(0);
  const byWallet = new Map(uses.map(({ address }) => [address, uses.filter((use) => use.address === address)]));
  for (const [address, of] of byWallet) {
    expect([address, new Set(of.map(({ day, cap }) => `${day} ${cap}`)).size]).toEqual([address, 1]);
  }
  const payers = new Set([...sellers.base.seen.payers, ...sellers.polygon.seen.payers]);
  expect([...payers].filter((one) => one !== known!.address && !byWallet.has(one))).toEqual([]);
  expect(payers.has(known!.address)).toBe(true);
  expect(await metric("touchstone_blind_wallets_shared_total")).toBe("");
});

test("networks that no rail of ours pays are asked and priced, and nothing is signed for them", () => {
  for (const seller of [sellers.avalanche, sellers.solana]) {
    expect(seller.seen.asked).toBeGreaterThan(0);
    expect(seller.seen.paid).toEqual([]);
  }
});
