import { expect, test } from "vitest";
import { daysOfPast, PAST_DAYS } from "../../commands/simulated-past.ts";

test("a past ends on its last day; a whole one has two days of long ago before it, a shorter one none", () => {
  expect(daysOfPast("2026-03-01", 3)).toEqual(["2026-02-27", "2026-02-28", "2026-03-01"]);
  const whole = daysOfPast("2026-11-23", PAST_DAYS);
  expect(whole).toHaveLength(2 + PAST_DAYS);
  expect([...whole.slice(0, 3), whole.at(-1)]).toEqual(["2026-07-22", "2026-07-23", "2026-10-23", "2026-11-23"]);
  expect(daysOfPast("2026-11-23", 200)[0]).toBe("2026-05-08");
});
