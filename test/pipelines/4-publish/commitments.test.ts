import { readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { sha256 } from "../../../infra/canonical.ts";
import { FixedClock } from "../../../infra/clock.ts";
import { openEmbeddedLog } from "../../../infra/log/embedded.ts";
import type { NewRecord } from "../../../infra/log/log.ts";
import { commitmentHash, createCommitmentRecord, utcHourOf } from "../../../pipelines/record/commitment.ts";
import { sealEnvelope } from "../../../pipelines/record/envelope.ts";
import { capId } from "../../../pipelines/record/ids.ts";
import type { CommitmentLeaf, Leaf } from "../../../pipelines/record/leaf.ts";
import { TOPICS } from "../../../pipelines/record/topics.ts";
import { handshake, listing } from "../2-ingest/records.ts";
import { PARTITIONS } from "../2-ingest/world.ts";
import { ArchiveWorld } from "../5-archive/world.ts";
import { Deployment } from "../roles/deployment.ts";
import { placed, PARTITIONS as SHARED } from "../roles/records.ts";
import { header, World } from "./world.ts";

/** Golden records: what was written once must read the same for good. */
const GOLDEN = JSON.parse(
  readFileSync(new URL("../record/records-v1.golden.json", import.meta.url), "utf8"),
) as unknown[];
const NAMES = ["a", "b", "c", "d", "e", "f"];
const capOf = (name: string): string => capId("GET", `https://${name}.example/paid`);
const saltOf = (what: string): Buffer => sha256(`salt of ${what}`) as Buffer;
const committed = (what: string): string => commitmentHash(saltOf(what), Buffer.from(what));

/** What the order machine would append: an answer bought of `name`, told to nobody. */
const bought = (name: string, what: string, at: string, partitions = PARTITIONS): NewRecord =>
  sealEnvelope(createCommitmentRecord(capOf(name), committed(what), new Date(at), "test/1"), partitions);

const commitmentsIn = (leaves: readonly Leaf[]): CommitmentLeaf[] =>
  leaves.filter((leaf): leaf is CommitmentLeaf => leaf.kind === "commitment");

const closing: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

async function archiveWorld(): Promise<ArchiveWorld> {
  const world = await ArchiveWorld.open();
  closing.push(() => world.close());
  await world.ingest.append(
    listing("a", "2026-11-20T00:00:00.000Z"),
    listing("b", "2026-11-20T00:00:00.000Z"),
    handshake("a", "2026-11-20T00:10:00.000Z"),
    handshake("b", "2026-11-20T00:10:00.000Z"),
  );
  return world;
}

test("a commitment is published once, when its hour is over, and tells no more than endpoint, hour and hash", async () => {
  const world = await archiveWorld();
  await world.ingest.append(
    bought("a", "first", "2026-11-20T10:59:59.999Z"),
    bought("b", "second", "2026-11-20T11:00:00.000Z"),
  );
  await world.grade("2026-11-20T10:59:59.999Z");
  expect(commitmentsIn(await world.leaves())).toEqual([]);
  await world.grade("2026-11-20T11:00:00.000Z");
  const [first, ...more] = commitmentsIn(await world.leaves());
  expect(more).toEqual([]);
  const { index, ...said } = first!;
  expect(said).toEqual({
    ...{ kind: "commitment", seq: 0, at: "2026-11-20T11:00:00.000Z" },
    ...{ capability_id: capOf("a"), moment: "2026-11-20T10:00:00.000Z", sha256: committed("first") },
  });
  expect(index).toBeGreaterThan(0);
  // Nothing is dirty any more, and the second one is published all the same.
  await world.grade("2026-11-20T12:00:00.000Z");
  await world.grade("2026-11-20T13:00:00.000Z");
  expect(commitmentsIn(await world.leaves()).map(({ sha256, seq }) => [sha256, seq])).toEqual([
    [committed("first"), 0],
    [committed("second"), 1],
  ]);
  await world.prove();
});

test("within an hour they stand by hash, whatever order they were bought in", async () => {
  const world = await archiveWorld();
  const whats = ["one", "two", "three", "four", "five"];
  for (const [i, what] of whats.entries()) {
    await world.ingest.append(bought(i % 2 ? "a" : "b", what, `2026-11-20T10:0${i}:00.000Z`));
  }
  await world.ingest.append(bought("a", "an hour before", "2026-11-20T09:30:00.000Z"));
  await world.grade("2026-11-20T11:30:00.000Z");
  expect(commitmentsIn(await world.leaves()).map(({ sha256 }) => sha256)).toEqual([
    committed("an hour before"),
    ...whats.map(committed).sort(),
  ]);
});

test("copies, a lake made anew and what comes late double and lose nothing", async () => {
  const world = await archiveWorld();
  const one = bought("a", "one", "2026-11-20T10:10:00.000Z");
  await world.ingest.append(one, one);
  await world.grade("2026-11-20T11:00:00.000Z");
  // The same once more, told at another moment: another record of the same commitment.
  await world.ingest.append(bought("a", "one", "2026-11-21T03:00:00.000Z"));
  await world.ingest.ingest.rebuild();
  await world.grade("2026-11-21T04:00:00.000Z");
  await world.ingest.append(bought("b", "late", "2026-11-20T10:30:00.000Z"));
  await world.grade("2026-11-21T05:00:00.000Z");
  await world.ingest.ingest.rebuild();
  await world.grade("2026-11-21T06:00:00.000Z");
  const found = commitmentsIn(await world.leaves());
  expect(found.map(({ sha256 }) => sha256)).toEqual([committed("one"), committed("late")]);
  expect(found.map(({ moment }) => moment)).toEqual(Array(2).fill("2026-11-20T10:00:00.000Z"));
  // What the tree holds is on no list of the lake any more.
  expect(await world.ingest.lake.all("FROM commitment_open")).toEqual([]);
  await world.prove();
});

test("it is no sample: no card, no evidence, no dirty endpoint comes of it", async () => {
  const world = await archiveWorld();
  await world.grade("2026-11-20T09:00:00.000Z");
  const before = (await world.leaves()).length;
  await world.ingest.append(bought("a", "one", "2026-11-21T10:10:00.000Z"));
  await world.ingest.ingest.pass();
  expect(await world.ingest.lake.all("SELECT cap FROM dirty")).toEqual([]);
  await world.grade("2026-11-21T11:00:00.000Z");
  expect((await world.leaves()).slice(before).map(({ kind }) => kind)).toEqual(["commitment"]);
  // The day before is closed, and the commitment's own day has nothing.
  const { files } = await world.closeDays("2026-11-22T06:00:00.000Z");
  const rows = (await world.leaves()).flatMap((leaf) => (leaf.kind === "evidence" ? [leaf] : []));
  expect([files > 0, rows.filter(({ day, holds }) => day === "2026-11-21" && holds === "rows")]).toEqual([true, []]);
  expect((await world.recompute()).done.differs).toBe(0);
});

test("owners of a cluster say them in their runs; each is taken once, also when said by two and again", async () => {
  const dir = await mkdtemp(join(tmpdir(), "commitments-"));
  closing.push(() => rm(dir, { recursive: true, force: true }));
  const clock = new FixedClock("2026-11-20T08:00:00.000Z");
  const log = await openEmbeddedLog(join(dir, "log"), { topics: TOPICS, partitions: SHARED, clock });
  closing.push(() => log.close());
  const at = await Deployment.open(join(dir, "stores"), log, clock);
  closing.push(() => at.close());
  const publishing = at.publishing();
  await log.append(
    NAMES.flatMap((name) => [
      placed(handshake(name, "2026-11-20T08:10:00.000Z")),
      bought(name, name, "2026-11-20T08:20:00.000Z", SHARED),
    ]),
  );
  const held = [
    [0, 1],
    [2, 3],
  ];
  const owners = await Promise.all(held.map((partitions) => at.owner(partitions)));
  const turn = async (time: string, take: boolean): Promise<void> => {
    clock.set(time);
    await Promise.all(owners.map((owner) => owner.grade(new Date(time))));
    if (take) await publishing.takeRuns();
  };
  await turn("2026-11-20T08:59:00.000Z", true);
  expect(commitmentsIn(await at.leaves())).toEqual([]);
  // Two runs each before the publisher has its turn: the second says them again, the tree did not hold them yet.
  await turn("2026-11-20T09:00:00.000Z", false);
  await turn("2026-11-20T09:01:00.000Z", true);
  await turn("2026-11-20T09:02:00.000Z", true);
  const found = commitmentsIn(await at.leaves());
  expect(found.map(({ sha256 }) => sha256).sort()).toEqual(NAMES.map(committed).sort());
  expect(found.map(({ seq }) => seq)).toEqual(NAMES.map((_, i) => i));
});

test("a publisher whose clock is behind leaves it out, and takes it when it is said again", async () => {
  const world = await World.open();
  closing.push(() => world.close());
  const publisher = world.publisher();
  const moment = utcHourOf(new Date("2026-11-21T04:10:00.000Z"));
  const drafts = [{ kind: "commitment" as const, capability_id: capOf("a"), moment, sha256: committed("one") }];
  const saidAt = async (now: string, n: number) => {
    world.clock.set(now);
    await publisher.takeRun({ header: header(now, n), lines: [], drafts });
    return publisher.fold.commitments.size;
  };
  expect(await saidAt("2026-11-21T04:59:59.999Z", 1)).toBe(0);
  expect(await saidAt("2026-11-21T05:00:00.000Z", 2)).toBe(1);
  expect(await saidAt("2026-11-21T05:00:01.000Z", 3)).toBe(1);
  expect(publisher.fold.size).toBe(1);
});

test("a leaf with one member more than its kind has is never published", async () => {
  const world = await World.open();
  closing.push(() => world.close());
  const publisher = world.publisher();
  const draft = {
    ...{ kind: "commitment" as const, capability_id: capOf("a"), sha256: committed("one") },
    moment: "2026-11-20T00:00:00.000Z",
  };
  for (const more of [{ payer: "0xbuyer" }, { moment: "2026-11-20T00:10:00.000Z" }, { sha256: "00" }]) {
    const { leaves, refused } = await publisher.publishLeaves([{ ...draft, ...more }]);
    expect([leaves, refused.length]).toEqual([0, 1]);
  }
  expect((await publisher.publishLeaves([draft])).leaves).toBe(1);
});

test("one commitment is one record, whoever tells it", () => {
  const cap = "cap_VX6982BRZAY968W0VZZF5DNEEQ";
  const sha256 = commitmentHash(Buffer.alloc(32), Buffer.from("golden"));
  const record = createCommitmentRecord(cap, sha256, new Date("2026-11-15T12:34:56.789Z"), "golden/1");
  expect(GOLDEN).toContainEqual(record);
});

test("a salt is 32 bytes, so none of it can be taken for the answer's", () => {
  expect(() => commitmentHash(Buffer.alloc(31), Buffer.from("x"))).toThrow(RangeError);
  expect(commitmentHash(Buffer.alloc(32, 1), Buffer.from("x"))).not.toBe(
    commitmentHash(Buffer.alloc(32, 2), Buffer.from("x")),
  );
});
