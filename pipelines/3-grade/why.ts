import type { WhyParts } from "../record/card.ts";
import { countsUnreadableAsSilent } from "../record/verifier-version.ts";
import { BANDS, type Band, type Tier } from "../record/vocabulary.ts";
import { round6 } from "./bounds.ts";
import type { Figure, Figures } from "./components.ts";
import { type CapName, type Grade, isLongAgo, paidProgress, type WeightName } from "./letter.ts";
import { CHANGE_DELAYS_MS, params } from "./params.ts";
import type { Sums } from "./sums.ts";

/**
 * Makes the sentence that explains a card to people: the verdict, its causes, then the figures (verification-method.md
 * section 8). It is published in the card's leaf; every answer copies it from there.
 */

/** A share or an amount in millionths. */
const micros = (x: number): number => Math.round(x * 10 ** params.rounding.decimals);
const percent = (tenths: number): string => `${(tenths / 10).toFixed(1)} %`;
/** A lower bound as text, such as "92.8 %", rounded down. */
const lowerBoundText = (x: number | undefined): string => percent(Math.floor(micros(x ?? 0) / 1_000));
/** An upper bound as text, such as "59.9 %", rounded up. */
const upperBoundText = (x: number | undefined): string => percent(Math.ceil(micros(x ?? 1) / 1_000));
/**
 * The composite with three decimals, rounded down, so that it never looks as if it reached a letter's gate when it did
 * not.
 */
const threeDecimals = (x: number): string => (Math.floor(micros(x) / 1_000) / 1_000).toFixed(3);
/** Money with at least two and at most six decimals. */
const moneyText = (x: number | null): string =>
  round6(x ?? 0)
    .toFixed(6)
    .replace(/0{1,4}$/, "");

const MONTHS = [
  ...["January", "February", "March", "April", "May", "June", "July"],
  ...["August", "September", "October", "November", "December"],
];
/** A UTC date as text, such as "14 October 2026". */
function dateOf(moment: number | Date): string {
  const date = new Date(moment);
  return `${date.getUTCDate()} ${MONTHS[date.getUTCMonth()]} ${date.getUTCFullYear()}`;
}

/** A count as text, such as "1,038 probes" or "1 probe". */
const countText = (n: number, noun: string): string => `${n.toLocaleString("en-US")} ${noun}${n === 1 ? "" : "s"}`;

const sinceText = (moment: number | null): string => (moment === null ? "" : ` since ${dateOf(moment)}`);

/** Names of components as the subject of a sentence. */
const PART_SUBJECTS: Record<WeightName, string> = {
  correctness: "the correctness of its answers",
  honesty: "its honesty",
  liveness: "its liveness",
  schema_conformance: "its schema conformance",
  price_stability: "the stability of its price",
  latency_p95: "its latency",
};
/** The reason why a component has no figure. */
const MISSING_PART_REASONS: Partial<Record<WeightName, string>> = {
  schema_conformance: "none of its answers could be held against a schema",
  latency_p95: "too few calls were timed",
};
/** A point estimate of at least this means that nearly all calls went well, and only their number is too small. */
const GOOD_POINT = 0.97;

/** Names the component that lowers the composite most, and whether the reason is bad calls or too few calls. */
function describeComposite({ shownFigures, composite }: Grade): string {
  const compositeLoss = (name: WeightName): number => params.weights[name] * (1 - (shownFigures[name]?.lower ?? 0));
  const names = Object.keys(shownFigures) as WeightName[];
  const worstPart = names.reduce((worstSoFar, name) =>
    compositeLoss(name) > compositeLoss(worstSoFar) ? name : worstSoFar,
  );
  const figure = shownFigures[worstPart];
  const compositeClause = `${PART_SUBJECTS[worstPart]} pulls the composite down to ${threeDecimals(composite)}`;
  if (!figure) return `${compositeClause}: ${MISSING_PART_REASONS[worstPart] ?? "nothing of it was measured"}`;
  if (figure.point >= GOOD_POINT)
    return `${compositeClause}: ${lowerBoundText(figure.lower)} is shown so far, and more calls would show more`;
  return `${compositeClause}: ${lowerBoundText(figure.lower)} is shown, and ${percent(Math.round(micros(figure.point) / 1_000))} was seen`;
}

/** Describes the payments that settled and got no answer. */
function describeTheft({ theft, settled }: Sums): string {
  const { calls, sum, last } = theft!;
  const callsText =
    calls === settled ? countText(calls, "paid call") : `${calls} of ${countText(settled, "paid call")}`;
  return `it took ${moneyText(sum)} in ${callsText} and answered nothing, last on ${dateOf(last)}`;
}

/**
 * Describes that no probe got a 402 or a free answer, ever or since a day, in the words of the given version of our
 * checks.
 */
function describeSilence({ liveLast, counted, seenFirst }: Sums, version: string): string {
  const probes = `${countText(counted, "probe")}${sinceText(seenFirst)}`;
  if (countsUnreadableAsSilent(version)) {
    return liveLast === null ? `it never answered in ${probes}` : `it last answered on ${dateOf(liveLast)}`;
  }
  return liveLast === null
    ? `${probes} got no readable 402 in time`
    : `its last good answer to a probe was on ${dateOf(liveLast)}`;
}

/** The cause that is given once for all bounds that are low only because there were few calls. */
const FEW_CALLS = "its calls went well, and too few were made to show more";

/**
 * Reports whether the calls went well that a cap (a rule that limits the letter) depends on. If they did, the cap
 * applies only because there were few of them.
 */
function didCallsGoWell(name: CapName, { shownFigures }: Grade, figures: Figures): boolean {
  const figureByCap: Partial<Record<CapName, Figure | null>> = {
    by_correctness: shownFigures.correctness,
    by_delivery: figures.delivery,
    by_honesty: figures.honesty,
    by_paid_honesty: figures.paid_honesty,
    by_liveness: figures.liveness,
  };
  return (figureByCap[name]?.point ?? 0) >= GOOD_POINT;
}

function describeCap(name: CapName, grade: Grade, sums: Sums, figures: Figures, version: string): string {
  switch (name) {
    case "by_composite":
      return describeComposite(grade);
    case "by_correctness":
      return "too many of its answers were wrong or missing";
    case "by_honesty":
      return `what it asks is only shown to keep to its own listing at least ${lowerBoundText(figures.honesty?.lower)} of the time`;
    case "by_liveness":
      return `it is only shown to answer at least ${lowerBoundText(figures.liveness?.lower)} of the time`;
    case "by_paid_honesty":
      return `what it asks of those who pay is only shown to keep to its listing at least ${lowerBoundText(figures.paid_honesty?.lower)} of the time`;
    case "by_tier":
      return "its answers came, but could not be checked against a known truth";
    case "by_delivery":
      return `only ${lowerBoundText(figures.delivery?.lower)} of all paid calls are shown to bring an answer`;
    case "by_deeper":
      return `of the answers checked against a known truth at most ${upperBoundText(figures.outcome?.upper)} were right`;
    case "by_ttm":
      return describeTheft(sums);
    case "by_stale":
      return `its newest paid call is from ${dateOf(sums.paidLast ?? 0)}`;
    case "by_mismatch":
      return "its newest 402 asks for something else than its own listing says";
    case "by_dark":
      return describeSilence(sums, version);
    case "by_price":
      return `it asks ${moneyText(sums.priceNow)} now, and we never paid more than ${moneyText(sums.priceTested)}`;
    case "by_price_stability":
      return "its price moves too much";
    case "cusum_cap":
      return "its newest paid calls failed one after the other";
  }
}

/**
 * Caps in the order in which their causes are given, the most important for a reader first: what the endpoint did, its
 * current state, then what is not shown yet.
 */
const CAP_ORDER: readonly CapName[] = [
  ...(["by_ttm", "by_dark", "cusum_cap", "by_mismatch", "by_price", "by_price_stability"] as const),
  ...(["by_correctness", "by_delivery", "by_deeper", "by_honesty", "by_paid_honesty", "by_liveness"] as const),
  ...(["by_tier", "by_stale", "by_composite"] as const),
];
/** Largest number of causes that the sentence names. */
const MAX_CAUSES = 3;

/** Returns why the letter before the hold (hold.ts) is not better, each cause once. Empty for an A and for UNRATED. */
function listCauses(grade: Grade, sums: Sums, figures: Figures, version: string): string[] {
  if (grade.rawBand === "UNRATED" || grade.rawBand === "A") return [];
  const letter = BANDS.indexOf(grade.rawBand);
  const bindingCaps = CAP_ORDER.filter((name) => grade.caps[name] === letter);
  const isBinding = (name: CapName): boolean => bindingCaps.includes(name);
  // Caps that are not named, since another cause expresses them. The composite is named only if no other cap binds.
  const isRepeated: Partial<Record<CapName, boolean>> = {
    by_correctness: grade.isEarlyF,
    by_delivery: isBinding("by_correctness"),
    by_composite: bindingCaps.length > 1 || grade.isEarlyF,
    by_liveness: sums.liveLast === null,
    by_honesty: sums.liveLast === null,
  };
  const namedCaps = bindingCaps.filter((name) => !isRepeated[name]);
  const causeOf = (name: CapName) =>
    didCallsGoWell(name, grade, figures) ? FEW_CALLS : describeCap(name, grade, sums, figures, version);
  const reasons = [...new Set(namedCaps.map(causeOf))];
  if (grade.isEarlyF) {
    const earlyReason = `at most ${upperBoundText(grade.shownFigures.correctness?.upper)} of its answers are right`;
    reasons.splice(namedCaps[0] === "by_ttm" ? 1 : 0, 0, earlyReason);
  }
  return reasons.slice(0, MAX_CAUSES);
}

/** Describes why there is no letter. */
function describeUnrated(grade: Grade, sums: Sums, now: number, version: string): string {
  const callsNeeded = params.letter_min_effective_paid;
  const paidCalls = paidProgress(grade.shownFigures.correctness?.w ?? 0, sums.settled);
  const progressText = `${paidCalls} of ${callsNeeded} paid calls so far; unknown, not bad`;
  if (sums.liveLast === null)
    return `${describeSilence(sums, version)}${sums.signed === 0 ? ", so nobody has paid it" : ""}`;
  if (grade.caps.by_dark > 0 && paidCalls < callsNeeded)
    return `${describeSilence(sums, version)}; ${paidCalls} of ${callsNeeded} paid calls so far`;
  if (sums.signed > 0 && sums.settled === 0)
    return `none of ${countText(sums.signed, "payment")} offered to it settled; ${progressText}`;
  if (paidCalls < callsNeeded) return progressText;
  if (isLongAgo(sums.paidLast, CHANGE_DELAYS_MS.unratedPaid, now))
    return `no paid call since ${dateOf(sums.paidLast ?? 0)}`;
  return `not seen since ${dateOf(sums.seenLast ?? 0)}`;
}

const CORRECTNESS_WORDS: Record<Tier, string> = {
  OUTCOME_VERIFIED: "of its answers are shown to be right",
  DELIVERY_VERIFIED: "of its paid calls are shown to deliver",
  LIVENESS_VERIFIED: "",
};

/** A lower bound below this would be printed as 0.0 % and is left out. */
const MIN_PRINTED_BOUND = 0.001;

function describeFigures(
  { tier, shownFigures, composite, rawBand }: Grade,
  { signed, settled, paidFirst }: Sums,
): string[] {
  const correctness: Figure | null = settled > 0 ? shownFigures.correctness : null;
  const calls = `${countText(signed, "paid call")}${sinceText(paidFirst)}`;
  return [
    ...(correctness && correctness.lower >= MIN_PRINTED_BOUND
      ? [`at least ${lowerBoundText(correctness.lower)} ${CORRECTNESS_WORDS[tier]} (${calls}, 95 % confidence)`]
      : []),
    ...(rawBand === "UNRATED" ? [] : [`composite ${threeDecimals(composite)}`]),
  ];
}

/**
 * The parts of the sentence `why` that a grading run can compute (verification-method.md section 8).
 * @param version version of our checks, which determines some words (record/card)
 */
export const whyParts = (grade: Grade, sums: Sums, figures: Figures, now: Date, version: string): WhyParts => ({
  causes: listCauses(grade, sums, figures, version),
  unrated: grade.rawBand === "UNRATED" ? describeUnrated(grade, sums, now.getTime(), version) : null,
  figures: describeFigures(grade, sums),
});

/**
 * The parts of `why` for the card of an endpoint without an observation that counts.
 * @param emptied true if a correction withdrew all observations
 */
export const emptyWhy = (emptied: boolean): WhyParts => ({
  causes: [],
  unrated: emptied
    ? "every record it stood on was withdrawn"
    : `0 of ${params.letter_min_effective_paid} paid calls so far; unknown, not bad`,
  figures: [],
});

/** What the sentence of a published card is made from. */
export interface PublishedLetter {
  /** The letter after the hold (hold.ts). */
  band: Band;
  /** The letter before the hold, to which the causes belong; absent if it equals `band`. */
  rawBand?: Band;
  parts: WhyParts;
  /** UTC day on which the letter may rise, where the hold keeps it down; else null. */
  heldUntil: string | null;
}

const ALL_WELL = "it delivers, its answers are right, and it keeps to its listing";

/** The verdict and its causes, without the letter. */
function describeLetter({ band, rawBand = band, parts, heldUntil }: PublishedLetter): string {
  const causes = parts.causes.join("; ");
  if (band === rawBand || rawBand === "UNRATED") return causes || parts.unrated || ALL_WELL;
  const currentText = `what it does now would earn ${rawBand}${causes ? ` (${causes})` : ""}`;
  if (heldUntil === null) return `the letter of the endpoint's first card stands; ${currentText}`;
  return `a worse letter of the last ${params.hold_days} days stands until ${dateOf(Date.parse(heldUntil))} at least; ${currentText}`;
}

const capitalize = (text: string): string => `${text[0]!.toUpperCase()}${text.slice(1)}`;

/**
 * The whole sentence of a card (verification-method.md section 8).
 * @throws TypeError where the letter is UNRATED and the parts give no reason for it
 */
export function whyText(published: PublishedLetter): string {
  const { band, parts } = published;
  if (band === "UNRATED" && parts.unrated === null) throw new TypeError("why: UNRATED without a reason");
  const sentence = band === "UNRATED" ? parts.unrated! : describeLetter(published);
  const figures = parts.figures.length > 0 ? ` ${capitalize(parts.figures.join("; "))}.` : "";
  return `${band}: ${sentence}.${figures}`;
}
