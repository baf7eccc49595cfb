import { html } from "hono/html";
import { symbolOf } from "../../pipelines/record/networks.ts";
import { type Band, COMPONENTS, type ComponentName, FLAGS, type Flag } from "../../pipelines/record/vocabulary.ts";

/** Shown in place of a figure or a time that is not known. */
export const NONE = "–";

export const bandWords = (band: Band): string => (band === "UNRATED" ? "unrated" : band);

/** Names a class (kind of endpoints by the questions that they answer) in words; `any` is the class of all others. */
export const classWords = (kind: string): string => (kind === "any" ? "everything else" : kind.replaceAll("_", " "));

/** Renders a letter on its colour. The letter is text, so nothing depends on the colour alone. */
export const grade = (band: Band, big = false): unknown =>
  html`<span class="grade ${band}${big ? " big" : ""}">${bandWords(band)}</span>`;

export const formatFigure = (value: number | null | undefined, decimals = 3): string =>
  value === null || value === undefined ? NONE : value.toFixed(decimals);

/**
 * Formats a composite or a lower bound, rounded down as in the sentence that explains the grade, so that no figure
 * looks better than it is.
 */
export const formatRoundedDown = (value: number | null | undefined): string =>
  value === null || value === undefined ? NONE : (Math.floor(value * 1000 + 1e-6) / 1000).toFixed(3);

/** Renders a time as `2026-11-21 04:20 UTC`, with the exact time in the attribute `datetime`. */
export function formatTime(ms: number | null | undefined): unknown {
  if (ms === null || ms === undefined || !Number.isFinite(ms)) return NONE;
  const iso = new Date(ms).toISOString();
  return html`<time datetime="${iso}">${iso.slice(0, 16).replace("T", " ")} UTC</time>`;
}

const TIER_WORDS: Record<string, string> = {
  LIVENESS_VERIFIED: "liveness",
  DELIVERY_VERIFIED: "delivery",
  OUTCOME_VERIFIED: "outcome",
};
export const tierWords = (tier: string | null): string => (tier === null ? NONE : (TIER_WORDS[tier] ?? tier));

const COMPONENT_WORDS: Record<ComponentName, string> = {
  liveness: "Liveness",
  correctness: "Correctness",
  honesty: "Honesty",
  schema_conformance: "Schema conformance",
  latency_p95: "Latency (p95)",
  price_stability: "Price stability",
};
export const COMPONENT_NAMES: readonly (readonly [ComponentName, string])[] = COMPONENTS.map((name) => [
  name,
  COMPONENT_WORDS[name],
]);

/** Formats money without trailing zeros, with at least two decimals: `0.020000` -> `0.02`. */
export const formatPrice = (money: string | null | undefined): string =>
  money ? money.replace(/(\.\d{2}\d*?)0+$/, "$1") : NONE;

export const assetWords = (asset: string | null | undefined): string => (asset ? symbolOf(asset) : "an unnamed asset");

/** Returns host and path of an endpoint, its name on every page. A name that the seller chose is never used. */
export const addressWords = (url: string): string => url.replace(/^https?:\/\//, "").replace(/\/$/, "");

/**
 * Returns, in one line, the verdict of a `why`, the sentence that explains a grade: its first clause, without the
 * letter; for UNRATED its whole first sentence.
 */
export function verdictOf(why: string): string {
  const [, band, says] = /^([A-DF]|UNRATED): (.+?\.)(?: [A-Z]|$)/s.exec(why) ?? [];
  const verdict = says === undefined ? why : band === "UNRATED" ? says : says.split("; ")[0]!;
  const first = says === undefined ? (/^[^;]+/.exec(verdict)?.[0] ?? verdict) : verdict;
  return `${first[0]?.toUpperCase() ?? ""}${first.slice(1).replace(/\.$/, "")}.`;
}

/** Formats a number with its noun, in the singular for 1. */
export const formatCount = (n: number, one: string, many = `${one}s`): string => `${n} ${n === 1 ? one : many}`;

export const shorten = (text: string, length: number): string =>
  text.length > length ? `${text.slice(0, length - 1)}…` : text;

/** Formats a duration as `812 ms` or `1.43 s`. */
export const formatDuration = (ms: number | null | undefined): string => {
  if (ms === null || ms === undefined) return NONE;
  return ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`;
};

/** Each flag of verification-method.md section 7 in one sentence. */
const FLAG_WORDS: Record<Flag, string> = {
  pay_to_unknown:
    "No 402 of this endpoint and no listing of the seller's own ever named the address that was asked about.",
  pay_to_differs:
    "Its newest 402, or its seller's own listing, names a different address from the one that was asked about.",
  took_the_money:
    "A paid call of ours settled on the chain and nothing came back, not even when the proof was shown again.",
  money_pending: "A paid call settled and nothing has come back yet; after a day it counts as taken money.",
  refunded: "A paid call that delivered nothing was paid back.",
  refuses_payment: "We offered payments, and none of them settled here in the window, so no letter can be given.",
  early_fail: "So few paid calls succeeded that an F is given before 30 of them were made.",
  capped_by_tier:
    "Answers were delivered but could not be checked against a known truth, which keeps the letter at B or below.",
  deeper_tier_worse: "Of the answers that could be checked against a truth, too few were right for a better letter.",
  recent_failures: "The newest paid calls failed in a row more often than such a letter allows.",
  held_14d: "The calls of today would earn a better letter, but a letter rises only after 14 clean days.",
  stale_paid: "The newest paid call is more than 30 days old.",
  stale: "The newest paid call is too old for a letter, or nothing was seen for 30 days.",
  dark: "It has not answered for 72 hours.",
  listing_mismatch: "Its newest 402 asks for something other than the seller's own listing says.",
  pay_to_changed: "The address to pay changed within the window.",
  price_untested: "It asks more than twice what we ever paid here, so today's price is untested.",
  dynamic_price: "It named more than three different prices on one day.",
  no_schema_advertised: "It advertises no schema for its answers, so that part adds nothing and an A is out of reach.",
  no_example: "It publishes no example and no known-answer input fits: its inputs were made up from its schema.",
  latency_unbounded: "There are too few timed calls yet to say how slow it can be.",
  streaky: "Failures come in runs, so each sample counts for less than one.",
  buyers_report_worse: "Buyers published calls that went worse than ours; we look again with fresh wallets.",
  blocks_prober: "It turned our probes away (403, 429 or a bot wall) more often than is excused.",
  disputed: "The seller disputes a record; the figures stay until a correction names a fault of ours.",
  records_withdrawn: "A fifth or more of the records behind the grade were withdrawn since, so no letter is shown.",
  stands_on_nothing: "Every record behind the grade was withdrawn.",
  payee_took_the_money: "Another endpoint that pays the same address took money and delivered nothing.",
  domain_took_the_money: "Another endpoint of the same registrable domain took money and delivered nothing.",
};

/** Returns the sentence about a flag; for a flag of a later version a general one. */
export const flagWords = (flag: string): string =>
  (FLAGS as readonly string[]).includes(flag)
    ? FLAG_WORDS[flag as Flag]
    : "A condition on the grade that this page has no words for yet.";
