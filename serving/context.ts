import { fileURLToPath } from "node:url";
import type { Clock } from "../infra/clock.ts";
import { DEFAULT_LIMITS, type Limits } from "../infra/config.ts";
import type { Egress } from "../infra/egress/egress.ts";
import type { Jwks } from "../infra/keys/jwk.ts";
import type { Signer } from "../infra/keys/signer.ts";
import type { FoldFolder } from "../infra/log/fold-file.ts";
import type { Log } from "../infra/log/log.ts";
import type { Store } from "../infra/store/store.ts";
import type { Logger, Metrics } from "../infra/telemetry.ts";
import type { ProbeDeps } from "../pipelines/1-observe/probe/probe.ts";
import { createReader } from "../pipelines/1-observe/reading/reader.ts";
import { Asks } from "./answers/asks.ts";
import { Checks } from "./answers/check.ts";
import type { Demand } from "./answers/demand.ts";
import { Disputes } from "./answers/disputes.ts";
import { Evaluations } from "./answers/evaluate.ts";
import { Exposures } from "./answers/exposure.ts";
import { failuresOf } from "./answers/failures.ts";
import { ListingChecks } from "./answers/listing-check.ts";
import { PublicObjects } from "./answers/objects.ts";
import { Retests } from "./answers/retests.ts";
import { searchIn } from "./answers/search.ts";
import { Watchers } from "./answers/watchers.ts";
import type { Sales } from "./buy/checkout.ts";
import { termsOf } from "./buy/eligible.ts";
import { PayOnDelivery } from "./buy/pay-on-delivery.ts";
import { type ClientFile, readClientFile, readProveFile, withHashes } from "./client-file.ts";
import type { CacheBounds } from "./http/answer-cache.ts";
import { clientKeyOf, Limiter, parseProxies } from "./http/limits.ts";
import type { Overload } from "./http/overload.ts";
import { Streams } from "./http/streams.ts";
import { type Doc, readDocs } from "./pages/docs.ts";
import { StatusFigures } from "./pages/status-figures.ts";
import { NO_LOG, type ServingLog } from "./replica/background-log.ts";
import type { SearchAnswer, SearchQuery } from "./schemas/search.ts";
import type { AskQueue } from "./tables/ask-queue.ts";
import type { Follower } from "./tables/follower.ts";
import { HistoryTables } from "./tables/history.ts";
import { PaidRows } from "./tables/paid-rows.ts";
import type { View } from "./tables/view.ts";
import { createDocsCorpus } from "./work/brief/corpus.ts";
import type { RecordParts } from "./work/brief/record-documents.ts";
import { extractive } from "./work/brief/summariser.ts";
import { Receipts } from "./work/receipts.ts";
import type { WorkDeps } from "./work/work.ts";

/** Limits on requests to the service: those that an operator sets (infra/config.ts), and fixed ones. */
export interface ServingLimits extends Limits {
  /**
   * Requests of one client in a minute for operations without a limit of their own: pages, cards, objects of the log.
   */
  reads_per_minute: number;
  /** Disputes that one client may send in an hour. */
  disputes_per_hour: number;
  /** Requests for a price or a bought call that one client may send in a minute. */
  buys_per_minute: number;
  /** Price requests to the sellers of one domain in a minute, for all clients together. */
  quotes_per_domain_minute: number;
  /** Fallbacks (a second seller after the first one failed) in an hour: of one wallet's orders, and of all orders. */
  fallbacks_per_hour: { payer: number; all: number };
  /** Answers that one client may have evaluated in a minute. */
  evaluations_per_minute: number;
}

const SERVING_LIMITS: ServingLimits = {
  ...DEFAULT_LIMITS,
  reads_per_minute: 6000,
  disputes_per_hour: 20,
  buys_per_minute: 120,
  quotes_per_domain_minute: 240,
  fallbacks_per_hour: { payer: 20, all: 600 },
  evaluations_per_minute: 20,
};

/**
 * Everything that serving may use. The database of observations (the lake) is not among it. Without `sales`, serving
 * has no private store, no wallet, and no key except `answers`.
 */
export interface ServingDeps {
  /** The public store. */
  store: Pick<Store, "get" | "getRange" | "head">;
  follower: Follower;
  log: Pick<Log, "append" | "read" | "partitions">;
  /** Signs answers. */
  answers: Signer;
  validateUrl: Egress["validate"];
  /** Returns the current keys document. */
  jwks: () => Jwks;
  clock: Clock;
  logger: Logger;
  metrics: Metrics;
  /** Address of the service without a trailing slash, from which absolute links are made. */
  baseUrl: string;
  /** ERC-8004 agent that was minted for this service, `REGISTRY/ID`. */
  agent?: string | null;
  limits?: Partial<ServingLimits>;
  cache?: CacheBounds;
  /**
   * The queue of asks (urls that wait for a free probe), computed from the log. Without it a replica knows only the
   * asks that it appended itself.
   */
  askQueue?: AskQueue;
  /** Counts which endpoints clients check; absent: nothing is counted. */
  demand?: Demand;
  /** The parts needed to probe a listing; absent: this process probes nothing. */
  looks?: ProbeDeps;
  /** Addresses of this service in addition to `baseUrl`. */
  ownAddresses?: readonly string[];
  /** How receivers of watchers are reached, and the log that holds watchers; absent: no watcher is accepted. */
  receivers?: { egress: Pick<Egress, "fetch">; log: ServingLog; allowPlainHttp: boolean };
  /**
   * Folder in which tables that are computed from the log (folds) are saved; absent: each start reads their topics
   * from the beginning.
   */
  folds?: FoldFolder;
  /** The parts needed to buy calls; absent: nothing is sold. */
  sales?: Sales;
  /** Why nothing is sold, as a sentence for a client that wants to buy. */
  whyNotSold?: string;
  /** The parts needed for our own paid operations, in addition to the rest; absent: there are none. */
  workshop?: Pick<WorkDeps, "egress" | "extractor" | "register"> & Partial<Pick<WorkDeps, "summariser" | "search">>;
  /**
   * Secret from which planted pages (pages that test endpoints that read pages) are computed; absent: none is served.
   */
  plantedPageSecret?: Uint8Array;
  /** Detects whether this process is overloaded; absent: no request is refused for that. */
  overload?: Pick<Overload, "refuseFree">;
  /** Folder of the documentation (default: `docs/` of the project). */
  docsDir?: string;
  /** The client library (default: the built file); null: none is served. */
  clientFile?: ClientFile | null;
  /** The script that verifies a card in a page (default: the built file); null: none is served. */
  proveFile?: ClientFile | null;
}

/** The parts that operations share. */
export interface Service extends Omit<ServingDeps, "looks" | "clientFile" | "proveFile"> {
  /** null: nothing is sold here. */
  payOnDelivery: PayOnDelivery | null;
  /** Returns how a call of an endpoint is bought here, or why it cannot be. */
  termsOf: ReturnType<typeof termsOf>;
  /** The parts of our own paid operations; null: this process has none of them. */
  work: WorkDeps | null;
  /** Answers a search of the record. */
  search(view: View, query: SearchQuery): Promise<SearchAnswer>;
  buyLimiter: Limiter;
  checks: Checks;
  evaluations: Evaluations;
  evaluateLimiter: Limiter;
  exposures: Exposures;
  objects: PublicObjects;
  streams: Streams;
  history: HistoryTables;
  paidRows: PaidRows;
  /** Pages of the documentation by their name below /docs/. */
  docs: ReadonlyMap<string, Doc>;
  clientFile: ClientFile | null;
  proveFile: ClientFile | null;
  checkLimiter: Limiter;
  readLimiter: Limiter;
  exposureLimiter: Limiter;
  disputes: Disputes;
  disputeLimiter: Limiter;
  retests: Retests;
  statusFigures: StatusFigures;
  listingChecks: ListingChecks;
  listingCheckLimiter: Limiter;
  watchers: Watchers;
  /** Returns the key by which limits count a client, from its socket address and its X-Forwarded-For header. */
  clientKeyOf: (peer: string | undefined, forwarded: string | null) => string;
}

const PROJECT_DOCS = fileURLToPath(new URL("../docs", import.meta.url));

export function createService(deps: ServingDeps): Service {
  const limits = { ...SERVING_LIMITS, ...deps.limits };
  const { follower, log, store, validateUrl, clock, logger, metrics, demand, sales, answers: signer } = deps;
  const view = () => follower.view;
  const monotonicNow = () => clock.monotonic();
  const createLimiter = (name: string, quota: number, windowS = 60) =>
    new Limiter({ name, quota, windowS }, monotonicNow);
  const proxies = parseProxies(limits.trusted_proxies);
  const streams = new Streams(limits, monotonicNow, metrics);
  const baseUrl = deps.baseUrl.replace(/\/+$/, "");
  const serviceOrigin = new URL(deps.baseUrl).origin;
  const clientFile = deps.clientFile === undefined ? readClientFile() : deps.clientFile;
  const proveFile = deps.proveFile === undefined ? readProveFile() : deps.proveFile;
  const docs = readDocs(deps.docsDir ?? PROJECT_DOCS, (markdown) => withHashes(markdown, clientFile, proveFile));
  const asks = new Asks({
    ...{ log, clock, logger, baseUrl, limits, producer: "serving" },
    lastProbeTime: (cap) => view().row(cap)?.last_seen ?? null,
    ...(deps.askQueue ? { queue: deps.askQueue } : {}),
  });
  const terms = termsOf({ ...deps, baseUrl });
  const checks = new Checks({
    ...{ view, asks, demand, validateUrl, signer, clock },
    termsOf: terms,
    ...(deps.cache ? { bounds: deps.cache } : {}),
  });
  const dependencyLimiter = createLimiter("dependencies", limits.dependencies_per_minute);
  const paidRows = new PaidRows(store);
  const search = (searchedView: View, query: SearchQuery): Promise<SearchAnswer> =>
    searchIn(searchedView, query, { now: clock.now(), termsOf: terms });
  return {
    ...deps,
    baseUrl,
    termsOf: terms,
    checks,
    exposures: new Exposures({ view, checks, demand, limiter: dependencyLimiter, signer, clock }),
    evaluations: new Evaluations({ view, reader: createReader(), truths: () => deps.sales?.seller.truths }),
    evaluateLimiter: createLimiter("evaluations", limits.evaluations_per_minute),
    objects: new PublicObjects(store, streams),
    streams,
    history: new HistoryTables(store, logger),
    paidRows,
    search,
    docs,
    clientFile,
    proveFile,
    checkLimiter: createLimiter("check", limits.checks_per_minute),
    exposureLimiter: createLimiter("exposure", limits.exposures_per_minute),
    readLimiter: createLimiter("read", limits.reads_per_minute),
    disputes: new Disputes({ log, view, clock, logger, service: serviceOrigin }),
    disputeLimiter: createLimiter("disputes", limits.disputes_per_hour, 3600),
    retests: new Retests({ view, asks, validateUrl, clock, service: serviceOrigin }),
    statusFigures: new StatusFigures(clock),
    listingChecks: new ListingChecks({
      ...{ view, validateUrl, clock, metrics, limits, probeDeps: deps.looks ?? null },
      ownAddresses: [deps.baseUrl, ...(deps.ownAddresses ?? [])],
    }),
    listingCheckLimiter: createLimiter("looks", limits.looks_per_hour, 3600),
    watchers: createWatchers(deps, limits),
    payOnDelivery: sales
      ? new PayOnDelivery(sales, {
          ...{ view, clock, baseUrl },
          quotesPerDomainMinute: limits.quotes_per_domain_minute,
          cancellationsPerHour: limits.fallbacks_per_hour,
        })
      : null,
    work: createWork(deps, docs, {
      ...{ baseUrl, checks, search },
      failures: async (searchedView, cap, limit) => {
        const page = await failuresOf(searchedView, cap, paidRows, { limit, baseUrl, ...BRIEF_READS });
        return { schema: "svc.trust.failures.v1", capability_id: cap, ...page };
      },
    }),
    buyLimiter: createLimiter("buys", limits.buys_per_minute),
    clientKeyOf: (peer, forwarded) => clientKeyOf(peer, forwarded, proxies),
  };
}

/** Limits on uncached evidence files that the paid operation research/brief may read for one endpoint. */
const BRIEF_READS = { maxFiles: 16, maxBytes: 16 * 1024 * 1024 };

/** Creates the parts of our own paid operations; null when there are none. */
function createWork(
  { workshop, sales, log, answers, clock, follower }: ServingDeps,
  docs: ReadonlyMap<string, Doc>,
  record: Omit<RecordParts, "view" | "clock">,
): WorkDeps | null {
  if (!workshop) return null;
  const corpus = createDocsCorpus({ docs, baseUrl: record.baseUrl, extractor: workshop.extractor, clock });
  const parts = { ...record, view: () => follower.view, clock };
  const receipts = sales ? new Receipts({ log, bodies: sales.bodies, clock, baseUrl: record.baseUrl }) : null;
  return { summariser: extractive, ...workshop, signer: answers, clock, corpus, record: parts, receipts };
}

/**
 * Stands in for receivers when watchers are not accepted. Nothing is sent to a receiver, since its answer could not
 * be recorded.
 */
const NO_RECEIVERS = {
  log: NO_LOG,
  allowPlainHttp: false,
  egress: { fetch: async () => ({ outcome: "refused" as const, says: "not from here", totalMs: 0, sent: false }) },
};

function createWatchers(deps: ServingDeps, limits: Limits): Watchers {
  const { follower, validateUrl, answers, clock, logger, baseUrl, folds, receivers = NO_RECEIVERS } = deps;
  return new Watchers({
    ...{ ...receivers, validateUrl, signer: answers, clock, logger, limits, folds },
    view: () => follower.view,
    ownHost: new URL(baseUrl).host,
  });
}
