import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { FixedClock } from "../../../infra/clock.ts";
import type { Lake } from "../../../infra/lake/duckdb.ts";
import { openEmbeddedLog } from "../../../infra/log/embedded.ts";
import type { Log } from "../../../infra/log/log.ts";
import type { Store } from "../../../infra/store/store.ts";
import { createMetrics } from "../../../infra/telemetry.ts";
import { createIngest, type Ingest } from "../../../pipelines/2-ingest/ingest.ts";
import { FollowedRecord } from "../../../pipelines/4-publish/followed.ts";
import { readRun, writeRun } from "../../../pipelines/4-publish/runs.ts";
import { TOPICS } from "../../../pipelines/record/topics.ts";
import { type Owner, type OwnerParts, PartitionsRevoked } from "../../../pipelines/roles/protocol/owner.ts";
import { readRefusalsAfter } from "../../../pipelines/roles/protocol/refusals.ts";
import { boundTo } from "../../helpers/bound.ts";
import { later } from "../2-ingest/records.ts";
import { openTestLake } from "../2-ingest/world.ts";
import { TRUST } from "../4-publish/world.ts";
import { Deployment, logger } from "./deployment.ts";
import { capOf, dayOf, PARTITIONS, SELLERS } from "./records.ts";

/**
 * Which endpoints took money crosses partitions: each run says those of its partitions, the publisher folds them into one
 * table, and later runs grade with the table of the head that their owner follows. Owners are paused, replaced and shown
 * old heads.
 */
const START = "2026-10-05T00:00:00.000Z";
/** A week after everything: what was kept on day 4 counts as taken. */
const NOW = new Date(later(START, 13 * 86_400_000 - 1));
const THIEF = SELLERS.find(({ stealsFrom }) => stealsFrom !== null)!;
const TAKEN = { cap: capOf(THIEF.name), pay_to: THIEF.payTo, domain: `${THIEF.name}.example` };
/** The thief's partition, and those of everybody else. */
const [ITS, OTHERS] = [[1], [0, 2, 3]];

let dir: string;
let log: Log;
let at: Deployment;
const clock = new FixedClock(NOW);

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "payees-"));
  log = await openEmbeddedLog(join(dir, "log"), { topics: TOPICS, partitions: PARTITIONS, clock });
  at = await Deployment.open(join(dir, "stores"), log, clock);
});
afterEach(async () => {
  await at.close();
  await log.close();
  await rm(dir, { recursive: true, force: true });
});

const days = async (...numbers: number[]): Promise<void> => {
  for (const n of numbers) await log.append(dayOf(START, n));
};
const runs = async (): Promise<number> => (await at.privateStore.list("runs/")).length;
/** The table of related parties that the tree has now. */
const published = async (): Promise<unknown[]> => (await at.publisher.current()).relatedParties.table;
const minutesLater = (n: number): Date => {
  clock.set(new Date(NOW.getTime() + n * 60_000));
  return clock.now();
};

/** Who shares the thief's payTo, in any partition but its own, is flagged by the newest card of the tree. */
async function flagged(): Promise<boolean[]> {
  const cards = (await at.leaves()).flatMap((leaf) => (leaf.kind === "grade" ? [leaf.card] : []));
  const kin = SELLERS.filter(({ name, payTo }) => payTo === THIEF.payTo && name !== THIEF.name);
  return kin.map(
    ({ name }) =>
      cards.findLast((card) => card.capability_id === capOf(name))!.flags?.includes("payee_took_the_money") === true,
  );
}

/** An owner of these partitions, its lake and what ingests into it, each as the test bends it. */
async function bent(
  held: readonly number[],
  bend: (lake: Lake, ingest: Ingest) => Partial<OwnerParts>,
): Promise<Owner> {
  const lake = await openTestLake(join(dir, `lake-${held.join("-")}.duckdb`));
  at.lakes.push(lake);
  const common = { log, privateStore: at.privateStore, lake, clock, logger, metrics: createMetrics() };
  const ingest = createIngest({ ...common, partitions: [] });
  return at.owner(held, { lake, ingest, ...bend(lake, ingest) });
}

test("who shares a payee with a thief of another partition is flagged by the next run, which reads nobody else", async () => {
  await days(0, 4, 5);
  const [its, others] = [await at.owner(ITS), await at.owner(OTHERS)];
  expect((await others.grade(NOW)).lines).toBeGreaterThan(0);
  expect((await its.grade(NOW)).lines).toBeGreaterThan(0);
  await at.publishing().takeRuns();
  expect(await published()).toEqual([TAKEN]);
  expect(await flagged()).toEqual([false, false]);
  const next = minutesLater(1);
  expect(await others.grade(next)).toMatchObject({ caps: 2, lines: 2 });
  expect(await its.grade(next)).toMatchObject({ caps: 0, run: null });
  await at.publishing().takeRuns();
  expect(await flagged()).toEqual([true, true]);
  expect(await others.grade(minutesLater(2))).toMatchObject({ caps: 0, run: null });
});

test("one process that holds every partition looks once a turn, and flags on the turn after the theft", async () => {
  await days(0, 4, 5);
  const all = await at.owner([...ITS, ...OTHERS].sort());
  await all.grade(NOW);
  await at.publishing().takeRuns();
  expect(await flagged()).toEqual([false, false]);
  expect(await all.grade(minutesLater(1))).toMatchObject({ caps: 2, lines: 2 });
  await at.publishing().takeRuns();
  expect(await flagged()).toEqual([true, true]);
});

test("an owner that grades nothing holds nobody up", async () => {
  await days(0, 4, 5);
  expect((await (await at.owner(OTHERS)).grade(NOW)).lines).toBeGreaterThan(0);
  expect(await at.publishing().takeRuns()).toMatchObject({ runs: 1 });
});

test("a theft that left the window leaves the table, and then the flags", async () => {
  await days(0, 4, 5);
  const owners = [await at.owner(ITS), await at.owner(OTHERS)];
  const turn = async (n: number): Promise<void> => {
    for (const owner of owners) await owner.grade(minutesLater(n));
    await at.publishing().takeRuns();
  };
  for (const n of [0, 1]) await turn(n);
  expect(await flagged()).toEqual([true, true]);
  for (const n of [0, 1]) await turn(100 * 24 * 60 + n);
  expect(await published()).toEqual([]);
  expect(await flagged()).toEqual([false, false]);
});

test("an owner that takes a partition over with an empty lake takes no row away", async () => {
  await days(0, 4, 5);
  await (await at.owner(ITS)).grade(NOW);
  await at.publishing().takeRuns();
  expect(await published()).toEqual([TAKEN]);
  const next = await at.owner(ITS);
  await next.grade(minutesLater(1));
  await at.publishing().takeRuns();
  expect(await published()).toEqual([TAKEN]);
  expect((await at.leaves()).filter(({ kind }) => kind === "kin")).toHaveLength(1);
});

test("an owner that follows an older head is taken with its table, and grades again once it sees the newer one", async () => {
  await days(0, 4, 5);
  let stale = true;
  const { publicStore } = at;
  const old = (await publicStore.get("checkpoint"))!;
  const get: Store["get"] = async (key) => (stale && key === "checkpoint" ? old : publicStore.get(key));
  const [its, others] = [
    await at.owner(ITS),
    await at.owner(OTHERS, { followed: new FollowedRecord({ get }, () => TRUST) }),
  ];
  await its.grade(NOW);
  await at.publishing().takeRuns();
  await others.grade(minutesLater(1));
  expect(await at.publishing().takeRuns()).toMatchObject({ runs: 1, cards: expect.any(Number) });
  expect(await flagged()).toEqual([false, false]);
  stale = false;
  await others.grade(minutesLater(2));
  await at.publishing().takeRuns();
  expect(await flagged()).toEqual([true, true]);
});

test("a run that names a table which no leaf names is not taken, and its owner grades everything anew", async () => {
  await days(0, 4, 5);
  const owner = await at.owner(OTHERS);
  await owner.grade(NOW);
  const { header, lines } = (await readRun(at.privateStore, 0))!;
  const { n: _, ...rest } = header;
  await writeRun(at.privateStore, { ...rest, now: minutesLater(1).toISOString(), kin_sha256: "ab".repeat(32) }, lines);
  await at.publishing().takeRuns();
  expect(await readRefusalsAfter(at.privateStore, -1)).toMatchObject([
    { run: 1, reason: `the tree names no table of related parties ${"ab".repeat(32)}` },
  ]);
});

test("a run that was paused since an earlier moment takes no row away that a later one found in as many records", async () => {
  await days(0, 4, 5);
  await (await at.owner(ITS)).grade(NOW);
  await at.publishing().takeRuns();
  const { header } = (await readRun(at.privateStore, 0))!;
  const { n: _, ...rest } = header;
  const before = new Date(NOW.getTime() - 60_000).toISOString();
  await writeRun(at.privateStore, { ...rest, now: before, thieves: [] }, []);
  await at.publishing().takeRuns();
  expect(await published()).toEqual([TAKEN]);
  await writeRun(at.privateStore, { ...rest, now: minutesLater(1).toISOString(), thieves: [] }, []);
  await at.publishing().takeRuns();
  expect(await published()).toEqual([]);
});

test("an owner whose partitions were lost and given back while it looked writes no run of an empty lake", async () => {
  await days(0, 4, 5);
  const its = await bent(ITS, (_, ingest) => ({
    ingest: {
      ...boundTo(ingest),
      get revocations() {
        return ingest.revocations;
      },
      pass: async () => {
        const passed = await ingest.pass();
        // As on a loss; what the group says afterwards is that we hold what we held.
        await ingest.hold([]);
        return passed;
      },
    },
  }));
  await expect(its.grade(NOW)).rejects.toThrow(PartitionsRevoked);
  expect(await runs()).toBe(0);
});

test.each(["revoked", "revoked and given back, and loaded again"])(
  "partitions %s while their evidence is read: nothing is said of what is left of them",
  async (what) => {
    await days(0, 4, 5);
    let reads = 0;
    const its = await bent(ITS, (lake, ingest) => ({
      ingest,
      lake: {
        ...boundTo(lake),
        stream: async function* (text, params) {
          if (++reads === 1) {
            await ingest.hold([]);
            if (what !== "revoked") {
              await ingest.hold(ITS);
              await ingest.pass();
            }
          }
          yield* lake.stream<never>(text, params);
        },
      },
    }));
    await expect(its.makeEvidence(NOW)).rejects.toThrow(PartitionsRevoked);
    expect(await at.privateStore.get("owners/evidence/01")).toBeNull();
    // The next turn reads what was loaded since.
    expect(await its.makeEvidence(NOW)).toBeGreaterThan(0);
    expect(reads).toBeGreaterThan(1);
  },
);

test("partitions that were revoked right behind their load, and are ours again: nothing is told of an empty lake", async () => {
  await days(0, 4, 5);
  let revoked = false;
  const its = await bent(ITS, (_, ingest) => ({
    ingest: {
      ...boundTo(ingest),
      get revocations() {
        return ingest.revocations;
      },
      pass: async () => {
        const passed = await ingest.pass();
        if (!revoked) await ingest.hold([]);
        revoked = true;
        return passed;
      },
    },
  }));
  await expect(its.makeEvidence(NOW)).rejects.toThrow(PartitionsRevoked);
  expect(await at.privateStore.get("owners/evidence/01")).toBeNull();
  expect(await its.makeEvidence(NOW)).toBeGreaterThan(0);
});
