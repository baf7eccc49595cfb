import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { FixedClock } from "../../../infra/clock.ts";
import type { Lake } from "../../../infra/lake/duckdb.ts";
import { sql } from "../../../infra/lake/sql.ts";
import { openEmbeddedLog } from "../../../infra/log/embedded.ts";
import type { AppendedRecord, Log } from "../../../infra/log/log.ts";
import { createMetrics } from "../../../infra/telemetry.ts";
import { createIngest } from "../../../pipelines/2-ingest/ingest.ts";
import { TOPICS } from "../../../pipelines/record/topics.ts";
import { PartitionsRevoked } from "../../../pipelines/roles/protocol/owner.ts";
import { readRefusalsAfter } from "../../../pipelines/roles/protocol/refusals.ts";
import { proveWhole } from "../../helpers/oracle.ts";
import { later } from "../2-ingest/records.ts";
import { openTestLake } from "../2-ingest/world.ts";
import { TRUST } from "../4-publish/world.ts";
import { Deployment, logger } from "./deployment.ts";
import { capOf, corrected, dayOf, PARTITIONS, SELLERS } from "./records.ts";

/**
 * Partitions change hands while records come: what the tree says of an endpoint stands once, in order, and nothing is
 * left out.
 */
const START = "2026-10-05T00:00:00.000Z";
const ALL = [0, 1, 2, 3];
const SOME = SELLERS.slice(0, 2);
const [WRONGED] = SOME;
const END = new Date(later(START, 2 * 86_400_000 - 1));

let dir: string;
let log: Log;
let at: Deployment;
let acked: AppendedRecord[];
const clock = new FixedClock(END);

beforeEach(async () => {
  clock.set(END);
  dir = await mkdtemp(join(tmpdir(), "takeover-"));
  log = await openEmbeddedLog(join(dir, "log"), { topics: TOPICS, partitions: PARTITIONS, clock });
  at = await Deployment.open(join(dir, "stores"), log, clock);
  acked = await log.append([...dayOf(START, 0, SOME), ...dayOf(START, 1, SOME)]);
});
afterEach(async () => {
  await at.close();
  await log.close();
  await rm(dir, { recursive: true, force: true });
});

const correct = async (): Promise<void> => {
  acked.push(...(await log.append([corrected(WRONGED!.name, later(START, 2 * 86_400_000 + 1_000))])));
};
const prove = () => {
  const lakes = at.lakes.map((lake) => ({ lake }));
  return proveWhole({ ...at, log, trust: TRUST, acked, lakes, audited: false });
};
/** What the tree says of the corrected endpoint, in order: kinds, and of cards their moment, tier and rows. */
const leavesNow = async (): Promise<string[]> =>
  (await at.leaves()).flatMap((leaf) => {
    if (leaf.kind === "correction") return ["correction"];
    if (leaf.kind !== "grade" || leaf.card.capability_id !== capOf(WRONGED!.name)) return [];
    return [`${leaf.card.computed_at} ${leaf.card.tier.split("_")[0]} ${leaf.card.sample_count}`];
  });
const ofAll = (moment: Date): string[] =>
  ["OUTCOME", "DELIVERY", "LIVENESS"].map((tier) => `${moment.toISOString()} ${tier} 10`);

test.each([
  ["at the moment of", 0],
  ["two seconds before", -2_000],
])("who takes over grades a correction %s the published cards: its card comes on the next turn", async (_, ms) => {
  const [before, after] = [await at.owner(ALL), await at.owner(ALL)];
  const publishing = at.publishing();
  await before.grade(END);
  await publishing.takeRuns();
  await correct();
  const moment = new Date(END.getTime() + ms);
  expect((await after.grade(moment)).run).toBe(1);
  await publishing.takeRuns();
  // Cards of one endpoint are told apart by their moment, which rises: what the correction comes to is not said of a past one.
  expect(await leavesNow()).toEqual([...ofAll(END), "correction"]);
  expect(await readRefusalsAfter(at.privateStore, -1)).toMatchObject([
    { run: 1, reason: expect.stringMatching("its moment is not past that of published cards") },
  ]);
  const next = new Date(moment.getTime() + 10_000);
  clock.set(next);
  await after.grade(next);
  await publishing.takeRuns();
  expect(await leavesNow()).toEqual([...ofAll(END), "correction", `${next.toISOString()} LIVENESS 0`]);
  await before.ingest();
  await prove();
});

test("partitions revoked and given back right behind the look: no run goes past a correction that it does not say", async () => {
  const lake = await openTestLake(join(dir, "lake.duckdb"));
  at.lakes.push(lake);
  await correct();
  const { privateStore } = at;
  const ingest = createIngest({ log, privateStore, lake, clock, logger, metrics: createMetrics(), partitions: [] });
  let revoked = false;
  const bent = new Proxy(lake, {
    get(target, name: keyof Lake) {
      if (name !== "all") return typeof target[name] === "function" ? target[name].bind(target) : target[name];
      return async (text: string, params?: Parameters<Lake["all"]>[1]) => {
        if (text === sql("queries/record:corrections") && !revoked) {
          revoked = true;
          await ingest.hold([]);
          await ingest.hold(ALL);
        }
        return target.all(text, params);
      };
    },
  });
  const owner = await at.owner(ALL, { lake: bent, ingest });
  await expect(owner.grade(END)).rejects.toThrow(PartitionsRevoked);
  expect(await privateStore.list("runs/")).toEqual([]);
  const next = new Date(END.getTime() + 10_000);
  clock.set(next);
  await owner.grade(next);
  await at.publishing().takeRuns();
  expect(await leavesNow()).toEqual(["correction", `${next.toISOString()} LIVENESS 0`]);
  await prove();
});

test("an owner that is not heard writes nothing and keeps its rows; heard again, it goes on from them", async () => {
  const lake = await openTestLake(join(dir, "lake.duckdb"));
  at.lakes.push(lake);
  let heard = true;
  const ownership = {
    held: () => (heard ? ALL : []),
    get heard() {
      return heard;
    },
    onChange: () => () => undefined,
  };
  const owner = await at.owner([], { ownership, lake });
  const rows = async () => (await lake.all<{ n: number }>("SELECT count(*)::INTEGER AS n FROM event"))[0]!.n;
  const publishing = at.publishing();
  await owner.grade(END);
  await publishing.takeRuns();
  const before = await rows();
  heard = false;
  await correct();
  const next = new Date(END.getTime() + 60_000);
  clock.set(next);
  expect(await owner.grade(next)).toMatchObject({ held: [], lines: 0, run: null });
  expect([await owner.writeVolatile(), await owner.makeEvidence(next), await rows()]).toEqual([0, 0, before]);
  heard = true;
  expect(await owner.ingest()).toMatchObject({ held: ALL, rows: 1 });
  expect((await owner.grade(next)).run).toBe(1);
  await publishing.takeRuns();
  expect(await leavesNow()).toEqual([...ofAll(END), "correction", `${next.toISOString()} LIVENESS 0`]);
  await prove();
});
