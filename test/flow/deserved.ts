import { FLAGS } from "../../pipelines/record/vocabulary.ts";

export interface Deserved {
  /** One letter, or a class of them where lots decide between two. */
  band: string;
  tier: "OUTCOME" | "DELIVERY" | "LIVENESS";
  why: RegExp;
  /** Flags that must be there, and flags that must not. */
  flags?: readonly string[];
  without?: readonly string[];
  defects?: readonly string[];
}

/**
 * Letter, tier, flags and reason that each seller's behaviour earns under unchanged parameters. From v2-in-body on they
 * have joined late (save regulars-only); the dishonest ones are the attacks of the method's text on the wire. What lots,
 * the hour of the day and a machine under load decide is left open: lots.test.ts draws them.
 */
export const DESERVED: Record<string, Deserved> = {
  "honest-v2": {
    band: "A",
    tier: "OUTCOME",
    why: /^A on OUTCOME_VERIFIED, composite 0\.9\d\d; at least 9\d\.\d % correct/,
    without: FLAGS,
  },
  "honest-v1": {
    band: "B",
    tier: "DELIVERY",
    why: /no better than B because answers were delivered but not checked against truth/,
    flags: ["capped_by_tier"],
  },
  slow: { band: "A", tier: "OUTCOME", why: /^A on OUTCOME_VERIFIED/, without: FLAGS },
  flaky: { band: "D", tier: "OUTCOME", why: /no better than D because that bound is below 0\.60/ },
  liar: {
    band: "F",
    tier: "OUTCOME",
    why: /no better than F because at most \d+\.\d % are correct/,
    flags: ["early_fail"],
  },
  thief: {
    band: "F",
    tier: "OUTCOME",
    why: /a paid call settled and nothing came back on/,
    flags: ["took_the_money"],
    without: ["refunded"],
  },
  "price-mover": { band: "C", tier: "OUTCOME", why: /no better than C because its price moves too much/ },
  dead: {
    band: "UNRATED",
    tier: "LIVENESS",
    why: /^UNRATED: 0 of 30 paid calls so far; unknown, not bad/,
    flags: ["dark"],
    without: ["refuses_payment"],
  },
  "v2-in-body": {
    band: "B",
    tier: "OUTCOME",
    why: /^B on OUTCOME_VERIFIED.*no better than B because the composite is/,
    defects: ["terms_in_body"],
    without: ["no_schema_advertised", "no_example", "pay_to_changed"],
  },
  "schema-breaker": {
    band: "C",
    tier: "OUTCOME",
    // Bound and composite depend on how many blocks its salted plans drew.
    why: /at least [89]\d\.\d % correct .*no better than C because the composite is 0\.[67]/,
    without: ["no_schema_advertised", "recent_failures"],
  },
  "pay-to-changer": {
    band: "C",
    tier: "OUTCOME",
    why: /no better than C because honesty is only shown to be at least/,
    flags: ["pay_to_changed"],
    without: ["blocks_prober"],
  },
  wildcard: {
    band: "F",
    tier: "DELIVERY",
    why: /no better than F because at most \d+\.\d % are correct/,
    flags: ["early_fail", "no_example", "no_schema_advertised"],
    without: ["took_the_money"],
  },
  "wall-when-down": {
    band: "C",
    tier: "OUTCOME",
    why: /no better than C because it is only shown to answer at least [67]\d\.\d % of the time/,
    flags: ["blocks_prober"],
    without: ["recent_failures"],
  },
  // How many of its calls were blind is drawn by lot; it has stood since the beginning, so that they are never few.
  "regulars-only": {
    band: "[DF]",
    tier: "OUTCOME",
    why: /no better than [DF] because (?:that bound is below 0\.[46]0|recent paid calls failed)/,
    flags: ["recent_failures"],
    without: ["took_the_money"],
  },
  "price-creeper": {
    band: "C",
    tier: "OUTCOME",
    why: /no better than C because its price moves too much/,
    without: ["listing_mismatch", "dynamic_price", "recent_failures"],
  },
  "free-for-all": {
    band: "C",
    tier: "DELIVERY",
    why: /^C on DELIVERY_VERIFIED.*no better than C because the composite is/,
    flags: ["no_example", "no_schema_advertised"],
  },
  refunder: {
    band: "C",
    tier: "OUTCOME",
    why: /no better than C because that bound is below 0\.75/,
    flags: ["refunded"],
    without: ["took_the_money"],
  },
  // Four classes that are not arithmetic. Questions about blocks wait for the first final one.
  ...Object.fromEntries(
    ["encoder", "scraper", "chain-reader", "parrot"].map((name) => [
      name,
      { band: "A", tier: "OUTCOME" as const, why: /^A on OUTCOME_VERIFIED, composite 0\.9\d\d/, without: FLAGS },
    ]),
  ),
  ...Object.fromEntries(
    ["wrong-encoder", "stale-scraper"].map((name) => [
      name,
      {
        band: "F",
        tier: "OUTCOME" as const,
        why: /no better than F because at most \d+\.\d % are correct/,
        flags: ["early_fail"],
        without: ["took_the_money"],
      },
    ]),
  ),
  ...Object.fromEntries(
    ["mpp", "both", "mcp-paid"].map((name) => [
      name,
      {
        band: "B",
        tier: "OUTCOME" as const,
        why: /^B on OUTCOME_VERIFIED.*no better than B because the composite is 0\.8/,
        without: ["no_schema_advertised", "no_example", "recent_failures", "took_the_money", "listing_mismatch"],
      },
    ]),
  ),
};

/**
 * What a seller's behaviour allows on no day of its life, whatever the lots: a letter better than this. Among its first
 * thirty calls the lots may draw few blind ones: until more have come regulars-only may do better than what it ends with.
 */
export const BEST: Record<string, string> = {
  "free-for-all": "B",
  "schema-breaker": "B",
  "pay-to-changer": "C",
  "regulars-only": "B",
};
