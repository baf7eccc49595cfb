import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { gradeRun } from "../../../pipelines/3-grade/grade.ts";
import { Kin } from "../../../pipelines/3-grade/kin.ts";
import { type Endpoint, gradeRows, sumsOf } from "../../../pipelines/3-grade/pure.ts";
import { RunLine } from "../../../pipelines/record/card.ts";
import { TestLake } from "./lake.ts";
import { endpointOf, NOW, profile } from "./random.ts";
import { good } from "./seller.ts";

/** Sellers that are wrong in every n-th paid call: each run has letters of many kinds to compare, whatever was drawn. */
const KNOWN: Endpoint[] = [0, 20, 10, 6, 3, 1].map((nth) => ({
  cap: `known${nth}`,
  ...{ pay_to: null, domain: null, disputed: false, withdrawn: new Set<string>() },
  rows: good(90).map((row, i) => (row.kind === 1 && nth > 0 && (i / 2) % nth === 0 ? { ...row, outcome: 0 } : row)),
}));

async function fill(lake: TestLake, endpoints: readonly Endpoint[]): Promise<void> {
  for (const { cap, rows, withdrawn, pay_to, domain, disputed } of endpoints) {
    await lake.add(cap, rows);
    await lake.withdraw([...withdrawn]);
    await lake.place({ cap, pay_to, domain, disputed });
  }
}

/** The same lines without a database. */
function purely(endpoints: readonly Endpoint[]): RunLine[] {
  const kin = new Kin(endpoints.filter((endpoint) => sumsOf(endpoint, NOW).theft !== null));
  return endpoints.map((endpoint) => gradeRows(endpoint, kin, NOW)).sort((a, b) => (a.cap < b.cap ? -1 : 1));
}

describe("SQL and plain TypeScript", () => {
  it("give the same lines, digit for digit, for endpoints of every kind", async () => {
    const letters = new Set<string>();
    await fc.assert(
      fc.asyncProperty(fc.array(profile, { minLength: 40, maxLength: 40 }), async (profiles) => {
        const drawn = profiles.map((like, n) => endpointOf(`cap${String(n).padStart(3, "0")}`, like));
        const endpoints = [...drawn, ...KNOWN];
        const lake = await TestLake.open();
        try {
          await fill(lake, endpoints);
          const run = await gradeRun(lake.conn, { now: NOW, caps: "all" });
          const pure = purely(endpoints);
          for (const [i, line] of run.lines.entries()) expect(line, JSON.stringify(profiles[i])).toEqual(pure[i]);
          expect(run.lines).toHaveLength(pure.length);
          for (const line of run.lines) {
            RunLine.parse(line);
            for (const card of line.cards) letters.add(card.raw_band);
          }
        } finally {
          lake.close();
        }
      }),
      { numRuns: 4, endOnFailure: true },
    );
    // Else the comparison would say nothing.
    expect(letters.size).toBe(6);
  });
});
