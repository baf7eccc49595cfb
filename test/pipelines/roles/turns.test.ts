import { expect, it } from "vitest";
import type { Lake, Statements } from "../../../infra/lake/duckdb.ts";
import type { Store } from "../../../infra/store/store.ts";
import { volatileRows } from "../../../pipelines/2-ingest/volatile.ts";
import { digestsOf } from "../../../pipelines/3-grade/digests.ts";
import { planKey, readPlan } from "../../../pipelines/4-publish/day-plan.ts";
import { type Group, sealGroups } from "../../../pipelines/4-publish/leaves.ts";
import { readRun, writeRun } from "../../../pipelines/4-publish/runs.ts";
import { takeLines } from "../../../pipelines/4-publish/take-lines.ts";
import { PublishedFold } from "../../../pipelines/published/fold.ts";
import { encodeVolatile, readVolatileRows } from "../../../pipelines/record/volatile-arrow.ts";
import { rowOf } from "../../helpers/public-record.ts";
import { TurnsSeen } from "../../helpers/turns.ts";
import { gradeRun } from "../3-grade/grade-run.ts";
import { TestLake } from "../3-grade/lake.ts";
import { NOW } from "../3-grade/random.ts";
import { header, line, listing, PARTITIONS, SIGNERS } from "../4-publish/world.ts";

/**
 * One event loop answers strangers, measures sellers' latencies and works through what has changed. However much that is,
 * no turn of the loop may do more of it than a bounded number of endpoints: each of these did all of them in one.
 */
const MANY = 300;
const AT = "2026-11-21T04:00:00.000Z";
const LINES = Array.from({ length: MANY }, (_, i) => line(`s${i}`, AT, ["B"]));

/** Objects in memory: no read or write of theirs takes a turn. */
function memoryStore(): Store {
  const held = new Map<string, Uint8Array>();
  return {
    get: async (key: string) => (held.has(key) ? { bytes: held.get(key)! } : null),
    head: async (key: string) => (held.has(key) ? { key } : null),
    list: async () => [],
    create: async (key: string, bytes: Uint8Array) => {
      held.set(key, bytes);
      return { result: "created" };
    },
  } as unknown as Store;
}

it("grading: few endpoints are graded in a turn", async () => {
  const lake = await TestLake.open();
  try {
    const caps = Array.from({ length: MANY }, (_, i) => `cap${i}`);
    const turns = new TurnsSeen();
    const leaveOut = (): boolean => {
      turns.see();
      return true;
    };
    await gradeRun(lake.conn, { now: NOW, endpointIds: caps, leaveOut });
    const seen = turns.end();
    expect(seen.all).toBe(MANY);
    expect(seen.most).toBeLessThanOrEqual(32);
  } finally {
    await lake.close();
  }
});

it("grading: few endpoints' rows are digested in a turn", async () => {
  const turns = new TurnsSeen();
  const printed = Array.from({ length: MANY }, (_, ep) => ({ ep, lines: Buffer.from(`${ep}"{"a":1}\n`) }));
  await digestsOf({} as Statements, turns.watched(printed), { window_start: 0, now: 0 });
  const seen = turns.end();
  expect(seen.all).toBe(MANY);
  expect(seen.most).toBeLessThanOrEqual(64);
});

it("a run: few lines are checked in a turn, when it is written and when it is read", async () => {
  const store = memoryStore();
  const writing = new TurnsSeen();
  const { n: _, ...head } = header(AT, 1);
  const n = await writeRun(store, head, writing.watched(LINES));
  const seen = writing.end();
  expect(seen.all).toBe(MANY);
  expect(seen.most).toBeLessThanOrEqual(64);
  const reading = new TurnsSeen();
  expect((await readRun(store, n))!.lines).toEqual(LINES);
  expect(reading.end().turns).toBeGreaterThanOrEqual(Math.floor(MANY / 64));
});

it("publishing: few lines are held against what is published, and few leaves sealed, in a turn", async () => {
  const before = { fold: new PublishedFold(), generation: null, at: new Date(AT) };
  const taking = new TurnsSeen();
  const context = { partitions: PARTITIONS, cardSigner: SIGNERS.cards, onSigned: taking.see };
  const { groups } = await takeLines(before, header(AT, 1), LINES, [], context);
  const taken = taking.end();
  expect(taken.all).toBe(MANY);
  expect(taken.most).toBeLessThanOrEqual(32);
  const listings = LINES.map((_, i): Group => [{ kind: "listing", ...listing(`s${i}`) }]);
  const sealing = new TurnsSeen();
  const { entries } = await sealGroups(sealing.watched([...groups, ...listings]), 0, new Map(), AT);
  expect(entries.map(({ leaf }) => leaf.index)).toEqual(Array.from({ length: 2 * MANY }, (_, i) => i));
  const sealed = sealing.end();
  expect(sealed.all).toBe(2 * MANY);
  expect(sealed.most).toBeLessThanOrEqual(32);
});

it("a plan: few lines are read in a turn, and one that is none is refused", async () => {
  const store = memoryStore();
  const calls = [{ block: 1, minute: 2, kind: "probe" as const, blind: false }];
  const lines = LINES.map(({ cap }) => ({ cap, host: "a.example", calls, base_per_day: 4, covered: false }));
  const plan = { v: 1 as const, day: "2026-11-21", salt_hash: "s", covered_root: "r", lines };
  await store.create(planKey(plan.day), Buffer.from(JSON.stringify(plan)));
  const turns = new TurnsSeen();
  expect(await readPlan(store, plan.day)).toEqual(plan);
  expect(turns.end().turns).toBeGreaterThanOrEqual(Math.floor(MANY / 64));
  const bad = [
    { ...plan, lines: [...lines, { ...lines[0], covered: 1 }] },
    { ...plan, more: 1 },
    { ...plan, v: 2 },
  ];
  for (const [i, text] of bad.entries()) {
    await store.create(planKey(`2026-11-0${i + 1}`), Buffer.from(JSON.stringify(text)));
    await expect(readPlan(store, `2026-11-0${i + 1}`)).rejects.toThrow();
  }
});

/** A row as the engine gives it, of an endpoint that was seen once and is listed by nobody. */
const rowFromLake = (i: number) => ({
  ...rowOf({ url: `https://s${i}.example/x` }, {}),
  ...{ asked: 0, offers: [], paid_to: [], listing_defects: null, listing_t: null },
  ...{ terms_defects: null, differs: null, terms_t: null },
});

it("volatile tables: few rows are made in a turn, and each column of a file is encoded in one of its own", async () => {
  const turns = new TurnsSeen();
  const batch = turns.watched(Array.from({ length: MANY }, (_, i) => rowFromLake(i)));
  let asked = 0;
  const lake = {
    // The rows, and then what handshakes have beside method and url: nothing here.
    async *stream() {
      if (asked++ === 0) yield batch;
    },
  } as unknown as Lake;
  const rows = await volatileRows(lake, { get: () => undefined }, new Map(), ["a"]);
  const seen = turns.end();
  expect(seen.all).toBe(MANY);
  expect(seen.most).toBeLessThanOrEqual(64);
  const encoding = new TurnsSeen();
  const bytes = await encodeVolatile(rows);
  expect(encoding.end().turns).toBeGreaterThanOrEqual(Object.keys(rows[0]!).length / 2);
  expect([...readVolatileRows(bytes)]).toEqual(rows);
});
