import { describe, expect, it } from "vitest";
import {
  type CardFacts,
  comparedHash,
  decidePublication,
  type PublicationDecision,
  type PublishedFacts,
} from "../../../pipelines/3-grade/changed.ts";
import type { Band, Flag, Tier } from "../../../pipelines/record/vocabulary.ts";

const NOW = new Date("2026-11-15T12:00:00Z");
const component = (lower: number | null) => ({ point: lower, lower, upper: 1, n_eff: 30, method: "m" });

interface Options {
  tier?: Tier;
  band?: Band;
  raw?: Band;
  flags?: Flag[];
  caps?: Record<string, number>;
  correctness?: number | null;
}

function facts({
  tier = "DELIVERY_VERIFIED",
  band = "B",
  raw = band,
  flags = [],
  caps = { by_tier: 1 },
  correctness = 0.921,
}: Options = {}): CardFacts {
  const lowers = {
    liveness: 0.97,
    correctness,
    honesty: 0.97,
    schema_conformance: 0.9,
    latency_p95: 0.8,
    price_stability: 0.9,
  };
  const components = {
    liveness: component(lowers.liveness),
    correctness: component(lowers.correctness),
    honesty: component(lowers.honesty),
    schema_conformance: component(lowers.schema_conformance),
    latency_p95: component(lowers.latency_p95),
    price_stability: component(lowers.price_stability),
  };
  return { card: { tier, band, flags, components }, raw_band: raw, headline: true, caps };
}

const published = (cards: CardFacts[], at: string, countedDay: string | null): PublishedFacts => ({
  cards: cards.map((one) => ({ tier: one.card.tier, band: one.card.band, compared: comparedHash(one) })),
  publishedAt: new Date(at),
  countedDay,
});
const YESTERDAY = published([facts()], "2026-11-14T23:00:00Z", "2026-11-14");
const TODAY = published([facts()], "2026-11-15T01:00:00Z", "2026-11-15");
const now = (reason: PublicationDecision["reason"], counts: boolean): PublicationDecision => ({
  publish: "now",
  reason,
  counts,
});
const later = (reason: PublicationDecision["reason"]): PublicationDecision => ({
  publish: "later",
  reason,
  counts: false,
});
const NO: PublicationDecision = { publish: "no", reason: null, counts: false };

describe("when a card is signed anew", () => {
  const table: [string, PublishedFacts | null, CardFacts[], boolean, PublicationDecision][] = [
    ["the first card", null, [facts()], false, now("first_card", false)],
    [
      "a published endpoint without cards",
      published([], "2026-11-15T01:00:00Z", "2026-11-15"),
      [facts()],
      false,
      now("first_card", false),
    ],
    ["nothing changed", YESTERDAY, [facts()], false, NO],
    ["a bound moved within its grid line", YESTERDAY, [facts({ correctness: 0.929999 })], false, NO],
    ["a bound crossed a grid line", YESTERDAY, [facts({ correctness: 0.93 })], false, now("changed", true)],
    ["the same, published today already", TODAY, [facts({ correctness: 0.93 })], false, later("changed")],
    ["a part without a bound now", YESTERDAY, [facts({ correctness: null })], false, now("changed", true)],
    ["a better letter", YESTERDAY, [facts({ band: "A" })], false, now("changed", true)],
    ["a better letter, published today already", TODAY, [facts({ band: "A" })], false, later("changed")],
    ["a worse letter, published today already", TODAY, [facts({ band: "D" })], false, now("worse_letter", false)],
    ["a letter gone, published today already", TODAY, [facts({ band: "UNRATED" })], false, now("worse_letter", false)],
    ["a worse raw letter under the same published one", TODAY, [facts({ raw: "C" })], false, later("changed")],
    ["a flag", YESTERDAY, [facts({ flags: ["dark"] })], false, now("changed", true)],
    ["a cap", YESTERDAY, [facts({ caps: { by_tier: 1, by_stale: 1 } })], false, now("changed", true)],
    ["caps named in another order", YESTERDAY, [facts({ caps: { by_tier: 1 } })], false, NO],
    ["a tier more", TODAY, [facts({ tier: "OUTCOME_VERIFIED" }), facts()], false, now("first_card", false)],
    ["a tier less", YESTERDAY, [facts({ tier: "DELIVERY_VERIFIED" })], false, NO],
    ["a correction that changed nothing", TODAY, [facts()], true, now("correction", false)],
    ["unchanged for six days", published([facts()], "2026-11-09T13:00:00Z", "2026-11-09"), [facts()], false, NO],
    [
      "unchanged for a week",
      published([facts()], "2026-11-08T23:59:59Z", "2026-11-08"),
      [facts()],
      false,
      now("weekly", true),
    ],
  ];
  it.each(table)("%s", (_, before, next, corrected, verdict) => {
    expect(decidePublication(before, next, NOW, corrected)).toEqual(verdict);
  });

  it("an UNRATED endpoint's first F is bad news, its first B is none", () => {
    const before = published([facts({ band: "UNRATED" })], "2026-11-15T01:00:00Z", "2026-11-15");
    expect(decidePublication(before, [facts({ band: "F" })], NOW)).toEqual(now("worse_letter", false));
    expect(decidePublication(before, [facts({ band: "B" })], NOW)).toEqual(later("changed"));
  });

  it("0.29 lies on its own grid line", () => {
    const before = published([facts({ correctness: 0.29 })], "2026-11-14T01:00:00Z", null);
    expect(decidePublication(before, [facts({ correctness: 0.295 })], NOW)).toEqual(NO);
    expect(decidePublication(before, [facts({ correctness: 0.289999 })], NOW).publish).toBe("now");
  });
});
