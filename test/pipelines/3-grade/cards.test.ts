import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { params } from "../../../pipelines/3-grade/params.ts";
import { sumRows } from "../../../pipelines/3-grade/pure.ts";
import type { Sample } from "../../../pipelines/3-grade/sample.ts";
import { METHOD_PAGE } from "../../../pipelines/record/verifier-version.ts";
import type { Flag } from "../../../pipelines/record/vocabulary.ts";
import { NOW } from "./random.ts";
import { at, before, DAY, flagsOf, good, grade, HOUR, PAID, theft } from "./seller.ts";

describe("a card", () => {
  it("has the fields of its run", () => {
    const { card } = grade(good()).cards[0]!;
    expect(card).toMatchObject({
      schema: "svc.scorecard.v2",
      capability_id: "cap_x",
      tier: "OUTCOME_VERIFIED",
      weights_version: "w-2026.11.1",
      sample_count: 80,
      window_days: 90,
      window_start: "2026-08-17T00:00:00.000Z",
      computed_at: "2026-11-15T12:00:00.000Z",
      method: "/docs/verification-method#svc-grade-1",
      verifier_version: "touchstone-verifier-3",
    });
    expect(card.components).toMatchObject({
      correctness: { method: "lines4/1;a=0.05;block=6h;W=40;deff=1;x=outcome", n_eff: 40 },
      liveness: { method: "lines4/1;a=0.05;block=6h;W=80;deff=1" },
      price_stability: { method: "lines4/1;a=0.05;block=1d;W=39;deff=1" },
      latency_p95: { point: null, lower: null, upper: null, n_eff: 0, method: "lines4/1;none" },
    });
    expect(card.weights_applied).toEqual({
      correctness: 0.4,
      honesty: 0.2,
      liveness: 0.15,
      schema_conformance: 0.1,
      price_stability: 0.1,
    });
  });

  it("names a page that is there, and the method on it", () => {
    const [, page, name] = /^\/docs\/([\w-]+)#([\w-]+)$/.exec(METHOD_PAGE)!;
    const text = readFileSync(new URL(`../../../docs/${page}.md`, import.meta.url), "utf8");
    expect(text.startsWith(`# ${name}\n`)).toBe(true);
    expect(name).toBe(params.method);
  });

  it("writes the slower stratum of latency, a deff and a weight with few digits", () => {
    const long = good(88).map((row, i) => ({
      ...row,
      latency_ms: row.kind === 1 ? 812 : 300.25,
      w: i === 0 ? 1 / 3 : 1,
    }));
    const { components } = grade(long.map((row, i) => (i < 8 ? { ...row, live: row.kind === 1 } : row))).cards[0]!.card;
    expect(components!.latency_p95.method).toBe(
      "lines4/1;a=0.05;block=6h;W=88;deff=1;stratum=paid;p95_ms=812;p95_ms_hi=812",
    );
    expect(components!.correctness.method).toBe("lines4/1;a=0.05;block=6h;W=87.333333;deff=1;x=outcome");
    const down = long.map((row) => (row.t > before(20 * DAY) ? { ...row, live: false } : row));
    expect(grade(down).cards[0]!.card.components!.liveness.method).toMatch(/;W=176;deff=\d+\.\d{1,6}$/);
  });

  it("names the five newest answers that we paid for", () => {
    const rows = good(10).map((row, i) => ({ ...row, response_sha256: row.kind === 1 && i !== 2 ? `sha${i}` : null }));
    const same = [at(2 * HOUR, { obs_id: "zz", response_sha256: "tie" }, PAID)];
    expect(grade([...rows, ...same]).cards[0]!.card.evidence_sample).toEqual(["tie", "sha0", "sha4", "sha6", "sha8"]);
  });

  it("names an answer that came again once, at its newest", () => {
    const rows = good(10).map((row, i) => ({ ...row, response_sha256: `sha${i % 3}` }));
    expect(grade(rows).cards[0]!.card.evidence_sample).toEqual(["sha0", "sha2", "sha1"]);
    const endpoint = { cap: "cap_x", pay_to: null, domain: null, disputed: false, rows, withdrawn: new Set<string>() };
    // As the first version named them, which cards of that version are recomputed with.
    expect(sumRows(endpoint, NOW, "touchstone-verifier-1").evidence).toEqual(["sha0", "sha2", "sha1", "sha0", "sha2"]);
  });

  const quotes = (prices: number[]) => prices.map((price, i) => at(3 * DAY + i * 60_000, { price }));
  const table: [flag: Flag, raised: Sample[], quiet: Sample[]][] = [
    [
      "no_example",
      good().map((row) => ({ ...row, input: "synthetic" })),
      [...good().map((row) => ({ ...row, input: "synthetic" })), at(DAY, { input: "example" }, PAID)],
    ],
    [
      "pay_to_changed",
      [...good(), at(DAY, { pay_to: "0xbb" })],
      [...good(), at(DAY, { pay_to: null }), at(DAY, { pay_to: "0xbb", fault: "ours" }), at(DAY, { pay_to: "0xAA" })],
    ],
    [
      "dynamic_price",
      [...good(), ...quotes([0.01, 0.011, 0.012, 0.013])],
      [...good(), ...quotes([0.01, 0.011, 0.012, 0.012])],
    ],
    ["money_pending", [...good(), theft(DAY - 1)], [...good(), theft(DAY)]],
    ["took_the_money", [...good(), theft(DAY)], [...good(), theft(DAY - 1)]],
    ["refunded", [...good(), { ...theft(3 * DAY), refunded: true }], [...good(), theft(3 * DAY)]],
  ];
  it.each(table)("%s", (flag, raised, quiet) => {
    expect(flagsOf(grade(raised))).toContain(flag);
    expect(flagsOf(grade(quiet))).not.toContain(flag);
  });

  it("orders its flags as the vocabulary does, and shows a dispute without a number", () => {
    const rows = [...good(), theft(3 * DAY)].map((row) => ({ ...row, schema_ok: null, input: null }));
    const line = grade(rows, { disputed: true });
    expect(flagsOf(line)).toEqual([
      "took_the_money",
      "no_schema_advertised",
      "no_example",
      "latency_unbounded",
      "disputed",
    ]);
    expect(line.cards.map((card) => card.card.components)).toEqual(
      grade(rows).cards.map((card) => card.card.components),
    );
  });
});

describe("due_at", () => {
  const due = (rows: Sample[], now = NOW) => grade(rows, {}, now).due_at;
  const monday = "2026-11-16T00:00:00.000Z";
  const table: [name: string, rows: () => Sample[], due: string][] = [
    ["nothing but the window", () => [at(HOUR)], monday],
    ["silence in a moment", () => [at(72 * HOUR - 1)], new Date(NOW.getTime() + 1).toISOString()],
    ["silence on the stroke", () => [at(72 * HOUR)], NOW.toISOString()],
    ["silence for longer", () => [at(72 * HOUR + 1)], monday],
    [
      "a paid call 30 days old tonight",
      () => [at(HOUR), at(30 * DAY - 5 * HOUR, {}, PAID)],
      "2026-11-15T17:00:00.000Z",
    ],
    [
      "a paid call 60 days old tonight",
      () => [at(HOUR), at(60 * DAY - 6 * HOUR, {}, PAID)],
      "2026-11-15T18:00:00.000Z",
    ],
    ["not seen for 30 days tonight", () => [at(30 * DAY - 7 * HOUR)], "2026-11-15T19:00:00.000Z"],
    ["a theft that is pending", () => [at(HOUR), theft(20 * HOUR)], "2026-11-15T16:00:00.000Z"],
    [
      "a theft 30 days old tonight",
      () => [at(HOUR), at(DAY, {}, PAID), theft(30 * DAY - 2 * HOUR)],
      "2026-11-15T14:00:00.000Z",
    ],
  ];
  it.each(table)("%s", (_, rows, moment) => {
    expect(due(rows())).toBe(moment);
  });

  it("is when the card changes: just before it stays as it was, just after it does not", () => {
    for (const [name, rows, moment] of table) {
      const of = rows();
      const letters = (now: Date) =>
        grade(of, {}, now).cards.map(({ card, caps }) => ({ flags: card.flags, caps, since: card.window_start }));
      expect(letters(new Date(new Date(moment).getTime() - 1)), name).toEqual(letters(NOW));
      expect(letters(new Date(new Date(moment).getTime() + 1)), name).not.toEqual(letters(NOW));
    }
  });
});
