import type { H3 } from "h3";
import type { Clock } from "../../infra/clock.ts";
import { fromBase64url } from "../../infra/keys/jwk.ts";
import { type Keyring, keysDocument } from "../../infra/keys/keyring.ts";
import type { Signer } from "../../infra/keys/signer.ts";
import { type CheckpointTrust, witnessName } from "../../infra/tree/checkpoint.ts";
import { originOf } from "../../pipelines/assemble.ts";
import type { Parts } from "../../pipelines/parts.ts";
import { askLineOf } from "../answers/asks.ts";
import { Demand } from "../answers/demand.ts";
import { createApp } from "../app.ts";
import { serve } from "../main.ts";
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
export interface ServingParts extends Pick<Parts, "config" | "publicStore" | "log" | "egress" | "logger" | "metrics"> {
  answers: Signer;
  /** Public halves of all keys, with their validity. */
  ring: Keyring;
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

/**
 * The serving tier over the public store: it gets no private store and no lake, one key (answers), and of the log only
 * the appending end. @param lapsed the record's time was made up, and every page says so
 */
export async function openServing(parts: ServingParts, clock: Clock, lapsed: boolean): Promise<ServingTier> {
  const { config, publicStore, log, answers, ring, egress, logger, metrics } = parts;
  const origin = originOf(config.base_url);
  const tree = new PublishedTree(publicStore, trustOf(origin, ring, clock.now()));
  const follower = new Follower({ tree, store: publicStore, origin, clock, logger, metrics });
  const jwks = () => keysDocument(ring);
  const askLimits = {
    perClientHour: config.limits.asks_per_hour,
    perDomainHour: config.limits.asks_per_domain_hour,
    totalHour: config.limits.asks_per_hour_total,
    inLine: config.limits.asks_in_line,
  };
  const askLine = askLineOf(askLimits);
  const demand = new Demand({ log, clock, logger });
  const app = createApp({
    askLine,
    demand,
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
  const listening = await serve({ app, port: config.port, host: config.host });
  follower.start();
  const asks = followAsks(log, askLine, logger);
  demand.start();
  return {
    app,
    url: listening.url,
    refresh: async () => void (await follower.refresh()),
    close: async () => {
      await listening.close();
      await asks.stop();
      await demand.stop();
      await follower.stop();
    },
  };
}
