import { callsUnreadableAnswersSilent, type WhyParts } from "../record/card.ts";
import { BANDS, type Band, type Tier } from "../record/vocabulary.ts";
import { round6 } from "./bounds.ts";
import type { Figure, Figures } from "./components.ts";
import { type CapName, type Grade, longAgo, progressOf, type WeightName } from "./letter.ts";
import { AFTER, params } from "./params.ts";
import type { Sums } from "./sums.ts";

/**
 * The sentence that explains a card to people: the verdict, its cause, then the figures (method, section 8). It is published in
 * the leaf of the card; every answer copies it from there.
 */

const micros = (x: number): number => Math.round(x * 10 ** params.rounding.decimals);
const percent = (tenths: number): string => `${(tenths / 10).toFixed(1)} %`;
/** "92.8 %", never above the bound. */
const atLeast = (x: number | undefined): string => percent(Math.floor(micros(x ?? 0) / 1_000));
/** "59.9 %", never below the bound. */
const atMost = (x: number | undefined): string => percent(Math.ceil(micros(x ?? 1) / 1_000));
/** Three decimals, never above the composite: a letter's gate must not look reached when it is not. */
const threeDecimals = (x: number): string => (Math.floor(micros(x) / 1_000) / 1_000).toFixed(3);
/** Money with at least two and at most six decimals. */
const money = (x: number | null): string =>
  round6(x ?? 0)
    .toFixed(6)
    .replace(/0{1,4}$/, "");

const MONTHS = [
  ...["January", "February", "March", "April", "May", "June", "July"],
  ...["August", "September", "October", "November", "December"],
];
/** "14 October 2026", UTC. */
function dateOf(moment: number | Date): string {
  const at = new Date(moment);
  return `${at.getUTCDate()} ${MONTHS[at.getUTCMonth()]} ${at.getUTCFullYear()}`;
}

/** "1,038 probes", "1 probe". */
const count = (n: number, one: string): string => `${n.toLocaleString("en-US")} ${one}${n === 1 ? "" : "s"}`;

const since = (moment: number | null): string => (moment === null ? "" : ` since ${dateOf(moment)}`);

/** Parts as the subject of a sentence. */
const PART_WORDS: Record<WeightName, string> = {
  correctness: "the correctness of its answers",
  honesty: "its honesty",
  liveness: "its liveness",
  schema_conformance: "its schema conformance",
  price_stability: "the stability of its price",
  latency_p95: "its latency",
};
/** What it means that a part has no figure. */
const PART_MISSING: Partial<Record<WeightName, string>> = {
  schema_conformance: "none of its answers could be held against a schema",
  latency_p95: "too few calls were timed",
};
/** From here on nearly every call was good, and more of them are all that is missing. */
const GOOD = 0.97;

/** The part that takes most from the composite, by name, and whether its calls or their number do. */
function pulledDown({ shown, composite }: Grade): string {
  const lost = (name: WeightName): number => params.weights[name] * (1 - (shown[name]?.lower ?? 0));
  const names = Object.keys(shown) as WeightName[];
  const worst = names.reduce((most, name) => (lost(name) > lost(most) ? name : most));
  const figure = shown[worst];
  const down = `${PART_WORDS[worst]} pulls the composite down to ${threeDecimals(composite)}`;
  if (!figure) return `${down}: ${PART_MISSING[worst] ?? "nothing of it was measured"}`;
  if (figure.point >= GOOD) return `${down}: ${atLeast(figure.lower)} is shown so far, and more calls would show more`;
  return `${down}: ${atLeast(figure.lower)} is shown, and ${percent(Math.round(micros(figure.point) / 1_000))} was seen`;
}

/** What became of money that settled and brought nothing. */
function taken({ theft, settled }: Sums): string {
  const { calls, sum, last } = theft!;
  const of = calls === settled ? count(calls, "paid call") : `${calls} of ${count(settled, "paid call")}`;
  return `it took ${money(sum)} in ${of} and answered nothing, last on ${dateOf(last)}`;
}

/** That no probe of it got a 402 or a free answer, or none since which day, in the words of a version of our checks. */
function unanswered({ liveLast, counted, seenFirst }: Sums, version: string): string {
  const probes = `${count(counted, "probe")}${since(seenFirst)}`;
  if (callsUnreadableAnswersSilent(version)) {
    return liveLast === null ? `it never answered in ${probes}` : `it last answered on ${dateOf(liveLast)}`;
  }
  return liveLast === null
    ? `${probes} got no readable 402 in time`
    : `its last good answer to a probe was on ${dateOf(liveLast)}`;
}

/** Said once of all bounds that are low for want of calls alone. */
const FEW = "its calls went well, and too few were made to show more";

/** Whether what a cap goes by went well: then only its bound is low. */
function wentWell(name: CapName, { shown }: Grade, figures: Figures): boolean {
  const by: Partial<Record<CapName, Figure | null>> = {
    by_correctness: shown.correctness,
    by_delivery: figures.delivery,
    by_honesty: figures.honesty,
    by_paid_honesty: figures.paid_honesty,
    by_liveness: figures.liveness,
  };
  return (by[name]?.point ?? 0) >= GOOD;
}

function reasonOf(name: CapName, grade: Grade, sums: Sums, figures: Figures, version: string): string {
  switch (name) {
    case "by_composite":
      return pulledDown(grade);
    case "by_correctness":
      return "too many of its answers were wrong or missing";
    case "by_honesty":
      return `what it asks is only shown to keep to its own listing at least ${atLeast(figures.honesty?.lower)} of the time`;
    case "by_liveness":
      return `it is only shown to answer at least ${atLeast(figures.liveness?.lower)} of the time`;
    case "by_paid_honesty":
      return `what it asks of those who pay is only shown to keep to its listing at least ${atLeast(figures.paid_honesty?.lower)} of the time`;
    case "by_tier":
      return "its answers came, but could not be checked against a known truth";
    case "by_delivery":
      return `only ${atLeast(figures.delivery?.lower)} of all paid calls are shown to bring an answer`;
    case "by_deeper":
      return `of the answers checked against a known truth at most ${atMost(figures.outcome?.upper)} were right`;
    case "by_ttm":
      return taken(sums);
    case "by_stale":
      return `its newest paid call is from ${dateOf(sums.paidLast ?? 0)}`;
    case "by_mismatch":
      return "its newest 402 asks for something else than its own listing says";
    case "by_dark":
      return unanswered(sums, version);
    case "by_price":
      return `it asks ${money(sums.priceNow)} now, and we never paid more than ${money(sums.priceTested)}`;
    case "by_price_stability":
      return "its price moves too much";
    case "cusum_cap":
      return "its newest paid calls failed one after the other";
  }
}

/** Caps in the order in which people want to hear of them: what it did, what it does now, what is only not shown yet. */
const TOLD: readonly CapName[] = [
  ...(["by_ttm", "by_dark", "cusum_cap", "by_mismatch", "by_price", "by_price_stability"] as const),
  ...(["by_correctness", "by_delivery", "by_deeper", "by_honesty", "by_paid_honesty", "by_liveness"] as const),
  ...(["by_tier", "by_stale", "by_composite"] as const),
];
/** A verdict has one cause, and two more at most stand behind it. */
const MOST_CAUSES = 3;

/** Why the raw letter is no better, each cause once. Empty for an A, and where there is no letter. */
function causesOf(grade: Grade, sums: Sums, figures: Figures, version: string): string[] {
  if (grade.raw === "UNRATED" || grade.raw === "A") return [];
  const letter = BANDS.indexOf(grade.raw);
  const binding = TOLD.filter((name) => grade.caps[name] === letter);
  const isTold = (name: CapName): boolean => binding.includes(name);
  const again: Partial<Record<CapName, boolean>> = {
    by_correctness: grade.early,
    by_delivery: isTold("by_correctness"),
    by_composite: binding.length > 1 || grade.early,
    by_liveness: sums.liveLast === null,
    by_honesty: sums.liveLast === null,
  };
  const told = binding.filter((name) => !again[name]);
  const causeOf = (name: CapName) =>
    wentWell(name, grade, figures) ? FEW : reasonOf(name, grade, sums, figures, version);
  const reasons = [...new Set(told.map(causeOf))];
  if (grade.early) {
    const early = `at most ${atMost(grade.shown.correctness?.upper)} of its answers are right`;
    reasons.splice(told[0] === "by_ttm" ? 1 : 0, 0, early);
  }
  return reasons.slice(0, MOST_CAUSES);
}

/** Why there is no letter. */
function unratedReason(grade: Grade, sums: Sums, now: number, version: string): string {
  const needed = params.letter_min_effective_paid;
  const paid = progressOf(grade.shown.correctness?.w ?? 0, sums.settled);
  const soFar = `${paid} of ${needed} paid calls so far; unknown, not bad`;
  if (sums.liveLast === null)
    return `${unanswered(sums, version)}${sums.signed === 0 ? ", so nobody has paid it" : ""}`;
  if (grade.caps.by_dark > 0 && paid < needed)
    return `${unanswered(sums, version)}; ${paid} of ${needed} paid calls so far`;
  if (sums.signed > 0 && sums.settled === 0)
    return `none of ${count(sums.signed, "payment")} offered to it settled; ${soFar}`;
  if (paid < needed) return soFar;
  if (longAgo(sums.paidLast, AFTER.unratedPaid, now)) return `no paid call since ${dateOf(sums.paidLast ?? 0)}`;
  return `not seen since ${dateOf(sums.seenLast ?? 0)}`;
}

const CHECKED: Record<Tier, string> = {
  OUTCOME_VERIFIED: "of its answers are shown to be right",
  DELIVERY_VERIFIED: "of its paid calls are shown to deliver",
  LIVENESS_VERIFIED: "",
};

/** A bound that would be printed as 0.0 % is left out. */
const WORTH_SAYING = 0.001;

function figuresOf({ tier, shown, composite, raw }: Grade, { signed, settled, paidFirst }: Sums): string[] {
  const correctness: Figure | null = settled > 0 ? shown.correctness : null;
  const calls = `${count(signed, "paid call")}${since(paidFirst)}`;
  return [
    ...(correctness && correctness.lower >= WORTH_SAYING
      ? [`at least ${atLeast(correctness.lower)} ${CHECKED[tier]} (${calls}, 95 % confidence)`]
      : []),
    ...(raw === "UNRATED" ? [] : [`composite ${threeDecimals(composite)}`]),
  ];
}

/** The parts of `why` that a run knows (method, section 8). @param version of our checks (record/card, callsSilent) */
export const whyParts = (grade: Grade, sums: Sums, figures: Figures, now: Date, version: string): WhyParts => ({
  causes: causesOf(grade, sums, figures, version),
  unrated: grade.raw === "UNRATED" ? unratedReason(grade, sums, now.getTime(), version) : null,
  figures: figuresOf(grade, sums),
});

/** Parts of the card that stands on no row. @param emptied a correction withdrew what it stood on */
export const emptyWhy = (emptied: boolean): WhyParts => ({
  causes: [],
  unrated: emptied
    ? "every record it stood on was withdrawn"
    : `0 of ${params.letter_min_effective_paid} paid calls so far; unknown, not bad`,
  figures: [],
});

export interface Published {
  /** After the hold. */
  band: Band;
  /** Before it, where that is another one: the causes are those of the raw letter. */
  rawBand?: Band;
  parts: WhyParts;
  /** UTC day of the next possible rise, where the hold keeps the letter down. */
  heldUntil: string | null;
}

const ALL_WELL = "it delivers, its answers are right, and it keeps to its listing";

/** Verdict and causes, without the letter. */
function verdict({ band, rawBand = band, parts, heldUntil }: Published): string {
  const causes = parts.causes.join("; ");
  if (band === rawBand || rawBand === "UNRATED") return causes || parts.unrated || ALL_WELL;
  const now = `what it does now would earn ${rawBand}${causes ? ` (${causes})` : ""}`;
  if (heldUntil === null) return `the letter of the endpoint's first card stands; ${now}`;
  return `a worse letter of the last ${params.hold_days} days stands until ${dateOf(Date.parse(heldUntil))} at least; ${now}`;
}

const begun = (text: string): string => `${text[0]!.toUpperCase()}${text.slice(1)}`;

/**
 * The sentence of a card (method, section 8).
 * @throws TypeError where the parts give no reason for having no letter: a sentence without one would explain nothing.
 */
export function whyText(published: Published): string {
  const { band, parts } = published;
  if (band === "UNRATED" && parts.unrated === null) throw new TypeError("why: UNRATED without a reason");
  const sentence = band === "UNRATED" ? parts.unrated! : verdict(published);
  const figures = parts.figures.length > 0 ? ` ${begun(parts.figures.join("; "))}.` : "";
  return `${band}: ${sentence}.${figures}`;
}
