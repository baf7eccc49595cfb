import { systemClock } from "../infra/clock.ts";
import { type Config, ConfigError } from "../infra/config.ts";
import type { Ownership } from "../infra/log/ownership.ts";
import { createFundedWallets } from "../infra/rails/funded-wallets.ts";
import { requireNetworks } from "../infra/rails/network-checks.ts";
import { type Network, paidNetworks, railOn } from "../infra/rails/networks.ts";
import type { Rail, Wallets } from "../infra/rails/rails.ts";
import type { WalletFolder } from "../infra/rails/wallet-folder.ts";
import { watchWallets } from "../infra/rails/wallet-report.ts";
import { createLocalWallets, requireLocalChain } from "../infra/rails/wallets.ts";
import type { Ingest } from "../pipelines/2-ingest/ingest.ts";
import { dayOf, dayStart } from "../pipelines/record/time.ts";
import { type Assembled, assemble, openIngest } from "../pipelines/roles/assemble.ts";
import {
  makeKeys,
  openObserverParts,
  openParts,
  openServingParts,
  type Parts,
  walletFolderOf,
} from "../pipelines/roles/parts.ts";
import { startMachine } from "../pipelines/roles/schedule.ts";
import { sayStatus } from "../serving/status/listener.ts";
import { atStart } from "./doctor.ts";
import { untilStopped } from "./exit.ts";
import { withOpen } from "./files.ts";
import { configuredSales } from "./selling.ts";
import { openServing, type ServingTier } from "./serving-tier.ts";

export interface RoleOptions {
  once?: boolean;
  json?: boolean;
}

export interface Roles {
  parts: Parts;
  roles: Assembled;
}

/** Wallets that an operator funds; or, where the settings say so and the chain is a local one, wallets that mint. */
async function openWallets(
  parts: Parts,
  networks: readonly Network[],
): Promise<{ wallets: Wallets; folder: WalletFolder | null }> {
  const { config, secret, logger, metrics } = parts;
  if (!config.wallets.mint) {
    const folder = walletFolderOf(config);
    if (!folder.read().known)
      logger.warn({ dir: folder.dir }, "there are no wallets, so nothing is paid: touchstone wallets new");
    return { wallets: createFundedWallets({ folder, rail: railOn(networks), secret, logger, metrics }), folder };
  }
  const [only, ...others] = networks;
  if (others.length > 0) throw new ConfigError(["wallets.mint: with one network only"]);
  const rpcUrl = only!.rpcUrls[0]!;
  await requireLocalChain(rpcUrl);
  return { wallets: createLocalWallets({ rpcUrl, seed: secret, asset: only!.assets[0]!.address }), folder: null };
}

const watchOver = (
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
 * Open everything for one command and close it again, whatever happens. The lake has one owner at a time.
 * @param watched the balances of the wallets are looked at every few minutes meanwhile
 * @throws NetworkMismatch when a chain is not what the settings say
 */
export async function withRoles<T>(
  config: Config,
  work: (opened: Roles) => Promise<T>,
  ownershipOf?: (parts: Parts) => Promise<Ownership>,
  { watched = false }: { watched?: boolean } = {},
): Promise<T> {
  const networks = paidNetworks(config);
  const unasked = await requireNetworks(networks);
  // Where machines share a log they share keys as well: an operator brings them, nobody draws other ones.
  if (!ownershipOf) makeKeys(config.data_dir, systemClock.now());
  const parts = await (ownershipOf ? openObserverParts : openParts)(config, systemClock);
  try {
    for (const { name, says, todo } of unasked) parts.logger.warn({ check: name, todo }, says);
    const opened = await openWallets(parts, networks);
    const money = { wallets: opened.wallets, controlUrls: config.control_urls };
    const ownership = await ownershipOf?.(parts);
    const roles = await assemble(parts, systemClock, money, undefined, ownership).catch(async (error: unknown) => {
      await ownership?.close();
      throw error;
    });
    const watching = watched && opened.folder && watchOver(parts, opened.folder, networks, roles.rail);
    try {
      return await work({ parts, roles });
    } finally {
      if (watching) await watching.stop();
      await roles.close();
    }
  } finally {
    await parts.close();
  }
}

/** The same for what needs the log, the chain of commits and the lake only: no money, no market. */
async function withIngest(config: Config, work: (ingest: Ingest) => Promise<void>): Promise<void> {
  makeKeys(config.data_dir, systemClock.now());
  const parts = await openParts(config, systemClock);
  try {
    const { lake, ingest } = await openIngest(parts, systemClock);
    try {
      await work(ingest);
    } finally {
      await lake.close();
    }
  } finally {
    await parts.close();
  }
}

/** Print what was done: JSON for a machine, else `name: value` and where to look next. */
export function report(options: RoleOptions, done: Record<string, unknown>, next: string): void {
  if (options.json) {
    process.stdout.write(`${JSON.stringify(done)}\n`);
    return;
  }
  const words = Object.entries(done).flatMap(([name, value]) => (isNothing(value) ? [] : [`${name} ${wordOf(value)}`]));
  process.stdout.write(`${words.join(", ") || "nothing was due"}\nnext: ${next}\n`);
}

/** Nothing was done, found or left: no line of a report for people. */
const isNothing = (value: unknown): boolean =>
  value === null ||
  value === 0 ||
  value === undefined ||
  (typeof value === "object" && Object.keys(value).length === 0);

const wordOf = (value: unknown): string => {
  if (Array.isArray(value)) return value.map(wordOf).join(" ");
  if (typeof value !== "object" || value === null) return String(value);
  return Object.entries(value)
    .map(([name, of]) => `${name}=${wordOf(of)}`)
    .join(" ");
};

/** Run the work once, or again every `seconds` until stopped. */
export async function repeat(options: RoleOptions, seconds: number, work: () => Promise<void>): Promise<void> {
  let over = false;
  const stop = untilStopped().then(() => {
    over = true;
  });
  do {
    await work();
    if (options.once) return;
    const pause = new AbortController();
    await Promise.race([stop, systemClock.sleep(seconds * 1000, pause.signal)]);
    pause.abort();
  } while (!over);
}

/** `touchstone start` without a market: every role on the chain and the catalogues of the settings. */
export async function live(config: Config, options: RoleOptions): Promise<void> {
  await atStart(config, "start", options);
  await withRoles(config, async (all) => goLive(config, options, all), undefined, { watched: !options.once });
}

type Selling = Awaited<ReturnType<typeof configuredSales>>;

/** The serving tier with what the settings sell, for the work alone: the tier is closed first, then the sales. */
const withServing = (
  parts: Parameters<typeof configuredSales>[0],
  serve: (selling: Selling) => Promise<ServingTier>,
  work: (serving: ServingTier) => Promise<void>,
): Promise<void> => withOpen(configuredSales(parts, systemClock), (selling) => withOpen(serve(selling), work));

async function goLive(config: Config, options: RoleOptions, { parts, roles }: Roles): Promise<void> {
  const { answers, ring } = parts.keys;
  const serve = (selling: Selling) => openServing({ ...parts, answers, ring, ...selling }, systemClock);
  await withServing(parts, serve, async (serving) => {
    if (options.once) {
      await roles.pipeline.intake(config.catalogues);
      const now = systemClock.now();
      const seen = await roles.pipeline.observe(await roles.pipeline.plan(dayOf(now)), dayStart(dayOf(now)), now);
      const graded = await roles.pipeline.grade(systemClock.now());
      await roles.pipeline.index();
      await roles.pipeline.volatile();
      return report(options, { ...seen, ...graded, tree_size: roles.publisher.fold.size }, "touchstone serve");
    }
    const schedule = startMachine({ ...parts, ...roles, catalogues: config.catalogues });
    process.stdout.write(`Serving at ${serving.url}\n`);
    sayStatus(serving.status, options.json);
    await untilStopped();
    await schedule.stop();
  });
}

/** `touchstone ingest`: log to segments to lake. */
export const ingest = (config: Config, options: RoleOptions): Promise<void> =>
  withIngest(config, (into) =>
    repeat(options, 10, async () => {
      const { rows, positions } = await into.pass();
      report(options, { rows, positions }, "touchstone grade --once");
    }),
  );

/**
 * `touchstone grade`: grade what is dirty or due; the run is published by the same pass. Not over a cluster's log: as
 * it starts it books calls that nobody watched to their end, and there another process may be watching them.
 */
export async function grade(config: Config, options: RoleOptions): Promise<void> {
  if (config.log !== null)
    throw new ConfigError(["log: over a cluster `touchstone own` grades, and `touchstone publish` publishes"]);
  await withRoles(config, ({ roles }) =>
    repeat(options, 10, async () => {
      report(options, { ...(await roles.pipeline.grade(systemClock.now())) }, "touchstone publish --once");
    }),
  );
}

/**
 * `touchstone serve`: answers only. It opens the public store, the log to append asks, and the key of the answers; where it
 * sells, the wallets and the observer's secret too, and the public store is written: bought calls are published there.
 */
export async function serveRole(config: Config): Promise<void> {
  await atStart(config, "serve");
  await withOpen(openServingParts(config), (parts) => {
    const serve = (selling: Selling) => openServing({ ...parts, ...selling }, systemClock);
    return withServing(parts, serve, async (serving) => {
      process.stdout.write(`Serving at ${serving.url}\n`);
      sayStatus(serving.status, false);
      await untilStopped();
    });
  });
}

/** `touchstone redrive`: rejected bytes, read again with today's readers. */
export const redrive = (config: Config, options: RoleOptions): Promise<void> =>
  withIngest(config, async (into) => report(options, { ...(await into.redrive()) }, "touchstone grade --once"));

/** `touchstone rebuild`: a new lake from the chain alone. */
export const rebuild = (config: Config, options: RoleOptions): Promise<void> =>
  withIngest(config, async (into) => report(options, { ...(await into.rebuild()) }, "touchstone grade --once"));

/** `touchstone gap accept`: holes between chain and log, written into the chain. */
export const acceptGap = (config: Config, options: RoleOptions): Promise<void> =>
  withIngest(config, async (into) => {
    const holes = await into.acceptGap();
    report(options, { holes }, "touchstone ingest --once");
  });
