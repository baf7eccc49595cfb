import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, expect, test } from "vitest";
import { sha256hex } from "../../../infra/canonical.ts";
import { FixedClock } from "../../../infra/clock.ts";
import { openEmbeddedLog } from "../../../infra/log/embedded.ts";
import type { NewRecord } from "../../../infra/log/log.ts";
import { createReceiptRecord } from "../../../pipelines/record/commitment.ts";
import { sealEnvelope } from "../../../pipelines/record/envelope.ts";
import type { Leaf, ReceiptLeaf } from "../../../pipelines/record/leaf.ts";
import { TOPICS } from "../../../pipelines/record/topics.ts";
import { handshake, listing } from "../2-ingest/records.ts";
import { PARTITIONS } from "../2-ingest/world.ts";
import { ArchiveWorld } from "../5-archive/world.ts";
import { Deployment } from "../roles/deployment.ts";
import { PARTITIONS as SHARED } from "../roles/records.ts";

const hashOf = (what: string): string => sha256hex(`receipt ${what}`);
const given = (what: string, at: string, partitions = PARTITIONS): NewRecord =>
  sealEnvelope(createReceiptRecord(hashOf(what), new Date(at), "test/1"), partitions);
const receiptsIn = (leaves: readonly Leaf[]): ReceiptLeaf[] =>
  leaves.filter((leaf): leaf is ReceiptLeaf => leaf.kind === "receipt");

const closing: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).reverse()) await close();
});

async function archiveWorld(): Promise<ArchiveWorld> {
  const world = await ArchiveWorld.open();
  closing.push(() => world.close());
  await world.ingest.append(listing("a", "2026-11-20T00:00:00.000Z"), handshake("a", "2026-11-20T00:10:00.000Z"));
  return world;
}

test("a receipt is a leaf at the next turn, by its hash alone; a copy and a lake made anew add none", async () => {
  const world = await archiveWorld();
  await world.grade("2026-11-20T09:00:00.000Z");
  const before = (await world.leaves()).length;
  const one = given("one", "2026-11-20T10:10:00.000Z");
  await world.ingest.append(one, one);
  await world.grade("2026-11-20T10:10:10.000Z");
  const [first, ...more] = (await world.leaves()).slice(before);
  expect([more, first]).toEqual([
    [],
    { kind: "receipt", index: before, seq: 0, at: "2026-11-20T10:10:10.000Z", sha256: hashOf("one") },
  ]);
  await world.ingest.append(given("one", "2026-11-21T03:00:00.000Z"), given("two", "2026-11-21T03:00:00.000Z"));
  await world.ingest.ingest.rebuild();
  await world.grade("2026-11-21T04:00:00.000Z");
  await world.grade("2026-11-21T05:00:00.000Z");
  expect(receiptsIn(await world.leaves()).map(({ sha256, seq }) => [sha256, seq])).toEqual([
    [hashOf("one"), 0],
    [hashOf("two"), 1],
  ]);
  expect(await world.ingest.lake.all("FROM receipt_open")).toEqual([]);
  await world.prove();
});

test("it is no sample: no card, no evidence, no dirty endpoint comes of it", async () => {
  const world = await archiveWorld();
  await world.grade("2026-11-20T09:00:00.000Z");
  await world.ingest.append(given("one", "2026-11-21T10:10:00.000Z"));
  await world.ingest.ingest.pass();
  expect(await world.ingest.lake.all("SELECT cap FROM dirty")).toEqual([]);
  await world.grade("2026-11-21T11:00:00.000Z");
  const { files } = await world.closeDays("2026-11-22T06:00:00.000Z");
  const rows = (await world.leaves()).flatMap((leaf) => (leaf.kind === "evidence" ? [leaf] : []));
  expect([files > 0, rows.filter(({ day, holds }) => day === "2026-11-21" && holds === "rows")]).toEqual([true, []]);
  expect((await world.recompute()).done.differs).toBe(0);
});

test("owners of a cluster say them in their runs; what was said by two, or again, is one leaf", async () => {
  const dir = await mkdtemp(join(tmpdir(), "receipts-"));
  closing.push(() => rm(dir, { recursive: true, force: true }));
  const clock = new FixedClock("2026-11-20T08:00:00.000Z");
  const log = await openEmbeddedLog(join(dir, "log"), { topics: TOPICS, partitions: SHARED, clock });
  closing.push(() => log.close());
  const at = await Deployment.open(join(dir, "stores"), log, clock);
  closing.push(() => at.close());
  const publishing = at.publishing();
  const names = ["a", "b", "c", "d", "e", "f"];
  await log.append(names.map((name) => given(name, "2026-11-20T08:20:00.000Z", SHARED)));
  const owners = await Promise.all(
    [
      [0, 1],
      [2, 3],
    ].map((held) => at.owner(held)),
  );
  const turn = async (time: string, take: boolean): Promise<void> => {
    clock.set(time);
    await Promise.all(owners.map((owner) => owner.grade(new Date(time))));
    if (take) await publishing.takeRuns();
  };
  // Two runs each before the publisher has its turn: a publisher that was away, or was killed before it took them.
  await turn("2026-11-20T09:00:00.000Z", false);
  await turn("2026-11-20T09:01:00.000Z", true);
  await turn("2026-11-20T09:02:00.000Z", true);
  const found = receiptsIn(await at.leaves());
  expect(found.map(({ sha256 }) => sha256).sort()).toEqual(names.map(hashOf).sort());
  expect(found.map(({ seq }) => seq)).toEqual(names.map((_, i) => i));
});
