import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { generatePrivateKey, privateKeyToAddress } from "viem/accounts";
import { openLedger } from "../../fixtures/market/ledger.ts";
import { chainReaderOn } from "../../fixtures/market/sellers/chain-reader.ts";
import { encoder } from "../../fixtures/market/sellers/encoders.ts";
import { parrot } from "../../fixtures/market/sellers/parrot.ts";
import { scraper } from "../../fixtures/market/sellers/scrapers.ts";
import { type OpenServer, type Shop, serveAt } from "../../fixtures/market/shop.ts";
import { freePort } from "../../fixtures/ports.ts";
import { createFacilitator } from "../../infra/rails/facilitator.ts";
import { createFundedWallets, type FundedWalletsOptions } from "../../infra/rails/funded-wallets.ts";
import type { Wallets } from "../../infra/rails/rails.ts";
import { type FundedChain, fundedChain, sellerOn } from "../helpers/funded-chain.ts";
import { openBazaar, type RecordedBazaar } from "../helpers/recorded-bazaar.ts";
import { type TempoNode, tempoNode, tempoSeller } from "../helpers/tempo.ts";

export const BASE = "0x833589fcd6edb6e08f4c7c32d4f71b54bda02913";
export const POLYGON = "0x3c499c542cef5e3811e1192ce70d8cc03d5c3359";
const AVALANCHE = "0xb97ef9ef8734c71904d8002f8b6bc66dd9c48a6e";
const SOLANA = "solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp";
const SOLANA_USDC = "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v";
/** Sellers of four classes that are not arithmetic, paid on Base. */
export const KINDS = [encoder, scraper, chainReaderOn("eip155:8453"), parrot];
/** What each blind wallet holds on each chain, atomic, and how many times as much the known one. */
export const FUNDS = 1_000_000n;
export const KNOWN_FUNDS = 20n;

type Seller = Awaited<ReturnType<typeof sellerOn>>;

/** Chains with the ids, addresses and domains of real ones, and who sells on them. */
export interface Box {
  chains: { base: FundedChain; polygon: FundedChain; tempo: TempoNode };
  /** In the order of {@link KINDS}. */
  shops: Shop[];
  sellers: Record<"polygon" | "avalanche" | "solana", Seller>;
  onTempo: Awaited<ReturnType<typeof tempoSeller>>;
  /** A catalogue of all of these. */
  catalogue: string;
  /** Null where the corpus is not on this machine. */
  bazaar: RecordedBazaar | null;
  /** What an operator has in its settings, as the environment names it. */
  settings: Record<string, string>;
  close(): Promise<void>;
}

export const payTo = (n: number) => `0x${String(n).padStart(40, "0")}`;

const facilitatorOn = async (chain: FundedChain) => {
  const made = createFacilitator({ rpcUrl: chain.rpcUrl, network: chain.network, sender: generatePrivateKey() });
  await chain.giveGas(made.address);
  return made;
};

/** A seller of a class, on the protocol's own server. */
async function openShop(
  dir: string,
  n: number,
  chain: FundedChain,
  tempo: TempoNode,
  facilitator: Shop["facilitator"],
) {
  const kind = KINDS[n]!;
  const port = await freePort();
  const shop: Shop = {
    ...{ name: kind.name, origin: `http://127.0.0.1:${port}`, rpcUrl: chain.rpcUrl, asset: chain.asset, facilitator },
    tempo,
    ...{ payTo: payTo(21 + n), otherPayTo: payTo(31 + n), domain: { name: "USD Coin", version: "2" } },
    network: chain.network as Shop["network"],
    ledger: openLedger(join(dir, `${kind.name}.ndjson`)),
    isRegular: () => true,
    payBack: () => Promise.reject(new Error("nothing is paid back here")),
  };
  const server = await serveAt(kind.app(shop)!, "127.0.0.1", port);
  // The protocol's server loads parts of itself at its first request: nobody's latency.
  await fetch(shop.origin + kind.paths[0]);
  return { shop, server };
}

/** The rows as a Bazaar has them, at any path. */
async function openCatalogue(rows: readonly object[]): Promise<OpenServer & { url: string }> {
  const server = createServer((_, response) => {
    const pagination = { limit: 100, offset: 0, total: rows.length };
    response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify({ items: rows, pagination }));
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  const close = async () => {
    server.closeAllConnections();
    await new Promise((done) => server.close(done));
  };
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/`, close };
}

/** @param dir where the shops keep their ledgers, and the data folder of the settings */
export async function openBox(dir: string): Promise<Box> {
  const [base, polygon, tempo] = await Promise.all([fundedChain(8453), fundedChain(137), tempoNode()]);
  const facilitators = { "eip155:8453": await facilitatorOn(base), "eip155:137": await facilitatorOn(polygon) };
  const opened = await Promise.all(KINDS.map((_, n) => openShop(dir, n, base, tempo, facilitators["eip155:8453"])));
  const onTempo = await tempoSeller(tempo, { amount: "15000", payTo: payTo(14) });
  const solana = { network: SOLANA, asset: SOLANA_USDC, payTo: "9xQeWvG816bUx9EPjHmaT23yvVM2ZWbrrpZb9PusVFin" };
  const sellers = {
    polygon: await sellerOn({ network: "eip155:137", asset: POLYGON, amount: "20000", payTo: payTo(12) }, polygon),
    avalanche: await sellerOn({ network: "eip155:43114", asset: AVALANCHE, amount: "10000", payTo: payTo(13) }, null),
    solana: await sellerOn({ ...solana, amount: "40000" }, null),
  };
  const items = Object.values(sellers).map(({ url, terms }) => ({
    ...{ resource: url, type: "http", x402Version: 2, accepts: [terms], lastUpdated: 1_790_000_000 },
  }));
  // As a directory of mpp sellers has it: the 402 itself says what is asked.
  const ofTempo = { resource: onTempo.url, type: "http", accepts: [] };
  const catalogue = await openCatalogue([
    ...opened.map(({ shop }, n) => KINDS[n]!.listing(shop)),
    ...[...items, ofTempo],
  ]);
  const bazaar = await openBazaar(facilitators);
  const networks = [
    { id: "eip155:8453", rpc_urls: [base.rpcUrl, base.rpcUrl.replace("127.0.0.1", "localhost")], agree: 2 },
    { id: "eip155:137", rpc_urls: ["http://127.0.0.1:9", polygon.rpcUrl] },
    { id: tempo.network, rpc_urls: [tempo.rpcUrl] },
  ];
  const settings = {
    TOUCHSTONE_DATA_DIR: dir,
    TOUCHSTONE_PORT: "0",
    // Every name of a stranger leads to its stand-in.
    TOUCHSTONE_ALLOW_LOOPBACK: "true",
    TOUCHSTONE_RESOLVE_TO: "127.0.0.1",
    TOUCHSTONE_BASE_URL: "https://touchstone.test",
    TOUCHSTONE_NETWORKS: JSON.stringify(networks),
    TOUCHSTONE_CATALOGUES: JSON.stringify([catalogue.url, ...(bazaar ? [bazaar.url] : [])]),
    TOUCHSTONE_CONTROL_URLS: JSON.stringify([catalogue.url, ...(bazaar ? [bazaar.control] : [])]),
    TOUCHSTONE_LOG_LEVEL: "silent",
  };
  const closing = [...opened.map(({ server }) => server), ...Object.values(sellers), onTempo, catalogue, bazaar];
  return {
    ...{ chains: { base, polygon, tempo }, sellers, onTempo, bazaar, settings, catalogue: catalogue.url },
    shops: opened.map(({ shop }) => shop),
    async close() {
      for (const one of closing) await one?.close();
      for (const { shop } of opened) shop.ledger.close();
      await Promise.all([base, polygon, tempo].map((chain) => chain.stop()));
    },
  };
}

/** Wallets that got their money from outside; on Tempo one of its own for each call. */
export async function fundWallets(
  { chains: { base, polygon, tempo } }: Box,
  options: FundedWalletsOptions,
): Promise<Wallets> {
  const { known, blind } = options.folder.read();
  for (const chain of [base, polygon]) {
    await chain.fund(known!.address, KNOWN_FUNDS * FUNDS);
    for (const { address } of blind) await chain.fund(address, FUNDS);
  }
  const funded = createFundedWallets(options);
  // The pinned node takes one transaction with an expiring nonce of each sender and drops the next: Tempo does not.
  async function fresh() {
    const privateKey = generatePrivateKey();
    const address = privateKeyToAddress(privateKey).toLowerCase();
    await tempo.fund(address, FUNDS);
    return { address, privateKey };
  }
  return {
    known: (need) => (need?.network === tempo.network ? fresh() : funded.known(need)),
    blind: (cap, day, least, need) => (need?.network === tempo.network ? fresh() : funded.blind(cap, day, least, need)),
  };
}
