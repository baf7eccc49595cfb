import { METHOD_PAGE, type RunCard, type RunLine, type UnsignedCard, VERIFIER_VERSION } from "../record/card.ts";
import { rfc3339 } from "../record/time.ts";
import { FLAGS, type Flag } from "../record/vocabulary.ts";
import { componentOf, correctnessOf, type Figures, figuresOf } from "./components.ts";
import { CAP_NAMES, type Grade, gradeTier, headlineOf, longAgo, tiersOf, type WeightName } from "./letter.ts";
import { AFTER, DAY_MS, nextMonday, params, STREAKY_DEFF, windowStart } from "./params.ts";
import type { RelatedFlags } from "./related.ts";
import type { Sums } from "./sums.ts";
import { emptyWhy, whyParts } from "./why.ts";

/**
 * Conditions of one card (method, section 7), in the order in which flags are published. `held_14d` comes with the
 * hold, `records_withdrawn` and `stands_on_nothing` with an answer, so they are not decided here.
 */
function flagsOf(grade: Grade, sums: Sums, figures: Figures, related: RelatedFlags, now: number): Flag[] {
  const { caps, shown, tier } = grade;
  const bestButForTier = CAP_NAMES.every((name) => name === "by_tier" || caps[name] === 0);
  const raised: Partial<Record<Flag, boolean>> = {
    took_the_money: sums.theft !== null,
    money_pending: sums.pendingFirst !== null,
    refunded: sums.refunds > 0,
    refuses_payment: sums.signed > 0 && sums.settled === 0,
    early_fail: grade.early,
    capped_by_tier: tier === "DELIVERY_VERIFIED" && bestButForTier,
    deeper_tier_worse: caps.by_deeper > 0,
    recent_failures: caps.cusum_cap > 0,
    stale_paid: caps.by_stale > 0,
    stale: longAgo(sums.seenLast, AFTER.unseen, now) || longAgo(sums.paidLast, AFTER.unratedPaid, now),
    dark: caps.by_dark > 0,
    listing_mismatch: caps.by_mismatch > 0,
    pay_to_changed: sums.payToChanged,
    price_untested: caps.by_price > 0,
    dynamic_price: sums.dynamicPrice,
    no_schema_advertised: sums.served > 0 && !sums.parts.schema_conformance,
    no_example: sums.signed > 0 && sums.examples === 0,
    latency_unbounded: shown.latency_p95 === null,
    streaky: Object.values(shown).some((figure) => figure !== null && figure.deff >= STREAKY_DEFF),
    buyers_report_worse: sums.unconfirmed || Object.values(figures).some((figure) => figure?.below),
    blocks_prober: sums.walled,
    ...standing(sums, related),
  };
  return FLAGS.filter((flag) => raised[flag]);
}

/** What holds of an endpoint whether or not a row of it counts. */
function standing(sums: Sums, related: RelatedFlags): Partial<Record<Flag, boolean>> {
  return {
    disputed: sums.disputed,
    payee_took_the_money: related.payee,
    domain_took_the_money: related.domain,
  };
}

/** Flags of the card of an endpoint without a row that counts. */
function emptyFlags(sums: Sums, related: RelatedFlags): Flag[] {
  const raised = standing(sums, related);
  return FLAGS.filter((flag) => raised[flag]);
}

function momentsOf(now: Date) {
  const since = windowStart(now);
  return {
    since,
    window_days: Math.floor((now.getTime() - since.getTime()) / DAY_MS),
    window_start: rfc3339(since),
    computed_at: rfc3339(now),
  };
}

/** By the run's moment: dates are slow to print, and a run prints the same ones on every card. */
const moments = new WeakMap<Date, ReturnType<typeof momentsOf>>();
function commonOf(now: Date): ReturnType<typeof momentsOf> {
  const common = moments.get(now) ?? momentsOf(now);
  moments.set(now, common);
  return common;
}

/** What every card of a run has in common. */
function heading(sums: Sums, now: Date, version: string) {
  const { window_days, window_start, computed_at } = commonOf(now);
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

function componentsOf(grade: Grade): NonNullable<UnsignedCard["components"]> {
  const { shown } = grade;
  return {
    liveness: componentOf(shown.liveness),
    correctness: componentOf(shown.correctness, correctnessOf(grade.tier)),
    honesty: componentOf(shown.honesty),
    schema_conformance: componentOf(shown.schema_conformance),
    latency_p95: componentOf(shown.latency_p95),
    price_stability: componentOf(shown.price_stability),
  };
}

/** Weights of the parts that have a figure; never renormalised. */
const appliedWeights = (grade: Grade): Record<string, number> =>
  Object.fromEntries(Object.entries(params.weights).filter(([name]) => grade.shown[name as WeightName] !== null));

/** What the cards of one line are made with. */
interface Terms {
  related: RelatedFlags;
  now: Date;
  /** Of our checks: VERIFIER_VERSION, or that of a card which is recomputed. */
  version: string;
}

function cardOf(grade: Grade, sums: Sums, figures: Figures, { related, now, version }: Terms): RunCard {
  const binding = CAP_NAMES.filter((name) => grade.caps[name] > 0);
  return {
    card: {
      ...heading(sums, now, version),
      tier: grade.tier,
      band: grade.raw,
      composite: grade.composite,
      components: componentsOf(grade),
      weights_applied: appliedWeights(grade),
      flags: flagsOf(grade, sums, figures, related, now.getTime()),
    },
    raw_band: grade.raw,
    headline: grade.tier === headlineOf(figures),
    why: whyParts(grade, sums, figures, now, version),
    caps: Object.fromEntries(binding.map((name) => [name, grade.caps[name]])),
    progress: grade.progress,
  };
}

/** The card of an endpoint without a row that counts: it takes the place of the cards of all tiers. */
const emptyCard = (sums: Sums, { related, now, version }: Terms): RunCard => ({
  card: {
    ...heading(sums, now, version),
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
 * The earliest moment ahead at which a card changes by time alone (method, section 6). What is too old only after a
 * moment is still ahead in it: a run on the very stroke must come back.
 */
function dueAt(sums: Sums, now: Date): Date {
  const { liveLast, paidLast, seenLast, pendingFirst, theft } = sums;
  const after = (moment: number | null, ms: number) => (moment === null ? Number.NEGATIVE_INFINITY : moment + ms);
  const changesAfter = [
    after(liveLast, AFTER.dark),
    after(paidLast, AFTER.stalePaid),
    after(paidLast, AFTER.unratedPaid),
    after(seenLast, AFTER.unseen),
  ];
  const changesAt = [
    after(pendingFirst, AFTER.pendingTheft),
    after(theft?.last ?? null, AFTER.freshTheft),
    nextMonday(now).getTime(),
  ];
  const ahead = [
    ...changesAfter.filter((moment) => moment >= now.getTime()),
    ...changesAt.filter((moment) => moment > now.getTime()),
  ];
  return new Date(Math.min(...ahead));
}

/** A line of a run before its rows are digested. */
export type Undigested = Omit<RunLine, "inputs_digest">;

/** The line of one endpoint in a run: a card for each tier with a sample, deepest first. @param version of our checks */
export function undigestedOf(
  sums: Sums,
  related: RelatedFlags,
  now: Date,
  version: string = VERIFIER_VERSION,
): Undigested {
  const terms = { related, now, version };
  const figures = figuresOf(sums);
  const tiers = tiersOf(sums, figures);
  if (tiers.length === 0) return { cap: sums.cap, cards: [emptyCard(sums, terms)], due_at: null };
  return {
    cap: sums.cap,
    cards: tiers.map((tier) => cardOf(gradeTier(tier, sums, figures, now.getTime()), sums, figures, terms)),
    due_at: rfc3339(dueAt(sums, now)),
  };
}

/** The same with the digest of its rows. */
export const lineOf = (sums: Sums, related: RelatedFlags, digest: string, now: Date, version: string): RunLine => ({
  ...undigestedOf(sums, related, now, version),
  inputs_digest: digest,
});
