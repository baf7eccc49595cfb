import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { MarketLetters } from "../../commands/letters.ts";
import { type KafkaCluster, startKafka } from "../../fixtures/cluster/kafka.ts";
import { type S3Server, s3Settings, startS3Server } from "../../fixtures/cluster/versitygw.ts";
import { openS3Store } from "../../infra/store/s3/s3.ts";
import { StoreSource } from "../../pipelines/published/open-source.ts";
import { foldersOf } from "../../pipelines/roles/data-folder.ts";
import { DESERVED } from "../flow/deserved.ts";
import { auditOf, notOk } from "../helpers/published.ts";
import { runStart } from "../helpers/run-start.ts";

/** The market with its log in a real Kafka and its stores in a real S3: its letters, and the same proof. */
let kafka: KafkaCluster;
let s3: S3Server;
let dir: string;
let result: MarketLetters;

/**
 * Days of the market. Each seller has the letter that it deserves by then, with two exceptions. An A needs 31 days, so
 * it is a B. regulars-only fails only for wallets that are new to the market, and one planned call in four is made from
 * such a wallet; a re-test is made only after a failure. If none of its last dozen planned calls is of them, it has no
 * re-test and is a C: 19 of 3,000 histories, drawn as in test/flow/drawn-letters.test.ts.
 * test/flow/letters.test.ts runs all days of the demo.
 */
const DAYS = 20;
const bandByThen = (seller: string, band: string): string =>
  seller === "regulars-only" ? "[CDF]" : band === "A" ? "B" : band;

beforeAll(async () => {
  [kafka, s3] = [await startKafka(), await startS3Server()];
  dir = await mkdtemp(join(tmpdir(), "cluster-market-"));
  const place = await s3.place("private");
  await s3.place("public");
  const where = [
    "--log",
    `kafka://${kafka.brokers[0]}/market`,
    "--private",
    "s3://private/run",
    "--public",
    "s3://public",
  ];
  const run = runStart(["--market", "--once", "--json", "--days", String(DAYS), ...where], {
    TOUCHSTONE_DATA_DIR: dir,
    TOUCHSTONE_PORT: "0",
    TOUCHSTONE_BASE_URL: "http://touchstone.test",
    TOUCHSTONE_KAFKA_CREATE: "true",
    TOUCHSTONE_KAFKA_REPLICAS: "1",
    TOUCHSTONE_KAFKA_MIN_IN_SYNC: "1",
    ...s3Settings(place),
  });
  const ended = await run.ended;
  expect(ended, ended.stderr).toMatchObject({ code: 0 });
  result = JSON.parse(ended.stdout) as MarketLetters;
  // For a seller whose letter surprises: how often it was paid, beside the others.
  for (const { seller, band, samples, why } of result.market) {
    const paidCalls = /\((\d+) paid calls/.exec(why)?.[1] ?? "no";
    process.stdout.write(`${seller}: ${band}, ${samples} samples, ${paidCalls} paid calls\n`);
  }
});

afterAll(async () => {
  await kafka.stop();
  await s3.stop();
  await rm(dir, { recursive: true, force: true });
});

describe("the market over Kafka and S3", () => {
  test.each(Object.entries(DESERVED))("%s gets what it deserves by then", (seller, { band, tier }) => {
    const found = result.market.find((one) => one.seller === seller)!;
    expect(found, JSON.stringify(found)).toMatchObject({ tier: `${tier}_VERIFIED` });
    expect(found.band, JSON.stringify(found)).toMatch(new RegExp(`^(?:${bandByThen(seller, band)})$`));
  });

  test("nothing of log and stores lies on this machine", () => {
    const at = foldersOf(dir);
    for (const folder of [at.log, at.private, at.public]) expect([folder, existsSync(folder)]).toEqual([folder, false]);
  });

  test("the record in the public bucket is proven from its first leaf", async () => {
    const store = await openS3Store(await s3.place("public"), { probe: false });
    const report = await auditOf(new StoreSource("s3://public", store));
    expect(notOk(report)).toEqual([]);
    expect([report.proven, report.tree_size]).toEqual([true, result.tree_size]);
    await store.close();
  });
});
