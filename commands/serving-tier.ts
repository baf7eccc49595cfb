import type { H3 } from "h3";
import { type Clock, systemClock } from "../infra/clock.ts";
import type { Config } from "../infra/config.ts";
import { type Egress, withRequestFields } from "../infra/egress/egress.ts";
import { Failure } from "../infra/errors.ts";
import type { Jwks } from "../infra/keys/jwk.ts";
import { type Keyring, keysDocument } from "../infra/keys/keys.ts";
import type { Signer } from "../infra/keys/signer.ts";
import { ownLag, ownLoop } from "../infra/loop-watch.ts";
import { configuredNetworks, railOn } from "../infra/rails/networks.ts";
import type { RailCapabilities } from "../infra/rails/rails.ts";
import type { Logger } from "../infra/telemetry.ts";
import { originOf, trustOf } from "../infra/tree/checkpoint.ts";
import { ControlCalls } from "../pipelines/1-observe/probe/exchange.ts";
import type { ProbeDeps } from "../pipelines/1-observe/probe/probe.ts";
import { LIVE_PROBES, OWN_FETCHES } from "../pipelines/1-observe/queue.ts";
import { processReader } from "../pipelines/1-observe/reading/reader.ts";
import type { RunningRecovery } from "../pipelines/orders/recovery.ts";
import { PublishedTree } from "../pipelines/published/reader.ts";
import { registerPath } from "../pipelines/register/import.ts";
import { Register } from "../pipelines/register/register.ts";
import { foldFolderOf } from "../pipelines/roles/data-folder.ts";
import type { Parts } from "../pipelines/roles/parts.ts";
import { createAskQueue } from "../serving/answers/asks.ts";
import { Demand } from "../serving/answers/demand.ts";
import { createApp } from "../serving/app.ts";
import type { Sales } from "../serving/buy/checkout.ts";
import type { ServingDeps } from "../serving/context.ts";
import { parseProxies } from "../serving/http/limits.ts";
import { Overload } from "../serving/http/overload.ts";
import { serve } from "../serving/main.ts";
import { NO_LOG, type ServingLog } from "../serving/replica/background-log.ts";
import { openStatus, type Status } from "../serving/status/listener.ts";
import { followAsks } from "../serving/tables/ask-queue.ts";
import { Follower } from "../serving/tables/follower.ts";
import { createModelSummariser } from "../serving/work/brief/model.ts";
import { createSearchProvider } from "../serving/work/brief/search-provider.ts";
import { createExtractor } from "../serving/work/extract/extractor.ts";

/** The running serving tier: the HTTP API and the pages of a service or a replica. */
export interface ServingTier {
  app: H3;
  url: string;
  status: Status;
  /** Does the service sell calls? */
  sells: boolean;
  /** Reads the public store at once, instead of at the next interval. */
  refresh(): Promise<void>;
  close(): Promise<void>;
}

/** What the serving tier gets: no private store, no lake, and only one private key, `answers`. */
export interface ServingParts extends Pick<Parts, "config" | "egress" | "logger" | "metrics"> {
  publicStore: ServingDeps["store"];
  /** The log, to append to and to read asks and orders from; null: this replica has none, and records nothing. */
  log: ServingLog | null;
  answers: Signer;
  /**
   * Secret from which planted pages (test pages whose text only the service knows) are derived; without it none is
   * served.
   */
  pages?: Buffer | null;
  /** Public keys of the service, with their validity. */
  ring: Keyring;
  /** Set for a replica with its own mirror: the mirror's tree and keys document, used instead of those in the store. */
  proven?: { tree: Pick<PublishedTree, "newest">; jwks: () => Jwks | null };
  /** The sales; absent: nothing is sold. */
  sales?: Sales & { recovering?: Pick<RunningRecovery, "watch"> };
  /** Why nothing is sold, as a sentence for buyers. */
  unsold?: string;
  /** Set if the process has all roles (`touchstone start`). */
  role?: "start";
  /** Do other processes listen on the same port? */
  shared?: boolean;
}

/**
 * Creates the parts with which a seller's listing is checked. They pay nothing, and have their own share of outgoing
 * connections.
 */
function createListingTools(config: Config, egress: Egress): ProbeDeps {
  const listingEgress = withRequestFields(egress, { pool: LIVE_PROBES });
  const rail: RailCapabilities = railOn(configuredNetworks(config));
  return {
    egress: listingEgress,
    reader: processReader,
    loop: ownLoop,
    rail,
    control: new ControlCalls(listingEgress, config.control_urls),
  };
}

/** Pause between two attempts to get the first view, ms. */
const RETRY_MS = 500;
/** Name under which /health shows the job that continues open orders. */
export const SELL_JOB = "sell";

/**
 * Refreshes the follower until it has a first view (the record, folded for serving), since the source may be down or
 * busy.
 * @throws errors that are not retriable, such as a fork, or the record of another log
 */
async function awaitFirstView(follower: Follower, clock: Clock, logger: Pick<Logger, "warn">): Promise<void> {
  for (let isWarned = false; ; isWarned = true) {
    const failure = await follower.refresh().then(
      () => null,
      (error: unknown) => error,
    );
    if (failure !== null && !(failure instanceof Failure && failure.retriable)) throw failure;
    if (follower.snapshot) return;
    if (!isWarned) logger.warn({ err: failure }, "there is no record to serve yet; it is requested until there is one");
    await clock.sleep(RETRY_MS);
  }
}

/**
 * Opens the serving tier: the HTTP API and the pages, answered from the public store. It opens neither a private store
 * nor a lake, and signs only with the key `answers`. It appends to the log, and reads asks and orders from it.
 */
export async function openServing(parts: ServingParts, clock: Clock): Promise<ServingTier> {
  const { config, metrics } = parts;
  // Health is measured in real time, also while the record's time is simulated.
  const statusOptions = { role: parts.role ?? ("serve" as const), clock: systemClock, metrics, listen: true };
  const status = await openStatus(config, statusOptions, "follow");
  try {
    return await openTier(parts, clock, status);
  } catch (error) {
    await status.close();
    throw error;
  }
}

async function openTier(parts: ServingParts, clock: Clock, status: Status): Promise<ServingTier> {
  const { config, publicStore, answers, ring, egress, logger, metrics, proven } = parts;
  const log = parts.log ?? NO_LOG;
  const origin = originOf(config.base_url);
  const tree = proven?.tree ?? new PublishedTree(publicStore, trustOf(origin, ring, clock.now()));
  const during = (look: () => Promise<boolean>) => status.pulse.during("follow", look);
  const follower = new Follower({ tree, store: publicStore, origin, clock, logger, metrics, during });
  const jwks = () => proven?.jwks() ?? keysDocument(ring);
  const { limits } = config;
  const askLine = createAskQueue(limits);
  if (parts.sales?.recovering) {
    status.pulse.setRequired(SELL_JOB);
    parts.sales.recovering.watch((failure) =>
      failure === null ? status.pulse.done(SELL_JOB) : status.pulse.failed(SELL_JOB, failure),
    );
  }
  const demand = parts.log ? new Demand({ log, clock, logger }) : null;
  const register = new Register({ path: registerPath(config.data_dir), clock: systemClock });
  const { model, search } = config.brief;
  const workshop = {
    ...{ egress: withRequestFields(egress, { pool: OWN_FETCHES }), extractor: createExtractor(), register },
    ...(model ? { summariser: createModelSummariser(model) } : {}),
    ...(search ? { search: createSearchProvider(search) } : {}),
  };
  const overload = new Overload(ownLag, metrics);
  const app = createApp({
    askQueue: askLine,
    overload,
    ...(demand ? { demand } : {}),
    store: publicStore,
    follower,
    log,
    answers,
    validateUrl: (url) => egress.validate(url),
    ...(parts.sales ? { sales: parts.sales, workshop } : {}),
    ...(parts.unsold === undefined ? {} : { whyNotSold: parts.unsold }),
    receivers: { egress, log, allowPlainHttp: config.allow_loopback },
    ...(parts.log ? { folds: foldFolderOf(config, log, logger) } : {}),
    jwks,
    ...(parts.pages ? { plantedPageSecret: parts.pages } : {}),
    clock,
    logger,
    metrics,
    baseUrl: config.base_url,
    agent: config.agent,
    looks: createListingTools(config, egress),
    ownAddresses: [`http://${config.host.includes(":") ? `[${config.host}]` : config.host}:${config.port}`],
    limits,
  });
  // Before its first view, a replica would answer that no endpoint is known.
  if (proven) await awaitFirstView(follower, clock, logger);
  const proxies = parseProxies(limits.trusted_proxies);
  const { port, host } = config;
  const shared = parts.shared === true;
  const server = await serve({ app, port, host, limits, proxies, metrics, overload, shared });
  follower.start();
  const askFollower = parts.log ? followAsks(log, askLine, logger) : null;
  demand?.start();
  return {
    app,
    url: server.url,
    status,
    sells: parts.sales !== undefined,
    refresh: async () => void (await follower.refresh()),
    close: async () => {
      await server.close();
      overload.close();
      await askFollower?.stop();
      await demand?.stop();
      await follower.stop();
      await workshop.extractor.close();
      register.close();
      await status.close();
    },
  };
}
