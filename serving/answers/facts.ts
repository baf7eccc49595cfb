import { NO_CARD_TEXT } from "../../pipelines/published/index-lines.ts";
import { MISSING_MEMBER_TEXT, type SignedCard } from "../../pipelines/record/card.ts";
import { addressKey } from "../../pipelines/record/networks.ts";
import { DAY_MS, rfc3339 } from "../../pipelines/record/time.ts";
import { type Band, FLAGS, type Flag, type Matched } from "../../pipelines/record/vocabulary.ts";
import type { VolatileRow } from "../../pipelines/record/volatile.ts";
import type { CheckFacts, CheckQuery, Observed, Payee } from "../schemas/check.ts";
import { defectsOf } from "../tables/defects.ts";
import { type Entry, leafOf } from "../tables/entry.ts";
import type { Match, ToolChoice } from "../tables/match.ts";
import { MAX_ORIGINS } from "../tables/payees.ts";
import type { ShownGrade } from "../tables/shown.ts";
import type { View } from "../tables/view.ts";
import { correctionsOf, type EndpointCorrections } from "./corrections.ts";
import { describeNearby, explainMatch, withNewestProbe } from "./hints.ts";
import { payToVerdict } from "./pay-to.ts";
import { ownFlags, type RelatedVerdict, relatedVerdict } from "./related.ts";
import { reproduceOf } from "./reproduce.ts";

/** Largest number of corrections in a check answer, the newest ones. The trust answer has all of them. */
const MAX_CORRECTIONS = 100;

const NOT_IN_RECORD = "UNRATED: not in the record; unknown, not bad.";
/** Sentence for a url that is not in the record although its payee or its domain took money. */
const NOT_ITSELF_IN_RECORD = "UNRATED: this url itself is not in the record.";

/** The grade of an endpoint, or the reason why it has none. */
interface Grade {
  band: Band;
  tier: CheckFacts["tier"];
  composite: number | null;
  /** The sentence that explains the grade. */
  why: string;
  components: SignedCard["components"];
  /** Absent when the card does not state it. */
  sampleCount?: number;
  /** When the card was computed, RFC 3339; null: there is no card, or it does not state it. */
  computedAt: string | null;
  /** Number of records behind the card that were withdrawn since. */
  withdrawnSince: number;
  /** Number of observations newer than the card. */
  observationsSince: number;
  flags: string[];
  /** The signed card as RFC 8785 text. */
  scorecard: string | null;
}

const orderFlags = (flags: Iterable<string>): string[] => {
  const set = new Set(flags);
  const known: string[] = FLAGS.filter((flag) => set.has(flag));
  return [...known, ...[...set].filter((flag) => !FLAGS.includes(flag as Flag))];
};

/**
 * Returns the grade as of now. When at least 20 % of the records behind the card are withdrawn, the letter becomes
 * UNRATED. If all are withdrawn, or the card had none, tier and composite are null too.
 */
function gradeOf(
  view: View,
  cap: string,
  entry: Entry | undefined,
  { disputed }: EndpointCorrections,
  now: Date,
): Grade {
  const shown = entry ? view.shownGrade(entry) : null;
  const { observations } = view.countsSince(cap, shown?.headline.leaf);
  if (!shown) {
    return {
      ...{ band: "UNRATED", tier: null, composite: null, why: NO_CARD_TEXT, components: null, sampleCount: 0 },
      ...{
        computedAt: null,
        withdrawnSince: 0,
        observationsSince: observations,
        flags: disputed ? ["disputed"] : [],
        scorecard: null,
      },
    };
  }
  const { headline, band, composite, withdrawn: withdrawnCount, isDoubtful } = shown;
  const { card } = leafOf(headline);
  const { sample_count: count } = card;
  const hasNoSamples = composite === null;
  const flags = [
    ...ownFlags(view, cap, card.flags ?? [], headline.leaf, now),
    ...(disputed ? ["disputed"] : []),
    ...(isDoubtful ? ["records_withdrawn"] : []),
    ...(withdrawnCount > 0 && hasNoSamples ? ["stands_on_nothing"] : []),
  ];
  return {
    band,
    tier: hasNoSamples ? null : card.tier,
    composite,
    why: shownWhy(shown),
    components: hasNoSamples ? null : card.components,
    ...(count === undefined ? {} : { sampleCount: count }),
    computedAt: card.computed_at ?? null,
    withdrawnSince: withdrawnCount,
    observationsSince: observations,
    flags,
    // The card was parsed from RFC 8785 text, and JSON.stringify keeps the order of its members, so this is that text
    // again.
    scorecard: JSON.stringify(card),
  };
}

/** Returns the sentence that explains a shown grade: the card's, or that too many of its records were withdrawn. */
export function shownWhy({ headline, isDoubtful, withdrawn }: ShownGrade): string {
  const { card, why } = leafOf(headline);
  return isDoubtful ? whyWithdrawn(withdrawn, card.sample_count) : why;
}

function whyWithdrawn(withdrawnCount: number, count: number | undefined): string {
  if (withdrawnCount === count) return "UNRATED: every record it stood on was withdrawn.";
  const all =
    count === undefined
      ? `records it stood on (their number is ${MISSING_MEMBER_TEXT})`
      : `${count} records it stood on`;
  return `UNRATED: ${withdrawnCount} of the ${all} were withdrawn; a new card follows.`;
}

/** Returns the facts about the query's pay_to: null without a pay_to; all counts 0 for an unknown address. */
const payeeOf = (view: View, query: CheckQuery): Payee | null =>
  query.pay_to === undefined ? null : view.payees.get(query.pay_to);

const moreCorrectionsHint = (cap: string, correctionCount: number): string =>
  `The newest ${MAX_CORRECTIONS} of ${correctionCount} corrections are shown; /v1/trust/${cap} has all of them.`;

/** Returns a hint that the answer names only some origins of a payee; null when it names all. */
function moreOriginsHint(view: View, { pay_to }: CheckQuery): string | null {
  const originCount = pay_to === undefined ? 0 : view.payees.countOrigins(pay_to);
  if (originCount <= MAX_ORIGINS) return null;
  return `The first ${MAX_ORIGINS} of the ${originCount} origins that pay ${pay_to} are named.`;
}

/** Largest number of tools that one answer names. */
const MAX_TOOLS = 20;

function toolHint(url: string, { answeredTool, others, unknownTool }: ToolChoice): string {
  const shownTools = others.slice(0, MAX_TOOLS).join(", ");
  const more = others.length > MAX_TOOLS ? ` and ${others.length - MAX_TOOLS} more` : "";
  return [
    ...(unknownTool === null ? [] : [`The record has no tool ${unknownTool} of this server.`]),
    `This is about the tool ${answeredTool}.`,
    ...(others.length > 0 ? [`Ask for another one as ${url}#NAME: ${shownTools}${more}.`] : []),
  ].join(" ");
}

const timeOf = (ms: number | null): string | null => (ms === null ? null : rfc3339(new Date(ms)));

/**
 * Returns what the free probes of an endpoint showed. `spanDays` is the time from the first probe to now, in days
 * with two decimals.
 */
export function observedOf(row: VolatileRow | undefined, now: Date): Observed {
  const span = row?.first_seen == null ? 0 : Math.max(0, now.getTime() - row.first_seen) / DAY_MS;
  return {
    probes: row?.probes ?? 0,
    answered: row?.answered ?? 0,
    askedForPayment: row?.asked_for_payment ?? 0,
    firstSeen: timeOf(row?.first_seen ?? null),
    lastSeen: timeOf(row?.last_seen ?? null),
    spanDays: Math.round(span * 100) / 100,
    advertised:
      row?.price == null || row.asset === null
        ? null
        : { amount: row.price, asset: row.asset, networks: [...row.networks] },
    distinctPrices: row?.distinct_prices ?? 0,
    protocols: row ? [...row.protocols] : [],
  };
}

/** Builds the answer about an endpoint in the record. The view must hold `match.cap`. */
export function knownFacts(view: View, query: CheckQuery, { cap, matched, tools }: Match, now: Date): CheckFacts {
  const entry = view.entry(cap);
  const row = view.row(cap);
  const url = entry?.listing?.url ?? row?.url ?? null;
  const method = entry?.listing?.method ?? row?.method ?? null;
  const endpointCorrections = correctionsOf(view, cap);
  const { band, tier, composite, why, ...grade } = gradeOf(view, cap, entry, endpointCorrections, now);
  const payToResult = query.pay_to === undefined ? null : payToVerdict(row, query.pay_to);
  const related = relatedVerdict(view, { cap, url, payTos: payTosOf(query, row), cardFlags: grade.flags }, now);
  const correctionCount = endpointCorrections.corrections.length;
  const next = [
    ...(tools && url !== null ? [toolHint(url, tools)] : []),
    ...(url !== null && method !== null ? explainMatch(view, query.url, { cap, matched }, { cap, url, method }) : []),
    ...(correctionCount > MAX_CORRECTIONS ? [moreCorrectionsHint(cap, correctionCount)] : []),
    moreOriginsHint(view, query),
  ].filter((says) => says !== null);
  return {
    band,
    tier,
    composite,
    // The warning about the payee comes first, since the letter tells nothing about another payee.
    why: withWarnings(payToResult?.says ?? null, related, withNewestProbe(why, row, grade.computedAt !== null)),
    asked: query.url,
    matched,
    defects: defectsOf(row, entry),
    capabilityId: cap,
    ...(url === null ? {} : { url }),
    components: grade.components,
    ...(grade.sampleCount === undefined ? {} : { sampleCount: grade.sampleCount }),
    computedAt: grade.computedAt,
    observationsSince: grade.observationsSince,
    withdrawnSince: grade.withdrawnSince,
    flags: orderFlags([...grade.flags, ...(payToResult?.flags ?? []), ...related.flags]),
    observed: observedOf(row, now),
    reproduce: url === null || method === null ? null : reproduceOf(method, url, row?.request),
    scorecard: grade.scorecard,
    corrections: endpointCorrections.corrections.slice(-MAX_CORRECTIONS),
    ...(next.length > 0 ? { next: next.join(" ") } : {}),
    payee: payeeOf(view, query),
  };
}

/**
 * What is known of a url or id that is not in the record: the normalised url (null for an id), and in `next` what the
 * client should do.
 */
export interface UnknownUrl {
  url: string | null;
  /** Whether the url was queued for a probe; left out for an id, since there is no url to probe. */
  queued?: boolean;
  next: string;
}

/** Builds the answer about a url or id that is not in the record. Its payee and its domain may be known. */
export function unknownFacts(view: View, query: CheckQuery, { url, queued, next }: UnknownUrl, now: Date): CheckFacts {
  const related = relatedVerdict(view, { cap: null, url, payTos: payTosOf(query, undefined), cardFlags: [] }, now);
  const { flags } = related;
  return {
    band: "UNRATED",
    tier: null,
    composite: null,
    why: withWarnings(null, related, flags.length > 0 ? NOT_ITSELF_IN_RECORD : NOT_IN_RECORD),
    asked: query.url,
    matched: "none" satisfies Matched,
    // There is no capability id, which would tell the method: without this member, the signed answer could be shown
    // as an answer about the other method.
    ...(query.method === undefined ? {} : { method: query.method }),
    defects: [],
    ...(flags.length > 0 ? { flags: orderFlags(flags) } : {}),
    ...(queued === undefined ? {} : { queued }),
    next: [url === null ? null : describeNearby(view, url), next, moreOriginsHint(view, query)]
      .filter((says) => says !== null)
      .join(" "),
    payee: payeeOf(view, query),
  };
}

/**
 * Returns the addresses to which a payment would go: the client's pay_to, and those in the newest 402 or else in the
 * seller's own listing. Earlier 402s, and addresses that others name, do not tell who would be paid now.
 */
function payTosOf({ pay_to }: CheckQuery, row: VolatileRow | undefined): string[] {
  const currentPayTos = row?.pay_tos.length ? row.pay_tos : (row?.pay_tos_listed ?? []);
  const all = pay_to === undefined ? currentPayTos : [pay_to, ...currentPayTos];
  return [...new Map(all.map((address) => [addressKey(address), address])).values()];
}

/** Puts the warnings against paying before the sentence of an answer. @param payToWarning `says` of a PayToVerdict */
function withWarnings(payToWarning: string | null, { says }: RelatedVerdict, why: string): string {
  const text = says.join("; ");
  const related = text === "" ? null : payToWarning === null ? `Do not pay yet: ${text}.` : `Besides, ${text}.`;
  return [payToWarning, related, why].filter((one) => one !== null).join(" ");
}
