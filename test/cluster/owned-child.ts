/**
 * An owner of partitions, or a publisher, as a process of its own over real engines, until it is killed. Argument: a
 * {@link ChildPlace} as JSON. Rounds come on stdin, one JSON line each; what was done goes to stdout. Record time is the
 * round's, so that a run of four processes can be held against a run of one.
 */
import { join } from "node:path";
import { createInterface } from "node:readline";
import { FixedClock, systemClock } from "../../infra/clock.ts";
import { openLake } from "../../infra/lake/duckdb.ts";
import { parseKafkaAddress } from "../../infra/log/kafka/address.ts";
import { openKafkaLog } from "../../infra/log/kafka/kafka.ts";
import { joinGroup } from "../../infra/log/kafka/members.ts";
import { openS3Store, type S3Bucket } from "../../infra/store/s3/s3.ts";
import { createLogger, createMetrics } from "../../infra/telemetry.ts";
import { createIngest } from "../../pipelines/2-ingest/ingest.ts";
import { INGEST_TABLES } from "../../pipelines/2-ingest/load.ts";
import { FollowedRecord } from "../../pipelines/4-publish/followed.ts";
import { createPublisher } from "../../pipelines/4-publish/publisher.ts";
import { LOG_TOPIC_OPTIONS, OWNER_GROUP } from "../../pipelines/record/topics.ts";
import { holdAssigned, Owner } from "../../pipelines/roles/protocol/owner.ts";
import { Publishing } from "../../pipelines/roles/protocol/publishing.ts";
import { Standby } from "../../pipelines/roles/protocol/standby.ts";
import { JWKS, ORIGIN, SIGNERS, TRUST } from "../pipelines/4-publish/world.ts";

export interface ChildPlace {
  role: "owner" | "publisher";
  name: string;
  /** Folder of the lake. */
  dir: string;
  log: string;
  stores: { privateStore: S3Bucket; publicStore: S3Bucket };
  sessionMs: number;
  patienceMs: number;
}

/** From the parent: a round to be graded at this moment; a question. */
export type Order = { round: number; now: string } | { ping: number };
/** To the parent. */
export type ChildMessage =
  | { done: number; held: readonly number[] }
  | { pong: number }
  | { active: boolean }
  | { failed: string };

const place = JSON.parse(process.argv[2]!) as ChildPlace;
const logger = createLogger("info", place.name);
const metrics = createMetrics();
const clock = new FixedClock("2026-01-01T00:00:00.000Z");
const address = parseKafkaAddress(place.log);
const log = await openKafkaLog(address, { ...LOG_TOPIC_OPTIONS, logger });
const privateStore = await openS3Store(place.stores.privateStore, { probe: false });
const publicStore = await openS3Store(place.stores.publicStore, { probe: false });
const say = (said: ChildMessage): void => void process.stdout.write(`${JSON.stringify(said)}\n`);
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
/** What the parent said last; heard from the first moment, since a line that nobody listens to is gone. */
const heard: { round?: { round: number; now: string }; pings: number[] } = { pings: [] };
createInterface({ input: process.stdin }).on("line", (line) => {
  const order = JSON.parse(line) as Order;
  if ("round" in order) heard.round = order;
  if ("ping" in order) heard.pings.push(order.ping);
});
const failed = (error: unknown): void => say({ failed: `${(error as Error).name}: ${(error as Error).message}` });

if (place.role === "owner") await ownUntilKilled();
else await publishUntilKilled();

async function ownUntilKilled(): Promise<void> {
  const settings = { memoryLimit: "256MB", threads: 1, init: INGEST_TABLES, readers: 1 };
  const lake = await openLake(join(place.dir, "lake.duckdb"), settings);
  const common = { log, privateStore, lake, clock, logger, metrics };
  const ingest = createIngest({ ...common, partitions: [] });
  const ownership = await joinGroup(address, OWNER_GROUP, {
    logger,
    partitions: log.partitions,
    sessionMs: place.sessionMs,
  });
  ownership.onChange(async (_taken, lost) => {
    if (lost.length > 0) await holdAssigned(ingest, ownership);
  });
  const followed = new FollowedRecord(publicStore, () => TRUST);
  const owner = new Owner({ ...common, publicStore, ingest, followed, ownership });
  let done = "";
  for (;;) {
    await pause(50);
    const held = JSON.stringify(ownership.held());
    const { round } = heard;
    if (!round || held === "[]" || done === `${round.round} ${held}`) continue;
    const { round: n, now } = round;
    clock.set(now);
    try {
      const report = await owner.grade(new Date(now));
      await owner.makeEvidence(new Date(now));
      await owner.writeVolatile();
      if (report.held.length === 0) continue;
      done = `${n} ${JSON.stringify(report.held)}`;
      say({ done: n, held: report.held });
    } catch (error) {
      failed(error);
    }
  }
}

async function publishUntilKilled(): Promise<void> {
  const publisher = createPublisher({
    ...{ privateStore, publicStore, signers: SIGNERS, clock, origin: ORIGIN, partitions: log.partitions },
    ...{ logger, metrics, writer: place.name },
  });
  const publishing = new Publishing({ log, privateStore, publisher, clock, logger });
  const monotonic = () => systemClock.monotonic();
  const { patienceMs } = place;
  const standby = new Standby({ privateStore, publicStore, monotonic, writer: place.name, takeoverMs: patienceMs });
  for (let was = false; ; await pause(100)) {
    const { round, pings } = heard;
    if (!round) continue;
    try {
      // Time of the record stands still within a round; a checkpoint of the same second says nothing new.
      clock.set(new Date(Math.max(clock.now().getTime() + 1_000, Date.parse(round.now))));
      const asked = pings.length;
      const active = await standby.mayPublish();
      if (active !== was) say({ active });
      if (active && !was) {
        await publisher.start();
        await publisher.publishKeys(JWKS);
      }
      was = active;
      if (!active) continue;
      await publishing.takeRuns();
      await publishing.publishEvidence();
      await publishing.nameTables();
      await publisher.refreshCheckpoint();
      for (const ping of pings.splice(0, asked)) say({ pong: ping });
    } catch (error) {
      failed(error);
    }
  }
}
