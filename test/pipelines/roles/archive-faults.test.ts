import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { openChain } from "../../../infra/chain/commits.ts";
import { FixedClock } from "../../../infra/clock.ts";
import type { Lake } from "../../../infra/lake/duckdb.ts";
import { openEmbeddedLog } from "../../../infra/log/embedded.ts";
import type { Log } from "../../../infra/log/log.ts";
import { BadPrivateObject } from "../../../pipelines/4-publish/generation.ts";
import type { Publisher } from "../../../pipelines/4-publish/publisher.ts";
import type { ArchiveStep } from "../../../pipelines/5-archive/filing.ts";
import { Unproven } from "../../../pipelines/published/errors.ts";
import { addDays } from "../../../pipelines/record/time.ts";
import { TOPICS } from "../../../pipelines/record/topics.ts";
import { type ArchivePart, openArchiveParts } from "../../../pipelines/roles/protocol/archive-parts.ts";
import type { OwnArchiveStep } from "../../../pipelines/roles/protocol/own-archive.ts";
import type { Owner, OwnerParts } from "../../../pipelines/roles/protocol/owner.ts";
import type { ArchivingParts } from "../../../pipelines/roles/protocol/publishing.ts";
import { expectNothingLost, type Rows, rowsOf } from "../../helpers/archive-rows.ts";
import { proveRecord } from "../../helpers/prove-record.ts";
import { ofKind } from "../../helpers/published.ts";
import { handshake } from "../2-ingest/records.ts";
import { openTestLake } from "../2-ingest/world.ts";
import { TRUST } from "../4-publish/world.ts";
import { Deployment } from "./deployment.ts";
import { FaultInjected, type FaultKind, faultIn, faultInLake } from "./injected-faults.ts";
import { PARTITIONS, placed, sellerIn } from "./records.ts";

/** A day for each disaster: it comes of age, something goes wrong with it, and after that everything is looked at. */
const FIRST = "2026-10-05";
const DAYS = 53;
const NAMES = [0, 1, 2, 3].map((partition) => sellerIn(partition, "good"));
const input = Array.from({ length: DAYS }, (_, n) => addDays(FIRST, n)).flatMap((day) =>
  NAMES.map((name, i) => placed(handshake(name, `${day}T05:00:00.000Z`, { price: `0.0${i + 1}0000` }))),
);
const everyId = input.map(({ eventId }) => eventId);
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

const ownerOf = (place: 0 | 1, more: Partial<OwnerParts> = {}): Promise<Owner> => {
  const ownership = { held: () => [...given[place]], heard: true, onChange: () => () => undefined };
  return at.owner([], { ownership, lake: lakes[place]!, ...more });
};

/** Another owner in this place; the one before is dead, and so is its lake where the disk is empty. */
async function begin(place: 0 | 1, disk: "empty" | "its own"): Promise<void> {
  const before = lakes[place];
  if (disk === "empty") lakes[place] = await openTestLake(join(dir, `lake-${place}-${born++}.duckdb`));
  owners[place] = await ownerOf(place);
  if (disk === "empty") await before?.close();
}

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "archive-faults-"));
  log = await openEmbeddedLog(join(dir, "log"), { topics: TOPICS, partitions: PARTITIONS, clock });
  at = await Deployment.open(join(dir, "stores"), log, clock);
  await begin(0, "empty");
  await begin(1, "empty");
  await log.append(input);
  const closed = new Date(`${addDays(FIRST, DAYS)}T12:00:00.000Z`);
  clock.set(closed);
  for (let days = 1; days > 0; ) {
    for (const owner of owners) await owner.makeEvidence(closed);
    days = (await at.publishing().publishEvidence()).days.length;
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
  await owners[place]!.makeArchive(now(), onStep ? { onStep } : {});
};
/** One more day comes of age, and the owners write down what they have of it. */
const taken = async (): Promise<void> => {
  age();
  await take(0);
  await take(1);
};
const file = (by: Publisher = at.publisher, more: Partial<ArchivingParts> = {}) =>
  at.publishing(by).publishArchive(at.filing(more));
/** A publisher of another process, which knows only what is durable. */
const another = (stores: Partial<Pick<Deployment, "privateStore" | "publicStore">> = {}): Publisher => {
  const { privateStore, publicStore } = { ...at, ...stores };
  return Deployment.publisherOver(log, clock, privateStore, publicStore);
};

async function idle(): Promise<void> {
  for (let files = 1; files > 0; ) {
    await take(0);
    await take(1);
    files = (await file()).files;
  }
  // A turn that only finishes what somebody else began files nothing itself.
  await take(0);
  await take(1);
}

const nothingLost = async (): Promise<Rows> =>
  expectNothingLost(await rowsOf(lakes, at.publicStore, await at.leaves()), everyId);

const totals = async (): Promise<unknown[]> => {
  const rows = await Promise.all(
    lakes.map((lake) => lake.all("SELECT cap, probes::INTEGER AS probes, first_seen, last_seen FROM seen")),
  );
  return rows.flat().sort((a, b) => ((a as { cap: string }).cap < (b as { cap: string }).cap ? -1 : 1));
};

/** After all jobs were done: each day that came of age is filed once, and the totals are those of all records. */
async function whole(): Promise<void> {
  const { lake, files } = await nothingLost();
  expect(files).toHaveLength(turn * NAMES.length);
  expect(lake).toHaveLength(everyId.length - files.length);
  expect(ofKind(await at.leaves(), "archive")).toHaveLength(turn * 4);
  expect(await totals()).toMatchObject(NAMES.map(() => ({ probes: DAYS })));
}

/** This goes wrong, nothing is lost by it, and the next rounds file the day. */
async function disaster(wrong: Promise<unknown>, mend: () => unknown = () => undefined): Promise<void> {
  await expect(wrong).rejects.toThrow();
  await nothingLost();
  await mend();
  await idle();
  await whole();
}

const dieAt =
  <S extends string>(step: S) =>
  (reached: S): void => {
    if (reached === step) throw new FaultInjected(step);
  };

const OWNER_STEPS: OwnArchiveStep[] = ["taken out", "looked", "written"];
const PUBLISHER_STEPS: ArchiveStep[] = [
  ...(["made", "packed", "put", "read back", "counted", "signed", "manifest put", "published"] as const),
];

describe.each([
  ["fails, and goes on", null],
  ["dies, and another goes on with its disk", "its own"],
  ["dies, and another begins with an empty disk", "empty"],
] as const)("an owner %s", (_, disk) => {
  test.each(OWNER_STEPS)("after: %s", async (step) => {
    age();
    await expect(take(0, dieAt(step))).rejects.toThrow(FaultInjected);
    await nothingLost();
    await file();
    await nothingLost();
    if (disk) await begin(0, disk);
    await idle();
    await whole();
  });
});

describe.each(["fails, and goes on", "dies, and another goes on"])("the publisher %s", (how) => {
  test.each(PUBLISHER_STEPS)("after: %s", async (step) => {
    await taken();
    await disaster(file(how.startsWith("fails") ? at.publisher : another(), { onStep: dieAt(step) }));
  });
});

const FILE = /^archive\/liveness_probes\//;
const MANIFEST = /^archive\/arc_/;

/** A publisher of another process, one of whose writes or reads in the public store goes wrong. */
function publicFault(match: RegExp, how: FaultKind) {
  const { store, happened } = faultIn(at.publicStore, { match, how });
  return { filing: () => file(another({ publicStore: store }), { publicStore: store }), happened };
}

describe.each(["full", "answer lost"] as const)("a store: %s", (how) => {
  /** An answer that was lost may be found out by reading again: then nothing fails. */
  async function met(happened: () => boolean, work: () => Promise<unknown>): Promise<void> {
    const failed = await work().then(
      () => false,
      () => true,
    );
    expect([happened(), failed || how === "answer lost"]).toEqual([true, true]);
    await nothingLost();
    await idle();
    await whole();
  }

  test.each([
    ["file", FILE],
    ["manifest", MANIFEST],
    ["entries", /^tile\/entries\//],
    ["checkpoint", /^checkpoint$/],
  ])("at the %s", async (_, match) => {
    await taken();
    const { filing, happened } = publicFault(match, how);
    await met(happened, filing);
  });

  test.each([
    ["staging", /^staging\//],
    ["generation", /^generation\//],
  ])("at the %s", async (_, match) => {
    await taken();
    const { store, happened } = faultIn(at.privateStore, { match, how });
    await met(happened, () => file(another({ privateStore: store })));
  });

  test("at what an owner writes down", async () => {
    age();
    const { store, happened } = faultIn(at.privateStore, { match: /^owners\/archive\//, how });
    const owner = await ownerOf(0, { privateStore: store });
    await met(happened, () => owner.makeArchive(now()));
  });
});

describe("what was put is not what is there", () => {
  test.each<[string, FaultKind, RegExp]>([
    ["the file is not seen yet", "stale", FILE],
    ["a bit of the file is flipped on the way", "flipped", FILE],
    ["the manifest is not seen yet", "stale", MANIFEST],
    ["a bit of the manifest is flipped on the way", "flipped", MANIFEST],
  ])("%s", async (_, how, match) => {
    await taken();
    await disaster(publicFault(match, how).filing());
  });

  /** No store of ours tears a write. Where one does, nobody can adopt what has the name, and an operator removes it. */
  test.each([
    ["file", FILE],
    ["manifest", MANIFEST],
  ])("the %s was torn: it is never adopted, and the day is filed once it is gone", async (_, match) => {
    await taken();
    const keys = async () => (await at.publicStore.list("archive/", { limit: 10_000 })).map(({ key }) => key);
    const before = new Set(await keys());
    await disaster(publicFault(match, "torn").filing(), async () => {
      await expect(file()).rejects.toThrow(/exists with other content/);
      await nothingLost();
      const torn = (await keys()).filter((key) => match.test(key) && !before.has(key));
      expect(torn).toHaveLength(1);
      await at.publicStore.delete(torn[0]!);
    });
  });
});

test.each([
  ["rolled back", 2],
  ["answer lost", 0],
] as const)("the transaction that takes rows out of a lake: %s", async (how, here) => {
  const { lake, arm } = faultInLake(lakes[0]!, how);
  const owner = await ownerOf(0, { lake });
  await taken();
  await owner.makeArchive(now());
  await file();
  arm();
  await expect(owner.makeArchive(now())).rejects.toThrow(FaultInjected);
  const rows = await nothingLost();
  const filed = new Set(rows.files);
  const [own] = [await rowsOf([lakes[0]!], at.publicStore, [])];
  expect(own.lake.filter((id) => filed.has(id))).toHaveLength(here);
  await idle();
  await whole();
});

test("two publishers at once: each day is filed once", async () => {
  await taken();
  await Promise.allSettled([file(), file(another())]);
  await nothingLost();
  await idle();
  await whole();
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
    await taken();
    given[0] = [0];
    given[1] = [1, 2, 3];
    for (const owner of owners) await owner.ingest();
    await nothingLost();
    await idle();
    await whole();
  });

  test("while its rows are counted: nothing is said of it", async () => {
    age();
    const parts = openArchiveParts(at.privateStore, log);
    const said = async (): Promise<ArchivePart> => (await parts.readAll()).get(2)!;
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
});

describe("what stops a day until it is mended", () => {
  /** Puts other bytes under a private key; @returns what puts the old ones back */
  async function replaced(key: string, change: (bytes: Buffer) => Uint8Array): Promise<() => Promise<unknown>> {
    const { bytes, etag } = (await at.privateStore.get(key))!;
    await at.privateStore.swap(key, change(Buffer.from(bytes)), etag);
    return async () => {
      await at.privateStore.delete(key);
      await at.privateStore.create(key, bytes);
    };
  }

  test("a segment that is torn or gone", async () => {
    await taken();
    const chain = openChain(at.privateStore, { logId: log.id, topic: "observations.free", partition: 3 });
    const { file: key } = (await chain.head()).live[0]!;
    const mend = await replaced(key, (bytes) => bytes.subarray(0, bytes.length >> 1));
    await expect(file()).rejects.toThrow(key);
    await at.privateStore.delete(key);
    await expect(file()).rejects.toThrow(key);
    await disaster(file(), mend);
  });

  test("a row that the lake has and the segments have not", async () => {
    await taken();
    await replaced("owners/archive/02", (bytes) => {
      const said = JSON.parse(bytes.toString("utf8")) as ArchivePart;
      for (const day of Object.values(said.days)) day.rows++;
      return Buffer.from(JSON.stringify(said));
    });
    await expect(file()).rejects.toThrow(Unproven);
    await disaster(file());
  });

  test("what an owner said and nobody can read: it is said anew", async () => {
    await taken();
    await replaced("owners/archive/03", () => Buffer.from('{"v":1'));
    await expect(file()).rejects.toThrow(BadPrivateObject);
    await disaster(file());
  });
});

test("at the end the record is proven from its first leaf, and owners with empty disks have what is left", async () => {
  await proveRecord(at.publicStore, { trust: TRUST });
  expect(turn).toBe(DAYS);
  for (const place of [0, 1] as const) {
    await begin(place, "empty");
    await owners[place]!.ingest();
  }
  await whole();
});
