import { afterAll, beforeAll, expect, test } from "vitest";
import { createMemory } from "../../../pipelines/2-ingest/memory.ts";
import type { BodyOf } from "../../../pipelines/record/bodies.ts";
import { type Envelope, readRecord, sealEnvelope } from "../../../pipelines/record/envelope.ts";
import { capId, recordId } from "../../../pipelines/record/ids.ts";
import { at, handshake, later } from "./records.ts";
import { openTestWorld, PARTITIONS, type World } from "./world.ts";

let world: World;
beforeAll(async () => {
  world = await openTestWorld();
});
afterAll(() => world.close());

const CAP = capId("POST", "https://tools.example/mcp", "add");

function sealed(type: "mcp.probe" | "mcp.paid", slot: string, time: string, body: object) {
  const event_id = recordId(type, CAP, slot);
  const envelope = { v: 1, type, event_id, cap: CAP, key: CAP, observed_at: time, producer: "test/1", body };
  return sealEnvelope(envelope as Envelope, PARTITIONS);
}

/** The probe of a tool that saw what this handshake saw, at the same minute. */
function probeLike(name: string, time: string, over: Partial<BodyOf<"handshake">> = {}) {
  const like = handshake(name, time, over);
  const read = readRecord({ ...like, offset: 0, appendedAt: new Date(0) });
  if (!read.ok) throw new Error(read.reason);
  const { slot, ...seen } = read.envelope.body as BodyOf<"handshake">;
  const body = { slot, ...seen, initialize_ms: 12, tool: "add", tool_present: true };
  return { like, probe: sealed("mcp.probe", `${slot.block}/${slot.minute}`, time, body) };
}

const samples = (cap: string) =>
  world.lake.all("SELECT * EXCLUDE (row, cap, obs_id) FROM every_sample WHERE cap = $cap ORDER BY t", { cap });
const seen = (cap: string) => world.lake.all("SELECT * EXCLUDE (cap, terms_id) FROM seen WHERE cap = $cap", { cap });

test("a probe of a tool is a sample like a handshake, once, and its slot is taken", async () => {
  const pairs = [
    probeLike("twin", at("01:00:00")),
    probeLike("twin", at("07:00:00"), { honest: false, price: "0.030000" }),
    probeLike("twin", at("13:00:00"), { state: "silent", live: false, honest: null, fault: "ours", terms: null }),
    probeLike("twin", at("19:00:00"), { state: "wall", live: false, honest: null, wall: true, terms: null }),
  ];
  await world.append(...pairs.flatMap(({ like, probe }) => [like, probe]));
  await world.append(pairs[0]!.probe);
  await world.ingest.pass();
  // The same planned call, told again on another day: a copy, however late it comes.
  await world.append(probeLike("twin", at("01:00:00")).probe);
  await world.ingest.pass();

  const twin = pairs[0]!.like.key;
  expect(await samples(CAP)).toHaveLength(4);
  expect(await samples(CAP)).toEqual(await samples(twin));
  expect(await seen(CAP)).toEqual(await seen(twin));
  const done = await createMemory(world.lake).recordedIdsOn("2026-11-10");
  expect(pairs.map(({ probe }) => done.has(probe.eventId))).toEqual([true, true, true, true]);
});

test("how a paid session began is kept and is no sample", async () => {
  const before = await samples(CAP);
  const body = { of: recordId("paid.intent", CAP, "1/1"), initialize_ms: null, tool: "add", tool_present: null };
  const first = sealed("mcp.paid", "1/1", at("02:00:00"), body);
  await world.append(first, sealed("mcp.paid", "1/1", later(at("02:00:00"), 3 * 86_400_000), body));
  await world.ingest.pass();
  expect(await samples(CAP)).toEqual(before);
  const query = "SELECT type, body FROM event WHERE event_id = $id";
  const events = await world.lake.all<{ type: string; body: string }>(query, { id: first.eventId });
  expect(events.map(({ type, body: text }) => [type, JSON.parse(text)])).toEqual([["mcp.paid", body]]);
});
