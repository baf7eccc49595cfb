/**
 * Publishing to and serving from an S3 store against the directory store: the same cards through the real publisher, then
 * a replica that starts from what was published, answers checks and hands out its feed. The S3 store is a real server on
 * this machine (versitygw), which takes part of the same cores. Needs Go once; says so where it is missing.
 * Run: npx tsx test/bench/store.bench.ts [cards] [checks]
 */

import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buildVersitygw, startS3Server } from "../../fixtures/cluster/versitygw.ts";
import { FixedClock } from "../../infra/clock.ts";
import { openDirectoryStore } from "../../infra/store/directory.ts";
import { openS3Store } from "../../infra/store/s3/s3.ts";
import type { Store } from "../../infra/store/store.ts";
import { createLogger, createMetrics } from "../../infra/telemetry.ts";
import { createPublisher } from "../../pipelines/4-publish/publisher.ts";
import { isInstalled, TOOLS } from "../cluster/tools.ts";
import { publishListings } from "../helpers/publishing.ts";
import { ManualClock } from "../helpers/serving.ts";
import {
  header,
  JWKS,
  line,
  listing,
  ORIGIN,
  PARTITIONS,
  SIGNERS,
  TRUST,
  urlOf,
} from "../pipelines/4-publish/world.ts";
import { against, type Cost, ratio, shown, timed } from "./ratio.ts";
import { checksOf, replicaOver } from "./replica.ts";

const CARDS = Number(process.argv[2] ?? 20_000);
const CHECKS = Number(process.argv[3] ?? 5_000);
const NOW = "2026-11-21T12:00:00.000Z";
const SLICE = 10_000;
const STEPS = ["publish all cards", "publish 1 % changed", "replica's start", "checks", "feed of all cards"] as const;
type Costs = Record<(typeof STEPS)[number], Cost>;

interface Stores {
  privateStore: Store;
  publicStore: Store;
}

const logger = createLogger("silent");

async function published({ privateStore, publicStore }: Stores): Promise<Cost[]> {
  const publisher = createPublisher({
    privateStore,
    publicStore,
    signers: SIGNERS,
    clock: new FixedClock(NOW),
    origin: ORIGIN,
    partitions: PARTITIONS,
    logger,
    metrics: createMetrics(),
  });
  const run = async (count: number, band: "B" | "C", now: string, next: number): Promise<void> => {
    const lines = Array.from({ length: count }, (_, i) => line(`s-${i}`, now, [band]));
    const { cards } = await publisher.takeRun({ header: header(now, next), lines });
    if (cards !== count) throw new Error(`${cards} cards were published instead of ${count}`);
  };
  await publisher.publishKeys(JWKS);
  const all = await timed(async () => {
    for (let at = 0; at < CARDS; at += SLICE) {
      const count = Math.min(SLICE, CARDS - at);
      await publishListings(
        publisher,
        Array.from({ length: count }, (_, i) => listing(`s-${at + i}`)),
      );
    }
    await run(CARDS, "B", "2026-11-01T01:00:00.000Z", 1);
    await publisher.buildIndex();
  });
  const few = await timed(() => run(Math.ceil(CARDS / 100), "C", "2026-11-02T01:00:00.000Z", 2));
  return [all, few];
}

async function served(store: Store): Promise<Cost[]> {
  const { follower, app } = replicaOver(store, { origin: ORIGIN, trust: TRUST, clock: new ManualClock(NOW) });
  const start = await timed(() => follower.refresh());
  const checks = await checksOf(app, { cards: CARDS, checks: CHECKS, urlOf: (i) => urlOf(`s-${i}`) });
  const feed = await timed(async () => {
    const text = await (await app.request("/v1/trust/feed")).text();
    const lines = text.split("\n").length - 1;
    const expected = CARDS + Math.ceil(CARDS / 100);
    if (lines !== expected) throw new Error(`the feed has ${lines} lines instead of ${expected}`);
  });
  return [start, checks, feed];
}

async function measured(name: string, stores: Stores): Promise<Costs> {
  const costs = [...(await published(stores)), ...(await served(stores.publicStore))];
  for (const [i, step] of STEPS.entries()) console.log(`${name.padEnd(10)} ${step.padEnd(20)} ${shown(costs[i]!)}`);
  await stores.privateStore.close();
  await stores.publicStore.close();
  return Object.fromEntries(STEPS.map((step, i) => [step, costs[i]!])) as Costs;
}

async function inBuckets(): Promise<Costs> {
  await buildVersitygw();
  const server = await startS3Server();
  try {
    return await measured("S3", {
      privateStore: await openS3Store(await server.place("private")),
      publicStore: await openS3Store(await server.place("public")),
    });
  } finally {
    await server.stop();
  }
}

if (TOOLS.go && !isInstalled(TOOLS.go)) {
  console.log(`no S3 server here; install ${TOOLS.go.install}`);
} else {
  console.log(`${CARDS.toLocaleString("en")} cards, ${CHECKS.toLocaleString("en")} checks`);
  const dir = await mkdtemp(join(tmpdir(), "store-bench-"));
  const folder = await measured("directory", {
    privateStore: await openDirectoryStore(join(dir, "private")),
    publicStore: await openDirectoryStore(join(dir, "public")),
  });
  await rm(dir, { recursive: true });
  const bucket = await inBuckets();
  for (const step of STEPS) {
    ratio(`store: ${step}, S3 of directory`, against(bucket[step], folder[step]), "said, no bound");
  }
}
