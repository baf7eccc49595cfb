import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { windowStart } from "../../../pipelines/3-grade/params.ts";
import { gradeRows } from "../../../pipelines/3-grade/pure.ts";
import { RelatedParties } from "../../../pipelines/3-grade/related.ts";
import { RunLine } from "../../../pipelines/record/card.ts";
import { gradeRun } from "./grade-run.ts";
import { TestLake } from "./lake.ts";
import { type GradeIn, type GradeOut, samplesOf, type Vector, vectorsOf, withdrawnOf } from "./vectors.ts";

const vectors = vectorsOf<GradeIn, GradeOut>("grade");
const NOW = new Date(vectors[0]!.in.now);

const figure = (component: { point: number | null; lower: number | null; upper?: number | null; n_eff: number }) =>
  component.point === null
    ? null
    : { point: component.point, lower: component.lower ?? 0, upper: component.upper ?? 1, n_eff: component.n_eff };

/** A line in the words of the vectors. The card that stands on nothing is their "no card". */
function inVectorWords(line: RunLine): GradeOut {
  const head = line.cards.find((card) => card.headline)!;
  const { components } = head.card;
  const cards = line.cards.map((run) => ({
    tier: run.card.tier,
    band_raw: run.raw_band,
    composite: run.card.composite,
    progress: run.progress,
  }));
  return {
    tier: components && head.card.tier,
    components:
      components && Object.fromEntries(Object.entries(components).map(([name, part]) => [name, figure(part)])),
    composite: components && head.card.composite,
    band_raw: head.raw_band,
    progress: head.progress,
    caps: head.caps,
    flags: [...head.card.flags].sort(),
    due_at: line.due_at?.replace(".000Z", "Z") ?? null,
    cards: components ? cards : [],
  };
}

const expected = ({ out }: Vector<GradeIn, GradeOut>): GradeOut => ({ ...out, flags: [...out.flags].sort() });

describe("the 49 endpoints of the vectors", () => {
  let lake: TestLake;
  const lines = new Map<string, RunLine>();

  beforeAll(async () => {
    lake = await TestLake.open();
    for (const vector of vectors) {
      await lake.add(vector.id, samplesOf(vector));
      await lake.withdraw(withdrawnOf(vector));
      if (vector.in.site) await lake.place({ cap: vector.id, ...vector.in.site });
      for (const [i, other] of (vector.in.others ?? []).entries()) {
        const cap = `${vector.id}-other${i}`;
        await lake.place({ cap, ...other });
        // A theft of its own, of yesterday but one.
        const [thief] = samplesOf(vectors[0]!).filter(({ kind }) => kind === 1);
        const t = new Date(NOW.getTime() - 2 * 86_400_000);
        await lake.add(cap, [{ ...thief!, obs_id: cap, t, delivered: false, pay_to: other.pay_to }]);
      }
    }
    const run = await gradeRun(lake.conn, { now: NOW, endpointIds: "all" });
    for (const line of run.lines) lines.set(line.cap, line);
  });
  afterAll(() => lake.close());

  it("holds all of them under one moment", () => {
    expect(vectors).toHaveLength(49);
    for (const { in: input } of vectors) {
      expect(input.now).toBe(vectors[0]!.in.now);
      expect(windowStart(new Date(input.now))).toEqual(new Date(input.window_start));
    }
  });

  it.each(vectors)("SQL: $id $note", (vector) => {
    const line = lines.get(vector.id)!;
    expect(inVectorWords(line)).toEqual(expected(vector));
    expect(RunLine.parse(line)).toEqual(line);
  });

  it.each(vectors)("pure: $id $note", (vector) => {
    const { site, others } = vector.in;
    const thieves = (others ?? []).map((other, i) => ({ ...other, cap: `${vector.id}-other${i}` }));
    const place = { pay_to: site?.pay_to ?? null, domain: site?.domain ?? null, disputed: false };
    const rows = { cap: vector.id, ...place, rows: samplesOf(vector), withdrawn: new Set(withdrawnOf(vector)) };
    const line = gradeRows(rows, new RelatedParties(thieves), NOW);
    expect(inVectorWords(line)).toEqual(expected(vector));
    expect(line).toEqual(lines.get(vector.id));
  });
});
