import { describe, expect, it } from "vitest";
import { gradeRows } from "../../../pipelines/3-grade/pure.ts";
import { RelatedParties } from "../../../pipelines/3-grade/related.ts";
import type { Sample } from "../../../pipelines/3-grade/sample.ts";
import { whyText } from "../../../pipelines/3-grade/why.ts";
import type { RunCard } from "../../../pipelines/record/card.ts";
import { type GradeIn, type GradeOut, samplesOf, vectorsOf, withdrawnOf } from "./vectors.ts";

const vectors = new Map(vectorsOf<GradeIn, GradeOut>("grade").map((vector) => [vector.id, vector]));
const NOW = new Date("2026-11-15T12:00:00Z");

function cardsOf(
  id: string,
  edit: (row: Sample) => Sample = (row) => row,
  from = new Date(0),
  version?: string,
): RunCard[] {
  const vector = vectors.get(id)!;
  const place = { pay_to: null, domain: null, disputed: false };
  const rows = samplesOf(vector)
    .filter(({ t }) => t >= from)
    .map(edit);
  const endpoint = { cap: id, ...place, rows, withdrawn: new Set(withdrawnOf(vector)) };
  return gradeRows(endpoint, new RelatedParties([]), NOW, version).cards;
}

/** The sentence of a card as it would be published without a hold. */
const sentence = ({ raw_band, why }: RunCard): string => whyText({ band: raw_band, parts: why, heldUntil: null });

const headline = (id: string, edit?: (row: Sample) => Sample): string =>
  sentence(cardsOf(id, edit).find((card) => card.headline)!);

describe("why", () => {
  const table: [id: string, text: string][] = [
    [
      "e01",
      "A: it delivers, its answers are right, and it keeps to its listing. At least 94.4 % of its answers are shown to be right (65 paid calls since 4 October 2026, 95 % confidence); composite 0.945.",
    ],
    [
      "e02",
      "B: its schema conformance pulls the composite down to 0.851: none of its answers could be held against a schema. At least 94.3 % of its answers are shown to be right (64 paid calls since 4 October 2026, 95 % confidence); composite 0.851.",
    ],
    [
      "e03",
      "B: its answers came, but could not be checked against a known truth. At least 94.4 % of its paid calls are shown to deliver (65 paid calls since 4 October 2026, 95 % confidence); composite 0.945.",
    ],
    ["e04", "UNRATED: 0 of 30 paid calls so far; unknown, not bad."],
    [
      "e05",
      "C: too many of its answers were wrong or missing. At least 62.7 % of its answers are shown to be right (59 paid calls since 10 October 2026, 95 % confidence); composite 0.815.",
    ],
    [
      "e06",
      "C: of the answers checked against a known truth at most 69.1 % were right. At least 94.3 % of its paid calls are shown to deliver (63 paid calls since 6 October 2026, 95 % confidence); composite 0.944.",
    ],
    [
      "e07",
      "D: only 58.7 % of all paid calls are shown to bring an answer. At least 91.5 % of its answers are shown to be right (83 paid calls since 16 September 2026, 95 % confidence); composite 0.932.",
    ],
    [
      "e10",
      "F: it took 0.36 in 36 of 59 paid calls and answered nothing, last on 14 November 2026; at most 58.2 % of its answers are right. At least 21.1 % of its paid calls are shown to deliver (59 paid calls since 10 October 2026, 95 % confidence); composite 0.610.",
    ],
    ["e11", "UNRATED: none of 33 payments offered to it settled; 0 of 30 paid calls so far; unknown, not bad."],
    [
      "e19",
      "D: what it asks of those who pay is only shown to keep to its listing at least 0.0 % of the time. At least 94.4 % of its answers are shown to be right (65 paid calls since 4 October 2026, 95 % confidence); composite 0.888.",
    ],
    [
      "e22",
      "C: its newest 402 asks for something else than its own listing says. At least 94.3 % of its answers are shown to be right (64 paid calls since 4 October 2026, 95 % confidence); composite 0.940.",
    ],
    [
      "e23",
      "B: its price moves too much. At least 94.3 % of its answers are shown to be right (64 paid calls since 4 October 2026, 95 % confidence); composite 0.896.",
    ],
    [
      "e24",
      "C: it asks 0.025 now, and we never paid more than 0.01. At least 93.9 % of its answers are shown to be right (59 paid calls since 10 October 2026, 95 % confidence); composite 0.929.",
    ],
    [
      "e26",
      "C: it took 0.01 in 1 of 65 paid calls and answered nothing, last on 26 October 2026. At least 88.1 % of its answers are shown to be right (65 paid calls since 4 October 2026, 95 % confidence); composite 0.920.",
    ],
    [
      "e30",
      "F: it took 0.53 in 53 paid calls and answered nothing, last on 26 September 2026; at most 3.6 % of its answers are right; its newest paid calls failed one after the other. Composite 0.438.",
    ],
    [
      "e36",
      "D: its last good answer to a probe was on 12 November 2026; it is only shown to answer at least 52.2 % of the time. At least 94.2 % of its answers are shown to be right (62 paid calls since 4 October 2026, 95 % confidence); composite 0.875.",
    ],
    [
      "e37",
      "B: its newest paid call is from 14 October 2026. At least 94.2 % of its answers are shown to be right (62 paid calls since 6 September 2026, 95 % confidence); composite 0.950.",
    ],
    [
      "e38",
      "UNRATED: no paid call since 15 September 2026. At least 92.4 % of its answers are shown to be right (47 paid calls since 21 August 2026, 95 % confidence).",
    ],
    [
      "e44",
      "UNRATED: 29 of 30 paid calls so far; unknown, not bad. At least 88.3 % of its paid calls are shown to deliver (31 paid calls since 7 November 2026, 95 % confidence).",
    ],
    [
      "e45",
      "B: its calls went well, and too few were made to show more. At least 81.4 % of its answers are shown to be right (75 paid calls since 1 November 2026, 95 % confidence); composite 0.820.",
    ],
    ["e48", "UNRATED: every record it stood on was withdrawn."],
  ];
  it.each(table)("%s", (id, text) => {
    expect(headline(id)).toBe(text);
  });

  it("is one verdict in plain words: no word of the vocabulary, no fraction of a block, no letter denied", () => {
    for (const id of vectors.keys()) {
      const text = headline(id);
      expect(text).toMatch(/^(?:[A-DF]|UNRATED): [a-z0-9].*\.$/);
      expect(text).not.toMatch(/_VERIFIED|no better than|block|\d{4}-\d\d-\d\d|NaN|undefined|null/);
      expect(text.length).toBeLessThan(330);
    }
  });

  it("names no day before the first that was seen", () => {
    const first = new Date("2026-11-01T00:00:00Z");
    const young = cardsOf("e01", (row) => row, first).find((card) => card.headline)!;
    const [, since] = /since (\d+ \w+ \d+)/.exec(sentence(young))!;
    expect(Date.parse(`${since} UTC`)).toBeGreaterThanOrEqual(first.getTime());
  });

  const end = new Date("2026-11-09T00:00:00Z");
  const stopped = (row: Sample): Sample => ({ ...row, live: row.t < end && row.live });
  const dead = (row: Sample): Sample => ({ ...row, live: false });

  it("says of what brings no 402 in how many probes, and since when: a 404 is an answer", () => {
    expect(sentence(cardsOf("e04", dead)[0]!)).toMatch(
      /^UNRATED: \d+ probes since \d+ \w+ 2026 got no readable 402 in time, so nobody has paid it\.$/,
    );
    expect(headline("e01", dead)).toMatch(
      /^D: [\d,]+ probes since 4 October 2026 got no readable 402 in time\. At least/,
    );
    expect(headline("e44", stopped)).toMatch(
      /^UNRATED: its last good answer to a probe was on \d November 2026; \d+ of 30 paid calls so far\./,
    );
  });

  it.each(["touchstone-verifier-1", "touchstone-verifier-2"])("keeps the words of cards of %s", (version) => {
    const worded = (id: string, change: (row: Sample) => Sample) =>
      sentence(cardsOf(id, change, new Date(0), version).find((card) => card.headline)!);
    expect(worded("e04", dead)).toMatch(
      /^UNRATED: it never answered in \d+ probes since \d+ \w+ 2026, so nobody has paid it\.$/,
    );
    expect(worded("e01", dead)).toMatch(/^D: it never answered in [\d,]+ probes since 4 October 2026\. At least/);
    expect(worded("e44", stopped)).toMatch(/^UNRATED: it last answered on \d November 2026; \d+ of 30 paid calls so/);
  });

  it("says recent failures before what is only not shown, and honesty", () => {
    const cheat = headline("e01", (row) => ({ ...row, honest: row.kind === 1 || row.t.getUTCDate() % 2 === 0 }));
    expect(cheat).toMatch(
      /^[CD]: what it asks is only shown to keep to its own listing at least \d\d\.\d % of the time/,
    );
    const end = new Date("2026-10-20T00:00:00Z");
    const broken = cardsOf("e41", (row) => (row.kind === 1 && row.t > end ? { ...row, outcome: 0, delivery: 0 } : row));
    expect(broken[0]!.caps.cusum_cap).toBe(Math.max(...Object.values(broken[0]!.caps)));
    expect(broken[0]!.why.causes[0]).toMatch(
      /^(?:at most .* are right|its newest paid calls failed one after the other)$/,
    );
    expect(broken[0]!.why.causes).toContain("its newest paid calls failed one after the other");
  });

  it("names the part that pulls a composite down, whichever it is", () => {
    const slow = headline("e01", (row) => ({ ...row, latency_ms: 29_000, schema_ok: null }));
    expect(slow).toMatch(
      /^[BC]: its schema conformance pulls the composite down to 0\.8\d\d: none of its answers could be/,
    );
    const unfit = headline("e01", (row) => ({ ...row, schema_ok: row.schema_ok === null ? null : false }));
    expect(unfit).toMatch(
      /^B: its schema conformance pulls the composite down to 0\.\d{3}: 0\.0 % is shown, and 0\.0 % was seen\./,
    );
  });

  it("gives the hold its day, and what the calls of now would earn", () => {
    const { why } = cardsOf("e02")[0]!;
    expect(whyText({ band: "D", rawBand: "B", parts: why, heldUntil: "2026-11-20" })).toMatch(
      /^D: a worse letter of the last 14 days stands until 20 November 2026 at least; what it does now would earn B \(its schema conformance /,
    );
    const good = cardsOf("e01")[0]!.why;
    expect(whyText({ band: "C", rawBand: "A", parts: good, heldUntil: "2026-11-20" })).toMatch(
      /at least; what it does now would earn A\. At least 94\.4 %/,
    );
    expect(whyText({ band: "C", rawBand: "A", parts: good, heldUntil: null })).toMatch(
      /^C: the letter of the endpoint's first card stands; /,
    );
  });

  it("refuses to say UNRATED without a reason", () => {
    const { why } = cardsOf("e01")[0]!;
    expect(() => whyText({ band: "UNRATED", parts: why, heldUntil: null })).toThrow(/without a reason/);
  });
});
