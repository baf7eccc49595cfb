import { setImmediate as turn } from "node:timers/promises";
import { parseMoney } from "../../pipelines/record/money.ts";
import { knownFacts } from "../answers/facts.ts";
import { retryOf } from "../answers/retry.ts";
import { holding, RANKED } from "../answers/search.ts";
import type { CheckFacts } from "../schemas/check.ts";
import { PASSED_OVER, type PassedOver, type PlanAnswer, type PlanQuery } from "../schemas/route.ts";
import type { ListedEntry } from "../tables/entry.ts";
import type { View } from "../tables/view.ts";
import { buyOffer, type SaleContext } from "./eligible.ts";

type Candidate = PlanAnswer["candidates"][number];

/** The rule of ranking, as it is published. */
export const RULE =
  "The better letter first (A, B, C, D, then no letter); then the higher composite, which is a sum of lower bounds; then the lower price; then the shorter 95th percentile of latency, where it is known; then the url. Only endpoints whose calls this service would buy right now. Nobody pays for a place.";

/**
 * Most matching endpoints that are examined, the best first, so that a common word does not unpack every card.
 */
const MAX_LOOKED = 500;
/** Endpoints that are examined between two yields to the event loop. */
const AT_ONCE = 50;

/** Returns the published 95th percentile of latency in ms, from its method string (verification-method.md section 3), or null. */
function latencyOf({ components }: CheckFacts): number | null {
  const ms = /;p95_ms=(\d{1,7})(?:;|$)/.exec(components?.latency_p95.method ?? "")?.[1];
  return ms === undefined ? null : Number(ms);
}

/** Reports whether a band is at least as good as the query asks for. */
const minBand = (band: Candidate["band"], least: PlanQuery["min_band"]): boolean =>
  least === undefined || (band !== "UNRATED" && band <= least);

/** Compares one endpoint with a query. Returns a candidate whose reasons lack its rank, or why it is none. */
function candidateOf(
  view: View,
  entry: ListedEntry,
  query: PlanQuery,
  { baseUrl, seller, now }: PlanContext,
): Candidate | PassedOver {
  const facts = knownFacts(view, { url: entry.cap }, { cap: entry.cap, matched: "exact" }, now);
  if (!minBand(facts.band, query.min_band)) return "below_band";
  if (query.method !== undefined && entry.listing.method !== query.method) return "other_method";
  const buy = buyOffer(view, entry.cap, baseUrl, seller);
  if (!buy) return "not_sold";
  const { seller_price: price, fee, total } = buy;
  if (query.max_price !== undefined && parseMoney(price) > parseMoney(query.max_price)) return "too_dear";
  const latency_p95_ms = latencyOf(facts);
  if (query.max_latency_ms !== undefined && latency_p95_ms === null) return "latency_unknown";
  if (query.max_latency_ms !== undefined && latency_p95_ms! > query.max_latency_ms) return "too_slow";
  return {
    ...{ capability_id: entry.cap, url: entry.listing.url, method: buy.method as Candidate["method"] },
    ...{ class: entry.listing.class, description: entry.listing.description },
    ...{ band: facts.band, tier: facts.tier, composite: facts.composite, latency_p95_ms },
    ...{ price, fee, total, buy: buy.url, defects: facts.defects },
    ...{ retry: retryOf(view.row(entry.cap), now).verdict, reasons: [facts.why] },
  };
}

/** The keys of the rule in their order: `by` is above zero when `a` ranks behind `b`, and `behind` explains it. */
const KEYS: readonly { by: (a: Candidate, b: Candidate) => number; behind: string }[] = [
  { by: (a, b) => RANKED.indexOf(a.band) - RANKED.indexOf(b.band), behind: "its letter is better" },
  { by: (a, b) => (b.composite ?? -1) - (a.composite ?? -1), behind: "its composite is higher" },
  { by: (a, b) => Number(parseMoney(a.price) - parseMoney(b.price)), behind: "it costs less" },
  {
    by: (a, b) => (a.latency_p95_ms ?? 1e9) - (b.latency_p95_ms ?? 1e9),
    behind: "its latency is shorter, or known",
  },
  { by: (a, b) => (a.url < b.url ? -1 : a.url > b.url ? 1 : 0), behind: "its url is first in the alphabet" },
];

/** Returns the first key in which two candidates differ. */
const differ = (a: Candidate, b: Candidate) => KEYS.find(({ by }) => by(a, b) !== 0);

function ranked(candidates: Candidate[]): Candidate[] {
  const sorted = candidates.sort((a, b) => differ(a, b)?.by(a, b) ?? 0);
  return sorted.map((one, i) => {
    const before = sorted[i - 1];
    const place = before
      ? `Behind ${before.capability_id}: ${differ(one, before)?.behind ?? "both are alike"}.`
      : `First of ${sorted.length} that fit.`;
    return { ...one, reasons: [place, ...one.reasons] };
  });
}

export interface PlanContext {
  baseUrl: string;
  seller: SaleContext;
  now: Date;
}

/**
 * Finds and ranks endpoints for a need by {@link RULE}, from the view only, without a call to a seller.
 * @returns candidates with their reasons, and how many endpoints were passed over for each reason
 */
export async function routePlan(view: View, query: PlanQuery, context: PlanContext): Promise<PlanAnswer> {
  const fit: Candidate[] = [];
  const passed = new Map<PassedOver, number>();
  let count = 0;
  let more = false;
  for await (const entry of holding(view, { q: query.need, class: query.class })) {
    if (count === MAX_LOOKED) {
      more = true;
      break;
    }
    if (++count % AT_ONCE === 0) await turn();
    const found = candidateOf(view, entry, query, context);
    if (typeof found === "string") passed.set(found, (passed.get(found) ?? 0) + 1);
    else fit.push(found);
  }
  return {
    schema: "svc.route-plan.v1",
    need: query.need,
    rule: RULE,
    candidates: ranked(fit).slice(0, query.limit),
    passed_over: (Object.keys(PASSED_OVER) as PassedOver[])
      .filter((reason) => passed.has(reason))
      .map((reason) => ({ reason, says: PASSED_OVER[reason], count: passed.get(reason)! })),
    looked_at: count,
    more: more || fit.length > query.limit,
  };
}
