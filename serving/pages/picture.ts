import { scaleLog } from "d3-scale";
import { html, raw } from "hono/html";
import type { Component, Components } from "../../pipelines/record/card.ts";
import type { ComponentName } from "../../pipelines/record/vocabulary.ts";
import { COMPONENT_NAMES, formatFigure, formatRoundedDown } from "./words.ts";

const WIDTH = 360;
const ROW_HEIGHT = 40;
/**
 * Values of good sellers are close together below 1, so the scale is stretched there: it is logarithmic in the distance
 * to 1. This constant is added to the distance, so that 1 itself has a position.
 */
const OFFSET = 0.02;
const stretchedScale = (from: number, to: number) => {
  const scale = scaleLog([1 + OFFSET, OFFSET], [from, to]).clamp(true);
  return (value: number): number => scale(1 - value + OFFSET);
};
const pictureScale = stretchedScale(4, WIDTH - 4);
const miniScale = stretchedScale(2, 118);

const round = (value: number): number => Math.round(value * 10) / 10;
const x = (value: number): number => round(pictureScale(value));

/**
 * Returns the words for a component without a bound. Latency gets a bound only after calls were timed in enough
 * different periods of six hours.
 */
const unboundedWords = (name: ComponentName): string => (name === "latency_p95" ? "not bounded yet" : "not measured");

/** Describes a component in one phrase. */
export const componentWords = (name: ComponentName, { point, lower, upper }: Component): string => {
  if (lower === null) return unboundedWords(name);
  const upperText = upper == null ? "" : `, at most ${formatFigure(upper)}`;
  return `at least ${formatRoundedDown(lower)}${upperText}, seen ${formatFigure(point)}`;
};

const summary = (components: Components): string =>
  COMPONENT_NAMES.map(([name, words]) => `${words}: ${componentWords(name, components[name])}`).join("; ");

function componentBar(name: ComponentName, words: string, at: number, component: Component): unknown {
  const { point, lower, upper } = component;
  const y = at * ROW_HEIGHT;
  const bounds =
    lower === null
      ? ""
      : html`<line class="bound" x1="${x(lower)}" x2="${x(upper ?? lower)}" y1="${y + 26}" y2="${y + 26}" stroke-width="9"/>
<line class="tick" x1="${x(lower)}" x2="${x(lower)}" y1="${y + 19}" y2="${y + 33}" stroke-width="2"/>`;
  return html`<text x="0" y="${y + 13}">${words}</text>
<text class="axis" x="${WIDTH}" y="${y + 13}" text-anchor="end">${lower === null ? unboundedWords(name) : `≥ ${formatRoundedDown(lower)}`}</text>
<line class="track" x1="0" x2="${WIDTH}" y1="${y + 26}" y2="${y + 26}" stroke-width="1.5"/>${bounds}${
    point === null ? "" : html`<circle class="point" cx="${x(point)}" cy="${y + 26}" r="3.5"/>`
  }`;
}

/** Values that are labelled below the scale, far enough apart that their texts do not touch. */
const MARKS = [0, 0.5, 0.8, 0.9, 0.95, 1];

const scaleLabel = (value: number): unknown => {
  const anchor = value === 0 ? "start" : value === 1 ? "end" : "middle";
  return html`<text class="axis" x="${value === 0 ? 0 : value === 1 ? WIDTH : x(value)}" y="${COMPONENT_NAMES.length * ROW_HEIGHT + 10}" text-anchor="${anchor}">${value}</text>`;
};

/**
 * Draws the six components on a scale from 0 to 1, stretched towards 1: a bar between the bounds, a dot for the
 * estimate.
 */
export function componentPicture(components: Components): unknown {
  return html`<svg role="img" aria-labelledby="picture-title picture-desc" viewBox="0 0 ${WIDTH} ${COMPONENT_NAMES.length * ROW_HEIGHT + 14}">
<title id="picture-title">The six measured components with their bounds</title><desc id="picture-desc">${summary(components)}.</desc>
${COMPONENT_NAMES.map(([name, words], at) => componentBar(name, words, at, components[name]))}
${MARKS.map(scaleLabel)}</svg>`;
}

/** Draws the components in the size of a table's cell. The figures are in the table below the market, as text. */
export function miniComponentPicture(components: Components, cap: string): string {
  let bars = "";
  let lowerTicks = "";
  let dots = "";
  for (const [at, [name]] of COMPONENT_NAMES.entries()) {
    const { point, lower, upper } = components[name];
    const y = 4 + at * 8;
    if (lower !== null) {
      bars += `M${round(miniScale(lower))} ${y}H${Math.max(round(miniScale(upper ?? lower)), round(miniScale(lower)) + 1)}`;
      lowerTicks += `M${round(miniScale(lower))} ${y - 3}v6`;
    }
    if (point !== null) dots += `M${round(miniScale(point)) - 1.5} ${y}h3`;
  }
  return `<svg class="mini" role="img" aria-labelledby="t${cap}" aria-details="figures" viewBox="0 0 120 47"><title id="t${cap}">${summary(components)}</title><path class="track" d="M2 4h116M2 12h116M2 20h116M2 28h116M2 36h116M2 44h116"/><path class="bound" stroke-width="4" d="${bars}"/><path class="tick" d="${lowerTicks}"/><path class="tick" stroke-width="3" d="${dots}"/></svg>`;
}

/** Renders the figures of the components as a table, for readers who do not see the picture or want all figures. */
export const componentTable = (
  components: Components,
): unknown => html`<div class="scroll" tabindex="0" role="region" aria-label="Figures of the components">
<table><caption>Point is what the samples showed; the letter depends on the lower bound. Latency gets a bound after 72 timed six-hour spells.</caption>
<thead><tr><th scope="col">Component</th><th scope="col" class="n">Point</th><th scope="col" class="n">Lower</th><th scope="col" class="n">Upper</th>
<th scope="col" class="n">Effective samples</th><th scope="col">Method</th></tr></thead><tbody>${COMPONENT_NAMES.map(
  ([name, words]) => {
    const { point, lower, upper, n_eff, method } = components[name];
    return html`<tr><th scope="row">${words}</th><td class="n">${formatFigure(point)}</td>
<td class="n">${formatRoundedDown(lower)}</td><td class="n">${formatFigure(upper)}</td><td class="n">${formatFigure(n_eff, 1)}</td><td><code>${method}</code></td></tr>`;
  },
)}</tbody></table></div>`;

const PIP_SIZE = 12;
/**
 * Draws thirty squares, one for each paid call that a letter needs, of which `progress` are filled. The number is
 * beside the picture as text, so screen readers skip the picture.
 */
export const pips = (progress: number): unknown => {
  const square = (from: number, to: number): string =>
    Array.from(
      { length: to - from },
      (_, i) => `M${(from + i) * PIP_SIZE} 0h${PIP_SIZE - 3}v${PIP_SIZE - 3}h-${PIP_SIZE - 3}z`,
    ).join("");
  return html`<svg class="pips" aria-hidden="true" viewBox="0 0 ${30 * PIP_SIZE - 3} ${PIP_SIZE - 3}">${raw(
    `<path class="off" d="${square(progress, 30)}"/><path class="good" d="${square(0, progress)}"/>`,
  )}</svg>`;
};
