import type { Clock } from "../../infra/clock.ts";
import type { Store } from "../../infra/store/store.ts";
import { createLogger, createMetrics } from "../../infra/telemetry.ts";
import type { CheckpointTrust } from "../../infra/tree/checkpoint.ts";
import { PublishedTree } from "../../pipelines/published/reader.ts";
import { createApp } from "../../serving/app.ts";
import { Follower } from "../../serving/tables/follower.ts";
import { AppendOnly, checkPath, validateUrl } from "../helpers/serving.ts";
import { JWKS, SIGNERS } from "../pipelines/4-publish/world.ts";
import { timed } from "./ratio.ts";

/** A replica over a store of proven objects: `follower.refresh()` starts it. Its answers are never kept, so each is made. */
export function replicaOver(store: Store, { origin, trust, clock }: Origin) {
  const [logger, metrics] = [createLogger("silent"), createMetrics()];
  const tree = new PublishedTree(store, trust);
  const follower = new Follower({ tree, store, origin, clock, logger, metrics });
  const app = createApp({
    ...{ store, follower, clock, logger, metrics, validateUrl },
    log: new AppendOnly(),
    answers: SIGNERS.answers,
    jwks: () => JWKS,
    baseUrl: "https://bench.example",
    limits: { checks_per_minute: 1e9, reads_per_minute: 1e9 },
    cache: { ttlMs: 0, maxEntries: 1, maxBytes: 1e6 },
  });
  return { follower, app };
}

interface Origin {
  origin: string;
  trust: CheckpointTrust;
  clock: Clock;
}

/** Checks of endpoints far from each other, one after the other. @param urlOf of endpoint i, below `cards` */
export const checksOf = (
  app: ReturnType<typeof replicaOver>["app"],
  { cards, checks, urlOf }: { cards: number; checks: number; urlOf: (i: number) => string },
) =>
  timed(async () => {
    for (let i = 0; i < checks; i++) {
      const answer = await app.request(checkPath({ url: urlOf((i * 7_919) % cards) }));
      const text = await answer.text();
      if (!text.includes('"band"')) throw new Error(`check ${i}: ${answer.status} ${text.slice(0, 500)}`);
    }
  });
