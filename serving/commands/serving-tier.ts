import type { H3 } from "h3";
import type { Clock } from "../../infra/clock.ts";
import type { Jwks } from "../../infra/keys/jwk.ts";
import { keysDocument } from "../../infra/keys/keyring.ts";
import { checkpointKeys } from "../../pipelines/4-publish/publisher.ts";
import { originOf } from "../../pipelines/assemble.ts";
import type { Parts } from "../../pipelines/parts.ts";
import { createApp } from "../app.ts";
import { serve } from "../main.ts";
import { Follower } from "../tables/follower.ts";
import { PublishedTree } from "../tables/tree.ts";

export interface ServingTier {
  app: H3;
  url: string;
  jwks: () => Jwks;
  /** Look at the public store now instead of at the next turn. */
  refresh(): Promise<void>;
  close(): Promise<void>;
}

/**
 * The serving tier over the public store: it gets no private store and no lake, one key (answers), and of the log only
 * the appending end. @param lapsed the record's time was made up, and every page says so
 */
export async function openServing(parts: Parts, clock: Clock, lapsed: boolean): Promise<ServingTier> {
  const { config, publicStore, log, keys, egress, logger, metrics } = parts;
  const origin = originOf(config.base_url);
  const trust = checkpointKeys(origin, keys);
  const tree = new PublishedTree(publicStore, { log: trust.log, witness: trust.witness });
  const follower = new Follower({ tree, store: publicStore, origin, clock, logger, metrics });
  const jwks = () => keysDocument(keys.ring);
  const app = createApp({
    store: publicStore,
    follower,
    log,
    answers: keys.answers,
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
      asks: { perClientHour: config.limits.asks_per_hour },
      trustedProxies: config.limits.trusted_proxies,
    },
  });
  const listening = await serve({ app, port: config.port, host: config.host });
  follower.start();
  return {
    app,
    url: listening.url,
    jwks,
    refresh: async () => void (await follower.refresh()),
    close: async () => {
      await listening.close();
      await follower.stop();
    },
  };
}
