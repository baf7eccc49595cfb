import { afterAll, beforeAll, expect, test } from "vitest";
import { partitionOf } from "../../../pipelines/record/ids.ts";
import type { GradeLeaf } from "../../../pipelines/record/leaf.ts";
import { fc } from "../../helpers/histories.ts";
import { capOf, handshake, listing } from "../2-ingest/records.ts";
import { PARTITIONS } from "../2-ingest/world.ts";
import { openWorld, paidCall, type World } from "./world.ts";

/**
 * Histories of observations, corrections, reinstatements, disputes and grades against an oracle that knows nothing of
 * SQL, leaves or tables: lists of what was said, and the method's sentences about them.
 */
interface Correction {
  id: string;
  recordId: string | null;
  issuedAt: number;
  backAt: number | null;
}
class Endpoint {
  readonly seen: { id: string; t: number }[] = [];
  readonly corrections: Correction[] = [];
  readonly disputes: { id: string; recordId: string | null; at: number }[] = [];
  /** The newest card that the log has of it: its moment and the records that it stood on. */
  card: { at: number; stood: ReadonlySet<string> } | null = null;
  constructor(readonly name: string) {}

  isWithdrawn({ id, t }: { id: string; t: number }): boolean {
    return this.corrections.some(
      (one) => one.backAt === null && (one.recordId === null ? t < one.issuedAt : one.recordId === id),
    );
  }
  standing(now: number): string[] {
    return this.seen.flatMap((one) => (one.t < now && !this.isWithdrawn(one) ? [one.id] : []));
  }
  get withdrawnSince(): number {
    return this.seen.filter((one) => this.card?.stood.has(one.id) && this.isWithdrawn(one)).length;
  }
  get disputed(): boolean {
    const answers = (d: Endpoint["disputes"][number]) => (c: Correction) =>
      c.backAt === null && c.issuedAt >= d.at && (c.recordId === null || c.recordId === d.recordId);
    return this.disputes.some((one) => !this.corrections.some(answers(one)));
  }
  saidSince(at: number): boolean {
    return this.corrections.some((one) => one.issuedAt > at || (one.backAt ?? 0) > at);
  }
}

const OPS = ["observe", "observe", "pay", "late", "one", "one", "all", "back", "dispute", "grade", "restart"] as const;
const step = fc.record({ op: fc.constantFrom(...OPS), which: fc.nat(1), pick: fc.nat(1_000) });
type Step = { op: (typeof OPS)[number]; which: number; pick: number };

let world: World;
beforeAll(async () => {
  world = await openWorld();
});
afterAll(async () => {
  try {
    await world.prove();
  } finally {
    await world.close();
  }
});

const STEP_MS = 7 * 60_000;
const now = () => world.clock.now().getTime();
const iso = (t: number) => new Date(t).toISOString();
/** Same records, same digest; other records, another one: over all endpoints and runs, since ids are never shared. */
const digests = new Map<string, string>();
let late = 0;

async function observe(of: Endpoint, t: number, paid: boolean): Promise<void> {
  const records = paid ? paidCall(of.name, iso(t)) : [handshake(of.name, iso(t))];
  await world.append(...records);
  of.seen.push({ id: records[0]!.eventId, t });
}

async function correct(of: Endpoint, recordId: string | null): Promise<void> {
  const work = world.correct(of.name, recordId === null ? {} : { records: [recordId] });
  const target = of.seen.find((one) => one.id === recordId);
  if (target ? of.isWithdrawn(target) : of.standing(now()).length === 0) {
    await expect(work).rejects.toThrow(/withdrawn already|no record left/);
    return;
  }
  const [body] = await work;
  of.corrections.push({ id: body!.id, recordId, issuedAt: now(), backAt: null });
}

async function grade(all: readonly Endpoint[]): Promise<void> {
  world.pass(1);
  await world.grade();
  for (const of of all) {
    const cards = (await world.leavesOf(of.name)).filter((leaf): leaf is GradeLeaf => leaf.kind === "grade");
    const newest = cards.at(-1)!;
    if (Date.parse(newest.card.computed_at!) !== now()) {
      // Nothing new to say, or it waits for tomorrow; what a correction brings never waits.
      expect(of.saidSince(of.card!.at)).toBe(false);
      continue;
    }
    const stood = of.standing(now());
    expect(newest.card.sample_count).toBe(stood.length);
    const key = stood.sort().join();
    expect(newest.inputs.digest).toBe(digests.get(key) ?? newest.inputs.digest);
    digests.set(key, newest.inputs.digest);
    of.card = { at: now(), stood: new Set(stood) };
    expect(newest.card.flags?.includes("disputed")).toBe(of.disputed);
    if (stood.length === 0) expect(newest.card).toMatchObject({ tier: "LIVENESS_VERIFIED", components: null });
  }
}

async function run({ op, which, pick }: Step, all: readonly Endpoint[]): Promise<void> {
  world.pass(STEP_MS);
  const of = all[which]!;
  const chosen = of.seen[pick % Math.max(1, of.seen.length)];
  const said = of.corrections[pick % Math.max(1, of.corrections.length)];
  if (op === "observe" || op === "pay") await observe(of, now(), op === "pay");
  if (op === "late") {
    // Observed long ago and told only now: a run has to read it before anything is said about it.
    await observe(of, Date.parse("2026-11-12T00:00:00.000Z") + late++ * 60_000, false);
    await grade(all);
  }
  if (op === "one" && chosen) await correct(of, chosen.id);
  if (op === "all") await correct(of, null);
  if (op === "back" && said) {
    const work = world.reinstate(of.name, said.id);
    if (said.backAt === null) {
      await work;
      said.backAt = now();
    } else await expect(work).rejects.toThrow("taken back already");
  }
  if (op === "dispute") {
    const recordId = pick % 2 ? (chosen?.id ?? null) : null;
    of.disputes.push({ id: await world.dispute(of.name, recordId), recordId, at: now() });
  }
  if (op === "grade") await grade(all);
  if (op === "restart") await world.restart();
}

/** What anybody is told after one turn of the volatile table, whether or not a run came in between. */
async function told(of: Endpoint): Promise<void> {
  const answer = await world.check(of.name);
  const trust = await world.trustOf(of.name);
  const count = of.card?.stood.size ?? 0;
  const gone = of.withdrawnSince;
  expect([answer.sampleCount, answer.withdrawnSince]).toEqual([count, gone]);
  expect(answer.flags?.includes("records_withdrawn")).toBe(gone > 0 && gone >= 0.2 * count);
  expect(answer.flags?.includes("stands_on_nothing")).toBe(gone > 0 && gone === count);
  if (count - gone === 0) expect([answer.band, answer.tier, answer.composite]).toEqual(["UNRATED", null, null]);
  expect(trust.corrections.map((one) => [one.id, one.recordId])).toEqual(
    of.corrections.map((one) => [one.id, one.recordId]),
  );
  expect(trust.corrections.map((one) => one.says.includes("taken back"))).toEqual(
    of.corrections.map((one) => one.backAt !== null),
  );
  expect(answer.corrections).toEqual(trust.corrections);
  expect(trust.disputes.map((one) => one.id)).toEqual(of.disputes.map((one) => one.id));
  if (of.disputed) expect(answer.flags).toContain("disputed");
}

let runs = 0;
test("any history tells what the oracle tells", async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 8, maxLength: 22 }), async (steps) => {
      const all = [0, 1].map((i) => new Endpoint(`model-${runs}-${i}`));
      runs++;
      for (const { name } of all) await world.append(listing(name, world.clock.now().toISOString()));
      await observe(all[0]!, now() - 1, true);
      for (const one of steps) {
        await run(one, all);
        await world.pipeline.writeVolatile();
        for (const of of all) await told(of);
      }
      await grade(all);
      await world.pipeline.writeVolatile();
      for (const of of all) await told(of);
      // Everything taken back: as if nothing had ever been said.
      world.pass(STEP_MS);
      for (const of of all) {
        for (const one of of.corrections) {
          if (one.backAt !== null) continue;
          await world.reinstate(of.name, one.id);
          one.backAt = now();
        }
      }
      await grade(all);
      for (const of of all) expect(of.standing(now())).toHaveLength(of.seen.length);
    }),
    { numRuns: 6, endOnFailure: true },
  );
});

test("the histories were of both partitions, and other records made another digest", () => {
  const caps = Array.from({ length: runs * 2 }, (_, i) => capOf(`model-${i >> 1}-${i & 1}`));
  expect(new Set(caps.map((cap) => partitionOf(cap, PARTITIONS))).size).toBe(PARTITIONS);
  expect(new Set(digests.values()).size).toBe(digests.size);
});
