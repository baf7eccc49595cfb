import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { FixedClock } from "../../../infra/clock.ts";
import type { Lake } from "../../../infra/lake/duckdb.ts";
import { openEmbeddedLog } from "../../../infra/log/embedded.ts";
import type { Log } from "../../../infra/log/log.ts";
import { createMetrics } from "../../../infra/telemetry.ts";
import { createIngest, type Ingest } from "../../../pipelines/2-ingest/ingest.ts";
import { partitionOf } from "../../../pipelines/record/ids.ts";
import { TOPICS } from "../../../pipelines/record/topics.ts";
import { ask, handshake, later } from "../2-ingest/records.ts";
import { openTestLake } from "../2-ingest/world.ts";
import { gradeRun } from "../3-grade/grade-run.ts";
import { Deployment, logger } from "./deployment.ts";
import { capOf, corrected, dayOf, PARTITIONS, placed, SELLERS, sellerIn } from "./records.ts";

/** A process whose partitions change has the lake that a new process with the same partitions would load. */
const START = "2026-10-05T00:00:00.000Z";
const clock = new FixedClock(START);
/** Asked about and probed, never listed; its host lies in another partition than it. */
const ASKED = [0, 1, 2, 3].map((partition) => {
  for (let n = 0; ; n++) {
    const name = sellerIn(partition, "asked", n);
    if (partitionOf(`${name}.example`, PARTITIONS) !== partition) return name;
  }
});

let dir: string;
let log: Log;
let at: Deployment;
const lakes: Lake[] = [];

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "hold-"));
  log = await openEmbeddedLog(join(dir, "log"), { topics: TOPICS, partitions: PARTITIONS, clock });
  at = await Deployment.open(join(dir, "stores"), log, clock);
  for (const day of [0, 1, 4, 5]) await log.append(dayOf(START, day));
  await log.append([corrected(SELLERS[0]!.name, later(START, 86_400_000))]);
  for (const name of ASKED) {
    const time = later(START, 7_200_000);
    const where = { planned: "asked" as const, url: `https://${name}.example/paid`, method: "GET" as const };
    await log.append([placed(ask(name, time)), placed(handshake(name, later(time, 60_000), where))]);
  }
});
afterAll(async () => {
  for (const lake of lakes) await lake.close();
  await at.close();
  await log.close();
  await rm(dir, { recursive: true, force: true });
});

async function open(): Promise<{ lake: Lake; ingest: Ingest }> {
  const lake = await openTestLake(join(dir, `lake-${lakes.length}.duckdb`));
  lakes.push(lake);
  const { privateStore } = at;
  const metrics = createMetrics();
  return { lake, ingest: createIngest({ log, privateStore, lake, clock, logger, metrics, partitions: [] }) };
}

/** Every table with its rows, in an order of their own. */
async function contentOf(lake: Lake): Promise<Record<string, string[]>> {
  const tables = await lake.all<{ name: string }>(
    "SELECT table_name AS name FROM information_schema.tables WHERE table_type = 'BASE TABLE' AND table_schema = 'main' ORDER BY 1",
  );
  const content: Record<string, string[]> = {};
  for (const { name } of tables) {
    const rows = await lake.all<{ row: string }>(`SELECT to_json(t)::VARCHAR AS row FROM ${name} t`);
    content[name] = rows.map(({ row }) => row).sort();
  }
  return content;
}

async function fresh(partitions: readonly number[]): Promise<Record<string, string[]>> {
  const { lake, ingest } = await open();
  await ingest.hold(partitions);
  await ingest.pass();
  return contentOf(lake);
}

test("what is given back leaves the lake, what is taken is loaded from the chain, and nothing else changes", async () => {
  const { lake, ingest } = await open();
  for (const held of [[0, 1, 2, 3], [1, 2], [1, 2, 3], [], [0, 3], [0, 1, 2, 3]]) {
    await ingest.hold(held);
    await ingest.pass();
    expect([held, await contentOf(lake)]).toEqual([held, await fresh(held)]);
  }
});

test("thieves of a partition that was given back are the other owner's", async () => {
  const { lake, ingest } = await open();
  const now = new Date(later(START, 10 * 86_400_000));
  const thief = SELLERS.find(({ stealsFrom }) => stealsFrom !== null)!;
  const partition = partitionOf(capOf(thief.name), PARTITIONS);
  const thieves = async (): Promise<string[]> =>
    (await lake.all<{ cap: string }>("SELECT cap FROM thefts")).map(({ cap }) => cap);
  await ingest.hold([0, 1, 2, 3]);
  await ingest.pass();
  await lake.transaction((tx) => gradeRun(tx, { now, endpointIds: "all" }));
  expect(await thieves()).toEqual([capOf(thief.name)]);
  await ingest.hold([0, 1, 2, 3].filter((one) => one !== partition));
  expect(await thieves()).toEqual([]);
});

test("an asked place is known in its own partition alone, with its domain", async () => {
  const { lake, ingest } = await open();
  for (const [partition, name] of ASKED.entries()) {
    await ingest.hold([partition]);
    await ingest.pass();
    const [row] = await lake.all<{ url: string; domain: string }>(
      "SELECT e.url, s.domain FROM endpoint e JOIN site s USING (cap) WHERE cap = $cap",
      { cap: capOf(name) },
    );
    expect(row).toEqual({ url: `https://${name}.example/paid`, domain: `${name}.example` });
  }
});

test("what a rival committed of a partition that is held is loaded on the next turn, though the log ends there", async () => {
  const [ours, rival] = [await open(), await open()];
  for (const one of [ours, rival]) {
    await one.ingest.hold([0, 1, 2, 3]);
    await one.ingest.pass();
  }
  const late = placed(handshake(SELLERS[0]!.name, later(START, 6 * 86_400_000)));
  await log.append([late]);
  await rival.ingest.pass();
  await ours.ingest.hold([0, 1, 2, 3]);
  await ours.ingest.pass();
  expect(await ours.lake.all("SELECT 1 AS here FROM event WHERE event_id = $id", { id: late.eventId })).toHaveLength(1);
  expect(await ours.ingest.positions()).toEqual(await rival.ingest.positions());
});

test("a suspended process commits nothing and keeps its rows; then it has those of the partitions that it is given", async () => {
  const { lake, ingest } = await open();
  await ingest.hold([0, 1, 2, 3]);
  await ingest.pass();
  const [before, revocations] = [await contentOf(lake), ingest.revocations];
  ingest.suspend();
  ingest.suspend();
  await log.append([placed(handshake(SELLERS[0]!.name, later(START, 6.5 * 86_400_000)))]);
  const stored = await at.privateStore.list("lake/");
  expect(await ingest.pass()).toMatchObject({ rows: 0 });
  expect([await contentOf(lake), ingest.revocations]).toEqual([before, revocations + 1]);
  expect(await at.privateStore.list("lake/")).toEqual(stored);

  await ingest.hold([0, 1, 2, 3]);
  expect(await ingest.pass()).toMatchObject({ rows: 1 });
  expect(await contentOf(lake)).toEqual(await fresh([0, 1, 2, 3]));
  ingest.suspend();
  await ingest.hold([1, 2]);
  await ingest.pass();
  expect(await contentOf(lake)).toEqual(await fresh([1, 2]));
});

test("partitions that were given before contact was lost are not taken after it", async () => {
  const { lake, ingest } = await open();
  await ingest.hold([0, 1]);
  await ingest.pass();
  const before = await contentOf(lake);
  const given = ingest.hold([2]);
  ingest.suspend();
  await expect(given).rejects.toMatchObject({ code: "busy" });
  expect(await contentOf(lake)).toEqual(before);
});
