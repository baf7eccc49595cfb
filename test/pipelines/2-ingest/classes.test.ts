import { afterEach, beforeEach, expect, test } from "vitest";
import { createMapping } from "../../../pipelines/1-observe/classes/classing.ts";
import { createMemory } from "../../../pipelines/2-ingest/memory.ts";
import { listingFacts } from "../../../pipelines/2-ingest/volatile.ts";
import type { BodyOf } from "../../../pipelines/record/bodies.ts";
import type { Memory } from "../../../pipelines/record/memory.ts";
import {
  at,
  CAME,
  capOf,
  classMapped,
  correction,
  followup,
  handshake,
  intent,
  later,
  listing,
  NOTHING,
  reinstated,
  result,
  settlement,
} from "./records.ts";
import { openTestWorld, type World } from "./world.ts";

let world: World;
let memory: Memory;
beforeEach(async () => {
  world = await openTestWorld();
  memory = createMemory(world.lake);
});
afterEach(() => world.close());

const MAPPING = createMapping({
  ...{ class: "encodings", variant: "sha256", by: "operator", answer: "/hex" },
  input: { query: { q: "{text}" } },
});
type Known = NonNullable<BodyOf<"paid.intent">["known_answer"]>;
const known = (change: Partial<Known> = {}): Known => ({
  ...{ class: "encodings", variant: "sha256", answer: "/hex", truth: "ab", mapping: null, control: false },
  ...change,
});
const payTo = (n: number): string => `0x${String(n).repeat(40)}`;

/** One paid call with a question, that ended as said. */
async function asked(
  name: string,
  time: string,
  question: Partial<Known>,
  came: Partial<BodyOf<"paid.result">>,
  to = 1,
): Promise<string> {
  const plain = intent(name, time);
  const { quote } = (JSON.parse(Buffer.from(plain.value).toString()) as { body: BodyOf<"paid.intent"> }).body;
  const change = {
    input: "known_answer" as const,
    known_answer: known(question),
    quote: { ...quote, pay_to: payTo(to) },
  };
  const sent = intent(name, time, change);
  await world.append(sent, result(name, sent.eventId, later(time, 2_000), came));
  return sent.eventId;
}
const WRONG = { ...CAME, outcome: 0 };
const RIGHT = { ...CAME, outcome: 1 };

test("the mapping that stands, its control inputs, and the class that a listing is said to have", async () => {
  const classes = async () => {
    const { listed } = await world.lake.transaction((tx) => listingFacts(tx, "all"));
    return listed.find(({ capability_id }) => capability_id === capOf("a"))?.class;
  };
  const mapped = async () => (await memory.listed()).find(({ cap }) => cap === capOf("a"))?.mapped;
  await world.append(listing("a", at("01:00:00")), handshake("a", at("01:30:00")));
  await world.ingest.pass();
  expect([await mapped(), await classes()]).toEqual([null, "any"]);

  await world.append(classMapped("a", at("02:00:00"), { mapping: MAPPING, dropped: false }));
  const { id } = MAPPING;
  await asked("a", at("03:00:00"), { mapping: id, control: true }, { ...WRONG, fault: "ours" });
  await asked("a", at("09:00:00"), { mapping: "f".repeat(64), control: true }, { ...RIGHT, fault: "ours" });
  await world.ingest.pass();
  expect(await mapped()).toEqual({ id, dropped: false, controls: 1, passed: false });
  expect(await classes()).toBe("encodings");

  await asked("a", at("15:00:00"), { mapping: id, control: true }, { ...RIGHT, fault: "ours" });
  await world.ingest.pass();
  expect(await mapped()).toEqual({ id, dropped: false, controls: 2, passed: true });
  expect((await memory.listed()).find(({ cap }) => cap === capOf("a"))).toMatchObject({ paidBlocks: 0 });

  await world.append(classMapped("a", at("16:00:00"), { mapping: MAPPING, dropped: true }));
  await world.ingest.pass();
  expect([(await mapped())?.dropped, await classes()]).toEqual([true, "any"]);
  await world.append(classMapped("a", at("17:00:00"), { mapping: null, dropped: false }));
  await world.ingest.pass();
  expect([await mapped(), await classes()]).toEqual([null, "any"]);
});

test("a day on which nobody of three payees passed, and its calls; a pass, a control, two payees are none", async () => {
  const day = (n: string) => (time: string) => at(time, `2026-11-${n}`);
  const failed = () => memory.failedClasses("2026-11-01", "2026-12-01", 3);
  const [one, two] = [day("10"), day("11")];
  const a = await asked("a", one("01:00:00"), {}, WRONG, 1);
  const b = await asked("b", one("01:10:00"), {}, WRONG, 2);
  // Of the same payee as b, and a control input of a third.
  await asked("c", one("01:20:00"), {}, WRONG, 2);
  await asked("d", one("01:30:00"), { control: true, mapping: MAPPING.id }, { ...WRONG, fault: "ours" }, 3);
  await world.ingest.pass();
  expect(await failed()).toEqual([]);

  const e = await asked("e", one("07:00:00"), {}, { ...NOTHING, outcome: 0 }, 4);
  const nothing = { ...NOTHING, outcome: 0, watched: true };
  await world.append(
    settlement("e", e, one("07:00:05"), { final: true }),
    followup("e", e, one("07:00:30"), { kind: "shown_again", shown_again: nothing }),
  );
  await world.ingest.pass();
  expect(await failed()).toEqual([{ class: "encodings", day: "2026-11-10", payees: 3 }]);
  const calls = async () => (await memory.callsOfClass("encodings", "2026-11-10")).map(({ intent: id }) => id);
  // The one that took the money and gave nothing stands, whatever it was asked.
  expect(await calls()).toEqual(expect.arrayContaining([a, b]));
  expect((await calls()).includes(e)).toBe(false);

  await world.append(correction("a", one("20:00:00"), { record_id: a }));
  await world.ingest.pass();
  expect((await calls()).includes(a)).toBe(false);
  expect(await failed()).toHaveLength(1);

  // A withdrawal for a wrong question that an operator took back is not made again.
  const withdrawal = correction("b", one("20:00:00"), { record_id: b, fault: "wrong_checker" });
  const { body } = JSON.parse(Buffer.from(withdrawal.value).toString()) as { body: BodyOf<"correction"> };
  await world.append(withdrawal);
  await world.ingest.pass();
  expect((await calls()).includes(b)).toBe(false);
  await world.append(reinstated("b", one("21:00:00"), body.id));
  await world.ingest.pass();
  expect((await calls()).includes(b)).toBe(false);

  // Another class, another day: one pass is enough.
  for (const [n, name] of ["f", "g", "h"].entries())
    await asked(name, two("01:00:00"), { class: "geo-facts", variant: "capital" }, WRONG, n + 1);
  await world.ingest.pass();
  expect(await failed()).toHaveLength(2);
  await asked("i", two("02:00:00"), { class: "geo-facts", variant: "capital" }, RIGHT, 5);
  await world.ingest.pass();
  expect(await failed()).toEqual([{ class: "encodings", day: "2026-11-10", payees: 3 }]);
});
