import { createHash } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { sha256hex } from "../../infra/canonical.ts";
import { systemClock } from "../../infra/clock.ts";
import { loadConfig } from "../../infra/config.ts";
import { createLogger, createMetrics } from "../../infra/telemetry.ts";
import type { Caps } from "../../pipelines/1-observe/plan/spend.ts";
import { createMemory } from "../../pipelines/2-ingest/memory.ts";
import type { Publisher } from "../../pipelines/4-publish/publisher.ts";
import type { Leaf } from "../../pipelines/record/leaf.ts";
import { Pipeline, type PipelineParts } from "../../pipelines/roles/pipeline.ts";
import { proveRecord } from "../helpers/prove-record.ts";
import { handshake, intent, listing } from "./2-ingest/records.ts";
import { openTestWorld, type World as Records } from "./2-ingest/world.ts";
import { JWKS, World as Publishing, TRUST } from "./4-publish/world.ts";

const DAY = "2026-11-21";
const NEXT = "2026-11-22";
const CAPS: Caps = {
  ...{ perCall: 100_000n, perHostDay: 2_000_000n, perDomainDay: 2_500_000n, perPayeeDay: 6_250_000n },
  ...{ perDay: 25_000_000n, total: 1_000_000n, newShare: 200_000n },
};

let records: Records;
let publishing: Publishing;
let publisher: Publisher;
let now: Date;
beforeEach(async () => {
  records = await openTestWorld();
  publishing = await Publishing.open();
  publisher = publishing.publisher();
  await publisher.publishKeys(JWKS);
  now = new Date(`${DAY}T00:00:00.000Z`);
});
afterEach(async () => {
  await publishing.close();
  await records.close();
});

/** A process with what planning needs: the lake, both stores and the publisher. */
function process_(caps = CAPS, priority: PipelineParts["priority"] = {}): Pipeline {
  const { lake, ingest } = records;
  const unused = {} as Pick<PipelineParts, "observer" | "askRunner" | "archive">;
  return new Pipeline({
    ...unused,
    ...{ clock: { ...systemClock, now: () => now }, log: records.log, lake, ingest, publisher, caps },
    ...{ privateStore: publishing.privateStore, publicStore: publishing.publicStore, memory: createMemory(lake) },
    ...{ logger: createLogger("silent"), metrics: createMetrics(), ownOrigins: [], priority },
  });
}

async function schedules(): Promise<(Leaf & { kind: "schedule" })[]> {
  const { leaves } = await proveRecord(publishing.publicStore, { trust: TRUST, atRest: true });
  return leaves.flatMap((leaf) => (leaf.kind === "schedule" ? [leaf] : []));
}

const schedulesPublished = async () => (await schedules()).map(({ day, opens }) => [day, opens?.day ?? null]);

describe("what is published of a plan", () => {
  test("its hash before the day, its salt only when the day is over, and each salt once", async () => {
    const pipeline = process_();
    await pipeline.getPublishedPlan(DAY);
    now = new Date(`${DAY}T23:50:00.000Z`);
    const plan = await pipeline.getPublishedPlan(NEXT);
    // Ten minutes of the day are left: whoever had its salt now would know its last minutes and wallets.
    expect(await schedulesPublished()).toEqual([
      [DAY, null],
      [NEXT, null],
    ]);
    now = new Date(`${NEXT}T00:00:00.000Z`);
    expect(await pipeline.getPublishedPlan(NEXT)).toEqual(plan);
    await process_().getPublishedPlan(NEXT);
    const leaves = await schedules();
    expect(leaves.map(({ day, opens }) => [day, opens?.day ?? null])).toEqual([
      [DAY, null],
      [NEXT, null],
      [NEXT, DAY],
    ]);
    const opened = leaves[2]!.opens!;
    expect(createHash("sha256").update(Buffer.from(opened.salt, "hex")).digest("hex")).toBe(leaves[0]!.salt_hash);
    expect(leaves[2]).toMatchObject({ salt_hash: leaves[1]!.salt_hash, covered_root: leaves[1]!.covered_root });
    expect(sha256hex(Buffer.from(opened.salt, "hex"))).not.toBe(leaves[1]!.salt_hash);
  });

  test("a day after which nobody ran is opened by the next that runs", async () => {
    await process_().getPublishedPlan(DAY);
    now = new Date("2026-11-25T09:00:00.000Z");
    await process_().getPublishedPlan("2026-11-25");
    expect(await schedulesPublished()).toEqual([
      [DAY, null],
      ["2026-11-25", DAY],
    ]);
  });
});

describe("what a plan knows", () => {
  test("it is drawn once: what is learned later changes tomorrow's", async () => {
    await records.append(listing("a", `${DAY}T00:00:00.000Z`), handshake("a", `${DAY}T00:00:00.000Z`));
    await records.ingest.pass();
    const first = await process_().getPublishedPlan(DAY);
    await records.append(listing("b", `${DAY}T01:00:00.000Z`), handshake("b", `${DAY}T01:00:00.000Z`));
    await records.ingest.pass();
    now = new Date(`${DAY}T02:00:00.000Z`);
    expect(await process_({ ...CAPS, perCall: 1n }).getPublishedPlan(DAY)).toEqual(first);
    expect(first.lines.map((line) => [line.host, line.covered])).toEqual([["a.example", true]]);
    now = new Date(`${NEXT}T00:00:00.000Z`);
    expect((await process_().getPublishedPlan(NEXT)).lines).toHaveLength(2);
  });

  test("the operator's priority decides who is paid when there is money for one", async () => {
    const day = `${DAY}T00:00:00.000Z`;
    for (const name of ["a", "b"]) await records.append(listing(name, day), handshake(name, day));
    await records.ingest.pass();
    const covered = async (day: string, settings: Record<string, number>) => {
      const file = join(publishing.dir, "touchstone.json");
      writeFileSync(file, JSON.stringify({ observe: { priority: settings } }));
      const { priority } = loadConfig(file, {}).observe;
      now = new Date(`${day}T00:00:00.000Z`);
      const { lines } = await process_({ ...CAPS, perDay: 80_000n }, priority).getPublishedPlan(day);
      return lines.filter((line) => line.covered).map((line) => line.host);
    };
    expect(await covered(DAY, { "A.Example": 1 })).toEqual(["a.example"]);
    expect(await covered(NEXT, { "b.example": 1 })).toEqual(["b.example"]);
  });

  test("the evening's plan leaves what today may still spend: all that was ever spent stays under the total", async () => {
    await records.append(listing("a", `${DAY}T00:00:00.000Z`), handshake("a", `${DAY}T00:00:00.000Z`));
    await records.ingest.pass();
    // Four calls of 0.02 a day: 160,000 for two days; one of them is in the record this evening.
    const total = 159_999n;
    await process_({ ...CAPS, total }).getPublishedPlan(DAY);
    await records.append(intent("a", `${DAY}T03:00:00.000Z`));
    await records.ingest.pass();
    now = new Date(`${DAY}T23:50:00.000Z`);
    const evening = await process_({ ...CAPS, total }).getPublishedPlan(NEXT);
    expect(evening.lines.map((line) => line.why)).toEqual(["total"]);
  });
});
