import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { decompress } from "zstd-napi";
import { openChain } from "../../../infra/chain/commits.ts";
import { FixedClock } from "../../../infra/clock.ts";
import type { Lake } from "../../../infra/lake/duckdb.ts";
import { openEmbeddedLog } from "../../../infra/log/embedded.ts";
import type { Log } from "../../../infra/log/log.ts";
import { BadPrivate } from "../../../pipelines/4-publish/generation.ts";
import type { ArchiveStep } from "../../../pipelines/5-archive/filing.ts";
import { ArchiveUnproven } from "../../../pipelines/5-archive/read-back.ts";
import { archiveFileKey, dayOfManifest } from "../../../pipelines/record/archive.ts";
import type { ArchiveLeaf } from "../../../pipelines/record/leaf.ts";
import { addDays } from "../../../pipelines/record/time.ts";
import { TOPICS } from "../../../pipelines/record/topics.ts";
import { type ArchivePart, archiveParts } from "../../../pipelines/roles/archive-parts.ts";
import type { OwnArchiveStep } from "../../../pipelines/roles/own-archive.ts";
import type { Owner } from "../../../pipelines/roles/owner.ts";
import { proveRecord } from "../../helpers/prove-record.ts";
import { handshake } from "../2-ingest/records.ts";
import { openTestLake } from "../2-ingest/world.ts";
import { TRUST } from "../4-publish/world.ts";
import { Deployment } from "./deployment.ts";
import { PARTITIONS, placed, sellerIn } from "./records.ts";

/** A day for each disaster: it comes of age, an owner or the publisher dies, and after it everything is looked at. */
const FIRST = "2026-10-05";
const DAYS = 18;
const NAMES = [0, 1, 2, 3].map((partition) => sellerIn(partition, "good"));
const input = Array.from({ length: DAYS }, (_, n) => addDays(FIRST, n)).flatMap((day) =>
  NAMES.map((name, i) => placed(handshake(name, `${day}T05:00:00.000Z`, { price: `0.0${i + 1}0000` }))),
);
const everyId = input.map(({ eventId }) => eventId).sort();
const clock = new FixedClock(`${FIRST}T00:00:00.000Z`);

let dir: string;
let log: Log;
let at: Deployment;
/** The partitions that each of the two owners holds now; they may change hands at any time. */
const given: [number[], number[]] = [
  [0, 1],
  [2, 3],
];
const owners: Owner[] = [];
const lakes: Lake[] = [];
let turn = 0;
let born = 0;

/** An owner with an empty disk in this place: the one before is dead, and its lake with it. */
async function begin(place: 0 | 1): Promise<void> {
  const ownership = { held: () => [...given[place]], onChange: () => () => undefined };
  const lake = await openTestLake(join(dir, `lake-${place}-${born++}.duckdb`));
  const before = lakes[place];
  lakes[place] = lake;
  owners[place] = await at.owner([], { ownership, lake });
  await before?.close();
}

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "archive-faults-"));
  log = await openEmbeddedLog(join(dir, "log"), { topics: TOPICS, partitions: PARTITIONS, clock });
  at = await Deployment.open(join(dir, "stores"), log, clock);
  await begin(0);
  await begin(1);
  await log.append(input);
  const closed = new Date(`${addDays(FIRST, DAYS)}T12:00:00.000Z`);
  clock.set(closed);
  for (let days = 1; days > 0; ) {
    for (const owner of owners) await owner.evidence(closed);
    days = (await at.publishing().evidence()).days.length;
  }
});
afterAll(async () => {
  for (const lake of lakes) await lake.close();
  await at.close();
  await log.close();
  await rm(dir, { recursive: true, force: true });
});

const now = (): Date => clock.now();
/** From now on one more day is old enough. */
const age = (): void => clock.set(`${addDays(FIRST, 111 + turn++)}T00:00:00.000Z`);
const take = async (place: 0 | 1, onStep?: (step: OwnArchiveStep) => void): Promise<void> => {
  await owners[place]!.archive(now(), onStep ? { onStep } : {});
};
const file = (onStep?: (step: ArchiveStep) => void) =>
  at
    .publishing(Deployment.publisherOver(log, clock, at.privateStore, at.publicStore))
    .archive(at.filing(onStep ? { onStep } : {}));

async function idle(): Promise<void> {
  for (let files = 1; files > 0; ) {
    await take(0);
    await take(1);
    files = (await file()).files;
  }
}

const filed = async (): Promise<ArchiveLeaf[]> =>
  (await at.leaves()).filter((leaf): leaf is ArchiveLeaf => leaf.kind === "archive");

/** Rows of both lakes, and rows of the published files. */
async function where() {
  const inLake = async (lake: Lake): Promise<string[]> =>
    (await lake.all<{ event_id: string }>("SELECT event_id FROM event")).map(({ event_id }) => event_id);
  const files: string[] = [];
  for (const { manifest } of await filed()) {
    const key = archiveFileKey(manifest.subject, dayOfManifest(manifest), manifest.content_hash);
    const text = decompress((await at.publicStore.get(key))!.bytes).toString("utf8");
    for (const line of text.split("\n").filter(Boolean))
      files.push((JSON.parse(line) as { record_id: string }).record_id);
  }
  return { lake: (await Promise.all(lakes.map(inLake))).flat(), files };
}

/** Nothing is lost, and nothing stands twice in the files or twice in the lakes. */
async function nothingLost() {
  const { lake, files } = await where();
  expect([...new Set([...lake, ...files])].sort()).toEqual(everyId);
  expect(new Set(files).size).toBe(files.length);
  expect(new Set(lake).size).toBe(lake.length);
  return { lake, files };
}

const totals = async (): Promise<unknown[]> => {
  const rows = await Promise.all(
    lakes.map((lake) => lake.all("SELECT cap, probes::INTEGER AS probes, first_seen, last_seen FROM seen")),
  );
  return rows.flat().sort((a, b) => ((a as { cap: string }).cap < (b as { cap: string }).cap ? -1 : 1));
};

/** After all jobs were done: all days that came of age are filed, and the totals are those of all records. */
async function whole(): Promise<void> {
  const { lake, files } = await nothingLost();
  expect(files).toHaveLength(turn * NAMES.length);
  expect(lake).toHaveLength(everyId.length - files.length);
  expect(await totals()).toMatchObject(NAMES.map(() => ({ probes: DAYS })));
}

class Killed extends Error {}
const dieAt =
  <S extends string>(step: S) =>
  (reached: S): void => {
    if (reached === step) throw new Killed(step);
  };

const OWNER_STEPS: OwnArchiveStep[] = ["taken out", "looked", "written"];
const PUBLISHER_STEPS: ArchiveStep[] = [
  "made",
  "packed",
  "put",
  "read back",
  "counted",
  "signed",
  "manifest put",
  "published",
];

describe("an owner dies", () => {
  test.each(OWNER_STEPS)(
    "after: %s",
    async (step) => {
      age();
      await expect(take(0, dieAt(step))).rejects.toThrow(Killed);
      await nothingLost();
      await file();
      await nothingLost();
      // Every second one with its disk.
      if (turn % 2 === 0) await begin(0);
      await idle();
      await whole();
    },
    120_000,
  );
});

describe("the publisher dies", () => {
  test.each(PUBLISHER_STEPS)(
    "after: %s",
    async (step) => {
      age();
      await take(0);
      await take(1);
      await expect(file(dieAt(step))).rejects.toThrow(Killed);
      await nothingLost();
      await idle();
      await whole();
    },
    120_000,
  );
});

describe("a partition changes hands", () => {
  test("its totals come along at once, and nothing that was filed comes back", async () => {
    const before = await totals();
    given[0] = [0, 1, 2];
    given[1] = [3];
    for (const owner of owners) await owner.ingest();
    expect(await totals()).toEqual(before);
    await whole();
  });

  test("between what was said of it and the file: the rows leave the lake of whoever has it then", async () => {
    age();
    await take(0);
    await take(1);
    given[0] = [0];
    given[1] = [1, 2, 3];
    for (const owner of owners) await owner.ingest();
    await nothingLost();
    await idle();
    await whole();
  });

  test("while its rows are counted: nothing is said of it", async () => {
    age();
    const parts = archiveParts(at.privateStore, log);
    const said = async (): Promise<ArchivePart> => (await parts.all()).get(2)!;
    const before = await said();
    const lose = (step: OwnArchiveStep): void => {
      if (step === "looked") given[1] = [];
    };
    await expect(take(1, lose)).rejects.toThrow("were revoked");
    expect(await said()).toEqual(before);
    given[0] = [0, 1, 2, 3];
    await idle();
    await whole();
  });

  test("a segment that is torn or gone stops the day until it is there again", async () => {
    age();
    await take(0);
    await take(1);
    const chain = openChain(at.privateStore, { logId: log.id, topic: "observations.free", partition: 3 });
    const { file: key } = (await chain.head()).live[0]!;
    const { bytes, etag } = (await at.privateStore.get(key))!;
    const { etag: torn } = (await at.privateStore.swap(key, bytes.subarray(0, bytes.length >> 1), etag)) as {
      etag: string;
    };
    await expect(file()).rejects.toThrow(key);
    await at.privateStore.delete(key);
    await expect(file()).rejects.toThrow(key);
    await nothingLost();
    await at.privateStore.create(key, bytes);
    expect(torn).not.toBe(etag);
    await idle();
    await whole();
  });

  test("a row that the lake has and the segments have not, or they and not it, stops the day", async () => {
    age();
    await take(0);
    await take(1);
    const key = "owners/archive/02";
    const { bytes, etag } = (await at.privateStore.get(key))!;
    const said = JSON.parse(Buffer.from(bytes).toString("utf8")) as ArchivePart;
    for (const day of Object.values(said.days)) day.rows++;
    await at.privateStore.swap(key, Buffer.from(JSON.stringify(said)), etag);
    await expect(file()).rejects.toThrow(ArchiveUnproven);
    await nothingLost();
    await idle();
    await whole();
  });

  test("what an owner said and nobody can read is said anew, and nothing is filed before", async () => {
    age();
    await take(0);
    await take(1);
    const key = "owners/archive/03";
    const { etag } = (await at.privateStore.get(key))!;
    await at.privateStore.swap(key, Buffer.from('{"v":1'), etag);
    await expect(file()).rejects.toThrow(BadPrivate);
    await nothingLost();
    await idle();
    await whole();
  });

  test("and at the end the record is proven from its first leaf", async () => {
    await proveRecord(at.publicStore, { trust: TRUST });
    expect(turn).toBeLessThanOrEqual(DAYS);
  });
});
