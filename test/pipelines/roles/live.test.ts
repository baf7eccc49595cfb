import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { FixedClock } from "../../../infra/clock.ts";
import type { Lake } from "../../../infra/lake/duckdb.ts";
import { openEmbeddedLog } from "../../../infra/log/embedded.ts";
import type { Log } from "../../../infra/log/log.ts";
import { volatileRows } from "../../../pipelines/2-ingest/volatile.ts";
import { readView } from "../../../pipelines/4-publish/view.ts";
import { readUnpublishedCorrections } from "../../../pipelines/corrections/endpoint-record.ts";
import { headlineBasisOf } from "../../../pipelines/published/fold.ts";
import { partitionOf } from "../../../pipelines/record/ids.ts";
import { TOPICS } from "../../../pipelines/record/topics.ts";
import { type Owner, PartitionsRevoked } from "../../../pipelines/roles/protocol/owner.ts";
import { NO_VOLATILE_ROWS, type VolatileRows } from "../../../serving/tables/view.ts";
import { loadVolatile } from "../../../serving/tables/volatile.ts";
import { handshake, later } from "../2-ingest/records.ts";
import { openTestLake } from "../2-ingest/world.ts";
import { Deployment, gradeAll } from "./deployment.ts";
import { capOf, corrected, dayOf, PARTITIONS, placed, SELLERS } from "./records.ts";

/** The volatile tables over two owners whose partitions change hands, one publisher that names them, and two readers. */
const START = "2026-10-05T00:00:00.000Z";
const DAY = 86_400_000;
const clock = new FixedClock(later(START, 2 * DAY));
const given: (readonly number[])[] = [];

let dir: string;
let log: Log;
let at: Deployment;
let probes = 0;
const lakes: Lake[] = [];
const owners: Owner[] = [];
let followed: VolatileRows;

/** An owner begins in this place, over the lake that is there. */
async function begin(place: 0 | 1): Promise<void> {
  const ownership = { held: () => [...given[place]!], heard: true, onChange: () => () => undefined };
  lakes[place] ??= await openTestLake(join(dir, `lake-${place}.duckdb`));
  owners[place] = await at.owner([], { ownership, lake: lakes[place] });
}

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "live-"));
  log = await openEmbeddedLog(join(dir, "log"), { topics: TOPICS, partitions: PARTITIONS, clock });
  at = await Deployment.open(join(dir, "stores"), log, clock);
  await log.append(dayOf(START, 0));
});
afterAll(async () => {
  for (const lake of lakes) await lake.close();
  await at.close();
  await log.close();
  await rm(dir, { recursive: true, force: true });
});
beforeEach(async () => {
  [given[0], given[1]] = [
    [0, 1],
    [2, 3],
  ];
  followed = NO_VOLATILE_ROWS;
  await begin(0);
  await begin(1);
  await turn();
  await reads();
});

const probe = (n: number) =>
  log.append([placed(handshake(SELLERS[n]!.name, later(START, DAY + ++probes * 60_000), {}, `again ${probes}`))]);

/** Everybody's turn: grade, publish, write, name. */
async function turn(): Promise<void> {
  clock.set(new Date(clock.now().getTime() + 10_000));
  await gradeAll(owners, clock.now());
  await at.publishing().takeRuns();
  for (const owner of owners) await owner.writeVolatile();
  await at.publishing().nameTables();
}

const named = async (): Promise<string[]> => (await readView(at.publicStore))!.live;
const of = (keys: readonly string[], partition: number) => keys.filter((key) => key.startsWith(`live/${partition}.`));

/** What the whole query says of every partition, in the lake of its owner. */
async function whole(): Promise<Map<string, unknown>> {
  const fold = at.publisher.fold;
  const rows = new Map<string, unknown>();
  for (const [place, lake] of lakes.entries()) {
    const published = { get: (cap: string) => headlineBasisOf(fold, cap) };
    for (const row of await volatileRows(lake, published, await readUnpublishedCorrections(lake, fold)))
      if (given[place]!.includes(partitionOf(row.capability_id, PARTITIONS))) rows.set(row.capability_id, row);
  }
  return rows;
}

/** Who followed and who comes only now have what the whole query says, and no handshake is forgotten. */
async function reads(): Promise<void> {
  const all = await whole();
  const before = followed;
  followed = (await loadVolatile(at.publicStore, before)).volatile;
  const newcomer = (await loadVolatile(at.publicStore, NO_VOLATILE_ROWS)).volatile;
  for (const { rows } of [followed, newcomer])
    expect(new Map([...rows.values()].map(({ file: _, ...row }) => [row.capability_id, row]))).toEqual(all);
  expect(all.size).toBe(SELLERS.length);
  for (const { capability_id: cap, probes } of before.rows.values())
    expect(followed.rows.get(cap)?.probes).toBeGreaterThanOrEqual(probes);
}

test("a probe is one row in one further file; a correction shows, and so does its consequence", async () => {
  const before = await named();
  await probe(0);
  for (const owner of owners) await owner.writeVolatile();
  await at.publishing().nameTables();
  const after = await named();
  expect(after.slice(0, of(after, 0).length - 1)).toEqual(of(before, 0));
  expect(after.filter((key) => !before.includes(key))).toHaveLength(1);
  await reads();
  await log.append([corrected(SELLERS[0]!.name, later(START, 2 * DAY))]);
  for (const owner of owners) await owner.writeVolatile();
  await at.publishing().nameTables();
  await reads();
  expect(followed.rows.get(capOf(SELLERS[0]!.name))?.corrected).toContain("our fault");
  await turn();
  await turn();
  await reads();
  expect(followed.rows.get(capOf(SELLERS[0]!.name))?.corrected).toBe("[]");
});

test("a row names the card that it was made from, and not one that was published since", async () => {
  const [cap, { fold }] = [capOf(SELLERS[1]!.name), at.publisher];
  const newest = () => headlineBasisOf(fold, cap)!.leaf;
  const before = newest();
  expect(followed.rows.get(cap)?.card_leaf).toBe(before);
  await log.append([corrected(SELLERS[1]!.name, later(START, 2 * DAY + 60_000))]);
  for (const owner of owners) await owner.writeVolatile();
  // The card is published after the rows were made and before they are named.
  clock.set(new Date(clock.now().getTime() + 10_000));
  await gradeAll(owners, clock.now());
  await at.publishing().takeRuns();
  await at.publishing().nameTables();
  followed = (await loadVolatile(at.publicStore, followed)).volatile;
  expect(newest()).toBeGreaterThan(before);
  expect([followed.treeSize, followed.rows.get(cap)?.card_leaf]).toEqual([fold.size, before]);
  await turn();
  await reads();
  expect(followed.rows.get(cap)?.card_leaf).toBe(newest());
});

test("files of the owner before stand until all rows of the one after are there", async () => {
  const before = await named();
  for (let n = 0; n < SELLERS.length; n++) await probe(n);
  [given[0], given[1]] = [[0], [1, 2, 3]];
  await owners[0]!.writeVolatile();
  await at.publishing().nameTables();
  expect(of(await named(), 1)).toEqual(of(before, 1));
  await turn();
  expect(of(await named(), 1).some((key) => before.includes(key))).toBe(false);
  await reads();
});

test("a partition that is taken away during a turn is not told as it is then", async () => {
  let asked = 0;
  const ownership = { held: () => (asked++ === 0 ? [0, 1] : [0]), heard: true, onChange: () => () => undefined };
  owners[0] = await at.owner([], { ownership, lake: lakes[0]! });
  const before = await named();
  await probe(1);
  await expect(owners[0].writeVolatile()).rejects.toThrow(PartitionsRevoked);
  await at.publishing().nameTables();
  expect(await named()).toEqual(before);
  await begin(0);
  await turn();
  await reads();
});

test("nothing that is in use is deleted, however old; what nobody names is", async () => {
  await probe(2);
  await turn();
  // The publisher stands still while its owners go on, and collects garbage before it names anything.
  const stale = await named();
  for (let i = 0; i < 3; i++) {
    clock.set(new Date(clock.now().getTime() + 1_500_000));
    await probe(i);
    for (const owner of owners) await owner.writeVolatile();
  }
  clock.set(new Date(clock.now().getTime() + 7_200_000));
  expect(await at.publishing().collectGarbage()).toBeGreaterThan(0);
  await at.publishing().nameTables();
  await reads();
  await at.publishing().collectGarbage();
  const left = (await at.publicStore.list("live/")).map(({ key }) => key).filter((key) => /^live\/\d/.test(key));
  expect(left.sort()).toEqual([...(await named())].sort());
  expect(stale.some((key) => left.includes(key))).toBe(true);
  // Who was not heard of for so long begins anew: what it would go on with may be gone.
  await turn();
  await reads();
  expect((await named()).some((key) => left.includes(key))).toBe(false);
});
