import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type PaymentPolicy, x402Client } from "@x402/core/client";
import { AuthCaptureEvmScheme } from "@x402/evm/auth-capture/client";
import { ExactEvmScheme } from "@x402/evm/exact/client";
import { wrapFetchWithPayment } from "@x402/fetch";
import type { Hex } from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import {
  createLocalMoney,
  type OpenSales,
  openSales,
  type SellingMoney,
  type SellingParts,
} from "../../commands/selling.ts";
import { openWorld, type World, type WorldInfo } from "../../commands/world.ts";
import { systemClock } from "../../infra/clock.ts";
import { loadConfig } from "../../infra/config.ts";
import { createEgress } from "../../infra/egress/create.ts";
import { openEmbeddedLog } from "../../infra/log/embedded.ts";
import type { Log } from "../../infra/log/log.ts";
import { configuredNetworks } from "../../infra/rails/networks.ts";
import { createLocalWallets } from "../../infra/rails/wallets.ts";
import { openDirectoryStore } from "../../infra/store/directory.ts";
import type { Store } from "../../infra/store/store.ts";
import type { ObjectSweep } from "../../pipelines/orders/order-objects-sweep.ts";
import type { RunningRecovery } from "../../pipelines/orders/recovery.ts";
import { TOPICS } from "../../pipelines/record/topics.ts";
import { Register } from "../../pipelines/register/register.ts";
import type { Sales } from "../../serving/buy/checkout.ts";
import type { ServingDeps } from "../../serving/context.ts";
import { type Serving, serve } from "../../serving/main.ts";
import { createExtractor } from "../../serving/work/extract/extractor.ts";
import { builtDist } from "./programs.ts";
import { cardOf, type EndpointSpec, listingDraft, PublicRecord, rowOf } from "./public-record.ts";
import { servingOver } from "./serving.ts";

/** Where there is none: looking a company up is work that cannot be done here. */
const REGISTER = "/nowhere/register.duckdb";
const MARKET = join(builtDist(), "fixtures/market/main.mjs");

/**
 * The market in a process of its own, as it runs beside a service: its web framework puts a Response of its own in the
 * place of the global one, which the service's does not know.
 */
export async function marketBeside(): Promise<World & { close(): Promise<void> }> {
  const dir = await mkdtemp(join(tmpdir(), "market-"));
  const world = await openWorld(dir, MARKET);
  return {
    ...world,
    async close() {
      await world.stop();
      await rm(dir, { recursive: true, force: true });
    },
  };
}

/** An endpoint of the record that is sold. */
export interface SoldSpec extends EndpointSpec {
  band?: "A" | "B" | "C" | "D" | "F" | "UNRATED";
  /** What measured it; default: OUTCOME_VERIFIED. */
  tier?: "DELIVERY_VERIFIED";
  payTo: string;
  price: string;
}

export interface Replica {
  url: string;
  sales: Sales;
  log: Log;
  publicStore: Store;
  ordersStore: Store;
  sweep: ObjectSweep;
  /** What the service answers from; a test may publish more, and then have it read. */
  record: PublicRecord;
  refresh(): Promise<unknown>;
  /** Address that buyers pay. */
  till: string;
  recovering: RunningRecovery;
  /** What another process of the same service would be made of: buying and recovery over the same log, nothing shared. */
  another(changes?: Partial<SellingMoney>): Promise<OpenSales>;
  close(): Promise<void>;
}

/** A service that sells calls of the market's sellers: real log, real chain, real HTTP; the record is written by a test. */
export async function sellingOver(
  info: WorldInfo,
  specs: readonly SoldSpec[],
  more: {
    money?: (money: SellingMoney) => Partial<SellingMoney>;
    deps?: Partial<ServingDeps>;
    dir?: string;
    /** Path of a register of companies; absent: looking one up is not sold. */
    register?: string;
    /** The log as this replica sees it. */
    seen?: (log: Log) => Log;
    /** Further settings, as variables of the environment. */
    env?: Record<string, string>;
    /** Further parts of what sells. */
    parts?: Partial<SellingParts>;
  } = {},
): Promise<Replica> {
  const dir = more.dir ?? (await mkdtemp(join(tmpdir(), "buying-")));
  const record = await PublicRecord.open();
  const groups = specs.flatMap((spec) => [
    [listingDraft(spec)],
    record.grades(
      [cardOf(spec, { band: spec.band ?? "B", ...(spec.tier ? { tier: spec.tier } : {}) })],
      "B: it passed.",
    ),
  ]);
  await record.publish(...groups);
  await record.live(specs.map((spec) => rowOf(spec, { price: spec.price, pay_to: spec.payTo })));
  const config = loadConfig(undefined, {
    TOUCHSTONE_DATA_DIR: dir,
    TOUCHSTONE_ALLOW_LOOPBACK: "true",
    TOUCHSTONE_CHAIN_RPC_URL: info.rpcUrl,
    TOUCHSTONE_LOG_LEVEL: "silent",
    ...more.env,
  });
  const log = await openEmbeddedLog(join(dir, "log"), { topics: TOPICS, partitions: 2 });
  const egress = createEgress({ allowLoopback: true, userAgent: "touchstone (+https://touchstone.test)" });
  const wallets = createLocalWallets({ rpcUrl: info.rpcUrl, seed: Buffer.alloc(32, 7), asset: info.asset });
  const [network] = configuredNetworks(config);
  const money = await createLocalMoney(network!, wallets);
  const { logger, metrics } = record;
  const ordersStore = await openDirectoryStore(join(dir, "orders"));
  const kept = { publicStore: record.store, ordersStore, secret: Buffer.alloc(32, 9) };
  const parts = { config, egress, log: more.seen?.(log) ?? log, ...kept, logger, metrics, ...more.parts };
  const opened = openSales(parts, systemClock, { ...money, ...more.money?.(money) });
  const extractor = createExtractor();
  const register = new Register({ path: more.register ?? REGISTER, clock: systemClock });
  const workshop = { egress, extractor, register };
  const deps = { egress, log: parts.log, sales: opened, workshop, ...more.deps };
  const { app, follower } = await servingOver(record, deps as Partial<ServingDeps>);
  const serving: Serving = await serve({ app, port: 0, host: "127.0.0.1", graceMs: 100 });
  return {
    ...{ publicStore: record.store, ordersStore, sweep: opened.sweep, record, refresh: () => follower.refresh() },
    ...{ url: serving.url, sales: opened, log, till: money.till.address.toLowerCase(), recovering: opened.recovering },
    another: async (changes = {}) =>
      openSales({ ...parts, log }, systemClock, { ...(await createLocalMoney(network!, wallets)), ...changes }),
    async close() {
      await serving.close();
      await opened.close();
      await extractor.close();
      register.close();
      await log.close();
      await ordersStore.close();
      await egress.close();
      await record.close();
      if (!more.dir) await rm(dir, { recursive: true, force: true });
    },
  };
}

/**
 * A buyer with the protocol's own client, unmodified, and a wallet with money. It knows payment after delivery and payment
 * into escrow, and prefers what its policy prefers. @param holds atomic units
 */
export async function officialBuyer(info: WorldInfo, policy?: PaymentPolicy, holds = 10_000_000_000n) {
  const seed = Buffer.from(generatePrivateKey().slice(2), "hex");
  const purse = { rpcUrl: info.rpcUrl, seed, asset: info.asset };
  const wallets = createLocalWallets({ ...purse, knownFloorAtomic: holds });
  const { privateKey, address } = await wallets.known();
  const account = privateKeyToAccount(privateKey as Hex);
  const client = new x402Client()
    .register(`eip155:${info.chainId}`, new ExactEvmScheme(account))
    .register(`eip155:${info.chainId}`, new AuthCaptureEvmScheme(account));
  if (policy) client.registerPolicy(policy);
  const sign = (message: string): Promise<Hex> => account.signMessage({ message });
  // The same client over another fetch, so that a test sees what it sends.
  const over = (inner: typeof fetch) => wrapFetchWithPayment(inner, client) as typeof fetch;
  return { address: address.toLowerCase(), privateKey: privateKey as Hex, client, fetch: over(fetch), over, sign };
}

export type OfficialBuyer = Awaited<ReturnType<typeof officialBuyer>>;
