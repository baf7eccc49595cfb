import { writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { budget } from "../../commands/budget.ts";
import { type KafkaCluster, startKafka } from "../../fixtures/cluster/kafka.ts";
import { type S3Server, s3Settings, startS3Server } from "../../fixtures/cluster/versitygw.ts";
import { loadConfig } from "../../infra/config.ts";
import { ringPath } from "../../infra/keys/keys.ts";
import { openKafkaLog } from "../../infra/log/kafka/kafka.ts";
import { joinGroup } from "../../infra/log/kafka/members.ts";
import type { Ownership } from "../../infra/log/ownership.ts";
import { openS3Store, type S3Bucket } from "../../infra/store/s3/s3.ts";
import { createLogger } from "../../infra/telemetry.ts";
import type { BudgetReport } from "../../pipelines/budget/report.ts";
import { addDays } from "../../pipelines/record/time.ts";
import { LOG_TOPIC_OPTIONS, OWNER_GROUP } from "../../pipelines/record/topics.ts";
import { ensureKeys } from "../../pipelines/roles/data-folder.ts";
import { JWKS, ORIGIN } from "../pipelines/4-publish/world.ts";
import { archiveStory, FIRST, type Share } from "../pipelines/roles/archive-story.ts";
import { PARTITIONS, SELLERS } from "../pipelines/roles/records.ts";

const logger = createLogger("silent");

let kafka: KafkaCluster;
let s3: S3Server;
let place: { privateStore: S3Bucket; publicStore: S3Bucket };
const members: Ownership[] = [];

beforeAll(async () => {
  [kafka, s3] = [await startKafka(), await startS3Server()];
  place = { privateStore: await s3.place("private"), publicStore: await s3.place("public") };
});
afterAll(async () => {
  await kafka.stop();
  await s3.stop();
});

/** Resolves when so many members of the group hold all partitions, each the same number of them. */
async function dealt(): Promise<void> {
  for (let n = 0; n < 18_000; n++) {
    if (members.every((one) => one.held().length === PARTITIONS / members.length)) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`never dealt out among ${members.length} members`);
}

async function joinAll(count: number): Promise<Share[]> {
  const joined: Ownership[] = [];
  for (let n = 0; n < count; n++) {
    // The session is longer than any stall of this process, which does the work of all.
    const how = { logger, partitions: PARTITIONS, sessionMs: 60_000 };
    joined.push(await joinGroup({ brokers: kafka.brokers, prefix: "archive" }, OWNER_GROUP, how));
  }
  members.push(...joined);
  await dealt();
  return joined;
}

async function leave(one: Share): Promise<void> {
  const [gone] = members.splice(members.indexOf(one as Ownership), 1);
  await gone!.close();
  await dealt();
}

describe("the archive over a real broker and a real store, with two owners by consumer group", () => {
  archiveStory(async () => {
    const create = { partitions: PARTITIONS, replicas: 1, minInSync: 1 };
    const log = await openKafkaLog(
      { brokers: kafka.brokers, prefix: "archive" },
      { ...LOG_TOPIC_OPTIONS, logger, create },
    );
    const privateStore = await openS3Store(place.privateStore);
    const publicStore = await openS3Store(place.publicStore);
    const close = async () => {
      for (const one of members) await one.close();
      await log.close();
    };
    return { log, stores: { privateStore, publicStore }, join: joinAll, leave, close };
  }, 2);
});

test("touchstone budget answers from any machine with the public halves of the keys: of everybody's payments", async () => {
  const data = await mkdtemp(join(tmpdir(), "operator-"));
  ensureKeys(data, new Date("2026-10-01T00:00:00.000Z"));
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
  await rm(data, { recursive: true });
});
