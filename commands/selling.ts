import { randomBytes } from "node:crypto";
import { formatEther, formatGwei, formatUnits } from "viem";
import { type Clock, systemClock } from "../infra/clock.ts";
import { repeatWork } from "../infra/concurrency.ts";
import type { Config } from "../infra/config.ts";
import { type Egress, withRequestFields } from "../infra/egress/egress.ts";
import { ownLoop } from "../infra/loop-watch.ts";
import { accountOf } from "../infra/rails/account.ts";
import { createAuthorizations } from "../infra/rails/authorization.ts";
import { createEscrow } from "../infra/rails/escrow.ts";
import { createFacilitator } from "../infra/rails/facilitator.ts";
import { createFundedWallets } from "../infra/rails/funded-wallets.ts";
import { createNetworkGuard, requireNetworks } from "../infra/rails/network-checks.ts";
import { type Network, railOn, soldNetwork, tokenOn } from "../infra/rails/networks.ts";
import type { Rail, Wallet } from "../infra/rails/rails.ts";
import { createReader, type Reader } from "../infra/rails/rpc.ts";
import { createSender, type Sender } from "../infra/rails/sender.ts";
import { createHttpTill, createTill, createTills, type Till } from "../infra/rails/till.ts";
import { type FolderWallets, WalletFolder } from "../infra/rails/wallet-folder.ts";
import { giveLocalGas, type LocalWallets } from "../infra/rails/wallets.ts";
import type { Store } from "../infra/store/store.ts";
import type { Logger, Metrics } from "../infra/telemetry.ts";
import { ControlCalls } from "../pipelines/1-observe/probe/exchange.ts";
import { processReader } from "../pipelines/1-observe/reading/reader.ts";
import { Buying } from "../pipelines/orders/buying.ts";
import { capsOf, type OrderCaps } from "../pipelines/orders/caps.ts";
import { createClientNames } from "../pipelines/orders/claim.ts";
import { createGasLookup } from "../pipelines/orders/gas.ts";
import { Holding } from "../pipelines/orders/holding.ts";
import { OrderLog } from "../pipelines/orders/order-log.ts";
import { OrderObjects } from "../pipelines/orders/order-objects.ts";
import { ObjectSweep, startSweep } from "../pipelines/orders/order-objects-sweep.ts";
import { createPayerNames, PublishingCalls } from "../pipelines/orders/publishing-calls.ts";
import { Recovery, type RunningRecovery, startRecovery } from "../pipelines/orders/recovery.ts";
import type { SellerTools } from "../pipelines/orders/seller.ts";
import { openTruths } from "../pipelines/roles/classes.ts";
import { foldFolderOf, walletsFolderOf } from "../pipelines/roles/data-folder.ts";
import { openOrdersStore } from "../pipelines/roles/parts.ts";
import type { Sales } from "../serving/buy/checkout.ts";
import { salePolicyOf } from "../serving/buy/eligible.ts";
import type { ServingLog } from "../serving/replica/background-log.ts";
import { EvidenceBodies } from "../serving/work/evidence-bodies.ts";
import { gasOf, whyNoEscrow } from "./findings/selling.ts";

/** Wallets and chain access of a service that sells. */
export interface SellingMoney {
  /** The network, with the one token in which buyers pay. */
  network: Network;
  reader: Reader;
  /**
   * Sends the transactions of refunds and of the escrow, and pays their gas. Each key has one sender, which counts the
   * key's nonces.
   */
  sender: Sender;
  /** Settles the payments of buyers. */
  charger: Till;
  /** Wallet that receives the payments of buyers, and pays refunds. */
  till: Wallet;
  /** Returns the wallet from which sellers are paid. It holds the money that is needed for the payment. */
  float: SellerTools["float"];
  /** Connection to nodes of the network, for reading; default: a new one. */
  rail?: Rail;
  /** Reports whether escrow is offered to buyers at this moment; default: it always is. */
  isEscrowOffered?: () => boolean;
  /** Returns why nothing is sold at this moment, or null. */
  closed?: () => string | null;
  /** Limits on the money in orders; default: those of the settings. */
  caps?: OrderCaps;
  /** Pauses between two searches for a settlement on the chain, ms. */
  settlePollMs?: readonly number[];
  /** Time without a step after which another replica may continue an order, ms. */
  staleMs?: number;
  /** Pause between two searches for open orders to continue, ms. */
  lookMs?: number;
}

export interface SellingParts {
  config: Config;
  egress: Egress;
  log: ServingLog;
  /** Store for the calls that buyers have chosen to publish. */
  publicStore: Store;
  /** Store for bodies and answers of bought calls, shared by all replicas that sell. */
  ordersStore: Store;
  /**
   * Secret from which planted pages (test pages whose text only the service knows) are derived; absent: there are
   * none.
   */
  pages?: Uint8Array | null;
  /** Base url of the planted pages (default: that of the service). */
  pagesAt?: string;
  /**
   * Secret from which the pseudonyms of buyers' wallets are derived. With another secret, the wallets get other
   * pseudonyms.
   */
  secret: Uint8Array;
  logger: Logger;
  metrics: Metrics;
}

/** Time limit of a control call, ms. The buyer of a call that failed waits for it too. */
const CONTROL_DEADLINE_MS = 10_000;

export interface OpenSales extends Sales {
  recovering: RunningRecovery;
  sweep: ObjectSweep;
  close(): Promise<void>;
}

/**
 * Opens everything that is needed to sell calls: the orders in the log, the store of their bodies and answers, and the
 * wallets. Orders that an earlier process left open are continued.
 */
export function openSales(parts: SellingParts, clock: Clock, money: SellingMoney): OpenSales {
  const { config, egress, log, publicStore, ordersStore, secret, logger, metrics } = parts;
  const { id: network, confirmations, assets } = money.network;
  const chainToken = tokenOn(money.network, assets[0]!);
  const { asset, domain } = chainToken;
  const rail = money.rail ?? railOn([money.network]);
  const { pages = null, pagesAt } = parts;
  const truthOptions = { network: money.network, pages, ...(pagesAt ? { pagesAt } : {}) };
  const truths = openTruths(parts, clock, truthOptions);
  const seller = {
    ...{ egress, reader: processReader, loop: ownLoop, rail, float: money.float, truths: truths.truthParts },
    // Control calls do not use the pool of price requests: if buyers filled that pool, control calls would fail, and
    // every failed call would look like our own outage.
    control: new ControlCalls(withRequestFields(egress, { deadlineMs: CONTROL_DEADLINE_MS }), config.control_urls),
  };
  const replica = randomBytes(9).toString("base64url");
  const orders = new OrderLog(log, clock, replica, foldFolderOf(config, log, logger), {
    ...{ staleMs: money.staleMs, sold: { network, asset } },
  });
  const objects = new OrderObjects(ordersStore, metrics);
  const { answers_kept_days: keepDays, answers_kept_mb: maxMib } = config.sell;
  const sweepOptions = { orders, store: ordersStore, clock, keepDays, maxBytes: maxMib * 2 ** 20, logger, metrics };
  const sweep = new ObjectSweep(sweepOptions);
  const { sender } = money;
  const escrow = createEscrow({ money: chainToken, sender, payTo: money.till.address });
  const authorizations = createAuthorizations(chainToken, sender);
  const pollPausesMs = money.settlePollMs;
  const gas = createGasLookup(sender, metrics);
  const pollOptions = pollPausesMs ? { pollMs: pollPausesMs } : {};
  const holding = new Holding({ orders, escrow, rail, confirmations, gas, logger, metrics, ...pollOptions });
  const caps = money.caps ?? capsOf(config.sell);
  const buying = new Buying({
    ...{ orders, seller, till: money.charger, holding, objects, authorizations, gas },
    readNonce: authorizations.stateOf,
    ...{ caps, clock, logger, metrics },
    closed: () => money.closed?.() ?? sweep.refusalWhenFull(),
    ...(pollPausesMs ? { settlePollMs: pollPausesMs } : {}),
  });
  const nameOf = createPayerNames(secret);
  const publishing = new PublishingCalls({ orders, objects, log, publicStore, nameOf, logger, metrics });
  const recovery = new Recovery({
    ...{ buying, holding, rail, publishing, logger, metrics },
    ...{ till: async () => money.till, authorizations },
  });
  const recovering = startRecovery(recovery, logger, money.lookMs);
  const sweeping = startSweep(sweep, logger);
  const bodies = new EvidenceBodies({ store: ordersStore, clock, logger, metrics });
  const sweepingBodies = bodies.startSweep();
  return {
    ...{ buying, seller, till: money.charger, recovering, sweep, bodies },
    policy: salePolicyOf(caps),
    clientName: createClientNames(secret),
    receivingAccount: {
      ...{ network, asset, domain, payTo: money.till.address.toLowerCase() },
      get escrow() {
        return money.isEscrowOffered?.() === false ? null : escrow;
      },
    },
    close: async () => {
      await sweeping.stop();
      await sweepingBodies.stop();
      orders.close();
      truths.close();
      await recovering.stop();
    },
  };
}

const chainIdOf = ({ id }: Network): number => Number(id.slice("eip155:".length));

/**
 * Returns wallets and a facilitator (which submits payments to the chain) on the demo's local chain, which mints money
 * and gives gas.
 */
export async function createLocalMoney(network: Network, wallets: Pick<LocalWallets, "named">): Promise<SellingMoney> {
  const [rpcUrl] = network.rpcUrls as [string];
  const gas = await wallets.named("gas", 0n);
  await giveLocalGas(rpcUrl, gas.address);
  const reader = createReader(rpcUrl);
  const sender = createSender(reader, chainIdOf(network), accountOf(gas), network.gasCeiling);
  return {
    ...{ network, reader, sender },
    ...{ till: await wallets.named("till", 0n), float: () => wallets.named("float") },
    charger: createTill("in process", createFacilitator({ rpcUrl, network: network.id, sender })),
    settlePollMs: [0, 30, 100, 300],
  };
}

/**
 * Opens the sales that the settings describe, with wallets that an operator funds. If nothing can be sold, it returns
 * the reason, as a sentence for buyers.
 * @throws ConfigError, Failure `network` or `keys`
 */
export async function openConfiguredSales(
  parts: Omit<SellingParts, "secret" | "ordersStore"> & { secret: Uint8Array | null },
  clock: Clock,
): Promise<({ sales: OpenSales } | { unsold: string }) & { close(): Promise<void> }> {
  const { config, secret, logger, metrics } = parts;
  const network = soldNetwork(config);
  const noSales = (unsold: string) => ({ unsold, close: async () => undefined });
  if (!network || !secret) return noSales("Nothing is sold here: the setting sell.network names no network.");
  const heldWallets = new WalletFolder(walletsFolderOf(config)).read();
  const { till, float, gas } = heldWallets;
  if (!till || !float || !gas) {
    const missingRoles = (["till", "float", "gas"] as const).filter((role) => !heldWallets[role]).join(", ");
    logger.warn({ missing: missingRoles }, "nothing is sold: wallets are missing (touchstone wallets new)");
    metrics.gauge("touchstone_sales_closed", 1, { why: "wallets" });
    return noSales(`Nothing is sold here: wallets are missing (${missingRoles}); touchstone wallets new makes them.`);
  }
  for (const { name, says, todo } of await requireNetworks([network])) logger.warn({ check: name, todo }, says);
  const rail = railOn([network], createNetworkGuard([network]));
  const reader = createReader(network.rpcUrls);
  const sender = createSender(reader, chainIdOf(network), accountOf(gas), network.gasCeiling);
  // The float takes the place of the known wallet, so that `floatWallets.known` returns it.
  const saleWallets = { ...heldWallets, known: float, blind: [], uses: [] } satisfies FolderWallets;
  const folder = { dir: "the folder of the wallets", read: () => saleWallets, use() {} };
  const floatWallets = createFundedWallets({ folder, rail, secret, logger, metrics });
  const ordersStore = await openOrdersStore(config, parts.log);
  const watch = watchMoney({ network, rail, reader, wallets: { till, float, gas }, logger, metrics });
  // Sales are closed until the first result, so without this wait the first buyer would be refused.
  await watch.first;
  const sales = openSales({ ...parts, secret, ordersStore }, clock, {
    ...{ network, reader, sender, till, rail, isEscrowOffered: watch.isEscrowOffered, closed: watch.closed },
    charger: createCharger(config, network, sender),
    float: (need) => floatWallets.known(need),
  });
  return {
    sales,
    close: () =>
      watch
        .stop()
        .then(sales.close)
        .then(() => ordersStore.close()),
  };
}

/**
 * Returns the till that charges buyers: it uses the facilitators of the settings in order, and skips one that fails
 * for a while.
 */
function createCharger({ sell }: Config, network: Network, sender: Sender): Till {
  const tills = sell.facilitators.map((one, n) =>
    one === "own"
      ? createTill("own", createFacilitator({ rpcUrl: network.rpcUrls, network: network.id, sender }))
      : createHttpTill({ name: `facilitator ${n + 1}`, ...one }),
  );
  return tills.length === 1 ? tills[0]! : createTills(tills);
}

const WATCH_INTERVAL_MS = 60_000;

interface WatchOptions {
  network: Network;
  rail: Pick<Rail, "balance">;
  reader: Reader;
  wallets: Record<"till" | "float" | "gas", Wallet>;
  logger: Pick<Logger, "warn">;
  metrics: Pick<Metrics, "gauge">;
  /** Source of the pauses (default: the system's clock). */
  clock?: Pick<Clock, "sleep">;
}

/**
 * Reads the balances of the selling wallets and the gas price every minute, until stopped. `closed` returns why
 * nothing is sold, or null. While the chain does not answer, the last result stays. Each time it also checks whether
 * escrow can be offered, until it can.
 */
export function watchMoney({ network, rail, reader, wallets, logger, metrics, clock = systemClock }: WatchOptions) {
  let closed: string | null = "Nothing is sold yet: the gas for charging a call has not been checked.";
  const { symbol, decimals } = network.assets[0]!;
  const labels = { network: network.id, asset: symbol };
  metrics.gauge("touchstone_sales_closed", 1, { why: "chain" });
  async function readBalances(): Promise<void> {
    for (const role of ["till", "float"] as const) {
      const { value } = await rail.balance(wallets[role].address);
      const units = Number(formatUnits(value, decimals));
      metrics.gauge(`touchstone_sales_${role}_units`, units, labels);
    }
    const { coin, needs, price } = await gasOf(reader, wallets.gas.address);
    metrics.gauge("touchstone_sales_gas_coin", Number(formatEther(coin)), { network: network.id });
    const isLow = coin < needs;
    if (isLow)
      logger.warn(
        { gas: wallets.gas.address, holds: formatEther(coin) },
        "nothing is sold: the gas wallet is nearly empty",
      );
    const isGasPriceTooHigh = price > network.gasCeiling;
    if (isGasPriceTooHigh)
      logger.warn({ gwei: formatGwei(price) }, "nothing is sold: the gas price is above gas_ceiling_gwei");
    for (const [why, isClosed] of [
      ["gas", isLow],
      ["gas_price", isGasPriceTooHigh],
      ["chain", false],
    ] as const)
      metrics.gauge("touchstone_sales_closed", isClosed ? 1 : 0, { why });
    closed =
      isLow || isGasPriceTooHigh ? "Nothing is sold now: the service cannot pay the gas for charging a call." : null;
  }
  /** Why escrow is not offered. undefined: not read yet; null: it is offered from then on, and is not read again. */
  let escrowProblem: string | null | undefined;
  async function readEscrow(): Promise<void> {
    if (escrowProblem === null) return;
    const problem = await whyNoEscrow(network, rail).catch((error: Error) => error.message);
    if (problem !== null && problem !== escrowProblem)
      logger.warn({ why: problem }, "escrow is not offered; payment on delivery is");
    escrowProblem = problem;
  }
  const tryReadAll = async () => {
    await readBalances().catch((error: unknown) =>
      logger.warn({ err: error }, "the balances of the sales' wallets could not be read"),
    );
    await readEscrow();
  };
  return {
    ...repeatWork(tryReadAll, WATCH_INTERVAL_MS, clock),
    closed: () => closed,
    isEscrowOffered: () => escrowProblem === null,
  };
}
