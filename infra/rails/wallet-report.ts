import { formatUnits, parseUnits } from "viem";
import type { Clock } from "../clock.ts";
import { forEachConcurrent, repeatWork } from "../concurrency.ts";
import { type Finding, ok, warn } from "../finding.ts";
import type { Logger, Metrics } from "../telemetry.ts";
import type { Network, Token } from "./networks.ts";
import type { Rail } from "./rails.ts";
import type { FolderWallets, WalletFolder } from "./wallet-folder.ts";

/** Levels below which a warning is logged (settings `wallets.low_water` and `low_blind`). */
export interface LowWater {
  /**
   * Least amount that the known wallet, and all unused blind wallets together, should hold of each asset, in units of
   * the asset, such as "1.00".
   */
  money: string;
  /** Least number of unused blind wallets that should have money. */
  blind: number;
}

/** One wallet and its balances. The roles are described at `FolderWallets` in wallet-folder.ts. */
export interface WalletBalances {
  role: "known" | "gas" | "till" | "float" | "blind";
  address: string;
  /**
   * UTC day on which a blind wallet (one that sellers do not know) is used; null if it was never used, and for other
   * roles.
   */
  day: string | null;
  /** Capability ids of the endpoints that the wallet was assigned to pay. */
  caps: string[];
  /** Units of each asset by `network symbol`; null when the chain could not be read. Empty for the gas wallet. */
  balances: Record<string, string | null>;
}

/** The money of all wallets in one asset, in units of the asset. */
export interface AssetFunds {
  network: string;
  symbol: string;
  /** Balance of the known wallet; null when there is none, or the chain could not be read. */
  known: string | null;
  /** Number of unused blind wallets with money; null when the chain could not be read. */
  fresh: number | null;
  /** Sum of the balances of the unused blind wallets; null when the chain could not be read. */
  freshTotal: string | null;
  /** Number of unused blind wallets without money; null when the chain could not be read. */
  unfunded: number | null;
}

export interface WalletReport {
  wallets: WalletBalances[];
  /** The money of all wallets, one entry for each asset of each network. */
  pools: AssetFunds[];
}

const MAX_CONCURRENT_READS = 8;

/** Reads the balances of a folder's wallets on each network. A balance is null when its chain does not answer. */
export async function walletReport(
  folderWallets: FolderWallets,
  rail: Pick<Rail, "balance">,
  networks: readonly Network[],
): Promise<WalletReport> {
  const days = new Map(folderWallets.uses.map(({ address, day }) => [address, day]));
  const capsOf = (address: string) => [
    ...new Set(folderWallets.uses.flatMap((use) => (use.address === address ? use.cap : []))),
  ];
  const emptyBalances = (role: WalletBalances["role"], address: string): WalletBalances => ({
    ...{ role, address, day: days.get(address) ?? null, caps: capsOf(address), balances: {} },
  });
  const wallets = [
    ...(["known", "gas", "till", "float"] as const).flatMap((role) =>
      folderWallets[role] ? emptyBalances(role, folderWallets[role].address) : [],
    ),
    ...folderWallets.blind.map(({ address }) => emptyBalances("blind", address)),
  ];
  const networkAssets = networks.flatMap(({ id, assets }) => assets.map((asset) => ({ network: id, asset })));
  const tokenWallets = wallets.filter(({ role }) => role !== "gas");
  for (const { network, asset } of networkAssets) {
    let isDown = false;
    await forEachConcurrent(tokenWallets, MAX_CONCURRENT_READS, async (wallet) => {
      const atomic = isDown
        ? null
        : await rail.balance(wallet.address, { network, asset: asset.address }).then(
            ({ value }) => value,
            () => null,
          );
      isDown ||= atomic === null;
      wallet.balances[`${network} ${asset.symbol}`] = atomic === null ? null : formatUnits(atomic, asset.decimals);
    });
  }
  return { wallets, pools: networkAssets.map(({ network, asset }) => fundsOfAsset(wallets, network, asset)) };
}

function fundsOfAsset(wallets: readonly WalletBalances[], network: string, { symbol, decimals }: Token): AssetFunds {
  const key = `${network} ${symbol}`;
  const unusedBalances = wallets
    .filter(({ role, day }) => role === "blind" && day === null)
    .map(({ balances }) => balances[key]);
  const areAllKnown = unusedBalances.every((one) => one !== null);
  const fundedAmounts = unusedBalances.flatMap((one) => (one && one !== "0" ? [parseUnits(one, decimals)] : []));
  return {
    ...{ network, symbol, known: wallets.find(({ role }) => role === "known")?.balances[key] ?? null },
    fresh: areAllKnown ? fundedAmounts.length : null,
    unfunded: areAllKnown ? unusedBalances.length - fundedAmounts.length : null,
    freshTotal: areAllKnown
      ? formatUnits(
          fundedAmounts.reduce((all, one) => all + one, 0n),
          decimals,
        )
      : null,
  };
}

const NOT_ASKED = "the chain could not be asked";

/**
 * Returns findings about the wallets and what an operator should do: for each asset, one about the known wallet and
 * one about the blind wallets. All problems are warnings, since a role without money only makes no paid calls.
 */
export function walletFindings({ pools, wallets }: WalletReport, low: LowWater): Finding[] {
  if (!wallets.some(({ role }) => role === "known")) {
    const todo = "touchstone wallets new --blind 20, then fund the addresses that it prints";
    return [warn("wallets", "there are none: nothing is paid", todo)];
  }
  return pools.flatMap((pool) => poolFindings(pool, low));
}

function poolFindings(pool: AssetFunds, low: LowWater): Finding[] {
  const { network, symbol, known } = pool;
  const name = `wallets on ${network} (${symbol})`;
  if (known === null || pool.fresh === null) return [warn(name, NOT_ASKED, "look at its node")];
  const description = `it holds ${known}`;
  const todo = `send ${symbol} to the known wallet, ${low.money} or more (touchstone wallets list)`;
  return [
    Number(known) < Number(low.money) ? warn(`${name}: known`, description, todo) : ok(`${name}: known`, description),
    blindFinding(`${name}: blind`, pool, low),
  ];
}

/** Checks whether enough unused blind wallets have money. The advice is to fund empty wallets before making more. */
function blindFinding(name: string, { symbol, fresh, freshTotal, unfunded }: AssetFunds, low: LowWater): Finding {
  const [rich, empty] = [fresh ?? 0, unfunded ?? 0];
  const description = `${rich + empty} were never used: ${rich} hold ${freshTotal} in all, ${empty} hold nothing`;
  const missingCount = Math.max(low.blind - rich, 0);
  if (missingCount === 0 && Number(freshTotal) >= Number(low.money)) return ok(name, description);
  const leastToFund = Math.max(missingCount, 1);
  const fundAdvice = `fund ${leastToFund} or more, until all hold ${low.money} ${symbol} or more together: each from outside, never from the known one`;
  const makeAdvice = empty < leastToFund ? `touchstone wallets new --blind ${Math.max(low.blind, 20)}, then ` : "";
  return warn(name, description, `${makeAdvice}${fundAdvice} (touchstone wallets list)`);
}

export interface WalletWatchOptions {
  folder: WalletFolder;
  rail: Pick<Rail, "balance">;
  networks: readonly Network[];
  low: LowWater;
  clock: Pick<Clock, "sleep">;
  logger: Pick<Logger, "warn" | "info">;
  metrics: Pick<Metrics, "gauge">;
  /** Pause between two reads, ms (default: ten minutes). */
  every_ms?: number;
}

const INTERVAL_MS = 600_000;

/** Balances and findings of earlier reads of the wallets, with which the next read is compared. */
interface LastRead {
  /** Units by `address network symbol`. */
  balances: Map<string, string>;
  /** Number of findings about low wallets, by `network symbol`. */
  lowCounts: Map<string, number>;
}

/**
 * Counts the findings about wallets that hold too little. An asset whose chain could not be read keeps the count of its
 * last read: a node that fails at every second read would otherwise end each alarm before it is raised.
 */
function countLow({ pools, wallets }: WalletReport, low: LowWater, lowCounts: LastRead["lowCounts"]): number {
  if (!wallets.some(({ role }) => role === "known")) return 1;
  for (const pool of pools) {
    if (pool.known === null || pool.fresh === null) continue;
    const lowFindings = poolFindings(pool, low).filter(({ standing }) => standing !== "ok");
    lowCounts.set(`${pool.network} ${pool.symbol}`, lowFindings.length);
  }
  return [...lowCounts.values()].reduce((sum, count) => sum + count, 0);
}

/**
 * Reads all balances once: sets the gauges, warns in the log about what is low, and logs money that arrived since the
 * last read.
 * @param last what earlier reads found; this function updates it
 */
async function readBalances(options: WalletWatchOptions, last: LastRead): Promise<void> {
  const { folder, rail, networks, low, logger, metrics } = options;
  const report = await walletReport(folder.read(), rail, networks);
  for (const { network, symbol, known, fresh, freshTotal } of report.pools) {
    const labels = { network, asset: symbol };
    if (known !== null) metrics.gauge("touchstone_wallet_known_units", Number(known), labels);
    if (fresh !== null) metrics.gauge("touchstone_wallets_blind_fresh", fresh, labels);
    if (freshTotal !== null) metrics.gauge("touchstone_wallets_blind_units", Number(freshTotal), labels);
  }
  const findings = walletFindings(report, low).filter(({ standing }) => standing !== "ok");
  metrics.gauge("touchstone_wallets_low", countLow(report, low, last.lowCounts));
  for (const { name, says, todo } of findings)
    logger.warn({ wallets: name, todo }, says === NOT_ASKED ? says : `low water: ${says}`);
  for (const { address, balances } of report.wallets) {
    for (const [place, holds] of Object.entries(balances)) {
      const key = `${address} ${place}`;
      const had = last.balances.get(key);
      if (had !== undefined && holds !== null && Number(holds) > Number(had))
        logger.info({ address, place, had, holds }, "money arrived at a wallet");
      if (holds !== null) last.balances.set(key, holds);
    }
  }
}

/** Reads the wallets' balances now and every ten minutes until stopped. A failure is logged and the next read tried. */
export function watchWallets(options: WalletWatchOptions): { stop(): Promise<void> } {
  const last: LastRead = { balances: new Map(), lowCounts: new Map() };
  const tryReadBalances = () =>
    readBalances(options, last).catch((error: unknown) =>
      options.logger.warn({ err: error }, "the wallets could not be looked at"),
    );
  return repeatWork(tryReadBalances, options.every_ms ?? INTERVAL_MS, options.clock);
}
