import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { gradeRun } from "../../../pipelines/3-grade/grade.ts";
import { Kin } from "../../../pipelines/3-grade/kin.ts";
import { type Endpoint, gradeRows, sumsOf } from "../../../pipelines/3-grade/pure.ts";
import { RunLine } from "../../../pipelines/record/card.ts";
import { TestLake } from "./lake.ts";
import { endpointOf, NOW, profile } from "./random.ts";

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
        const endpoints = profiles.map((like, n) => endpointOf(`cap${String(n).padStart(3, "0")}`, like));
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
    expect(letters.size).toBeGreaterThanOrEqual(4);
  });
});
