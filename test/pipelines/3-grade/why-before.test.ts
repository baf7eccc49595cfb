import { describe, expect, it } from "vitest";
import { gradeRows } from "../../../pipelines/3-grade/pure.ts";
import { RelatedParties } from "../../../pipelines/3-grade/related.ts";
import { whyText } from "../../../pipelines/3-grade/why.ts";
import { whyBefore } from "../../../pipelines/3-grade/why-before.ts";
import { sentenceAs } from "../../../pipelines/audit/recompute.ts";
import { type GradeIn, type GradeOut, samplesOf, vectorsOf, withdrawnOf } from "./vectors.ts";

/** Sentences that stand in leaves from before, as they were published: an auditor makes them again to the letter. */
const vectors = new Map(vectorsOf<GradeIn, GradeOut>("grade").map((vector) => [vector.id, vector]));
const NOW = new Date("2026-11-15T12:00:00Z");
const SINCE = "with 95 % confidence at any time you look";

function cardOf(id: string) {
  const vector = vectors.get(id)!;
  const rows = samplesOf(vector);
  const place = { pay_to: null, domain: null, disputed: false };
  const endpoint = { cap: id, ...place, rows, withdrawn: new Set(withdrawnOf(vector)) };
  const run = gradeRows(endpoint, new RelatedParties([]), NOW).cards.find((one) => one.headline)!;
  return { endpoint, run };
}

function sentence(id: string, change: { band?: "D"; heldUntil?: string } = {}): string {
  const { endpoint, run } = cardOf(id);
  const { raw_band } = run;
  const { tier, composite } = run.card;
  const published = { band: raw_band, rawBand: raw_band, tier, composite, heldUntil: null, ...change };
  return whyBefore(endpoint, published, NOW);
}

describe("the older sentence", () => {
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
    expect(sentence(id)).toBe(text);
  });

  it("gives the hold its day, and the caps their raw letter", () => {
    const text = sentence("e02", { band: "D", heldUntil: "2026-11-20" });
    expect(text).toMatch(
      /^D on OUTCOME_VERIFIED, composite 0\.851; .*; no better than B because the composite is 0\.851; /,
    );
    expect(text).toMatch(/; a letter rises only after 14 clean days, next possible 2026-11-20\.$/);
  });

  it("is accepted by an auditor beside the one of today, and no third one is", () => {
    const { endpoint, run } = cardOf("e05");
    const why = whyText({ band: run.raw_band, parts: run.why, heldUntil: null });
    const next = { run, card: run.card, why, heldUntil: null };
    const before = sentence("e05");
    expect(before).not.toBe(why);
    expect(sentenceAs(before, endpoint, next, NOW)).toBe(before);
    expect(sentenceAs(why, endpoint, next, NOW)).toBe(why);
    expect(sentenceAs(before.replace("62.7", "92.7"), endpoint, next, NOW)).toBe(why);
  });
});
