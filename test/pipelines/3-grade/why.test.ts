import { describe, expect, it } from "vitest";
import { gradeRows } from "../../../pipelines/3-grade/pure.ts";
import { RelatedParties } from "../../../pipelines/3-grade/related.ts";
import type { Sample } from "../../../pipelines/3-grade/sample.ts";
import { whyText } from "../../../pipelines/3-grade/why.ts";
import type { RunCard } from "../../../pipelines/record/card.ts";
import { type GradeIn, type GradeOut, samplesOf, vectorsOf, withdrawnOf } from "./vectors.ts";

const vectors = new Map(vectorsOf<GradeIn, GradeOut>("grade").map((vector) => [vector.id, vector]));
const NOW = new Date("2026-11-15T12:00:00Z");

function cardsOf(id: string, edit: (row: Sample) => Sample = (row) => row): RunCard[] {
  const vector = vectors.get(id)!;
  const place = { pay_to: null, domain: null, disputed: false };
  const rows = samplesOf(vector).map(edit);
  return gradeRows({ cap: id, ...place, rows, withdrawn: new Set(withdrawnOf(vector)) }, new RelatedParties([]), NOW)
    .cards;
}

/** The sentence of a card as it would be published without a hold. */
const sentence = ({ card, raw_band, why }: RunCard): string =>
  whyText({ band: raw_band, tier: card.tier, composite: card.composite, parts: why, heldUntil: null });

const headline = (id: string, edit?: (row: Sample) => Sample): string =>
  sentence(cardsOf(id, edit).find((card) => card.headline)!);
const SINCE = "with 95 % confidence at any time you look";

describe("why", () => {
  const table: [id: string, text: string][] = [
    [
      "e01",
      `A on OUTCOME_VERIFIED, composite 0.945; at least 94.4 % correct ${SINCE} (65 of 65 blocks since 2026-08-17).`,
    ],
    [
      "e02",
      `B on OUTCOME_VERIFIED, composite 0.851; at least 94.3 % correct ${SINCE} (64 of 64 blocks since 2026-08-17); no better than B because the composite is 0.851.`,
    ],
    [
      "e03",
      `B on DELIVERY_VERIFIED, composite 0.945; at least 94.4 % correct ${SINCE} (65 of 65 blocks since 2026-08-17); no better than B because answers were delivered but not checked against truth.`,
    ],
    ["e04", "UNRATED: 0 of 30 paid calls so far; unknown, not bad."],
    [
      "e05",
      `C on OUTCOME_VERIFIED, composite 0.815; at least 62.7 % correct ${SINCE} (47.2 of 59 blocks since 2026-08-17); no better than C because that bound is below 0.75; no better than C because of all paid calls at least 62.7 % are shown to deliver.`,
    ],
    [
      "e06",
      `C on DELIVERY_VERIFIED, composite 0.944; at least 94.3 % correct ${SINCE} (63 of 63 blocks since 2026-08-17); no better than C because of the answers checked against truth at most 69.1 % were right.`,
    ],
    [
      "e10",
      `F on DELIVERY_VERIFIED, composite 0.610; at least 21.1 % correct ${SINCE} (23 of 59 blocks since 2026-08-17); no better than F because at most 58.2 % are correct; no better than F because that bound is below 0.40; no better than F because a paid call settled and nothing came back on 2026-11-14.`,
    ],
    [
      "e11",
      `UNRATED: 0 of 30 paid calls so far; unknown, not bad; at least 0.0 % correct ${SINCE} (0 of 33 blocks since 2026-08-17).`,
    ],
    [
      "e19",
      `D on OUTCOME_VERIFIED, composite 0.888; at least 94.4 % correct ${SINCE} (65 of 65 blocks since 2026-08-17); no better than D because paid exchanges are only shown to keep to the listing at least 0.0 % of the time.`,
    ],
    [
      "e22",
      `C on OUTCOME_VERIFIED, composite 0.940; at least 94.3 % correct ${SINCE} (64 of 64 blocks since 2026-08-17); no better than C because its newest answer differs from its listing.`,
    ],
    [
      "e23",
      `B on OUTCOME_VERIFIED, composite 0.896; at least 94.3 % correct ${SINCE} (64 of 64 blocks since 2026-08-17); no better than B because the composite is 0.896; no better than B because its price moves too much.`,
    ],
    [
      "e24",
      `C on OUTCOME_VERIFIED, composite 0.929; at least 93.9 % correct ${SINCE} (59 of 59 blocks since 2026-08-17); no better than C because it asks 0.025 now and we never paid more than 0.01.`,
    ],
    [
      "e36",
      `D on OUTCOME_VERIFIED, composite 0.875; at least 94.2 % correct ${SINCE} (62 of 62 blocks since 2026-08-17); no better than D because it is only shown to answer at least 52.2 % of the time; no better than D because no answer since 2026-11-12.`,
    ],
    [
      "e37",
      `B on OUTCOME_VERIFIED, composite 0.950; at least 94.2 % correct ${SINCE} (62 of 62 blocks since 2026-08-17); no better than B because the newest paid call is from 2026-10-14.`,
    ],
    [
      "e38",
      `UNRATED: no paid call since 2026-09-15; at least 92.4 % correct ${SINCE} (47 of 47 blocks since 2026-08-17).`,
    ],
    [
      "e44",
      `UNRATED: 29 of 30 paid calls so far; unknown, not bad; at least 88.3 % correct ${SINCE} (29.75 of 29.75 blocks since 2026-08-17).`,
    ],
    ["e48", "UNRATED: every record it stood on was withdrawn."],
  ];
  it.each(table)("%s", (id, text) => {
    expect(headline(id)).toBe(text);
  });

  it("names an endpoint that was not seen, when its paid calls are young enough", () => {
    expect(headline("e39")).toMatch(/^UNRATED: not seen since 2026-10-1\d; /);
  });

  it("says so when it never answered, and names recent failures and honesty", () => {
    const silent = headline("e01", (row) => (row.kind === 1 ? row : { ...row, live: false }));
    expect(silent).toContain("it is only shown to answer");
    const dead = cardsOf("e01", (row) => ({ ...row, live: false }));
    expect(dead[0]!.why.caps).toContain("it never answered");
    const cheat = headline("e01", (row) => ({ ...row, honest: row.kind === 1 || row.t.getUTCDate() % 2 === 0 }));
    expect(cheat).toMatch(/because honesty is only shown to be at least \d\d\.\d %/);
    const end = new Date("2026-10-20T00:00:00Z");
    const broken = cardsOf("e41", (row) => (row.kind === 1 && row.t > end ? { ...row, outcome: 0, delivery: 0 } : row));
    expect(broken[0]!.caps.cusum_cap).toBe(Math.max(...Object.values(broken[0]!.caps)));
    expect(broken[0]!.why.caps.at(-1)).toBe("recent paid calls failed");
  });

  it("gives the hold its day, and the caps their raw letter", () => {
    const card = cardsOf("e02")[0]!;
    const { tier, composite } = card.card;
    const text = whyText({ band: "D", rawBand: "B", tier, composite, parts: card.why, heldUntil: "2026-11-20" });
    expect(text).toMatch(
      /^D on OUTCOME_VERIFIED, composite 0\.851; .*; no better than B because the composite is 0\.851; /,
    );
    expect(text).toMatch(/; a letter rises only after 14 clean days, next possible 2026-11-20\.$/);
  });

  it("refuses to say UNRATED without a reason", () => {
    const card = cardsOf("e01")[0]!;
    const { tier, composite } = card.card;
    expect(() => whyText({ band: "UNRATED", tier, composite, parts: card.why, heldUntil: null })).toThrow(
      /without a reason/,
    );
  });
});
