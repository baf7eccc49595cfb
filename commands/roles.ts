import { systemClock } from "../infra/clock.ts";
import { type Config, ConfigError } from "../infra/config.ts";
import type { Ownership } from "../infra/log/ownership.ts";
import { createFundedWallets } from "../infra/rails/funded-wallets.ts";
import { requireNetworks } from "../infra/rails/network-checks.ts";
import { type Network, paidNetworks, railOn } from "../infra/rails/networks.ts";
import type { Rail, Wallets } from "../infra/rails/rails.ts";
import { WalletFolder } from "../infra/rails/wallet-folder.ts";
import { watchWallets } from "../infra/rails/wallet-report.ts";
import { createLocalWallets, requireLocalChain } from "../infra/rails/wallets.ts";
import { dayOf, dayStart } from "../pipelines/record/time.ts";
import { assemble, type MachineRoles } from "../pipelines/roles/assemble.ts";
import { walletsFolderOf } from "../pipelines/roles/data-folder.ts";
import { openObserverParts, openParts, type Parts } from "../pipelines/roles/parts.ts";
import { ensureKeysFor } from "../pipelines/roles/record-identity.ts";
import { withOpen } from "./files.ts";
import { repeat, report } from "./report.ts";
import type { OptionsOf } from "./table.ts";

export interface Roles {
  parts: Parts;
  roles: MachineRoles;
}

/**
 * Opens the wallets in the wallet folder, which an operator funds. With the setting `wallets.mint`, it opens wallets
 * that mint their own money, which works only on a local chain.
 */
async function openWallets(
  parts: Parts,
  networks: readonly Network[],
): Promise<{ wallets: Wallets; folder: WalletFolder | null }> {
  const { config, secret, logger, metrics } = parts;
  for (const { id: network } of networks) {
    metrics.count("touchstone_blind_wallets_missing_total", { network }, 0);
    metrics.count("touchstone_blind_wallets_shared_total", { network }, 0);
    metrics.count("touchstone_known_wallet_short_total", { network }, 0);
  }
  if (!config.wallets.mint) {
    const folder = new WalletFolder(walletsFolderOf(config));
    if (!folder.read().known)
      logger.warn({ dir: folder.dir }, "there are no wallets, so nothing is paid: touchstone wallets new");
    return { wallets: createFundedWallets({ folder, rail: railOn(networks), secret, logger, metrics }), folder };
  }
  const [network, ...otherNetworks] = networks;
  if (otherNetworks.length > 0) throw new ConfigError(["wallets.mint: with one network only"]);
  const rpcUrl = network!.rpcUrls[0]!;
  await requireLocalChain(rpcUrl);
  return { wallets: createLocalWallets({ rpcUrl, seed: secret, asset: network!.assets[0]!.address }), folder: null };
}

const watchFolderWallets = (
  { config, logger, metrics }: Parts,
  folder: WalletFolder,
  networks: readonly Network[],
  rail: Rail,
) =>
  watchWallets({
    ...{ folder, rail, networks, clock: systemClock, logger, metrics },
    low: { money: config.wallets.low_water, blind: config.wallets.low_blind },
  });

/**
 * Opens all roles for one piece of work, and closes them after it. They include the lake, which one process at a time
 * can open.
 * @param ownershipOf with the log of a cluster: joins the group of observers, and returns this observer's share
 * @param watched true: reads the balances of the wallets every few minutes during the work
 * @throws Failure `network` if a chain differs from the settings
 */
export async function withRoles<T>(
  config: Config,
  work: (opened: Roles) => Promise<T>,
  ownershipOf?: (parts: Parts) => Promise<Ownership>,
  { watched = false }: { watched?: boolean } = {},
): Promise<T> {
  const networks = paidNetworks(config);
  const warnings = await requireNetworks(networks);
  // Machines with a shared log need the same keys, which an operator copies to them, so no role creates keys there.
  if (config.log === null) await ensureKeysFor(config, systemClock.now());
  return withOpen((ownershipOf ? openObserverParts : openParts)(config, systemClock), async (parts) => {
    for (const { name, says, todo } of warnings) parts.logger.warn({ check: name, todo }, says);
    const openedWallets = await openWallets(parts, networks);
    const paymentParts = { wallets: openedWallets.wallets, controlUrls: config.control_urls };
    const ownership = await ownershipOf?.(parts);
    const roles = await assemble(parts, systemClock, paymentParts, undefined, ownership).catch(
      async (error: unknown) => {
        await ownership?.close();
        throw error;
      },
    );
    const walletWatch =
      watched && openedWallets.folder && watchFolderWallets(parts, openedWallets.folder, networks, roles.rail);
    try {
      return await work({ parts, roles });
    } finally {
      if (walletWatch) await walletWatch.stop();
      await roles.close();
    }
  });
}

/** Runs one turn of a single observer: reads the catalogues, then makes the calls of today's plan that are due. */
export async function observeOnce({ catalogues }: Config, pipeline: MachineRoles["pipeline"]) {
  await pipeline.intake(catalogues);
  const now = systemClock.now();
  const plan = await pipeline.getPublishedPlan(dayOf(now));
  return { day: plan.day, calls: await pipeline.observe(plan, dayStart(dayOf(now)), now) };
}

/**
 * `touchstone grade`: grades the endpoints that have new samples or are due, and publishes the new grades. It refuses
 * the log of a cluster: when it starts, it records every call without an outcome as failed by our own fault, and in a
 * cluster another process may still wait for that outcome.
 */
export async function grade(config: Config, options: OptionsOf<"grade">): Promise<void> {
  if (config.log !== null)
    throw new ConfigError([
      "log: grade does not work with a cluster's log; use `touchstone own` to grade and `touchstone publish` to publish",
    ]);
  await withRoles(config, ({ roles }) =>
    repeat(options, 10, async () => {
      report(options, { ...(await roles.pipeline.grade(systemClock.now())) }, "touchstone publish --once");
    }),
  );
}
