import { scaleLinear, scaleUtc } from "d3-scale";
import { html, raw } from "hono/html";
import { DAY_MS } from "../../pipelines/record/time.ts";

/** Width of a phone's screen, so that a chart's texts keep their size there. On wider screens the chart is enlarged. */
const WIDTH = 360;
const HEIGHT = 150;
const LEFT = 52;
const RIGHT = 6;
const TOP = 8;
const BOTTOM = 20;
/** The y of the lowest line of a chart. */
export const FLOOR = HEIGHT - BOTTOM;
/** Least number of days on the axis: fewer days are not stretched over the whole width. */
const MIN_DAYS = 7;

/**
 * Returns the scale from times (unix ms) to x for the days `from` to `to`, numbered from 1970. It begins earlier if
 * these are fewer than {@link MIN_DAYS}.
 */
export function timeScale(from: number, to: number) {
  const first = Math.min(from, to - MIN_DAYS + 1);
  return scaleUtc([first * DAY_MS, to * DAY_MS], [LEFT + 3, WIDTH - RIGHT - 3]);
}
export type TimeScale = ReturnType<typeof timeScale>;

/** Returns the scale from a value of 0 or more to y; it ends on a round figure. */
export const valueScale = (largest: number) =>
  scaleLinear([0, largest > 0 ? largest : 1], [FLOOR, TOP])
    .nice(4)
    .clamp(true);

/** Returns the scale from a name to y; the first name is on top. */
export const rungScale = (names: readonly string[]) => {
  const step = (FLOOR - TOP - 10) / Math.max(1, names.length - 1);
  return (name: string): number => Math.round((TOP + 5 + names.indexOf(name) * step) * 10) / 10;
};

const roundToTenth = (value: number): number => Math.round(value * 10) / 10;

const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const dayWords = (at: Date): string => `${at.getUTCDate()} ${MONTHS[at.getUTCMonth()]}`;

/** Least distance between the texts of two days. */
const DAY_TEXT_WIDTH = 50;

/** Draws the dates below the chart: a few of them, so far apart that their texts do not touch. */
export function timeAxis(x: TimeScale): string {
  let last = Number.NEGATIVE_INFINITY;
  const marks: string[] = [];
  for (const at of x.ticks(5)) {
    const px = roundToTenth(x(at));
    if (at.getTime() % DAY_MS !== 0 || px - last < DAY_TEXT_WIDTH) continue;
    last = px;
    const anchor = px > WIDTH - 24 ? "end" : "middle";
    marks.push(
      `<path class="grid" d="M${px} ${FLOOR}v4"/><text class="axis" x="${px}" y="${FLOOR + 16}" text-anchor="${anchor}">${dayWords(at)}</text>`,
    );
  }
  return marks.join("");
}

/** Draws a horizontal line with its text on the left. `words` must be our own text, since it is not escaped. */
export const horizontalLine = (y: number, words: string): string =>
  `<path class="grid" d="M${LEFT} ${roundToTenth(y)}H${WIDTH - RIGHT}"/><text class="axis" x="${LEFT - 6}" y="${roundToTenth(y) + 4}" text-anchor="end">${words}</text>`;

export interface Chart {
  id: string;
  title: string;
  /** One sentence about what the chart shows. */
  says: string;
  /** SVG inside the frame, made of numbers and our own text only. */
  frameSvg: string;
  /** The legend: [SVG of 22 by 10, words]. */
  legend: readonly (readonly [string, string])[];
  /** Id of the table with the figures. */
  tableId: string;
}

/** Renders a chart with its title, a sentence about it, its legend, and a reference to its table. */
export const timeChart = ({ id, title, says, frameSvg, legend, tableId }: Chart): unknown => html`<figure class="chart">
<h3 id="${id}-name">${title}</h3>
<svg role="img" aria-labelledby="${id}-title ${id}-desc" aria-details="${tableId}" viewBox="0 0 ${WIDTH} ${HEIGHT}"><title id="${id}-title">${title}</title>
<desc id="${id}-desc">${says}</desc>${raw(frameSvg)}</svg>
<ul class="key">${legend.map(([mark, words]) => html`<li>${raw(`<svg aria-hidden="true" viewBox="0 0 22 10">${mark}</svg>`)}${words}</li>`)}</ul>
<figcaption aria-hidden="true">${says}</figcaption></figure>`;

export const LEGEND_LINE = '<path class="line" d="M0 5h22"/>';
export const LEGEND_THIN = '<path class="thin" d="M0 5h22"/>';
export const LEGEND_AREA = '<path class="area" d="M0 0h22v10h-22z"/>';
