import type { Clock } from "../../infra/clock.ts";
import { keysDocument } from "../../infra/keys/keys.ts";
import type { Lake } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import type { Ownership } from "../../infra/log/ownership.ts";
import { createNetworkGuard } from "../../infra/rails/network-checks.ts";
import { paidNetworks, railOn } from "../../infra/rails/networks.ts";
import type { Rail, Wallets } from "../../infra/rails/rails.ts";
import { originOf } from "../../infra/tree/checkpoint.ts";
import { AskRunner } from "../1-observe/ask-runner.ts";
import { openHostShare } from "../1-observe/hosts.ts";
import { createObserver, type Observer, type ObserverParts } from "../1-observe/observer.ts";
import { parseCaps } from "../1-observe/plan/spend.ts";
import type { Ingest } from "../2-ingest/ingest.ts";
import { createMemory } from "../2-ingest/memory.ts";
import { createChainTimeReader } from "../4-publish/clocks.ts";
import { createPublisher, type Publisher } from "../4-publish/publisher.ts";
import { witnessesOf } from "../4-publish/witnesses.ts";
import { archiveTrust, createArchivePlace } from "../5-archive/place.ts";
import { Notifier } from "../6-notify/notifier.ts";
import { PublishedTree } from "../published/reader.ts";
import type { Memory } from "../record/memory.ts";
import { openClasses } from "./classes.ts";
import { foldFolderOf } from "./data-folder.ts";
import { openIngest } from "./open-ingest.ts";
import type { Parts } from "./parts.ts";
import { Pipeline } from "./pipeline.ts";

/**
 * Wallets and control urls, from the settings of a deployment or made by the demo. A control url is an address known
 * to be up, which is requested after a failed call to learn whose fault the failure is.
 */
export interface WalletParts {
  wallets: Wallets;
  controlUrls: readonly string[];
  /**
   * Address under which planted pages (pages of ours that test endpoints that read pages) are served; default: the
   * address of the service.
   */
  pagesAt?: string;
  /**
   * Pauses between searches for the settlement (payment on the chain) after a paid call, real ms. They can be short
   * on a demo chain, which makes a block at once.
   */
  settlePollMs?: readonly number[];
}

export interface MachineRoles {
  lake: Lake;
  memory: Memory;
  ingest: Ingest;
  rail: Rail;
  observer: Observer;
  publisher: Publisher;
  notifier: Notifier;
  pipeline: Pipeline;
  close(): Promise<void>;
}

/** Longest wait for running probes to end before their hosts are given to another observer, real ms. */
const RELEASE_TIMEOUT_MS = 60_000;

/**
 * Makes the configuration of the observer (which probes and pays endpoints) from settings, wallets and the money
 * spent so far.
 */
async function createObserverConfig(
  { config, secret }: Parts,
  lake: Lake,
  walletParts: WalletParts,
): Promise<ObserverParts["config"]> {
  const [spentRow] = await lake.all<{ micro: bigint }>(sql("queries/spending:ever"));
  return {
    producer: "touchstone/1",
    controlUrls: walletParts.controlUrls,
    caps: parseCaps(config.spend),
    spentBefore: spentRow?.micro ?? 0n,
    hostsAtOnce: config.observe.hosts_at_once,
    payeesPerRead: config.observe.payees_per_hour,
    secret,
    ...(walletParts.settlePollMs ? { settlePollMs: walletParts.settlePollMs } : {}),
  };
}

/**
 * Opens all roles of the pipeline over one set of parts and recovers them: loads everything that the log holds into
 * the lake (the database of the log's rows), and records the calls whose end an earlier process did not see as failed
 * through our own fault.
 * @param onAck called with the event ids of every append of the observer that the log confirmed
 * @param ownership this observer's share of the hosts, if several observers share them; closed by `close`
 */
export async function assemble(
  parts: Parts,
  clock: Clock,
  walletParts: WalletParts,
  onAck?: (eventIds: readonly string[]) => void,
  ownership?: Ownership,
): Promise<MachineRoles> {
  const { config, log, privateStore, publicStore, keys, egress, logger, metrics } = parts;
  const { lake, ingest } = await openIngest(parts, clock);
  let askRunner: AskRunner | null = null;
  const catchUp = () => ingest.pass();
  const release = async () => askRunner?.waitUntilIdle(RELEASE_TIMEOUT_MS);
  const hostShare = ownership && (await openHostShare({ log, ownership, logger, catchUp, release }));
  const networks = paidNetworks(config);
  const rail = railOn(networks, createNetworkGuard(networks));
  const memory = createMemory(lake);
  await ingest.pass();
  const classes = openClasses(parts, clock, { ...walletParts, network: networks[0]! });
  const observer = createObserver({
    ...{ log, egress, rail, wallets: walletParts.wallets, clock, memory, logger, metrics, classes: classes.classParts },
    config: await createObserverConfig(parts, lake, walletParts),
    ...(onAck ? { onAck } : {}),
    ...(hostShare ? { shared: hostShare } : {}),
  });
  await observer.recover();
  await ingest.pass();
  const origin = originOf(config.base_url);
  const publisher = createPublisher({
    ...{ privateStore, publicStore, signers: keys, clock, origin, partitions: log.partitions, logger, metrics },
    chainTime: createChainTimeReader(rail, logger),
    // True adds a line to each checkpoint (signed head of the public log) that tells that time is simulated. Once a
    // checkpoint has that line, every later one has it, also after a start in real time.
    simulatedTime: clock.simulated,
    witnesses: witnessesOf(config, { clock, logger, metrics }),
  });
  // An observer that shares the hosts with others publishes nothing.
  if (!hostShare) {
    await publisher.start();
    // The keys document is the first leaf of every public log, so that readers have it before the first signature.
    await publisher.publishKeys(keysDocument(keys.ring));
  }
  askRunner = new AskRunner({
    ...{ lake, observer, log, now: () => clock.now(), logger, metrics },
    perDomainHour: config.limits.asks_per_domain_hour,
    ...(hostShare ? { hosts: hostShare.hosts } : {}),
  });
  const pipeline = new Pipeline({
    ...{ clock, log, privateStore, publicStore, lake, memory, ingest, observer, publisher, askRunner, logger, metrics },
    caps: parseCaps(config.spend),
    priority: config.observe.priority,
    exclude: config.observe.exclude,
    ownOrigins: [new URL(config.base_url).origin],
    archive: createArchivePlace(publicStore, keys, origin, config.base_url),
  });
  const notifier = new Notifier({
    ...{ log, egress, signers: keys, clock, logger, metrics },
    tree: new PublishedTree(publicStore, archiveTrust(origin, keys)),
    perDomainMinute: config.limits.notices_per_minute,
    folds: foldFolderOf(config, log, logger),
  });
  const close = async () => {
    await notifier.stop();
    observer.stop();
    await observer.waitForShowings();
    await hostShare?.hosts.close();
    await askRunner?.waitUntilIdle();
    classes.close();
    await lake.close();
  };
  return { lake, memory, ingest, rail, observer, publisher, notifier, pipeline, close };
}
