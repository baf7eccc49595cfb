import { describe, expect, test } from "vitest";
import { MISSING_MEMBER_TEXT } from "../../../pipelines/record/card.ts";
import { CAP, ForgedRecord, findingOf, PAID, paidLine } from "./forged.ts";

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

describe("cards that step back behind the ones before them", () => {
  /** The last 20 of 40 calls brought nothing. The first cards count all; the second ones were graded from `next` on. */
  async function twice(next: number, now: string): Promise<ForgedRecord> {
    const record = new ForgedRecord();
    const bad = { delivered: false, delivery: 0, outcome: 0, schema_ok: false };
    const lines = LINES.map((line, n) => (n < 20 ? line : { ...line, ...bad }));
    record.grade(lines, "2026-10-05T22:00:00.000Z", { [PAID]: 40 });
    await record.close("2026-10-05", "2026-10-06T06:00:00.000Z", lines);
    await record.close("2026-10-06", "2026-10-07T06:00:00.000Z");
    record.grade(lines, now, { [PAID]: next }, undefined, "2026-10-07T12:00:00.000Z");
    await record.close("2026-10-07", "2026-10-08T06:00:00.000Z");
    await record.close("2026-10-08", "2026-10-09T06:00:00.000Z");
    return record;
  }
  const LATER = "2026-10-07T12:00:00.000Z";

  test("none do in a sound record", async () => {
    const report = await (await twice(40, LATER)).audit();
    expect([report.proven, findingOf(report, CARDS)]).toMatchObject([true, { result: "ok", open: 0 }]);
  });

  test("by rows that the earlier ones had read", async () => {
    const report = await (await twice(20, LATER)).audit();
    expect([report.proven, findingOf(report, CARDS).result]).toEqual([false, "broken"]);
    expect(findingOf(report, CARDS).problems[0]).toMatchObject({
      key: expect.stringMatching(/inputs\.positions$/),
      expected: expect.stringContaining('{"observations.paid":40}'),
      got: '{"observations.paid":20}',
    });
  });

  test("by a topic that they do not name any more", async () => {
    const record = await twice(40, LATER);
    const [card] = record.leaves.filter(({ kind, at }) => kind === "grade" && at === LATER);
    (card!.inputs as { positions: object }).positions = {};
    expect(findingOf(await record.audit(), CARDS).problems[0]!.key).toMatch(/inputs\.positions$/);
  });

  test.each(["2026-10-05T21:59:59.999Z", "2026-10-05T22:00:00.000Z"])("by their time, %s", async (now) => {
    const report = await (await twice(40, now)).audit();
    expect([report.proven, findingOf(report, CARDS).result]).toEqual([false, "broken"]);
    expect(findingOf(report, CARDS).problems[0]!.key).toMatch(/card\.computed_at$/);
  });

  test("by a published correction that they had not read", async () => {
    const record = new ForgedRecord();
    const withdrawn = { at: "2026-10-05T21:00:00.000Z", capability_id: CAP, position: 0, body: { id: "c1" } };
    record.add({ kind: "correction", ...withdrawn });
    record.grade(LINES, "2026-10-05T22:00:00.000Z", { [PAID]: 40 });
    await record.close("2026-10-05", "2026-10-06T06:00:00.000Z", LINES);
    await record.close("2026-10-06", "2026-10-07T06:00:00.000Z");
    const report = await record.audit();
    expect([report.proven, findingOf(report, CARDS).result]).toEqual([false, "broken"]);
    expect(findingOf(report, CARDS).problems[0]!.key).toMatch(/inputs\.positions$/);
  });
});
