import { expect, test } from "vitest";
import { plainMs } from "../../../pipelines/2-ingest/plain.ts";
import { fc } from "../../helpers/histories.ts";

const two = (n: number): string => String(n).padStart(2, "0");

/** What the runtime's own calendar says of the text. */
function reference(text: string): number | null {
  const ms = Date.parse(text);
  return !Number.isNaN(ms) && new Date(ms).toISOString() === text ? ms : null;
}

test("a day is one that the calendar has, and nothing else", () => {
  let days = 0;
  for (const year of [1970, 2000, 2023, 2024, 2100]) {
    for (let month = 0; month <= 13; month++) {
      for (let day = 0; day <= 32; day++) {
        const text = `${year}-${two(month)}-${two(day)}T23:59:59.999Z`;
        expect([text, plainMs(`"${text}"`, 1)]).toEqual([text, reference(text)]);
        if (plainMs(text, 0) !== null) days++;
      }
    }
  }
  expect(days).toBe(365 * 5 + 2);
});

test("times of any form are what the calendar says, whatever day was asked for before", () => {
  const part = fc.integer({ min: 0, max: 99 });
  const made = fc
    .tuple(
      fc.constantFrom("2024-02-29", "2023-02-29", "2023-01-31", "2023-04-31"),
      part,
      part,
      part,
      fc.nat({ max: 999 }),
    )
    .map(([day, h, m, s, ms]) => `${day}T${two(h % 26)}:${two(m % 62)}:${two(s % 62)}.${String(ms).padStart(3, "0")}Z`);
  const edited = fc
    .tuple(made, fc.nat({ max: 23 }), fc.constantFrom("0", "9", " ", ":", "-", "T", "Z", ".", "+", "é"))
    .map(([text, at, piece]) => text.slice(0, at) + piece + text.slice(at + 1));
  fc.assert(
    fc.property(fc.array(fc.oneof(made, edited), { minLength: 1, maxLength: 5 }), (texts) => {
      for (const text of texts) expect([text, plainMs(text, 0)]).toEqual([text, reference(text)]);
    }),
    { numRuns: 2_000 },
  );
});
