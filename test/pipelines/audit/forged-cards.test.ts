import { describe, expect, test } from "vitest";
import { MISSING_MEMBER_TEXT } from "../../../pipelines/record/card.ts";
import { ForgedRecord, findingOf, PAID, paidLine } from "./forged.ts";

/** Cards that no honest grader publishes, signed with the right keys, over evidence that is whole. */
const CARDS = "cards, recomputed";
const LINES = Array.from({ length: 40 }, (_, n) => paidLine(n));

/** A record with cards of all lines at this time, whose days are closed. */
async function recordOf(change: (card: Record<string, unknown>) => object, isClosed = true): Promise<ForgedRecord> {
  const record = new ForgedRecord();
  record.grade(LINES, "2026-10-05T22:00:00.000Z", { [PAID]: 40 }, change);
  if (!isClosed) return record;
  await record.close("2026-10-05", "2026-10-06T06:00:00.000Z", LINES);
  await record.close("2026-10-06", "2026-10-07T06:00:00.000Z");
  return record;
}

const untimed = ({ computed_at: _, ...card }: Record<string, unknown>) => card;
const older = (card: Record<string, unknown>) => ({ ...untimed(card), schema: "svc.scorecard.v1" });

describe("a card that does not state when it was computed", () => {
  test("and one that does, if it is honest, is proven", async () => {
    const report = await (await recordOf((card) => card)).audit();
    expect(report.findings.filter(({ result }) => result !== "ok")).toEqual([]);
    expect(findingOf(report, CARDS).checked).toBeGreaterThan(0);
    expect([report.proven, findingOf(report, CARDS).open]).toEqual([true, 0]);
  });

  test("differs in the form of today, which requires it", async () => {
    const report = await (await recordOf(untimed)).audit();
    expect(report.proven).toBe(false);
    expect(findingOf(report, CARDS)).toMatchObject({ result: "broken", open: 0 });
    expect(findingOf(report, CARDS).problems[0]!.key).toMatch(/card\.computed_at$/);
  });

  test("is pending in the older form until the day of its leaf is closed", async () => {
    const report = await (await recordOf(older, false)).audit();
    expect(findingOf(report, CARDS)).toMatchObject({ result: "ok", says: `computed_at is ${MISSING_MEMBER_TEXT}` });
    expect([report.proven, findingOf(report, CARDS).open > 0]).toEqual([true, true]);
  });

  test("is proven in the older form if it is what the evidence gives at the time of its leaf", async () => {
    const report = await (await recordOf(older)).audit();
    expect([report.proven, findingOf(report, CARDS)]).toMatchObject([true, { result: "ok", open: 0, not_run: 0 }]);
  });

  test("is not proven in the older form if it is another, and never open for good", async () => {
    const invented = (card: Record<string, unknown>) => ({ ...older(card), composite: 0.99 });
    const report = await (await recordOf(invented)).audit();
    expect(report.proven).toBe(false);
    expect(findingOf(report, CARDS)).toMatchObject({ result: "not run", open: 0, problems: [] });
    expect(findingOf(report, CARDS).says).toBe(`computed_at is ${MISSING_MEMBER_TEXT}`);
  });
});
