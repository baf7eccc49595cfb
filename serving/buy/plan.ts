import { setImmediate as turn } from "node:timers/promises";
import { MAX_WORDS, splitWords } from "../../infra/text-index.ts";
import { parseMoney } from "../../pipelines/record/money.ts";
import { variablesOf } from "../../pipelines/record/template.ts";
import { knownFacts } from "../answers/facts.ts";
import { readQuestion } from "../answers/question.ts";
import { retryVerdictOf } from "../answers/retry.ts";
import { findEndpoints, type Hit, RANKED } from "../answers/search.ts";
import { PASSED_OVER_TEXTS, type PassedOver, type PlanAnswer, type PlanQuery } from "../schemas/route.ts";
import { headlineOf } from "../tables/entry.ts";
import type { View } from "../tables/view.ts";
import { buyTerms, type SaleContext } from "./eligible.ts";

type Candidate = PlanAnswer["candidates"][number];
/** A candidate with the closeness of its text to the need (`Hit.fit`). */
type FittingCandidate = Candidate & { fit: number };

/** The rule of ranking, as answers state it. */
export const RULE =
  "What holds every word of the need first, those before it whose text fits closely; then the better letter (A, B, C, D, then no letter); then the higher composite, which is a sum of lower bounds; then the lower price; then the shorter 95th percentile of latency, where it is known; then the url. Only endpoints whose calls this service would buy right now. Nobody pays for a place.";

/**
 * Largest number of matching endpoints that are examined, the best first, so that a common word does not unpack every
 * card.
 */
const MAX_EXAMINED = 500;
/** Number of endpoints that are examined between two yields to the event loop. */
const EXAMINED_PER_TURN = 50;

const isBandAtLeast = (band: Candidate["band"], lowestBand: PlanQuery["min_band"]): boolean =>
  lowestBand === undefined || (band !== "UNRATED" && band <= lowestBand);

/**
 * Compares one endpoint with a query. Returns a candidate, to whose reasons {@link rankCandidates} adds the rank; or
 * the reason why the endpoint is passed over.
 */
function candidateOf(
  view: View,
  { entry, lackedWords, fit }: Hit,
  query: PlanQuery,
  { baseUrl, seller, now }: PlanContext,
): FittingCandidate | PassedOver {
  const facts = knownFacts(view, { url: entry.cap }, { cap: entry.cap, matched: "exact" }, now);
  if (!isBandAtLeast(facts.band, query.min_band)) return "below_band";
  const method = entry.listing.tool === null ? entry.listing.method : "POST";
  if (query.method !== undefined && method !== query.method) return "other_method";
  const buy = buyTerms(view, entry.cap, baseUrl, seller);
  if ("says" in buy) return "not_sold";
  const { seller_price: price, fee, total } = buy;
  if (query.max_price !== undefined && parseMoney(price) > parseMoney(query.max_price)) return "too_dear";
  const latency_p95_ms = facts.components ? (headlineOf(entry)?.latencyMs ?? null) : null;
  if (query.max_latency_ms !== undefined && latency_p95_ms === null) return "latency_unknown";
  if (query.max_latency_ms !== undefined && latency_p95_ms! > query.max_latency_ms) return "too_slow";
  return {
    ...{ capability_id: entry.cap, url: entry.listing.url, method: buy.method as Candidate["method"] },
    ...{ tool: entry.listing.tool, variables: variablesOf(entry.listing.url) },
    ...{ class: entry.listing.class, description: entry.listing.description, lacks: [...lackedWords], fit },
    ...{ band: facts.band, tier: facts.tier, composite: facts.composite, latency_p95_ms },
    ...{ price, fee, total, buy: buy.url, guarantee: buy.guarantee, defects: facts.defects },
    ...{ retry: retryVerdictOf(view.row(entry.cap), now).verdict, reasons: [facts.why] },
  };
}

/** The keys of the ranking rule, in order. `compare` is above zero if `a` ranks behind `b`, for the reason `behind`. */
const RANKING_KEYS: readonly { compare: (a: FittingCandidate, b: FittingCandidate) => number; behind: string }[] = [
  { compare: (a, b) => a.fit - b.fit, behind: "its text is closer to the need" },
  { compare: (a, b) => RANKED.indexOf(a.band) - RANKED.indexOf(b.band), behind: "its letter is better" },
  { compare: (a, b) => (b.composite ?? -1) - (a.composite ?? -1), behind: "its composite is higher" },
  { compare: (a, b) => Number(parseMoney(a.price) - parseMoney(b.price)), behind: "it costs less" },
  {
    compare: (a, b) => (a.latency_p95_ms ?? 1e9) - (b.latency_p95_ms ?? 1e9),
    behind: "its latency is shorter, or known",
  },
  { compare: (a, b) => (a.url < b.url ? -1 : a.url > b.url ? 1 : 0), behind: "its url is first in the alphabet" },
];

/** Returns the first key in which two candidates differ. */
const firstDifferentKey = (a: FittingCandidate, b: FittingCandidate) =>
  RANKING_KEYS.find(({ compare }) => compare(a, b) !== 0);

function rankCandidates(candidates: FittingCandidate[]): Candidate[] {
  const sorted = candidates.sort((a, b) => firstDifferentKey(a, b)?.compare(a, b) ?? 0);
  return sorted.map(({ fit, ...one }, i) => {
    const previous = sorted[i - 1];
    const placeText = previous
      ? `Behind ${previous.capability_id}: ${firstDifferentKey({ ...one, fit }, previous)?.behind ?? "both are alike"}.`
      : `First of ${sorted.length} that fit.`;
    return { ...one, reasons: [placeText, ...one.reasons] };
  });
}

export interface PlanContext {
  baseUrl: string;
  seller: SaleContext;
  now: Date;
  /** true: only endpoints whose text contains every word, since a guess must not lead to a purchase. */
  strict?: boolean;
}

/**
 * Finds and ranks endpoints for a need by {@link RULE}, from the view only, without a call to a seller.
 * @returns candidates with their reasons, and the number of endpoints that were passed over, by reason
 */
export async function rankEndpointsFor(view: View, query: PlanQuery, context: PlanContext): Promise<PlanAnswer> {
  const question = readQuestion(query.need);
  const effectiveQuery = { ...query, max_price: query.max_price ?? question.maxPrice ?? undefined };
  // A need that consists only of stop words is searched for literally; it must not match every endpoint.
  const words = question.words.length > 0 ? question.words : splitWords(query.need, MAX_WORDS);
  const fitting: FittingCandidate[] = [];
  const skippedCounts = new Map<PassedOver, number>();
  let examinedCount = 0;
  let hasMore = false;
  const { hits } = words.length > 0 ? await findEndpoints(view, { words }, !context.strict) : { hits: [] };
  for (const hit of hits) {
    if (context.strict && hit.lackedWords.length > 0) continue;
    if (query.class !== undefined && hit.entry.listing.class !== query.class) continue;
    if (examinedCount === MAX_EXAMINED) {
      hasMore = true;
      break;
    }
    if (++examinedCount % EXAMINED_PER_TURN === 0) await turn();
    const candidateOrReason = candidateOf(view, hit, effectiveQuery, context);
    if (typeof candidateOrReason === "string")
      skippedCounts.set(candidateOrReason, (skippedCounts.get(candidateOrReason) ?? 0) + 1);
    else fitting.push(candidateOrReason);
  }
  return {
    schema: "svc.route-plan.v1",
    need: query.need,
    rule: RULE,
    candidates: rankCandidates(fitting).slice(0, query.limit),
    passed_over: (Object.keys(PASSED_OVER_TEXTS) as PassedOver[])
      .filter((reason) => skippedCounts.has(reason))
      .map((reason) => ({ reason, says: PASSED_OVER_TEXTS[reason], count: skippedCounts.get(reason)! })),
    looked_at: examinedCount,
    more: hasMore || fitting.length > query.limit,
  };
}
