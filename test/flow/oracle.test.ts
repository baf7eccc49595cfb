import { afterAll, beforeAll, expect, test } from "vitest";
import type { AppendedRecord } from "../../infra/log/log.ts";
import type { Draft } from "../../pipelines/4-publish/leaves.ts";
import { OracleBroken, proveWhole, type Whole } from "../helpers/oracle.ts";
import { ofKind } from "../helpers/published.ts";
import { capOf, correction, handshake, intent, listing, result } from "../pipelines/2-ingest/records.ts";
import { TRUST } from "../pipelines/4-publish/world.ts";
import { ArchiveWorld } from "../pipelines/5-archive/world.ts";

/** The oracle of the fault tests finds what it is there for: each test breaks a sound record in one place more. */
const at = (time: string, day = "2026-11-10"): string => `${day}T${time}.000Z`;

let world: ArchiveWorld;
let acked: AppendedRecord[];
let whole: Whole;

beforeAll(async () => {
  world = await ArchiveWorld.open();
  const { log, store, lake } = world.ingest;
  const sent = intent("a", at("03:00:00"));
  acked = await log.append([
    listing("a", at("01:00:00")),
    handshake("a", at("02:00:00"), { planned: "asked" }),
    sent,
    result("a", sent.eventId, at("03:00:02")),
    correction("a", at("04:00:00")),
  ]);
  await world.grade(at("23:00:00"));
  await world.closeDays(at("12:00:00", "2026-11-11"));
  const stores = { privateStore: store, publicStore: world.publicStore };
  whole = { ...{ log, ...stores, trust: TRUST, acked, lakes: [{ lake }] }, closedBefore: "2026-11-11" };
});
afterAll(() => world.close());

const problems = async (changed: Partial<Whole> = {}): Promise<string> =>
  proveWhole({ ...whole, ...changed }).then(
    () => "",
    (error: unknown) => {
      if (error instanceof OracleBroken) return error.problems.join("\n");
      throw error;
    },
  );

test("a sound record is sound", async () => {
  expect(await problems()).toBe("");
});

test("an acknowledged record that is not there, or another one", async () => {
  const [first] = acked;
  expect(await problems({ acked: [{ ...first!, offset: 7 }] })).toMatch(/acknowledged 7 is not in the log/);
  expect(await problems({ acked: [{ ...first!, eventId: "rec_other" }] })).toMatch(/acknowledged 0 is not in the log/);
});

test("a sample that no evidence holds", async () => {
  // The 11th is not closed: its probe is nowhere yet.
  await world.ingest.append(handshake("a", at("01:00:00", "2026-11-11")));
  await world.ingest.ingest.pass();
  expect(await problems({ closedBefore: "2026-11-12" })).toBe(`samples in no evidence: 1: ${await newest()}`);
  expect(await problems()).toBe("");
});

test("a record that no segment has, and a correction that no leaf has", async () => {
  await world.ingest.append(correction("a", at("05:00:00"), { id: "c2" }));
  const said = await problems();
  expect(said).toMatch(/the chain goes to 1, the log to 2/);
  expect(said).toMatch(/offsets in no segment: 1: 1/);
  expect(said).toMatch(/events missing: 1/);
  expect(said).toMatch(/corrections not published: 1: c2/);
});

test("an event that stands in a lake twice, and one that came from nowhere", async () => {
  await world.ingest.lake.run("INSERT INTO event SELECT * FROM event WHERE cap = $cap LIMIT 1", { cap: capOf("a") });
  await world.ingest.lake.run("INSERT INTO event SELECT * REPLACE ('rec_nobody' AS event_id) FROM event LIMIT 1");
  const said = await problems();
  expect(said).toMatch(/events: 1: rec_\w+ 2026-11-1\d x 2/);
  expect(said).toMatch(/events from nowhere: 1: rec_nobody/);
});

test("a leaf that stands in the tree twice: nothing else is missing because of it", async () => {
  for (const leaf of ofKind(await world.leaves(), "grade"))
    await world.publisher.publishLeaves([leaf as unknown as Draft]);
  const said = await problems();
  expect(said).toMatch(/published 2 times: grade cap_/);
  expect(said).toMatch(/corrections not published: 1: c2/);
  expect(said).not.toMatch(/samples in no evidence/);
});

async function newest(): Promise<string> {
  const [row] = await world.ingest.lake.all<{ event_id: string }>(
    "SELECT event_id FROM event ORDER BY observed_at DESC LIMIT 1",
  );
  return row!.event_id;
}
