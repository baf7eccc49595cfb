import { describe, expect, test } from "vitest";
import { designEffect, lower } from "../../../pipelines/3-grade/bounds.ts";
import { params } from "../../../pipelines/3-grade/params.ts";
import type { Sample } from "../../../pipelines/3-grade/sample.ts";
import type { PartSums } from "../../../pipelines/3-grade/sums.ts";
import { computeNextLetter, type EndpointProspect } from "../../../pipelines/budget/next-letter.ts";
import { NOW } from "../3-grade/random.ts";
import { DAY, good, HOUR, PAID } from "../3-grade/seller.ts";

const A = params.bands.correctness.A;
const part = (m: number, bad: number, starts = bad) => ({ w: m, s: m - bad, m, bad, starts });

/** Paid blocks that are looked ahead; no letter of the method needs so many. */
const MOST = 400;

/**
 * Further blocks without a failure until the lower bound of a part reaches a gate (verification-method.md sections 2 and 4),
 * or null when not within 400. From nothing: 36 for the 0.90 of an A; 78 in all after one failure, 93 after two.
 */
function blocksToGate({ w, s, m, bad, starts }: PartSums, gate: number): number | null {
  for (let n = 0; n <= MOST; n++) {
    const deff = designEffect(bad, starts, m + n);
    if ((lower((s + n) / deff, (w + n) / deff) ?? 0) >= gate) return n;
  }
  return null;
}

describe("blocks to a gate: the figures that the method states", () => {
  test.each([
    ["36 paid blocks without a failure", part(0, 0), 36],
    ["78 with one: the failure and 77 good ones", part(1, 1), 77],
    ["93 with two", part(2, 2), 91],
    ["halfway", part(20, 0), 16],
    ["there already", part(36, 0), 0],
    ["failures in one run weigh more than two apart", part(20, 2, 1), null],
  ])("%s", (_name, sums, more) => {
    const n = blocksToGate(sums, A);
    if (more === null) expect(n).toBeGreaterThan(blocksToGate(part(20, 2, 2), A)!);
    else expect(n).toBe(more);
  });

  test("a gate that nobody reaches is null", () => {
    expect(blocksToGate(part(0, 0), 1)).toBeNull();
  });
});

const NOBODY = { cap: "cap_x", pay_to: null, domain: null, disputed: false, withdrawn: new Set<string>() };
const prospect = (rows: readonly Sample[], more: Partial<EndpointProspect> = {}): EndpointProspect => ({
  endpoint: { ...NOBODY, rows },
  published: "UNRATED",
  raw: [],
  paidBlocks: 0,
  priceMicro: 10_000n,
  hasKnownAnswer: true,
  hasSchema: true,
  ...more,
});
const daysFrom = (day: string): number =>
  Math.round((Date.parse(day) - Date.parse(NOW.toISOString().slice(0, 10))) / DAY);

describe("the next letter", () => {
  test.each([
    ["with a schema", true, "B"],
    ["without one there is no better than C", false, "C"],
  ])("of a perfect seller that was never paid: thirty calls in eight days, %s", (_name, schema, band) => {
    const next = computeNextLetter(prospect([], { hasSchema: schema }), NOW);
    expect(next.next).toBe(band);
    expect(next.gate_calls).toBeGreaterThanOrEqual(30);
    expect(next.gate_calls).toBeLessThanOrEqual(31);
    expect(daysFrom(next.day)).toBeLessThanOrEqual(8);
    expect(next.day).toBe(next.gate_day);
    expect(next.cost_micro).toBe(BigInt(next.calls) * 10_000n);
  });

  test("from B to A: the gates, then the hold of fourteen days, which is paid for as well", () => {
    // Eight days of every block, as the schedule has it: B, and the A's bounds are not met yet.
    const rows = Array.from({ length: 32 }, (_, i) => [
      { ...PAID, obs_id: `p${i}`, t: new Date(NOW.getTime() - (i * 6 + 5) * HOUR) },
      {
        ...PAID,
        kind: 0,
        obs_id: `k${i}`,
        t: new Date(NOW.getTime() - (i * 6 + 5) * HOUR),
        settled: false,
        input: null,
      },
    ]).flat();
    const day = (back: number) => new Date(NOW.getTime() - back * DAY).toISOString().slice(0, 10);
    const b = prospect(rows, { published: "B", raw: [{ day: day(1), band: "B" }], paidBlocks: 32 });
    const next = computeNextLetter(b, NOW);
    expect(next.next).toBe("A");
    // 36 good blocks for correctness; liveness, honesty, price and latency need their days as well.
    expect(next.gate_calls).toBeGreaterThanOrEqual(4);
    expect(daysFrom(next.day) - daysFrom(next.gate_day)).toBeGreaterThanOrEqual(13);
    expect(next.calls).toBeGreaterThanOrEqual(next.gate_calls + 12);
    // A better raw letter that only the hold keeps down costs the days, not the gates.
    const waiting = computeNextLetter({ ...b, endpoint: { ...NOBODY, rows: good(80) }, published: "C", raw: [] }, NOW);
    expect([waiting.gate_calls, waiting.next]).toEqual([0, expect.stringMatching(/^[AB]$/)]);
  });

  test("without a truth to hold answers against there is nothing above B, and above A nothing at all", () => {
    const delivery = computeNextLetter(prospect([], { hasKnownAnswer: false }), NOW);
    expect(delivery.next).toBe("B");
    const rows = good(80).map((row) => ({ ...row, outcome: null, input: row.kind === 1 ? "example" : null }));
    expect(computeNextLetter(prospect(rows, { published: "B", paidBlocks: 80 }), NOW).next).toBeNull();
    expect(computeNextLetter(prospect(good(80), { published: "A", paidBlocks: 80 }), NOW)).toMatchObject({
      ...{ next: null, calls: 0, cost_micro: 0n },
    });
  });

  test("one failure on the way costs more calls than none", () => {
    const clean = good(20);
    const failed = [
      ...clean.slice(0, -2),
      ...clean.slice(-2).map((row) => ({ ...row, outcome: row.kind === 1 ? 0 : null })),
    ];
    const at = (rows: readonly Sample[]) => computeNextLetter(prospect(rows, { paidBlocks: 20 }), NOW).gate_calls;
    const toA = (rows: readonly Sample[]) =>
      computeNextLetter(prospect(rows, { published: "B", paidBlocks: 20 }), NOW).gate_calls;
    expect(at(failed)).toBeGreaterThanOrEqual(at(clean));
    expect(toA(failed)).toBeGreaterThan(toA(clean));
  });
});
