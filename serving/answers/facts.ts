import { NO_CARD } from "../../pipelines/published/index-lines.ts";
import { MISSING_MEMBER_TEXT, type SignedCard } from "../../pipelines/record/card.ts";
import { addressKey } from "../../pipelines/record/networks.ts";
import { DAY_MS, rfc3339 } from "../../pipelines/record/time.ts";
import { type Band, FLAGS, type Flag, type Matched } from "../../pipelines/record/vocabulary.ts";
import type { VolatileRow } from "../../pipelines/record/volatile.ts";
import type { CheckFacts, CheckQuery, Observed, Payee } from "../schemas/check.ts";
import { defectsOf } from "../tables/defects.ts";
import { type Entry, headlineOf, leafOf } from "../tables/entry.ts";
import type { Match, ToolChoice } from "../tables/match.ts";
import { MAX_ORIGINS } from "../tables/payees.ts";
import type { View } from "../tables/view.ts";
import { correctionsOf, type EndpointCorrections } from "./corrections.ts";
import { aboutWords, nearWords, whyNow } from "./hints.ts";
import { payToVerdict } from "./pay-to.ts";
import { ownFlags, type RelatedVerdict, relatedVerdict } from "./related.ts";
import { reproduceOf } from "./reproduce.ts";

/** From this share of withdrawn records on, no letter is shown (grading-params.json, withdrawn). */
const WITHDRAWN_SHARE = 0.2;
/** Most corrections in a check answer, the newest ones; the trust answer has all of them. */
const MAX_CORRECTIONS = 100;

const NOT_IN_RECORD = "UNRATED: not in the record; unknown, not bad.";
/** For a url that is not in the record, but whose payee or domain took money. */
const NOT_ITSELF_IN_RECORD = "UNRATED: this url itself is not in the record.";

/** The grade of an endpoint, or why there is none. */
interface Grade {
  band: Band;
  tier: CheckFacts["tier"];
  composite: number | null;
  why: string;
  components: SignedCard["components"];
  /** Left out where the card does not have it. */
  sampleCount?: number;
  computedAt: string | null;
  withdrawnSince: number;
  observationsSince: number;
  flags: string[];
  scorecard: string | null;
}

const inOrder = (flags: Iterable<string>): string[] => {
  const set = new Set(flags);
  const known: string[] = FLAGS.filter((flag) => set.has(flag));
  return [...known, ...[...set].filter((flag) => !FLAGS.includes(flag as Flag))];
};

/**
 * The grade as of now. From 20 % of withdrawn records on the letter is UNRATED. If all are withdrawn, or the card had
 * none, there is no tier and no composite either.
 */
function gradeOf(view: View, cap: string, entry: Entry | undefined, { disputed }: EndpointCorrections): Grade {
  const headline = entry ? headlineOf(entry) : null;
  const { observations, withdrawn } = view.since(cap, headline?.leaf);
  if (!headline) {
    return {
      ...{ band: "UNRATED", tier: null, composite: null, why: NO_CARD, components: null, sampleCount: 0 },
      ...{
        computedAt: null,
        withdrawnSince: 0,
        observationsSince: observations,
        flags: disputed ? ["disputed"] : [],
        scorecard: null,
      },
    };
  }
  const { card, why } = leafOf(headline);
  const { sample_count: count } = card;
  const gone = count === undefined ? withdrawn : Math.min(withdrawn, count);
  const nothing = !headline.measured || gone === count;
  // A card that does not tell how many records it stands on may stand on withdrawn ones only.
  const doubtful = gone > 0 && (count === undefined || gone >= WITHDRAWN_SHARE * count);
  const flags = [
    ...ownFlags(view, cap, card.flags ?? [], headline.leaf),
    ...(disputed ? ["disputed"] : []),
    ...(doubtful ? ["records_withdrawn"] : []),
    ...(gone > 0 && nothing ? ["stands_on_nothing"] : []),
  ];
  return {
    band: doubtful ? "UNRATED" : card.band,
    tier: nothing ? null : card.tier,
    composite: nothing ? null : card.composite,
    why: doubtful ? withdrawnWhy(gone, count) : why,
    components: nothing ? null : card.components,
    ...(count === undefined ? {} : { sampleCount: count }),
    computedAt: card.computed_at ?? null,
    withdrawnSince: gone,
    observationsSince: observations,
    flags,
    // The leaf is RFC 8785 text, and JSON.stringify prints the members of its card as they were there.
    scorecard: JSON.stringify(card),
  };
}

function withdrawnWhy(gone: number, count: number | undefined): string {
  if (gone === count) return "UNRATED: every record it stood on was withdrawn.";
  const all =
    count === undefined
      ? `records it stood on (their number is ${MISSING_MEMBER_TEXT})`
      : `${count} records it stood on`;
  return `UNRATED: ${gone} of the ${all} were withdrawn; a new card follows.`;
}

/** Without a pay_to the payee is null; for an unknown one all its counts are 0. */
const payeeOf = (view: View, query: CheckQuery): Payee | null =>
  query.pay_to === undefined ? null : view.payees.get(query.pay_to);

const moreCorrections = (cap: string, all: number): string =>
  `The newest ${MAX_CORRECTIONS} of ${all} corrections are shown; /v1/trust/${cap} has all of them.`;

/** A hint that not all origins of a payee are shown; null when all are. */
function moreOrigins(view: View, { pay_to }: CheckQuery): string | null {
  const all = pay_to === undefined ? 0 : view.payees.origins(pay_to);
  if (all <= MAX_ORIGINS) return null;
  return `The first ${MAX_ORIGINS} of the ${all} origins that pay ${pay_to} are named.`;
}

/** Most tools that one answer names. */
const MAX_TOOLS = 20;

function whichTool(url: string, { about, others, missing }: ToolChoice): string {
  const named = others.slice(0, MAX_TOOLS).join(", ");
  const more = others.length > MAX_TOOLS ? ` and ${others.length - MAX_TOOLS} more` : "";
  return [
    ...(missing === null ? [] : [`The record has no tool ${missing} of this server.`]),
    `This is about the tool ${about}.`,
    ...(others.length > 0 ? [`Ask for another one as ${url}#NAME: ${named}${more}.`] : []),
  ].join(" ");
}

const timeOf = (ms: number | null): string | null => (ms === null ? null : rfc3339(new Date(ms)));

/**
 * Counts of free handshakes. `spanDays` is the time from the first handshake to now, rounded to a hundredth of a day.
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

/** The answer about an endpoint in the record. The view must have `match.cap`. */
export function knownFacts(view: View, query: CheckQuery, { cap, matched, tools }: Match, now: Date): CheckFacts {
  const entry = view.entry(cap);
  const row = view.row(cap);
  const url = entry?.listing?.url ?? row?.url ?? null;
  const method = entry?.listing?.method ?? row?.method ?? null;
  const corrected = correctionsOf(view, cap);
  const { band, tier, composite, why, ...grade } = gradeOf(view, cap, entry, corrected);
  const paid = query.pay_to === undefined ? null : payToVerdict(row, query.pay_to);
  const related = relatedVerdict(view, { cap, url, payTos: payTosOf(query, row), card: grade.flags }, now);
  const all = corrected.corrections.length;
  const next = [
    ...(tools && url !== null ? [whichTool(url, tools)] : []),
    ...(url !== null && method !== null ? aboutWords(view, query.url, { cap, matched }, { cap, url, method }) : []),
    ...(all > MAX_CORRECTIONS ? [moreCorrections(cap, all)] : []),
    moreOrigins(view, query),
  ].filter((says) => says !== null);
  return {
    band,
    tier,
    composite,
    // The payee's warning comes first: the letter tells nothing about another payee.
    why: withWarnings(paid?.says ?? null, related, whyNow(why, row, grade.computedAt !== null)),
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
    flags: inOrder([...grade.flags, ...(paid?.flags ?? []), ...related.flags]),
    observed: observedOf(row, now),
    reproduce: url === null || method === null ? null : reproduceOf(method, url, row?.request),
    scorecard: grade.scorecard,
    corrections: corrected.corrections.slice(-MAX_CORRECTIONS),
    ...(next.length > 0 ? { next: next.join(" ") } : {}),
    payee: payeeOf(view, query),
  };
}

/** What is known of an unknown url: its normalised form (null for an id), and what the client is told. */
export interface Unseen {
  url: string | null;
  /** Left out for an id: there is no url to probe. */
  queued?: boolean;
  next: string;
}

/** The answer about a url or id that is not in the record. Its payee and its domain may be known. */
export function unknownFacts(view: View, query: CheckQuery, { url, queued, next }: Unseen, now: Date): CheckFacts {
  const related = relatedVerdict(view, { cap: null, url, payTos: payTosOf(query, undefined), card: [] }, now);
  const { flags } = related;
  return {
    band: "UNRATED",
    tier: null,
    composite: null,
    why: withWarnings(null, related, flags.length > 0 ? NOT_ITSELF_IN_RECORD : NOT_IN_RECORD),
    asked: query.url,
    matched: "none" satisfies Matched,
    defects: [],
    ...(flags.length > 0 ? { flags: inOrder(flags) } : {}),
    ...(queued === undefined ? {} : { queued }),
    next: [url === null ? null : nearWords(view, url), next, moreOrigins(view, query)]
      .filter((says) => says !== null)
      .join(" "),
    payee: payeeOf(view, query),
  };
}

/**
 * Addresses to which a payment would go: the client's pay_to, and those that the newest 402 names, else the seller's
 * own listing. Earlier 402s, and addresses that others name, do not tell who would be paid now.
 */
function payTosOf({ pay_to }: CheckQuery, row: VolatileRow | undefined): string[] {
  const named = row?.pay_tos.length ? row.pay_tos : (row?.pay_tos_listed ?? []);
  const all = pay_to === undefined ? named : [pay_to, ...named];
  return [...new Map(all.map((address) => [addressKey(address), address])).values()];
}

/** The sentence of an answer, after the warnings against paying. */
function withWarnings(payTo: string | null, { says }: RelatedVerdict, why: string): string {
  const text = says.join("; ");
  const related = text === "" ? null : payTo === null ? `Do not pay yet: ${text}.` : `Besides, ${text}.`;
  return [payTo, related, why].filter((one) => one !== null).join(" ");
}
