import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { FixedClock } from "../../../infra/clock.ts";
import { openEmbeddedLog } from "../../../infra/log/embedded.ts";
import type { Log } from "../../../infra/log/log.ts";
import type { Store } from "../../../infra/store/store.ts";
import { createMetrics } from "../../../infra/telemetry.ts";
import { runKey } from "../../../pipelines/4-publish/runs.ts";
import { partitionOf } from "../../../pipelines/record/ids.ts";
import type { GradeLeaf } from "../../../pipelines/record/leaf.ts";
import { TOPICS } from "../../../pipelines/record/topics.ts";
import { Refusals, readRefusalsAfter, writeRefusal } from "../../../pipelines/roles/protocol/refusals.ts";
import { boundTo } from "../../helpers/bound.ts";
import { later } from "../2-ingest/records.ts";
import { Deployment } from "./deployment.ts";
import { capOf, corrected, dayOf, PARTITIONS, SELLERS } from "./records.ts";

/** An owner whose run the publisher does not take hears of it on its next turn, and says everything anew. */
const START = "2026-10-05T00:00:00.000Z";
const EVERYBODY = SELLERS.map(({ name }) => capOf(name)).sort();
const clock = new FixedClock(START);
const now = (): Date => clock.now();
const pass = (ms: number): void => clock.set(new Date(now().getTime() + ms));

let dir: string;
let log: Log;
let at: Deployment;
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "refusals-"));
  clock.set(new Date(later(START, 86_400_000 - 60_000)));
  log = await openEmbeddedLog(join(dir, "log"), { topics: TOPICS, partitions: PARTITIONS, clock });
  at = await Deployment.open(join(dir, "stores"), log, clock);
  await log.append(dayOf(START, 0));
});
afterEach(async () => {
  await at.close();
  await log.close();
  await rm(dir, { recursive: true, force: true });
});

const graded = async (): Promise<string[]> => {
  const leaves = (await at.leaves()).filter((leaf): leaf is GradeLeaf => leaf.kind === "grade");
  return [...new Set(leaves.map(({ card }) => card.capability_id))].sort();
};
const ALL = [0, 1, 2, 3];

test("one that was paused and overtaken in a partition says the others' cards on its next turn, not on the next day", async () => {
  const publishing = at.publishing();
  const metrics = createMetrics();
  const other = await at.owner([0]);
  let slept = false;
  /** Paused between its look and the run that it writes of it. */
  const beforeRun = async () => {
    if (slept) return;
    slept = true;
    await log.append(dayOf(START, 1).slice(0, 20));
    pass(1_000);
    await other.grade(now());
    expect((await publishing.takeRuns()).runs).toBe(1);
  };
  const { privateStore } = at;
  const create: Store["create"] = async (key, ...of) => {
    if (key.startsWith("runs/")) await beforeRun();
    return privateStore.create(key, ...of);
  };
  const owner = await at.owner(ALL, { privateStore: boundTo(privateStore, { create }), metrics });
  const moment = now();
  expect((await owner.grade(moment)).run).toBe(1);
  expect(await publishing.takeRuns()).toMatchObject({ runs: 1, cards: 0 });
  expect(await readRefusalsAfter(at.privateStore, -1)).toMatchObject([
    { run: 1, reason: expect.stringMatching(/^behind in .*\/0: /) },
  ]);
  expect(await graded()).toEqual(EVERYBODY.filter((cap) => partitionOf(cap, PARTITIONS) === 0));
  pass(1_000);
  // The partition is not the other's after all: what is new in it is read on this turn.
  expect(await owner.grade(now())).toMatchObject({ caps: EVERYBODY.length });
  await publishing.takeRuns();
  expect(await graded()).toEqual(EVERYBODY);
  expect(await metrics.text()).toContain("touchstone_owner_runs_refused_total 1");
  pass(1_000);
  expect(await owner.grade(now())).toMatchObject({ caps: 0, run: null });
});

test("a run that cannot be read is said anew as well, and told about once", async () => {
  const publishing = at.publishing();
  const owner = await at.owner(ALL);
  expect((await owner.grade(now())).run).toBe(0);
  const { etag } = (await at.privateStore.get(runKey(0)))!;
  await at.privateStore.swap(runKey(0), Buffer.from("no run"), etag);
  expect((await publishing.takeRuns()).cards).toBe(0);
  // As a publisher that was killed meanwhile would: the same run is refused once more.
  const again = at.publishing(Deployment.publisherOver(log, clock, at.privateStore, at.publicStore));
  expect((await again.takeRuns()).cards).toBe(0);
  expect(await readRefusalsAfter(at.privateStore, -1)).toHaveLength(1);
  pass(1_000);
  expect(await owner.grade(now())).toMatchObject({ caps: EVERYBODY.length, run: 1 });
  await publishing.takeRuns();
  expect(await graded()).toEqual(EVERYBODY);
  pass(1_000);
  expect(await owner.grade(now())).toMatchObject({ caps: 0, run: null });
});

test("an endpoint that is due by its day is in one run of the day, though the publisher takes none", async () => {
  const publishing = at.publishing();
  const owner = await at.owner(ALL);
  await owner.grade(now());
  await publishing.takeRuns();
  pass(7 * 86_400_000);
  expect(await owner.grade(now())).toMatchObject({ lines: EVERYBODY.length, run: 1 });
  for (let turn = 0; turn < 3; turn++) {
    pass(10_000);
    expect(await owner.grade(now())).toMatchObject({ caps: 0, run: null });
  }
  // On the next day the endpoint is graded once more, and all is published once the publisher is back.
  pass(3_600_000);
  expect(await owner.grade(now())).toMatchObject({ lines: EVERYBODY.length, run: 2 });
  pass(10_000);
  expect(await owner.grade(now())).toMatchObject({ caps: 0, run: null });
  expect(await publishing.takeRuns()).toMatchObject({ runs: 2 });
  pass(10_000);
  expect(await owner.grade(now())).toMatchObject({ caps: 0, run: null });
});

test("a correction that waits for the publisher is written again after ten minutes, or after a refusal", async () => {
  const publishing = at.publishing();
  const owner = await at.owner(ALL);
  await owner.grade(now());
  await publishing.takeRuns();
  pass(1_000);
  await log.append([corrected(SELLERS[0]!.name, now().toISOString())]);
  pass(1_000);
  expect(await owner.grade(now())).toMatchObject({ caps: 1, run: 1 });
  pass(10_000);
  expect(await owner.grade(now())).toMatchObject({ caps: 0, run: null });
  pass(600_000);
  expect(await owner.grade(now())).toMatchObject({ run: 2 });
  pass(10_000);
  expect(await owner.grade(now())).toMatchObject({ run: null });
  for (const run of [1, 2]) {
    const { etag } = (await at.privateStore.get(runKey(run)))!;
    await at.privateStore.swap(runKey(run), Buffer.from("no run"), etag);
  }
  await publishing.takeRuns();
  const corrections = async () => (await at.leaves()).filter(({ kind }) => kind === "correction").length;
  expect(await corrections()).toBe(0);
  pass(10_000);
  expect(await owner.grade(now())).toMatchObject({ run: 3 });
  await publishing.takeRuns();
  expect(await corrections()).toBe(1);
});

test("what is refused again and again is graded anew more and more rarely, and others' refusals are others'", async () => {
  const refusals = new Refusals(at.privateStore);
  const refuseRun = (run: number, reason = "behind") =>
    writeRefusal(at.privateStore, { v: 1, log: log.id, run, reason, at: now().toISOString() });
  await refuseRun(3);
  refusals.addRun(4);
  expect(await refusals.readNew(now())).toEqual([]);
  expect(refusals.mustGradeAll(now())).toBe(false);
  const waited: number[] = [];
  for (let run = 4; run < 14; run++) {
    refusals.addRun(run);
    await refuseRun(run);
    expect((await refusals.readNew(now())).map((one) => one.run)).toEqual([run]);
    let ms = 0;
    for (; !refusals.mustGradeAll(now()); ms += 30_000) pass(30_000);
    waited.push(ms / 60_000);
  }
  // The hour before counts, and no more than that.
  expect(waited.slice(0, 6)).toEqual([0, 1, 2, 4, 8, 16]);
  expect(Math.max(...waited)).toBeLessThanOrEqual(60);
  expect(refusals.mustGradeAll(now())).toBe(false);
});
