import { expect, test } from "vitest";
import { retryAfterMs } from "../../../infra/egress/headers.ts";
import { DISABLED_AFTER_MS, nextAttemptAt } from "../../../pipelines/6-notify/notifier.ts";

const T0 = Date.parse("2026-11-21T12:00:00.000Z");
const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

test("pauses after each failed attempt, the last one again and again", () => {
  const pauses = [1, 2, 3, 4, 5, 6, 7, 8, 20].map((n) => nextAttemptAt(n, { now: T0, since: T0 }, null, 0) - T0);
  const hours = [2, 5, 10, 10, 10, 10].map((n) => n * HOUR);
  expect(pauses).toEqual([5_000, 5 * MINUTE, 30 * MINUTE, ...hours]);
});

test("up to a tenth is added at random, and a receiver may ask for more, up to a day, never past the end", () => {
  const times = { now: T0, since: T0 };
  expect(nextAttemptAt(2, times, null, 0.5)).toBe(T0 + 5.25 * MINUTE);
  expect(nextAttemptAt(1, times, HOUR, 0)).toBe(T0 + HOUR);
  expect(nextAttemptAt(5, times, HOUR, 0)).toBe(T0 + 5 * HOUR);
  expect(nextAttemptAt(1, times, 30 * 24 * HOUR, 0)).toBe(T0 + 24 * HOUR);
  const late = { now: T0 + DISABLED_AFTER_MS - HOUR, since: T0 };
  expect(nextAttemptAt(9, late, null, 0.9)).toBe(T0 + DISABLED_AFTER_MS);
});

test.each<[string | undefined, number | null]>([
  [undefined, null],
  ["", null],
  ["120", 120_000],
  [" 7 ", 7_000],
  ["-1", null],
  ["1.5", null],
  ["9".repeat(400), null],
  ["Sat, 21 Nov 2026 12:01:00 GMT", MINUTE],
  ["Sat, 21 Nov 2026 11:00:00 GMT", 0],
  ["Sat, 99 Nov 2026 12:01:00 GMT", null],
  ["tomorrow", null],
])("Retry-After %j", (header, ms) => {
  expect(retryAfterMs(header, T0)).toBe(ms);
});
