import { expect, test } from "vitest";
import { DAY, fakeWorld } from "../world.ts";

const call = (n: number) => ({
  intent: `rec_${String(n).repeat(26)}`,
  cap: `cap_${String(n).repeat(26)}`,
  url: `https://s${n}.example/x`,
  t: `${DAY}T01:00:00.000Z`,
});

test("every call of a class that failed everywhere on a closed day is withdrawn, each once, in words", async () => {
  const world = fakeWorld();
  world.memory.failedClassesFound = [{ class: "encodings", day: DAY, payees: 3 }];
  world.memory.callsOfClassFound = [1, 2, 3].map(call);
  // The day is not over: it is only said.
  await world.observer.followUpCalls();
  expect(world.log.bodies("correction")).toEqual([]);
  world.clock.set(new Date("2026-11-03T00:10:00Z"));
  await world.observer.followUpCalls();
  // The lake has not read of them yet.
  await world.observer.followUpCalls();
  const corrections = world.log.bodies("correction");
  expect(corrections.map(({ record_id }) => record_id)).toEqual([1, 2, 3].map((n) => call(n).intent));
  expect(corrections[0]).toMatchObject({ fault: "wrong_checker", grade_at: null, observed_at: `${DAY}T01:00:00.000Z` });
  expect(corrections[0]!.says).toMatch(/of the 3 payees .* class encodings/);
  expect(new Set(corrections.map(({ id }) => id)).size).toBe(3);
});
