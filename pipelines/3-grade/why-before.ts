import { dayOf } from "../record/time.ts";
import { BANDS, type Band, type Tier } from "../record/vocabulary.ts";
import { round6 } from "./bounds.ts";
import { type Figure, type Figures, figuresOf } from "./components.ts";
import { CAP_NAMES, type CapName, type Grade, gradeTier, longAgo, progressOf } from "./letter.ts";
import { AFTER, params, windowStart } from "./params.ts";
import { type Endpoint, sumsOf } from "./pure.ts";
import type { Sums } from "./sums.ts";

/**
 * The sentence of cards that were published before it was written for people (method, section 8, the older form). A leaf is never
 * changed, so an auditor has to be able to make theirs again; nothing else does.
 */

const micros = (x: number): number => Math.round(x * 10 ** params.rounding.decimals);
const percent = (tenths: number): string => `${(tenths / 10).toFixed(1)} %`;
/** "92.8 %", never above the bound. */
const atLeast = (x: number | undefined): string => percent(Math.floor(micros(x ?? 0) / 1_000));
/** "59.9 %", never below the bound. */
const atMost = (x: number | undefined): string => percent(Math.ceil(micros(x ?? 1) / 1_000));
/** Three decimals, never above the composite: a letter's gate must not look reached when it is not. */
const threeDecimals = (x: number): string => (Math.floor(micros(x) / 1_000) / 1_000).toFixed(3);
const twoDecimals = (x: number): string => String(Math.floor(round6(x) * 100 + 0.5 + 1e-6) / 100);
const day = (ms: number | null): string => dayOf(new Date(ms ?? 0));
/** Money with at least two and at most six decimals. */
const money = (x: number | null): string => (x ?? 0).toFixed(6).replace(/0{1,4}$/, "");

/** The gate that this cap's letter failed: that of the letter above it. */
const failedGate = (gates: Partial<Record<string, number>>, cap: number): string =>
  (gates[BANDS[cap - 1] ?? "A"] ?? 0).toFixed(2);

function reasonOf(name: CapName, grade: Grade, sums: Sums, figures: Figures): string {
  switch (name) {
    case "by_composite":
      return `the composite is ${threeDecimals(grade.composite)}`;
    case "by_correctness":
      return `that bound is below ${failedGate(params.bands.correctness, grade.caps.by_correctness)}`;
    case "by_honesty":
      return `honesty is only shown to be at least ${atLeast(figures.honesty?.lower)}`;
    case "by_liveness":
      return `it is only shown to answer at least ${atLeast(figures.liveness?.lower)} of the time`;
    case "by_paid_honesty":
      return `paid exchanges are only shown to keep to the listing at least ${atLeast(figures.paid_honesty?.lower)} of the time`;
    case "by_tier":
      return "answers were delivered but not checked against truth";
    case "by_delivery":
      return `of all paid calls at least ${atLeast(figures.delivery?.lower)} are shown to deliver`;
    case "by_deeper":
      return `of the answers checked against truth at most ${atMost(figures.outcome?.upper)} were right`;
    case "by_ttm":
      return `a paid call settled and nothing came back on ${day(sums.theft?.last ?? null)}`;
    case "by_stale":
      return `the newest paid call is from ${day(sums.paidLast)}`;
    case "by_mismatch":
      return "its newest answer differs from its listing";
    case "by_dark":
      return sums.liveLast === null ? "it never answered" : `no answer since ${day(sums.liveLast)}`;
    case "by_price":
      return `it asks ${money(sums.priceNow)} now and we never paid more than ${money(sums.priceTested)}`;
    case "by_price_stability":
      return "its price moves too much";
    case "cusum_cap":
      return "recent paid calls failed";
  }
}

/** Reasons of what holds the raw letter down, early bad news first; none for an A and where there is no letter. */
function capReasons(grade: Grade, sums: Sums, figures: Figures): string[] {
  if (grade.raw === "UNRATED" || grade.raw === "A") return [];
  const letter = BANDS.indexOf(grade.raw);
  const early = grade.early ? [`at most ${atMost(grade.shown.correctness?.upper)} are correct`] : [];
  const binding = CAP_NAMES.filter((name) => grade.caps[name] === letter);
  return [...early, ...binding.map((name) => reasonOf(name, grade, sums, figures))];
}

/** Why there is no letter. */
function unratedReason(grade: Grade, sums: Sums, now: number): string {
  const needed = params.letter_min_effective_paid;
  const paid = progressOf(grade.shown.correctness?.w ?? 0, sums.settled);
  if (paid < needed) return `${paid} of ${needed} paid calls so far; unknown, not bad`;
  if (longAgo(sums.paidLast, AFTER.unratedPaid, now)) return `no paid call since ${day(sums.paidLast)}`;
  return `not seen since ${day(sums.seenLast)}`;
}

const figureText = (correctness: Figure | null, since: Date): string | null =>
  correctness &&
  `at least ${atLeast(correctness.lower)} correct with 95 % confidence at any time you look ` +
    `(${twoDecimals(correctness.s)} of ${twoDecimals(correctness.w)} blocks since ${dayOf(since)})`;

export interface PublishedBefore {
  /** After the hold, and before it: the caps are those of the raw letter. */
  band: Band;
  rawBand: Band;
  tier: Tier;
  composite: number;
  /** UTC day of the next possible rise, where the hold keeps the letter down. */
  heldUntil: string | null;
}

/** The older sentence of one card of an endpoint, made from its rows. */
export function whyBefore(endpoint: Endpoint, published: PublishedBefore, now: Date): string {
  const { band, rawBand, tier, composite, heldUntil } = published;
  const sums = sumsOf(endpoint, now);
  const figures = figuresOf(sums);
  const clauses: string[] = [];
  if (sums.seenLast === null) clauses.push(`UNRATED: ${emptyReason(sums.emptied)}`);
  else {
    const grade = gradeTier(tier, sums, figures, now.getTime());
    const letter = `${band} on ${tier}, composite ${threeDecimals(composite)}`;
    clauses.push(band === "UNRATED" ? `UNRATED: ${unratedReason(grade, sums, now.getTime())}` : letter);
    const figure = figureText(grade.shown.correctness, windowStart(now));
    if (figure) clauses.push(figure);
    for (const reason of capReasons(grade, sums, figures)) clauses.push(`no better than ${rawBand} because ${reason}`);
  }
  if (heldUntil !== null)
    clauses.push(`a letter rises only after ${params.hold_days} clean days, next possible ${heldUntil}`);
  return `${clauses.join("; ")}.`;
}

const emptyReason = (emptied: boolean): string =>
  emptied
    ? "every record it stood on was withdrawn"
    : `0 of ${params.letter_min_effective_paid} paid calls so far; unknown, not bad`;
