import type { H3 } from "h3";
import type { Clock } from "../../infra/clock.ts";
import { fromBase64url, type Jwks } from "../../infra/keys/jwk.ts";
import { type Keyring, keysDocument } from "../../infra/keys/keyring.ts";
import type { Signer } from "../../infra/keys/signer.ts";
import type { Logger } from "../../infra/telemetry.ts";
import { type CheckpointTrust, witnessName } from "../../infra/tree/checkpoint.ts";
import { originOf } from "../../pipelines/assemble.ts";
import type { Parts } from "../../pipelines/parts.ts";
import { askLineOf } from "../answers/asks.ts";
import { Demand } from "../answers/demand.ts";
import { createApp } from "../app.ts";
import type { ServingDeps } from "../context.ts";
import { serve } from "../main.ts";
import { NO_LOG, type ServingLog } from "../replica/late-log.ts";
import { followAsks } from "../tables/ask-line.ts";
import { Follower } from "../tables/follower.ts";
import { PublishedTree } from "../tables/tree.ts";

export interface ServingTier {
  app: H3;
  url: string;
  /** Look at the public store now instead of at the next turn. */
  refresh(): Promise<void>;
  close(): Promise<void>;
}

/** All that serving gets of a machine: no private store, no lake, and one private key. */
export interface ServingParts extends Pick<Parts, "config" | "egress" | "logger" | "metrics"> {
  publicStore: ServingDeps["store"];
  /** The appending end; null: this replica answers and takes nothing in. */
  log: ServingLog | null;
  answers: Signer;
  /** Public halves of all keys, with their validity. */
  ring: Keyring;
  /** What a replica that keeps a mirror of its own has in the place of the store's tree and the ring's keys. */
  proven?: { tree: Pick<PublishedTree, "newest">; jwks: () => Jwks | null };
  /** Other processes listen on the port too. */
  shared?: boolean;
}

/** Whom serving believes at `now`: the log's and the witness's keys in use, and those that are not retired yet. */
export function trustOf(origin: string, ring: Keyring, now: Date): CheckpointTrust {
  const believed = (purpose: "log" | "witness", name: string) => {
    const valid = ring.keys.filter(
      (one) => one.purpose === purpose && (!one.retired_at || new Date(one.retired_at) > now),
    );
    const [inUse, ...retiring] = valid.sort((a, b) => Number(!!a.retired_at) - Number(!!b.retired_at));
    const named = ({ x }: { x: string }) => ({ name, publicKey: fromBase64url(x)! });
    return { inUse: named(inUse!), retiring: retiring.map(named) };
  };
  const [log, witness] = [believed("log", origin), believed("witness", witnessName(origin))];
  return { log: log.inUse, logs: log.retiring, witness: witness.inUse, witnesses: witness.retiring };
}

/** Errors of a source that is only not there now: a replica waits for it. */
const PASSING = new Set(["SourceDown", "StoreDown", "MissingObject", "MirrorBusy"]);
const AGAIN_MS = 500;

/** Looks until there is something to answer from. @throws what says that there never will be: a fork, another's record */
async function firstView(follower: Follower, clock: Clock, logger: Pick<Logger, "warn">): Promise<void> {
  for (let told = false; ; told = true) {
    const failed = await follower.refresh().then(
      () => null,
      (error: unknown) => error,
    );
    if (failed !== null && !PASSING.has((failed as Error).name)) throw failed;
    if (follower.snapshot) return;
    if (!told)
      logger.warn({ err: failed }, "there is nothing to answer from yet; the record is asked for until it is there");
    await clock.sleep(AGAIN_MS);
  }
}

/**
 * The serving tier over the public store: it gets no private store and no lake, one key (answers), and of the log only
 * the appending end. @param lapsed the record's time was made up, and every page says so
 */
export async function openServing(parts: ServingParts, clock: Clock, lapsed: boolean): Promise<ServingTier> {
  const { config, publicStore, answers, ring, egress, logger, metrics, proven } = parts;
  const log = parts.log ?? NO_LOG;
  const origin = originOf(config.base_url);
  const tree = proven?.tree ?? new PublishedTree(publicStore, trustOf(origin, ring, clock.now()));
  const follower = new Follower({ tree, store: publicStore, origin, clock, logger, metrics });
  const jwks = () => proven?.jwks() ?? keysDocument(ring);
  const askLimits = {
    perClientHour: config.limits.asks_per_hour,
    perDomainHour: config.limits.asks_per_domain_hour,
    totalHour: config.limits.asks_per_hour_total,
    inLine: config.limits.asks_in_line,
  };
  const askLine = askLineOf(askLimits);
  const demand = parts.log ? new Demand({ log, clock, logger }) : null;
  const app = createApp({
    askLine,
    ...(demand ? { demand } : {}),
    store: publicStore,
    follower,
    log,
    answers,
    judge: (url) => egress.judge(url),
    jwks,
    clock: {
      now: () => clock.now(),
      monotonic: () => clock.monotonic(),
      sleep: (ms, signal) => clock.sleep(ms, signal),
      get lapsed() {
        return lapsed || clock.lapsed;
      },
    },
    logger,
    metrics,
    baseUrl: config.base_url,
    limits: {
      checksPerMinute: config.limits.checks_per_minute,
      asks: askLimits,
      trustedProxies: config.limits.trusted_proxies,
    },
  });
  // A replica without a first view would answer of everything that it knows nothing.
  if (proven) await firstView(follower, clock, logger);
  const listening = await serve({ app, port: config.port, host: config.host, shared: parts.shared === true });
  follower.start();
  const asks = parts.log ? followAsks(log, askLine, logger) : null;
  demand?.start();
  return {
    app,
    url: listening.url,
    refresh: async () => void (await follower.refresh()),
    close: async () => {
      await listening.close();
      await asks?.stop();
      await demand?.stop();
      await follower.stop();
    },
  };
}
