import { cp, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type KafkaCluster, startKafka } from "../../fixtures/cluster/kafka.ts";
import { type S3Server, startS3Server } from "../../fixtures/cluster/versitygw.ts";
import { FixedClock } from "../../infra/clock.ts";
import type { Lake } from "../../infra/lake/duckdb.ts";
import { openKafkaLog } from "../../infra/log/kafka/kafka.ts";
import type { AppendedRecord, Log, NewRecord } from "../../infra/log/log.ts";
import { openS3Store } from "../../infra/store/s3/s3.ts";
import type { Store } from "../../infra/store/store.ts";
import { createLogger } from "../../infra/telemetry.ts";
import type { GradeLeaf, Leaf } from "../../pipelines/record/leaf.ts";
import { dayOf as utcDay } from "../../pipelines/record/time.ts";
import { LOG_TOPIC_OPTIONS } from "../../pipelines/record/topics.ts";
import { randomInts, SEED } from "../helpers/drawn.ts";
import { dumpRecord } from "../helpers/dump.ts";
import { proveWhole } from "../helpers/oracle.ts";
import { leavesOf } from "../helpers/published.ts";
import { later } from "../pipelines/2-ingest/records.ts";
import { openTestLake } from "../pipelines/2-ingest/world.ts";
import { TRUST } from "../pipelines/4-publish/world.ts";
import { Deployment } from "../pipelines/roles/deployment.ts";
import { capOf, corrected, dayOf, PARTITIONS, SELLERS } from "../pipelines/roles/records.ts";
import { Owned } from "./owned.ts";

/**
 * Three owners and two publishers as processes over a real broker and a real S3 server, killed (SIGKILL of their groups)
 * and put to sleep past their session at drawn moments, beside one owner that nobody disturbs. Record time is led by the
 * test, so that both say their cards of the same moments.
 */
const START = "2026-10-05T00:00:00.000Z";
const DAYS = 5;
/**
 * The last two are a week after everything and a week after that: every card is signed again, by its owner of then. What was
 * kept on the last day counts as taken from the first of them on, and all cards of the second are graded with that table.
 */
const ROUNDS = [1, 2, 3, 4, 12, 20];
/** The shortest that a broker allows. */
const SESSION_MS = 6_000;
const logger = createLogger("silent");

let kafka: KafkaCluster;
let s3: S3Server;
let dir: string;
let log: Log;
let owned: Owned;
let single: Deployment;
let privateStore: Store;
let publicStore: Store;
const acked: AppendedRecord[] = [];
const lakes: { lake: Lake; partitions: readonly number[] }[] = [];
let told: Leaf[];

const append = async (records: readonly NewRecord[]): Promise<void> => void acked.push(...(await log.append(records)));
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

beforeAll(async () => {
  process.stderr.write(`owners: seed ${SEED}\n`);
  const random = randomInts(SEED);
  const draw = (below: number) => random() % below;
  [kafka, s3] = [await startKafka(), await startS3Server()];
  dir = await mkdtemp(join(tmpdir(), "cluster-owners-"));
  const address = `kafka://${kafka.brokers[0]}/owners`;
  const create = { partitions: PARTITIONS, replicas: 1, minInSync: 1 };
  log = await openKafkaLog({ brokers: kafka.brokers, prefix: "owners" }, { ...LOG_TOPIC_OPTIONS, logger, create });
  const stores = { privateStore: await s3.place("private"), publicStore: await s3.place("public") };
  privateStore = await openS3Store(stores.privateStore);
  publicStore = await openS3Store(stores.publicStore);
  owned = new Owned({ log: address, stores, sessionMs: SESSION_MS, patienceMs: 10_000 }, dir, PARTITIONS);
  for (const name of ["owner-0", "owner-1", "owner-2"]) owned.start("owner", name);
  for (const name of ["publisher-0", "publisher-1"]) owned.start("publisher", name);
  const clock = new FixedClock(START);
  single = await Deployment.open(join(dir, "single"), log, clock);
  const alone = await single.owner([0, 1, 2, 3]);
  const publishing = single.publishing();
  let born = 3;
  /** Somebody dies and another comes, with an empty disk or the old one; or somebody sleeps past its session. */
  const disturb = async (): Promise<void> => {
    for (let n = 0; n < 2; n++) {
      await pause(draw(3_000));
      const role = draw(3) === 0 ? "publisher" : "owner";
      const names = owned.names(role);
      const name = names[draw(names.length)]!;
      if (draw(4) === 0) {
        owned.signal(name, "SIGSTOP");
        await pause(SESSION_MS + 1_000);
        owned.signal(name, "SIGCONT");
        continue;
      }
      await owned.kill(name);
      owned.start(role, draw(2) === 0 ? name : `${role}-${born++}`);
    }
  };
  let day = 0;
  for (const [n, until] of ROUNDS.entries()) {
    for (; day <= until && day < DAYS; day++) await append(dayOf(START, day));
    if (until === 3) {
      await append([corrected(SELLERS[0]!.name, later(START, 3 * 86_400_000 + 1_000))]);
      // Who is given partitions now grades once more at the moment of cards that are published, and has read the correction.
      await owned.joins("owner-late");
      await owned.published();
    }
    const now = new Date(later(START, (until + 1) * 86_400_000 - 1));
    clock.set(now);
    await alone.grade(now);
    await publishing.takeRuns();
    await owned.round(n, now, n < ROUNDS.length - 1 ? disturb : undefined);
  }
  // Evidence of all days: owners look again at each round, so one more closes what the last has opened.
  const end = new Date(later(START, 22 * 86_400_000));
  for (const n of [0, 1]) await owned.round(ROUNDS.length + n, new Date(end.getTime() + n * 1_000));
  const held = await owned.stop();
  for (const [name, partitions] of held) {
    if (!name.startsWith("owner")) continue;
    const lake = await openTestLake(join(dir, name, "lake.duckdb"));
    lakes.push({ lake, partitions });
  }
  told = await leavesOf(publicStore, TRUST);
});

afterAll(async () => {
  await owned.stop();
  for (const { lake } of lakes) await lake.close();
  await single.close();
  await log.close();
  await privateStore.close();
  await publicStore.close();
  await kafka.stop();
  await s3.stop();
  await rm(dir, { recursive: true, force: true });
});

/** Moments of processes are never the same twice: what was stored and said is kept where a failure can be read from it. */
async function explain(error: unknown): Promise<never> {
  const kept = await mkdtemp(join(tmpdir(), "owners-failed-"));
  await dumpRecord(kept, privateStore, told);
  await cp(dir, kept, { recursive: true, filter: (path) => path === dir || path.endsWith(".log") });
  process.stderr.write(`owners: what was stored and said is kept in ${kept}\n`);
  throw error;
}

/** The newest cards of an endpoint at or before a moment, without their places. */
function cardsAt(leaves: readonly Leaf[], name: string, moment: string): string[] {
  const cards = leaves.filter(
    (leaf): leaf is GradeLeaf =>
      leaf.kind === "grade" && leaf.card.capability_id === capOf(name) && leaf.card.computed_at! <= moment,
  );
  const newest = cards.at(-1)?.card.computed_at;
  return cards
    .filter(({ card }) => card.computed_at === newest)
    .map(({ index: _, seq: __, at: ___, ...leaf }) => JSON.stringify(leaf));
}

describe(`owners and publishers that are killed at any time (seed ${SEED})`, () => {
  test("every acknowledged record is once in segments, lakes, evidence and tree, and the audit is clean", async () => {
    expect(lakes.flatMap(({ partitions }) => partitions).sort()).toEqual([0, 1, 2, 3]);
    const closedBefore = utcDay(new Date(later(START, 21 * 86_400_000)));
    const whole = { log, privateStore, publicStore, trust: TRUST, acked, lakes, closedBefore, audited: false };
    await proveWhole(whole).catch(explain);
  });

  test("the cards of the last round are those of the one owner that nobody disturbed, byte for byte", async () => {
    const undisturbed = await single.leaves();
    const moment = later(START, (ROUNDS.at(-1)! + 1) * 86_400_000 - 1);
    for (const { name } of SELLERS) {
      const cards = cardsAt(undisturbed, name, moment);
      expect(cards.length).toBeGreaterThan(0);
      expect(cardsAt(told, name, moment)).toEqual(cards);
    }
  });
});
