import { describe, expect, it } from "vitest";
import { lowerByBuyers, round6, worstBlocks } from "../../../pipelines/3-grade/bounds.ts";
import { gradeRows } from "../../../pipelines/3-grade/pure.ts";
import { RelatedParties } from "../../../pipelines/3-grade/related.ts";
import type { Sample } from "../../../pipelines/3-grade/sample.ts";
import type { RunLine } from "../../../pipelines/record/card.ts";
import { COMPONENTS } from "../../../pipelines/record/vocabulary.ts";
import { fc } from "../../helpers/histories.ts";
import { gradeRun } from "./grade-run.ts";
import { TestLake } from "./lake.ts";
import { dice, NOW, type Profile, profile, rowsOf } from "./random.ts";

const NOBODY = { pay_to: null, domain: null, disputed: false, withdrawn: new Set<string>() };

/** Our own rows, and the calls that buyers published in the order in which they arrive, good ones and bad ones. */
function story(like: Profile): { own: Sample[]; arriving: Sample[] } {
  const own = rowsOf("own", { ...like, rows: Math.max(like.rows, 60), paid: 0.5, published: 0 });
  const bought = rowsOf("bought", { ...like, seed: like.seed + 7, rows: 24, published: 1, faults: 0, right: 0.4 });
  const roll = dice(like.seed + 9);
  const arriving = bought.map((row) => ({ row, at: roll() })).sort((a, b) => a.at - b.at);
  return { own, arriving: arriving.map(({ row }) => row) };
}

/** Every figure that a published call may touch: point and lower of all cards, and their composites. */
function figures(line: RunLine): Map<string, number> {
  const found = new Map<string, number>();
  for (const { card } of line.cards) {
    found.set(`${card.tier} composite`, card.composite);
    for (const name of COMPONENTS) {
      const part = card.components?.[name];
      if (part?.point == null || part.lower === null) continue;
      found.set(`${card.tier} ${name} point`, part.point);
      found.set(`${card.tier} ${name} lower`, part.lower);
    }
  }
  return found;
}

function expectNoRise(before: RunLine, after: RunLine): void {
  const now = figures(after);
  expect([...now.keys()]).toEqual([...figures(before).keys()]);
  for (const [name, was] of figures(before)) expect(now.get(name)!, name).toBeLessThanOrEqual(was);
  for (const [i, { card, progress }] of after.cards.entries()) {
    const old = before.cards[i]!;
    expect(progress).toBe(old.progress);
    for (const name of COMPONENTS) {
      expect(card.components?.[name].upper).toBe(old.card.components?.[name].upper);
      expect(card.components?.[name].n_eff).toBe(old.card.components?.[name].n_eff);
    }
  }
  expect(after.due_at).toBe(before.due_at);
}

describe("a published call", () => {
  it("never raises a figure, whatever arrived before it", () => {
    let lowered = 0;
    fc.assert(
      fc.property(profile, (like) => {
        const { own, arriving } = story(like);
        const steps = arriving.map((_, n) =>
          gradeRows({ cap: "x", ...NOBODY, rows: [...own, ...arriving.slice(0, n)] }, new RelatedParties([]), NOW),
        );
        for (const [n, line] of steps.entries()) if (n > 0) expectNoRise(steps[n - 1]!, line);
        if (
          figures(steps[0]!).get("LIVENESS_VERIFIED composite") !==
          figures(steps.at(-1)!).get("LIVENESS_VERIFIED composite")
        )
          lowered++;
      }),
      { numRuns: 12 },
    );
    expect(lowered).toBeGreaterThan(0);
  });

  it("never raises a figure in SQL either", async () => {
    const lake = await TestLake.open();
    try {
      const [like] = fc.sample(profile, { numRuns: 1 });
      for (let s = 0; s < 3; s++) {
        const { own, arriving } = story({ ...like!, seed: like!.seed + s, rows: 150, live: 0.97 });
        for (let n = 0; n <= arriving.length; n++) {
          const cap = `${s}-${String(n).padStart(2, "0")}`;
          await lake.add(
            cap,
            [...own, ...arriving.slice(0, n)].map((row) => ({ ...row, obs_id: `${cap}-${row.obs_id}` })),
          );
        }
      }
      const { lines } = await gradeRun(lake.conn, { now: NOW, endpointIds: "all" });
      for (const [i, line] of lines.entries()) if (!line.cap.endsWith("-00")) expectNoRise(lines[i - 1]!, line);
      expect(lines).toHaveLength(75);
    } finally {
      lake.close();
    }
  });

  it("never raises point or bound of a part, for any values, payers, weights and streaks", () => {
    const value = fc.oneof(fc.constantFrom(0, 0.5, 1), fc.double({ min: 0, max: 1, noNaN: true }));
    fc.assert(
      fc.property(
        fc.double({ min: 0.25, max: 400, noNaN: true }),
        fc.double({ min: 0, max: 1, noNaN: true }),
        fc.double({ min: 1, max: 8, noNaN: true }),
        fc.array(fc.tuple(fc.constantFrom("a", "b", "c", "d"), value), { minLength: 1, maxLength: 30 }),
        (w, share, deff, calls) => {
          const payers = new Map<string, number[]>();
          const figure = () => {
            const lowered = lowerByBuyers(w * share, w, deff, [...payers.values()].flatMap(worstBlocks));
            return { point: round6(lowered.point), lower: round6(lowered.lower) };
          };
          let before = figure();
          for (const [payer, x] of calls) {
            payers.set(payer, [...(payers.get(payer) ?? []), x]);
            const after = figure();
            expect(after.point).toBeLessThanOrEqual(before.point);
            expect(after.lower).toBeLessThanOrEqual(before.lower);
            before = after;
          }
        },
      ),
      { numRuns: 500 },
    );
  });
});
