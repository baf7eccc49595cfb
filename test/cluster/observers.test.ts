import { afterAll, beforeAll, expect, test } from "vitest";
import { type KafkaCluster, startKafka } from "../../fixtures/cluster/kafka.ts";
import { openKafkaLog } from "../../infra/log/kafka/kafka.ts";
import { joinGroup } from "../../infra/log/kafka/members.ts";
import type { Log } from "../../infra/log/log.ts";
import type { Ownership } from "../../infra/log/ownership.ts";
import { createLogger } from "../../infra/telemetry.ts";
import { LOG_TOPIC_OPTIONS, OBSERVER_GROUP } from "../../pipelines/record/topics.ts";
import {
  listed,
  observeAll,
  type Process,
  planned,
  prove,
  RealSharedLog,
  type SharedWorld,
} from "../pipelines/1-observe/shared-world.ts";
import { CAPS, honest } from "../pipelines/1-observe/world.ts";

/** Observers that join, leave and come back in a real consumer group while the day's plan is observed. */
const PARTITIONS = 4;
/** The shortest that a broker allows. */
const SESSION_MS = 6_000;
const logger = createLogger("silent");

let kafka: KafkaCluster;
let log: Log;
const place = () => ({ brokers: kafka.brokers, prefix: "observed" });
const open: Process<Ownership>[] = [];

beforeAll(async () => {
  kafka = await startKafka();
  log = await openKafkaLog(place(), {
    ...LOG_TOPIC_OPTIONS,
    logger,
    create: { partitions: PARTITIONS, replicas: 1, minInSync: 1 },
  });
});
afterAll(async () => {
  for (const one of open) await one.hosts.close();
  await log?.close();
  await kafka?.stop();
});

async function join(world: SharedWorld): Promise<Process<Ownership>> {
  const ownership = await joinGroup(place(), OBSERVER_GROUP, { logger, partitions: PARTITIONS, sessionMs: SESSION_MS });
  const made = await world.processOf(ownership);
  open.push(made);
  return made;
}

/** Waits, with a bound that only a hang reaches. */
async function until(what: string, holds: () => boolean): Promise<void> {
  for (let n = 0; n < 18_000; n++) {
    if (holds()) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`never: ${what}`);
}

test("each slot is paid once, however the partitions change hands", async () => {
  // A seller that takes its time, so that the group has changed before the day is over.
  const slow = (world: SharedWorld) => async (asked: Parameters<ReturnType<typeof honest>>[0], n: number) => {
    await new Promise((resolve) => setTimeout(resolve, 150));
    return honest(world.rail)(asked, n);
  };
  const { world, plan } = await listed(CAPS, slow, new RealSharedLog(log));
  const [one, two] = [await join(world), await join(world)];
  await until("both have a share", () => [one, two].every(({ ownership }) => ownership.held().length === 2));
  await observeAll(world, plan, [one, two], async () => {
    const paid = () => world.egress.paid().length;
    await until("some were paid", () => paid() >= 6);
    // It leaves, and what it had goes to the other.
    await two.hosts.close();
    expect(two.ownership.held()).toEqual([]);
    await until("the other has all", () => one.ownership.held().length === PARTITIONS);
    await until("more were paid", () => paid() >= Math.min(planned(plan), 16));
  });
  prove(world, plan);
  expect(world.atOnce).toBe(1);
});
