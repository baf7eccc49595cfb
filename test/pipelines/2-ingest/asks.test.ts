import { afterAll, beforeAll, expect, test } from "vitest";
import type { NewRecord } from "../../../infra/log/log.ts";
import { readDemandBefore, readOpenAsks } from "../../../pipelines/1-observe/ask-runner.ts";
import { createMemory } from "../../../pipelines/2-ingest/memory.ts";
import type { BodyOf } from "../../../pipelines/record/bodies.ts";
import { sealEnvelope } from "../../../pipelines/record/envelope.ts";
import { capId, recordId } from "../../../pipelines/record/ids.ts";
import { ask, at, capOf, correction, handshake, intent, later, result, SHA, urlOf } from "./records.ts";
import { openTestWorld, PARTITIONS, type World } from "./world.ts";

let world: World;
beforeAll(async () => {
  world = await openTestWorld();
});
afterAll(() => world.close());

let serial = 0;
function inAsks<T extends "ask.looked" | "demand">(type: T, key: string, time: string, body: BodyOf<T>): NewRecord {
  const event_id = recordId(type, key, String(serial++));
  return sealEnvelope({ v: 1, type, event_id, key, observed_at: time, producer: "test/1", body }, PARTITIONS);
}
const tally = (day: string, asked: [string, number][]) =>
  inAsks("demand", "demand/r1", at("12:00:00", day), {
    ...{ day, replica: "r1" },
    asked: asked.map(([name, clients]) => ({ cap: capOf(name), clients })),
  });

test("demand of a day: tallies of the seven days before it, and days of asks, also under the verb that was found", async () => {
  const post = capId("POST", urlOf("nobody"));
  await world.append(
    tally("2026-11-02", [["a", 100]]),
    tally("2026-11-03", [["a", 1]]),
    tally("2026-11-09", [
      ["a", 2],
      ["b", 5],
    ]),
    tally("2026-11-10", [["a", 1000]]),
    ask("nobody", at("01:00:00", "2026-11-08")),
    ask("nobody", at("09:00:00", "2026-11-08")),
    ask("nobody", at("09:00:00", "2026-11-09")),
    ask("nobody", at("09:00:00", "2026-11-10")),
    inAsks("ask.looked", "nobody.example", at("09:01:00", "2026-11-08"), {
      cap: capOf("nobody"),
      host: "nobody.example",
      probed: [
        { cap: capOf("nobody"), state: "status" },
        { cap: post, state: "asked" },
      ],
    }),
  );
  await world.ingest.pass();
  const expected = new Map([
    [capOf("a"), 3],
    [capOf("b"), 5],
    [capOf("nobody"), 2],
    [post, 2],
  ]);
  expect(await readDemandBefore(world.lake, "2026-11-10")).toEqual(expected);
  // Loading the same segments again, or a new lake from the chain, counts nothing twice.
  await world.ingest.rebuild();
  expect(await readDemandBefore(world.lake, "2026-11-10")).toEqual(expected);
});

test("a seller's re-test is open though it was just looked at, until a look after it, and it is no demand", async () => {
  const DAY = "2026-11-12";
  const host = new URL(urlOf("seller")).host;
  const body = { url: urlOf("seller"), normalised_url: urlOf("seller"), method: null, host, cap: capOf("seller") };
  const retest = { statement: "{}", pay_to: "0x", signature: "0x" };
  const asked = (type: "ask", time: string, more: object) => {
    const event_id = recordId(type, host, String(serial++));
    const envelope = { v: 1 as const, type, event_id, key: host, observed_at: time, producer: "test/1" };
    return sealEnvelope({ ...envelope, body: { ...body, ...more } }, PARTITIONS);
  };
  const open = async () =>
    (await readOpenAsks(world.lake, new Date(at("12:10:00", DAY)))).filter(({ cap }) => cap === capOf("seller"));
  await world.append(handshake("seller", at("11:59:00", DAY)), asked("ask", at("12:00:00", DAY), {}));
  await world.ingest.pass();
  expect(await open()).toEqual([]);
  await world.append(asked("ask", at("12:00:00", DAY), { retest }));
  await world.ingest.pass();
  expect((await open()).map(({ t }) => t)).toEqual([Date.parse(at("12:00:00", DAY))]);
  await world.append(handshake("seller", at("12:05:00", DAY)));
  await world.ingest.pass();
  expect(await open()).toEqual([]);
  // The plain ask of that day counts, and the re-tests of the next day add none.
  await world.append(asked("ask", at("09:00:00", "2026-11-13"), { retest }));
  await world.ingest.pass();
  expect((await readDemandBefore(world.lake, "2026-11-14")).get(capOf("seller"))).toBe(1);
});

test("made-up inputs that passed are known from the record; others, failed and withdrawn ones are not", async () => {
  const memory = createMemory(world.lake);
  const call = (name: string, time: string, input: "synthetic" | "example", delivery: number) => {
    const sent = intent(name, time, { input });
    return { sent, all: [sent, result(name, sent.eventId, later(time, 1_000), { delivery })] };
  };
  const taken = call("taken", at("03:00:00"), "synthetic", 1);
  const all = [
    call("made", at("01:00:00"), "synthetic", 1),
    call("made", at("07:00:00"), "synthetic", 1),
    call("shown", at("01:00:00"), "example", 1),
    call("failed", at("01:00:00"), "synthetic", 0),
    taken,
  ];
  await world.append(...all.flatMap((one) => one.all));
  await world.append(correction("taken", at("05:00:00"), { id: "c-taken", record_id: taken.sent.eventId }));
  await world.ingest.pass();
  expect(await memory.passedInputs(10)).toEqual([`${capOf("made")} ${SHA}`]);
  expect(await memory.passedInputs(0)).toEqual([]);
});
