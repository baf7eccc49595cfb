import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { decompress } from "zstd-napi";
import { FixedClock } from "../../../infra/clock.ts";
import { openEmbeddedLog } from "../../../infra/log/embedded.ts";
import type { Log, NewRecord } from "../../../infra/log/log.ts";
import { archiveFileKey, archiveManifestKey, dayOfManifest } from "../../../pipelines/record/archive.ts";
import type { ArchiveLeaf } from "../../../pipelines/record/leaf.ts";
import { addDays } from "../../../pipelines/record/time.ts";
import { TOPICS } from "../../../pipelines/record/topics.ts";
import type { Owner } from "../../../pipelines/roles/owner.ts";
import { handshake, later } from "../2-ingest/records.ts";
import { Deployment, gradeAll } from "./deployment.ts";
import { dayOf, PARTITIONS, placed, SELLERS } from "./records.ts";

/** The same input, archived by `touchstone start`, by one owner and by four: the same files, and the same is left. */
const START = "2026-10-05T00:00:00.000Z";
const FIRST = START.slice(0, 10);
const DAYS = 5;
const DAY = 86_400_000;
/** Small, so that a day has several files. */
const ROWS_A_FILE = 10;
const at = (days: number, ms = 0): Date => new Date(later(START, days * DAY + ms));
const clock = new FixedClock(START);

let dir: string;
let log: Log;
const deployments: Deployment[] = [];
const open = async (name: string): Promise<Deployment> => {
  const one = await Deployment.open(join(dir, name), log, clock);
  deployments.push(one);
  return one;
};
/** Of the first day, seen by all of them only after that day was filed. */
const late: NewRecord[] = SELLERS.slice(0, 4).map(({ name }) =>
  placed(handshake(name, later(START, DAY - 1_000), { price: "0.990000" })),
);

/** A turn closes seven days, which is as many as have records, and what came late. */
async function evidence(one: Deployment, owners: readonly Owner[], now: Date): Promise<void> {
  for (const owner of owners) await owner.evidence(now);
  await one.publishing().evidence();
}

/** Owners say, the publisher files, owners take out what is filed. */
async function archive(one: Deployment, owners: readonly Owner[], now: Date): Promise<void> {
  for (let files = 1; files > 0; ) {
    for (const owner of owners) await owner.archive(now);
    files = (await one.publishing().archive(one.filing({ rowsAFile: ROWS_A_FILE }))).files;
  }
}

const filed = async (one: Deployment): Promise<ArchiveLeaf[]> =>
  (await one.leaves()).filter((leaf): leaf is ArchiveLeaf => leaf.kind === "archive");
const keyOf = ({ manifest }: ArchiveLeaf): string =>
  archiveFileKey(manifest.subject, dayOfManifest(manifest), manifest.content_hash);
const linesOf = async (one: Deployment, leaf: ArchiveLeaf): Promise<string[]> =>
  decompress((await one.publicStore.get(keyOf(leaf)))!.bytes)
    .toString("utf8")
    .split("\n")
    .filter(Boolean);

/** What these lakes know, together. */
async function left(one: Deployment) {
  const all = async (query: string): Promise<string[]> => {
    const rows = await Promise.all(one.lakes.map((lake) => lake.all<{ row: string }>(query)));
    return rows
      .flat()
      .map(({ row }) => row)
      .sort();
  };
  const text = (from: string) => all(`SELECT to_json(t)::VARCHAR AS row FROM (${from}) t`);
  return {
    events: await text("SELECT event_id FROM event"),
    samples: await text("SELECT obs_id FROM every_sample"),
    seen: await text("FROM seen"),
    quoted: await text("FROM quoted"),
    endpoints: await text("FROM endpoint"),
  };
}

let start: Deployment;
let one: Deployment;
let four: Deployment;
let single: Owner[];
let quarters: Owner[];
const pipelines: { archive(now: Date): Promise<unknown> }[] = [];

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "owners-archive-"));
  log = await openEmbeddedLog(join(dir, "log"), { topics: TOPICS, partitions: PARTITIONS, clock });
  [start, one, four] = [await open("start"), await open("one"), await open("four")];
  const pipeline = await start.pipeline({ rowsAFile: ROWS_A_FILE });
  pipelines.push(pipeline);
  single = [await one.owner([0, 1, 2, 3])];
  quarters = await Promise.all([0, 1, 2, 3].map((partition) => four.owner([partition])));
  for (let day = 0; day < DAYS; day++) await log.append(dayOf(START, day));
  const graded = at(DAYS, -1);
  clock.set(graded);
  await pipeline.grade(graded);
  for (const [where, owners] of [
    [one, single],
    [four, quarters],
  ] as const) {
    await gradeAll(owners, graded);
    await where.publishing().runs();
  }
  // Two days are old enough; then a day's records come late, and a third day comes of age.
  for (const [days, more] of [
    [112, []],
    [113, late],
  ] as const) {
    if (more.length > 0) await log.append(more);
    const now = at(days);
    clock.set(now);
    await pipeline.ingest();
    await pipeline.archive(now);
    for (const [where, owners] of [
      [one, single],
      [four, quarters],
    ] as const) {
      await evidence(where, owners, now);
      await archive(where, owners, now);
    }
  }
});

afterAll(async () => {
  for (const deployment of deployments) await deployment.close();
  await log.close();
  await rm(dir, { recursive: true, force: true });
});

describe("the archive of one owner or four", () => {
  test("has the files and manifests of one process, byte for byte", async () => {
    const all = async (where: Deployment) =>
      Promise.all(
        (await filed(where)).map(async (leaf) => ({
          ...{ manifest: leaf.manifest, sha256: leaf.sha256, positions: leaf.positions, supersedes: leaf.supersedes },
          file: Buffer.from((await where.publicStore.get(keyOf(leaf)))!.bytes).toString("base64"),
          signed: Buffer.from((await where.publicStore.get(archiveManifestKey(leaf.manifest.id)))!.bytes).toString(),
        })),
      );
    const [want, ofOne, ofFour] = [await all(start), await all(one), await all(four)];
    const days = new Set(want.map(({ manifest }) => dayOfManifest(manifest)));
    expect([...days].sort()).toEqual([0, 1, 2].map((n) => addDays(FIRST, n)));
    // Several files of a day, and a further one of what came late.
    const first = want.filter(
      ({ manifest }) => manifest.subject === "liveness_probes" && dayOfManifest(manifest) === FIRST,
    );
    expect(first.map(({ manifest }) => manifest.rows)).toEqual([10, 10, 7, 4]);
    expect(want.some(({ manifest }) => manifest.subject === "grades" && manifest.rows > 0)).toBe(false);
    expect(ofOne).toEqual(want);
    expect(ofFour).toEqual(want);
  });

  test("leaves the same in the lakes: the rows are gone, totals and paid calls stay", async () => {
    const want = await left(start);
    expect(want.seen).toHaveLength(SELLERS.length);
    expect(await left(one)).toEqual(want);
    expect(await left(four)).toEqual(want);
    const files = (await Promise.all((await filed(four)).map((leaf) => linesOf(four, leaf)))).flat();
    const moved = new Set(files.map((line) => JSON.parse(line).record_id as string));
    expect(moved.size).toBe(SELLERS.length * 3 * 3 + late.length);
    expect(want.events.filter((row) => moved.has(JSON.parse(row).event_id))).toEqual([]);
  });
});
