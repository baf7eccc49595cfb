import { describe, expect, it } from "vitest";
import { bandToPublish, type DayLetter } from "../../../pipelines/3-grade/hold.ts";
import { addDays } from "../../../pipelines/record/time.ts";
import { BANDS, type Band } from "../../../pipelines/record/vocabulary.ts";
import { fc } from "../../helpers/histories.ts";

const TODAY = "2026-11-15";
const ago = (days: number, band: Band): DayLetter => ({ day: addDays(TODAY, -days), band });
const severity = (band: Band) => BANDS.indexOf(band as (typeof BANDS)[number]);

describe("the hold", () => {
  const table: [name: string, letters: DayLetter[], raw: Band, band: Band, heldUntil: string | null][] = [
    ["nothing before", [], "B", "B", null],
    ["down at once", [ago(1, "A")], "D", "D", null],
    ["held by yesterday", [ago(1, "C")], "A", "C", addDays(TODAY, 13)],
    ["a leaf of long ago runs on until yesterday", [ago(40, "C")], "A", "C", addDays(TODAY, 13)],
    ["a leaf that was followed by a better one long ago", [ago(40, "C"), ago(20, "A")], "A", "A", null],
    ["the worst day is the 14th before", [ago(14, "F"), ago(13, "A")], "A", "A", null],
    ["the worst day is the 13th before", [ago(13, "F"), ago(12, "A")], "A", "F", addDays(TODAY, 1)],
    [
      "the last day of the worst letter counts",
      [ago(13, "C"), ago(9, "B"), ago(5, "C"), ago(4, "A")],
      "A",
      "C",
      addDays(TODAY, 9),
    ],
    ["a worse leaf earlier today", [ago(0, "D")], "B", "D", addDays(TODAY, 14)],
    ["an F and an A on one day", [ago(3, "F"), ago(3, "A")], "A", "F", addDays(TODAY, 11)],
    ["the same letter holds nothing", [ago(5, "B"), ago(2, "B")], "B", "B", null],
    [
      "a withdrawn letter is skipped and does not run on",
      [ago(20, "F"), ago(9, "UNRATED"), ago(1, "A")],
      "A",
      "F",
      addDays(TODAY, 4),
    ],
    ["UNRATED now", [ago(1, "F")], "UNRATED", "UNRATED", null],
  ];
  it.each(table)("%s", (_, letters, raw, band, heldUntil) => {
    expect(bandToPublish(letters, TODAY, raw)).toEqual({ band, heldUntil });
  });

  const band = fc.constantFrom<Band>(...BANDS, "UNRATED");
  const history = fc
    .array(fc.record({ back: fc.integer({ min: 0, max: 40 }), band }), { maxLength: 12 })
    .map((days) => days.sort((a, b) => b.back - a.back).map(({ back, band }) => ago(back, band)));

  it("is never better than today's letter, and is one of the raw letters", () => {
    fc.assert(
      fc.property(history, band, (letters, raw) => {
        const held = bandToPublish(letters, TODAY, raw);
        if (raw === "UNRATED") {
          expect(held).toEqual({ band: raw, heldUntil: null });
          return;
        }
        expect(severity(held.band)).toBeGreaterThanOrEqual(severity(raw));
        expect([raw, ...letters.map((letter) => letter.band)]).toContain(held.band);
        expect(held.heldUntil === null).toBe(held.band === raw);
      }),
    );
  });

  it("rises on the day it names and not before, when every day until then stays as today", () => {
    fc.assert(
      fc.property(history, fc.constantFrom<Band>("A", "B", "C"), (letters, raw) => {
        const held = bandToPublish(letters, TODAY, raw);
        if (held.heldUntil === null) return;
        const later = [...letters, { day: TODAY, band: raw }];
        const eve = bandToPublish(later, addDays(held.heldUntil, -1), raw);
        expect(eve).toEqual(held);
        expect(severity(bandToPublish(later, held.heldUntil, raw).band)).toBeLessThan(severity(held.band));
      }),
    );
  });

  it("does not latch: 14 days of one letter are that letter", () => {
    fc.assert(
      fc.property(history, fc.constantFrom<Band>(...BANDS), (letters, raw) => {
        const clean = Array.from({ length: 14 }, (_, i) => ({ day: addDays(TODAY, i + 1), band: raw }));
        expect(bandToPublish([...letters, ...clean], addDays(TODAY, 14), raw)).toEqual({ band: raw, heldUntil: null });
      }),
    );
  });
});
