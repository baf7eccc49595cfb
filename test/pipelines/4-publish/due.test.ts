import { describe, expect, it } from "vitest";
import { DueDays, holdEndOf } from "../../../pipelines/4-publish/due.ts";
import { MomentIndex } from "../../../pipelines/4-publish/moments.ts";
import { PublishedFold } from "../../../pipelines/published/fold.ts";
import type { GradeLeaf, Leaf } from "../../../pipelines/record/leaf.ts";
import { addDays } from "../../../pipelines/record/time.ts";
import type { Band } from "../../../pipelines/record/vocabulary.ts";
import { fc } from "../../helpers/histories.ts";

const DAY = "2026-11-01";
const capOf = (n: number): string => `cap_${String(n).padStart(26, "0")}`;

describe("moments", () => {
  it("are found as a search through all of them finds them", () => {
    const name = fc.constantFrom("a", "b", "c", "d");
    const moment = fc.constantFrom("2026-11-01T05:10:00.000Z", "2026-11-01T05:50:00.000Z", "2026-11-02T00:00:00.000Z");
    const step = fc.tuple(name, fc.option(moment));
    fc.assert(
      fc.property(fc.array(step, { maxLength: 30 }), moment, (steps, now) => {
        const moments = new MomentIndex();
        const plain = new Map<string, string>();
        for (const [one, when] of steps) {
          moments.set(one, when);
          if (when === null) plain.delete(one);
          else plain.set(one, when);
        }
        expect(moments.size).toBe(plain.size);
        expect(moments.findDue(now).sort()).toEqual(
          [...plain].flatMap(([one, when]) => (when <= now ? [one] : [])).sort(),
        );
      }),
    );
  });
});

/** What the days were found by before: every endpoint, looked at. */
function scanned(fold: PublishedFold, today: string): string[] {
  return [...fold.caps.values()].flatMap((cap) => {
    if (cap.cards.length === 0) return [];
    const until = holdEndOf(cap, today);
    return addDays(cap.day, 7) <= today || (until !== null && until <= today) ? [cap.cap] : [];
  });
}

class Log {
  readonly fold = new PublishedFold();
  #grades = 0;
  #corrections = 0;

  grade(n: number, day: string, band: Band, raw_band: Band): void {
    const at = `${day}T06:00:00.000Z`;
    this.fold.apply({
      ...{
        v: 1,
        kind: "grade",
        index: this.fold.size,
        seq: this.#grades++,
        at,
        day,
        raw_band,
        headline: true,
        why: "",
      },
      inputs: { positions: {}, digest: "00".repeat(32), kin: "00".repeat(32) },
      card: { capability_id: capOf(n), tier: "DELIVERY_VERIFIED", band, computed_at: at, evidence_sample: [] },
    } as unknown as GradeLeaf);
  }

  correct(n: number, day: string): void {
    const body = { id: `c${this.#corrections}`, record_id: null, grade_at: null };
    const leaf = {
      v: 1,
      kind: "correction",
      index: this.fold.size,
      seq: this.#corrections++,
      capability_id: capOf(n),
      body,
    };
    this.fold.apply({ ...leaf, at: `${day}T07:00:00.000Z`, position: null } as unknown as Leaf);
  }
}

describe("days on which an endpoint is due", () => {
  it("are those that looking at every endpoint gives, day by day, whatever is published in between", () => {
    const band = fc.constantFrom<Band>("A", "B", "D", "F", "UNRATED");
    const event = fc.record({
      n: fc.nat({ max: 3 }),
      band,
      raw: band,
      kind: fc.constantFrom("grade", "grade", "correct"),
    });
    const days = fc.array(fc.array(event, { maxLength: 3 }), { minLength: 1, maxLength: 24 });
    fc.assert(
      fc.property(days, (course) => {
        const log = new Log();
        const due = new DueDays(log.fold);
        course.forEach((events, k) => {
          const today = addDays(DAY, k);
          expect(due.findDueEndpoints(today).sort()).toEqual(scanned(log.fold, today).sort());
          for (const { n, band, raw, kind } of events) {
            if (kind === "grade") log.grade(n, today, band, raw);
            else log.correct(n, today);
          }
          expect(due.findDueEndpoints(today).sort()).toEqual(scanned(log.fold, today).sort());
        });
      }),
      { numRuns: 300 },
    );
  });
});
