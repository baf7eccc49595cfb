import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { publishedProgress } from "../../pipelines/3-grade/letter.ts";
import { gradeRows } from "../../pipelines/3-grade/pure.ts";
import { RelatedParties } from "../../pipelines/3-grade/related.ts";
import { cardOf, componentsOf, listingDraft, PublicRecord } from "../helpers/public-record.ts";
import { servingOver, type TestServing } from "../helpers/serving.ts";
import { type GradeIn, type GradeOut, samplesOf, vectorsOf, withdrawnOf } from "../pipelines/3-grade/vectors.ts";

const NOW = new Date("2026-11-15T12:00:00Z");

describe("progress of a published card is what its `why` counts", () => {
  const cards = vectorsOf<GradeIn, GradeOut>("grade").flatMap((vector) => {
    const place = { cap: vector.id, pay_to: null, domain: null, disputed: false };
    const endpoint = { ...place, rows: samplesOf(vector), withdrawn: new Set(withdrawnOf(vector)) };
    return gradeRows(endpoint, new RelatedParties([]), NOW).cards.map((run) => ({ id: vector.id, run }));
  });

  test("in every endpoint of the vectors that is told how far it is", () => {
    const told = cards.flatMap(({ id, run: { card, why } }) => {
      const said = /^(\d+) of 30 paid calls/.exec(why.unrated ?? "");
      return said && card.components ? [[id, card.tier, Number(said[1]), publishedProgress(card)] as const] : [];
    });
    expect(told.length).toBeGreaterThan(20);
    for (const [id, tier, said, shown] of told) expect([id, tier, shown]).toEqual([id, tier, said]);
    // One of them sent payments that never settled: W is past 30, and nobody paid.
    expect(told.some(([, , said]) => said === 0)).toBe(true);
  });

  test("in every letter it is 30, unless the bad news came early", () => {
    for (const { id, run } of cards) {
      if (run.raw_band === "UNRATED" || run.card.flags.includes("early_fail") || run.raw_band === "F") continue;
      expect([id, publishedProgress(run.card)]).toEqual([id, 30]);
    }
  });
});

describe("on the pages", () => {
  const STREAKY = { url: "https://streaky.example/x", description: "Streaky" };
  const REFUSES = { url: "https://refuses.example/x", description: "Refuses" };
  let record: PublicRecord;
  let serving: TestServing;
  beforeAll(async () => {
    record = await PublicRecord.open();
    await record.publish([STREAKY, REFUSES].map(listingDraft));
    const unrated = { band: "UNRATED", tier: "DELIVERY_VERIFIED" } as const;
    // A streak of failures counts for less than its blocks; the letter needs blocks.
    const streaky = cardOf(STREAKY, { ...unrated, components: componentsOf(24, 9.6) });
    const refuses = cardOf(REFUSES, { ...unrated, components: componentsOf(33), flags: ["refuses_payment"] });
    const why = (n: number) => `UNRATED: ${n} of 30 paid calls so far; unknown, not bad.`;
    await record.publish(record.grades([streaky], why(24)), record.grades([refuses], why(0)));
    serving = await servingOver(record);
  });
  afterAll(() => record.close());

  test("endpoint page, market and its order say the same as `why`", async () => {
    const market = await (await serving.get("/?sort=progress")).text();
    const rows = market.match(/<tr role="row"><td[\s\S]*?<\/tr>/g)!;
    expect(rows.map((row) => />(\d+) of 30<\/td>/.exec(row)?.[1])).toEqual(["24", "0"]);
    for (const [row, said] of rows.map((one, i) => [one, [24, 0][i]] as const)) {
      expect(row).toContain(`UNRATED: ${said} of 30 paid calls so far`);
      const page = await (await serving.get(/href="(\/endpoint\/cap_\w+)"/.exec(row)![1]!)).text();
      expect(page).toContain(`<dd>${said} of 30 paid calls <span`);
    }
  });
});
