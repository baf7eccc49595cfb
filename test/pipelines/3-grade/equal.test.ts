import { describe, expect, it } from "vitest";
import { windowStart } from "../../../pipelines/3-grade/params.ts";
import { type Endpoint, gradeRows, sumRows } from "../../../pipelines/3-grade/pure.ts";
import { RelatedParties } from "../../../pipelines/3-grade/related.ts";
import { isCounted } from "../../../pipelines/3-grade/sample.ts";
import { RunLine } from "../../../pipelines/record/card.ts";
import { fc } from "../../helpers/histories.ts";
import { gradeRun } from "./grade-run.ts";
import { TestLake } from "./lake.ts";
import { endpointOf, NOW, profile } from "./random.ts";
import { at, before, DAY, good, HOUR, PAID, theft } from "./seller.ts";

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

/** Returns the address that got the money of the newest theft; undefined if there is none. */
function newestThiefAddress({ rows, withdrawn }: Endpoint): string | null | undefined {
  const thefts = rows.filter(
    (row) =>
      row.kind === 1 &&
      row.settled &&
      !row.delivered &&
      !row.refunded &&
      isCounted(row) &&
      !withdrawn.has(row.obs_id) &&
      row.t >= windowStart(NOW) &&
      row.t <= before(DAY),
  );
  const newest = Math.max(...thefts.map(({ t }) => t.getTime()));
  return thefts.filter(({ t }) => t.getTime() === newest).sort((a, b) => (a.obs_id < b.obs_id ? 1 : -1))[0]?.pay_to;
}

/** The same lines without a database. */
function purely(endpoints: readonly Endpoint[]): RunLine[] {
  const thieves = endpoints.flatMap((endpoint) => {
    const pay_to = newestThiefAddress(endpoint);
    expect(pay_to === undefined).toBe(sumRows(endpoint, NOW).theft === null);
    return pay_to === undefined ? [] : [{ ...endpoint, pay_to }];
  });
  const kin = new RelatedParties(thieves);
  return endpoints.map((endpoint) => gradeRows(endpoint, kin, NOW)).sort((a, b) => (a.cap < b.cap ? -1 : 1));
}

/** The n-th of several rows in one block, whose latency is its own. */
const crowd = (n: number, paid: number) =>
  Array.from({ length: n }, (_, i) =>
    at(30 * DAY + i * 1_000, { latency_ms: 40_000 - i * 7 }, i < paid ? PAID : undefined),
  );
const tied = (values: { honest?: boolean; price?: number }[]) => [...good(), ...values.map((value) => at(HOUR, value))];

/** What few sellers do, each a way to count wrongly. */
const CORNERS: Record<string, Endpoint["rows"]> = {
  "the newest answers of one moment differ": tied([{ honest: true }, { honest: false }]),
  "the newest answers of one moment differ, the other way round": tied([{ honest: false }, { honest: true }]),
  "the newest quotes of one moment differ": tied([{ price: 0.01 }, { price: 0.05 }]),
  "the newest quotes of one moment differ, the other way round": tied([{ price: 0.05 }, { price: 0.01 }]),
  "slow rows crowded into few blocks": [...good(85), ...crowd(3_000, 1_000)],
  "half as slow rows crowded into one block, more of them paid": [...good(85), ...crowd(600, 590)],
  "latencies that are all the same": good(85).map((row) => ({ ...row, latency_ms: 800 })),
  "a latency for each day": good(85).map((row, i) => ({ ...row, latency_ms: (i * 7_919) % 2_000 })),
  "as many quotes a day as are not dynamic": [...good(), ...[1, 2, 3].map((i) => at(DAY + i, { price: i }))],
  "more quotes a day": [...good(), ...[1, 2, 3, 2, 4].map((price, i) => at(DAY + i, { price }))],
  "a price that falls and rises": good().map((row, i) => ({ ...row, price: 1 + (i % 9) / 10 })),
  "another payTo once": [...good(), at(DAY, { pay_to: "0xbb" })],
  "one payTo in two cases": [...good(), at(DAY, { pay_to: "0xAA" })],
  "a base58 payTo in two cases": [...good(), at(DAY, { pay_to: "Aa" }), at(DAY, { pay_to: "aA" })],
  "partial credit, several calls a block": [
    ...good(),
    ...[0.1, 0.2, 0.7].map((x) => at(DAY, { outcome: x, delivery: x }, PAID)),
  ],
  "walls in every second block": good(85).map((row, i) =>
    i % 4 === 1 ? { ...row, fault: "blocked", live: false } : row,
  ),
  "two thefts in one block, a pending one, a refund": [
    ...good(),
    ...[theft(3 * DAY), theft(3 * DAY + 1_000), theft(5 * DAY), theft(HOUR), { ...theft(2 * DAY), refunded: true }],
  ],
  "nothing but our own faults": [at(DAY, { fault: "ours" })],
  nothing: [],
};

describe("SQL and plain TypeScript", () => {
  it("give the same lines for what few sellers do, alone in a chunk or together", async () => {
    const lake = await TestLake.open();
    try {
      const endpoints = Object.entries(CORNERS).map(([cap, rows], n) => ({
        cap,
        rows,
        ...{
          pay_to: `0x${n}`,
          domain: null,
          disputed: n % 2 === 1,
          withdrawn: new Set(rows.slice(-1).map(({ obs_id }) => obs_id)),
        },
      }));
      const whole = endpoints.map((endpoint) => ({
        ...endpoint,
        cap: `${endpoint.cap}, all`,
        withdrawn: new Set<string>(),
      }));
      const again = whole.map((endpoint) => ({
        ...endpoint,
        rows: endpoint.rows.map((row) => ({ ...row, obs_id: `${row.obs_id}x` })),
      }));
      const both = [...endpoints, ...again];
      await fill(lake, both);
      const pure = purely(both);
      const sizes = [{ chunkRows: 1 }, { chunkRows: 500 }, { batchRows: 1 }, { batchRows: 300 }, {}];
      for (const size of sizes) {
        const { lines } = await gradeRun(lake.conn, { now: NOW, endpointIds: "all", ...size });
        expect(lines.map(({ cap }) => cap)).toEqual(pure.map(({ cap }) => cap));
        for (const [i, line] of lines.entries()) expect(line, line.cap).toEqual(pure[i]);
      }
    } finally {
      lake.close();
    }
  });

  it("give the same lines, digit for digit, for endpoints of every kind", async () => {
    const letters = new Set<string>();
    await fc.assert(
      fc.asyncProperty(fc.array(profile, { minLength: 40, maxLength: 40 }), async (profiles) => {
        const drawn = profiles.map((like, n) => endpointOf(`cap${String(n).padStart(3, "0")}`, like));
        const endpoints = [...drawn, ...KNOWN];
        const lake = await TestLake.open();
        try {
          await fill(lake, endpoints);
          const run = await gradeRun(lake.conn, { now: NOW, endpointIds: "all" });
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
