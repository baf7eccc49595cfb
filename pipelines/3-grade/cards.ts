import type { RunCard, RunLine, UnsignedCard } from "../record/card.ts";
import { rfc3339 } from "../record/time.ts";
import { METHOD_PAGE, VERIFIER_VERSION } from "../record/verifier-version.ts";
import { FLAGS, type Flag } from "../record/vocabulary.ts";
import { correctnessPart, type Figures, figuresOf, toComponent } from "./components.ts";
import { CAP_NAMES, type Grade, gradeTier, headlineTier, isLongAgo, sampledTiers, type WeightName } from "./letter.ts";
import { CHANGE_DELAYS_MS, DAY_MS, nextMonday, params, STREAKY_DEFF, windowStart } from "./params.ts";
import type { RelatedFlags } from "./related.ts";
import type { Sums } from "./sums.ts";
import { emptyWhy, whyParts } from "./why.ts";

/**
 * Flags of one card (verification-method.md section 7), in the order in which they are published. Three flags are not
 * decided here: `held_14d` is added when the hold (hold.ts) is applied, `records_withdrawn` and `stands_on_nothing`
 * when a request is answered.
 */
function flagsOf(grade: Grade, sums: Sums, figures: Figures, related: RelatedFlags, now: number): Flag[] {
  const { caps, shownFigures, tier } = grade;
  const isTierOnlyCap = CAP_NAMES.every((name) => name === "by_tier" || caps[name] === 0);
  const raisedFlags: Partial<Record<Flag, boolean>> = {
    took_the_money: sums.theft !== null,
    money_pending: sums.pendingFirst !== null,
    refunded: sums.refunds > 0,
    refuses_payment: sums.signed > 0 && sums.settled === 0,
    early_fail: grade.isEarlyF,
    capped_by_tier: tier === "DELIVERY_VERIFIED" && isTierOnlyCap,
    deeper_tier_worse: caps.by_deeper > 0,
    recent_failures: caps.cusum_cap > 0,
    stale_paid: caps.by_stale > 0,
    stale:
      isLongAgo(sums.seenLast, CHANGE_DELAYS_MS.unseen, now) ||
      isLongAgo(sums.paidLast, CHANGE_DELAYS_MS.unratedPaid, now),
    dark: caps.by_dark > 0,
    listing_mismatch: caps.by_mismatch > 0,
    pay_to_changed: sums.payToChanged,
    price_untested: caps.by_price > 0,
    dynamic_price: sums.dynamicPrice,
    no_schema_advertised: sums.served > 0 && !sums.parts.schema_conformance,
    no_example: sums.signed > 0 && sums.examples === 0,
    latency_unbounded: shownFigures.latency_p95 === null,
    streaky: Object.values(shownFigures).some((figure) => figure !== null && figure.deff >= STREAKY_DEFF),
    buyers_report_worse: sums.unconfirmed || Object.values(figures).some((figure) => figure?.isAnyCallBelow),
    blocks_prober: sums.walled,
    ...lastingFlags(sums, related),
  };
  return FLAGS.filter((flag) => raisedFlags[flag]);
}

/** Flags that do not depend on whether an observation of the endpoint counts. */
function lastingFlags(sums: Sums, related: RelatedFlags): Partial<Record<Flag, boolean>> {
  return {
    disputed: sums.disputed,
    payee_took_the_money: related.payee,
    domain_took_the_money: related.domain,
  };
}

/** Flags of the card of an endpoint without an observation that counts. */
function emptyFlags(sums: Sums, related: RelatedFlags): Flag[] {
  const raisedFlags = lastingFlags(sums, related);
  return FLAGS.filter((flag) => raisedFlags[flag]);
}

function formatMoments(now: Date) {
  const since = windowStart(now);
  return {
    since,
    window_days: Math.floor((now.getTime() - since.getTime()) / DAY_MS),
    window_start: rfc3339(since),
    computed_at: rfc3339(now),
  };
}

/**
 * The times on a card as text, by the moment of the run. Formatting dates is slow, and all cards of a run have these
 * times in common.
 */
const momentsByRun = new WeakMap<Date, ReturnType<typeof formatMoments>>();
function cachedMoments(now: Date): ReturnType<typeof formatMoments> {
  const moments = momentsByRun.get(now) ?? formatMoments(now);
  momentsByRun.set(now, moments);
  return moments;
}

/** Members of a card that do not depend on its tier (how deeply its answers were checked). */
function commonMembers(sums: Sums, now: Date, version: string) {
  const { window_days, window_start, computed_at } = cachedMoments(now);
  return {
    schema: "svc.scorecard.v2",
    capability_id: sums.cap,
    weights_version: params.weights_version,
    sample_count: sums.counted,
    window_days,
    window_start,
    computed_at,
    evidence_sample: sums.evidence,
    method: METHOD_PAGE,
    verifier_version: version,
  } as const;
}

function createComponents(grade: Grade): NonNullable<UnsignedCard["components"]> {
  const { shownFigures } = grade;
  return {
    liveness: toComponent(shownFigures.liveness),
    correctness: toComponent(shownFigures.correctness, correctnessPart(grade.tier)),
    honesty: toComponent(shownFigures.honesty),
    schema_conformance: toComponent(shownFigures.schema_conformance),
    latency_p95: toComponent(shownFigures.latency_p95),
    price_stability: toComponent(shownFigures.price_stability),
  };
}

/** Weights of the components that have a figure. They are not renormalised to a sum of 1. */
const appliedWeights = (grade: Grade): Record<string, number> =>
  Object.fromEntries(
    Object.entries(params.weights).filter(([name]) => grade.shownFigures[name as WeightName] !== null),
  );

/** What is needed to make the cards of one endpoint, besides its sums. */
interface CardContext {
  related: RelatedFlags;
  now: Date;
  /** Version of our checks: VERIFIER_VERSION, or the version of an older card that is recomputed. */
  version: string;
}

function createCard(grade: Grade, sums: Sums, figures: Figures, { related, now, version }: CardContext): RunCard {
  const bindingCaps = CAP_NAMES.filter((name) => grade.caps[name] > 0);
  return {
    card: {
      ...commonMembers(sums, now, version),
      tier: grade.tier,
      band: grade.rawBand,
      composite: grade.composite,
      components: createComponents(grade),
      weights_applied: appliedWeights(grade),
      flags: flagsOf(grade, sums, figures, related, now.getTime()),
    },
    raw_band: grade.rawBand,
    headline: grade.tier === headlineTier(figures),
    why: whyParts(grade, sums, figures, now, version),
    caps: Object.fromEntries(bindingCaps.map((name) => [name, grade.caps[name]])),
    progress: grade.progress,
  };
}

/** The card of an endpoint without an observation that counts. It is the endpoint's only card. */
const createEmptyCard = (sums: Sums, { related, now, version }: CardContext): RunCard => ({
  card: {
    ...commonMembers(sums, now, version),
    tier: "LIVENESS_VERIFIED",
    band: "UNRATED",
    composite: 0,
    components: null,
    weights_applied: {},
    flags: emptyFlags(sums, related),
  },
  raw_band: "UNRATED",
  headline: true,
  why: emptyWhy(sums.emptied),
  caps: {},
  progress: 0,
});

/**
 * The next moment at which a card changes without a new observation (verification-method.md section 6). A limit in
 * `changesAfter` is exceeded only after its moment. Such a moment that equals `now` is therefore still to come.
 */
function dueAt(sums: Sums, now: Date): Date {
  const { liveLast, paidLast, seenLast, pendingFirst, theft } = sums;
  const addTo = (moment: number | null, ms: number) => (moment === null ? Number.NEGATIVE_INFINITY : moment + ms);
  const changesAfter = [
    addTo(liveLast, CHANGE_DELAYS_MS.dark),
    addTo(paidLast, CHANGE_DELAYS_MS.stalePaid),
    addTo(paidLast, CHANGE_DELAYS_MS.unratedPaid),
    addTo(seenLast, CHANGE_DELAYS_MS.unseen),
  ];
  const changesAt = [
    addTo(pendingFirst, CHANGE_DELAYS_MS.pendingTheft),
    addTo(theft?.last ?? null, CHANGE_DELAYS_MS.freshTheft),
    nextMonday(now).getTime(),
  ];
  const futureMoments = [
    ...changesAfter.filter((moment) => moment >= now.getTime()),
    ...changesAt.filter((moment) => moment > now.getTime()),
  ];
  return new Date(Math.min(...futureMoments));
}

/**
 * A line of a run (the result of grading one endpoint) without `inputs_digest`, which is computed later from the
 * endpoint's rows.
 */
export type LineWithoutDigest = Omit<RunLine, "inputs_digest">;

/**
 * Makes the line of one endpoint in a run: a card for each tier with a sample, the deepest tier first.
 * @param version version of our checks that the cards name
 */
export function gradeLine(
  sums: Sums,
  related: RelatedFlags,
  now: Date,
  version: string = VERIFIER_VERSION,
): LineWithoutDigest {
  const context = { related, now, version };
  const figures = figuresOf(sums);
  const tiers = sampledTiers(sums, figures);
  if (tiers.length === 0) return { cap: sums.cap, cards: [createEmptyCard(sums, context)], due_at: null };
  return {
    cap: sums.cap,
    cards: tiers.map((tier) => createCard(gradeTier(tier, sums, figures, now.getTime()), sums, figures, context)),
    due_at: rfc3339(dueAt(sums, now)),
  };
}

/** Makes a line as {@link gradeLine} does, with the digest of the endpoint's rows. */
export const gradeLineWithDigest = (
  sums: Sums,
  related: RelatedFlags,
  digest: string,
  now: Date,
  version: string,
): RunLine => ({
  ...gradeLine(sums, related, now, version),
  inputs_digest: digest,
});
