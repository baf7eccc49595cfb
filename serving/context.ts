import { fileURLToPath } from "node:url";
import type { Clock } from "../infra/clock.ts";
import type { Egress } from "../infra/egress/egress.ts";
import type { Jwks } from "../infra/keys/jwk.ts";
import type { Signer } from "../infra/keys/signer.ts";
import type { Log } from "../infra/log/log.ts";
import type { Store } from "../infra/store/store.ts";
import type { Logger, Metrics } from "../infra/telemetry.ts";
import type { AskLimits } from "./answers/asks.ts";
import { Asks } from "./answers/asks.ts";
import { Checks } from "./answers/check.ts";
import { PublicObjects } from "./answers/objects.ts";
import type { CacheBounds } from "./http/answer-cache.ts";
import { clientKey, Limiter, parseProxies } from "./http/limits.ts";
import { type Doc, readDocs } from "./pages/docs.ts";
import type { Follower } from "./tables/follower.ts";
import { HistoryTables } from "./tables/history.ts";

export interface ServingLimits {
  /** Checks of one client in a minute. */
  checksPerMinute: number;
  /** Every other request of one client in a minute: pages, cards, objects of the log. */
  readsPerMinute: number;
  asks: Partial<AskLimits>;
  /** Addresses or CIDR blocks of proxies whose X-Forwarded-For is believed. */
  trustedProxies: readonly string[];
}

export const SERVING_LIMITS: ServingLimits = {
  checksPerMinute: 600,
  readsPerMinute: 6000,
  asks: {},
  trustedProxies: [],
};

/** Everything that serving may touch. There is no private store, no lake and no key but the one that signs answers. */
export interface ServingDeps {
  /** The public store. */
  store: Store;
  follower: Follower;
  log: Pick<Log, "append" | "partitions">;
  answers: Signer;
  judge: Egress["judge"];
  /** The keys document as it stands now. */
  jwks: () => Jwks;
  clock: Clock;
  logger: Logger;
  metrics: Metrics;
  /** Address under which others reach us, without a trailing slash: absolute links are made of it. */
  baseUrl: string;
  limits?: Partial<ServingLimits>;
  cache?: CacheBounds;
  /** Folder of the documentation (default: `docs/` of the project). */
  docsDir?: string;
}

/** What the operations share. */
export interface Service extends ServingDeps {
  checks: Checks;
  objects: PublicObjects;
  history: HistoryTables;
  docs: ReadonlyMap<string, Doc>;
  checkLimiter: Limiter;
  readLimiter: Limiter;
  /** Key of the client behind a socket address and an X-Forwarded-For header. */
  client: (peer: string | undefined, forwarded: string | null) => string;
}

const PROJECT_DOCS = fileURLToPath(new URL("../docs", import.meta.url));

export function serviceOf(deps: ServingDeps): Service {
  const limits = { ...SERVING_LIMITS, ...deps.limits };
  const steady = () => deps.clock.monotonic();
  const proxies = parseProxies(limits.trustedProxies);
  const asks = new Asks({
    log: deps.log,
    clock: deps.clock,
    logger: deps.logger,
    producer: "serving",
    limits: limits.asks,
  });
  return {
    ...deps,
    baseUrl: deps.baseUrl.replace(/\/+$/, ""),
    checks: new Checks({
      view: () => deps.follower.view,
      asks,
      judge: deps.judge,
      signer: deps.answers,
      clock: deps.clock,
      ...(deps.cache ? { bounds: deps.cache } : {}),
    }),
    objects: new PublicObjects(deps.store),
    history: new HistoryTables(deps.store, deps.logger),
    docs: readDocs(deps.docsDir ?? PROJECT_DOCS),
    checkLimiter: new Limiter({ name: "check", quota: limits.checksPerMinute, windowS: 60 }, steady),
    readLimiter: new Limiter({ name: "read", quota: limits.readsPerMinute, windowS: 60 }, steady),
    client: (peer, forwarded) => clientKey(peer, forwarded, proxies),
  };
}
