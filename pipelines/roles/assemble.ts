import type { Clock } from "../../infra/clock.ts";
import { keysDocument } from "../../infra/keys/keys.ts";
import { type Lake, openLake } from "../../infra/lake/duckdb.ts";
import { sql } from "../../infra/lake/sql.ts";
import type { Ownership } from "../../infra/log/ownership.ts";
import { confirmedNetworks } from "../../infra/rails/network-checks.ts";
import { paidNetworks, railOn } from "../../infra/rails/networks.ts";
import type { Rail, Wallets } from "../../infra/rails/rails.ts";
import { AskLine } from "../1-observe/ask-line.ts";
import { shareHosts } from "../1-observe/hosts.ts";
import { createObserver, type Observer } from "../1-observe/observer.ts";
import type { Caps } from "../1-observe/plan/spend.ts";
import { createIngest, type Ingest } from "../2-ingest/ingest.ts";
import { INGEST_TABLES } from "../2-ingest/load.ts";
import { createMemory } from "../2-ingest/memory.ts";
import type { ChainTime } from "../4-publish/clocks.ts";
import { createPublisher, type Publisher } from "../4-publish/publisher.ts";
import { movedOut } from "../5-archive/follow.ts";
import { archiveFold, archivePlace, trustOf } from "../5-archive/place.ts";
import { Notifier } from "../6-notify/notifier.ts";
import { PublishedTree } from "../published/reader.ts";
import type { Memory } from "../record/memory.ts";
import { parseMoney } from "../record/money.ts";
import { classesOf } from "./classes.ts";
import { folders, foldsOf, type Parts } from "./parts.ts";
import { Pipeline } from "./pipeline.ts";

/** Where the money goes and comes from: the settings of a deployment, or the demo's own chain. */
export interface Money {
  wallets: Wallets;
  controlUrls: readonly string[];
  /** Address under which planted pages are reached; default: that of the service. */
  pagesAt?: string;
  /** Pauses (real ms) between looks at the chain after a paid call; a chain that mines at once needs no long ones. */
  settlePollMs?: readonly number[];
}

export interface Assembled {
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

/** Longest wait for looks at asked urls before their hosts are another observer's, real ms. */
const RELEASE_MS = 60_000;

export const capsOf = (spend: Parts["config"]["spend"]): Caps => ({
  perCall: parseMoney(spend.per_call),
  perHostDay: parseMoney(spend.per_host_day),
  perDomainDay: parseMoney(spend.per_domain_day),
  perPayeeDay: parseMoney(spend.per_payee_day),
  perDay: parseMoney(spend.per_day),
  total: parseMoney(spend.total),
  // A share with six decimals is written like money.
  newShare: parseMoney(spend.new_share),
});

/** Origin of the tree: the base address without its scheme (publication.md). */
export const originOf = (baseUrl: string): string => baseUrl.replace(/^https?:\/\//, "").replace(/\/+$/, "");

/** What the chain's newest block says of the time; null when it cannot be asked. */
export const chainTimeOf =
  (rail: Pick<Rail, "head" | "network">, logger: Parts["logger"]) => async (): Promise<ChainTime | null> => {
    try {
      const head = await rail.head({ network: rail.network });
      return { newest: new Date(head.time * 1000), fixedBlockTime: true };
    } catch (error) {
      // The chain only cross-checks our clock here; what was graded is published without it.
      logger.warn({ err: error }, "the chain's time could not be read");
      return null;
    }
  };

/** The lake and the way into it: all that ingest, redrive, rebuild and gap need. Nothing is read yet. */
export async function openIngest(parts: Parts, clock: Clock): Promise<{ lake: Lake; ingest: Ingest }> {
  const { config, log, privateStore, logger, metrics } = parts;
  const lake = await openLake(folders(config.data_dir).lake, {
    memoryLimit: config.lake.memory_limit,
    threads: config.lake.threads,
    init: INGEST_TABLES,
  });
  const ownHosts = [new URL(config.base_url).host];
  const trust = trustOf(originOf(config.base_url), parts.keys);
  const moved = movedOut(() => archiveFold(parts.publicStore, trust));
  return { lake, ingest: createIngest({ log, privateStore, lake, clock, logger, metrics, ownHosts, moved }) };
}

/**
 * All roles of the pipeline over one set of parts, recovered and caught up: the lake has everything the log holds, and
 * payments that an earlier process left open have become our own fault.
 * @param ownership where several observers share the hosts: this one's part of them, closed with the rest
 */
export async function assemble(
  parts: Parts,
  clock: Clock,
  money: Money,
  onAck?: (eventIds: readonly string[]) => void,
  ownership?: Ownership,
): Promise<Assembled> {
  const { config, log, privateStore, publicStore, keys, logger, metrics } = parts;
  const { lake, ingest } = await openIngest(parts, clock);
  let askLine: AskLine | null = null;
  const shared =
    ownership &&
    (await shareHosts({
      ...{ log, ownership, logger },
      catchUp: () => ingest.pass(),
      release: async () => askLine?.idle(RELEASE_MS),
    }));
  const networks = paidNetworks(config);
  const rail = railOn(networks, confirmedNetworks(networks));
  const memory = createMemory(lake);
  const ownOrigins = [new URL(config.base_url).origin];
  await ingest.pass();
  const caps = capsOf(config.spend);
  const [spent] = await lake.all<{ micro: bigint }>(sql("queries/spending:ever"));
  const classes = classesOf(parts, clock, { ...money, network: networks[0]! });
  const observer = createObserver({
    log,
    egress: parts.egress,
    rail,
    wallets: money.wallets,
    clock,
    memory,
    config: {
      producer: "touchstone/1",
      controlUrls: money.controlUrls,
      caps,
      spentBefore: spent?.micro ?? 0n,
      hostsAtOnce: config.observe.hosts_at_once,
      payeesPerLook: config.observe.payees_per_hour,
      secret: parts.secret,
      ...(money.settlePollMs ? { settlePollMs: money.settlePollMs } : {}),
    },
    classes: classes.of,
    logger,
    metrics,
    ...(onAck ? { onAck } : {}),
    ...(shared ? { shared } : {}),
  });
  await observer.recover();
  await ingest.pass();
  const publisher = createPublisher({
    privateStore,
    publicStore,
    signers: keys,
    clock,
    origin: originOf(config.base_url),
    partitions: log.partitions,
    logger,
    metrics,
    chainTime: chainTimeOf(rail, logger),
    // Checkpoints say it for good from the first one on: a later start in real time leaves it standing.
    simulatedTime: clock.simulated,
  });
  // One of several observers publishes nothing.
  if (!shared) {
    await publisher.start();
    // The first leaf of every log: whoever reads from the beginning has the keys before the first signature.
    await publisher.publishKeys(keysDocument(keys.ring));
  }
  askLine = new AskLine({
    ...{ lake, observer, log, now: () => clock.now(), logger, metrics },
    perDomainHour: config.limits.asks_per_domain_hour,
    ...(shared ? { hosts: shared.hosts } : {}),
  });
  const pipeline = new Pipeline({
    clock,
    log,
    privateStore,
    publicStore,
    lake,
    memory,
    ingest,
    observer,
    publisher,
    askLine,
    caps,
    priority: config.observe.priority,
    exclude: config.observe.exclude,
    logger,
    metrics,
    ownOrigins,
    archive: archivePlace(publicStore, keys, originOf(config.base_url), config.base_url),
  });
  const notifier = new Notifier({
    ...{ log, egress: parts.egress, signers: keys, clock, logger, metrics },
    tree: new PublishedTree(publicStore, trustOf(originOf(config.base_url), keys)),
    perDomainMinute: config.limits.notices_per_minute,
    folds: foldsOf(config, log, logger),
  });
  const close = async () => {
    await notifier.stop();
    observer.stop();
    await shared?.hosts.close();
    await askLine?.idle();
    classes.close();
    await lake.close();
    await rail.close();
  };
  return { lake, memory, ingest, rail, observer, publisher, notifier, pipeline, close };
}
