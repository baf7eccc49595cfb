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
import { TOPICS } from "../../../pipelines/record/topics.ts";
import { type Owner, type OwnerParts, PartitionsRevoked } from "../../../pipelines/roles/owner.ts";
import { PartBehind } from "../../../pipelines/roles/payees.ts";
import { later } from "../2-ingest/records.ts";
import { openTestLake } from "../2-ingest/world.ts";
import { Deployment, logger } from "./deployment.ts";
import { capOf, dayOf, PARTITIONS, SELLERS } from "./records.ts";

/**
 * An owner is stopped between what others say of their partitions and its own reading of it: no card may be graded
 * against a table that lacks a partition, or has one as a lake told it that was not loaded.
 */
const START = "2026-10-05T00:00:00.000Z";
/** A week after everything: what was kept on day 4 counts as taken. */
const NOW = new Date(later(START, 13 * 86_400_000 - 1));
const THIEF = SELLERS.find(({ stealsFrom }) => stealsFrom !== null)!;
const TAKEN = { cap: capOf(THIEF.name), pay_to: THIEF.payTo, domain: `${THIEF.name}.example` };
/** The thief's partition, and those of everybody else. */
const [ITS, OTHERS] = [[1], [0, 2, 3]];
const PART = "owners/payees/01";

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
const thievesWritten = async (): Promise<unknown[]> =>
  JSON.parse(Buffer.from((await at.privateStore.get(PART))!.bytes).toString()).thieves;

/** Who shares the thief's payTo, in any partition but its own, is flagged by the newest card of the tree. */
async function flagged(): Promise<boolean[]> {
  await at.publishing().runs();
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

test("nothing is graded before every partition was said, and everything once it was", async () => {
  await days(0, 4, 5);
  const [its, others] = [await at.owner(ITS), await at.owner(OTHERS)];
  await its.ingest();
  await expect(others.grade(NOW)).rejects.toThrow(PartBehind);
  expect(await runs()).toBe(0);
  // Who says its own part first is not waited for by anybody.
  expect((await its.grade(NOW)).lines).toBeGreaterThan(0);
  expect((await others.grade(NOW)).lines).toBeGreaterThan(0);
  expect(await flagged()).toEqual([true, true]);
});

test("a part that says less than its chain had when it was first looked at does not count", async () => {
  await days(0);
  const its = await at.owner(ITS);
  await (await at.owner(OTHERS)).grade(NOW).catch(() => undefined);
  await its.grade(NOW);
  expect(await thievesWritten()).toEqual([]);
  // Its records lie in its chain, and its owner stops before it says what they tell.
  await days(4, 5);
  await its.ingest();
  const others = await at.owner(OTHERS);
  const before = await runs();
  await expect(others.grade(NOW)).rejects.toThrow(
    /payees of partition 1: written with .* read up to \d+, its chain has/,
  );
  expect(await runs()).toBe(before);
  await its.grade(NOW);
  expect(await thievesWritten()).toEqual([TAKEN]);
  await others.grade(NOW);
  expect(await flagged()).toEqual([true, true]);
});

test("a part says how far it was read although nobody new took money: else nobody could count on it", async () => {
  await days(0);
  const [its, others] = [await at.owner(ITS), await at.owner(OTHERS)];
  await others.grade(NOW).catch(() => undefined);
  await its.grade(NOW);
  await days(1);
  await its.grade(NOW);
  expect(await thievesWritten()).toEqual([]);
  expect((await (await at.owner(OTHERS)).grade(NOW)).lines).toBeGreaterThan(0);
});

test("a part that the store hands out late, or not at all, is waited for turn by turn", async () => {
  await days(0, 4, 5);
  let hidden = true;
  const { privateStore } = at;
  const late: Store = {
    ...boundTo(privateStore),
    head: async (key) => (hidden && key === PART ? null : privateStore.head(key)),
  };
  const [its, others] = [await at.owner(ITS), await at.owner(OTHERS, { privateStore: late })];
  await others.grade(NOW).catch(() => undefined);
  await its.grade(NOW);
  for (let turn = 0; turn < 2; turn++) await expect(others.grade(NOW)).rejects.toThrow(PartBehind);
  hidden = false;
  await others.grade(NOW);
  expect(await flagged()).toEqual([true, true]);
});

test("a list that does not know the parts yet takes none of them away", async () => {
  await days(0, 4, 5);
  const late: Store = { ...boundTo(at.privateStore), list: async () => [] };
  const [its, others] = [await at.owner(ITS), await at.owner(OTHERS, { privateStore: late })];
  await others.grade(NOW).catch(() => undefined);
  await its.grade(NOW);
  await others.grade(NOW);
  expect(await flagged()).toEqual([true, true]);
});

test("once looked at, a partition that is loaded anew for long holds nobody up", async () => {
  await days(0, 4, 5);
  const [its, others] = [await at.owner(ITS), await at.owner(OTHERS)];
  await others.grade(NOW).catch(() => undefined);
  await its.grade(NOW);
  await others.grade(NOW);
  // Its owner dies; somebody goes on with its chain, and nobody has said what that tells.
  await days(6);
  await its.ingest();
  const next = new Date(NOW.getTime() + 86_400_000);
  clock.set(next);
  expect((await others.grade(next)).lines).toBeGreaterThan(0);
});

test("an owner whose partitions were lost and given back while it looked says nothing of an empty lake", async () => {
  await days(0, 4, 5);
  const its = await bent(ITS, (_, ingest) => ({
    ingest: {
      ...boundTo(ingest),
      pass: async () => {
        const passed = await ingest.pass();
        // As on a loss; what the group says afterwards is that we hold what we held.
        await ingest.hold([]);
        return passed;
      },
    },
  }));
  await expect(its.grade(NOW)).rejects.toThrow(PartitionsRevoked);
  expect(await at.privateStore.get(PART)).toBeNull();
});

test("while the others are asked what they hold, whoever writes the lake goes on", async () => {
  await days(0, 4, 5);
  let wrote = 0;
  const its = await at.owner(ITS);
  const others = await bent(OTHERS, (lake, ingest) => ({
    ingest,
    allWritten: async () => {
      if ((await runs()) === 0) return;
      // Of a look whose transaction were open both would wait for ever.
      await lake.transaction((tx) => tx.run("CREATE OR REPLACE TABLE asked_for (n INTEGER)"));
      await days(6 + wrote++);
      await ingest.pass();
    },
  }));
  await others.grade(NOW).catch(() => undefined);
  await its.grade(NOW);
  expect((await others.grade(NOW)).lines).toBeGreaterThan(0);
  expect(wrote).toBe(1);
  expect(await flagged()).toEqual([true, true]);
});

test("an owner of every partition looks once: its look stands before it writes its parts for owners that come later", async () => {
  await days(0, 4, 5);
  const dirty: number[] = [];
  const all = await bent([...ITS, ...OTHERS].sort(), (lake, ingest) => ({
    ingest,
    // A look that were rolled back and begun again would have left everything dirty until then.
    allWritten: async () => {
      dirty.push((await lake.all("SELECT cap FROM dirty")).length);
    },
  }));
  expect((await all.grade(NOW)).lines).toBeGreaterThan(0);
  expect(dirty).toEqual([0]);
  expect(await thievesWritten()).toEqual([TAKEN]);
  expect(await flagged()).toEqual([true, true]);
});

test("what is said without a run is of the moment of its positions", async () => {
  await days(0, 4, 5);
  let lost = false;
  const its = await bent(ITS, (lake, ingest) => ({
    lake: {
      ...boundTo(lake),
      transaction: async (work) => {
        const done = await lake.transaction(work);
        if (lost) await ingest.hold([]);
        return done;
      },
    },
  }));
  await (await at.owner(OTHERS)).grade(NOW).catch(() => undefined);
  await its.grade(NOW);
  expect(await thievesWritten()).toEqual([TAKEN]);
  lost = true;
  expect((await its.grade(NOW)).caps).toBe(0);
  expect(await thievesWritten()).toEqual([TAKEN]);
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
    await expect(its.evidence(NOW)).rejects.toThrow(PartitionsRevoked);
    expect(await at.privateStore.get("owners/evidence/01")).toBeNull();
    // The next turn reads what was loaded since.
    expect(await its.evidence(NOW)).toBeGreaterThan(0);
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
  await expect(its.evidence(NOW)).rejects.toThrow(PartitionsRevoked);
  expect(await at.privateStore.get("owners/evidence/01")).toBeNull();
  expect(await its.evidence(NOW)).toBeGreaterThan(0);
});

/** An object whose methods can be replaced one by one. */
function boundTo<T extends object>(one: T): T {
  const names = new Set<string>();
  for (let from: object = one; from !== Object.prototype; from = Object.getPrototypeOf(from))
    for (const name of Object.getOwnPropertyNames(from)) names.add(name);
  const all: Record<string, unknown> = {};
  for (const name of names) {
    const value = (one as Record<string, unknown>)[name];
    all[name] = typeof value === "function" ? value.bind(one) : value;
  }
  return all as T;
}
