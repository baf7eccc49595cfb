import type { Component } from "../record/card.ts";
import type { Tier } from "../record/vocabulary.ts";
import { designEffect, lower, lowerByBuyers, round6, upper } from "./bounds.ts";
import { params } from "./params.ts";
import { latencyScore, type Stratum } from "./scores.ts";
import type { PartName, Sums } from "./sums.ts";

/**
 * A component's figures as published (6 decimals), and the figures that its caps and the sentence `why` use. `w` is
 * the weight of its samples, `s` their weighted successes, `deff` the design effect (bounds.ts), and `n_eff` is w /
 * deff.
 */
export interface Figure {
  point: number;
  lower: number;
  upper: number;
  n_eff: number;
  w: number;
  s: number;
  deff: number;
  /** Does a call that a buyer published, and that counts, lie below the bound of our own calls? */
  isAnyCallBelow: boolean;
  /** How the figure was computed, such as `lines4/1;a=0.05;block=6h;W=43;deff=1`. */
  method: string;
}

/** Figures of one endpoint, from which the cards of all its tiers are made. */
export type Figures = Record<PartName | "latency_p95" | "price_stability", Figure | null>;

const METHOD = `lines4/1;a=${params.alpha_each_side}`;
const BLOCK_HOURS = params.block_seconds / 3_600;

/** A number as text with at most 6 decimals, without trailing zeros. */
const shortDecimal = (x: number): string => String(round6(x));

const methodOf = (block: string, w: number, deff: number): string =>
  `${METHOD};block=${block};W=${shortDecimal(w)};deff=${shortDecimal(deff)}`;

function partFigure(sums: Sums, part: PartName): Figure | null {
  const partSums = sums.parts[part];
  if (!partSums || !(partSums.w > 0)) return null;
  const { w, s } = partSums;
  const deff = designEffect(partSums.bad, partSums.starts, partSums.m);
  const bound = lowerByBuyers(s, w, deff, sums.buyers[part] ?? []);
  return {
    point: round6(bound.point),
    lower: round6(bound.lower),
    upper: round6(upper(s, w) ?? 1),
    n_eff: round6(w / deff),
    w,
    s,
    deff,
    isAnyCallBelow: bound.isAnyCallBelow,
    method: methodOf(`${BLOCK_HOURS}h`, w, deff),
  };
}

/**
 * The figure of the slower stratum (exchanges without payment, or paid calls); of the paid one where both are equally
 * slow. A stratum with too few samples for a bound is left out.
 */
function latencyFigure({ free, paid }: Sums["latency"]): Figure | null {
  const [stratum, name]: [Stratum | null, string] =
    paid && (!free || paid.high >= free.high) ? [paid, "paid"] : [free, "free"];
  if (!stratum) return null;
  const times = `stratum=${name};p95_ms=${shortDecimal(stratum.p95)};p95_ms_hi=${shortDecimal(stratum.high)}`;
  return {
    point: round6(latencyScore(stratum.p95)),
    lower: round6(latencyScore(stratum.high)),
    upper: round6(latencyScore(stratum.low)),
    n_eff: stratum.w,
    w: stratum.w,
    s: stratum.w,
    deff: 1,
    isAnyCallBelow: false,
    method: `${methodOf(`${BLOCK_HOURS}h`, stratum.w, 1)};${times}`,
  };
}

function priceFigure({ w, s }: Sums["price"]): Figure | null {
  if (!(w > 0)) return null;
  return {
    point: round6(s / w),
    lower: round6(lower(s, w) ?? 0),
    upper: round6(upper(s, w) ?? 1),
    n_eff: w,
    w,
    s,
    deff: 1,
    isAnyCallBelow: false,
    method: methodOf("1d", w, 1),
  };
}

export const figuresOf = (sums: Sums): Figures => ({
  liveness: partFigure(sums, "liveness"),
  honesty: partFigure(sums, "honesty"),
  paid_honesty: partFigure(sums, "paid_honesty"),
  delivery: partFigure(sums, "delivery"),
  outcome: partFigure(sums, "outcome"),
  schema_conformance: partFigure(sums, "schema_conformance"),
  latency_p95: latencyFigure(sums.latency),
  price_stability: priceFigure(sums.price),
});

/** The part that correctness is measured by on a tier; null on LIVENESS_VERIFIED. */
export const correctnessPart = (tier: Tier): "outcome" | "delivery" | null =>
  tier === "OUTCOME_VERIFIED" ? "outcome" : tier === "DELIVERY_VERIFIED" ? "delivery" : null;

/** The six figures that a card of this tier shows. A LIVENESS_VERIFIED card shows no figures of paid answers. */
export function figuresShownOn(tier: Tier, figures: Figures): Record<keyof typeof params.weights, Figure | null> {
  const checkedPart = correctnessPart(tier);
  return {
    liveness: figures.liveness,
    correctness: checkedPart && figures[checkedPart],
    honesty: figures.honesty,
    schema_conformance: checkedPart && figures.schema_conformance,
    latency_p95: figures.latency_p95,
    price_stability: figures.price_stability,
  };
}

const EMPTY_COMPONENT: Component = { point: null, lower: null, upper: null, n_eff: 0, method: "lines4/1;none" };

/**
 * Makes a card's component from a figure.
 * @param checkedPart part by which correctness is measured; null for every other component
 */
export function toComponent(figure: Figure | null, checkedPart: string | null = null): Component {
  if (!figure) return { ...EMPTY_COMPONENT };
  const { point, lower, upper, n_eff, method } = figure;
  return { point, lower, upper, n_eff, method: checkedPart ? `${method};x=${checkedPart}` : method };
}
