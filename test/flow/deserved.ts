import { FLAGS } from "../../pipelines/record/vocabulary.ts";

export interface Deserved {
  /** One letter, or a class of them where chance decides between two. */
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
 * have joined late (save regulars-only); the dishonest ones are the attacks of the method's text on the wire. What chance,
 * the hour of the day and a machine under load decide is left open: drawn-letters.test.ts draws them.
 */
export const DESERVED: Record<string, Deserved> = {
  "honest-v2": {
    band: "A",
    tier: "OUTCOME",
    why: /^A: it delivers, .* At least 9\d\.\d % of its answers are shown to be right .*composite 0\.9\d\d\.$/,
    without: FLAGS,
  },
  "honest-v1": {
    band: "B",
    tier: "DELIVERY",
    why: /^B: its answers came, but could not be checked against a known truth\. At least/,
    flags: ["capped_by_tier"],
  },
  slow: { band: "A", tier: "OUTCOME", why: /^A: it delivers, its answers are right/, without: FLAGS },
  flaky: { band: "D", tier: "OUTCOME", why: /^D: too many of its answers were wrong or missing\. At least/ },
  liar: {
    band: "F",
    tier: "OUTCOME",
    why: /^F: at most \d+\.\d % of its answers are right/,
    flags: ["early_fail"],
  },
  thief: {
    band: "F",
    tier: "OUTCOME",
    why: /^F: it took \d+\.\d\d+ in (?:\d+ of )?\d+ paid calls and answered nothing, last on/,
    flags: ["took_the_money"],
    without: ["refunded"],
  },
  "price-mover": { band: "C", tier: "OUTCOME", why: /^C: its price moves too much/ },
  dead: {
    band: "UNRATED",
    tier: "LIVENESS",
    why: /^UNRATED: [\d,]+ probes since \d+ \w+ 2\d{3} got no readable 402 in time, so nobody has paid it\.$/,
    flags: ["dark"],
    without: ["refuses_payment"],
  },
  "v2-in-body": {
    band: "B",
    tier: "OUTCOME",
    why: /^B: (?:its calls went well, and too few were made|.* pulls the composite down to 0\.8)/,
    defects: ["terms_in_body"],
    without: ["no_schema_advertised", "no_example", "pay_to_changed"],
  },
  "schema-breaker": {
    band: "C",
    tier: "OUTCOME",
    // Bound and composite depend on how many blocks its salted plans drew.
    why: /^C: its schema conformance pulls the composite down to 0\.[67].*At least [89]\d\.\d % of its answers/,
    without: ["no_schema_advertised", "recent_failures"],
  },
  "pay-to-changer": {
    band: "C",
    tier: "OUTCOME",
    why: /^C: (?:its newest 402 asks for something else than its own listing says; )?what it asks is only shown to keep to its own/,
    flags: ["pay_to_changed"],
    without: ["blocks_prober"],
  },
  wildcard: {
    band: "F",
    tier: "DELIVERY",
    why: /^F: at most \d+\.\d % of its answers are right/,
    flags: ["early_fail", "no_example", "no_schema_advertised"],
    without: ["took_the_money"],
  },
  "wall-when-down": {
    band: "C",
    tier: "OUTCOME",
    why: /^C: it is only shown to answer at least [67]\d\.\d % of the time/,
    flags: ["blocks_prober"],
    without: ["recent_failures"],
  },
  // How many of its calls were blind is drawn at random; it has stood since the beginning, so that they are never few.
  "regulars-only": {
    band: "[DF]",
    tier: "OUTCOME",
    why: /^[DF]: (?:(?:at most [\d.]+ %|too many) of its answers (?:are right|were wrong or missing)|its newest paid calls failed one after the other|a worse letter of the last 14 days stands)/,
    flags: ["recent_failures"],
    without: ["took_the_money"],
  },
  "price-creeper": {
    band: "C",
    tier: "OUTCOME",
    why: /^C: its price moves too much/,
    without: ["listing_mismatch", "dynamic_price", "recent_failures"],
  },
  "free-for-all": {
    band: "C",
    tier: "DELIVERY",
    why: /^C: its schema conformance pulls the composite down to .*: none of its answers could be held against a schema/,
    flags: ["no_example", "no_schema_advertised"],
  },
  refunder: {
    band: "C",
    tier: "OUTCOME",
    why: /^C: too many of its answers were wrong or missing/,
    flags: ["refunded"],
    without: ["took_the_money"],
  },
  // A tool of an MCP server, and four classes that are not arithmetic. Questions about blocks wait for the first final one.
  ...Object.fromEntries(
    ["mcp-paid", "encoder", "scraper", "chain-reader", "parrot"].map((name) => [
      name,
      {
        band: "A",
        tier: "OUTCOME" as const,
        why: /^A: it delivers, its answers are right.*composite 0\.9\d\d\.$/,
        without: FLAGS,
      },
    ]),
  ),
  dear: { band: "A", tier: "OUTCOME", why: /^A: it delivers, its answers are right/, without: FLAGS },
  dearer: {
    band: "B",
    tier: "OUTCOME",
    why: /^B: (?:its calls went well, and too few were made|.* pulls the composite down to 0\.8)/,
    without: ["recent_failures", "took_the_money"],
  },
  capitals: {
    band: "B",
    tier: "DELIVERY",
    why: /^B: (?:its calls went well, and too few were made to show more; )?its answers came, but could not be checked/,
    without: ["no_schema_advertised", "no_example", "recent_failures", "listing_mismatch"],
  },
  ...Object.fromEntries(
    ["wrong-encoder", "stale-scraper"].map((name) => [
      name,
      {
        band: "F",
        tier: "OUTCOME" as const,
        why: /^F: at most \d+\.\d % of its answers are right/,
        flags: ["early_fail"],
        without: ["took_the_money"],
      },
    ]),
  ),
  ...Object.fromEntries(
    ["mpp", "both", "tempo"].map((name) => [
      name,
      {
        band: "B",
        tier: "OUTCOME" as const,
        why: /^B: (?:its calls went well, and too few were made|.* pulls the composite down to 0\.8)/,
        without: ["no_schema_advertised", "no_example", "recent_failures", "took_the_money", "listing_mismatch"],
      },
    ]),
  ),
};

/**
 * What a seller's behaviour allows on no day of its life, whatever is drawn: a letter better than this. Among its first
 * thirty calls the draw may give few blind ones: until more have come regulars-only may do better than what it ends with.
 */
export const BEST: Record<string, string> = {
  "free-for-all": "B",
  "schema-breaker": "B",
  "pay-to-changer": "C",
  "regulars-only": "B",
};
