import type { Clock } from "../../infra/clock.ts";
import { type Config, ConfigError } from "../../infra/config.ts";
import { type Sources, whyNotBindable } from "../../infra/egress/address.ts";
import type { Egress } from "../../infra/egress/egress.ts";
import { createEgressThread } from "../../infra/egress/thread.ts";
import {
  hasSecret,
  type Keyring,
  type Keys,
  loadKeys,
  loadSecret,
  loadSigner,
  readRing,
  verifyOnlyKeys,
} from "../../infra/keys/keys.ts";
import type { KnownLog, Log } from "../../infra/log/log.ts";
import { openLog } from "../../infra/log/open.ts";
import { openStore } from "../../infra/store/open.ts";
import { withMissingAsNull } from "../../infra/store/refusal-reader.ts";
import type { Store } from "../../infra/store/store.ts";
import { createLogger, createMetrics, type Logger, type Metrics } from "../../infra/telemetry.ts";
import { type CheckpointTrust, originOf, trustOf } from "../../infra/tree/checkpoint.ts";
import { egressLimits } from "../1-observe/queue.ts";
import { CHECKPOINT } from "../published/objects.ts";
import { LOG_TOPIC_OPTIONS } from "../record/topics.ts";
import { foldersOf, OBSERVER_SECRET_NAME, PAGES_SECRET_NAME } from "./data-folder.ts";
import {
  checkRecord,
  knownLogOf,
  knownLogOfPublished,
  markPrivate,
  refuseLostStores,
  refuseOtherOrders,
} from "./record-identity.ts";

/** Log, stores, keys and other parts that the roles share, opened from the settings. */
export interface Parts {
  config: Config;
  clock: Clock;
  log: Log;
  privateStore: Store;
  publicStore: Store;
  keys: Keys;
  /** The secret from which known answers, wallets and opaque names are derived. */
  secret: Buffer;
  /**
   * The secret from which the content of planted pages (pages of ours that test endpoints that read pages) is
   * derived; null if no page is planted.
   */
  pages: Buffer | null;
  egress: Egress;
  logger: Logger;
  metrics: Metrics;
  close(): Promise<void>;
}

/**
 * Reads the secret of planted pages; null if the operator provided none. Then no page is planted or served here.
 * @throws Failure `keys`
 */
function readPagesSecret(dir: string): Buffer | null {
  return hasSecret(dir, PAGES_SECRET_NAME) ? loadSecret(dir, PAGES_SECRET_NAME) : null;
}

/**
 * Opens parts one after the other. `close` closes them in reverse order; if opening fails, the opened parts are closed.
 */
async function openAll<T>(open: (keep: KeepOpened, close: () => Promise<void>) => Promise<T>): Promise<T> {
  const openedParts: Closable[] = [];
  const keep = <P extends Closable>(part: P): P => {
    openedParts.unshift(part);
    return part;
  };
  const close = async () => {
    for (const part of openedParts.splice(0)) await part.close();
  };
  try {
    return await open(keep, close);
  } catch (error) {
    await close();
    throw error;
  }
}

type KeepOpened = <P extends Closable>(part: P) => P;

interface Closable {
  close(): Promise<void>;
}

/**
 * Finds faults of the settings of local addresses from which the observer connects: an address that this machine does
 * not have, or an address that both known calls and blind calls (from which the seller must not recognise us) could
 * use. Each fault has the name of its setting.
 */
export async function findSourceProblems({
  observe,
}: Pick<Config, "observe">): Promise<[setting: string, says: string][]> {
  const { known_addresses: knownAddresses, blind_addresses: blindAddresses } = observe;
  const problems: [string, string][] = [];
  for (const name of ["known_addresses", "blind_addresses"] as const)
    for (const address of observe[name]) {
      const reason = await whyNotBindable(address);
      if (reason !== null) problems.push([`observe.${name}`, `${address} is no address of this machine (${reason})`]);
    }
  const sharedAddresses = blindAddresses.filter((address) => knownAddresses.includes(address));
  if (sharedAddresses.length > 0)
    problems.push(["observe.blind_addresses", `${sharedAddresses.join(", ")} would tell who calls: it is a known one`]);
  if (blindAddresses.length > 0 && knownAddresses.length === 0) {
    const says = "to be named too, else the system may choose a blind one for known calls";
    problems.push(["observe.known_addresses", says]);
  }
  return problems;
}

/**
 * Reads the local addresses from which the observer connects: `declared` for known calls, `stock` for blind calls.
 * @throws ConfigError for the faults that {@link findSourceProblems} finds
 */
async function readCheckedSources(config: Config): Promise<Sources> {
  const problems = (await findSourceProblems(config)).map(([name, says]) => `${name}: ${says}`);
  if (problems.length > 0) throw new ConfigError(problems);
  return { declared: config.observe.known_addresses, stock: config.observe.blind_addresses };
}

/**
 * Opens the configured HTTP client for requests to strangers' addresses.
 * @throws ConfigError
 */
export function createConfiguredEgress(config: Config, sources?: Sources): Egress {
  const { allow_loopback: allowLoopback, resolve_to: address } = config;
  if (address !== null && !allowLoopback) throw new ConfigError(["resolve_to: only together with allow_loopback"]);
  const looksAtOnce = config.limits.looks_at_once;
  return createEgressThread({
    allowLoopback,
    extraPorts: config.ports,
    userAgent: `touchstone (+${config.base_url})`,
    ...egressLimits(config.observe.hosts_at_once, looksAtOnce),
    ...(address === null ? {} : { resolveTo: address }),
    ...(sources && { sources }),
  });
}

/** True: the role writes to the public store; false: it only reads it. */
type WritesPublicStore = boolean;

/**
 * Opens log and stores after checking that they belong together. If parts of a published record exist and others are
 * missing, the missing ones are not created anew.
 * @throws Failure `record`, LogRefused, LogBusy and errors of the adapters
 */
async function openRecord(
  config: Config,
  logger: Logger,
  ring: Keyring,
  writesPublicStore: WritesPublicStore,
  keep: KeepOpened,
) {
  const folders = foldersOf(config.data_dir);
  const privateStore = keep(await openStore(config, "private", folders.private));
  const publicStore = keep(
    writesPublicStore ? await openStore(config, "public", folders.public) : await openPublicReader(config),
  );
  const identity = await checkRecord({ privateStore, publicStore, ring, origin: originOf(config.base_url) });
  const log = keep(await openLog(config, LOG_TOPIC_OPTIONS, folders.log, logger, knownLogOf(identity)));
  await refuseLostStores(identity, log);
  await markPrivate(privateStore, identity, log);
  return { log, privateStore, publicStore };
}

/**
 * Opens the parts for a process that has all roles of the pipeline.
 * @throws Failure `keys`, Failure `record`, LogRefused, LogBusy and errors of the adapters
 */
export function openParts(config: Config, clock: Clock): Promise<Parts> {
  const folders = foldersOf(config.data_dir);
  return openPipelineParts(config, clock, loadKeys(folders.keys), true);
}

/**
 * Opens the parts of an observer (which probes and pays endpoints) that shares the hosts with other observers: the
 * public keys, the secret from which the wallets are derived, and the public store for reading only.
 * @throws Failure `keys` and errors of the adapters
 */
export function openObserverParts(config: Config, clock: Clock): Promise<Parts> {
  const folders = foldersOf(config.data_dir);
  return openPipelineParts(config, clock, verifyOnlyKeys(readRing(folders.keys)), false);
}

/**
 * Opens the parts of a command that writes no public object: on a single machine those of all roles; if several
 * machines share the log (setting `log`), those of an observer, so that the command needs no private key.
 * @throws Failure `keys` and errors of the adapters
 */
export const openCommandParts = (config: Config, clock: Clock): Promise<Parts> =>
  (config.log === null ? openParts : openObserverParts)(config, clock);

function openPipelineParts(
  config: Config,
  clock: Clock,
  keys: Keys,
  writesPublicStore: WritesPublicStore,
): Promise<Parts> {
  const folders = foldersOf(config.data_dir);
  const secret = loadSecret(folders.keys, OBSERVER_SECRET_NAME);
  const logger = createLogger(config.log_level);
  return openAll(async (keep, close) => ({
    config,
    clock,
    ...(await openRecord(config, logger, keys.ring, writesPublicStore, keep)),
    keys,
    secret,
    pages: readPagesSecret(folders.keys),
    egress: keep(createConfiguredEgress(config, await readCheckedSources(config))),
    logger,
    metrics: writesPublicStore
      ? createMetrics(...MACHINE_METRICS, ...sellMetrics(config))
      : createMetrics("observe", "ingest"),
    close,
  }));
}

/** Names of the groups of metrics of a process that has all roles. */
const MACHINE_METRICS = ["observe", "ingest", "grade", "publish", "serve"] as const;
const sellMetrics = ({ sell }: Config) => (sell.network === null ? [] : (["sell"] as const));

/** Opens the public store for a role that only reads it. It works with and without credentials. */
const openPublicReader = async (config: Config): Promise<Store> =>
  withMissingAsNull(await openStore(config, "public", foldersOf(config.data_dir).public, false), CHECKPOINT);

/**
 * Opens the parts of a publisher: the signing keys, and the HTTP client for notices, but no secret from which wallets
 * are derived.
 * @throws Failure `keys`
 */
export const openPublisherParts = async (config: Config, clock: Clock) => {
  const egress = createConfiguredEgress(config);
  const keys = loadKeys(foldersOf(config.data_dir).keys);
  const parts = await openWritingParts(config, clock, { keys, egress }, keys.ring, createMetrics("publish"));
  return { ...parts, close: () => egress.close().then(parts.close) };
};

/**
 * Opens the parts of an owner (which ingests and grades some partitions): the public keys, but no private key and no
 * secret.
 * @throws Failure `keys`
 */
export const openOwnerParts = (config: Config, clock: Clock) => {
  const ring = readRing(foldersOf(config.data_dir).keys);
  return openWritingParts(config, clock, { ring }, ring, createMetrics("ingest", "grade"));
};

/**
 * Returns a function that returns the keys that verify checkpoints now. It reads the keyring at each call, so that a
 * process that follows the record needs no restart after a rotation of the keys for log or witness. The function
 * throws Failure `keys` when the keyring cannot be read.
 */
export const createTrustReader = (config: Config, clock: Clock) => (): CheckpointTrust =>
  trustOf(originOf(config.base_url), readRing(foldersOf(config.data_dir).keys), clock.now());

/** Opens the log and both stores for a role that writes to them. The result also has the members of `moreParts`. */
function openWritingParts<H extends object>(
  config: Config,
  clock: Clock,
  moreParts: H,
  ring: Keyring,
  metrics: Metrics,
) {
  const logger = createLogger(config.log_level);
  return openAll(async (keep, close) => ({
    clock,
    ...(await openRecord(config, logger, ring, true, keep)),
    ...moreParts,
    logger,
    metrics,
    close,
  }));
}

/** Reads only the key that signs answers. @throws Failure `keys` */
function readAnswerSigner(config: Config) {
  const dir = foldersOf(config.data_dir).keys;
  const ring = readRing(dir);
  const currentKey = ring.keys.find((key) => key.purpose === "answers" && key.retired_at === undefined)!;
  return { ring, answers: loadSigner(dir, currentKey) };
}

/**
 * Opens the parts of a serving process (which answers clients): no private store, of the keys only the one that signs
 * answers, and the secret of planted pages, if there is one. If the process sells, it also gets the secret from which
 * buyers' pseudonyms are derived, and may write bought calls to the public store.
 */
export function openServingParts(config: Config) {
  const sells = config.sell.network !== null;
  const folders = foldersOf(config.data_dir);
  const keys = readAnswerSigner(config);
  const logger = createLogger(config.log_level);
  return openAll(async (keep, close) => {
    const publicStore = keep(
      sells ? await openStore(config, "public", folders.public) : await openPublicReader(config),
    );
    const knownLog: KnownLog = await knownLogOfPublished(publicStore, keys.ring, originOf(config.base_url));
    return {
      config,
      log: keep(await openLog(config, LOG_TOPIC_OPTIONS, folders.log, logger, knownLog)),
      publicStore,
      secret: sells ? loadSecret(folders.keys, OBSERVER_SECRET_NAME) : null,
      egress: keep(createConfiguredEgress(config)),
      pages: readPagesSecret(folders.keys),
      ...keys,
      logger,
      metrics: createMetrics("serve", ...sellMetrics(config)),
      close,
    };
  });
}

/**
 * Opens the store of the request bodies and answers of bought calls, for a process that sells.
 * @throws Failure `record`, and errors of the adapters
 */
export async function openOrdersStore(config: Config, log: Pick<Log, "id" | "partitions">): Promise<Store> {
  const store = await openStore(config, "orders", foldersOf(config.data_dir).orders);
  try {
    await refuseOtherOrders(store, log);
    return store;
  } catch (error) {
    await store.close();
    throw error;
  }
}

/** Opens the parts of a serving process that reads from its own mirror and needs neither our stores nor our log. */
export function openReplicaParts(config: Config) {
  const keys = readAnswerSigner(config);
  return openAll(async (keep, close) => ({
    config,
    egress: keep(createConfiguredEgress(config)),
    ...keys,
    logger: createLogger(config.log_level),
    metrics: createMetrics("serve", "replica"),
    keep,
    close,
  }));
}
