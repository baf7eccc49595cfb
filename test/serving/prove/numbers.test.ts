import { describe, expect, test } from "vitest";
import { gradeRows } from "../../../pipelines/3-grade/pure.ts";
import { RelatedParties } from "../../../pipelines/3-grade/related.ts";
import { type Card, findContradictions } from "../../../serving/prove/numbers.ts";
import { fc } from "../../helpers/histories.ts";
import { NOW, type Profile, profile, rowsOf } from "../../pipelines/3-grade/random.ts";

/** Cards of an endpoint that behaves so, of all its tiers, by the real code. */
function cardsOf(like: Profile): Card[] {
  const cap = "cap_7Z3";
  const endpoint = {
    cap,
    pay_to: null,
    domain: null,
    disputed: false,
    rows: rowsOf(cap, like),
    withdrawn: new Set<string>(),
  };
  return gradeRows(endpoint, new RelatedParties([]), NOW).cards.map(({ card }) => card as Card);
}

describe("a card's own figures", () => {
  test("contradict no card that was really made", () => {
    fc.assert(
      fc.property(profile, (like) => {
        for (const card of cardsOf(like)) expect(findContradictions(card)).toEqual([]);
      }),
      { numRuns: 300 },
    );
  });

  /** An endpoint that does well. */
  const well: Profile = {
    ...{ seed: 7, rows: 400, days: 80, live: 1, honest: 1, right: 1, settles: 1, serves: 1, paid: 0.5 },
    ...{ published: 0, faults: 0, moves: 0 },
  };
  const headline = cardsOf(well)[0]!;

  test.each<[string, (card: Card) => Partial<Card>, RegExp]>([
    ["another composite", ({ composite }) => ({ composite: composite + 0.000001 }), /the composite is/],
    [
      "a bound above its figures",
      ({ components }) => ({
        components: { ...components, honesty: { ...components!.honesty!, lower: 0.999 } },
      }),
      /the bound of honesty is 0.999/,
    ],
    ["the best letter", () => ({ band: "A" }), /allows [B-F] at best/],
    ["a letter in spite of a flag", () => ({ flags: ["dark"], band: "B" }), /flag dark allows D at best/],
    ["a letter without a paid call", () => ({ tier: "LIVENESS_VERIFIED", band: "C" }), /nothing was paid/],
    ["a letter without figures", () => ({ components: null, band: "B" }), /has no figure/],
    [
      "a letter of too few calls",
      ({ components }) => ({
        components: {
          ...components,
          correctness: {
            ...components!.correctness!,
            method: components!.correctness!.method.replace(/;W=[\d.]+;/, ";W=12;"),
          },
        },
      }),
      /12 paid calls are behind it/,
    ],
  ])("%s is found", (_, change, says) => {
    expect(headline.band).toMatch(/^[B-D]$/);
    expect(findContradictions({ ...headline, ...change(headline) }).join("; ")).toMatch(says);
  });
});
