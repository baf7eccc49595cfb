import { writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { decompress } from "zstd-napi";
import { budget } from "../../commands/budget.ts";
import { type KafkaCluster, startKafka } from "../../fixtures/cluster/kafka.ts";
import { type S3Server, s3Settings, startS3Server } from "../../fixtures/cluster/versitygw.ts";
import { FixedClock } from "../../infra/clock.ts";
import { loadConfig } from "../../infra/config.ts";
import { ringPath } from "../../infra/keys/keys.ts";
import { openKafkaLog } from "../../infra/log/kafka/kafka.ts";
import { joinGroup } from "../../infra/log/kafka/members.ts";
import type { Log } from "../../infra/log/log.ts";
import type { Ownership } from "../../infra/log/ownership.ts";
import { openS3Store, type S3Bucket } from "../../infra/store/s3/s3.ts";
import { createLogger } from "../../infra/telemetry.ts";
import { audit } from "../../pipelines/audit/audit.ts";
import type { BudgetReport } from "../../pipelines/budget/report.ts";
import { StoreSource } from "../../pipelines/published/open-source.ts";
import { openSourceTreeHead } from "../../pipelines/published/trust.ts";
import { archiveFileKey, archiveManifestKey, dayOfManifest } from "../../pipelines/record/archive.ts";
import type { ArchiveLeaf } from "../../pipelines/record/leaf.ts";
import { addDays } from "../../pipelines/record/time.ts";
import { LOG_TOPICS, OWNERS } from "../../pipelines/record/topics.ts";
import { makeKeys } from "../../pipelines/roles/data-folder.ts";
import type { Owner } from "../../pipelines/roles/owner.ts";
import { proveRecord } from "../helpers/prove-record.ts";
import { handshake, later } from "../pipelines/2-ingest/records.ts";
import { JWKS, ORIGIN, TRUST } from "../pipelines/4-publish/world.ts";
import { Deployment, gradeAll } from "../pipelines/roles/deployment.ts";
import { dayOf, PARTITIONS, placed, SELLERS } from "../pipelines/roles/records.ts";

/**
 * The archive over a real broker and a real S3 server: two owners by consumer group, one of which leaves between what it
 * said and the publisher's file, beside one owner of everything that nobody disturbs.
 */
const START = "2026-10-05T00:00:00.000Z";
const FIRST = START.slice(0, 10);
const DAYS = 3;
/** Old enough at the end. */
const FILED = 2;
const DAY = 86_400_000;
const logger = createLogger("silent");
const clock = new FixedClock(START);
const late = placed(handshake(SELLERS[0]!.name, later(START, DAY - 1_000), { price: "0.990000" }));

let kafka: KafkaCluster;
let s3: S3Server;
let dir: string;
let log: Log;
let place: { privateStore: S3Bucket; publicStore: S3Bucket };
let cluster: Deployment;
let single: Deployment;
let stays: Owner;
const members: Ownership[] = [];

async function until(what: string, holds: () => boolean): Promise<void> {
  for (let n = 0; n < 2_400; n++) {
    if (holds()) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`never: ${what}`);
}

async function member(): Promise<Ownership> {
  const one = await joinGroup({ brokers: kafka.brokers, prefix: "archive" }, OWNERS, {
    logger,
    partitions: PARTITIONS,
    // Longer than any stall of this process, which does the work of both.
    sessionMs: 60_000,
  });
  members.push(one);
  return one;
}

/** Owners say, the publisher names: evidence of what is closed, then the archive of what is old enough. */
async function round(at: Deployment, owners: readonly Owner[], now: Date): Promise<void> {
  for (const owner of owners) await owner.evidence(now);
  await at.publishing().evidence();
  for (let files = 1; files > 0; ) {
    for (const owner of owners) await owner.archive(now);
    files = (await at.publishing().archive(at.filing())).files;
  }
}

beforeAll(async () => {
  [kafka, s3] = [await startKafka(), await startS3Server()];
  dir = await mkdtemp(join(tmpdir(), "cluster-archive-"));
  const create = { partitions: PARTITIONS, replicas: 1, minInSync: 1 };
  log = await openKafkaLog({ brokers: kafka.brokers, prefix: "archive" }, { ...LOG_TOPICS, logger, create });
  place = { privateStore: await s3.place("private"), publicStore: await s3.place("public") };
  cluster = await Deployment.over(join(dir, "cluster"), log, clock, {
    privateStore: await openS3Store(place.privateStore),
    publicStore: await openS3Store(place.publicStore),
  });
  single = await Deployment.open(join(dir, "single"), log, clock);
  for (let day = 0; day < DAYS; day++) await log.append(dayOf(START, day));
  const [a, b] = [await member(), await member()];
  await until("both have a share", () => a.held().length === 2 && b.held().length === 2);
  const [leaves, alone] = [await cluster.owner([], { ownership: a }), await single.owner([0, 1, 2, 3])];
  stays = await cluster.owner([], { ownership: b });
  const graded = new Date(later(START, DAYS * DAY - 1));
  clock.set(graded);
  await gradeAll([leaves, stays], graded);
  await cluster.publishing().runs();
  await alone.grade(graded);
  await single.publishing().runs();

  const old = new Date(later(START, (110 + FILED) * DAY));
  clock.set(old);
  for (const owner of [leaves, stays]) await owner.evidence(old);
  await cluster.publishing().evidence();
  for (const owner of [leaves, stays]) await owner.archive(old);
  // It has said its rows, and is gone before they are filed; its partitions and what they still hold are the other's.
  await a.close();
  await until("the other has all", () => b.held().length === PARTITIONS);
  await round(cluster, [stays], old);
  await round(single, [alone], old);

  await log.append([late]);
  const next = new Date(old.getTime() + 3_600_000);
  clock.set(next);
  await round(cluster, [stays], next);
  await round(single, [alone], next);
}, 1_800_000);

afterAll(async () => {
  for (const one of members) await one.close();
  await cluster.close();
  await single.close();
  await log.close();
  await kafka.stop();
  await s3.stop();
  await rm(dir, { recursive: true, force: true });
});

const filed = async (at: Deployment): Promise<ArchiveLeaf[]> =>
  (await at.leaves()).filter((leaf): leaf is ArchiveLeaf => leaf.kind === "archive");

async function filesOf(at: Deployment) {
  const files = [];
  for (const { manifest } of await filed(at)) {
    const key = archiveFileKey(manifest.subject, dayOfManifest(manifest), manifest.content_hash);
    const packed = Buffer.from((await at.publicStore.get(key))!.bytes);
    const signed = (await at.publicStore.get(archiveManifestKey(manifest.id)))!.bytes;
    files.push({ key, packed, manifest, signed: Buffer.from(signed).toString("utf8") });
  }
  return files;
}

describe("the archive over a real broker and a real store", () => {
  test("has the files and manifests of the one owner that nobody disturbed, byte for byte", async () => {
    const files = await filesOf(cluster);
    expect([...new Set(files.map(({ manifest }) => dayOfManifest(manifest)))].sort()).toEqual(
      [0, 1].map((n) => addDays(FIRST, n)),
    );
    expect(files).toHaveLength(FILED * 4 + 1);
    expect(files).toEqual(await filesOf(single));
  });

  test("every row is in a lake or in one published file, and a new owner's totals are right at once", async () => {
    const ids = (await filesOf(cluster)).flatMap(({ packed }) =>
      decompress(packed)
        .toString("utf8")
        .split("\n")
        .filter(Boolean)
        .map((line) => (JSON.parse(line) as { record_id: string }).record_id),
    );
    expect(ids).toHaveLength(SELLERS.length * 3 * FILED + 1);
    expect(new Set(ids).size).toBe(ids.length);
    const rowsOf = async (at: Deployment, n: number, query: string): Promise<unknown[]> => at.lakes.at(n)!.all(query);
    const events = "SELECT event_id FROM event ORDER BY event_id";
    const totals = "SELECT * FROM seen ORDER BY cap";
    const left = (await rowsOf(cluster, 1, events)) as { event_id: string }[];
    expect(left.filter(({ event_id }) => ids.includes(event_id))).toEqual([]);
    expect(left).toEqual(await rowsOf(single, 0, events));
    // With an empty disk, and everything its own.
    const c = await member();
    await members[1]!.close();
    await until("the new one has all", () => c.held().length === PARTITIONS);
    const fresh = await cluster.owner([], { ownership: c });
    await fresh.ingest();
    expect(await rowsOf(cluster, -1, events)).toEqual(left);
    expect(await rowsOf(cluster, -1, totals)).toEqual(await rowsOf(single, 0, totals));
    expect(await fresh.archive(clock.now())).toEqual({ removed: 0, rows: 0 });
  }, 900_000);

  test("the auditor finds nothing", async () => {
    await proveRecord(cluster.publicStore, { trust: TRUST });
    const source = new StoreSource("the public bucket", cluster.publicStore);
    const { findings } = await audit({ source, head: await openSourceTreeHead(source, {}, () => undefined) });
    expect(findings.filter(({ result }) => result !== "ok")).toEqual([]);
    const ofArchive = findings.filter(({ check }) => check.startsWith("archive"));
    expect(ofArchive).toHaveLength(3);
  }, 900_000);

  test("touchstone budget answers from any machine with the public halves of the keys: of everybody's payments", async () => {
    const data = join(dir, "operator");
    makeKeys(data, new Date("2026-10-01T00:00:00.000Z"));
    const halves = JWKS.keys.map(({ purpose, kid, x, valid_from }) => ({ purpose, kid, x, valid_from }));
    writeFileSync(ringPath(join(data, "keys")), JSON.stringify({ keys: halves }));
    const config = loadConfig(undefined, {
      TOUCHSTONE_DATA_DIR: data,
      TOUCHSTONE_LOG_LEVEL: "silent",
      TOUCHSTONE_LOG: `kafka://${kafka.brokers[0]}/archive`,
      TOUCHSTONE_STORES_PRIVATE: "s3://private",
      TOUCHSTONE_STORES_PUBLIC: "s3://public",
      TOUCHSTONE_BASE_URL: `https://${ORIGIN}`,
      ...s3Settings(place.privateStore),
    });
    const write = vi.spyOn(process.stdout, "write").mockReturnValue(true);
    let report: BudgetReport;
    try {
      await budget(config, { day: addDays(FIRST, 1), json: true });
      report = JSON.parse(String(write.mock.calls.at(-1)![0])) as BudgetReport;
    } finally {
      write.mockRestore();
    }
    expect(report).toMatchObject({ day: addDays(FIRST, 1), coverage: { listed: SELLERS.length } });
    expect(report.spent.day.calls).toBe(SELLERS.length * 2);
  }, 900_000);
});
